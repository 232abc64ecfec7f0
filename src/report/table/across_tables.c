/* across_tables.c -- see across_tables.h. Values of two specs are paired by cell, arm and seed: a seed has
 * one class subset under every recipe and budget. */
#include "report/table/across_tables.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "report/paper_values.h"
#include "report/table/seed_table.h"

#define BESIDE_EPOCH 26 /* the paper compares the two recipes at its epoch 25, counted from 0 */

pl_across pl_across_find(const pl_part *parts, int64_t count)
{
    pl_across x = {0};
    for (int64_t i = 0; i < count; i++) {
        const char *name = parts[i].spec->name;
        if (!strcmp(name, "deit_minimal_100ep")) x.minimal = &parts[i];
        if (!strcmp(name, "deit_matched_aug_100ep")) x.matched = &parts[i];
        if (!strcmp(name, "deit_style_300ep")) x.style = &parts[i];
    }
    return x;
}

void pl_across_link(pl_part *parts, int64_t count)
{
    pl_across x = pl_across_find(parts, count);
    for (int64_t i = 0; i < count; i++)
        if (&parts[i] == x.minimal || &parts[i] == x.style) parts[i].beside = x.matched;
}

polar_status pl_across_crossover(pl_lead *out, const pl_part *p, int64_t cell, const char *arm)
{
    *out = (pl_lead){0};
    if (!p->beside) return POLAR_OK;
    pl_lead_of a = {p->beside, pl_part_cell(p->beside, p->audit->cells[cell]), pl_part_arm(p->beside, arm)},
               b = {p, cell, pl_part_arm(p, arm)};
    if (a.cell < 0 || a.arm < 0 || b.arm < 0) return POLAR_OK;
    return pl_lead_measure(out, &a, &b, BESIDE_EPOCH);
}

/* ---- table 1 ---- */

static int has_table1(const pl_across *x)
{
    return x->minimal && x->style;
}
static int has_recipe(const pl_across *x)
{
    return x->minimal && x->matched;
}
static int has_budget(const pl_across *x)
{
    return x->matched && x->style;
}

static polar_status print_table1(const pl_across *x, FILE *f, pl_table_format format)
{
    return pl_seed_table((const pl_part *const[]){x->minimal, x->style},
                         (const char *const[]){"100 epochs, minimal recipe", "300 epochs, DeiT-style recipe"},
                         2, f, format);
}

/* ---- lifts ---- */

/* Values of the arm on the seeds that both have; how many. */
static int64_t common_values(double *from, double *to, const pl_part *p, const pl_part *q, int64_t cell,
                             int64_t arm)
{
    int64_t n = 0, other_cell = pl_part_cell(q, p->audit->cells[cell]),
            other_arm = pl_part_arm(q, p->audit->arms[arm]);
    for (int64_t k = 0; k < p->audit->seed_count && other_cell >= 0 && other_arm >= 0; k++) {
        int64_t other_seed = pl_part_seed(q, p->audit->seeds[k]);
        if (other_seed < 0 ||
            pl_audit_value(&from[n], pl_part_run(p, cell, k, arm), p->audit->metric) != PL_AUDIT_HAS_VALUE)
            continue;
        n += pl_audit_value(&to[n], pl_part_run(q, other_cell, other_seed, other_arm), q->audit->metric) ==
             PL_AUDIT_HAS_VALUE;
    }
    return n;
}

/* The paper's values on the seeds for which it has both, their means. */
static void paper_lift(double *from, double *to, const pl_part *p, const pl_part *q, int64_t cell,
                       int64_t arm)
{
    int n = 0;
    *from = *to = 0;
    for (int64_t k = 0; k < p->audit->seed_count; k++) {
        double x = pl_paper_seed_value(p->spec->name, p->audit->cells[cell], p->audit->arms[arm],
                                       p->audit->metric, p->audit->seeds[k]);
        double y = pl_paper_seed_value(q->spec->name, p->audit->cells[cell], p->audit->arms[arm],
                                       q->audit->metric, p->audit->seeds[k]);
        if (isnan(x) || isnan(y)) continue;
        *from += x;
        *to += y;
        n++;
    }
    *from = n ? *from / n : NAN;
    *to = n ? *to / n : NAN;
}

static void add_lift(pl_table *t, const pl_part *p, const pl_part *q, int64_t cell, int64_t arm, double *work)
{
    double *from = work, *to = from + p->audit->seed_count + 1, *room = to + p->audit->seed_count + 1,
           paper_from, paper_to;
    pl_paired s = pl_paired_measure(to, from, common_values(from, to, p, q, cell, arm), room);
    paper_lift(&paper_from, &paper_to, p, q, cell, arm);
    pl_table_row(t);
    pl_table_text(t, p->audit->cells[cell]);
    pl_table_text(t, p->audit->arms[arm]);
    pl_table_integer(t, s.n);
    const double numbers[] = {s.mean_b, s.mean_a,   s.mean_diff, s.ci_lo,
                              s.ci_hi,  paper_from, paper_to,    paper_to - paper_from};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) pl_table_maybe(t, numbers[i]);
}

static polar_status print_lift(const pl_part *p, const pl_part *q, const char *from, const char *to, FILE *f,
                               pl_table_format format)
{
    const pl_table_column columns[] = {
        {"cell", "cell", NULL, PL_CELL_TEXT, 0},
        {"arm", "arm", NULL, PL_CELL_TEXT, 0},
        {"n", "n", NULL, PL_CELL_INTEGER, 0},
        {"from", from, "measured", PL_CELL_FIXED, 2},
        {"to", to, "measured", PL_CELL_FIXED, 2},
        {"lift", "lift", "measured", PL_CELL_FIXED, 2},
        {"ci95_lo", "from", "95 % CI", PL_CELL_FIXED, 2},
        {"ci95_hi", "to", "95 % CI", PL_CELL_FIXED, 2},
        {"paper_from", from, "the paper", PL_CELL_FIXED, 2},
        {"paper_to", to, "the paper", PL_CELL_FIXED, 2},
        {"paper_lift", "lift", "the paper", PL_CELL_FIXED, 2},
    };
    pl_table *t;
    double *work = pl_calloc(3 * ((size_t)p->audit->seed_count + 1), sizeof *work);
    PL_NEED(work, POLAR_E_NOMEM, "the values of an arm");
    polar_status st = pl_table_create(&t, NULL, columns, (int)(sizeof columns / sizeof *columns));
    for (int64_t i = 0; st == POLAR_OK && i < p->audit->cell_count * p->audit->arm_count; i++)
        add_lift(t, p, q, i / p->audit->arm_count, i % p->audit->arm_count, work);
    if (st == POLAR_OK) st = pl_table_print(t, f, format);
    pl_table_destroy(t);
    pl_free(work);
    return st;
}

static polar_status print_recipe(const pl_across *x, FILE *f, pl_table_format format)
{
    return print_lift(x->minimal, x->matched, "minimal", "matched-aug", f, format);
}
static polar_status print_budget(const pl_across *x, FILE *f, pl_table_format format)
{
    return print_lift(x->matched, x->style, "100 epochs", "300 epochs", f, format);
}

/* ---- when the recipe pays ---- */

static void integer_or_none(pl_table *t, int64_t n)
{
    if (n) pl_table_integer(t, n);
    else pl_table_none(t);
}

static polar_status add_crossover(pl_table *t, const pl_across *x, int64_t cell, int64_t arm)
{
    const char *name = x->minimal->audit->arms[arm];
    pl_lead l;
    PL_TRY(pl_across_crossover(&l, x->minimal, cell, name));
    if (!l.n) return POLAR_OK;
    pl_table_row(t);
    pl_table_text(t, x->minimal->audit->cells[cell]);
    pl_table_text(t, name);
    pl_table_integer(t, l.n);
    pl_table_maybe(t, l.at_b);
    pl_table_maybe(t, l.at_a);
    integer_or_none(t, l.since);
    integer_or_none(t, l.least);
    integer_or_none(t, l.most);
    pl_table_maybe(t, pl_paper_epoch_value(x->minimal->spec->name, name, BESIDE_EPOCH));
    pl_table_maybe(t, pl_paper_epoch_value(x->matched->spec->name, name, BESIDE_EPOCH));
    integer_or_none(t, pl_paper_crossover(x->minimal->spec->name, x->matched->spec->name, name));
    return POLAR_OK;
}

static polar_status print_crossover(const pl_across *x, FILE *f, pl_table_format format)
{
    static const pl_table_column columns[] = {
        {"cell", "cell", NULL, PL_CELL_TEXT, 0},
        {"arm", "arm", NULL, PL_CELL_TEXT, 0},
        {"n", "n", NULL, PL_CELL_INTEGER, 0},
        {"minimal_26", "minimal", "after 26 epochs", PL_CELL_FIXED, 2},
        {"matched_26", "matched-aug", "after 26 epochs", PL_CELL_FIXED, 2},
        {"since", "of the means", "ahead since", PL_CELL_INTEGER, 0},
        {"since_least", "first seed", "ahead since", PL_CELL_INTEGER, 0},
        {"since_most", "last seed", "ahead since", PL_CELL_INTEGER, 0},
        {"paper_minimal_26", "minimal", "the paper", PL_CELL_FIXED, 2},
        {"paper_matched_26", "matched-aug", "the paper", PL_CELL_FIXED, 2},
        {"paper_since", "around", "the paper", PL_CELL_INTEGER, 0},
    };
    pl_table *t;
    PL_TRY(pl_table_create(&t, NULL, columns, (int)(sizeof columns / sizeof *columns)));
    const pl_audit *a = x->minimal->audit;
    polar_status st = POLAR_OK;
    for (int64_t i = 0; st == POLAR_OK && i < a->cell_count * a->arm_count; i++)
        st = add_crossover(t, x, i / a->arm_count, i % a->arm_count);
    if (st == POLAR_OK) st = pl_table_print(t, f, format);
    pl_table_destroy(t);
    return st;
}

const pl_across_table pl_across_tables[] = {
    {"deit_table1", "DeiT-Tiny, L10 under two recipes (table 1)",
     "L10: mean test top-1 in percent over the last ten epochs. Rows pair the arms by seed and class subset; "
     "P - M: PolarAdamW - Muon. The paper's caption has both "
     "matrix rules ahead of AdamW by 7 to 10 points, which its own 300-epoch columns do not show (4.4 and "
     "5.8).",
     has_table1, print_table1},
    {"deit_recipe_lift", "Recipe lift: minimal to DeiT-style augmentation at 100 epochs (S1)",
     "matched-aug - minimal on the n seeds that both have; the interval needs two. The paper: seed 42.",
     has_recipe, print_recipe},
    {"deit_crossover", "When the recipe pays: crossover epochs",
     "Augmentation first costs accuracy. Ahead since: epochs done (from 1) since when the augmented curve "
     "has been above the minimal one after every epoch, without "
     "smoothing; of the means over the n seeds that both have, then of the first and the last of these seeds "
     "to cross. The paper's text: 64.88 and 55.46 at its epoch "
     "25, caught around epoch 65, counted from 0: one more here.",
     has_recipe, print_crossover},
    {"deit_budget_lift", "Budget lift: 100 to 300 epochs of the DeiT-style recipe (S1 to S2)",
     "300 - 100 epochs on the n seeds that both have; the interval needs two. The paper: seed 42.",
     has_budget, print_budget},
    {NULL, NULL, NULL, NULL, NULL},
};
