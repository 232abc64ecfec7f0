/* store_join.c -- finished runs of elsewhere, another store's or a table's, put into a store.
 *
 * Rows come read and verified, and are put anew with checksums of their own; nothing is copied blindly.
 *
 * Invariants:
 *  1. A finished run is never changed, here as elsewhere: one that comes again must be the same, in all but
 *     clocks (wall, started, finished, an epoch's seconds) and machines (code, device, cpu, threads).
 *  2. A run that was imported from a table (pl_store_is_imported) may lack rows: what it lacks is no
 *     disagreement, what it has must be the same.
 *  3. A run of `out` that gets its results here was planned, and is claimed until `out` closes.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json_read.h"
#include "store/store_impl.h"

#define WHAT 320 /* characters of a disagreement */

#define EPOCH_VALUES "?1, ?2, ?3, ?4, ?5, ?6, ?7"
#define GAUGE_VALUES "?1, ?2, ?3, ?4, ?5, ?6"
#define RUN_VALUES   "?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16"
#define NEVER_BEGUN  "'planned', 0.0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL"

polar_status pl_join_begin(pl_joining *j)
{
    const struct {
        sqlite3_stmt **at;
        const char *sql;
    } all[] = {
        {&j->config,
         "INSERT OR IGNORE INTO config(key, json, sum) VALUES(?1, ?2, polar_sum('config', ?1, ?2))"},
        {&j->planned,
         "INSERT OR IGNORE INTO run(id, testbed, seed, config, state, wall, started, finished, code, "
         "device, cpu, threads, data, results, epochs, gauges, sum) VALUES(?1, ?2, ?3, ?4, " NEVER_BEGUN
         ", polar_sum('run', ?1, ?2, ?3, ?4, " NEVER_BEGUN "))"},
        {&j->run,
         "INSERT OR REPLACE INTO run(id, testbed, seed, config, state, wall, started, finished, code, "
         "device, cpu, threads, data, results, epochs, gauges, sum) VALUES(" RUN_VALUES
         ", polar_sum('run', " RUN_VALUES "))"},
        {&j->epoch,
         "INSERT INTO epoch(run, epoch, train_loss, valid, lr, improved, seconds, sum) VALUES(" EPOCH_VALUES
         ", polar_sum('epoch', " EPOCH_VALUES "))"},
        {&j->gauge, "INSERT INTO gauge(run, step, block, shadow, map, deviation, sum) VALUES(" GAUGE_VALUES
                    ", polar_sum('gauge', " GAUGE_VALUES "))"},
        {&j->result,
         "INSERT INTO result(run, name, value, sum) VALUES(?1, ?2, ?3, polar_sum('result', ?1, ?2, ?3))"},
    };
    int64_t runs = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        PL_TRY(pl_sql_prepare(all[i].at, j->out, all[i].sql));
    PL_TRY(pl_sql_integer(j->out, "SELECT count(*) FROM run", &runs));
    j->alone = !runs;
    return POLAR_OK;
}

polar_status pl_join_count(pl_joining *j)
{
    PL_TRY(pl_sql_integer(j->out, "SELECT count(*) FROM run", &j->did.runs));
    return pl_sql_integer(j->out, "SELECT count(*) FROM run WHERE state <> 'planned'", &j->did.finished);
}

void pl_join_finalise(pl_joining *j)
{
    sqlite3_stmt *all[] = {j->config, j->planned, j->run, j->epoch, j->gauge, j->result};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) sqlite3_finalize(all[i]);
}

void pl_join_differ(pl_joining *j, const char *run, const char *what)
{
    j->did.differ++;
    if (!j->deaf) j->deaf = !j->tell(j->arg, run, what);
}

/* ---- do two runs agree? ------------------------------------------------------------------------- */

polar_status pl_run_rows_read(pl_run_rows *r, pl_store *s, const char *id)
{
    *r = (pl_run_rows){0};
    PL_TRY(pl_store_select_epochs(&r->epochs, s, id));
    return pl_store_select_gauges(&r->gauges, s, id);
}

void pl_run_rows_free(pl_run_rows *r)
{
    pl_store_epochs_free(&r->epochs);
    pl_store_gauges_free(&r->gauges);
}

static int same(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

/* Which of the two results comes first by name: < 0 x, > 0 y, 0 both; NULL comes after all others. */
static int order_of(const pl_result *x, const pl_result *y)
{
    if (!x || !y) return !x - !y;
    return strcmp(x->name, y->name);
}

/* Writes what the first disagreement is, the new run's side first; 0: they agree. Both are by name. */
static int results_differ(char what[WHAT], const pl_store_member *a, const pl_store_member *b)
{
    int a_part = pl_store_is_imported(a), b_part = pl_store_is_imported(b);
    if (a->result_count != b->result_count && !a_part && !b_part)
        return snprintf(what, WHAT, "it has %" PRId64 " results, and %" PRId64 " before", a->result_count,
                        b->result_count);
    for (int64_t i = 0, k = 0; i < a->result_count || k < b->result_count;) {
        const pl_result *x = i < a->result_count ? &a->results[i] : NULL,
                        *y = k < b->result_count ? &b->results[k] : NULL;
        int order = order_of(x, y);
        if (order && x && y && !a_part && !b_part)
            return snprintf(what, WHAT, "it has a result %s, and %s before", x->name, y->name);
        if (order < 0 && !b_part) return snprintf(what, WHAT, "it has a result %s, and none before", x->name);
        if (order > 0 && !a_part) return snprintf(what, WHAT, "it has no result %s, and one before", y->name);
        if (!order && !same(x->value, y->value))
            return snprintf(what, WHAT, "its result %s is %.17g, and %.17g before", x->name, x->value,
                            y->value);
        i += order <= 0;
        k += order >= 0;
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

/* Whether one of the two has rows to compare and the other, imported, has none of them. */
static int only_lacks(const pl_store_member *a, int64_t a_rows, const pl_store_member *b, int64_t b_rows)
{
    return (!a_rows && pl_store_is_imported(a)) || (!b_rows && pl_store_is_imported(b));
}

static int rows_differ(char what[WHAT], const pl_store_member *a, const pl_store_member *b,
                       const pl_run_rows *x, const pl_run_rows *y)
{
    if (a->state != b->state)
        return snprintf(what, WHAT, "it is %s, and %s before", pl_run_state_name(a->state),
                        pl_run_state_name(b->state));
    if (a->data && b->data && strcmp(a->data, b->data)) /* an older version wrote none, nor do tables */
        return snprintf(what, WHAT, "it was trained on other data than before");
    if (results_differ(what, a, b)) return 1;
    if (!only_lacks(a, x->epochs.count, b, y->epochs.count) && epochs_differ(what, &x->epochs, &y->epochs))
        return 1;
    return !only_lacks(a, x->gauges.count, b, y->gauges.count) && gauges_differ(what, &x->gauges, &y->gauges);
}

/* ---- runs --------------------------------------------------------------------------------------- */

static polar_status put_rows(pl_joining *j, const pl_store_member *r, const pl_run_rows *rows)
{
    for (int64_t i = 0; i < r->result_count; i++)
        PL_TRY(pl_sql_put(j->out, j->result, "ttr", r->id, r->results[i].name, r->results[i].value));
    for (int64_t i = 0; i < rows->epochs.count; i++) {
        const pl_epoch_row *e = &rows->epochs.rows[i];
        PL_TRY(pl_sql_put(j->out, j->epoch, "tirrrir", r->id, e->epoch, e->train_loss, e->valid, e->lr,
                          (int64_t)e->improved, e->seconds));
    }
    for (int64_t i = 0; i < rows->gauges.count; i++) {
        const pl_gauge_row *g = &rows->gauges.rows[i];
        PL_TRY(pl_sql_put(j->out, j->gauge, "tititr", r->id, g->step, g->block, g->shadow, g->map,
                          g->deviation));
    }
    return POLAR_OK;
}

static polar_status put_finished(pl_joining *j, const pl_store_member *r, const pl_run_rows *rows,
                                 const char *config)
{
    PL_TRY(pl_sql_do(j->out, "DELETE FROM epoch WHERE run = ?", "t", r->id));
    PL_TRY(pl_sql_do(j->out, "DELETE FROM gauge WHERE run = ?", "t", r->id));
    PL_TRY(pl_sql_put(j->out, j->run, "ttittrtttttitiii", r->id, r->testbed, r->seed, config,
                      pl_run_state_name(r->state), r->wall, r->started, r->finished, r->code, r->device,
                      r->cpu, r->threads, r->data, r->result_count, rows->epochs.count, rows->gauges.count));
    PL_TRY(put_rows(j, r, rows));
    j->did.put++;
    return POLAR_OK;
}

static polar_status compare_finished(pl_joining *j, const pl_store_member *r, const pl_run_rows *rows,
                                     const pl_store_member *there)
{
    pl_run_rows before;
    char what[WHAT];
    polar_status st = pl_run_rows_read(&before, j->out, r->id);
    if (st == POLAR_OK && rows_differ(what, r, there, rows, &before)) pl_join_differ(j, r->id, what);
    pl_run_rows_free(&before);
    return st;
}

static polar_status claim(pl_joining *j, const char *id)
{
    int mine = 1;
    if (!j->alone) PL_TRY(pl_store_claim(j->out, id, &mine));
    PL_NEED(mine, POLAR_E_STATE, "another process is at run %.12s in '%s': try again when it has ended", id,
            pl_text_shown(j->out->path).text);
    return POLAR_OK;
}

/* A run that `out` knows. */
static polar_status meet(pl_joining *j, const pl_store_member *r, const pl_run_rows *rows,
                         const pl_store_member *there, const char *config)
{
    if (strcmp(r->testbed, there->testbed) || r->seed != there->seed) {
        pl_join_differ(j, r->id, "its testbed or its seed is another than before");
        return POLAR_OK;
    }
    if (r->state == PL_RUN_PLANNED) return POLAR_OK;
    if (there->state != PL_RUN_PLANNED) return compare_finished(j, r, rows, there);
    PL_TRY(claim(j, r->id));
    return put_finished(j, r, rows, config);
}

polar_status pl_join_run(pl_joining *j, const pl_store_member *r, const pl_run_rows *rows)
{
    char config[PL_CHECKSUM_HEX];
    const char *id = r->id;
    pl_store_members there;
    pl_sum_config_key(config, r->config);
    PL_TRY(pl_sql_put(j->out, j->config, "tt", config, r->config));
    PL_TRY(pl_sql_put(j->out, j->planned, "ttit", r->id, r->testbed, r->seed, config));
    if (sqlite3_changes(j->out->db)) /* a new one */
        return r->state == PL_RUN_PLANNED ? POLAR_OK : put_finished(j, r, rows, config);
    PL_TRY(pl_store_select_runs(&there, j->out, &id, 1));
    polar_status st = meet(j, r, rows, &there.rows[0], config);
    pl_store_members_free(&there);
    return st;
}
