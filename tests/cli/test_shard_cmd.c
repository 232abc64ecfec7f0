/* test_shard_cmd.c -- `polar run --shard` and `polar store merge`, from outside: four shards joined give the
 * audit and the report of one run, byte for byte; wrong words; stores that disagree; kill -9 while joining.
 */
#include "cli_fixture.h"

#include <sqlite3.h>

#include "fixtures/store_resum.h"

#define RUN   "$P run $D/small.yaml --device ref"
#define AUDIT "$P audit small --format json --store $D/"

static void change(const char *name, const char *sql)
{
    sqlite3 *db;
    if (sqlite3_open(in_folder(name), &db) != SQLITE_OK ||
        sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK) {
        printf("%s: %s\n", sql, sqlite3_errmsg(db));
        exit(1);
    }
    store_resum(db);
    sqlite3_close(db);
}

/* No two runs of a run take the same time: the report is compared with clocks that stand still. */
#define STILL                                                                                              \
    "UPDATE run SET wall = 1 + seed, started = '2026-01-01T00:00:00Z', finished = '2026-01-01T00:00:01Z';" \
    "UPDATE epoch SET seconds = 0.25"

static void test_shards(void)
{
    accepted(RUN " --store $D/one.db 2>$D/log; tail -n 1 $D/log", "18 of 18 runs are done, 18 now");
    accepted(RUN " --shard 1/4 --store $D/s1.db 2>$D/log; tail -n 1 $D/log", "5 of 5 runs are done, 5 now");
    accepted(RUN " --shard 2/4 --store $D/s2.db 2>$D/log; tail -n 1 $D/log", "5 of 5 runs are done");
    accepted(RUN " --shard 3/4 --store $D/s3.db --jobs 2 2>$D/log; tail -n 1 $D/log", "4 of 4 runs are done");
    accepted(RUN " --shard 3/4 --store $D/s3.db 2>$D/log; tail -n 1 $D/log", "4 of 4 runs are done\n");
    accepted(RUN " --shard=4/4 --store $D/s4.db --format csv 2>$D/log; tail -n 1 $D/log",
             "4 of 4 runs are done");
    accepted("$P store merge $D/m.db $D/s1.db $D/s2.db $D/s3.db $D/s4.db",
             "18 of 18 runs are done, 18 of them new");
    accepted(AUDIT "one.db >$D/one.json && " AUDIT
                   "m.db >$D/m.json && cmp $D/one.json $D/m.json && echo same",
             "same");
    accepted("$P audit $D/small.yaml --store $D/m.db --format json | cmp $D/one.json && echo same", "same");
    accepted("$P store check --store $D/m.db", "is sound");
    accepted("ls $D | grep -c m.db", "1\n"); /* one file, and nothing beside it */
    test_true("nothing is left beside it", count_files("tmp.") == 0, "%d", count_files("tmp."));
    change("one.db", STILL);
    change("m.db", STILL);
    accepted("mkdir $D/a $D/b; cp $D/one.db $D/a/r.db; cp $D/m.db $D/b/r.db; (cd $D/a; $P report --store "
             "r.db -o r)"
             " >$D/o 2>&1; (cd $D/b; $P report --store r.db -o r) >$D/o 2>&1; ls $D/a/r | wc -l; diff -r "
             "$D/a/r "
             "$D/b/r && echo same",
             "same");
}

/* More shards than runs, and shards that overlap: one of 2 and one of 3. */
static void test_others(void)
{
    accepted(RUN " --shard 40/40 --store $D/e.db 2>$D/log; tail -n 1 $D/log", "0 of 0 runs are done");
    accepted(RUN " --shard 1/1 --set seeds=0 --store $D/w.db 2>$D/log; tail -n 1 $D/log", "6 of 6 runs");
    accepted("$P store merge $D/x.db $D/e.db $D/s1.db $D/s1.db $D/w.db", "10 of 18 runs are done");
    accepted("$P store merge $D/x.db $D/one.db $D/m.db", "18 of 18 runs are done, 8 of them new");
    accepted(AUDIT "x.db | cmp $D/one.json && echo same", "same");
    accepted(RUN " --store $D/e.db --shard 1/18 2>$D/log; $P store merge $D/e.db $D/x.db", "17 of them new");
}

static void test_use(void)
{
    static const char *const wrong[] = {"0/4",   "5/4", "x/y",           "3",     "3/",  "/4", "-1/4",
                                        "1/4/2", "1/0", "1/99999999999", "1.5/4", "+1/4"};
    char command[300];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(command, sizeof command, RUN " --store $D/no.db --shard '%s'", wrong[i]);
        refused(command, 2, "--shard wants K/N with K from 1 to N");
    }
    refused(RUN " --shard 1e1/4 --store $D/no.db", 2, "got '1e1/4'");
    refused("$P store merge", 2, "OUT is missing");
    refused("$P store merge $D/no.db", 2, "IN is missing");
    refused("$P store merge $D/no.db $D/none.db", 2, "no store at");
    refused("$P store merge $D/no.db $D/one.db $D/small.yaml", 2, "not an SQLite database");
    refused("$P store merge $D/none/no.db $D/one.db", 2, "no folder for it");
    refused("TMPDIR=$D/none $P store merge $D/no.db $D/one.db", 3, "TMPDIR says where");
    refused("$P store merge $D $D/one.db", 2, "not a regular file");
    test_true("... and no store is made", !exists("no.db"), "%s", "");
    helps("store merge");
    accepted("$P help store", "store merge");
}

static void test_disagree(void)
{
    char before[200];
    accepted("cp $D/s2.db $D/bad.db && cat $D/x.db | cksum", "");
    snprintf(before, sizeof before, "%.190s", last.out);
    change("bad.db",
           "UPDATE result SET value = value * 1.0000001 WHERE name = 'test_mse' AND run IN (SELECT id FROM "
           "run WHERE state = 'done' ORDER BY id LIMIT 2)");
    sh("$P store merge $D/x.db $D/s1.db $D/bad.db");
    test_true("runs that disagree are named",
              last.code == 1 && strstr(last.out, "differs: run ") &&
                  strstr(last.out, ": its result test_mse is ") &&
                  strstr(last.out, "2 disagreements, nothing was joined") && !*last.err,
              "exit %d: %s", last.code, first_line(last.out));
    sh("cat $D/x.db | cksum");
    test_true("... and nothing is joined", !strcmp(before, last.out), "%s", last.out);
    sh("$P store merge $D/new.db $D/s2.db $D/bad.db");
    test_true("... nor made", last.code == 1 && !exists("new.db"), "exit %d", last.code);
}

/* s1, s2 and one into k.db, killed after so many microseconds, 0: not. */
static double join_killed(useconds_t after)
{
    const char *const args[] = {"polar",
                                "store",
                                "merge",
                                in_folder("k.db"),
                                in_folder("s1.db"),
                                in_folder("s2.db"),
                                in_folder("one.db"),
                                NULL};
    unlink(args[3]);
    return cli_killed(args, after);
}

/* Killed at a random moment of what the joining takes undisturbed, OUT is not there, or whole. */
static void test_kill(void)
{
    int whole = 0, none = 0, wrong = 0;
    uint64_t x = 88172645463325252ull;
    double all = join_killed(0);
    for (int i = 0; i < 24; i++) {
        join_killed(cli_moment(&x, all));
        int there = exists("k.db");
        if (there) sh(AUDIT "k.db | cmp $D/one.json && $P store check --store $D/k.db");
        whole += there;
        none += !there;
        wrong += there && last.code != 0;
    }
    test_true("kill -9 while joining: whole or not at all", wrong == 0 && none > 0, "%d whole, %d not there",
              whole, none);
    sh("rm -rf $D/polar-merge.*");
}

int main(int argc, char **argv)
{
    if (!cli_begin(argc, argv)) return 1;
    setenv("TMPDIR", folder, 1);
    cli_write_small_spec();
    test_shards();
    test_others();
    test_use();
    test_disagree();
    test_kill();
    return cli_end();
}
