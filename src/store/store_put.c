/* store_put.c -- everything that writes a store. Each function is one transaction.
 *
 * Invariants:
 *  1. A run's results, its last epochs and its final state appear together or not at all.
 *  2. A finished run is never changed but by pl_store_forget.
 *  3. Epochs and gauge rows may be put again (work done twice after a kill -9): the row is replaced by the
 * same numbers.
 *  4. Every row is put with its checksum (store_sum.c), and who changes one makes it anew in the same
 * transaction.
 *  5. Only who has claimed a run begins, continues or finishes it; who plans touches neither state nor
 * results.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json_read.h"
#include "store/store_impl.h"

#define NOW        "strftime('%Y-%m-%dT%H:%M:%SZ', 'now')"
#define LOOK_EVERY 1024 /* rows */
#define KNOWN      256  /* configurations remembered while a plan is put */

/* ---- specs -------------------------------------------------------------------------------------- */

typedef struct plan_statements {
    sqlite3_stmt *config, *run, *member;
} plan_statements;

static int by_id(const void *a, const void *b)
{
    return strcmp((*(const pl_store_plan_row *const *)a)->id, (*(const pl_store_plan_row *const *)b)->id);
}

/* Every LOOK_EVERY rows: whether to leave. */
static polar_status check_leave(const pl_store *s, int64_t i)
{
    PL_NEED(i % LOOK_EVERY || !s->leave || !s->leave(s->leave_arg), POLAR_E_STATE,
            "left while a plan was put into the store '%s'", pl_text_shown(s->path).text);
    return POLAR_OK;
}

typedef struct known_config { /* the seeds of an arm share one text */
    const char *json;
    char key[PL_CHECKSUM_HEX];
} known_config;

/* Its key; the row, where it may not have been put yet. `known` remembers some. */
static polar_status put_config(const char **key, known_config known[KNOWN], pl_store *s, sqlite3_stmt *st,
                               const char *json)
{
    known_config *k = &known[(uintptr_t)json / 64 % KNOWN];
    *key = k->key;
    if (k->json == json) return POLAR_OK;
    pl_sum_config_key(k->key, json);
    k->json = json;
    return pl_sql_put(s, st, "tt", k->key, json);
}

/* Ids are hashes: in their order the rows of a large plan fill one page after the other, instead of each
 * landing on a page of its own. */
static polar_status put_runs(pl_store *s, const plan_statements *st, const pl_store_spec *spec,
                             const pl_store_plan_row **order, int64_t count)
{
    known_config known[KNOWN] = {{NULL, ""}};
    const char *key;
    for (int64_t i = 0; i < count; i++) {
        const pl_store_plan_row *r = order[i];
        PL_TRY(check_leave(s, i));
        PL_TRY(put_config(&key, known, s, st->config, r->config));
        PL_TRY(pl_sql_put(s, st->run, "ttit", r->id, spec->testbed, r->seed, key));
    }
    return POLAR_OK;
}

static polar_status put_members(pl_store *s, const plan_statements *st, const pl_store_spec *spec,
                                const pl_store_plan_row *rows, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const pl_store_plan_row *r = &rows[i];
        PL_TRY(check_leave(s, i));
        PL_TRY(pl_text_check(s, &pl_rule_cell, r->cell));
        PL_TRY(pl_text_check(s, &pl_rule_arm, r->arm));
        PL_TRY(pl_sql_put(s, st->member, "tttiit", spec->name, r->cell, r->arm, r->seed, i, r->id));
    }
    return POLAR_OK;
}

static polar_status prepare_plan(plan_statements *st, pl_store *s)
{
    PL_TRY(pl_sql_prepare(&st->config, s,
                          "INSERT INTO config(key, json, sum) VALUES(?1, ?2, polar_sum('config', ?1, ?2)) ON "
                          "CONFLICT DO NOTHING"));
    PL_TRY(pl_sql_prepare(
        &st->run, s,
        "INSERT INTO run(id, testbed, seed, config, state, wall, sum) VALUES(?1, ?2, ?3, ?4, 'planned', 0.0,"
        " polar_sum('run', ?1, ?2, ?3, ?4, 'planned', 0.0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, "
        "NULL, NULL)) ON CONFLICT DO NOTHING"));
    return pl_sql_prepare(&st->member, s,
                          "INSERT OR REPLACE INTO member(spec, cell, arm, seed, ord, run, sum) VALUES(?1, "
                          "?2, ?3, ?4, ?5, ?6, polar_sum('member', ?1, ?2, ?3, ?4, ?5, ?6))");
}

static polar_status put_rows(pl_store *s, const pl_store_spec *spec, const pl_store_plan_row *rows,
                             int64_t count)
{
    plan_statements st = {0};
    const pl_store_plan_row **order = pl_calloc((size_t)count + 1, sizeof *order);
    PL_NEED(order, POLAR_E_NOMEM, "a plan of %lld runs", (long long)count);
    for (int64_t i = 0; i < count; i++) order[i] = &rows[i];
    qsort(order, (size_t)count, sizeof *order, by_id);
    polar_status status = prepare_plan(&st, s);
    if (status == POLAR_OK) status = put_runs(s, &st, spec, order, count);
    if (status == POLAR_OK) status = put_members(s, &st, spec, rows, count);
    sqlite3_finalize(st.config);
    sqlite3_finalize(st.run);
    sqlite3_finalize(st.member);
    pl_free(order);
    return status;
}

polar_status pl_put_spec(pl_store *s, const pl_store_spec *spec, const pl_store_plan_row *rows, int64_t count)
{
    PL_TRY(pl_sql_do(
        s, "DELETE FROM member WHERE spec = ?1 AND EXISTS(SELECT 1 FROM spec WHERE name = ?1 AND text <> ?2)",
        "tt", spec->name, spec->text));
    PL_TRY(pl_sql_do(
        s, "INSERT OR REPLACE INTO spec(name, sha, title, testbed, metric, text) VALUES(?, ?, ?, ?, ?, ?)",
        "tttttt", spec->name, spec->sha, spec->title, spec->testbed, spec->metric, spec->text));
    PL_TRY(put_rows(s, spec, rows, count));
    PL_TRY(pl_sql_do(
        s, "UPDATE spec SET members = (SELECT count(*) FROM member WHERE spec = ?1) WHERE name = ?1", "t",
        spec->name));
    return pl_sql_do(s, "UPDATE spec SET sum = " PL_SUM_SPEC " WHERE name = ?", "t", spec->name);
}

polar_status pl_store_put_spec(pl_store *s, const pl_store_spec *spec, const pl_store_plan_row *rows,
                               int64_t count)
{
    PL_TRY(pl_sql_begin(s));
    return pl_sql_end(s, pl_put_spec(s, spec, rows, count));
}

void pl_store_set_leave(pl_store *s, int (*leave)(void *arg), void *arg)
{
    s->leave = leave;
    s->leave_arg = arg;
}

/* ---- runs --------------------------------------------------------------------------------------- */

static polar_status drop_rows(pl_store *s, const char *id)
{
    PL_TRY(pl_sql_do(s, "DELETE FROM epoch WHERE run = ?", "t", id));
    return pl_sql_do(s, "DELETE FROM gauge WHERE run = ?", "t", id);
}

/* After a change of the row. */
static polar_status sum_run(pl_store *s, const char *id)
{
    return pl_sql_do(s, "UPDATE run SET sum = " PL_SUM_RUN " WHERE id = ?", "t", id);
}

static polar_status begin_run(pl_store *s, const char *id, const pl_provenance *p, int fresh)
{
    if (fresh) PL_TRY(drop_rows(s, id));
    PL_TRY(pl_sql_do(
        s,
        "UPDATE run SET started = iif(?6 OR started IS NULL, " NOW
        ", started), wall = iif(?6, 0, wall), code = ?2, device = ?3, cpu = ?4, threads = ?5, data = ?7"
        " WHERE id = ?1 AND state = 'planned'",
        "ttttiit", id, p->code, p->device, p->cpu, p->threads, (int64_t)fresh, p->data));
    PL_NEED(sqlite3_changes(s->db) == 1, POLAR_E_STATE, "run %s is unknown to the store '%s', or finished",
            pl_text_shown(id).text, pl_text_shown(s->path).text);
    return sum_run(s, id);
}

polar_status pl_store_begin_run(pl_store *s, const char *id, const pl_provenance *p, int fresh)
{
    PL_TRY(pl_sql_begin(s));
    return pl_sql_end(s, begin_run(s, id, p, fresh));
}

static polar_status put_epochs(pl_store *s, sqlite3_stmt *st, const char *id, const pl_run_progress *p)
{
    for (int64_t i = 0; i < p->epoch_count; i++) {
        const pl_epoch_row *e = &p->epochs[i];
        PL_TRY(pl_sql_put(s, st, "tirrrir", id, e->epoch, e->train_loss, e->valid, e->lr,
                          (int64_t)(e->improved != 0), e->seconds));
    }
    return POLAR_OK;
}

static polar_status put_gauges(pl_store *s, sqlite3_stmt *st, const char *id, const pl_run_progress *p)
{
    for (int64_t i = 0; i < p->gauge_count; i++) {
        const pl_gauge_row *g = &p->gauges[i];
        PL_TRY(pl_sql_put(s, st, "tititr", id, g->step, g->block, g->shadow, g->map, g->deviation));
    }
    return POLAR_OK;
}

static polar_status put_progress(pl_store *s, const char *id, const pl_run_progress *p)
{
    sqlite3_stmt *epoch = NULL, *gauge = NULL;
    polar_status st = pl_sql_prepare(
        &epoch, s,
        "INSERT OR REPLACE INTO epoch(run, epoch, train_loss, valid, lr, improved, seconds, sum)"
        " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, polar_sum('epoch', ?1, ?2, ?3, ?4, ?5, ?6, ?7))");
    if (st == POLAR_OK)
        st = pl_sql_prepare(&gauge, s,
                            "INSERT OR REPLACE INTO gauge(run, step, block, shadow, map, deviation, sum)"
                            " VALUES(?1, ?2, ?3, ?4, ?5, ?6, polar_sum('gauge', ?1, ?2, ?3, ?4, ?5, ?6))");
    if (st == POLAR_OK) st = put_epochs(s, epoch, id, p);
    if (st == POLAR_OK) st = put_gauges(s, gauge, id, p);
    sqlite3_finalize(epoch);
    sqlite3_finalize(gauge);
    if (st == POLAR_OK) st = pl_sql_do(s, "UPDATE run SET wall = ?2 WHERE id = ?1", "tr", id, p->wall);
    if (st == POLAR_OK) st = sum_run(s, id);
    return st;
}

/* *open: the run is known and not finished. */
static polar_status is_open(pl_store *s, const char *id, int *open)
{
    pl_run_state state = PL_RUN_PLANNED;
    PL_TRY(pl_store_run_state(s, id, &state, NULL));
    *open = state == PL_RUN_PLANNED;
    return POLAR_OK;
}

static polar_status progress(pl_store *s, const char *id, const pl_run_progress *p)
{
    int open = 0;
    PL_TRY(is_open(s, id, &open));
    return open ? put_progress(s, id, p) : POLAR_OK;
}

polar_status pl_store_put_progress(pl_store *s, const char *id, const pl_run_progress *p)
{
    PL_TRY(pl_sql_begin(s));
    return pl_sql_end(s, progress(s, id, p));
}

static polar_status put_results(pl_store *s, sqlite3_stmt *st, const char *id, const pl_result *results,
                                int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        PL_TRY(pl_sql_put(s, st, "ttr", id, results[i].name, results[i].value));
    return POLAR_OK;
}

static polar_status finish(pl_store *s, const char *id, pl_run_state state, const pl_result *results,
                           int64_t count, const pl_run_progress *p)
{
    sqlite3_stmt *st = NULL;
    int open = 0;
    PL_TRY(is_open(s, id, &open));
    if (!open) return POLAR_OK;
    PL_TRY(put_progress(s, id, p));
    PL_TRY(pl_sql_prepare(
        &st, s,
        "INSERT INTO result(run, name, value, sum) VALUES(?1, ?2, ?3, polar_sum('result', ?1, ?2, ?3))"));
    polar_status status = put_results(s, st, id, results, count);
    sqlite3_finalize(st);
    if (status == POLAR_OK)
        status = pl_sql_do(s,
                           "UPDATE run SET state = ?2, finished = " NOW
                           ", results = (SELECT count(*) FROM result WHERE run = ?1),"
                           " epochs = (SELECT count(*) FROM epoch WHERE run = ?1), gauges = (SELECT count(*) "
                           "FROM gauge WHERE run = ?1)"
                           " WHERE id = ?1",
                           "tt", id, pl_run_state_name(state));
    if (status == POLAR_OK) status = sum_run(s, id);
    return status;
}

polar_status pl_store_finish(pl_store *s, const char *id, pl_run_state state, const pl_result *results,
                             int64_t count, const pl_run_progress *p)
{
    assert(state == PL_RUN_DONE || state == PL_RUN_DIVERGED);
    PL_TRY(pl_sql_begin(s));
    return pl_sql_end(s, finish(s, id, state, results, count, p));
}

static polar_status forget(pl_store *s, const char *id)
{
    PL_TRY(drop_rows(s, id));
    PL_TRY(pl_sql_do(s, "DELETE FROM result WHERE run = ?", "t", id));
    PL_TRY(pl_sql_do(s,
                     "UPDATE run SET state = 'planned', wall = 0, started = NULL, finished = NULL, results = "
                     "NULL, epochs = NULL, gauges = NULL WHERE id = ?",
                     "t", id));
    return sum_run(s, id);
}

polar_status pl_store_forget(pl_store *s, const char *id)
{
    PL_TRY(pl_sql_begin(s));
    return pl_sql_end(s, forget(s, id));
}
