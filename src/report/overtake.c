/* overtake.c -- see overtake.h. */
#include "report/overtake.h"

#include <math.h>

#include "base/alloc.h"

int64_t pl_ahead_since(const double *a, const double *b, int64_t count, int higher)
{
    int64_t e = count;
    while (e > 0 && (higher ? a[e - 1] > b[e - 1] : a[e - 1] < b[e - 1])) e--;
    return e < count ? e + 1 : 0;
}

static const pl_store_epochs *rows_of(const pl_overtake_side *x, int64_t seed)
{
    int64_t at = pl_section_seed(x->section, seed);
    return at < 0 ? NULL : pl_section_epochs(x->section, x->cell, at, x->arm);
}

/* Epochs 1..count of a run, all there and finite. */
static int64_t whole_epochs(const pl_store_epochs *e)
{
    int64_t n = 0;
    while (e && n < e->count && e->rows[n].epoch == n + 1 && isfinite(e->rows[n].valid)) n++;
    return n;
}

/* One seed: its own lead, and its values added to the sums. */
static void add_seed(pl_overtake *out, const pl_store_epochs *ea, const pl_store_epochs *eb, double *work,
                     int higher)
{
    int64_t n = out->epochs;
    double *va = work, *vb = va + n, *sum_a = vb + n, *sum_b = sum_a + n;
    for (int64_t e = 0; e < n; e++) {
        sum_a[e] += va[e] = ea->rows[e].valid;
        sum_b[e] += vb[e] = eb->rows[e].valid;
    }
    int64_t since = pl_ahead_since(va, vb, n, higher);
    if (!since) return;
    if (!out->ahead || since < out->least) out->least = since;
    if (since > out->most) out->most = since;
    out->ahead++;
}

polar_status pl_overtake_measure(pl_overtake *out, const pl_overtake_side *a, const pl_overtake_side *b,
                                 int64_t at)
{
    const pl_audit *audit = a->section->audit;
    int higher = a->section->kind.higher;
    *out = (pl_overtake){.gap = NAN, .at_a = NAN, .at_b = NAN};
    for (int64_t k = 0; k < audit->seed_count; k++) {
        int64_t na = whole_epochs(rows_of(a, audit->seeds[k])),
                nb = whole_epochs(rows_of(b, audit->seeds[k])), n = na < nb ? na : nb;
        if (!n) continue;
        if (!out->n++ || n < out->epochs) out->epochs = n;
    }
    int64_t n = out->epochs;
    if (!n) return POLAR_OK;
    double *work = pl_calloc(4 * (size_t)n, sizeof *work);
    PL_NEED(work, POLAR_E_NOMEM, "two curves of %lld epochs", (long long)n);
    for (int64_t k = 0; k < audit->seed_count; k++) {
        const pl_store_epochs *ea = rows_of(a, audit->seeds[k]), *eb = rows_of(b, audit->seeds[k]);
        if (whole_epochs(ea) && whole_epochs(eb)) add_seed(out, ea, eb, work, higher);
    }
    for (int64_t e = 2 * n; e < 4 * n; e++) work[e] /= (double)out->n;
    const double *mean_a = work + 2 * n, *mean_b = work + 3 * n;
    out->since = pl_ahead_since(mean_a, mean_b, n, higher);
    out->gap = mean_a[n - 1] - mean_b[n - 1];
    if (at > 0 && at <= n) {
        out->at_a = mean_a[at - 1];
        out->at_b = mean_b[at - 1];
    }
    pl_free(work);
    return POLAR_OK;
}
