/* test_store_cmd.c -- `polar store check`, from outside: what was changed in a store behind our back is
 * refused or left out, named, and made again with the same numbers; and a budget that ends while the plan is
 * put into the store. */
#include "cli_fixture.h"

#include <sqlite3.h>

#define RUN "$P run $D/small.yaml --store $D/s.db --device ref"

/* As a bit that flips would, or somebody with another program: the file is as sound as ever to SQLite. */
static void tamper(const char *sql)
{
    char path[128];
    sqlite3 *db;
    snprintf(path, sizeof path, "%s/s.db", folder);
    if (sqlite3_open(path, &db) != SQLITE_OK || sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK) {
        printf("%s: %s\n", sql, sqlite3_errmsg(db));
        exit(1);
    }
    sqlite3_close(db);
}

static void write_spec(void)
{
    char path[128];
    snprintf(path, sizeof path, "%s/small.yaml", folder);
    FILE *f = fopen(path, "w");
    if (!f) exit(1);
    fputs("name: small\ntestbed: so3\nseeds: 0..1\narms: [adamw, muon]\nset: {model.width: 2, model.layers: "
          "1, data.points: 4, data.train: 8, data.valid: 4, data.test: 4,"
          " train.batch: 4, train.epochs: 3, train.warmup: 1}\n",
          f);
    fclose(f);
}

static int made_again(const char *again)
{
    sh(RUN);
    test_true("... is made again", last.code == 0 && strstr(last.err, again), "'%s' wanted: %s", again,
              last.err);
    return strstr(last.err, "is damaged (") != NULL;
}

static void as_before(void)
{
    accepted("$P store check --store $D/s.db", "is sound");
    accepted("$P audit small --store $D/s.db --format json >$D/now && cmp $D/before $D/now && echo same",
             "same");
}

/* What a run gave is damaged: readers name it and go on as if it had not been made, `polar run` makes it. */
static void rotten(const char *sql, const char *names, int runs)
{
    char finished[32], again[32];
    snprintf(finished, sizeof finished, "; %d finished in", 4 - runs);
    snprintf(again, sizeof again, ", %d now, in", runs);
    tamper(sql);
    accepted("$P audit small --store $D/s.db", "not run");
    test_true(sql, last.err_lines == 1 && strstr(last.err, " as not done: ") && strstr(last.err, names), "%s",
              last.err);
    accepted("$P plan $D/small.yaml --store $D/s.db", finished);
    test_true("... named by plan", last.err_lines == 1 && strstr(last.err, names), "%s", last.err);
    accepted("$P report small --store $D/s.db -o $D/r", "1 spec,");
    test_true("... and by report", strstr(last.err, names) != NULL, "%s", last.err);
    refused("$P store merge $D/m.db $D/s.db", 2, "is damaged (run ");
    sh("$P store check --store $D/s.db");
    test_true("... and by check", last.code == 1 && strstr(last.out, names), "exit %d: %s", last.code,
              first_line(last.out));
    accepted("sed 's/small/other/; s/0..1/7/' $D/small.yaml >$D/other.yaml; cp $D/s.db $D/o.db; $P run "
             "$D/other.yaml --store $D/o.db --device ref",
             "muon");
    test_true("... and by a run of others, which leaves it alone",
              strstr(last.err, " as not done: ") && !strstr(last.err, "made again\n["), "%s", last.err);
    test_true("... polar run says so", made_again(again), "%s", last.err);
    as_before();
}

/* A damaged row: nothing uses it, check names it, and after --drop-damaged `again` runs are made again and
 * everything is as before. */
static void damaged(const char *sql, const char *names, const char *again)
{
    tamper(sql);
    refused("$P audit small --store $D/s.db", 2, "is damaged (");
    refused(RUN, 2, "`polar store check --store FILE`");
    sh("$P store check --store $D/s.db");
    test_true(sql, last.code == 1 && strstr(last.out, names), "exit %d, '%s' wanted: %s", last.code, names,
              first_line(last.out));
    accepted("$P store check --store $D/s.db --drop-damaged", "makes these runs again");
    made_again(again);
    as_before();
}

static void test_damage(void)
{
    accepted(RUN, "muon");
    accepted("$P store check --store $D/s.db", "is sound");
    accepted("$P audit small --store $D/s.db --format json >$D/before; echo $?", "0");
    rotten("UPDATE result SET value = value * 1.0000001 WHERE name = 'test_mse' AND run = (SELECT min(id) "
           "FROM run)",
           "its result 'test_mse'", 1);
    rotten("UPDATE epoch SET valid = 0 WHERE epoch = 2 AND run = (SELECT max(id) FROM run)", "its epoch 2",
           1);
    rotten("DELETE FROM epoch WHERE epoch = 3 AND run = (SELECT max(id) FROM run)", "it has 2 epochs of 3",
           1);
    rotten("DELETE FROM result WHERE name = 'best_epoch'", "results of", 4);
    tamper("UPDATE epoch SET valid = 0 WHERE epoch = 2 AND run = (SELECT max(id) FROM run)");
    damaged("UPDATE result SET value = 0 WHERE name = 'test_mse' AND run = (SELECT min(id) FROM run);"
            "UPDATE spec SET title = 'x'",
            "the spec 'small'", "2 now"); /* and nothing is read */
    damaged("UPDATE run SET state = 'planned' WHERE id = (SELECT min(id) FROM run)", "what it is", "1 now");
    damaged("UPDATE run SET id = '0123456789abcdef0123456789abcdef' WHERE id = (SELECT min(id) FROM run)",
            "run 0123456789ab: what it is", "1 now");
    damaged("UPDATE member SET arm = 'sgdm' WHERE ord = 0", "its place in the spec 'small'",
            "4 of 4 runs are done\n");
    damaged("UPDATE spec SET metric = 'best_epoch'", "the spec 'small'", "4 of 4 runs are done\n");
    damaged("UPDATE config SET json = '{}' WHERE key = (SELECT min(key) FROM config)", "a configuration",
            "2 now");
    damaged("DELETE FROM member WHERE ord = 1", "has 3 members of 4", "4 of 4 runs are done\n");
}

static void test_use(void)
{
    helps("store check");
    refused("$P store", 2, "one of check");
    refused("$P store check --store $D/none.db", 2, "no store at");
    test_true("... and none is made", access("none.db", F_OK) != 0, "%s", "");
    refused("$P store check --drop-damaged --store $D/none.db", 2, "no store at");
    refused("head -c 5000 /dev/zero >$D/zero.db; $P store check --store $D/zero.db", 2, "polar: ");
}

static void test_checkpoint(void)
{
    char name[160];
    snprintf(name, sizeof name, "mkdir -p $D/s.db.d && printf '%%s' damaged >$D/s.db.d/%s.safetensors",
             "0123456789abcdef0123456789abcdef");
    sh(name);
    sh("$P store check --store $D/s.db");
    test_true("a damaged checkpoint is named",
              last.code == 1 && strstr(last.out, "run 0123456789ab: its checkpoint"), "%s",
              first_line(last.out));
    accepted("$P store check --store $D/s.db --drop-damaged && ls $D/s.db.d | wc -l", "0\n");
}

static void test_budget(void)
{
    sh("$P run $D/small.yaml --store $D/b.db --device ref --budget 0.000001s");
    int said = strstr(last.err, "no time was left to put the plan of 4 runs into the store") &&
               strstr(last.err, "the budget is spent");
    test_true("a budget that ends before the plan is put", last.code == 0 && said && !*last.out,
              "exit %d: %s", last.code, first_line(last.err));
    accepted("$P run $D/small.yaml --store $D/b.db --device ref >$D/table && $P audit small --store $D/b.db "
             "--format json >$D/now && cmp $D/before $D/now && echo same",
             "same");
}

int main(int argc, char **argv)
{
    if (!cli_begin(argc, argv)) return 1;
    write_spec();
    test_damage();
    test_checkpoint();
    test_budget();
    test_use();
    return cli_end();
}
