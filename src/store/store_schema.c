/* store_schema.c -- the tables, the steps from one version to the next, and whose file it is.
 *
 * A store is of version PRAGMA user_version; step[v] takes version v to v + 1 and never changes once it was
 * released: a new table or column is a new step. NaN is stored as null in a column of numbers. States:
 * planned (not finished), done, diverged.
 *
 * Invariants:
 *  1. application_id, user_version and the tables of that version are written in one transaction: a file has
 * all of them or none.
 *  2. A file of another program (tables, but not our application_id) is never written to, not even its
 * journal mode.
 *  3. A store newer than this program is never written to and never read.
 *  4. Nor is one that holds anything else than the tables of its version, to the letter: a trigger, a view, a
 * generated column or a constraint of somebody else's would be executed by our own statements.
 */
#include <stdio.h>
#include <string.h>

#include "base/json_read.h"
#include "store/store_impl.h"

/* clang-format off */
const char *const pl_store_steps[PL_STORE_VERSION] = {
    "CREATE TABLE spec(name TEXT PRIMARY KEY, sha TEXT NOT NULL, title TEXT NOT NULL, "
    "testbed TEXT NOT NULL, metric TEXT NOT NULL, text TEXT NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE run(id TEXT PRIMARY KEY, testbed TEXT NOT NULL, seed INTEGER NOT NULL, "
    "config TEXT NOT NULL,"
    "  state TEXT NOT NULL DEFAULT 'planned' CHECK(state IN ('planned', 'done', 'diverged')), "
    "wall REAL NOT NULL DEFAULT 0,"
    "  started TEXT, finished TEXT, code TEXT, device TEXT, cpu TEXT, threads INTEGER) WITHOUT ROWID;"
    "CREATE TABLE member(spec TEXT NOT NULL, cell TEXT NOT NULL, arm TEXT NOT NULL, "
    "seed INTEGER NOT NULL, ord INTEGER NOT NULL, run TEXT NOT NULL,"
    "  PRIMARY KEY(spec, cell, arm, seed)) WITHOUT ROWID;"
    "CREATE TABLE epoch(run TEXT NOT NULL, epoch INTEGER NOT NULL, train_loss REAL, valid REAL, "
    "lr REAL, improved INTEGER NOT NULL,"
    "  PRIMARY KEY(run, epoch)) WITHOUT ROWID;"
    "CREATE TABLE result(run TEXT NOT NULL, name TEXT NOT NULL, value REAL, PRIMARY KEY(run, "
    "name)) WITHOUT ROWID;"
    "CREATE TABLE gauge(run TEXT NOT NULL, step INTEGER NOT NULL, block TEXT NOT NULL, "
    "shadow INTEGER NOT NULL, map TEXT NOT NULL, deviation REAL,"
    "  PRIMARY KEY(run, step, block, shadow, map)) WITHOUT ROWID;",
    "ALTER TABLE epoch ADD COLUMN seconds REAL;",
    "ALTER TABLE run ADD COLUMN data TEXT;",
    /* a checksum for every row, numbers of rows, and configurations once instead of with every seed */
    "CREATE TABLE config(key TEXT PRIMARY KEY, json TEXT NOT NULL, sum INTEGER) WITHOUT ROWID;"
    "INSERT INTO config(key, json) SELECT DISTINCT " PL_CONFIG_KEY("config") ", config FROM run;"
    "ALTER TABLE spec ADD COLUMN members INTEGER;"
    "ALTER TABLE spec ADD COLUMN sum INTEGER;"
    "ALTER TABLE run ADD COLUMN results INTEGER;"
    "ALTER TABLE run ADD COLUMN epochs INTEGER;"
    "ALTER TABLE run ADD COLUMN gauges INTEGER;"
    "ALTER TABLE run ADD COLUMN sum INTEGER;"
    "ALTER TABLE member ADD COLUMN sum INTEGER;"
    "ALTER TABLE epoch ADD COLUMN sum INTEGER;"
    "ALTER TABLE result ADD COLUMN sum INTEGER;"
    "ALTER TABLE gauge ADD COLUMN sum INTEGER;"
    "UPDATE run SET config = " PL_CONFIG_KEY("config") ";"
    "UPDATE run SET results = (SELECT count(*) FROM result WHERE run = id), "
    "epochs = (SELECT count(*) FROM epoch WHERE run = id),"
    "  gauges = (SELECT count(*) FROM gauge WHERE run = id) WHERE state <> 'planned';"
    "UPDATE spec SET members = (SELECT count(*) FROM member WHERE spec = name);"
    "UPDATE config SET sum = " PL_SUM_CONFIG ";"
    "UPDATE spec SET sum = " PL_SUM_SPEC ";"
    "UPDATE run SET sum = " PL_SUM_RUN ";"
    "UPDATE member SET sum = " PL_SUM_MEMBER ";"
    "UPDATE epoch SET sum = " PL_SUM_EPOCH ";"
    "UPDATE result SET sum = " PL_SUM_RESULT ";"
    "UPDATE gauge SET sum = " PL_SUM_GAUGE ";",
};
/* clang-format on */

typedef struct marks {
    int64_t application, user, tables;
} marks;

static polar_status read_marks(pl_store *s, marks *m)
{
    PL_TRY(pl_sql_integer(s, "PRAGMA application_id", &m->application));
    PL_TRY(pl_sql_integer(s, "PRAGMA user_version", &m->user));
    return pl_sql_integer(s, "SELECT count(*) FROM sqlite_schema", &m->tables);
}

#define SCHEMA_ROWS "SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_schema ORDER BY type, name"

/* One row further in both; *differ: they are not the same, or only one of them has a row. */
static polar_status compare_row(pl_store *s, sqlite3_stmt *st, pl_store *model, sqlite3_stmt *expected,
                                int *row, int *differ)
{
    int more = 0;
    PL_TRY(pl_sql_next(s, st, row));
    PL_TRY(pl_sql_next(model, expected, &more));
    *differ = *row != more;
    for (int i = 0; i < 4 && *row && more; i++) {
        const char *a = (const char *)sqlite3_column_text(st, i),
                   *b = (const char *)sqlite3_column_text(expected, i);
        PL_NEED(a && b, POLAR_E_NOMEM, "the tables of the store '%s'", pl_text_shown(s->path).text);
        *differ |= strcmp(a, b) != 0;
    }
    return POLAR_OK;
}

static polar_status compare_schemas(pl_store *s, sqlite3_stmt *st, pl_store *model, sqlite3_stmt *expected)
{
    int row = 1, differ = 0;
    while (row && !differ) PL_TRY(compare_row(s, st, model, expected, &row, &differ));
    if (!differ) return POLAR_OK;
    const char *type = row ? (const char *)sqlite3_column_text(st, 0) : NULL,
               *name = row ? (const char *)sqlite3_column_text(st, 1) : NULL;
    return PL_FAIL(POLAR_E_FORMAT,
                   "the store '%s' is not as polar makes it (%s '%s'): what somebody added to it would be "
                   "executed, so it is not opened",
                   pl_text_shown(s->path).text, type ? pl_text_shown(type).text : "a table is missing",
                   name ? pl_text_shown(name).text : "-");
}

/* Its tables are those of that version, and there is nothing else. */
static polar_status compare_tables(pl_store *s, const char *const *steps, int version)
{
    pl_store model = {.path = s->path}; /* the same steps in memory */
    sqlite3_stmt *st = NULL, *expected = NULL;
    polar_status status = pl_sql_open(&model, ":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
    for (int v = 0; v < version && status == POLAR_OK; v++) {
        int rc = sqlite3_exec(model.db, steps[v], NULL, NULL, NULL);
        if (rc != SQLITE_OK) status = PL_SQL_FAIL(&model, rc);
    }
    if (status == POLAR_OK) status = pl_sql_prepare(&st, s, SCHEMA_ROWS);
    if (status == POLAR_OK) status = pl_sql_prepare(&expected, &model, SCHEMA_ROWS);
    if (status == POLAR_OK) status = compare_schemas(s, st, &model, expected);
    sqlite3_finalize(st);
    sqlite3_finalize(expected);
    pl_sql_close(&model);
    return status;
}

static polar_status judge(pl_store *s, const char *const *steps, int count, const marks *m)
{
    pl_shown path = pl_text_shown(s->path);
    PL_NEED(m->application == PL_STORE_APPLICATION || (!m->application && !m->user && !m->tables),
            POLAR_E_FORMAT, "'%s' is an SQLite database of another program (give another file with --store)",
            path.text);
    PL_NEED(m->user > 0 || !m->application, POLAR_E_FORMAT,
            "the store '%s' is damaged: its version is %lld, and versions count from 1 (move it away and run "
            "again)",
            path.text, (long long)m->user);
    PL_NEED(m->user <= count, POLAR_E_FORMAT,
            "the store '%s' was written by a newer polar (store version %lld, this program knows %d): use "
            "that program",
            path.text, (long long)m->user, count);
    return compare_tables(s, steps, (int)m->user);
}

polar_status pl_store_identify(pl_store *s, const char *const *steps, int count, int *version)
{
    marks m = {0};
    /* all of one moment: another process may be making the tables just now */
    int alone = sqlite3_get_autocommit(s->db);
    if (alone) PL_TRY(pl_sql_do(s, "BEGIN", ""));
    polar_status st = read_marks(s, &m);
    if (st == POLAR_OK) st = judge(s, steps, count, &m);
    if (alone) pl_sql_abandon(s);
    if (st == POLAR_OK) *version = (int)m.user;
    return st;
}

static polar_status climb(pl_store *s, const char *const *steps, int count)
{
    int version = 0;
    char sql[64];
    PL_TRY(pl_store_identify(s, steps, count, &version)); /* again: another process may have been faster */
    if (version == count) return POLAR_OK;
    for (; version < count; version++) {
        int rc = sqlite3_exec(s->db, steps[version], NULL, NULL, NULL);
        if (rc != SQLITE_OK) return PL_SQL_FAIL(s, rc);
    }
    snprintf(sql, sizeof sql, "PRAGMA application_id = %d", PL_STORE_APPLICATION);
    PL_TRY(pl_sql_do(s, sql, ""));
    snprintf(sql, sizeof sql, "PRAGMA user_version = %d", count);
    return pl_sql_do(s, sql, "");
}

polar_status pl_store_upgrade(pl_store *s, const char *const *steps, int count)
{
    int version = 0;
    PL_TRY(pl_store_identify(s, steps, count, &version));
    if (version == count) return POLAR_OK;
    PL_TRY(pl_sql_begin(s));
    return pl_sql_end(s, climb(s, steps, count));
}

polar_status pl_store_check(pl_store *s)
{
    sqlite3_stmt *st = NULL;
    int row = 0;
    PL_TRY(pl_sql_prepare(&st, s, "PRAGMA integrity_check(1)"));
    polar_status status = pl_sql_next(s, st, &row);
    const char *word = row ? (const char *)sqlite3_column_text(st, 0) : NULL;
    if (status == POLAR_OK && row && !word) status = PL_FAIL(POLAR_E_NOMEM, "a check of the store");
    else if (status == POLAR_OK && (!row || strcmp(word, "ok")))
        status = PL_FAIL(POLAR_E_FORMAT,
                         "the store '%s' is damaged (%s): move it away and run again, or rescue it with "
                         "`sqlite3 FILE .recover`",
                         pl_text_shown(s->path).text, word ? pl_text_shown(word).text : "no answer");
    sqlite3_finalize(st);
    return status;
}
