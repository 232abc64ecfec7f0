/* store_select.c -- everything that reads a store: rows in arrays that the caller owns. What one call gives
 * is of one moment; a row that polar could not have written is an error. A run that was set aside
 * (store_damage.c) is as if it had never been begun. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json_read.h"
#include "store/store_impl.h"

static const char *const state_names[] = {"planned", "done", "diverged"};

const char *pl_run_state_name(pl_run_state state)
{
    return state_names[state];
}

static polar_status no_memory(pl_store *s)
{
    return PL_FAIL(POLAR_E_NOMEM, "rows of the store '%s'", pl_text_shown(s->path).text);
}

/* What a column may hold: as much as the writers put, and no more. */
static const pl_text_rule spec_name = {"the name of a spec", PL_TEXT_WORD, 63, 0},
                          spec_sha = {"the hash of a spec", PL_TEXT_LINE, 64, 0},
                          spec_title = {"the title of a spec", PL_TEXT_LINE, 400, 0},
                          spec_bed = {"the testbed of a spec or run", PL_TEXT_WORD, 63, 0},
                          spec_metric = {"the metric of a spec", PL_TEXT_WORD, 63, 0},
                          spec_text = {"the text of a spec", PL_TEXT_LINES, 1 << 19, 0},
                          run_id = {"the id of a run", PL_TEXT_ID, PL_RUN_ID_CHARS - 1, 0},
                          run_config = {"the configuration of a run", PL_TEXT_LINE, 1 << 16, 0},
                          run_state = {"the state of a run", PL_TEXT_WORD, 15, 0},
                          run_clock = {"a time of a run", PL_TEXT_LINE, 40, 1},
                          run_origin = {"the origin of a run", PL_TEXT_LINE, 1000, 1},
                          result_name = {"the name of a result", PL_TEXT_WORD, 31, 0},
                          gauge_block = {"the block of a gauge row", PL_TEXT_LINE, 63, 0},
                          gauge_map = {"the map of a gauge row", PL_TEXT_LINE, 23, 0};

const pl_text_rule pl_rule_cell = {"a cell", PL_TEXT_LINE, 4096, 0},
                   pl_rule_arm = {"an arm", PL_TEXT_LINE, 200, 0};

static polar_status read_state(pl_run_state *out, pl_store *s, sqlite3_stmt *st, int column)
{
    char word[16];
    PL_TRY(pl_read_chars(word, sizeof word, s, st, column, &run_state));
    for (*out = PL_RUN_PLANNED; *out <= PL_RUN_DIVERGED; ++*out)
        if (!strcmp(word, state_names[*out])) return POLAR_OK;
    return PL_FAIL(POLAR_E_FORMAT,
                   "the store '%s': a run has the state '%s', which polar never writes: the file was changed "
                   "or is damaged",
                   pl_text_shown(s->path).text, word);
}

/* ---- one row at a time -------------------------------------------------------------------------- */

typedef struct selection {
    pl_grow rows;
    pl_pool *pool;
} selection;

typedef polar_status (*read_row)(pl_store *s, selection *sel, sqlite3_stmt *st, void *row);

/* Every row of `sql` (its one text argument, if it has one, is `key`). */
static polar_status each_row(pl_store *s, selection *sel, const char *sql, const char *key, read_row read)
{
    sqlite3_stmt *st = NULL;
    int row = 0;
    PL_TRY(pl_sql_hold(&st, s, sql));
    polar_status status = key ? pl_sql_bind(s, st, "t", key) : POLAR_OK;
    while (status == POLAR_OK && (status = pl_sql_next(s, st, &row)) == POLAR_OK && row) {
        void *item = pl_grow_add(&sel->rows);
        status = item ? read(s, sel, st, item) : no_memory(s);
    }
    pl_sql_release(st);
    return status;
}

static void drop(selection *sel)
{
    pl_free(sel->rows.data);
    pl_pool_free(sel->pool);
}

static polar_status read_spec_texts(pl_store *s, selection *sel, sqlite3_stmt *st, pl_store_spec *r)
{
    PL_TRY(pl_read_text(&r->name, &sel->pool, s, st, 0, &spec_name));
    PL_TRY(pl_read_text(&r->sha, &sel->pool, s, st, 1, &spec_sha));
    PL_TRY(pl_read_text(&r->title, &sel->pool, s, st, 2, &spec_title));
    PL_TRY(pl_read_text(&r->testbed, &sel->pool, s, st, 3, &spec_bed));
    PL_TRY(pl_read_text(&r->metric, &sel->pool, s, st, 4, &spec_metric));
    return pl_read_text(&r->text, &sel->pool, s, st, 5, &spec_text);
}

/* One that cannot be read does not hide the others: it has a reason instead of texts. */
static polar_status read_spec(pl_store *s, selection *sel, sqlite3_stmt *st, void *row)
{
    pl_store_spec *r = row;
    polar_status status = read_spec_texts(s, sel, st, r);
    if (status != POLAR_E_FORMAT) return status;
    const char *name = r->name ? r->name : "?";
    *r = (pl_store_spec){.name = name, .sha = "", .title = "", .testbed = "", .metric = "", .text = ""};
    return pl_pool_copy(&r->bad, &sel->pool, polar_error_message());
}

static polar_status read_epoch(pl_store *s, selection *sel, sqlite3_stmt *st, void *row)
{
    (void)sel;
    pl_epoch_row *r = row;
    int64_t improved = 0;
    PL_TRY(pl_read_integer(&r->epoch, s, st, 0, "an epoch's number", 1, INT32_MAX));
    PL_TRY(pl_read_real(&r->train_loss, s, st, 1, "an epoch's loss"));
    PL_TRY(pl_read_real(&r->valid, s, st, 2, "an epoch's validation"));
    PL_TRY(pl_read_real(&r->lr, s, st, 3, "an epoch's learning rate"));
    PL_TRY(pl_read_integer(&improved, s, st, 4, "an epoch's mark of improvement", 0, 1));
    r->improved = (int)improved;
    return pl_read_real(&r->seconds, s, st, 5, "an epoch's time");
}

static polar_status read_gauge(pl_store *s, selection *sel, sqlite3_stmt *st, void *row)
{
    (void)sel;
    pl_gauge_row *r = row;
    PL_TRY(pl_read_integer(&r->step, s, st, 0, "the step of a gauge row", 1, INT64_MAX));
    PL_TRY(pl_read_chars(r->block, sizeof r->block, s, st, 1, &gauge_block));
    PL_TRY(pl_read_integer(&r->shadow, s, st, 2, "the shadow of a gauge row", 0, INT32_MAX));
    PL_TRY(pl_read_chars(r->map, sizeof r->map, s, st, 3, &gauge_map));
    return pl_read_real(&r->deviation, s, st, 4, "the deviation of a gauge row");
}

static polar_status read_result(pl_store *s, selection *sel, sqlite3_stmt *st, void *row)
{
    (void)sel;
    pl_result *r = row;
    PL_TRY(pl_read_chars(r->name, sizeof r->name, s, st, 0, &result_name));
    return pl_read_real(&r->value, s, st, 1, "a result");
}

/* The run's results, in the pool of the members. */
static polar_status add_results(pl_store *s, selection *sel, pl_store_member *m)
{
    selection results = {.rows.item = sizeof(pl_result)};
    polar_status status = each_row(s, &results, "SELECT name, value FROM result WHERE run = ? ORDER BY name",
                                   m->id, read_result);
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

#define MEMBER_COLUMNS                                                                                       \
    "r.id, (SELECT json FROM config WHERE key = r.config), r.state, r.wall, r.started, r.finished, r.code, " \
    "r.device, r.cpu, r.threads, r.seed, r.data, r.testbed"

static polar_status read_member(pl_store *s, selection *sel, sqlite3_stmt *st, void *row)
{
    pl_store_member *m = row;
    PL_TRY(pl_read_chars(m->id, sizeof m->id, s, st, 0, &run_id));
    PL_TRY(pl_read_text(&m->config, &sel->pool, s, st, 1, &run_config));
    PL_TRY(read_state(&m->state, s, st, 2));
    PL_TRY(pl_read_real(&m->wall, s, st, 3, "a run's seconds"));
    PL_TRY(pl_read_text(&m->started, &sel->pool, s, st, 4, &run_clock));
    PL_TRY(pl_read_text(&m->finished, &sel->pool, s, st, 5, &run_clock));
    PL_TRY(pl_read_text(&m->code, &sel->pool, s, st, 6, &run_origin));
    PL_TRY(pl_read_text(&m->device, &sel->pool, s, st, 7, &run_origin));
    PL_TRY(pl_read_text(&m->cpu, &sel->pool, s, st, 8, &run_origin));
    if (sqlite3_column_type(st, 9) != SQLITE_NULL)
        PL_TRY(pl_read_integer(&m->threads, s, st, 9, "a run's number of threads", 0, INT32_MAX));
    PL_TRY(pl_read_integer(&m->seed, s, st, 10, "a run's seed", INT64_MIN, INT64_MAX));
    PL_TRY(pl_read_text(&m->data, &sel->pool, s, st, 11, &run_origin));
    PL_TRY(pl_read_text(&m->testbed, &sel->pool, s, st, 12, &spec_bed));
    PL_TRY(pl_read_text(&m->cell, &sel->pool, s, st, 13, &pl_rule_cell));
    PL_TRY(pl_read_text(&m->arm, &sel->pool, s, st, 14, &pl_rule_arm));
    PL_TRY(pl_read_integer(&m->ord, s, st, 15, "a run's place in the plan", 0, INT64_MAX));
    if (pl_store_damage_of(s, m->id)) {
        m->state = PL_RUN_PLANNED;
        m->wall = 0;
        m->started = m->finished = NULL;
    }
    return m->state == PL_RUN_PLANNED ? POLAR_OK : add_results(s, sel, m);
}

/* ---- the selects -------------------------------------------------------------------------------- */

/* Hands a selection's memory over, or drops it. */
#define TAKE(out, type, status, sel)                       \
    do {                                                   \
        if ((status) == POLAR_OK) {                        \
            (out)->rows = (type *)(void *)(sel).rows.data; \
            (out)->count = (sel).rows.count;               \
            (out)->own = (sel).pool;                       \
        } else drop(&(sel));                               \
        return (status);                                   \
    } while (0)

polar_status pl_store_select_specs(pl_store_specs *out, pl_store *s)
{
    selection sel = {.rows.item = sizeof(pl_store_spec)};
    *out = (pl_store_specs){0};
    polar_status status = each_row(
        s, &sel, "SELECT name, sha, title, testbed, metric, text FROM spec ORDER BY name", NULL, read_spec);
    TAKE(out, pl_store_spec, status, sel);
}

polar_status pl_store_select_epochs(pl_store_epochs *out, pl_store *s, const char *id)
{
    selection sel = {.rows.item = sizeof(pl_epoch_row)};
    *out = (pl_store_epochs){0};
    if (pl_store_damage_of(s, id)) return POLAR_OK;
    polar_status status = each_row(
        s, &sel,
        "SELECT epoch, train_loss, valid, lr, improved, seconds FROM epoch WHERE run = ? ORDER BY epoch", id,
        read_epoch);
    TAKE(out, pl_epoch_row, status, sel);
}

polar_status pl_store_select_gauges(pl_store_gauges *out, pl_store *s, const char *id)
{
    selection sel = {.rows.item = sizeof(pl_gauge_row)};
    *out = (pl_store_gauges){0};
    if (pl_store_damage_of(s, id)) return POLAR_OK;
    polar_status status = each_row(s, &sel,
                                   "SELECT step, block, shadow, map, deviation FROM gauge WHERE run = ? "
                                   "ORDER BY step, block, shadow, map",
                                   id, read_gauge);
    TAKE(out, pl_gauge_row, status, sel);
}

static polar_status members(pl_store *s, selection *sel, const char *spec)
{
    PL_TRY(each_row(s, sel,
                    "SELECT " MEMBER_COLUMNS ", m.cell, m.arm, m.ord FROM member m JOIN run r ON r.id = "
                    "m.run WHERE m.spec = ? ORDER BY m.ord, m.cell, m.arm, m.seed",
                    spec, read_member));
    PL_NEED(sel->rows.count, POLAR_E_ARG,
            "the store '%s' has no runs of a spec '%s' (`polar run` plans and makes them)",
            pl_text_shown(s->path).text, pl_text_shown(spec).text);
    return POLAR_OK;
}

/* A select of more than one statement: all of them see the same moment, which is the caller's where he has
 * begun one. */
static polar_status snapshot_begin(pl_store *s, int *ours)
{
    *ours = sqlite3_get_autocommit(s->db);
    return *ours ? pl_sql_do(s, "BEGIN", "") : POLAR_OK;
}

static polar_status snapshot_end(pl_store *s, int ours, polar_status status)
{
    if (ours) pl_sql_abandon(s);
    return status;
}

polar_status pl_store_select_members(pl_store_members *out, pl_store *s, const char *spec)
{
    selection sel = {.rows.item = sizeof(pl_store_member)};
    int ours = 0;
    *out = (pl_store_members){0};
    PL_TRY(snapshot_begin(s, &ours));
    polar_status status = snapshot_end(s, ours, members(s, &sel, spec));
    TAKE(out, pl_store_member, status, sel);
}

static polar_status runs(pl_store *s, selection *sel, const char *const *ids, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        PL_TRY(each_row(s, sel, "SELECT " MEMBER_COLUMNS ", '', '', 0 FROM run r WHERE r.id = ?", ids[i],
                        read_member));
        PL_NEED(sel->rows.count == i + 1, POLAR_E_ARG, "the store '%s' has no run %s",
                pl_text_shown(s->path).text, pl_text_shown(ids[i]).text);
        ((pl_store_member *)(void *)sel->rows.data)[i].ord = i;
    }
    return POLAR_OK;
}

polar_status pl_store_select_runs(pl_store_members *out, pl_store *s, const char *const *ids, int64_t count)
{
    selection sel = {.rows.item = sizeof(pl_store_member)};
    int ours = 0;
    *out = (pl_store_members){0};
    PL_TRY(snapshot_begin(s, &ours));
    polar_status status = snapshot_end(s, ours, runs(s, &sel, ids, count));
    TAKE(out, pl_store_member, status, sel);
}

polar_status pl_store_select_all(pl_store_members *out, pl_store *s)
{
    selection sel = {.rows.item = sizeof(pl_store_member)};
    int ours = 0;
    *out = (pl_store_members){0};
    PL_TRY(snapshot_begin(s, &ours));
    polar_status status =
        snapshot_end(s, ours,
                     each_row(s, &sel, "SELECT " MEMBER_COLUMNS ", '', '', 0 FROM run r ORDER BY r.id", NULL,
                              read_member));
    TAKE(out, pl_store_member, status, sel);
}

polar_status pl_store_run_state(pl_store *s, const char *id, pl_run_state *state, double *wall)
{
    sqlite3_stmt *st = NULL;
    int row = 0;
    PL_TRY(pl_sql_hold(&st, s, "SELECT state, wall FROM run WHERE id = ?"));
    polar_status status = pl_sql_bind(s, st, "t", id);
    if (status == POLAR_OK) status = pl_sql_next(s, st, &row);
    if (status == POLAR_OK && !row)
        status = PL_FAIL(POLAR_E_ARG, "the store '%s' has no run %s", pl_text_shown(s->path).text,
                         pl_text_shown(id).text);
    if (status == POLAR_OK) status = read_state(state, s, st, 0);
    if (status == POLAR_OK && wall) status = pl_read_real(wall, s, st, 1, "a run's seconds");
    if (status == POLAR_OK && pl_store_damage_of(s, id)) {
        *state = PL_RUN_PLANNED;
        if (wall) *wall = 0;
    }
    pl_sql_release(st);
    return status;
}

#define DATA_NAME(x) "substr(" x ", 1, length(" x ") - 64)"

polar_status pl_store_other_data(char id[PL_RUN_ID_CHARS], pl_store *s, const char *data)
{
    sqlite3_stmt *st = NULL;
    int row = 0;
    *id = 0;
    PL_TRY(pl_sql_prepare(&st, s,
                          "SELECT id FROM run WHERE state <> 'planned' AND data <> ?1 AND " DATA_NAME(
                              "data") " = " DATA_NAME("?1") " ORDER BY id LIMIT 1"));
    polar_status status = pl_sql_bind(s, st, "t", data);
    if (status == POLAR_OK) status = pl_sql_next(s, st, &row);
    if (status == POLAR_OK && row) status = pl_read_chars(id, PL_RUN_ID_CHARS, s, st, 0, &run_id);
    sqlite3_finalize(st);
    return status;
}

#define FREE_ROWS(x)            \
    do {                        \
        pl_free((x)->rows);     \
        pl_pool_free((x)->own); \
        (x)->rows = NULL;       \
        (x)->own = NULL;        \
        (x)->count = 0;         \
    } while (0)

void pl_store_specs_free(pl_store_specs *x)
{
    FREE_ROWS(x);
}
void pl_store_members_free(pl_store_members *x)
{
    FREE_ROWS(x);
}
void pl_store_epochs_free(pl_store_epochs *x)
{
    FREE_ROWS(x);
}
void pl_store_gauges_free(pl_store_gauges *x)
{
    FREE_ROWS(x);
}

const double *pl_store_result(const pl_store_member *m, const char *name)
{
    for (int64_t i = 0; i < m->result_count; i++)
        if (!strcmp(m->results[i].name, name)) return &m->results[i].value;
    return NULL;
}

int pl_store_is_imported(const pl_store_member *m)
{
    return m->state != PL_RUN_PLANNED && !m->finished;
}
