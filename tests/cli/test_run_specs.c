/* test_run_specs.c -- several specs in one `polar run` and `polar plan`, from outside: wrong files, the same
 * one twice, runs that two of them share, shards, and kill -9: every audit is that of the spec run alone. */
#include "cli_fixture.h"

#define TWO   "$D/small.yaml $D/second.yaml"
#define RUN   "$P run " TWO " --device ref"
#define TINY  SOURCE_DIR "/specs/demo/deit_tiny.yaml"
#define AUDIT "$P audit --format json --store $D/"

/* second.yaml: the small spec with the widths 3 and 4, so that half of its eighteen runs are the other's;
 * elsewhere/small.yaml: the small spec's name with one seed less. */
static void write_specs(void)
{
    cli_write_small_spec();
    sh("sed -e 's/small/second/' -e 's/2, 3/3, 4/' $D/small.yaml >$D/second.yaml; mkdir $D/elsewhere; "
       "sed 's/0..2/0..1/' $D/small.yaml >$D/elsewhere/small.yaml");
}

static void test_wrong(void)
{
    refused("$P run --store $D/x.db", 2, "SPEC is missing");
    refused("$P plan", 2, "SPEC is missing");
    refused("$P run $D/small.yaml $D/none.yaml --store $D/x.db", 2, "none.yaml");
    refused("$P plan $D/small.yaml $D/none.yaml", 2, "none.yaml");
    refused("$P run $D/small.yaml $D/small.yaml --store $D/x.db", 2, "both the spec small: give it once");
    refused("$P run $D/small.yaml $D/elsewhere/small.yaml --store $D/x.db", 2,
            "elsewhere/small.yaml' are both the spec small");
    refused("$P plan $D/small.yaml $D/small.yaml", 2, "plan: '");
    refused(RUN " --set model.width=2 --store $D/x.db", 2, "second.yaml has 3, 4");
    refused(RUN " --set optim.lr=fast --store $D/x.db", 2, "small.yaml: --set optim.lr");
    refused("$P run $D/small.yaml " TINY " --set model.layers=2 --store $D/x.db", 2, "deit_tiny.yaml: --set");
    refused("$P plan $D/small.yaml " TINY " --set model.layers=2", 2, "deit_tiny.yaml: --set");
    test_true("... and no store is made", !exists("x.db"), "%s", "");
}

static void test_two(void)
{
    accepted("$P run $D/small.yaml --device ref --store $D/a.db 2>$D/log; tail -n 1 $D/log", "18 of 18 runs");
    accepted("$P run $D/second.yaml --device ref --store $D/b.db 2>$D/log; tail -n 1 $D/log",
             "18 of 18 runs");
    accepted(AUDIT "a.db small >$D/a.json; " AUDIT "b.db second >$D/b.json; wc -c <$D/b.json", "");
    accepted("$P plan " TWO " --store $D/a.db", "In all: 2 specs, 27 distinct runs. Left: 9 runs");
    accepted(RUN " --store $D/two.db 2>$D/log; tail -n 1 $D/log", "27 of 27 runs are done, 27 now");
    accepted("grep '^.27/27' $D/log", "[27/27] second model.width=4 polaradamw seed 2: test_mse");
    accepted("head -n 18 $D/log | grep -c '/27. small '", "18\n");
    accepted(AUDIT "two.db small | cmp $D/a.json && " AUDIT "two.db second | cmp $D/b.json && echo same",
             "same");
    accepted(RUN " --store $D/two.db 2>&1 >$D/o", "27 of 27 runs are done\n");
    accepted("cat $D/o", "small: ");
    test_true("a table for each", strstr(last.out, "\nsecond: ") != NULL, "%zu bytes", strlen(last.out));
    accepted(RUN " --store $D/two.db --format csv 2>$D/log", "spec,metric,cell,arm,runs,");
    int lines = 0;
    for (const char *c = last.out; *c; c++) lines += *c == '\n';
    test_true("... and one in CSV",
              lines == 13 && strstr(last.out, "\nsecond,test_mse,model.width=4,muon,3,"), "%d lines", lines);
    accepted("$P plan " TWO " --store $D/two.db", "In all: 2 specs, 27 distinct runs. Left: 0 runs");
    accepted("$P plan " TWO " --runs --format csv --store $D/two.db | grep -c '^s.*,done$'", "36\n");
    accepted("$P plan " TWO " --format json --store $D/two.db",
             "{\"spec\": \"second\", \"cell\": \"model.width=3\", ");
}

static void test_testbeds(void)
{
    accepted("$P run " TINY " $D/small.yaml --store $D/mixed.db 2>$D/log; tail -n 1 $D/log",
             "20 of 20 runs are done");
    accepted("$P run $D/small.yaml --store $D/c.db >$D/o 2>&1; " AUDIT "c.db small >$D/c.json; " AUDIT
             "mixed.db small | cmp $D/c.json && echo same",
             "same");
    accepted("$P plan " TINY " $D/small.yaml --store $D/mixed.db",
             "In all: 2 specs, 20 distinct runs. Left: 0");
}

static void test_shards(void)
{
    for (int k = 1; k <= 3; k++) {
        char command[200];
        snprintf(command, sizeof command, RUN " --shard %d/3 --store $D/s%d.db 2>$D/log; tail -n 1 $D/log", k,
                 k);
        accepted(command, "9 of 9 runs are done, 9 now");
    }
    accepted("$P store merge $D/m.db $D/s1.db $D/s2.db $D/s3.db; " AUDIT
             "m.db small | cmp $D/a.json && " AUDIT "m.db second | cmp $D/b.json && echo same",
             "same");
}

/* Three processes as mpirun would start them. */
static void test_ranks(void)
{
    accepted("mkdir $D/tmp; export TMPDIR=$D/tmp PMI_SIZE=3; PMI_RANK=2 " RUN
             " --store $D/r.db & PMI_RANK=1 " RUN " --store $D/r.db & PMI_RANK=0 " RUN
             " --store $D/r.db; code=$?; wait; exit $code",
             "\nsecond: ");
    accepted(AUDIT "r.db small | cmp $D/a.json && " AUDIT "r.db second | cmp $D/b.json && echo same", "same");
}

static void test_kill(void)
{
    int killed = 0, wrong = 0, rounds = 0;
    uint64_t x = 88172645463325252ull;
    const char *const args[] = {"polar",
                                "run",
                                in_folder("small.yaml"),
                                in_folder("second.yaml"),
                                "--device",
                                "ref",
                                "--store",
                                in_folder("k.db"),
                                NULL};
    double all = cli_killed(args, 0);
    for (; rounds < 8 || (!killed && rounds < 40); rounds++) {
        int before = killed;
        sh("rm -rf $D/k.db*");
        for (int k = 0; k < 2; k++) cli_killed(args, cli_moment(&x, all));
        sh(RUN " --store $D/k.db 2>&1 >$D/o");
        killed += strstr(last.err, " now, in ") || strstr(last.out, " now, in ");
        wrong += last.code != 0;
        sh(AUDIT "k.db small | cmp $D/a.json && " AUDIT "k.db second | cmp $D/b.json");
        wrong += last.code != 0;
        if (killed == before) all *= 0.8; /* the machine was busier when it was measured */
    }
    test_true("kill -9, then the same command", !wrong && killed > 0, "%d of %d had something left", killed,
              rounds);
}

int main(int argc, char **argv)
{
    if (!cli_begin(argc, argv)) return 1;
    write_specs();
    test_wrong();
    test_two();
    test_testbeds();
    test_shards();
    test_ranks();
    test_kill();
    return cli_end();
}
