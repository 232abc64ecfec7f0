/* store_merge.c -- several stores become one: the shards of an audit, made on as many machines.
 *
 * Rows are read as everywhere (their checksums verified, their columns as a stranger's) and put anew with
 * checksums of their own; nothing is copied blindly.
 *
 * Invariants:
 *  1. One transaction: `out` holds everything that the stores have, or what it held before.
 *  2. A finished run is never changed, here as elsewhere: one that comes again must be the same, in all but
 *     clocks (wall, started, finished, an epoch's seconds) and machines (code, device, cpu, threads).
 *  3. A run of `out` that gets its results here was planned, and is claimed until `out` closes.
 *  4. A store is read as of one moment, so it may be one that `polar run` is still filling.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
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
    pl_store *out, *in;
    int alone; /* `out` began without a run: nobody is at one */
    sqlite3_stmt *config, *planned, *run, *epoch, *gauge, *result, *member;
    pl_damage_fn tell;
    void *arg;
    pl_merge_count did;
    int deaf; /* tell has heard enough */
} merging;

#define EPOCH_VALUES "?1, ?2, ?3, ?4, ?5, ?6, ?7"
#define GAUGE_VALUES "?1, ?2, ?3, ?4, ?5, ?6"
#define RUN_VALUES   "?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16"
#define NEVER_BEGUN  "'planned', 0.0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL"

static polar_status prepare(merging *m)
{
    const struct {
        sqlite3_stmt **at;
        const char *sql;
    } all[] = {
        {&m->config,
         "INSERT OR IGNORE INTO config(key, json, sum) VALUES(?1, ?2, polar_sum('config', ?1, ?2))"},
        {&m->planned,
         "INSERT OR IGNORE INTO run(id, testbed, seed, config, state, wall, started, finished, code, "
         "device, cpu, threads, data, results, epochs, gauges, sum) VALUES(?1, ?2, ?3, ?4, " NEVER_BEGUN
         ", polar_sum('run', ?1, ?2, ?3, ?4, " NEVER_BEGUN "))"},
        {&m->run,
         "INSERT OR REPLACE INTO run(id, testbed, seed, config, state, wall, started, finished, code, "
         "device, cpu, threads, data, results, epochs, gauges, sum) VALUES(" RUN_VALUES
         ", polar_sum('run', " RUN_VALUES "))"},
        {&m->epoch,
         "INSERT INTO epoch(run, epoch, train_loss, valid, lr, improved, seconds, sum) VALUES(" EPOCH_VALUES
         ", polar_sum('epoch', " EPOCH_VALUES "))"},
        {&m->gauge, "INSERT INTO gauge(run, step, block, shadow, map, deviation, sum) VALUES(" GAUGE_VALUES
                    ", polar_sum('gauge', " GAUGE_VALUES "))"},
        {&m->result,
         "INSERT INTO result(run, name, value, sum) VALUES(?1, ?2, ?3, polar_sum('result', ?1, ?2, ?3))"},
        {&m->member, "INSERT OR IGNORE INTO member(spec, cell, arm, seed, ord, run, sum) VALUES(" GAUGE_VALUES
                     ", polar_sum('member', " GAUGE_VALUES "))"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        PL_TRY(pl_sql_prepare(all[i].at, m->out, all[i].sql));
    return POLAR_OK;
}

static void finalise(merging *m)
{
    sqlite3_stmt *all[] = {m->config, m->planned, m->run, m->epoch, m->gauge, m->result, m->member};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) sqlite3_finalize(all[i]);
}

static void differ(merging *m, const char *run, const char *what)
{
    m->did.differ++;
    if (!m->deaf) m->deaf = !m->tell(m->arg, run, what);
}

/* ---- do two runs agree? ------------------------------------------------------------------------- */

typedef struct run_rows { /* what a store has of a run, beside its row */
    pl_store_epochs epochs;
    pl_store_gauges gauges;
} run_rows;

static polar_status read_rows(run_rows *r, pl_store *s, const char *id)
{
    *r = (run_rows){0};
    PL_TRY(pl_store_select_epochs(&r->epochs, s, id));
    return pl_store_select_gauges(&r->gauges, s, id);
}

static void free_rows(run_rows *r)
{
    pl_store_epochs_free(&r->epochs);
    pl_store_gauges_free(&r->gauges);
}

static int same(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

/* Writes what the first disagreement is, the new run's side first; 0: they agree. */
static int results_differ(char what[WHAT], const pl_store_member *a, const pl_store_member *b)
{
    if (a->result_count != b->result_count)
        return snprintf(what, WHAT, "it has %" PRId64 " results, and %" PRId64 " before", a->result_count,
                        b->result_count);
    for (int64_t i = 0; i < a->result_count; i++) {
        const pl_result *x = &a->results[i], *y = &b->results[i];
        if (strcmp(x->name, y->name))
            return snprintf(what, WHAT, "it has a result %s, and %s before", x->name, y->name);
        if (!same(x->value, y->value))
            return snprintf(what, WHAT, "its result %s is %.17g, and %.17g before", x->name, x->value,
                            y->value);
    }
    return 0;
}

static int epochs_differ(char what[WHAT], const pl_store_epochs *a, const pl_store_epochs *b)
{
    if (a->count != b->count)
        return snprintf(what, WHAT, "it has %" PRId64 " epochs, and %" PRId64 " before", a->count, b->count);
    for (int64_t i = 0; i < a->count; i++) {
        const pl_epoch_row *x = &a->rows[i], *y = &b->rows[i];
        const struct {
            const char *name;
            double x, y;
        } parts[] = {{"number", (double)x->epoch, (double)y->epoch},
                     {"training loss", x->train_loss, y->train_loss},
                     {"validation", x->valid, y->valid},
                     {"learning rate", x->lr, y->lr},
                     {"mark of improvement", x->improved, y->improved}};
        for (int k = 0; k < 5; k++)
            if (!same(parts[k].x, parts[k].y))
                return snprintf(what, WHAT, "its epoch %" PRId64 ": %s %.17g, and %.17g before", x->epoch,
                                parts[k].name, parts[k].x, parts[k].y);
    }
    return 0;
}

static int gauges_differ(char what[WHAT], const pl_store_gauges *a, const pl_store_gauges *b)
{
    if (a->count != b->count)
        return snprintf(what, WHAT, "it has %" PRId64 " gauge rows, and %" PRId64 " before", a->count,
                        b->count);
    for (int64_t i = 0; i < a->count; i++) {
        const pl_gauge_row *x = &a->rows[i], *y = &b->rows[i];
        int named = x->step == y->step && x->shadow == y->shadow;
        if (!named || strcmp(x->block, y->block) || strcmp(x->map, y->map) ||
            !same(x->deviation, y->deviation))
            return snprintf(what, WHAT, "its gauge row of step %" PRId64 " is %.17g, and %.17g before",
                            x->step, x->deviation, y->deviation);
    }
    return 0;
}

static int rows_differ(char what[WHAT], const pl_store_member *a, const pl_store_member *b, const run_rows *x,
                       const run_rows *y)
{
    if (a->state != b->state)
        return snprintf(what, WHAT, "it is %s, and %s before", pl_run_state_name(a->state),
                        pl_run_state_name(b->state));
    if (a->data && b->data && strcmp(a->data, b->data)) /* an older version wrote none */
        return snprintf(what, WHAT, "it was trained on other data than before");
    return results_differ(what, a, b) || epochs_differ(what, &x->epochs, &y->epochs) ||
           gauges_differ(what, &x->gauges, &y->gauges);
}

/* ---- runs --------------------------------------------------------------------------------------- */

static polar_status put_rows(merging *m, const pl_store_member *r, const run_rows *rows)
{
    for (int64_t i = 0; i < r->result_count; i++)
        PL_TRY(pl_sql_put(m->out, m->result, "ttr", r->id, r->results[i].name, r->results[i].value));
    for (int64_t i = 0; i < rows->epochs.count; i++) {
        const pl_epoch_row *e = &rows->epochs.rows[i];
        PL_TRY(pl_sql_put(m->out, m->epoch, "tirrrir", r->id, e->epoch, e->train_loss, e->valid, e->lr,
                          (int64_t)e->improved, e->seconds));
    }
    for (int64_t i = 0; i < rows->gauges.count; i++) {
        const pl_gauge_row *g = &rows->gauges.rows[i];
        PL_TRY(pl_sql_put(m->out, m->gauge, "tititr", r->id, g->step, g->block, g->shadow, g->map,
                          g->deviation));
    }
    return POLAR_OK;
}

static polar_status put_finished(merging *m, const pl_store_member *r, const char *config)
{
    run_rows rows;
    polar_status st = read_rows(&rows, m->in, r->id);
    if (st == POLAR_OK) st = pl_sql_do(m->out, "DELETE FROM epoch WHERE run = ?", "t", r->id);
    if (st == POLAR_OK) st = pl_sql_do(m->out, "DELETE FROM gauge WHERE run = ?", "t", r->id);
    if (st == POLAR_OK)
        st = pl_sql_put(m->out, m->run, "ttittrtttttitiii", r->id, r->testbed, r->seed, config,
                        pl_run_state_name(r->state), r->wall, r->started, r->finished, r->code, r->device,
                        r->cpu, r->threads, r->data, r->result_count, rows.epochs.count, rows.gauges.count);
    if (st == POLAR_OK) st = put_rows(m, r, &rows);
    free_rows(&rows);
    m->did.put += st == POLAR_OK;
    return st;
}

static polar_status compare_finished(merging *m, const pl_store_member *r, const pl_store_member *there)
{
    run_rows a, b = {0};
    char what[WHAT];
    polar_status st = read_rows(&a, m->in, r->id);
    if (st == POLAR_OK) st = read_rows(&b, m->out, r->id);
    if (st == POLAR_OK && rows_differ(what, r, there, &a, &b)) differ(m, r->id, what);
    free_rows(&a);
    free_rows(&b);
    return st;
}

static polar_status claim(merging *m, const char *id)
{
    int mine = 1;
    if (!m->alone) PL_TRY(pl_store_claim(m->out, id, &mine));
    PL_NEED(mine, POLAR_E_STATE, "another process is at run %.12s in '%s': try again when it has ended", id,
            pl_text_shown(m->out->path).text);
    return POLAR_OK;
}

/* A run that `out` knows. */
static polar_status meet(merging *m, const pl_store_member *r, const pl_store_member *there,
                         const char *config)
{
    if (strcmp(r->testbed, there->testbed) || r->seed != there->seed) {
        differ(m, r->id, "its testbed or its seed is another than before");
        return POLAR_OK;
    }
    if (r->state == PL_RUN_PLANNED) return POLAR_OK;
    if (there->state != PL_RUN_PLANNED) return compare_finished(m, r, there);
    PL_TRY(claim(m, r->id));
    return put_finished(m, r, config);
}

static polar_status merge_run(merging *m, const pl_store_member *r)
{
    char config[PL_CHECKSUM_HEX];
    const char *id = r->id;
    pl_store_members there;
    pl_sum_config_key(config, r->config);
    PL_TRY(pl_sql_put(m->out, m->config, "tt", config, r->config));
    PL_TRY(pl_sql_put(m->out, m->planned, "ttit", r->id, r->testbed, r->seed, config));
    if (sqlite3_changes(m->out->db)) /* a new one */
        return r->state == PL_RUN_PLANNED ? POLAR_OK : put_finished(m, r, config);
    PL_TRY(pl_store_select_runs(&there, m->out, &id, 1));
    polar_status st = meet(m, r, &there.rows[0], config);
    pl_store_members_free(&there);
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
    PL_TRY(pl_sql_prepare(&st, m->out, sql));
    polar_status status = pl_sql_bind(m->out, st, types, spec, cell, arm, seed);
    if (status == POLAR_OK) status = pl_sql_next(m->out, st, &row);
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
    PL_TRY(pl_sql_put(m->out, m->member, "tttiit", spec, r->cell, r->arm, r->seed, r->ord, r->id));
    if (sqlite3_changes(m->out->db)) return POLAR_OK;
    PL_TRY(compare_text(m, "SELECT run FROM member WHERE spec = ? AND cell = ? AND arm = ? AND seed = ?",
                        "ttti", r->id, &equal, spec, r->cell, r->arm, r->seed));
    if (equal) return POLAR_OK;
    snprintf(what, WHAT,
             "in the spec %.63s, %.100s %.60s seed %" PRId64
             " is this run, and another before (other --set?)",
             spec, r->cell, r->arm, r->seed);
    differ(m, r->id, what);
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
        differ(m, "", what);
        return POLAR_OK;
    }
    PL_TRY(pl_sql_do(
        m->out,
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
    int64_t runs = 0;
    PL_TRY(prepare(m));
    PL_TRY(pl_sql_integer(m->out, "SELECT count(*) FROM run", &runs));
    m->alone = !runs;
    for (int64_t i = 0; i < count; i++) {
        PL_TRY(pl_store_open(&m->in, paths[i], PL_STORE_READ)); /* verifies every row */
        polar_status st = merge_snapshot(m);
        pl_store_close(m->in);
        PL_TRY(st);
    }
    PL_NEED(!m->did.differ, POLAR_E_FORMAT,
            "%" PRId64 " disagreement%s between the stores: nothing was joined", m->did.differ,
            m->did.differ == 1 ? "" : "s");
    PL_TRY(
        pl_sql_do(m->out, "UPDATE spec SET members = (SELECT count(*) FROM member WHERE spec = name)", ""));
    PL_TRY(pl_sql_do(m->out, "UPDATE spec SET sum = " PL_SUM_SPEC, ""));
    PL_TRY(pl_sql_integer(m->out, "SELECT count(*) FROM run", &m->did.runs));
    return pl_sql_integer(m->out, "SELECT count(*) FROM run WHERE state <> 'planned'", &m->did.finished);
}

polar_status pl_store_merge(pl_merge_count *did, pl_store *out, const char *const *paths, int64_t count,
                            pl_damage_fn tell, void *arg)
{
    merging m = {.out = out, .tell = tell, .arg = arg};
    PL_TRY(pl_sql_begin(out));
    polar_status st = merge_all(&m, paths, count);
    finalise(&m); /* before the end: a statement that is open would keep it from committing */
    st = pl_sql_end(out, st);
    *did = m.did;
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
