/* op_model_sums.h -- sums in the models, and pairs.
 *
 *     of n numbers (running): |s^ - s| <= gamma_n S + n eta, S = sum of magnitudes (op_model.h), 0 where
 *     whole numbers keep every partial sum below 1/u
 *     of n terms, each known to an interval (total): the sum of the ends, give or take gamma_p S + n eta
 *
 * p: the additions behind a term: over a row ceil(n / 32) + 5 (lanes), over rows min(n, 64) + ceil(n / 2048)
 * + 5 (chunks), and one more where the term is a product, fused or not.
 */
#ifndef PL_VERIFY_OP_MODEL_SUMS_H
#define PL_VERIFY_OP_MODEL_SUMS_H

#include "op_model_impl.h"

/* ---- of numbers ---- */

typedef struct {
    long double s, S, terms;
    double special; /* of terms that are infinite or NaN: 0 or not finite */
    int whole;
} running;

static inline void add_term(running *a, double x, double y)
{
    a->terms++;
    if (!isfinite(x) || !isfinite(y)) { /* apart: x87 takes a hundred times longer over such sums */
        a->special += x * y;
        return;
    }
    long double p = (long double)x * y;
    a->s += p;
    a->S += fabsl(p);
    a->whole = a->whole && is_small_whole(x) && is_small_whole(y);
}

/* The sum, with `path` roundings behind any of its terms. */
static inline pl_iv end_sum(const running *a, long double path, polar_dtype ct)
{
    /* of s itself: long double has 64 bits or more */
    long double u = pl_unit_roundoff(ct),
                own = pl_unit_roundoff(POLAR_DTYPE_F64) / 2048 * (a->terms + 1) * a->S;
    if (sizeof(long double) == sizeof(double)) own *= 2048;
    if (a->S * (1 + 2 * path * u) >= pl_largest(ct)) return anything; /* may overflow on the way */
    if (a->special != 0) return pl_iv_point(a->special);
    if (a->whole && a->S < 1 / u) return pl_iv_point(a->s);
    return pl_iv_in(pl_iv_around(a->s, path * u / (1 - path * u) * a->S + a->terms * pl_least_half(ct) + own),
                    ct);
}

/* ---- of intervals ---- */

typedef struct {
    pl_iv s;
    long double S;
    int64_t n;
} total;

static inline void add(total *t, pl_iv x)
{
    t->s = pl_iv_add(t->s, x);
    /* where one is not finite, nor is s, and S is not asked for */
    if (isfinite(x.lo) && isfinite(x.hi)) t->S += fmaxl(fabsl(x.lo), fabsl(x.hi));
    t->n++;
}

static inline pl_iv end(const total *t, int64_t path, polar_dtype ct)
{
    long double u = pl_unit_roundoff(ct), p = (long double)path;
    if (t->s.any || pl_iv_is_nan(t->s)) return t->s;
    if (isinf(t->s.lo) || isinf(t->s.hi)) return t->s.lo == t->s.hi ? t->s : anything;
    if (!(t->S * (1 + 2 * p * u) < pl_largest(ct))) return anything; /* may overflow on the way */
    pl_iv err = pl_iv_around(0, p * u / (1 - p * u) * t->S + (long double)t->n * pl_least_half(ct));
    return t->S == 0 ? t->s : pl_iv_in(pl_iv_add(t->s, err), ct);
}

static inline int64_t along_row(int64_t n)
{
    return (n + 31) / 32 + 5;
}

static inline int64_t down_rows(int64_t n)
{
    return (n < 64 ? n : 64) + (n + 2047) / 2048 + 5;
}

static inline pl_iv mean_of(const total *t, int64_t path, int64_t n, polar_dtype ct)
{
    return pl_iv_in(pl_iv_div(end(t, path, ct), pl_iv_point((long double)n)), ct);
}

/* ---- pairs i <= j, counted row by row ---- */

static inline int64_t pair(int64_t n, int64_t i, int64_t j)
{
    int64_t row = 0, lo = i < j ? i : j, hi = i < j ? j : i;
    for (int64_t k = 0; k < lo; k++) row += n - k;
    return row + hi - lo;
}

/* The points of row `row` among the pairs. */
static inline void points_of(int64_t *i, int64_t *j, int64_t n, int64_t row)
{
    for (*i = 0; row >= n - *i; (*i)++) row -= n - *i;
    *j = *i + row;
}

/* ---- in three dimensions ---- */

static inline pl_iv pl_square_sum(const pl_iv d[3], polar_dtype ct)
{
    pl_iv s = pl_iv_point(0);
    for (int k = 0; k < 3; k++) {
        pl_iv square = pl_iv_mul(d[k], d[k]);
        if (square.lo < 0) square.lo = 0;
        s = sum(s, pl_iv_in(square, ct), ct); /* fused or not */
    }
    return s;
}

#endif
