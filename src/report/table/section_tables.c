/* section_tables.c -- see section_tables.h. */
#include "report/table/section_tables.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "report/audit/audit_print.h"
#include "report/overtake.h"
#include "report/table/seed_table.h"

#define MOST_ARMS 6 /* of a table with a row for every pair of them */

/* ---- its seeds side by side ---- */

static int has_seeds(const pl_section *p)
{
    return p->kind.seeds_differ && p->audit->arm_count <= PL_SEED_TABLE_ARMS &&
           strcmp(p->audit->metric, PL_METRIC_WALL);
}

static polar_status print_seeds(const pl_section *p, FILE *f, pl_table_format format)
{
    return pl_seed_table(&p, (const char *const[]){"measured"}, 1, f, format);
}

/* ---- who overtakes whom ---- */

static int has_overtaking(const pl_section *p)
{
    int64_t curves = 0;
    for (int64_t i = 0; i < p->audit->cell_count * p->audit->arm_count; i++) curves += p->valid[i].count > 1;
    return p->kind.accuracy && curves > 1 && p->audit->arm_count <= MOST_ARMS;
}

/* The arm that is ahead at the end first. */
static polar_status add_overtaking(pl_table *t, const pl_section *p, int64_t cell, int64_t x, int64_t y)
{
    pl_overtake l;
    pl_overtake_side a = {p, cell, y}, b = {p, cell, x};
    PL_TRY(pl_overtake_measure(&l, &a, &b, 0));
    if (!l.n) return POLAR_OK;
    if (p->kind.higher ? l.gap < 0 : l.gap > 0) {
        pl_overtake_side turned = a;
        a = b;
        b = turned;
        PL_TRY(pl_overtake_measure(&l, &a, &b, 0));
    }
    pl_table_row(t);
    pl_table_text(t, p->audit->cells[cell]);
    pl_table_text(t, p->audit->arms[a.arm]);
    pl_table_text(t, p->audit->arms[b.arm]);
    pl_table_integer(t, l.n);
    pl_table_integer(t, l.epochs);
    if (l.since) pl_table_integer(t, l.since);
    else pl_table_none(t);
    pl_table_number(t, l.gap);
    pl_table_integer(t, l.ahead);
    if (l.ahead) {
        pl_table_integer(t, l.least);
        pl_table_integer(t, l.most);
    }
    return POLAR_OK;
}

static polar_status print_overtaking(const pl_section *p, FILE *f, pl_table_format format)
{
    static const pl_table_column columns[] = {
        {"cell", "cell", NULL, PL_CELL_TEXT, 0},
        {"a", "ahead", NULL, PL_CELL_TEXT, 0},
        {"b", "behind", NULL, PL_CELL_TEXT, 0},
        {"n", "n", NULL, PL_CELL_INTEGER, 0},
        {"epochs", "epochs", NULL, PL_CELL_INTEGER, 0},
        {"since", "since", "of the means", PL_CELL_INTEGER, 0},
        {"gap", "at the end", "of the means", PL_CELL_FIXED, 2},
        {"seeds_ahead", "ahead", "seed by seed", PL_CELL_INTEGER, 0},
        {"since_least", "from", "seed by seed", PL_CELL_INTEGER, 0},
        {"since_most", "to", "seed by seed", PL_CELL_INTEGER, 0},
    };
    pl_table *t;
    PL_TRY(pl_table_create(&t, NULL, columns, (int)(sizeof columns / sizeof *columns)));
    polar_status st = POLAR_OK;
    for (int64_t c = 0; c < p->audit->cell_count; c++)
        for (int64_t y = 1; y < p->audit->arm_count; y++)
            for (int64_t x = 0; x < y && st == POLAR_OK; x++) st = add_overtaking(t, p, c, x, y);
    if (st == POLAR_OK) st = pl_table_print(t, f, format);
    pl_table_destroy(t);
    return st;
}

/* ---- seconds per epoch ---- */

static int has_seconds(const pl_section *p)
{
    const pl_audit *a = p->audit;
    for (int64_t i = 0; i < a->cell_count * a->seed_count * a->arm_count; i++)
        for (int64_t e = 0; e < p->epochs[i].count; e++)
            if (isfinite(p->epochs[i].rows[e].seconds)) return 1;
    return 0;
}

static int by_size(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

/* Seconds of the arm's epochs, sorted; how many runs have any. */
static int64_t collect_seconds(double *out, int64_t *count, const pl_section *p, int64_t cell, int64_t arm)
{
    int64_t runs = 0;
    *count = 0;
    for (int64_t k = 0; k < p->audit->seed_count; k++) {
        const pl_store_epochs *e = pl_section_epochs(p, cell, k, arm);
        int64_t before = *count;
        for (int64_t i = 0; i < e->count; i++)
            if (isfinite(e->rows[i].seconds)) out[(*count)++] = e->rows[i].seconds;
        runs += *count > before;
    }
    qsort(out, (size_t)*count, sizeof *out, by_size);
    return runs;
}

static double percent_more(double x, double than)
{
    return 100 * (x / than - 1);
}

static double published_seconds(const pl_section *p, int64_t cell, int64_t arm)
{
    return pl_published_value(pl_section_published(p), p->audit->cells[cell], p->audit->arms[arm],
                              PL_METRIC_EPOCH_SECONDS);
}

static void add_seconds(pl_table *t, const pl_section *p, int64_t cell, double *work, int published)
{
    const pl_audit *a = p->audit;
    double first = NAN, published_first = published_seconds(p, cell, 0);
    for (int64_t r = 0; r < a->arm_count; r++) {
        int64_t n, runs = collect_seconds(work, &n, p, cell, r);
        double median = n ? 0.5 * (work[(n - 1) / 2] + work[n / 2]) : NAN,
               other = published_seconds(p, cell, r);
        pl_sample s = pl_sample_measure(work, n);
        if (!r) first = median;
        pl_table_row(t);
        pl_table_text(t, a->cells[cell]);
        pl_table_text(t, a->arms[r]);
        pl_table_integer(t, runs);
        pl_table_integer(t, n);
        pl_table_maybe(t, median);
        pl_table_maybe(t, s.mean);
        pl_table_maybe(t, n ? s.min : NAN);
        pl_table_maybe(t, n ? s.max : NAN);
        pl_table_maybe(t, r ? percent_more(median, first) : NAN);
        if (!published) continue;
        pl_table_maybe(t, other);
        pl_table_maybe(t, r ? percent_more(other, published_first) : NAN);
    }
}

static polar_status print_seconds(const pl_section *p, FILE *f, pl_table_format format)
{
    const pl_audit *a = p->audit;
    int published = pl_published_has(a->published, PL_METRIC_EPOCH_SECONDS);
    const char *by = pl_published_by(a->published);
    int64_t room = 1;
    char more[96];
    snprintf(more, sizeof more, "%% more than %.64s", a->arms[0]);
    const pl_table_column columns[] = {
        {"cell", "cell", NULL, PL_CELL_TEXT, 0},
        {"arm", "arm", NULL, PL_CELL_TEXT, 0},
        {"runs", "runs", NULL, PL_CELL_INTEGER, 0},
        {"epochs", "epochs", NULL, PL_CELL_INTEGER, 0},
        {"median", "median", "seconds per epoch", PL_CELL_FIXED, 3},
        {"mean", "mean", "seconds per epoch", PL_CELL_FIXED, 3},
        {"min", "min", "seconds per epoch", PL_CELL_FIXED, 3},
        {"max", "max", "seconds per epoch", PL_CELL_FIXED, 3},
        {"percent_more", more, NULL, PL_CELL_FIXED, 1},
        {"published", "mean", by, PL_CELL_FIXED, 0},
        {"published_percent_more", "% more", by, PL_CELL_FIXED, 1},
    };
    for (int64_t i = 0; i < a->cell_count * a->seed_count * a->arm_count; i++) room += p->epochs[i].count;
    double *work = pl_calloc((size_t)room, sizeof *work);
    PL_NEED(work, POLAR_E_NOMEM, "the seconds of %lld epochs", (long long)room);
    pl_table *t;
    polar_status st =
        pl_table_create(&t, NULL, columns, (int)(sizeof columns / sizeof *columns) - (published ? 0 : 2));
    for (int64_t c = 0; c < a->cell_count && st == POLAR_OK; c++) add_seconds(t, p, c, work, published);
    if (st == POLAR_OK) st = pl_table_print(t, f, format);
    pl_table_destroy(t);
    pl_free(work);
    return st;
}

/* ---- the audit's tests ---- */

static int has_pairs(const pl_section *p)
{
    return p->audit->tests > 0;
}

static polar_status print_effects(const pl_section *p, FILE *f, pl_table_format format)
{
    return pl_audit_effect_table(p->audit, f, format);
}

static int has_target(const pl_section *p)
{
    return p->audit->target != 0;
}

static polar_status print_target(const pl_section *p, FILE *f, pl_table_format format)
{
    return pl_audit_target_table(p->audit, f, format);
}

static polar_status print_race(const pl_section *p, FILE *f, pl_table_format format)
{
    return pl_audit_race_table(p->audit, f, format);
}

const pl_section_table pl_section_tables[] = {
    {"effects", "Effect sizes, correction and equivalence",
     "Hedges' g: the mean difference a - b in units of the differences' standard deviation, without the bias "
     "of small n, "
     "and its exact 95 % interval by the noncentral t. Holm's p is the paired one, corrected for all pairs "
     "of the table "
     "above. The equivalence p, where the spec states a margin, is that of two one-sided t-tests: small "
     "where the "
     "difference is within the margin.",
     has_pairs, print_effects},
    {"target", "Epochs to the target",
     "Epochs until the validation curve has reached the spec's target: median by Kaplan and Meier with its "
     "95 % interval "
     "(log-log), and the mean of min(epochs, to). A run that ended without it, early, diverged or not, is "
     "censored at its "
     "planned epochs.",
     has_target, print_target},
    {"target_pairs", "Who reaches the target sooner",
     "Seed by seed: a sooner than b, later, at once; neither of them. p is that of the signs of those that "
     "are known, the "
     "exact form of a log-rank test stratified by pairs; a - b is the difference of the restricted epochs "
     "with its 95 % "
     "interval by the paired t.",
     has_target, print_race},
    {"seeds", "Seed by seed",
     "Arms of a row saw the same pictures: differences within it are the measurement; where seeds have class "
     "subsets of their own, absolute values belong to the subset. "
     "The last row is over the seeds that have a value.",
     has_seeds, print_seeds},
    {"overtaking", "Who overtakes whom",
     "Epochs done (from 1) since when the curve of the arm that is ahead at the end has been above the "
     "other's after every epoch, without smoothing: of the means over "
     "the n seeds that both have, and of each seed by itself, from the earliest to the latest.",
     has_overtaking, print_overtaking},
    {"seconds", "Seconds per epoch",
     "Training and evaluation of one epoch, over all epochs of the arm's finished runs. Runs that shared a "
     "machine are not comparable; the median suffers least.",
     has_seconds, print_seconds},
    {NULL, NULL, NULL, NULL, NULL},
};
