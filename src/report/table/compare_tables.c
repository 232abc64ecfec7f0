/* compare_tables.c -- see compare_tables.h. Values of two specs are paired by cell, arm and seed: a seed has
 * the same data under both. */
#include "report/table/compare_tables.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "report/audit/audit_print.h"
#include "report/table/seed_table.h"

/* ---- which ones ---- */

static const pl_section *find_section(const pl_section *sections, int64_t n, const char *name)
{
    for (int64_t i = 0; i < n; i++)
        if (!strcmp(sections[i].spec->name, name)) return &sections[i];
    return NULL;
}

polar_status pl_comparisons_find(pl_comparison **out, int64_t *count, const pl_section *sections, int64_t n)
{
    int64_t most = 0;
    *count = 0;
    for (int64_t i = 0; i < n; i++) most += sections[i].read ? sections[i].read->compare_count : 0;
    *out = pl_calloc((size_t)most + 1, sizeof **out);
    PL_NEED(*out, POLAR_E_NOMEM, "%lld comparisons", (long long)most);
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; sections[i].read && k < sections[i].read->compare_count; k++) {
            const pl_spec_compare *how = &sections[i].read->compares[k];
            const pl_section *to = find_section(sections, n, how->with);
            if (to) (*out)[(*count)++] = (pl_comparison){&sections[i], to, how};
        }
    return POLAR_OK;
}

void pl_comparisons_link(pl_section *sections, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; sections[i].read && k < sections[i].read->compare_count; k++) {
            const pl_spec_compare *how = &sections[i].read->compares[k];
            const pl_section *other = find_section(sections, n, how->with);
            if (!how->curve || !other || sections[i].beside) continue;
            sections[i].beside = other;
            sections[i].beside_how = how;
        }
}

int pl_comparison_wants(const pl_comparison *x, const pl_compare_table *t)
{
    int curves = x->from->kind.accuracy && x->to->kind.accuracy,
        few =
            x->from->audit->arm_count <= PL_SEED_TABLE_ARMS && x->to->audit->arm_count <= PL_SEED_TABLE_ARMS;
    return (x->how->tables & t->kind) && (t->kind != PL_COMPARE_CROSSOVER || curves) &&
           (t->kind != PL_COMPARE_SEEDS || few);
}

void pl_comparison_stem(char out[160], const pl_comparison *x, const pl_compare_table *t)
{
    if (x->how->name) snprintf(out, 160, "%.63s_%s", x->how->name, t->name);
    else snprintf(out, 160, "%.63s_%.63s_%s", x->from->spec->name, x->to->spec->name, t->name);
}

void pl_comparison_title(char out[256], const pl_comparison *x)
{
    if (x->how->title) snprintf(out, 256, "%.250s", x->how->title);
    else snprintf(out, 256, "%.100s and %.100s", x->from->spec->name, x->to->spec->name);
}

static const char *label(const pl_comparison *x, int which)
{
    if (x->how->labels[which]) return x->how->labels[which];
    return (which ? x->to : x->from)->spec->name;
}

/* ---- seed by seed ---- */

static polar_status print_seeds(const pl_comparison *x, FILE *f, pl_table_format format)
{
    return pl_seed_table((const pl_section *const[]){x->from, x->to},
                         (const char *const[]){label(x, 0), label(x, 1)}, 2, f, format);
}

/* ---- lifts ---- */

/* Values of the arm on the seeds that both have; how many. */
static int64_t common_values(double *from, double *to, const pl_section *p, const pl_section *q, int64_t cell,
                             int64_t arm)
{
    int64_t n = 0, other_cell = pl_section_cell(q, p->audit->cells[cell]),
            other_arm = pl_section_arm(q, p->audit->arms[arm]);
    for (int64_t k = 0; k < p->audit->seed_count && other_cell >= 0 && other_arm >= 0; k++) {
        int64_t other_seed = pl_section_seed(q, p->audit->seeds[k]);
        if (other_seed < 0 ||
            pl_audit_value(&from[n], pl_section_run(p, cell, k, arm), p->audit->metric) != PL_AUDIT_HAS_VALUE)
            continue;
        n += pl_audit_value(&to[n], pl_section_run(q, other_cell, other_seed, other_arm), q->audit->metric) ==
             PL_AUDIT_HAS_VALUE;
    }
    return n;
}

/* Means of the published values on the seeds that have both. */
static void published_lift(double *from, double *to, const pl_section *p, const pl_section *q, int64_t cell,
                           int64_t arm)
{
    const pl_audit *a = p->audit;
    int n = 0;
    *from = *to = 0;
    for (int64_t k = 0; k < a->seed_count; k++) {
        double x =
            pl_published_seed(pl_section_published(p), a->cells[cell], a->arms[arm], a->metric, a->seeds[k]);
        double y = pl_published_seed(pl_section_published(q), a->cells[cell], a->arms[arm], q->audit->metric,
                                     a->seeds[k]);
        if (isnan(x) || isnan(y)) continue;
        *from += x;
        *to += y;
        n++;
    }
    *from = n ? *from / n : NAN;
    *to = n ? *to / n : NAN;
}

typedef struct lift {
    pl_paired s;
    double published_from, published_to;
} lift;

/* Of every cell and arm, the arms fastest. */
static polar_status measure_lifts(lift *all, const pl_comparison *x)
{
    const pl_section *p = x->from;
    size_t seeds = (size_t)p->audit->seed_count + 1;
    double *from = pl_calloc(3 * seeds, sizeof *from), *to = from + seeds;
    PL_NEED(from, POLAR_E_NOMEM, "the values of an arm");
    for (int64_t i = 0; i < p->audit->cell_count * p->audit->arm_count; i++) {
        int64_t cell = i / p->audit->arm_count, arm = i % p->audit->arm_count;
        all[i].s = pl_paired_measure(to, from, common_values(from, to, p, x->to, cell, arm), to + seeds);
        published_lift(&all[i].published_from, &all[i].published_to, p, x->to, cell, arm);
    }
    pl_free(from);
    return POLAR_OK;
}

/* Their p, corrected for all of them: the comparison is a family of its own. */
static polar_status correct_lifts(double *p_holm, const lift *all, int64_t n)
{
    double *p = pl_calloc((size_t)n + 1, sizeof *p);
    pl_ranked *ranked = pl_calloc((size_t)n + 1, sizeof *ranked);
    polar_status st =
        p && ranked ? POLAR_OK : PL_FAIL(POLAR_E_NOMEM, "the tests of %lld lifts", (long long)n);
    for (int64_t i = 0; i < n && st == POLAR_OK; i++) p[i] = all[i].s.p;
    if (st == POLAR_OK) pl_holm(p_holm, p, n, ranked);
    pl_free(p);
    pl_free(ranked);
    return st;
}

static void add_lift(pl_table *t, const pl_comparison *x, const char *cell, const char *arm, const lift *l,
                     double p_holm)
{
    const pl_paired *s = &l->s;
    pl_effect effect = pl_effect_measure(s);
    pl_table_row(t);
    pl_table_text(t, cell);
    pl_table_text(t, arm);
    pl_table_integer(t, s->n);
    const double numbers[] = {
        s->mean_b, s->mean_a,         s->mean_diff,    s->ci_lo,
        s->ci_hi,  l->published_from, l->published_to, l->published_to - l->published_from,
        effect.g,  effect.lo,         effect.hi,       s->p,
        p_holm};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) pl_table_maybe(t, numbers[i]);
    if (x->how->equivalence > 0) pl_table_maybe(t, pl_equivalence_p(s, x->how->equivalence));
}

static polar_status print_lifts(const pl_comparison *x, const lift *all, const double *p_holm, FILE *f,
                                pl_table_format format)
{
    const pl_audit *a = x->from->audit;
    const char *from = label(x, 0), *to = label(x, 1), *by = pl_published_by(pl_section_published(x->from));
    int d = a->shown.percent ? 2 : pl_audit_digits(a), fine = d > 2 && d < 9 ? d + 1 : d;
    const pl_table_column columns[] = {
        {"cell", "cell", NULL, PL_CELL_TEXT, 0},
        {"arm", "arm", NULL, PL_CELL_TEXT, 0},
        {"n", "n", NULL, PL_CELL_INTEGER, 0},
        {"from", from, "measured", PL_CELL_FIXED, d},
        {"to", to, "measured", PL_CELL_FIXED, d},
        {"lift", "lift", "measured", PL_CELL_FIXED, fine},
        {"ci95_lo", "from", "95 % CI", PL_CELL_FIXED, fine},
        {"ci95_hi", "to", "95 % CI", PL_CELL_FIXED, fine},
        {"published_from", from, by, PL_CELL_FIXED, d},
        {"published_to", to, by, PL_CELL_FIXED, d},
        {"published_lift", "lift", by, PL_CELL_FIXED, fine},
        {"g", "g", "effect", PL_CELL_FIXED, 2},
        {"g_ci95_lo", "from", "95 % CI of g", PL_CELL_FIXED, 2},
        {"g_ci95_hi", "to", "95 % CI of g", PL_CELL_FIXED, 2},
        {"p", "p", "paired", PL_CELL_SCI, 1},
        {"p_holm", "Holm p", "paired", PL_CELL_SCI, 1},
        {"p_equivalence", "equivalence p", NULL, PL_CELL_SCI, 1}, /* where a margin is given */
    };
    int n = (int)(sizeof columns / sizeof *columns) - !(x->how->equivalence > 0);
    pl_table *t;
    PL_TRY(pl_table_create(&t, NULL, columns, n));
    for (int64_t i = 0; i < a->cell_count * a->arm_count; i++)
        add_lift(t, x, a->cells[i / a->arm_count], a->arms[i % a->arm_count], &all[i], p_holm[i]);
    polar_status st = pl_table_print(t, f, format);
    pl_table_destroy(t);
    return st;
}

static polar_status print_lift(const pl_comparison *x, FILE *f, pl_table_format format)
{
    int64_t n = x->from->audit->cell_count * x->from->audit->arm_count;
    lift *all = pl_calloc((size_t)n + 1, sizeof *all);
    double *p_holm = pl_calloc((size_t)n + 1, sizeof *p_holm);
    polar_status st = all && p_holm ? POLAR_OK : PL_FAIL(POLAR_E_NOMEM, "%lld lifts", (long long)n);
    if (st == POLAR_OK) st = measure_lifts(all, x);
    if (st == POLAR_OK) st = correct_lifts(p_holm, all, n);
    if (st == POLAR_OK) st = print_lifts(x, all, p_holm, f, format);
    pl_free(all);
    pl_free(p_holm);
    return st;
}

/* ---- since when the other is ahead ---- */

polar_status pl_crossover_measure(pl_overtake *out, const pl_section *p, const pl_section *other,
                                  int64_t cell, const char *arm, int64_t at_epoch)
{
    *out = (pl_overtake){0};
    pl_overtake_side a = {other, pl_section_cell(other, p->audit->cells[cell]), pl_section_arm(other, arm)},
                     b = {p, cell, pl_section_arm(p, arm)};
    if (a.cell < 0 || a.arm < 0 || b.arm < 0) return POLAR_OK;
    return pl_overtake_measure(out, &a, &b, at_epoch);
}

static void integer_or_none(pl_table *t, int64_t n)
{
    if (n) pl_table_integer(t, n);
    else pl_table_none(t);
}

static int64_t published_since(const pl_comparison *x, const char *arm)
{
    for (int i = 0; i < x->how->since_count; i++)
        if (!strcmp(x->how->since[i].arm, arm)) return x->how->since[i].epochs;
    return 0;
}

static polar_status add_crossover(pl_table *t, const pl_comparison *x, int64_t cell, int64_t arm)
{
    const char *name = x->from->audit->arms[arm], *cell_name = x->from->audit->cells[cell];
    int64_t at = x->how->at_epoch;
    pl_overtake l;
    PL_TRY(pl_crossover_measure(&l, x->from, x->to, cell, name, at));
    if (!l.n) return POLAR_OK;
    pl_table_row(t);
    pl_table_text(t, cell_name);
    pl_table_text(t, name);
    pl_table_integer(t, l.n);
    pl_table_maybe(t, l.at_b);
    pl_table_maybe(t, l.at_a);
    integer_or_none(t, l.since);
    integer_or_none(t, l.least);
    integer_or_none(t, l.most);
    pl_table_maybe(t, at ? pl_published_epoch(pl_section_published(x->from), cell_name, name, at) : NAN);
    pl_table_maybe(t, at ? pl_published_epoch(pl_section_published(x->to), cell_name, name, at) : NAN);
    integer_or_none(t, published_since(x, name));
    return POLAR_OK;
}

static polar_status print_crossover(const pl_comparison *x, FILE *f, pl_table_format format)
{
    char after[64] = "at no epoch";
    const char *from = label(x, 0), *to = label(x, 1), *by = pl_published_by(pl_section_published(x->from));
    if (x->how->at_epoch) snprintf(after, sizeof after, "after %lld epochs", (long long)x->how->at_epoch);
    const pl_table_column columns[] = {
        {"cell", "cell", NULL, PL_CELL_TEXT, 0},
        {"arm", "arm", NULL, PL_CELL_TEXT, 0},
        {"n", "n", NULL, PL_CELL_INTEGER, 0},
        {"from", from, after, PL_CELL_FIXED, 2},
        {"to", to, after, PL_CELL_FIXED, 2},
        {"since", "of the means", "ahead since", PL_CELL_INTEGER, 0},
        {"since_least", "first seed", "ahead since", PL_CELL_INTEGER, 0},
        {"since_most", "last seed", "ahead since", PL_CELL_INTEGER, 0},
        {"published_from", from, by, PL_CELL_FIXED, 2},
        {"published_to", to, by, PL_CELL_FIXED, 2},
        {"published_since", "since", by, PL_CELL_INTEGER, 0},
    };
    pl_table *t;
    PL_TRY(pl_table_create(&t, NULL, columns, (int)(sizeof columns / sizeof *columns)));
    const pl_audit *a = x->from->audit;
    polar_status st = POLAR_OK;
    for (int64_t i = 0; st == POLAR_OK && i < a->cell_count * a->arm_count; i++)
        st = add_crossover(t, x, i / a->arm_count, i % a->arm_count);
    if (st == POLAR_OK) st = pl_table_print(t, f, format);
    pl_table_destroy(t);
    return st;
}

const pl_compare_table pl_compare_tables[] = {
    {"seeds", "seed by seed", "Rows pair the arms of both specs by seed.", PL_COMPARE_SEEDS, print_seeds},
    {"lift", "what the second adds",
     "The second spec minus the first on the n seeds that both have; the interval needs two. Hedges' g: the "
     "lift in units of its standard deviation over seeds, without the bias of small n, and its exact 95 % "
     "interval by the noncentral t. Holm's p is the paired one, corrected for the lifts of this table, every "
     "arm in every cell, and for no other test of the report. The equivalence p, where the spec states a "
     "margin, is that of two one-sided paired t-tests that the lift is within it.",
     PL_COMPARE_LIFT, print_lift},
    {"crossover", "when the second pays",
     "Ahead since: epochs done (from 1) since when the second spec's curve has been better than the first's "
     "after every epoch, without smoothing; of the means over the n seeds that both have, then of the first "
     "and the last of these seeds to cross.",
     PL_COMPARE_CROSSOVER, print_crossover},
    {NULL, NULL, NULL, 0, NULL},
};
