/* test_import_cmd.c -- `polar store import`, from outside: a report's tables put into an empty store give its
 * audit, its tables and, with epochs, its figures again; stores and tables that disagree; pictures; kill -9.
 */
#include "cli_fixture.h"

#define IMPORT "$P store import $D/small.yaml --runs $D/r/tables/small_runs.csv"
#define DEIT \
    "$P store import $D/deit.yaml --runs $D/q/tables/deit_runs.csv --epochs $D/q/tables/deit_epochs.csv"

static void write_deit_spec(void)
{
    FILE *f = fopen(in_folder("deit.yaml"), "w");
    if (!f) exit(1);
    fputs("name: deit\ntestbed: deit\nmetric: top1\nseeds: 0..1\narms: [adamw, muon]\ntests: {target: 40}\n"
          "set: {data.set: 'synth:classes=3,train=8,test=4,size=8,seed=0', data.classes: 0, model.image: 8, "
          "model.patch: 4,"
          " model.width: 8, model.depth: 1, model.heads: 2, train.batch: 4, train.epochs: 3}\n",
          f);
    fclose(f);
}

/* No epochs: the testbed has many small runs, and a report writes none. */
static void test_runs(void)
{
    accepted("$P run $D/small.yaml --device ref --store $D/one.db 2>$D/log; tail -n 1 $D/log", "18 now");
    accepted("$P report small --store $D/one.db -o $D/r >$D/o 2>&1; ls $D/r/tables", "small_runs.csv");
    accepted(IMPORT " --store $D/two.db", "18 of 18 runs are done, 18 of them new");
    accepted(
        "$P audit small --store $D/one.db --format json >$D/one.json && $P audit small --store $D/two.db "
        "--format json | cmp $D/one.json && echo same",
        "same");
    accepted("$P audit $D/small.yaml --set seeds=0..1 --store $D/two.db --format json >$D/a.json && $P audit "
             "$D/small.yaml --set seeds=0..1 --store $D/one.db --format json | cmp $D/a.json && echo same",
             "same");
    accepted(
        "$P audit small --metric wall --store $D/one.db >$D/a.txt && $P audit small --metric wall --store "
        "$D/two.db | cmp $D/a.txt && echo same",
        "same");
    accepted("$P store check --store $D/two.db", "is sound");
    /* all but the times of epochs, which nobody knows */
    accepted("$P report small --store $D/two.db -o $D/s >$D/o 2>&1; rm $D/r/tables/small_seconds.*; diff -r "
             "$D/r/tables $D/s/tables && echo same",
             "same");
    accepted("grep -c 'were imported from tables of another report, 18 of them without their epochs' "
             "$D/s/index.html; ls $D/s/figures | grep -c trajectories; true",
             "1\n0\n");
    accepted("$P audit small --store $D/two.db --run $(sed -n 's/.*,//;2p' $D/s/tables/small_runs.csv)",
             "not known: imported from small_runs.csv\nstate  done   started -, finished -");
    accepted("$P run $D/small.yaml --device ref --store $D/two.db 2>$D/log; tail -n 1 $D/log",
             "18 of 18 runs are done\n");
    accepted(IMPORT " --store $D/one.db", "18 of 18 runs are done, 0 of them new");
    /* a spec of seconds, with the same runs */
    accepted(
        "sed 's/^name: small/name: times/; s/^seeds/metric: wall\\nseeds/' $D/small.yaml >$D/times.yaml; $P "
        "store import $D/times.yaml --runs $D/r/tables/small_runs.csv --store $D/w.db && $P audit times "
        "--store $D/w.db",
        "times: wall of every arm");
    accepted("$P audit small --metric wall --store $D/one.db | tail -n +2 >$D/a.txt; $P audit times --store "
             "$D/w.db | "
             "tail -n +2 | cmp $D/a.txt && echo same",
             "same");
}

/* Half of the audit is imported, `polar run` makes the rest, the store is that of one run. */
static void test_goes_on(void)
{
    accepted(
        "grep -v muon $D/r/tables/small_runs.csv >$D/half_runs.csv; $P store import $D/small.yaml --runs "
        "$D/half_runs.csv --store $D/half.db",
        "12 of 18 runs are done, 12 of them new");
    accepted("$P run $D/small.yaml --device ref --store $D/half.db 2>$D/log; tail -n 1 $D/log",
             "18 of 18 runs are done, 6 now");
    accepted("$P audit small --store $D/half.db --format json | cmp $D/one.json && echo same", "same");
    accepted("$P store merge $D/all.db $D/half.db $D/one.db $D/two.db",
             "18 of 18 runs are done, 18 of them new");
    accepted("$P report small --store $D/half.db -o $D/h >$D/o 2>&1; ls $D/h/figures",
             "small_trajectories.svg"); /* of those that have curves */
    /* a report that was made half way has rows of runs that were not finished */
    sh("$P run $D/small.yaml --device ref --set seeds=0 --store $D/part.db >$D/o 2>&1; $P store import "
       "$D/small.yaml --runs $D/half_runs.csv --store $D/most.db >$D/o; $P report small --store $D/most.db "
       "-o $D/p >$D/o 2>&1; $P store import $D/small.yaml --runs $D/p/tables/small_runs.csv --store "
       "$D/part.db");
    test_true("rows of unfinished runs are left out",
              last.code == 0 && strstr(last.out, "14 of 18 runs are done, 8 of them new") &&
                  strstr(last.err, "note: 6 rows are of runs that were not finished, and left out"),
              "%s%s", last.out, last.err);
}

static void test_pictures(void)
{
    accepted("$P run $D/deit.yaml --device ref --store $D/d1.db 2>$D/log; tail -n 1 $D/log", "4 now");
    accepted("$P report deit --store $D/d1.db -o $D/q >$D/o 2>&1; ls $D/q/tables", "deit_epochs.csv");
    accepted(DEIT " --store $D/d2.db", "4 of 4 runs are done, 4 of them new");
    accepted("$P audit deit --store $D/d1.db --format json >$D/d1.json && $P audit deit --store $D/d2.db "
             "--format json | cmp $D/d1.json && echo same",
             "same"); /* with its target: that needs the epochs */
    accepted(
        "$P report deit --store $D/d2.db -o $D/q2 >$D/o 2>&1; diff -r $D/q/tables $D/q2/tables && echo same",
        "same");
    accepted("diff $D/q/figures $D/q2/figures >$D/o; ls $D/q2/figures", "deit_trajectories.svg");
    accepted(DEIT " --store $D/d1.db", "0 of them new"); /* the marks of improvement are the runner's, too */
    /* without epochs nobody knows when the target was reached: censored would be wrong */
    accepted("$P store import $D/deit.yaml --runs $D/q/tables/deit_runs.csv --store $D/d3.db",
             "4 of them new");
    accepted("$P audit deit --store $D/d3.db --format json | grep -c '\"target\": {\"n\": 0,'", "3");
}

/* Pictures of a folder have digits, which tell other pictures of the same name. */
static void test_folder(void)
{
    accepted("mkdir $D/a $D/b; $P data synth $D/a/set --classes 3 --train 8 --val 4 --size 8 && $P data "
             "synth $D/b/set --classes 3 "
             "--train 9 --val 4 --size 8; sed 's/synth:.*seed=0/set/; s/name: deit/name: fold/' $D/deit.yaml "
             ">$D/fold.yaml; grep -c \"data.set: 'set'\" $D/fold.yaml",
             "1\n");
    accepted(
        "$P run $D/fold.yaml --data $D/a/set --device ref --set seeds=0 --store $D/f1.db >$D/o 2>$D/log; $P "
        "report fold --store $D/f1.db -o $D/f >$D/o 2>&1; head -n 1 $D/f/tables/fold_runs.csv",
        "device,data,id");
    accepted("$P store import $D/fold.yaml --runs $D/f/tables/fold_runs.csv --store $D/f2.db",
             "2 of 4 runs are done, 2 of them new");
    refused("$P run $D/fold.yaml --data $D/b/set --device ref --store $D/f2.db", 2,
            "was trained on other data of the same name");
    accepted("$P run $D/fold.yaml --data $D/a/set --device ref --store $D/f2.db 2>$D/log; tail -n 1 $D/log",
             "4 of 4 runs are done, 2 now");
    accepted("sed 's/,data,id/,id/; s/,\"[^\"]*\",\\([0-9a-f]*\\)$/,\\1/' $D/f/tables/fold_runs.csv "
             ">$D/old_runs.csv; head -n 1 "
             "$D/old_runs.csv; $P store import $D/fold.yaml --runs $D/old_runs.csv --store $D/f3.db",
             "device,id\n"); /* as tables were: nothing to compare */
    accepted("$P run $D/fold.yaml --data $D/a/set --device ref --store $D/f3.db 2>$D/log; tail -n 1 $D/log",
             "4 of 4 runs are done, 2 now");
}

static void test_use(void)
{
    helps("store import");
    accepted("$P help store", "store import");
    refused("$P store import", 2, "SPEC is missing");
    refused("$P store import $D/small.yaml", 2, "--runs is missing");
    refused("$P store import $D/none.yaml --runs $D/r/tables/small_runs.csv --store $D/no.db", 2,
            "none.yaml");
    refused("$P store import $D/small.yaml --runs $D/none.csv --store $D/no.db", 2, "No such file");
    refused("$P store import $D/small.yaml --runs $D/small.yaml --store $D/no.db", 2,
            "small.yaml:1: no column 'id'");
    refused("$P store import $D/small.yaml --runs $D --store $D/no.db", 2, "Is a directory");
    refused(IMPORT " --epochs $D/r/tables/small_runs.csv --store $D/no.db", 2, "this is no table of epochs");
    refused(IMPORT " --set seeds=0 --store $D/no.db", 2, "is none of the 6 planned of small: give the --set");
    refused("head -c 3000 $D/r/tables/small_runs.csv >$D/cut.csv; $P store import $D/small.yaml --runs "
            "$D/cut.csv "
            "--store $D/no.db",
            2, "the last line has no end");
    test_true("... and no store is made", !exists("no.db"), "%s", "");
    sh(IMPORT " --set seeds=0 --skip-unknown --store $D/six.db");
    test_true("rows that are no runs are counted",
              last.code == 0 && strstr(last.out, "6 of 6 runs are done, 6 of them new") &&
                  strstr(last.err, "note: 12 rows are no runs of small as planned"),
              "%s", last.err);
    refused(IMPORT " --store $D/small.yaml", 2, "not an SQLite database");
}

static void test_disagree(void)
{
    char before[200];
    accepted("cp $D/two.db $D/x.db && cat $D/x.db | cksum", "");
    snprintf(before, sizeof before, "%.190s", last.out);
    accepted("awk -F, 'BEGIN { OFS = \",\" } NR == 3 { $6 = $6 * 1.5 } { print }' $D/r/tables/small_runs.csv "
             ">$D/bad_runs.csv; cmp -s $D/bad_runs.csv $D/r/tables/small_runs.csv; echo $?",
             "1");
    sh("$P store import $D/small.yaml --runs $D/bad_runs.csv --store $D/x.db");
    test_true("a run that disagrees is named",
              last.code == 1 && strstr(last.out, "differs: run ") &&
                  strstr(last.out, "bad_runs.csv:3: its result ") &&
                  strstr(last.out, "1 disagreement, nothing was put") && !*last.err,
              "exit %d: %s", last.code, first_line(last.out));
    sh("cat $D/x.db | cksum");
    test_true("... and nothing is put", !strcmp(before, last.out), "%s", last.out);
    sh("$P store import $D/small.yaml --runs $D/r/tables/small_runs.csv --runs $D/bad_runs.csv --store "
       "$D/y.db; $P "
       "audit small --store $D/y.db");
    test_true("... nor of tables that disagree", last.code == 2 && strstr(last.err, "no spec of that name"),
              "%s", last.err);
}

static double import_killed(useconds_t after)
{
    const char *const args[] = {"polar",   "store",
                                "import",  in_folder("small.yaml"),
                                "--runs",  in_folder("r/tables/small_runs.csv"),
                                "--store", in_folder("k.db"),
                                NULL};
    sh("rm -f $D/k.db*");
    return cli_killed(args, after);
}

/* Killed at a random moment of what it takes undisturbed: a store with all of it, or nothing; and the same
 * command completes it. */
static void test_kill(void)
{
    int whole = 0, none = 0, wrong = 0;
    uint64_t x = 88172645463325252ull;
    double all = import_killed(0);
    for (int i = 0; i < 24; i++) {
        import_killed(cli_moment(&x, all));
        sh(IMPORT " --store $D/k.db");
        int had = strstr(last.out, "18 of 18 runs are done, 0 of them new") != NULL;
        int lacked = strstr(last.out, "18 of 18 runs are done, 18 of them new") != NULL;
        whole += had;
        none += lacked;
        wrong += !had && !lacked;
        sh("$P audit small --store $D/k.db --format json | cmp $D/one.json && $P store check --store "
           "$D/k.db");
        wrong += last.code != 0;
    }
    test_true("kill -9 while importing: all or nothing", wrong == 0 && none > 0, "%d whole, %d without",
              whole, none);
}

int main(int argc, char **argv)
{
    if (!cli_begin(argc, argv)) return 1;
    cli_write_small_spec();
    write_deit_spec();
    test_runs();
    test_goes_on();
    test_pictures();
    test_folder();
    test_use();
    test_disagree();
    test_kill();
    return cli_end();
}
