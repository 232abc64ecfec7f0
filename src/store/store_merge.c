/* store_merge.c -- several stores become one: the shards of an audit, made on as many machines.
 *
 * Rows are read as everywhere (their checksums verified, their columns as a stranger's), and runs joined by
 * store_join.c.
 *
 * Invariants:
 *  1. One transaction: `out` holds everything that the stores have, or what it held before.
 *  2. A store is read as of one moment, so it may be one that `polar run` is still filling.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/json_read.h"
#include "base/whole_file.h"
#include "store/store_impl.h"

#define WHAT 320 /* characters of a disagreement */

typedef struct merging {
    pl_joining to;
    pl_store *in;
    sqlite3_stmt *member;
} merging;

/* ---- runs --------------------------------------------------------------------------------------- */

static polar_status merge_run(merging *m, const pl_store_member *r)
{
    pl_run_rows rows = {0};
    polar_status st = r->state == PL_RUN_PLANNED ? POLAR_OK : pl_run_rows_read(&rows, m->in, r->id);
    if (st == POLAR_OK) st = pl_join_run(&m->to, r, &rows);
    pl_run_rows_free(&rows);
    return st;
}

static polar_status merge_runs(merging *m)
{
    pl_store_members all;
    PL_TRY(pl_store_select_all(&all, m->in));
    polar_status st = POLAR_OK;
    for (int64_t i = 0; st == POLAR_OK && i < all.count; i++) st = merge_run(m, &all.rows[i]);
    pl_store_members_free(&all);
    return st;
}

/* ---- specs -------------------------------------------------------------------------------------- */

/* The one text of a row of `out`, compared: *equal, also where there is no such row. */
static polar_status compare_text(merging *m, const char *sql, const char *types, const char *expected,
                                 int *equal, const char *spec, const char *cell, const char *arm,
                                 int64_t seed)
{
    sqlite3_stmt *st = NULL;
    int row = 0;
    PL_TRY(pl_sql_prepare(&st, m->to.out, sql));
    polar_status status = pl_sql_bind(m->to.out, st, types, spec, cell, arm, seed);
    if (status == POLAR_OK) status = pl_sql_next(m->to.out, st, &row);
    const char *text = row ? (const char *)sqlite3_column_text(st, 0) : expected;
    if (status == POLAR_OK && !text) status = PL_FAIL(POLAR_E_NOMEM, "rows of a store");
    *equal = status == POLAR_OK && !strcmp(text, expected);
    sqlite3_finalize(st);
    return status;
}

static polar_status merge_member(merging *m, const char *spec, const pl_store_member *r)
{
    char what[WHAT];
    int equal = 1;
    PL_TRY(pl_sql_put(m->to.out, m->member, "tttiit", spec, r->cell, r->arm, r->seed, r->ord, r->id));
    if (sqlite3_changes(m->to.out->db)) return POLAR_OK;
    PL_TRY(compare_text(m, "SELECT run FROM member WHERE spec = ? AND cell = ? AND arm = ? AND seed = ?",
                        "ttti", r->id, &equal, spec, r->cell, r->arm, r->seed));
    if (equal) return POLAR_OK;
    snprintf(what, WHAT,
             "in the spec %.63s, %.100s %.60s seed %" PRId64
             " is this run, and another before (other --set?)",
             spec, r->cell, r->arm, r->seed);
    pl_join_differ(&m->to, r->id, what);
    return POLAR_OK;
}

static polar_status merge_spec(merging *m, const pl_store_spec *spec)
{
    char what[WHAT];
    int equal = 1;
    pl_store_members members;
    if (spec->bad) return pl_fail_again(POLAR_E_FORMAT, spec->bad);
    PL_TRY(compare_text(m, "SELECT text FROM spec WHERE name = ?", "t", spec->text, &equal, spec->name, NULL,
                        NULL, 0));
    if (!equal) {
        snprintf(what, WHAT, "the spec %s: its text is another than before", spec->name);
        pl_join_differ(&m->to, "", what);
        return POLAR_OK;
    }
    PL_TRY(pl_sql_do(
        m->to.out,
        "INSERT OR IGNORE INTO spec(name, sha, title, testbed, metric, text) VALUES(?, ?, ?, ?, ?, ?)",
        "tttttt", spec->name, spec->sha, spec->title, spec->testbed, spec->metric, spec->text));
    polar_status st = pl_store_select_members(&members, m->in, spec->name);
    if (st == POLAR_E_ARG) return POLAR_OK; /* none of it is left */
    for (int64_t i = 0; st == POLAR_OK && i < members.count; i++)
        st = merge_member(m, spec->name, &members.rows[i]);
    pl_store_members_free(&members);
    return st;
}

static polar_status merge_specs(merging *m)
{
    pl_store_specs specs;
    PL_TRY(pl_store_select_specs(&specs, m->in));
    polar_status st = POLAR_OK;
    for (int64_t i = 0; st == POLAR_OK && i < specs.count; i++) st = merge_spec(m, &specs.rows[i]);
    pl_store_specs_free(&specs);
    return st;
}

/* ---- stores ------------------------------------------------------------------------------------- */

static polar_status merge_snapshot(merging *m)
{
    PL_TRY(pl_sql_do(m->in, "BEGIN", ""));
    polar_status st = merge_runs(m);
    if (st == POLAR_OK) st = merge_specs(m);
    pl_sql_abandon(m->in);
    return st;
}

static polar_status merge_all(merging *m, const char *const *paths, int64_t count)
{
    PL_TRY(pl_join_begin(&m->to));
    PL_TRY(pl_sql_prepare(&m->member, m->to.out,
                          "INSERT OR IGNORE INTO member(spec, cell, arm, seed, ord, run, sum) VALUES(?1, ?2, "
                          "?3, ?4, ?5, ?6, polar_sum('member', ?1, ?2, ?3, ?4, ?5, ?6))"));
    for (int64_t i = 0; i < count; i++) {
        PL_TRY(pl_store_open(&m->in, paths[i], PL_STORE_READ)); /* verifies every row */
        polar_status st = merge_snapshot(m);
        pl_store_close(m->in);
        PL_TRY(st);
    }
    PL_NEED(!m->to.did.differ, POLAR_E_FORMAT,
            "%" PRId64 " disagreement%s between the stores: nothing was joined", m->to.did.differ,
            m->to.did.differ == 1 ? "" : "s");
    PL_TRY(pl_sql_do(m->to.out, "UPDATE spec SET members = (SELECT count(*) FROM member WHERE spec = name)",
                     ""));
    PL_TRY(pl_sql_do(m->to.out, "UPDATE spec SET sum = " PL_SUM_SPEC, ""));
    return pl_join_count(&m->to);
}

polar_status pl_store_merge(pl_merge_count *did, pl_store *out, const char *const *paths, int64_t count,
                            pl_damage_fn tell, void *arg)
{
    merging m = {.to = {.out = out, .tell = tell, .arg = arg}};
    PL_TRY(pl_sql_begin(out));
    polar_status st = merge_all(&m, paths, count);
    sqlite3_finalize(m.member);
    pl_join_finalise(&m.to); /* before the end: a statement that is open would keep it from committing */
    st = pl_sql_end(out, st);
    *did = m.to.did;
    return st;
}

/* ---- one file ----------------------------------------------------------------------------------- */

static polar_status need_no_log(const char *path)
{
    struct stat info;
    size_t room = strlen(path) + 8;
    char *log = pl_alloc(room);
    PL_NEED(log, POLAR_E_NOMEM, "a path");
    snprintf(log, room, "%s-wal", path);
    int there = stat(log, &info) == 0 && info.st_size > 0;
    pl_free(log);
    PL_NEED(!there, POLAR_E_STATE,
            "the store '%s' is open in another program, or one was killed at it ('%s-wal' is there): `polar "
            "store "
            "check` of it tidies up",
            pl_text_shown(path).text, pl_text_shown(path).text);
    return POLAR_OK;
}

static polar_status copy_bytes(int to, int from, char *buffer, size_t room, const char *to_path,
                               const char *path)
{
    for (;;) {
        ssize_t n = read(from, buffer, room);
        if (n < 0 && errno == EINTR) continue;
        PL_NEED(n >= 0, POLAR_E_IO, "read '%s': %s", pl_text_shown(path).text, strerror(errno));
        if (!n) return POLAR_OK;
        PL_TRY(pl_write_all(to, buffer, (size_t)n, to_path));
    }
}

polar_status pl_store_copy(const char *to, const char *from)
{
    const size_t room = (size_t)1 << 20;
    pl_whole_file w;
    PL_TRY(need_no_log(from));
    PL_TRY(need_no_log(to));
    int fd = open(from, O_RDONLY | O_CLOEXEC);
    PL_NEED(fd >= 0, errno == ENOENT ? POLAR_E_ARG : POLAR_E_IO, "read '%s': %s", pl_text_shown(from).text,
            strerror(errno));
    char *buffer = pl_alloc(room);
    polar_status st = buffer ? pl_whole_file_begin(&w, to) : PL_FAIL(POLAR_E_NOMEM, "a copy");
    if (st == POLAR_OK) st = pl_whole_file_end(&w, copy_bytes(w.fd, fd, buffer, room, to, from));
    pl_free(buffer);
    close(fd);
    return st;
}
