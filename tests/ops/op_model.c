/* op_model.c -- see op_model.h. Letters as in ops.def. */
#include "op_model.h"

#include <math.h>

#include "device/backend.h"
#include "verify/ops/op_case_impl.h"
#include "op_model_impl.h"

#define F64  POLAR_DTYPE_F64
#define BF16 POLAR_DTYPE_BF16

static pl_iv model_copy(const pl_op_run *r, int64_t b, int64_t i, int64_t j)
{
    return r->c.flags & PL_CASE_TRANS ? at(r, 1, b, j, i) : at(r, 1, b, i, j);
}

static pl_iv model_axpby(const pl_op_run *r, int64_t b, int64_t i, int64_t j, polar_dtype ct)
{
    pl_iv alpha = scalar(r->c.alpha, ct), beta = scalar(r->c.beta, ct), x = at(r, 1, b, i, j),
          z = r->c.flags & PL_CASE_ADDEND ? at(r, 2, b, i, j) : pl_iv_point(0);
    if (r->c.flags & PL_CASE_ROUND_TERMS)
        return sum(pl_iv_round(product(alpha, x, ct), BF16), pl_iv_round(product(beta, z, ct), BF16), ct);
    return fused(alpha, x, product(beta, z, ct), ct);
}

/* The sum over k, in any order. */
static pl_iv model_sum(const pl_op_run *r, int64_t b, int64_t i, int64_t j, polar_dtype ct)
{
    int ta = !!(r->c.flags & PL_CASE_TA), tb = !!(r->c.flags & PL_CASE_TB), whole = 1;
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
static pl_iv model_gemm(const pl_op_run *r, int64_t b, int64_t i, int64_t j, polar_dtype ct)
{
    pl_iv acc = pl_iv_in(model_sum(r, b, i, j, ct), ct),
          d = r->c.flags & PL_CASE_ADDEND ? at(r, 3, b, i, j) : pl_iv_point(0);
    return sum(product(scalar(r->c.alpha, ct), acc, ct), product(scalar(r->c.beta, ct), d, ct), ct);
}

/* The power of two for a matrix whose largest magnitude is amax, from frexp's definition of the exponent. */
static double scale_of(double amax, polar_dtype dtype)
{
    int e, limit = dtype == F64 ? 1022 : 126;
    if (amax == 0 || !isfinite(amax)) return 1;
    frexp(amax, &e);
    e -= 1;
    return ldexp(1, -(e > limit ? limit : e < -limit ? -limit : e));
}

static pl_iv model_frob(const pl_op_run *r, int64_t b, int64_t which)
{
    const pl_mat *X = &r->mat[1];
    double amax = 0;
    int nan = 0, whole = 1;
    long double S = 0, d = (long double)((X->rows + 31) / 32 + (X->cols + 31) / 32 + 11);
    for (int64_t i = 0; i < X->rows; i++)
        for (int64_t j = 0; j < X->cols; j++) {
            double x = pl_op_run_before(r, 1, b, i, j);
            nan |= isnan(x);
            amax = fmax(amax, fabs(x));
        }
    double s = scale_of(amax, X->dtype);
    /* the unit of a NaN norm means nothing */
    if (which == 0) return nan ? (pl_iv){-INFINITY, INFINITY, 1} : pl_iv_point(s);
    for (int64_t i = 0; i < X->rows; i++)
        for (int64_t j = 0; j < X->cols; j++) {
            double x = pl_op_run_before(r, 1, b, i, j);
            long double y = (long double)x * s;
            if (r->c.flags & PL_CASE_ROUNDED) y = pl_round_to(y, BF16);
            S += y * y;
            whole = whole && is_small_whole(x);
        }
    if (!isfinite(S)) return pl_iv_point(S);
    whole = whole && S / s / s < 0x1p52L; /* sums of squares of whole numbers, in units of s^2 */
    pl_iv square = whole ? pl_iv_point(S)
                         : pl_iv_around(S, S * d * pl_unit_roundoff(F64) * 1.01L +
                                               (X->rows * X->cols) * pl_least_half(F64));
    if (square.lo < 0) square.lo = 0;
    return pl_iv_in(pl_iv_sqrt(product(pl_iv_point(r->c.alpha), square, F64)), F64);
}

/* Parts in units of the smallest s of a part that is not zero. */
static pl_iv model_join(const pl_op_run *r, int64_t which)
{
    int64_t parts = r->mat[1].batch;
    double s = 0;
    long double S = 0;
    for (int64_t b = 0; b < parts; b++) {
        double unit = pl_op_run_before(r, 1, b, 0, 0);
        if (pl_op_run_before(r, 1, b, 0, 1) != 0 && (s == 0 || unit < s)) s = unit;
    }
    if (which == 0) return pl_iv_point(s == 0 ? 1 : s);
    for (int64_t b = 0; b < parts; b++) {
        long double n = pl_op_run_before(r, 1, b, 0, 1);
        if (n != 0) n *= s / (long double)pl_op_run_before(r, 1, b, 0, 0);
        S += n * n;
    }
    if (!isfinite(S)) return pl_iv_point(S);
    /* a part more than 2^537 below the largest, whose norm is at least 1, may underflow: absolutely below
     * 2^-1022 */
    pl_iv square = pl_iv_around(S, S * (long double)((parts + 31) / 32 + 9) * pl_unit_roundoff(F64) * 1.01L +
                                       parts * 0x1p-1022L);
    if (square.lo < 0 || S == 0) square.lo = 0;
    return pl_iv_in(pl_iv_sqrt(S == 0 ? pl_iv_point(0) : square), F64);
}

static pl_iv model_normalise(const pl_op_run *r, int64_t b, int64_t i, int64_t j, polar_dtype ct)
{
    int64_t nb = r->mat[2].batch == 1 ? 0 : b;
    double unit = pl_op_run_before(r, 2, nb, 0, 0), norm = pl_op_run_before(r, 2, nb, 0, 1);
    pl_iv s = scalar(unit, ct), n = scalar(norm, ct), x = product(at(r, 1, b, i, j), s, ct),
          eps = product(scalar(r->c.eps, ct), s, ct);
    if (!(r->c.flags & PL_CASE_REFERENCE)) {
        if (n.lo < eps.lo) n = eps;
        return n.lo == 0 ? pl_iv_point(0) : pl_iv_in(pl_iv_div(x, n), ct);
    }
    pl_iv t = pl_iv_round(sum(pl_iv_round(n, BF16), eps, ct), BF16);
    if (t.lo == 0 && t.hi == 0) return pl_iv_point(0);
    return pl_iv_round(pl_iv_in(pl_iv_div(pl_iv_round(x, BF16), t), ct), BF16);
}

/* Live value j of matrix b, operand o. */
static double live(const pl_op_run *r, int o, int64_t b, int64_t j)
{
    return pl_op_run_before(r, o, r->mat[o].batch == 1 ? 0 : b, 0, j);
}

/* Result o of a direction: 0 D, 1 M, 2 V. */
static pl_iv model_direction(const pl_op_run *r, int o, int64_t b, int64_t i, int64_t j, polar_dtype ct)
{
    const pl_op_case *c = &r->c;
    int64_t momentum = pl_op_case_momentum(c);
    int average = momentum >= POLAR_MOMENTUM_EMA,
        nesterov = momentum == POLAR_MOMENTUM_NESTEROV || momentum == POLAR_MOMENTUM_AVERAGE_NESTEROV;
    pl_iv g = product(at(r, 3, b, i, j), scalar(live(r, 4, b, PL_LIVE_GRAD), ct), ct),
          part = average ? product(scalar(1 - c->alpha, ct), g, ct) : g, beta1 = scalar(c->alpha, ct),
          m = pl_iv_point(0), v = m;
    if (o != 2) m = fused(beta1, at(r, 1, b, i, j), part, ct);
    if (o == 1) return m;
    pl_iv u = momentum == POLAR_MOMENTUM_EMA ? product(m, scalar(live(r, 4, b, PL_LIVE_C1), ct), ct)
              : nesterov                     ? fused(beta1, m, part, ct)
                                             : m;
    if (c->flags & PL_CASE_PLAIN) return u;
    v = fused(scalar(c->beta, ct), at(r, 2, b, i, j), product(product(scalar(1 - c->beta, ct), g, ct), g, ct),
              ct);
    if (o == 2) return v;
    pl_iv root = pl_iv_in(pl_iv_sqrt(product(v, scalar(live(r, 4, b, PL_LIVE_C2), ct), ct)), ct);
    return pl_iv_in(pl_iv_div(u, sum(root, scalar(c->eps, ct), ct)), ct);
}

/* A step from w along d at the learning rate lr; a frozen weight stays. */
static pl_iv model_step(pl_iv w, pl_iv d, double lr, double wd, double scale, polar_dtype ct)
{
    if (lr == 0) return w;
    pl_iv rate = scalar(lr, ct), keep = fused(negative(rate), scalar(wd, ct), pl_iv_point(1), ct);
    return fused(negative(product(rate, scalar(scale, ct), ct)), d, product(w, keep, ct), ct);
}

static pl_iv model_decay(const pl_op_run *r, int64_t b, int64_t i, int64_t j, polar_dtype ct)
{
    return model_step(at(r, 0, b, i, j), at(r, 1, b, i, j), live(r, 2, b, PL_LIVE_LR),
                      live(r, 2, b, PL_LIVE_WD), r->c.alpha, ct);
}

static pl_iv model_adamw(const pl_op_run *r, int o, int64_t b, int64_t i, int64_t j, polar_dtype ct)
{
    pl_iv x = model_direction(r, o, b, i, j, ct); /* for o = 0 the direction, which is not stored */
    return o ? x
             : model_step(at(r, 0, b, i, j), x, live(r, 4, b, PL_LIVE_LR), live(r, 4, b, PL_LIVE_WD), 1, ct);
}

/* The flag b: what it was, or 1 where an entry it stands for is not finite. */
static pl_iv model_nonfinite(const pl_op_run *r, int64_t b)
{
    const pl_mat *G = &r->mat[1];
    int one = r->mat[0].batch == 1;
    for (int64_t k = one ? 0 : b; k < (one ? G->batch : b + 1); k++)
        for (int64_t i = 0; i < G->rows; i++)
            for (int64_t j = 0; j < G->cols; j++)
                if (!isfinite(pl_op_run_before(r, 1, k, i, j))) return pl_iv_point(1);
    return at(r, 0, b, 0, 0);
}

/* 1 / (1 - beta^t). A power by squares doubles its error with every square and adds one rounding with every
 * product: at most 2 t of them. */
static pl_iv model_correction(double beta, double t)
{
    long double power = powl(beta, t);
    pl_iv p = pl_iv_around(power, power * 2 * t * pl_unit_roundoff(F64) * 1.01L);
    return pl_iv_in(pl_iv_div(pl_iv_point(1), sum(pl_iv_point(1), negative(p), F64)), F64);
}

/* Result o of advance: 0 L, 1 T, 2 F. */
static pl_iv model_advance(const pl_op_run *r, int o, int64_t b, int64_t j)
{
    if (o == 2) return pl_iv_point(0);
    int found = r->c.flags & PL_CASE_ADDEND && pl_op_run_before(r, 3, 0, 0, 0) != 0;
    int flagged = found || pl_op_run_before(r, 2, b % r->mat[2].batch, 0, 0) != 0,
        host = pl_op_run_before(r, 0, b, 0, PL_LIVE_SKIP) == 1;
    double steps = pl_op_run_before(r, 1, b, 0, 0) + (!flagged && !host);
    if (o == 1) return pl_iv_point(j == 0 ? steps : pl_op_run_before(r, 1, b, 0, 1) + (flagged && !host));
    if (j == PL_LIVE_SKIP) return pl_iv_point(host ? 1 : flagged ? PL_SKIP_FLAG : 0);
    if (j == PL_LIVE_GRAD && r->c.flags & PL_CASE_ADDEND)
        return pl_iv_point(1 / pl_op_run_before(r, 4, 0, 0, 0));
    if (j == PL_LIVE_C1 && !flagged && !host) return model_correction(r->c.alpha, steps);
    if (j == PL_LIVE_C2 && !flagged && !host) return model_correction(r->c.beta, steps);
    return at(r, 0, b, 0, j);
}

pl_iv pl_op_model(const pl_op_run *r, int operand, int64_t b, int64_t i, int64_t j)
{
    polar_dtype ct = pl_op_case_compute(&r->c);
    if (pl_op_run_left_out(r, b)) return at(r, operand, b, i, j);
    switch (r->c.op) {
    case PL_OP_copy: return model_copy(r, b, i, j);
    case PL_OP_axpby: return model_axpby(r, b, i, j, ct);
    case PL_OP_gemm: return model_gemm(r, b, i, j, ct);
    case PL_OP_frob: return model_frob(r, b, j);
    case PL_OP_frob_join: return model_join(r, j);
    case PL_OP_normalise: return model_normalise(r, b, i, j, ct);
    case PL_OP_direction: return model_direction(r, operand, b, i, j, ct);
    case PL_OP_decay_step: return model_decay(r, b, i, j, ct);
    case PL_OP_adamw_step: return model_adamw(r, operand, b, i, j, ct);
    case PL_OP_nonfinite: return model_nonfinite(r, b);
    case PL_OP_advance: return model_advance(r, operand, b, j);
    default: return (pl_vit_case(r->c.op) ? pl_vit_model : pl_nn_model)(r, operand, b, i, j, ct);
    }
}
