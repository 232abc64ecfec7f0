/* spectrum_table.c -- see spectrum_table.h. A run's rows of one spectrum come by step, block and number
 * (pl_store_select_gauges), so that every spectrum is a stretch of them. */
#include "report/table/spectrum_table.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "report/table/table.h"

#define ABOVE 0x1p-8 /* what bf16 tells from the largest */

enum { SECOND, THIRD, MIDDLE, LAST, RATIOS };

typedef struct {
    int64_t step, runs, values;
    char block[64];
    double above, stable, log_ratio[RATIOS]; /* sums over runs */
} spectrum;

typedef struct {
    spectrum *rows;
    int64_t count, room;
} spectra;

static polar_status find(spectrum **out, spectra *a, const pl_gauge_row *r)
{
    for (int64_t i = 0; i < a->count; i++)
        if (a->rows[i].step == r->step && !strcmp(a->rows[i].block, r->block)) {
            *out = &a->rows[i];
            return POLAR_OK;
        }
    if (a->count == a->room) {
        int64_t room = 2 * a->room + 64;
        spectrum *rows = pl_realloc(a->rows, (size_t)a->room * sizeof *rows, (size_t)room * sizeof *rows);
        PL_NEED(rows, POLAR_E_NOMEM, "%lld spectra", (long long)room);
        a->rows = rows;
        a->room = room;
    }
    *out = &a->rows[a->count++];
    **out = (spectrum){.step = r->step};
    memcpy((*out)->block, r->block, sizeof r->block);
    return POLAR_OK;
}

/* One spectrum of one run: n values, falling. */
static polar_status add_spectrum(spectra *a, const pl_gauge_row *const *r, int64_t n)
{
    const int64_t which[RATIOS] = {1, 2, n / 2, n - 1};
    double first = r[0]->deviation;
    spectrum *s = NULL;
    PL_TRY(find(&s, a, r[0]));
    s->runs++;
    s->values = n;
    for (int64_t i = 0; i < n; i++) {
        double ratio = r[i]->deviation / first;
        s->above += !(ratio <= ABOVE); /* NaN counts, and shows in the stable rank */
        s->stable += ratio * ratio;
    }
    for (int k = 0; k < RATIOS; k++)
        s->log_ratio[k] += which[k] < n ? log(r[which[k]]->deviation / first) : NAN;
    return POLAR_OK;
}

static polar_status add_run(spectra *a, const pl_store_gauges *g, const char *map)
{
    const pl_gauge_row **one = pl_alloc((size_t)(g->count + 1) * sizeof *one);
    PL_NEED(one, POLAR_E_NOMEM, "%lld gauge rows", (long long)g->count);
    polar_status st = POLAR_OK;
    int64_t n = 0;
    for (int64_t i = 0; i < g->count && st == POLAR_OK; i++) {
        const pl_gauge_row *r = &g->rows[i];
        if (strcmp(r->map, map)) continue;
        if (n && (r->step != one[0]->step || strcmp(r->block, one[0]->block))) {
            st = add_spectrum(a, one, n);
            n = 0;
        }
        one[n++] = r;
    }
    if (n && st == POLAR_OK) st = add_spectrum(a, one, n);
    pl_free(one);
    return st;
}

/* The spectra of an arm's finished runs. */
static polar_status gather(spectra *a, const pl_section *p, pl_store *s, int64_t cell, int64_t arm,
                           const char *map)
{
    polar_status st = POLAR_OK;
    for (int64_t k = 0; k < p->audit->seed_count && st == POLAR_OK; k++) {
        const pl_audit_run *r = pl_section_run(p, cell, k, arm);
        pl_store_gauges rows = {0};
        if (!r || !r->run || r->run->state == PL_RUN_PLANNED) continue;
        st = pl_store_select_gauges(&rows, s, r->run->id);
        if (st == POLAR_OK) st = add_run(a, &rows, map);
        pl_store_gauges_free(&rows);
    }
    return st;
}

static const char *const maps[] = {PL_SPECTRUM "gradient", PL_SPECTRUM "direction"};
#define MAPS ((int)(sizeof maps / sizeof *maps))

/* t NULL: only whether there is any */
static polar_status add_arm(pl_table *t, int *has, const pl_section *p, pl_store *s, int64_t cell,
                            int64_t arm, int map)
{
    spectra a = {0};
    polar_status st = gather(&a, p, s, cell, arm, maps[map]);
    *has |= a.count > 0;
    for (int64_t i = 0; st == POLAR_OK && t && i < a.count; i++) {
        const spectrum *x = &a.rows[i];
        double runs = (double)x->runs;
        pl_table_row(t);
        pl_table_text(t, p->audit->cells[cell]);
        pl_table_text(t, p->audit->arms[arm]);
        pl_table_text(t, maps[map] + sizeof PL_SPECTRUM - 1);
        pl_table_text(t, x->block);
        pl_table_integer(t, x->step);
        pl_table_integer(t, x->runs);
        pl_table_integer(t, x->values);
        pl_table_number(t, x->above / runs);
        pl_table_number(t, x->stable / runs);
        for (int k = 0; k < RATIOS; k++) pl_table_maybe(t, exp(x->log_ratio[k] / runs));
    }
    pl_free(a.rows);
    return st;
}

static polar_status each(pl_table *t, int *has, const pl_section *p, pl_store *s)
{
    const pl_audit *a = p->audit;
    for (int64_t c = 0; c < a->cell_count; c++)
        for (int64_t arm = 0; arm < a->arm_count; arm++)
            for (int m = 0; m < MAPS; m++) PL_TRY(add_arm(t, has, p, s, c, arm, m));
    return POLAR_OK;
}

polar_status pl_section_has_spectra(const pl_section *p, pl_store *s, int *has)
{
    *has = 0;
    return each(NULL, has, p, s);
}

polar_status pl_section_spectra_csv(const pl_section *p, pl_store *s, FILE *f)
{
    static const pl_table_column columns[] = {
        {"cell", "cell", NULL, PL_CELL_TEXT, 0},
        {"arm", "arm", NULL, PL_CELL_TEXT, 0},
        {"of", "of", NULL, PL_CELL_TEXT, 0},
        {"block", "block", NULL, PL_CELL_TEXT, 0},
        {"step", "step", NULL, PL_CELL_INTEGER, 0},
        {"runs", "runs", NULL, PL_CELL_INTEGER, 0},
        {"values", "values", NULL, PL_CELL_INTEGER, 0},
        {"above_2^-8", "above_2^-8", NULL, PL_CELL_FIXED, 2},
        {"stable_rank", "stable_rank", NULL, PL_CELL_FIXED, 3},
        {"second", "second", NULL, PL_CELL_SCI, 2},
        {"third", "third", NULL, PL_CELL_SCI, 2},
        {"middle", "middle", NULL, PL_CELL_SCI, 2},
        {"last", "last", NULL, PL_CELL_SCI, 2},
    };
    pl_table *t;
    int has = 0;
    PL_TRY(pl_table_create(&t, NULL, columns, (int)(sizeof columns / sizeof *columns)));
    polar_status st = each(t, &has, p, s);
    if (st == POLAR_OK) st = pl_table_print(t, f, PL_TABLE_CSV);
    pl_table_destroy(t);
    return st;
}
