/* op_expect_activation.c -- what activations may return: f(x) for x in [lo, hi] is f of the middle, give or
 * take the half width times a bound of |f'| there, and the error of the computation:
 *
 *     e = e^-|x| within 4u (an exponential good to 2 ulps) and 4 eta
 *     1 / (1 + e): e's error counts at most half, the sum and the quotient u each: 4u s
 *     e / (1 + e): 4u and those two and the product's rounding: 7u s + 5 eta -> sigmoid: 7u s + 5 eta
 *     x s: |x| times that, and one rounding                          -> silu: 8u |x s| + (5 |x| + 1) eta
 *     s (1 - s): both factors, and one rounding: 4u + 7u + u of it, 5 eta of the small factor, and eta
 *                                                                    -> sigmoid': 12u s (1-s) + 6 eta
 *     s y, y = 1 + x (1 - s): err(y) = |x| (7u (1-s) + 5 eta) + u |y|;
 *         s err(y) + |y| (7u s + 5 eta) + u |s y| + eta                              -> silu'
 *     t = Phi(-|x|) within 22u and 3 eta (an exponential, a polynomial good to 16u);
 *         Phi(x) = t, or 1 - t with one rounding; x Phi: |x| times that, and one -> gelu
 *     Phi + x bell / sqrt(2 pi): bell within 5u and 4 eta, its factor two roundings and the constant's: 8u,
 *         2 |x| eta; one rounding                                                    -> gelu'
 */
#include "op_calls.h"
#include "op_model_impl.h"

#define F64 POLAR_DTYPE_F64

static long double sigmoid(long double x)
{
    return x >= 0 ? 1 / (1 + expl(-x)) : expl(x) / (1 + expl(x));
}

static long double normal(long double x)
{
    return 0.5L * erfcl(-x * 0.70710678118654752440084436210484904L);
}

/* x e^(-x^2 / 2) / sqrt(2 pi) */
static long double bell(long double x)
{
    return x * expl(-0.5L * x * x) * 0.39894228040143267793994605993438187L;
}

static long double value_of(curve f, long double x)
{
    static const long double below[] = {0, 0, 0, 0, 0, 0}, above[] = {1, 0, INFINITY, 1, INFINITY, 1};
    if (isinf(x)) return x < 0 ? below[f] : above[f];
    if (f == GELU) return x * normal(x);
    if (f == GELU_SLOPE) return normal(x) + bell(x);
    long double s = sigmoid(x), rest = sigmoid(-x);
    return f == SIGMOID ? s : f == SIGMOID_SLOPE ? s * rest : f == SILU ? x * s : s * (1 + x * rest);
}

/* A bound of |f'| where |x| >= m and, if `left`, x < 0: of sigmoid s' = s (1 - s) <= e^-m, 1/4; of s' |s''|
 * <= s', 0.0963; of silu |silu'| <= (1 + m) e^-m on the left, 1.1; of silu' |silu''| = |s' (2 + x (1 - 2s))|
 * <= (2 + m) e^-m, 1/2. The products with m fall from m = 1 on. gelu and its slope: 1.13 and (1 + m) e^(-m^2
 * / 2) on the left; |phi (2 - x^2)| <= 0.8, (2 + m^2) e^(-m^2 / 2). */
static long double slope_bound(curve f, long double m, int left)
{
    long double e = expl(-m);
    switch (f) {
    case SIGMOID: return fminl(0.25L, e);
    case SIGMOID_SLOPE: return fminl(0.0963L, e);
    case SILU: return left && m > 1 ? fminl(1.1L, (1 + m) * e) : 1.1L;
    case GELU: return left && m > 1 ? fminl(1.13L, (1 + m) * expl(-0.5L * m * m)) : 1.13L;
    case GELU_SLOPE: return fminl(0.8L, (2 + m * m) * expl(-0.5L * m * m));
    default: return m > 1 ? fminl(0.5L, (2 + m) * e) : 0.5L;
    }
}

static long double error_bound(curve f, long double x, polar_dtype ct)
{
    long double u = pl_unit_roundoff(ct), eta = pl_least_half(ct), s = sigmoid(x), rest = sigmoid(-x),
                y = 1 + x * rest;
    long double phi = 22 * u * normal(-fabsl(x)) + 3 * eta + (x >= 0 ? u : 0); /* of Phi(x) */
    switch (f) {
    case SIGMOID: return 7 * u * s + 5 * eta;
    case SIGMOID_SLOPE: return 12 * u * s * rest + 6 * eta;
    case SILU: return 8 * u * fabsl(x * s) + (5 * fabsl(x) + 1) * eta;
    case GELU: return fabsl(x) * phi + u * fabsl(x * normal(x)) + eta;
    case GELU_SLOPE:
        return phi + 8 * u * fabsl(bell(x)) + (2 * fabsl(x) + 1) * eta + u * fabsl(normal(x) + bell(x));
    default:
        return s * (fabsl(x) * (7 * u * rest + 5 * eta) + u * fabsl(y)) + fabsl(y) * (7 * u * s + 5 * eta) +
               u * fabsl(s * y) + eta;
    }
}

pl_iv pl_model_curve(curve f, pl_iv x, polar_dtype ct)
{
    if (x.any || pl_iv_is_nan(x)) return x;
    if (isinf(x.lo) || isinf(x.hi)) return x.lo == x.hi ? pl_iv_point(value_of(f, x.lo)) : anything;
    long double mid = x.lo + (x.hi - x.lo) / 2, half = (x.hi - x.lo) / 2,
                near = x.lo > 0   ? x.lo
                       : x.hi < 0 ? -x.hi
                                  : 0;
    /* |x| times e^-|x|: past here all is 0, in long double too */
    long double far = 12000, end = mid > far ? far : mid < -far ? -far : mid;
    if ((f == SILU || f == GELU) && mid > far) end = mid;
    return pl_iv_around(value_of(f, mid),
                        1.01L * error_bound(f, end, ct) + half * slope_bound(f, near, x.hi < 0));
}

static pl_iv biased(const pl_op_run *r, int64_t b, int64_t i, int64_t j, polar_dtype ct)
{
    pl_iv x = at(r, 1, b, i, j);
    return has(r, 2) ? sum(x, at(r, 2, r->mat[2].batch == 1 ? 0 : b, 0, j), ct) : x;
}

MODEL(bias_act)
{
    pl_iv x = biased(r, b, i, j, ct);
    int64_t act = r->c.how.act;
    return act == PL_ACT_NONE ? x
                              : pl_model_curve(act == PL_ACT_SILU   ? SILU
                                               : act == PL_ACT_GELU ? GELU
                                                                    : SIGMOID,
                                               x, ct);
}

MODEL(bias_act_back)
{
    pl_iv dy = at(r, 3, b, i, j);
    int64_t act = r->c.how.act;
    return act == PL_ACT_NONE ? dy
                              : product(dy,
                                        pl_model_curve(act == PL_ACT_SILU   ? SILU_SLOPE
                                                       : act == PL_ACT_GELU ? GELU_SLOPE
                                                                            : SIGMOID_SLOPE,
                                                       biased(r, b, i, j, ct), ct),
                                        ct);
}

/* ---- wrong ops that must be caught, wrong calls that must be refused ---- */

/* 20 ulps of float on every result: more than the bound of the computation and less than anything else here.
 */
static void silu_twenty_ulps_off(pl_queue *q, const pl_args_bias_act *a)
{
    pl_ref_ops.bias_act(q, a);
    scale_all(&a->Y, 1 + 20 * 0x1p-23);
}

static void bias_of_the_first(pl_queue *q, const pl_args_bias_act *a)
{
    pl_args_bias_act wrong = *a;
    wrong.b.batch = 1;
    pl_ref_ops.bias_act(q, &wrong);
}

/* Gelu's other form, by tanh: off by up to 5e-4. */
static void gelu_by_tanh(pl_queue *q, const pl_args_bias_act *a)
{
    (void)q;
    for (int64_t b = 0; b < a->Y.batch; b++)
        for (int64_t i = 0; i < a->Y.rows; i++)
            for (int64_t j = 0; j < a->Y.cols; j++) {
                double x = get(&a->X, b, i, j);
                put(&a->Y, b, i, j, 0.5 * x * (1 + tanh(0.79788456080286536 * (x + 0.044715 * x * x * x))));
            }
}

static const fault bias_act_faults[] = {
    {"silu 20 ulps off", "bias_act f32 3x7x13 silu", (op_fn)silu_twenty_ulps_off},
    {"one bias for all of a batch", "bias_act f32 3x7x13 silu per_matrix b", (op_fn)bias_of_the_first},
    {"gelu by tanh", "bias_act f32 3x7x13 gelu Y on X", (op_fn)gelu_by_tanh},
};

static const bad_call bias_act_bad[] = {
    {1, ROWS, 0, POLAR_E_SHAPE},  {2, COLS, 0, POLAR_E_SHAPE},
    {2, BATCH, 0, POLAR_E_SHAPE}, {0, ONTO, 1, POLAR_E_ARG},
    {0, ONTO, 2, POLAR_E_ARG},    {0, MODE, 0, POLAR_E_ARG},
    {1, NO_DATA, 0, POLAR_E_ARG}, {2, UNKNOWN_FORMAT, 0, POLAR_E_DTYPE},
};

const op_calls pl_calls_bias_act = {"bias_act f32 3x7x13 silu per_matrix b", LIST(bias_act_bad),
                                    LIST(bias_act_faults)};

static void slope_without_bias(pl_queue *q, const pl_args_bias_act_back *a)
{
    pl_args_bias_act_back wrong = *a;
    wrong.b.data = NULL;
    pl_ref_ops.bias_act_back(q, &wrong);
}

static void gelu_without_bell(pl_queue *q, const pl_args_bias_act_back *a)
{
    (void)q;
    for (int64_t b = 0; b < a->dX.batch; b++)
        for (int64_t i = 0; i < a->dX.rows; i++)
            for (int64_t j = 0; j < a->dX.cols; j++) {
                double x = get(&a->X, b, i, j) + get(&a->b, 0, 0, j);
                put(&a->dX, b, i, j, get(&a->dY, b, i, j) * 0.5 * (1 + erf(x * 0.70710678118654752)));
            }
}

static const fault bias_act_back_faults[] = {
    {"a slope without its bias", "bias_act_back f32 3x7x13 silu b", (op_fn)slope_without_bias},
    {"gelu's slope without its bell", "bias_act_back f32 3x7x13 gelu b", (op_fn)gelu_without_bell},
};

static const bad_call bias_act_back_bad[] = {
    {1, COLS, 0, POLAR_E_SHAPE}, {3, ROWS, 0, POLAR_E_SHAPE},  {2, COLS, 0, POLAR_E_SHAPE},
    {0, ONTO, 1, POLAR_E_ARG},   {0, ONTO, 3, POLAR_E_ARG},    {0, ONTO, 2, POLAR_E_ARG},
    {0, MODE, 0, POLAR_E_ARG},   {3, NO_DATA, 0, POLAR_E_ARG},
};

const op_calls pl_calls_bias_act_back = {"bias_act_back f32 3x7x13 silu per_matrix b",
                                         LIST(bias_act_back_bad), LIST(bias_act_back_faults)};
