/* op_expect_norm.c -- what Frobenius norms may be. */
#include "op_calls.h"
#include "op_model_impl.h"

#define F64  POLAR_DTYPE_F64
#define BF16 POLAR_DTYPE_BF16

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
            if (r->c.how.rounded) y = pl_round_to(y, BF16);
            S += y * y;
            whole = whole && is_small_whole(x);
        }
    if (!isfinite(S)) return pl_iv_point(S);
    whole = whole && S / s / s < 0x1p52L; /* sums of squares of whole numbers, in units of s^2 */
    pl_iv square = whole ? pl_iv_point(S)
                         : pl_iv_around(S, S * d * pl_unit_roundoff(F64) * 1.01L +
                                               (X->rows * X->cols) * pl_least_half(F64));
    if (square.lo < 0) square.lo = 0;
    return pl_iv_in(pl_iv_sqrt(product(pl_iv_point(r->c.how.alpha), square, F64)), F64);
}

MODEL(frob)
{
    return model_frob(r, b, j);
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

MODEL(frob_join)
{
    return model_join(r, j);
}

/* ---- wrong ops that must be caught, wrong calls that must be refused ---- */

static void frob_unscaled(pl_queue *q, const pl_args_frob *a)
{
    pl_ref_ops.frob(q, a);
    pl_store_f64(a->N.data, a->N.dtype, 0, 0.5 * pl_load_f64(a->N.data, a->N.dtype, 0));
}

static const fault frob_faults[] = {
    {"a norm in the wrong unit", "frob bf16 3x7x13 1", (op_fn)frob_unscaled},
};

static const bad_call frob_bad[] = {
    {0, FORMAT, 0, POLAR_E_DTYPE}, {0, COLS, 0, POLAR_E_SHAPE},  {1, BATCH, 0, POLAR_E_SHAPE},
    {1, SCALAR, 2, POLAR_E_ARG},   {1, NO_DATA, 0, POLAR_E_ARG},
};

const op_calls pl_calls_frob = {"frob f32 3x7x13 1", LIST(frob_bad), LIST(frob_faults)};

static const bad_call frob_join_bad[] = {
    {0, BATCH, 0, POLAR_E_SHAPE},
    {1, COLS, 0, POLAR_E_SHAPE},
    {1, FORMAT, 0, POLAR_E_DTYPE},
};

const op_calls pl_calls_frob_join = {"frob_join f64 3x1x2", LIST(frob_join_bad), NULL, 0};
