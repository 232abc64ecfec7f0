/* store_sum.c -- rows that rot: the SQL function polar_sum, and what does not agree with it.
 *
 * Every row of every table has a column `sum`: polar_sum of the table's name and of its other columns, types
 * included (PL_SUM_... of store_impl.h). Rows that must be there in a certain number are counted: a spec
 * knows its members, a finished run its results, epochs and gauge rows. With SQLite's check of the structure
 * nothing can change, go or come without being seen.
 */
#include <stdio.h>
#include <string.h>

#include "base/checksum.h"
#include "base/json_read.h"
#include "store/store_impl.h"

/* ---- the function ------------------------------------------------------------------------------- */

/* A value as 9 bytes and, of a text, its characters. */
typedef struct piece {
    unsigned char head[9]; /* type; the number's bits, or the text's length */
    const void *text;
    size_t bytes;
} piece;

static int read_piece(piece *p, sqlite3_value *v)
{
    uint64_t bits = 0;
    *p = (piece){.text = NULL};
    p->head[0] = (unsigned char)sqlite3_value_type(v);
    if (p->head[0] == SQLITE_INTEGER) bits = (uint64_t)sqlite3_value_int64(v);
    else if (p->head[0] == SQLITE_FLOAT) {
        double x = sqlite3_value_double(v) + 0.0; /* -0 is 0: SQLite may store it as one */
        memcpy(&bits, &x, sizeof bits);
    } else if (p->head[0] != SQLITE_NULL) {
        p->text = p->head[0] == SQLITE_TEXT ? (const void *)sqlite3_value_text(v) : sqlite3_value_blob(v);
        p->bytes = (size_t)sqlite3_value_bytes(v);
        bits = p->bytes;
        if (!p->text && p->bytes) return 0;
    }
    memcpy(p->head + 1, &bits, sizeof bits);
    return 1;
}

static void sum_function(sqlite3_context *ctx, int n, sqlite3_value **v)
{
    piece p;
    uint64_t total = 0;
    for (int i = 0; i < n; i++) {
        if (!read_piece(&p, v[i])) {
            sqlite3_result_error_nomem(ctx);
            return;
        }
        total += sizeof p.head + p.bytes;
    }
    pl_checksum c = pl_checksum_begin(total);
    for (int i = 0; i < n; i++) {
        (void)read_piece(&p, v[i]); /* again, and as before */
        pl_checksum_add(&c, p.head, sizeof p.head);
        if (p.bytes) pl_checksum_add(&c, p.text, p.bytes);
    }
    sqlite3_result_int64(ctx, (sqlite3_int64)pl_checksum_end(&c));
}

static void add_text(pl_checksum *c, const char *text, uint64_t bytes)
{
    unsigned char head[9] = {SQLITE_TEXT};
    memcpy(head + 1, &bytes, sizeof bytes);
    pl_checksum_add(c, head, sizeof head);
    pl_checksum_add(c, text, bytes);
}

void pl_sum_config_key(char out[PL_CHECKSUM_HEX], const char *json)
{
    uint64_t bytes = strlen(json);
    pl_checksum c = pl_checksum_begin(2 * 9 + 4 + bytes);
    add_text(&c, "json", 4);
    add_text(&c, json, bytes);
    pl_checksum_print(out, pl_checksum_end(&c));
}

polar_status pl_sum_register(pl_store *s)
{
    int rc = sqlite3_create_function_v2(s->db, "polar_sum", -1, SQLITE_UTF8 | SQLITE_DETERMINISTIC, NULL,
                                        sum_function, NULL, NULL, NULL);
    return rc == SQLITE_OK ? POLAR_OK : PL_SQL_FAIL(s, rc);
}

/* ---- what does not agree ------------------------------------------------------------------------ */

#define COUNT(table) "(SELECT count(*) FROM " table " WHERE " table ".run = run.id)"
#define LOST(table)                                                       \
    "SELECT run, '" table " rows of a run that is not there' FROM " table \
    " WHERE run NOT IN (SELECT id FROM run) GROUP BY run"

/* Each gives a run's id, or '' where it is not one run's, and what is wrong. What a run gave, which is its
 * own affair: */
static const char *const run_checks[] = {
    "SELECT run, 'its result ' || quote(name) FROM result WHERE sum IS NOT " PL_SUM_RESULT,
    "SELECT run, 'its epoch ' || quote(epoch) FROM epoch WHERE sum IS NOT " PL_SUM_EPOCH,
    "SELECT run, 'its gauge row of step ' || quote(step) FROM gauge WHERE sum IS NOT " PL_SUM_GAUGE,
    "SELECT id, 'it has ' || " COUNT("result") " || ' results of ' || results FROM run WHERE state <> "
                                               "'planned' AND results IS NOT " COUNT("result"),
    "SELECT id, 'it has ' || " COUNT("epoch") " || ' epochs of ' || epochs FROM run WHERE state <> 'planned' "
                                              "AND epochs IS NOT " COUNT("epoch"),
    "SELECT id, 'it has ' || " COUNT("gauge") " || ' gauge rows of ' || gauges FROM run WHERE state <> "
                                              "'planned' AND gauges IS NOT " COUNT("gauge"),
    "SELECT id, 'it has results and is not finished' FROM run WHERE state = 'planned' AND EXISTS(SELECT 1 "
    "FROM result WHERE run = id)",
};

/* What runs there are, and of which specs: */
static const char *const checks[] = {
    "SELECT '', 'the spec ' || quote(name) FROM spec WHERE sum IS NOT " PL_SUM_SPEC,
    "SELECT '', 'a configuration, key ' || quote(key) FROM config WHERE sum IS NOT " PL_SUM_CONFIG,
    "SELECT id, 'what it is: settings, state or origin' FROM run WHERE sum IS NOT " PL_SUM_RUN,
    "SELECT run, 'its place in the spec ' || quote(spec) FROM member WHERE sum IS NOT " PL_SUM_MEMBER,
    "SELECT id, 'its configuration is not there' FROM run WHERE config NOT IN (SELECT key FROM config)",
    LOST("result"),
    LOST("epoch"),
    LOST("gauge"),
    "SELECT run, 'the spec ' || quote(spec) || ' names it, and it is not there' FROM member WHERE run NOT IN "
    "(SELECT id FROM run)",
    "SELECT '', 'the spec ' || quote(name) || ' has ' || (SELECT count(*) FROM member WHERE spec = name) || "
    "' members of ' || members FROM spec"
    "  WHERE members IS NOT (SELECT count(*) FROM member WHERE spec = name)",
    "SELECT run, 'a spec that is not there names it: ' || quote(spec) FROM member WHERE spec NOT IN (SELECT "
    "name FROM spec)",
};

static polar_status tell_rows(pl_store *s, const char *sql, pl_damage_fn tell, void *arg, int *more)
{
    sqlite3_stmt *st = NULL;
    int row = 0;
    PL_TRY(pl_sql_prepare(&st, s, sql));
    polar_status status = POLAR_OK;
    while (*more && (status = pl_sql_next(s, st, &row)) == POLAR_OK && row) {
        const char *run = (const char *)sqlite3_column_text(st, 0),
                   *what = (const char *)sqlite3_column_text(st, 1);
        if (!what) what = "a row"; /* parts of it cannot be read as what they were */
        *more = tell(arg, run ? run : "", what);
    }
    sqlite3_finalize(st);
    return status;
}

/* What SQLite finds wrong with the file; *more 0: so wrong that rows are not looked at. */
static polar_status tell_structure(pl_store *s, pl_damage_fn tell, void *arg, int *more)
{
    sqlite3_stmt *st = NULL;
    int row = 0;
    PL_TRY(pl_sql_prepare(&st, s, "PRAGMA integrity_check(20)"));
    polar_status status = POLAR_OK;
    while ((status = pl_sql_next(s, st, &row)) == POLAR_OK && row) {
        const char *what = (const char *)sqlite3_column_text(st, 0);
        if (what && !strcmp(what, "ok")) continue;
        *more = 0;
        if (!tell(arg, "", what ? what : "its structure")) break;
    }
    sqlite3_finalize(st);
    return status;
}

static polar_status tell_all(pl_store *s, const char *const *sql, size_t count, pl_damage_fn tell, void *arg,
                             int *more)
{
    polar_status status = POLAR_OK;
    for (size_t i = 0; i < count && *more && status == POLAR_OK; i++)
        status = tell_rows(s, sql[i], tell, arg, more);
    return status;
}

polar_status pl_store_examine_apart(pl_store *s, pl_damage_fn tell, pl_damage_fn tell_run, void *arg)
{
    int more = 1;
    PL_TRY(pl_sql_do(s, "BEGIN", "")); /* all of one moment */
    polar_status status = tell_structure(s, tell, arg, &more);
    if (status == POLAR_OK) status = tell_all(s, checks, sizeof checks / sizeof *checks, tell, arg, &more);
    if (status == POLAR_OK)
        status = tell_all(s, run_checks, sizeof run_checks / sizeof *run_checks, tell_run, arg, &more);
    pl_sql_abandon(s);
    return status;
}

polar_status pl_store_examine(pl_store *s, pl_damage_fn tell, void *arg)
{
    return pl_store_examine_apart(s, tell, tell, arg);
}

int pl_damage_keep(void *arg, const char *run, const char *what)
{
    pl_store_damage *d = arg;
    snprintf(d->run, sizeof d->run, "%.32s", pl_text_shown(run).text);
    snprintf(d->what, sizeof d->what, "%s", pl_text_shown(what).text);
    return 0;
}

polar_status pl_damage_refuse(const pl_store *s, const pl_store_damage *d)
{
    return PL_FAIL(POLAR_E_FORMAT,
                   "the store '%s' is damaged (%s%.12s%s%s): `polar store check --store FILE` says what, and "
                   "what can be made again",
                   pl_text_shown(s->path).text, *d->run ? "run " : "", d->run, *d->run ? ": " : "", d->what);
}

polar_status pl_store_verify(pl_store *s)
{
    pl_store_damage first = {.what = ""};
    PL_TRY(pl_store_examine(s, pl_damage_keep, &first));
    return *first.what ? pl_damage_refuse(s, &first) : POLAR_OK;
}
