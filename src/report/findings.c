/* findings.c -- see findings.h. */
#include "report/findings.h"

#include <inttypes.h>
#include <math.h>

#include "base/string_build.h"
#include "report/audit/audit_print.h"

#define MOST_ARMS 32

/* Arms of the cell that have a mean, the best first (the least, where neither way is better); equal ones in
 * plan order. How many. */
static int sort_arms(const pl_audit_arm *out[MOST_ARMS], const pl_audit *a, int64_t cell)
{
    int n = 0, sign = a->shown.better > 0 ? -1 : 1;
    for (int64_t r = 0; r < a->arm_count && n < MOST_ARMS; r++) {
        const pl_audit_arm *row = &a->arm_rows[cell * a->arm_count + r];
        if (isnan(row->s.mean)) continue;
        int at = n++;
        for (; at && sign * out[at - 1]->s.mean > sign * row->s.mean; at--) out[at] = out[at - 1];
        out[at] = row;
    }
    return n;
}

static const pl_audit_pair *find_pair(const pl_audit *a, const pl_audit_arm *x, const pl_audit_arm *y)
{
    for (int64_t i = 0; i < a->pair_count; i++) {
        const pl_audit_pair *p = &a->pairs[i];
        if (p->cell == x->cell && ((p->a == x->arm && p->b == y->arm) || (p->a == y->arm && p->b == x->arm)))
            return p;
    }
    return NULL;
}

/* "polaradamw - muon = +0.00070 [0.00042, 0.00098], p = 3e-06, 71 of 100 pairs positive": the arm with the
 * larger mean first, so a positive one agrees with the means. */
static void add_pair(pl_string *s, const pl_audit_pair *p, const pl_audit_arm *larger, int d)
{
    double sign = p->a == larger->arm ? 1 : -1;
    double lo = sign > 0 ? p->s.ci_lo : -p->s.ci_hi, hi = sign > 0 ? p->s.ci_hi : -p->s.ci_lo;
    if (!p->s.n) return;
    pl_string_add(s, "\n%s - %s = %+.*f", larger->arm, sign > 0 ? p->b : p->a, d, sign * p->s.mean_diff);
    if (!isnan(p->s.p)) pl_string_add(s, " [%.*f, %.*f], p = %.1g", d, lo, d, hi, p->s.p);
    pl_string_add(s, ", %" PRId64 " of %" PRId64 " pairs positive", sign > 0 ? p->s.positive : p->s.negative,
                  p->s.n);
}

polar_status pl_findings_cell(char **out, const pl_audit *a, int64_t cell)
{
    const pl_audit_arm *arms[MOST_ARMS];
    int n = sort_arms(arms, a, cell), d = pl_audit_digits(a), rising = a->shown.better > 0;
    pl_string s = {0};
    pl_string_add(&s, "%s: ", a->cells[cell]);
    if (!n) pl_string_add(&s, "no finished runs yet");
    for (int i = 0; i < n; i++)
        pl_string_add(&s, "%s%s %.*f",
                      !i                                       ? ""
                      : arms[i]->s.mean == arms[i - 1]->s.mean ? " = "
                      : rising                                 ? " > "
                                                               : " < ",
                      arms[i]->arm, d, arms[i]->s.mean);
    if (n && a->reference_count && !isnan(arms[0]->reference[0]))
        pl_string_add(&s, " (%s: %.*f)", a->references[0]->line, d, arms[0]->reference[0]);
    for (int i = 1; i < n; i++) {
        const pl_audit_pair *p = find_pair(a, arms[i], arms[i - 1]);
        if (p) add_pair(&s, p, arms[rising ? i - 1 : i], d < 9 ? d + 1 : 9);
    }
    return pl_string_take(out, &s, "a sentence");
}
