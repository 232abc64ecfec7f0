/* store_put.c -- everything that writes a store. Each function is one transaction.
 *
 * Invariants:
 *  1. A run's results, its last epochs and its final state appear together or not at all.
 *  2. A finished run is never changed but by pl_store_forget.
 *  3. Epochs and gauge rows may be put again (work done twice after a kill -9): the row is replaced by the same numbers.
 *  4. Only who has claimed a run begins, continues or finishes it; who plans touches neither state nor results.
 */
#include <assert.h>

#include "base/json_read.h"
#include "store/store_impl.h"

#define NOW "strftime('%Y-%m-%dT%H:%M:%SZ', 'now')"

/* ---- specs ------------------------------------------------------------------------------------------------------------- */

static polar_status put_members(pl_store *s, sqlite3_stmt *run, sqlite3_stmt *member, const pl_store_spec *spec, const pl_store_plan_row *rows, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const pl_store_plan_row *r = &rows[i];
        PL_TRY(pl_text_check(s, &pl_rule_cell, r->cell));
        PL_TRY(pl_text_check(s, &pl_rule_arm, r->arm));
        PL_TRY(pl_sql_put(s, run, "ttit", r->id, spec->testbed, r->seed, r->config));
        PL_TRY(pl_sql_put(s, member, "tttiit", spec->name, r->cell, r->arm, r->seed, i, r->id));
    }
    return POLAR_OK;
}

static polar_status put_spec(pl_store *s, const pl_store_spec *spec, const pl_store_plan_row *rows, int64_t count)
{
    sqlite3_stmt *run = NULL, *member = NULL;
    PL_TRY(pl_sql_do(s, "DELETE FROM member WHERE spec = ?1 AND EXISTS(SELECT 1 FROM spec WHERE name = ?1 AND text <> ?2)", "tt", spec->name, spec->text));
    PL_TRY(pl_sql_do(s, "INSERT OR REPLACE INTO spec(name, sha, title, testbed, metric, text) VALUES(?, ?, ?, ?, ?, ?)", "tttttt", spec->name, spec->sha,
                     spec->title, spec->testbed, spec->metric, spec->text));
    polar_status st = pl_sql_prepare(&run, s, "INSERT INTO run(id, testbed, seed, config) VALUES(?, ?, ?, ?) ON CONFLICT DO NOTHING");
    if (st == POLAR_OK) st = pl_sql_prepare(&member, s, "INSERT OR REPLACE INTO member(spec, cell, arm, seed, ord, run) VALUES(?, ?, ?, ?, ?, ?)");
    if (st == POLAR_OK) st = put_members(s, run, member, spec, rows, count);
    sqlite3_finalize(run);
    sqlite3_finalize(member);
    return st;
}

polar_status pl_store_put_spec(pl_store *s, const pl_store_spec *spec, const pl_store_plan_row *rows, int64_t count)
{
    PL_TRY(pl_sql_begin(s));
    return pl_sql_end(s, put_spec(s, spec, rows, count));
}

/* ---- runs -------------------------------------------------------------------------------------------------------------- */

static polar_status drop_rows(pl_store *s, const char *id)
{
    PL_TRY(pl_sql_do(s, "DELETE FROM epoch WHERE run = ?", "t", id));
    return pl_sql_do(s, "DELETE FROM gauge WHERE run = ?", "t", id);
}

static polar_status begin_run(pl_store *s, const char *id, const pl_provenance *p, int fresh)
{
    if (fresh) PL_TRY(drop_rows(s, id));
    PL_TRY(pl_sql_do(s,
                     "UPDATE run SET started = iif(?6 OR started IS NULL, " NOW ", started), wall = iif(?6, 0, wall), code = ?2, device = ?3, cpu = ?4, threads = ?5, data = ?7"
                     " WHERE id = ?1 AND state = 'planned'",
                     "ttttiit", id, p->code, p->device, p->cpu, p->threads, (int64_t)fresh, p->data));
    PL_NEED(sqlite3_changes(s->db) == 1, POLAR_E_STATE, "run %s is unknown to the store '%s', or finished", pl_text_shown(id).text, pl_text_shown(s->path).text);
    return POLAR_OK;
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
        PL_TRY(pl_sql_put(s, st, "tirrrir", id, e->epoch, e->train_loss, e->valid, e->lr, (int64_t)(e->improved != 0), e->seconds));
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
    polar_status st = pl_sql_prepare(&epoch, s, "INSERT OR REPLACE INTO epoch(run, epoch, train_loss, valid, lr, improved, seconds) VALUES(?, ?, ?, ?, ?, ?, ?)");
    if (st == POLAR_OK) st = pl_sql_prepare(&gauge, s, "INSERT OR REPLACE INTO gauge(run, step, block, shadow, map, deviation) VALUES(?, ?, ?, ?, ?, ?)");
    if (st == POLAR_OK) st = put_epochs(s, epoch, id, p);
    if (st == POLAR_OK) st = put_gauges(s, gauge, id, p);
    sqlite3_finalize(epoch);
    sqlite3_finalize(gauge);
    if (st == POLAR_OK) st = pl_sql_do(s, "UPDATE run SET wall = ?2 WHERE id = ?1", "tr", id, p->wall);
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

static polar_status put_results(pl_store *s, sqlite3_stmt *st, const char *id, const pl_result *results, int64_t count)
{
    for (int64_t i = 0; i < count; i++) PL_TRY(pl_sql_put(s, st, "ttr", id, results[i].name, results[i].value));
    return POLAR_OK;
}

static polar_status finish(pl_store *s, const char *id, pl_run_state state, const pl_result *results, int64_t count, const pl_run_progress *p)
{
    sqlite3_stmt *st = NULL;
    int open = 0;
    PL_TRY(is_open(s, id, &open));
    if (!open) return POLAR_OK;
    PL_TRY(put_progress(s, id, p));
    PL_TRY(pl_sql_prepare(&st, s, "INSERT INTO result(run, name, value) VALUES(?, ?, ?)"));
    polar_status status = put_results(s, st, id, results, count);
    sqlite3_finalize(st);
    if (status == POLAR_OK) status = pl_sql_do(s, "UPDATE run SET state = ?2, finished = " NOW " WHERE id = ?1", "tt", id, pl_run_state_name(state));
    return status;
}

polar_status pl_store_finish(pl_store *s, const char *id, pl_run_state state, const pl_result *results, int64_t count, const pl_run_progress *p)
{
    assert(state == PL_RUN_DONE || state == PL_RUN_DIVERGED);
    PL_TRY(pl_sql_begin(s));
    return pl_sql_end(s, finish(s, id, state, results, count, p));
}

static polar_status forget(pl_store *s, const char *id)
{
    PL_TRY(drop_rows(s, id));
    PL_TRY(pl_sql_do(s, "DELETE FROM result WHERE run = ?", "t", id));
    return pl_sql_do(s, "UPDATE run SET state = 'planned', wall = 0, started = NULL, finished = NULL WHERE id = ?", "t", id);
}

polar_status pl_store_forget(pl_store *s, const char *id)
{
    PL_TRY(pl_sql_begin(s));
    return pl_sql_end(s, forget(s, id));
}
