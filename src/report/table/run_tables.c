/* run_tables.c -- see run_tables.h. Results have a column each, in the order of their names; a run without
 * one leaves it empty. Lines by cell, seed, arm, as in the audit. */
#include "report/table/run_tables.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "report/table/table.h"

#define MOST_RESULTS 64
#define MOST_MAPS    16

/* ---- runs ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The names of all results, each once, sorted; borrowed from the part. */
static int result_names(const char **out, const pl_section *p)
{
    int n = 0;
    for (int64_t i = 0; i < p->members.count; i++)
        for (int64_t j = 0; j < p->members.rows[i].result_count; j++) {
            const char *name = p->members.rows[i].results[j].name;
            int known = 0;
            while (known < n && strcmp(out[known], name)) known++;
            if (known == n && n < MOST_RESULTS) out[n++] = name;
        }
    qsort(out, (size_t)n, sizeof *out, by_name);
    return n;
}

static void text_or_none(pl_table *t, const char *text)
{
    if (text) pl_table_text(t, text);
    else pl_table_none(t);
}

/* Whether a run says what it was trained on beside its id: pictures do. */
static int has_data(const pl_section *p)
{
    for (int64_t i = 0; i < p->members.count; i++)
        if (p->members.rows[i].data) return 1;
    return 0;
}

static void add_run(pl_table *t, const pl_store_member *m, const char *const *names, int count, int data)
{
    pl_table_row(t);
    pl_table_text(t, m->cell);
    pl_table_text(t, m->arm);
    pl_table_integer(t, m->seed);
    pl_table_text(t, pl_run_state_name(m->state));
    for (int i = 0; i < count; i++) {
        const double *value = pl_store_result(m, names[i]);
        if (value) pl_table_number(t, *value);
        else pl_table_none(t);
    }
    pl_table_number(t, m->wall);
    text_or_none(t, m->code);
    text_or_none(t, m->device);
    if (data) text_or_none(t, m->data);
    pl_table_text(t, m->id);
}

polar_status pl_section_runs_csv(const pl_section *p, FILE *f)
{
    static const pl_table_column first[] = {{"cell", "cell", NULL, PL_CELL_TEXT, 0},
                                            {"arm", "arm", NULL, PL_CELL_TEXT, 0},
                                            {"seed", "seed", NULL, PL_CELL_INTEGER, 0},
                                            {"state", "state", NULL, PL_CELL_TEXT, 0}};
    static const pl_table_column last[] = {{"wall", "wall", NULL, PL_CELL_FIXED, 3},
                                           {"code", "code", NULL, PL_CELL_TEXT, 0},
                                           {"device", "device", NULL, PL_CELL_TEXT, 0},
                                           {"data", "data", NULL, PL_CELL_TEXT, 0},
                                           {"id", "id", NULL, PL_CELL_TEXT, 0}};
    const char *names[MOST_RESULTS];
    pl_table_column columns[MOST_RESULTS + 9];
    pl_table *t;
    int count = result_names(names, p), data = has_data(p), n = 0;
    for (int i = 0; i < 4; i++) columns[n++] = first[i];
    for (int i = 0; i < count; i++)
        columns[n++] = (pl_table_column){names[i], names[i], NULL, PL_CELL_SCI, 8};
    for (int i = 0; i < 5; i++)
        if (data || strcmp(last[i].key, "data")) columns[n++] = last[i];
    PL_TRY(pl_table_create(&t, NULL, columns, n));
    const pl_audit *a = p->audit;
    for (int64_t i = 0; i < a->cell_count * a->seed_count * a->arm_count; i++)
        if (a->runs[i]) add_run(t, a->runs[i]->run, names, count, data);
    polar_status st = pl_table_print(t, f, PL_TABLE_CSV);
    pl_table_destroy(t);
    return st;
}

/* ---- epochs ---- */

static void add_epochs(pl_table *t, const pl_store_member *m, const pl_store_epochs *e)
{
    for (int64_t i = 0; i < e->count; i++) {
        const pl_epoch_row *row = &e->rows[i];
        const double numbers[] = {row->train_loss, row->valid, row->lr, row->seconds};
        pl_table_row(t);
        pl_table_text(t, m->cell);
        pl_table_text(t, m->arm);
        pl_table_integer(t, m->seed);
        pl_table_integer(t, row->epoch);
        for (int k = 0; k < 4; k++) pl_table_maybe(t, numbers[k]);
    }
}

polar_status pl_section_epochs_csv(const pl_section *p, FILE *f)
{
    static const pl_table_column columns[] = {
        {"cell", "cell", NULL, PL_CELL_TEXT, 0},
        {"arm", "arm", NULL, PL_CELL_TEXT, 0},
        {"seed", "seed", NULL, PL_CELL_INTEGER, 0},
        {"epoch", "epoch", NULL, PL_CELL_INTEGER, 0},
        {"train_loss", "train_loss", NULL, PL_CELL_SCI, 8},
        {"valid", "valid", NULL, PL_CELL_SCI, 8},
        {"lr", "lr", NULL, PL_CELL_SCI, 8},
        {"seconds", "seconds", NULL, PL_CELL_FIXED, 3},
    };
    pl_table *t;
    PL_TRY(pl_table_create(&t, NULL, columns, (int)(sizeof columns / sizeof *columns)));
    const pl_audit *a = p->audit;
    for (int64_t i = 0; i < a->cell_count * a->seed_count * a->arm_count; i++)
        if (p->epochs[i].count) add_epochs(t, a->runs[i]->run, &p->epochs[i]);
    polar_status st = pl_table_print(t, f, PL_TABLE_CSV);
    pl_table_destroy(t);
    return st;
}

/* ---- the gauge shadow ---- */

polar_status pl_section_has_gauge(const pl_section *p, pl_store *s, int *has)
{
    char maps[MOST_MAPS][24];
    *has = 0;
    for (int64_t c = 0; c < p->audit->cell_count && !*has; c++)
        PL_TRY(pl_section_gauge_maps(maps, has, MOST_MAPS, s, p, c));
    return POLAR_OK;
}

static polar_status add_curve(pl_table *t, const pl_section *p, pl_store *s, int64_t cell, int64_t arm,
                              const char *map)
{
    pl_curve curve = {0};
    polar_status st = pl_section_gauge(&curve, s, p, cell, arm, map);
    for (int64_t i = 0; st == POLAR_OK && i < curve.count; i++) {
        pl_table_row(t);
        pl_table_text(t, p->audit->cells[cell]);
        pl_table_text(t, p->audit->arms[arm]);
        pl_table_text(t, map);
        pl_table_integer(t, (int64_t)curve.x[i]);
        pl_table_integer(t, curve.runs);
        pl_table_integer(t, curve.n[i]);
        pl_table_number(t, curve.mean[i]);
        pl_table_number(t, curve.min[i]);
        pl_table_number(t, curve.max[i]);
    }
    pl_curve_free(&curve);
    return st;
}

static polar_status add_cell(pl_table *t, const pl_section *p, pl_store *s, int64_t cell)
{
    char maps[MOST_MAPS][24];
    int count = 0;
    PL_TRY(pl_section_gauge_maps(maps, &count, MOST_MAPS, s, p, cell));
    for (int64_t arm = 0; arm < p->audit->arm_count; arm++)
        for (int k = 0; k < count; k++) PL_TRY(add_curve(t, p, s, cell, arm, maps[k]));
    return POLAR_OK;
}

polar_status pl_section_gauge_csv(const pl_section *p, pl_store *s, FILE *f)
{
    static const pl_table_column columns[] = {
        {"cell", "cell", NULL, PL_CELL_TEXT, 0},    {"arm", "arm", NULL, PL_CELL_TEXT, 0},
        {"map", "map", NULL, PL_CELL_TEXT, 0},      {"step", "step", NULL, PL_CELL_INTEGER, 0},
        {"runs", "runs", NULL, PL_CELL_INTEGER, 0}, {"n", "n", NULL, PL_CELL_INTEGER, 0},
        {"mean", "mean", NULL, PL_CELL_SCI, 3},     {"min", "min", NULL, PL_CELL_SCI, 3},
        {"max", "max", NULL, PL_CELL_SCI, 3},
    };
    pl_table *t;
    PL_TRY(pl_table_create(&t, NULL, columns, (int)(sizeof columns / sizeof *columns)));
    polar_status st = POLAR_OK;
    for (int64_t c = 0; st == POLAR_OK && c < p->audit->cell_count; c++) st = add_cell(t, p, s, c);
    if (st == POLAR_OK) st = pl_table_print(t, f, PL_TABLE_CSV);
    pl_table_destroy(t);
    return st;
}
