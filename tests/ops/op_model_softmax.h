/* op_model_softmax.h -- the weights e^(scale (x - max)) of a row, of which softmax and cross entropy are
 * made. e^x is good to 4u of itself (an exponential good to 2 ulps) and 4 eta. */
#ifndef PL_VERIFY_OP_MODEL_SOFTMAX_H
#define PL_VERIFY_OP_MODEL_SOFTMAX_H

#include "op_model_sums.h"

static inline pl_iv exponential(pl_iv x, polar_dtype ct)
{
    long double u = pl_unit_roundoff(ct), eta = pl_least_half(ct);
    if (x.any || pl_iv_is_nan(x)) return x;
    pl_iv e = {expl(x.lo) * (1 - 4.01L * u) - 4 * eta, expl(x.hi) * (1 + 4.01L * u) + 4 * eta, 0};
    if (e.lo < 0) e.lo = 0;
    if (x.hi == 0 && e.hi < 1 + 4.01L * u) e.hi = 1 + 4.01L * u;
    /* 1, 0 and infinity are exact */
    return x.lo == x.hi && (x.lo == 0 || isinf(x.lo)) ? pl_iv_point(expl(x.lo)) : e;
}

static inline double largest(const pl_op_run *r, int o, int64_t b, int64_t i)
{
    double m = -INFINITY;
    /* passes a NaN over */
    for (int64_t k = 0; k < r->c.cols; k++) m = fmax(m, pl_op_run_before(r, o, b, i, k));
    return m;
}

/* e^(scale (x - max)) */
static inline pl_iv weight(const pl_op_run *r, int o, double m, pl_iv scale, int64_t b, int64_t i, int64_t k,
                           polar_dtype ct)
{
    return exponential(product(scale, sum(at(r, o, b, i, k), negative(pl_iv_point(m)), ct), ct), ct);
}

/* The sum of the weights of a row. */
static inline pl_iv weights(const pl_op_run *r, int o, double m, pl_iv scale, int64_t b, int64_t i,
                            polar_dtype ct)
{
    total t = {0};
    for (int64_t k = 0; k < r->c.cols; k++) add(&t, weight(r, o, m, scale, b, i, k, ct));
    return end(&t, along_row(r->c.cols), ct);
}

#endif
