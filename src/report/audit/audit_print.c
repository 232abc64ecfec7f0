/* audit_print.c -- an audit's tables, with the published values where there are some; the incomplete pairs
 * with their seeds as ranges. */
#include "report/audit/audit_print.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/string_build.h"

int pl_audit_digits(const pl_audit *a)
{
    double most = 0;
    for (int64_t i = 0; i < a->cell_count * a->arm_count; i++) {
        double x = fabs(a->arm_rows[i].s.mean);
        if (x > most) most = x;
    }
    if (most == 0) return 4;
    int digits = 3 - (int)floor(log10(most));
    return digits < 0 ? 0 : digits > 9 ? 9 : digits;
}

int pl_audit_has_references(const pl_audit *a)
{
    for (int64_t i = 0; i < a->cell_count * a->arm_count; i++)
        for (int k = 0; k < a->reference_count; k++)
            if (!isnan(a->arm_rows[i].reference[k])) return 1;
    return 0;
}

polar_status pl_audit_arm_table(const pl_audit *a, FILE *f, pl_table_format format)
{
    int d = pl_audit_digits(a), published = pl_published_has(a->published, a->metric), n = 11,
        references = pl_audit_has_references(a) ? a->reference_count : 0;
    pl_table_column columns[13 + PL_AUDIT_REFERENCES] = {
        {"cell", "cell", NULL, PL_CELL_TEXT, 0},
        {"arm", "arm", NULL, PL_CELL_TEXT, 0},
        {"n", "n", NULL, PL_CELL_INTEGER, 0},
        {"planned", "of", NULL, PL_CELL_INTEGER, 0},
        {"diverged", "diverged", NULL, PL_CELL_INTEGER, 0},
        {"mean", "mean", NULL, PL_CELL_FIXED, d},
        {"ci95_lo", "from", "95 % CI", PL_CELL_FIXED, d},
        {"ci95_hi", "to", "95 % CI", PL_CELL_FIXED, d},
        {"sd", "sd", NULL, PL_CELL_FIXED, d},
        {"min", "min", NULL, PL_CELL_FIXED, d},
        {"max", "max", NULL, PL_CELL_FIXED, d},
    };
    if (published)
        columns[n++] =
            (pl_table_column){"published", "mean", pl_published_by(a->published), PL_CELL_FIXED, d};
    for (int k = 0; k < references; k++)
        columns[n++] = (pl_table_column){a->references[k]->name, a->references[k]->head, a->schema->reference,
                                         PL_CELL_FIXED, d};
    columns[n++] = (pl_table_column){"epochs", "epochs", NULL, PL_CELL_FIXED, 1};
    pl_table *t;
    PL_TRY(pl_table_create(&t, NULL, columns, n));
    for (int64_t i = 0; i < a->cell_count * a->arm_count; i++) {
        const pl_audit_arm *r = &a->arm_rows[i];
        const double numbers[] = {r->s.mean, r->s.ci_lo, r->s.ci_hi, r->s.sd, r->s.min, r->s.max};
        pl_table_row(t);
        pl_table_text(t, r->cell);
        pl_table_text(t, r->arm);
        pl_table_integer(t, r->s.n);
        pl_table_integer(t, r->planned);
        pl_table_integer(t, r->diverged);
        for (size_t j = 0; j < sizeof numbers / sizeof *numbers; j++) pl_table_maybe(t, numbers[j]);
        if (published) pl_table_maybe(t, pl_published_value(a->published, r->cell, r->arm, a->metric));
        for (int k = 0; k < references; k++) pl_table_maybe(t, r->reference[k]);
        pl_table_maybe(t, r->epochs);
    }
    polar_status st = pl_table_print(t, f, format);
    pl_table_destroy(t);
    return st;
}

polar_status pl_audit_pair_table(const pl_audit *a, FILE *f, pl_table_format format)
{
    int d = pl_audit_digits(a), fine = d < 9 ? d + 1 : 9, n = 15,
        published = pl_published_has(a->published, a->metric);
    const char *by = pl_published_by(a->published);
    pl_table_column columns[18] = {
        {"cell", "cell", NULL, PL_CELL_TEXT, 0},
        {"a", "a", NULL, PL_CELL_TEXT, 0},
        {"b", "b", NULL, PL_CELL_TEXT, 0},
        {"n", "n", NULL, PL_CELL_INTEGER, 0},
        {"incomplete", "lacking", NULL, PL_CELL_INTEGER, 0},
        {"mean_a", "a", "mean", PL_CELL_FIXED, d},
        {"mean_b", "b", "mean", PL_CELL_FIXED, d},
        {"mean_diff", "a - b", "mean", PL_CELL_FIXED, fine},
        {"ci95_lo", "from", "95 % CI", PL_CELL_FIXED, fine},
        {"ci95_hi", "to", "95 % CI", PL_CELL_FIXED, fine},
        {"t", "t", "paired", PL_CELL_FIXED, 2},
        {"p", "p", "paired", PL_CELL_SCI, 1},
        {"wilcoxon_p", "Wilcoxon p", NULL, PL_CELL_SCI, 1},
        {"positive", "+", "signs", PL_CELL_INTEGER, 0},
        {"negative", "-", "signs", PL_CELL_INTEGER, 0},
    };
    if (published) {
        columns[n++] = (pl_table_column){"published_diff", "a - b", by, PL_CELL_FIXED, fine};
        columns[n++] = (pl_table_column){"published_t", "t", by, PL_CELL_FIXED, 2};
        columns[n++] = (pl_table_column){"published_n", "n", by, PL_CELL_INTEGER, 0};
    }
    pl_table *t;
    PL_TRY(pl_table_create(&t, NULL, columns, n));
    for (int64_t i = 0; i < a->pair_count; i++) {
        const pl_audit_pair *p = &a->pairs[i];
        const double numbers[] = {p->s.mean_a, p->s.mean_b, p->s.mean_diff, p->s.ci_lo,
                                  p->s.ci_hi,  p->s.t,      p->s.p,         p->s.wilcoxon_p};
        pl_published_difference v = pl_published_pair_of(a->published, p->cell, p->a, p->b, a->metric);
        pl_table_row(t);
        pl_table_text(t, p->cell);
        pl_table_text(t, p->a);
        pl_table_text(t, p->b);
        pl_table_integer(t, p->s.n);
        pl_table_integer(t, p->incomplete);
        for (size_t j = 0; j < sizeof numbers / sizeof *numbers; j++) pl_table_maybe(t, numbers[j]);
        pl_table_integer(t, p->s.positive);
        pl_table_integer(t, p->s.negative);
        if (!published) continue;
        pl_table_maybe(t, v.mean);
        pl_table_maybe(t, v.t);
        if (v.n) pl_table_integer(t, v.n);
    }
    polar_status st = pl_table_print(t, f, format);
    pl_table_destroy(t);
    return st;
}

/* ---- incomplete pairs ---- */

int64_t pl_audit_missing_group(const pl_audit *a, int64_t i)
{
    int64_t n = 1;
    while (i + n < a->missing_count && a->missing[i + n].cell == a->missing[i].cell &&
           a->missing[i + n].seed == a->missing[i].seed)
        n++;
    return n;
}

/* Whether the groups at i and j lack the same arms of the same cell for the same reasons. */
static int same_group(const pl_audit *a, int64_t i, int64_t j)
{
    int64_t n = pl_audit_missing_group(a, i);
    if (pl_audit_missing_group(a, j) != n || a->missing[i].cell != a->missing[j].cell) return 0;
    for (int64_t k = 0; k < n; k++)
        if (a->missing[i + k].arm != a->missing[j + k].arm || a->missing[i + k].why != a->missing[j + k].why)
            return 0;
    return 1;
}

/* Seeds as "3", "3, 4", "3..9". */
static void add_range(pl_string *f, int64_t from, int64_t to, int first)
{
    pl_string_add(f, "%s%" PRId64, first ? "" : ", ", from);
    if (to == from + 1) pl_string_add(f, ", %" PRId64, to);
    else if (to > from) pl_string_add(f, "..%" PRId64, to);
}

/* One line: the group at i and every later one like it; marks nothing, so the caller asks first whether an
 * earlier one is alike. */
static void add_group(pl_string *f, const pl_audit *a, int64_t i)
{
    int64_t from = a->missing[i].seed, to = from, count = 1;
    int first = 1;
    pl_string_add(f, "%s, seed ", a->missing[i].cell);
    for (int64_t j = i + pl_audit_missing_group(a, i); j < a->missing_count;
         j += pl_audit_missing_group(a, j)) {
        if (!same_group(a, i, j)) continue;
        count++;
        if (a->missing[j].seed == to + 1) {
            to++;
            continue;
        }
        add_range(f, from, to, first);
        first = 0;
        from = to = a->missing[j].seed;
    }
    add_range(f, from, to, first);
    pl_string_add(f, " (%" PRId64 "): ", count);
    for (int64_t k = 0; k < pl_audit_missing_group(a, i); k++)
        pl_string_add(f, "%s%s %s", k ? ", " : "", a->missing[i + k].arm,
                      pl_audit_why_text(a->missing[i + k].why));
    pl_string_add(f, "\n");
}

polar_status pl_audit_missing_text(char **out, const pl_audit *a)
{
    pl_string s = {0};
    for (int64_t i = 0; i < a->missing_count; i += pl_audit_missing_group(a, i)) {
        int seen = 0;
        for (int64_t j = 0; j < i && !seen; j += pl_audit_missing_group(a, j)) seen = same_group(a, j, i);
        if (!seen) add_group(&s, a, i);
    }
    return pl_string_take(out, &s, "a list of incomplete pairs");
}

/* ---- the whole ---- */

static polar_status print_tests(const pl_audit *a, FILE *f)
{
    char target[160];
    fprintf(f,
            "\nEffect sizes (Hedges' g of the differences, 95 %% interval by the noncentral t) and p "
            "corrected by Holm "
            "for the %" PRId64 " tests here",
            a->tests);
    if (a->equivalence > 0)
        fprintf(f, ";\nequivalence p: two one-sided tests that a - b is within +-%g", a->equivalence);
    fputs("\n\n", f);
    PL_TRY(pl_audit_effect_table(a, f, PL_TABLE_TEXT));
    if (a->target == 0) return POLAR_OK;
    fprintf(f,
            "\nEpochs until %s (median by Kaplan and Meier, 95 %% interval by log-log; runs that did not "
            "reach it are "
            "censored at their planned epochs)\n\n",
            pl_audit_target_text(target, a));
    PL_TRY(pl_audit_target_table(a, f, PL_TABLE_TEXT));
    fputs("\nWho reaches it sooner, seed by seed (sign test of those that are known; restricted means with "
          "paired t)\n\n",
          f);
    return pl_audit_race_table(a, f, PL_TABLE_TEXT);
}

static polar_status print_text(const pl_audit *a, FILE *f)
{
    const char *better = pl_audit_better(a);
    fprintf(f, "%s: %s of every arm (mean over seeds, 95 %% interval by Student's t%s%s%s)\n\n", a->spec,
            a->metric, *better ? "; " : "", better, *better ? " is better" : "");
    PL_TRY(pl_audit_arm_table(a, f, PL_TABLE_TEXT));
    fprintf(f, "\nPaired differences a - b over the seeds both arms finished\n\n");
    PL_TRY(pl_audit_pair_table(a, f, PL_TABLE_TEXT));
    PL_TRY(print_tests(a, f));
    if (a->missing_count) {
        char *text;
        PL_TRY(pl_audit_missing_text(&text, a));
        fprintf(f, "\nIncomplete:\n%s", text);
        pl_free(text);
    }
    PL_NEED(!ferror(f), POLAR_E_IO, "the audit could not be written in full");
    return POLAR_OK;
}

polar_status pl_audit_print(const pl_audit *a, FILE *f, pl_table_format format)
{
    if (format == PL_TABLE_JSON) return pl_audit_json(a, f);
    if (format == PL_TABLE_TEXT) return print_text(a, f);
    return pl_audit_pair_table(a, f, format);
}
