/* seed_table.c -- see seed_table.h. */
#include "report/table/seed_table.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "report/audit/audit_print.h"
#include "report/paper_values.h"

#define KEYS (2 * (PL_SEED_TABLE_ARMS + 1))

typedef struct {
    char keys[PL_SEED_TABLE_PARTS][KEYS][96];
    pl_table_column columns[2 + PL_SEED_TABLE_PARTS * KEYS];
    int count;
} layout;

static int64_t arms_of(const pl_part *p)
{
    return p->audit->arm_count < PL_SEED_TABLE_ARMS ? p->audit->arm_count : PL_SEED_TABLE_ARMS;
}

/* Whether it has both, and where. */
static int find_pair(const pl_part *p, int64_t *polar, int64_t *muon)
{
    *polar = pl_part_arm(p, "polaradamw");
    *muon = pl_part_arm(p, "muon");
    return *polar >= 0 && *muon >= 0 && *polar < arms_of(p) && *muon < arms_of(p);
}

static int has_paper(const pl_part *p)
{
    for (int64_t r = 0; r < arms_of(p); r++)
        for (int64_t k = 0; k < p->audit->seed_count; k++)
            for (int64_t c = 0; c < p->audit->cell_count; c++)
                if (!isnan(pl_paper_seed_value(p->spec->name, p->audit->cells[c], p->audit->arms[r],
                                               p->audit->metric, p->audit->seeds[k])))
                    return 1;
    return 0;
}

/* ---- columns ---- */

/* The arms of one part, then P - M; of a table of several parts the keys carry the spec's name. */
static void add_columns(layout *l, const pl_part *p, int part, int several, int paper, const char *group)
{
    int64_t polar, muon;
    int d = pl_audit_digits(p->audit), first = paper ? PL_SEED_TABLE_ARMS + 1 : 0;
    for (int64_t r = 0; r <= arms_of(p); r++) {
        const char *arm = r < arms_of(p) ? p->audit->arms[r] : "polaradamw_minus_muon";
        char *key = l->keys[part][first + r];
        if (r == arms_of(p) && !find_pair(p, &polar, &muon)) break;
        snprintf(key, 96, "%s%.30s%s%.50s", paper ? "paper_" : "", several ? p->spec->name : "",
                 several ? "_" : "", arm);
        l->columns[l->count++] =
            (pl_table_column){key, r < arms_of(p) ? p->audit->arms[r] : "P - M", group, PL_CELL_FIXED, d};
    }
}

/* ---- cells ---- */

static void add_measured(pl_table *t, const pl_part *p, int64_t cell, int64_t seed)
{
    int64_t polar, muon;
    double v[PL_SEED_TABLE_ARMS], value;
    for (int64_t r = 0; r < arms_of(p); r++) {
        v[r] = NAN;
        if (cell >= 0 && seed >= 0 &&
            pl_audit_value(&value, pl_part_run(p, cell, seed, r), p->audit->metric) == PL_AUDIT_HAS_VALUE)
            v[r] = value;
        pl_table_maybe(t, v[r]);
    }
    if (find_pair(p, &polar, &muon)) pl_table_maybe(t, v[polar] - v[muon]);
}

static void add_paper(pl_table *t, const pl_part *p, const char *cell, int64_t seed)
{
    int64_t polar, muon;
    double v[PL_SEED_TABLE_ARMS];
    for (int64_t r = 0; r < arms_of(p); r++) {
        v[r] = pl_paper_seed_value(p->spec->name, cell, p->audit->arms[r], p->audit->metric, seed);
        pl_table_maybe(t, v[r]);
    }
    if (find_pair(p, &polar, &muon)) pl_table_maybe(t, v[polar] - v[muon]);
}

static void add_means(pl_table *t, const pl_part *p, const char *name)
{
    int64_t polar, muon, cell = pl_part_cell(p, name);
    const pl_audit *a = p->audit;
    for (int64_t r = 0; r < arms_of(p); r++)
        pl_table_maybe(t, cell < 0 ? NAN : a->arm_rows[cell * a->arm_count + r].s.mean);
    if (!find_pair(p, &polar, &muon)) return;
    double diff = NAN;
    for (int64_t i = 0; i < a->pair_count && cell >= 0; i++) {
        const pl_audit_pair *q = &a->pairs[i];
        if (q->cell != a->cells[cell]) continue;
        if (q->a == a->arms[polar] && q->b == a->arms[muon]) diff = q->s.mean_diff;
        if (q->a == a->arms[muon] && q->b == a->arms[polar]) diff = -q->s.mean_diff;
    }
    pl_table_maybe(t, diff);
}

static void add_paper_means(pl_table *t, const pl_part *p, const char *cell)
{
    int64_t polar, muon;
    for (int64_t r = 0; r < arms_of(p); r++)
        pl_table_maybe(t, pl_paper_value(p->spec->name, cell, p->audit->arms[r], p->audit->metric));
    if (find_pair(p, &polar, &muon))
        pl_table_maybe(t,
                       pl_paper_pair_value(p->spec->name, cell, "polaradamw", "muon", p->audit->metric).diff);
}

/* ---- rows ---- */

static void add_rows(pl_table *t, const pl_part *const *parts, int count, int64_t cell)
{
    const pl_audit *first = parts[0]->audit;
    const char *name = first->cells[cell];
    for (int64_t k = 0; k <= first->seed_count; k++) {
        char text[32] = "mean";
        if (k < first->seed_count) snprintf(text, sizeof text, "%" PRId64, first->seeds[k]);
        pl_table_row(t);
        pl_table_text(t, name);
        pl_table_text(t, text);
        for (int i = 0; i < count; i++) {
            const pl_part *p = parts[i];
            if (k == first->seed_count) add_means(t, p, name);
            else add_measured(t, p, pl_part_cell(p, name), pl_part_seed(p, first->seeds[k]));
            if (!has_paper(p)) continue;
            if (k == first->seed_count) add_paper_means(t, p, name);
            else add_paper(t, p, name, first->seeds[k]);
        }
    }
}

polar_status pl_seed_table(const pl_part *const *parts, const char *const *titles, int count, FILE *f,
                           pl_table_format format)
{
    layout l = {.count = 2};
    pl_table *t;
    l.columns[0] = (pl_table_column){"cell", "cell", NULL, PL_CELL_TEXT, 0};
    l.columns[1] = (pl_table_column){"seed", "seed", NULL, PL_CELL_TEXT, 0};
    for (int i = 0; i < count; i++) {
        add_columns(&l, parts[i], i, count > 1, 0, titles[i]);
        if (has_paper(parts[i])) add_columns(&l, parts[i], i, count > 1, 1, "the paper");
    }
    PL_TRY(pl_table_create(&t, NULL, l.columns, l.count));
    for (int64_t c = 0; c < parts[0]->audit->cell_count; c++) add_rows(t, parts, count, c);
    polar_status st = pl_table_print(t, f, format);
    pl_table_destroy(t);
    return st;
}
