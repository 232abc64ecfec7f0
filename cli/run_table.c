/* run_table.c -- see run_table.h. */
#include "run_table.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "sound_store.h"

typedef struct run_table {
    FILE *out;
    pl_table_format format;
    pl_store *store;
    int several, named; /* plans; rows say whose they are, in one table */
    pl_table *t;
    pl_table_column columns[13]; /* the table's, which borrows them */
    char title[512];
} run_table;

/* ---- sums --------------------------------------------------------------------------------------- */

typedef struct cell_sum {
    /* values: of done, those with a finite number (l10 has none before ten epochs) */
    int64_t runs, done, diverged, values;
    int64_t timed; /* of done, those whose seconds are known: imported tables may have none */
    double sum, squares, min, max, epochs, wall; /* squares: of the differences from the mean */
} cell_sum;

/* All of them in two passes over the plan: sums first, then the squares of what differs from the mean. */
static void sum_cells(cell_sum *sums, const pl_plan *plan, const pl_store_members *m, const char *metric)
{
    for (int i = 0; i < plan->cell_count * plan->spec->arm_count; i++)
        sums[i] = (cell_sum){.min = INFINITY, .max = -INFINITY};
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < plan->count; i++) {
            cell_sum *s = &sums[plan->runs[i].cell_index * plan->spec->arm_count + plan->runs[i].arm_index];
            const pl_store_member *r = &m->rows[i];
            const double *value = pl_store_result(r, metric), *epochs = pl_store_result(r, "epochs");
            int finite = value && isfinite(*value);
            if (pass) {
                double d = finite ? *value - s->sum / (double)s->values : 0;
                s->squares += d * d;
                continue;
            }
            s->runs++;
            s->diverged += r->state == PL_RUN_DIVERGED;
            if (!value) continue;
            s->done++;
            s->epochs += epochs ? *epochs : (double)NAN;
            s->timed += r->wall > 0;
            s->wall += r->wall;
            if (!finite) continue;
            s->values++;
            s->sum += *value;
            s->min = fmin(s->min, *value);
            s->max = fmax(s->max, *value);
        }
}

/* ---- a plan ------------------------------------------------------------------------------------- */

static polar_status begin(run_table *r, const pl_spec *spec)
{
    int percent = pl_schema_metric(&spec->schema, spec->metric).percent, n = r->named ? 2 : 0;
    pl_cell_style style = percent ? PL_CELL_FIXED : PL_CELL_SCI;
    const char *metric = r->named ? NULL : spec->metric;
    const pl_table_column whose[] = {
        {"spec", "spec", NULL, PL_CELL_TEXT, 0},
        {"metric", "metric", NULL, PL_CELL_TEXT, 0},
    };
    const pl_table_column columns[] = {
        {"cell", "cell", NULL, PL_CELL_TEXT, 0},
        {"arm", "arm", NULL, PL_CELL_TEXT, 0},
        {"runs", "runs", NULL, PL_CELL_INTEGER, 0},
        {"done", "done", NULL, PL_CELL_INTEGER, 0},
        {"diverged", "diverged", NULL, PL_CELL_INTEGER, 0},
        {"mean", "mean", metric, style, percent ? 2 : 4},
        {"sd", "sd", metric, style, percent ? 2 : 1},
        {"min", "min", metric, style, percent ? 2 : 3},
        {"max", "max", metric, style, percent ? 2 : 3},
        {"epochs", "epochs", "mean", PL_CELL_FIXED, 1},
        {"wall", "seconds", "mean", PL_CELL_FIXED, 2},
    };
    if (r->t) return POLAR_OK;
    memcpy(r->columns, whose, sizeof whose);
    memcpy(r->columns + n, columns, sizeof columns);
    if (r->several && !r->named) snprintf(r->title, sizeof r->title, "%s: %s", spec->name, spec->title);
    else snprintf(r->title, sizeof r->title, "%s", spec->title);
    return pl_table_create(&r->t, r->title, r->columns, n + 11);
}

static polar_status end(run_table *r)
{
    polar_status st = pl_table_print(r->t, r->out, r->format);
    pl_table_destroy(r->t);
    r->t = NULL;
    return st;
}

static void number_or_none(pl_table *t, int there, double x)
{
    if (there) pl_table_number(t, x);
    else pl_table_none(t);
}

static void add_row(run_table *r, const pl_plan *plan, int cell, int arm, cell_sum s)
{
    pl_table *t = r->t;
    pl_table_row(t);
    if (r->named) {
        pl_table_text(t, plan->spec->name);
        pl_table_text(t, plan->spec->metric);
    }
    pl_table_text(t, plan->cells[cell]);
    pl_table_text(t, plan->spec->arms[arm].name);
    pl_table_integer(t, s.runs);
    pl_table_integer(t, s.done);
    pl_table_integer(t, s.diverged);
    number_or_none(t, s.values > 0, s.sum / (double)s.values);
    number_or_none(t, s.values > 1, sqrt(s.squares / (double)(s.values - 1)));
    number_or_none(t, s.values > 0, s.min);
    number_or_none(t, s.values > 0, s.max);
    number_or_none(t, s.done > 0, s.epochs / (double)s.done);
    number_or_none(t, s.timed > 0, s.wall / (double)s.timed);
}

static polar_status add_rows(run_table *r, const pl_plan *plan, const pl_store_members *m)
{
    int arms = plan->spec->arm_count, n = plan->cell_count * arms;
    cell_sum *sums = pl_calloc((size_t)n, sizeof *sums);
    PL_NEED(sums, POLAR_E_NOMEM, "a table of %d cells", plan->cell_count);
    polar_status st = begin(r, plan->spec);
    if (st == POLAR_OK) sum_cells(sums, plan, m, plan->spec->metric);
    for (int i = 0; st == POLAR_OK && i < n; i++) add_row(r, plan, i / arms, i % arms, sums[i]);
    pl_free(sums);
    return st == POLAR_OK && !r->named ? end(r) : st;
}

static polar_status add_plan(run_table *r, const pl_plan *plan)
{
    pl_store_members m = {0};
    const char **ids = pl_calloc((size_t)plan->count, sizeof *ids);
    PL_NEED(ids, POLAR_E_NOMEM, "a table of %lld runs", (long long)plan->count);
    for (int64_t i = 0; i < plan->count; i++) ids[i] = plan->runs[i].id;
    polar_status st = pl_store_select_runs(&m, r->store, ids, plan->count);
    if (st == POLAR_OK) st = add_rows(r, plan, &m);
    pl_store_members_free(&m);
    pl_free(ids);
    return st;
}

polar_status run_table_print(const cli_context *ctx, pl_table_format format, const char *store,
                             pl_plan *const *plans, int count)
{
    int machine = format == PL_TABLE_CSV || format == PL_TABLE_JSON;
    run_table r = {.out = ctx->out, .format = format, .several = count > 1, .named = count > 1 && machine};
    PL_TRY(sound_store_open(&r.store, ctx, store));
    polar_status st = POLAR_OK;
    for (int k = 0; k < count && st == POLAR_OK; k++) {
        if (k && !r.named) fputc('\n', ctx->out);
        st = add_plan(&r, plans[k]);
    }
    if (st == POLAR_OK && r.named) st = end(&r);
    pl_table_destroy(r.t);
    pl_store_close(r.store);
    return st;
}
