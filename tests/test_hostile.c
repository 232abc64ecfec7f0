/* test_hostile.c -- stores and specs that somebody wrote to get in: the program is run on each of them, and canary files show that nothing was executed and
 * nothing written outside of the report's folder.
 *
 * Every case begins with a store that `polar run` could have left, and changes it with SQLite as an attacker would. `make asan` runs the same under the sanitisers.
 */
#include "cli_fixture.h"

#include <sqlite3.h>

#include "fake_store.h"

#define CANARY "$D/canary"

static char store_path[128];

static double value_of(int cell, int seed, int arm)
{
    return 0.01 * (1 + cell) + 0.001 * arm + 1e-4 * (seed % 3);
}

/* A small store of one spec with gauge rows, every run finished, at $D/x.db; other files of earlier cases are gone. */
static void fresh_store(void)
{
    fake_plan p = {.spec = "so3_capacity", .cells = {"model.width=16", "model.width=32"}, .arms = {"adamw", "muon"}, .n_cells = 2, .n_arms = 2, .n_seeds = 3, .epochs = 6, .gauge = 1};
    pl_store *s = NULL;
    sh("rm -rf $D/x.db* $D/out $D/canary*");
    snprintf(store_path, sizeof store_path, "%s/x.db", folder);
    TEST_TRY(pl_store_open(&s, store_path, PL_STORE_WRITE));
    fake_store_fill(s, &p, value_of);
    pl_store_close(s);
}

/* The attacker's SQL on the store, ended by NULL; @ in it stands for the canary's path. */
static void tamper(const char *const *sql)
{
    sqlite3 *db = NULL;
    char canary[96], text[4096], *why = NULL;
    snprintf(canary, sizeof canary, "%s/canary", folder);
    if (sqlite3_open(store_path, &db) != SQLITE_OK) exit(1);
    for (; *sql; sql++) {
        size_t n = 0;
        for (const char *c = *sql; *c && n + sizeof canary < sizeof text; c++) {
            if (*c == '@') n += (size_t)sprintf(text + n, "%s", canary);
            else text[n++] = *c;
        }
        text[n] = 0;
        if (sqlite3_exec(db, text, NULL, NULL, &why) != SQLITE_OK) {
            printf("%s: %s  FAIL\n", *sql, why);
            exit(1);
        }
    }
    sqlite3_close(db);
}

#define TAMPER(...) tamper((const char *const[]){__VA_ARGS__, NULL})

/* Nothing was executed: no canary file, and the program ended by itself. */
static void no_canary(const char *what)
{
    int n = count_files("canary");
    test_true(what, !n && last.code < 100, "%d canary file(s), exit %d: %s", n, last.code, first_line(last.err));
}

static int has_gnuplot(void) { return sh("command -v gnuplot") == 0; }

/* ---- commands in texts ----------------------------------------------------------------------------------------------------- */

/* A store's texts where they reach a figure: in every one of them a command that leaves a canary, in gnuplot's ways of writing one. */
static void commands_in_figures(void)
{
    static const char *const attacks[] = {
        "`touch @`", "$(touch @)", "\"; system(\"touch @\"); \"", "''; system(''touch @''); ''", "\\`touch @\\`", "%`touch @`s", "`touch @`\nplot x",
    };
    static const char *const places[] = {
        "UPDATE member SET arm = '%s' WHERE arm = 'muon'", "UPDATE member SET cell = '%s' WHERE cell = 'model.width=16'", "UPDATE gauge SET map = substr('%s', 1, 23) WHERE map = 'exact'",
        "UPDATE spec SET title = '%s'", "UPDATE result SET name = substr('%s', 1, 31) WHERE name = 'test_mse'; UPDATE spec SET metric = substr('%s', 1, 31)",
    };
    char sql[1024], what[160];
    for (size_t i = 0; i < sizeof attacks / sizeof *attacks; i++)
        for (size_t j = 0; j < sizeof places / sizeof *places; j++) {
            fresh_store();
            snprintf(sql, sizeof sql, places[j], attacks[i], attacks[i]);
            TAMPER(sql);
            sh("cd $D && $P report --store x.db -o out");
            snprintf(what, sizeof what, "report: %.20s in %.24s", attacks[i], places[j] + 7);
            for (char *c = what; *c; c++)
                if (*c == '\n') *c = ' ';
            no_canary(what);
        }
}

/* The attack of 30 bytes that fits a metric's and a map's columns, relative to where gnuplot runs: out/figures. */
static void short_commands(void)
{
    fresh_store();
    TAMPER("UPDATE gauge SET map = '`touch ../../canary_m`' WHERE map = 'exact'", "UPDATE result SET name = '`touch ../../canary_r`' WHERE name = 'test_mse'",
           "UPDATE spec SET metric = '`touch ../../canary_r`'");
    sh("cd $D && $P report --store x.db -o out");
    no_canary("report: short commands in maps and metrics");
}

/* ---- the schema ------------------------------------------------------------------------------------------------------------ */

/* Versions that are no place in the table of steps; below it, in the program's memory, stood whatever stood there. */
static void versions(void)
{
    static const char *const numbers[] = {"-1", "-2", "-3", "-17", "-2147483648", "2147483647", "99", "0"};
    char sql[96], what[96];
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        fresh_store();
        snprintf(sql, sizeof sql, "PRAGMA user_version = %s", numbers[i]);
        TAMPER(sql);
        snprintf(what, sizeof what, "user_version %s", numbers[i]);
        refused("$P run specs/demo/so3_tiny.yaml --store $D/x.db", 2, "version");
        no_canary(what);
        refused("$P report --store $D/x.db -o $D/out", 2, "version");
        no_canary(what);
    }
}

int main(int argc, char **argv)
{
    if (!cli_begin(argc, argv)) return 1;
    if (chdir(SOURCE_DIR) != 0) return 1;
    if (!has_gnuplot()) printf("    no gnuplot here: figures are not drawn, so what reaches them is not tested\n");
    versions();
    commands_in_figures();
    short_commands();
    return cli_end();
}
