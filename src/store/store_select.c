/* store_select.c -- everything that reads a store: rows in arrays that the caller owns. What one call gives is of one moment. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json_read.h"
#include "store/store_impl.h"

static const char *const state_names[] = {"planned", "done", "diverged"};

const char *pl_run_state_name(pl_run_state state) { return state_names[state]; }

static polar_status no_memory(pl_store *s) { return PL_FAIL(POLAR_E_NOMEM, "rows of the store '%s'", pl_text_shown(s->path).text); }

/* Cut to the room there is. No column read by it is ever null, so that NULL means no memory. */
static polar_status copy_text(char *out, size_t bytes, pl_store *s, sqlite3_stmt *st, int column)
{
    const char *text = (const char *)sqlite3_column_text(st, column);
    if (!text) return no_memory(s);
    snprintf(out, bytes, "%s", text);
    return POLAR_OK;
}

static polar_status read_state(pl_run_state *out, pl_store *s, sqlite3_stmt *st, int column)
{
    char word[16];
    PL_TRY(copy_text(word, sizeof word, s, st, column));
    *out = !strcmp(word, state_names[PL_RUN_DONE]) ? PL_RUN_DONE : !strcmp(word, state_names[PL_RUN_DIVERGED]) ? PL_RUN_DIVERGED : PL_RUN_PLANNED;
    return POLAR_OK;
}

/* ---- one row at a time ------------------------------------------------------------------------------------------------- */

typedef struct selection {
    pl_grow  rows;
    pl_pool *pool;
} selection;

typedef polar_status (*read_row)(pl_store *s, selection *sel, sqlite3_stmt *st, void *row);

/* Every row of `sql` (its one text argument, if it has one, is `key`). */
static polar_status each_row(pl_store *s, selection *sel, const char *sql, const char *key, read_row read)
{
    sqlite3_stmt *st = NULL;
    int row = 0;
    PL_TRY(pl_sql_prepare(&st, s, sql));
    polar_status status = key ? pl_sql_bind(s, st, "t", key) : POLAR_OK;
    while (status == POLAR_OK && (status = pl_sql_next(s, st, &row)) == POLAR_OK && row) {
        void *item = pl_grow_add(&sel->rows);
        status = item ? read(s, sel, st, item) : no_memory(s);
    }
    sqlite3_finalize(st);
    return status;
}

static void drop(selection *sel)
{
    pl_free(sel->rows.data);
    pl_pool_free(sel->pool);
}

static polar_status read_spec(pl_store *s, selection *sel, sqlite3_stmt *st, void *row)
{
    (void)s;
    pl_store_spec *r = row;
    PL_TRY(pl_pool_text(&r->name, &sel->pool, st, 0));
    PL_TRY(pl_pool_text(&r->sha, &sel->pool, st, 1));
    PL_TRY(pl_pool_text(&r->title, &sel->pool, st, 2));
    PL_TRY(pl_pool_text(&r->testbed, &sel->pool, st, 3));
    PL_TRY(pl_pool_text(&r->metric, &sel->pool, st, 4));
    return pl_pool_text(&r->text, &sel->pool, st, 5);
}

static polar_status read_epoch(pl_store *s, selection *sel, sqlite3_stmt *st, void *row)
{
    (void)s, (void)sel;
    *(pl_epoch_row *)row = (pl_epoch_row){sqlite3_column_int64(st, 0), pl_sql_real(st, 1), pl_sql_real(st, 2), pl_sql_real(st, 3), sqlite3_column_int(st, 4), pl_sql_real(st, 5)};
    return POLAR_OK;
}

static polar_status read_gauge(pl_store *s, selection *sel, sqlite3_stmt *st, void *row)
{
    (void)sel;
    pl_gauge_row *r = row;
    r->step = sqlite3_column_int64(st, 0);
    PL_TRY(copy_text(r->block, sizeof r->block, s, st, 1));
    r->shadow = sqlite3_column_int64(st, 2);
    PL_TRY(copy_text(r->map, sizeof r->map, s, st, 3));
    r->deviation = pl_sql_real(st, 4);
    return POLAR_OK;
}

static polar_status read_result(pl_store *s, selection *sel, sqlite3_stmt *st, void *row)
{
    (void)sel;
    pl_result *r = row;
    PL_TRY(copy_text(r->name, sizeof r->name, s, st, 0));
    r->value = pl_sql_real(st, 1);
    return POLAR_OK;
}

/* The run's results, in the pool of the members. */
static polar_status add_results(pl_store *s, selection *sel, pl_store_member *m)
{
    selection results = {.rows.item = sizeof(pl_result)};
    polar_status status = each_row(s, &results, "SELECT name, value FROM result WHERE run = ? ORDER BY name", m->id, read_result);
    size_t bytes = (size_t)results.rows.count * sizeof(pl_result);
    if (status == POLAR_OK && bytes) {
        m->results = pl_pool_take(&sel->pool, bytes);
        m->result_count = m->results ? results.rows.count : 0;
        if (m->results) memcpy(m->results, results.rows.data, bytes);
        else status = no_memory(s);
    }
    drop(&results);
    return status;
}

#define MEMBER_COLUMNS "r.id, r.config, r.state, r.wall, r.started, r.finished, r.code, r.device, r.cpu, r.threads, r.seed, r.data"

static polar_status read_member(pl_store *s, selection *sel, sqlite3_stmt *st, void *row)
{
    pl_store_member *m = row;
    PL_TRY(copy_text(m->id, sizeof m->id, s, st, 0));
    PL_TRY(pl_pool_text(&m->config, &sel->pool, st, 1));
    PL_TRY(read_state(&m->state, s, st, 2));
    m->wall = sqlite3_column_double(st, 3);
    PL_TRY(pl_pool_text(&m->started, &sel->pool, st, 4));
    PL_TRY(pl_pool_text(&m->finished, &sel->pool, st, 5));
    PL_TRY(pl_pool_text(&m->code, &sel->pool, st, 6));
    PL_TRY(pl_pool_text(&m->device, &sel->pool, st, 7));
    PL_TRY(pl_pool_text(&m->cpu, &sel->pool, st, 8));
    m->threads = sqlite3_column_int64(st, 9);
    m->seed = sqlite3_column_int64(st, 10);
    PL_TRY(pl_pool_text(&m->data, &sel->pool, st, 11));
    PL_TRY(pl_pool_text(&m->cell, &sel->pool, st, 12));
    PL_TRY(pl_pool_text(&m->arm, &sel->pool, st, 13));
    m->ord = sqlite3_column_int64(st, 14);
    return m->state == PL_RUN_PLANNED ? POLAR_OK : add_results(s, sel, m);
}

/* ---- the selects ------------------------------------------------------------------------------------------------------- */

/* Hands a selection's memory over, or drops it. */
#define TAKE(out, type, status, sel)                                                                        \
    do {                                                                                                    \
        if ((status) == POLAR_OK) {                                                                         \
            (out)->rows = (type *)(void *)(sel).rows.data;                                                  \
            (out)->count = (sel).rows.count;                                                                \
            (out)->own = (sel).pool;                                                                        \
        } else                                                                                              \
            drop(&(sel));                                                                                   \
        return (status);                                                                                    \
    } while (0)

polar_status pl_store_select_specs(pl_store_specs *out, pl_store *s)
{
    selection sel = {.rows.item = sizeof(pl_store_spec)};
    *out = (pl_store_specs){0};
    polar_status status = each_row(s, &sel, "SELECT name, sha, title, testbed, metric, text FROM spec ORDER BY name", NULL, read_spec);
    TAKE(out, pl_store_spec, status, sel);
}

polar_status pl_store_select_epochs(pl_store_epochs *out, pl_store *s, const char *id)
{
    selection sel = {.rows.item = sizeof(pl_epoch_row)};
    *out = (pl_store_epochs){0};
    polar_status status = each_row(s, &sel, "SELECT epoch, train_loss, valid, lr, improved, seconds FROM epoch WHERE run = ? ORDER BY epoch", id, read_epoch);
    TAKE(out, pl_epoch_row, status, sel);
}

polar_status pl_store_select_gauges(pl_store_gauges *out, pl_store *s, const char *id)
{
    selection sel = {.rows.item = sizeof(pl_gauge_row)};
    *out = (pl_store_gauges){0};
    polar_status status = each_row(s, &sel, "SELECT step, block, shadow, map, deviation FROM gauge WHERE run = ? ORDER BY step, block, shadow, map", id, read_gauge);
    TAKE(out, pl_gauge_row, status, sel);
}

static polar_status members(pl_store *s, selection *sel, const char *spec)
{
    PL_TRY(each_row(s, sel, "SELECT " MEMBER_COLUMNS ", m.cell, m.arm, m.ord FROM member m JOIN run r ON r.id = m.run WHERE m.spec = ? ORDER BY m.ord, m.cell, m.arm, m.seed",
                    spec, read_member));
    PL_NEED(sel->rows.count, POLAR_E_ARG, "the store '%s' has no runs of a spec '%s' (`polar run` plans and makes them)", pl_text_shown(s->path).text, pl_text_shown(spec).text);
    return POLAR_OK;
}

/* A select of more than one statement: all of them see the same moment. */
static polar_status snapshot_end(pl_store *s, polar_status status)
{
    pl_sql_abandon(s);
    return status;
}

polar_status pl_store_select_members(pl_store_members *out, pl_store *s, const char *spec)
{
    selection sel = {.rows.item = sizeof(pl_store_member)};
    *out = (pl_store_members){0};
    PL_TRY(pl_sql_do(s, "BEGIN", ""));
    polar_status status = snapshot_end(s, members(s, &sel, spec));
    TAKE(out, pl_store_member, status, sel);
}

static polar_status runs(pl_store *s, selection *sel, const char *const *ids, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        PL_TRY(each_row(s, sel, "SELECT " MEMBER_COLUMNS ", '', '', 0 FROM run r WHERE r.id = ?", ids[i], read_member));
        PL_NEED(sel->rows.count == i + 1, POLAR_E_ARG, "the store '%s' has no run %s", pl_text_shown(s->path).text, pl_text_shown(ids[i]).text);
        ((pl_store_member *)(void *)sel->rows.data)[i].ord = i;
    }
    return POLAR_OK;
}

polar_status pl_store_select_runs(pl_store_members *out, pl_store *s, const char *const *ids, int64_t count)
{
    selection sel = {.rows.item = sizeof(pl_store_member)};
    *out = (pl_store_members){0};
    PL_TRY(pl_sql_do(s, "BEGIN", ""));
    polar_status status = snapshot_end(s, runs(s, &sel, ids, count));
    TAKE(out, pl_store_member, status, sel);
}

polar_status pl_store_run_state(pl_store *s, const char *id, pl_run_state *state, double *wall)
{
    sqlite3_stmt *st = NULL;
    int row = 0;
    PL_TRY(pl_sql_prepare(&st, s, "SELECT state, wall FROM run WHERE id = ?"));
    polar_status status = pl_sql_bind(s, st, "t", id);
    if (status == POLAR_OK) status = pl_sql_next(s, st, &row);
    if (status == POLAR_OK && !row) status = PL_FAIL(POLAR_E_ARG, "the store '%s' has no run %s", pl_text_shown(s->path).text, pl_text_shown(id).text);
    if (status == POLAR_OK) status = read_state(state, s, st, 0);
    if (status == POLAR_OK && wall) *wall = sqlite3_column_double(st, 1);
    sqlite3_finalize(st);
    return status;
}

#define DATA_NAME(x) "substr(" x ", 1, length(" x ") - 64)"

polar_status pl_store_other_data(char id[PL_RUN_ID_CHARS], pl_store *s, const char *data)
{
    sqlite3_stmt *st = NULL;
    int row = 0;
    *id = 0;
    PL_TRY(pl_sql_prepare(&st, s, "SELECT id FROM run WHERE state <> 'planned' AND data <> ?1 AND " DATA_NAME("data") " = " DATA_NAME("?1") " ORDER BY id LIMIT 1"));
    polar_status status = pl_sql_bind(s, st, "t", data);
    if (status == POLAR_OK) status = pl_sql_next(s, st, &row);
    if (status == POLAR_OK && row) status = copy_text(id, PL_RUN_ID_CHARS, s, st, 0);
    sqlite3_finalize(st);
    return status;
}

#define FREE_ROWS(x)           \
    do {                       \
        pl_free((x)->rows);    \
        pl_pool_free((x)->own); \
        (x)->rows = NULL;      \
        (x)->own = NULL;       \
        (x)->count = 0;        \
    } while (0)

void pl_store_specs_free(pl_store_specs *x)     { FREE_ROWS(x); }
void pl_store_members_free(pl_store_members *x) { FREE_ROWS(x); }
void pl_store_epochs_free(pl_store_epochs *x)   { FREE_ROWS(x); }
void pl_store_gauges_free(pl_store_gauges *x)   { FREE_ROWS(x); }

const double *pl_store_result(const pl_store_member *m, const char *name)
{
    for (int64_t i = 0; i < m->result_count; i++)
        if (!strcmp(m->results[i].name, name)) return &m->results[i].value;
    return NULL;
}
