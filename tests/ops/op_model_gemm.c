/* op_model_gemm.c -- what products may return. */
#include "device/backend.h"
#include "op_model_impl.h"

#define F64  POLAR_DTYPE_F64
#define BF16 POLAR_DTYPE_BF16

/* The sum over k, in any order. */
static pl_iv model_sum(const pl_op_run *r, int64_t b, int64_t i, int64_t j, polar_dtype ct)
{
    int ta = r->c.how.ta != 0, tb = r->c.how.tb != 0, whole = 1;
    int flushes = r->dev->flushes && r->c.dtype[1] == BF16 && ct == POLAR_DTYPE_F32;
    long double s = 0, S = 0, lost = 0, K = (long double)r->c.K, u = pl_unit_roundoff(ct);
    for (int64_t k = 0; k < r->c.K; k++) {
        double x = ta ? pl_op_run_before(r, 1, b, k, i) : pl_op_run_before(r, 1, b, i, k),
               y = tb ? pl_op_run_before(r, 2, b, j, k) : pl_op_run_before(r, 2, b, k, j);
        long double p = (long double)x * y;
        s += p;
        if (isfinite(p)) S += fabsl(p);
        /* a subnormal factor may count as zero; bf16 has float's exponents */
        if (flushes && isfinite(p) && (fabs(x) < 0x1p-126 || fabs(y) < 0x1p-126)) lost += fabsl(p);
        whole = whole && is_small_whole(x) && is_small_whole(y);
    }
    if (S * (1 + 2 * K * u) >= pl_largest(ct)) return (pl_iv){-INFINITY, INFINITY, 1};
    if (!isfinite(s)) return pl_iv_point(s);
    if (whole && S < 1 / u) return pl_iv_point(s);
    /* of s itself: long double has 64 bits or more */
    long double own = pl_unit_roundoff(F64) / 2048 * (K + 1) * S;
    if (sizeof(long double) == sizeof(double)) own *= 2048;
    /* ... and so may each sum on the way: K products, their sums by halves of 32, what they are added to */
    if (flushes) lost += 2 * (K + 2) * 0x1p-126L;
    return pl_iv_around(s, K * u / (1 - K * u) * S + K * pl_least_half(ct) + own + lost);
}

/* The epilogue may be fused or not: vendors' libraries do not say. */
MODEL(gemm)
{
    pl_iv acc = pl_iv_in(model_sum(r, b, i, j, ct), ct), d = has(r, 3) ? at(r, 3, b, i, j) : pl_iv_point(0);
    return sum(product(scalar(r->c.how.alpha, ct), acc, ct), product(scalar(r->c.how.beta, ct), d, ct), ct);
}
