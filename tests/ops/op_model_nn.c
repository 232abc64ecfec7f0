/* op_model_nn.c -- what the layers' ops may return. Letters as in ops.def.
 *
 *     sums          of n terms one after another: |s^ - s| <= gamma_n S + n eta, S = sum of magnitudes
 *                   (op_model.h), 0 where whole numbers keep every partial
 *                   sum below 1/u; row_sum's path has min(n, 64) + ceil(n / 2048) + 5 additions
 *     activations   f(x) for x in [lo, hi]: f of the middle, give or take the half width times a bound of
 *                   |f'| there, and the error of the computation:
 *
 *         e = e^-|x| within 4u (an exponential good to 2 ulps) and 4 eta;   1 / (1 + e): e's error
 *             counts at most half, the sum and the quotient u each: 4u s;
 *         e / (1 + e): 4u and those two and the product's rounding: 7u s + 5 eta
 *             -> sigmoid: 7u s + 5 eta
 *         x s: |x| times that, and one rounding
 *             -> silu: 8u |x s| + (5 |x| + 1) eta
 *         s (1 - s): both factors, and one rounding: 4u + 7u + u of it, 5 eta of the small factor, and
 *             eta                             -> sigmoid': 12u s (1-s) + 6 eta
 *         s y, y = 1 + x (1 - s): err(y) = |x| (7u (1-s) + 5 eta) + u |y|; s err(y) + |y| (7u s + 5
 *             eta) + u |s y| + eta               -> silu'
 *         t = Phi(-|x|) within 22u and 3 eta (an exponential, a polynomial good to 16u); Phi(x) = t, or
 *             1 - t with one rounding; x Phi: |x| times that, and one  -> gelu
 *         Phi + x bell / sqrt(2 pi): bell within 5u and 4 eta, its factor two roundings and the
 *             constant's: 8u, 2 |x| eta; one rounding                          -> gelu'
 *     the rest      operation by operation, over intervals
 */
#include "verify/ops/op_case_impl.h"
#include "op_model_impl.h"

#define F64 POLAR_DTYPE_F64

static const pl_iv anything = {-INFINITY, INFINITY, 1};

/* ---- sums ---- */

typedef struct {
    long double s, S, terms;
    int whole;
} running;

static void add_term(running *a, double x, double y)
{
    long double p = (long double)x * y;
    a->s += p;
    if (isfinite(p)) a->S += fabsl(p);
    a->terms++;
    a->whole = a->whole && is_small_whole(x) && is_small_whole(y);
}

/* The sum, with `path` roundings behind any of its terms. */
static pl_iv end_sum(const running *a, long double path, polar_dtype ct)
{
    /* of s itself: long double has 64 bits or more */
    long double u = pl_unit_roundoff(ct), own = pl_unit_roundoff(F64) / 2048 * (a->terms + 1) * a->S;
    if (sizeof(long double) == sizeof(double)) own *= 2048;
    if (a->S * (1 + 2 * path * u) >= pl_largest(ct)) return anything; /* may overflow on the way */
    if (!isfinite(a->s)) return pl_iv_point(a->s);
    if (a->whole && a->S < 1 / u) return pl_iv_point(a->s);
    return pl_iv_in(pl_iv_around(a->s, path * u / (1 - path * u) * a->S + a->terms * pl_least_half(ct) + own),
                    ct);
}

/* ---- activations ---- */

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

typedef enum { SIGMOID, SIGMOID_SLOPE, SILU, SILU_SLOPE, GELU, GELU_SLOPE } curve;

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

static pl_iv apply(curve f, pl_iv x, polar_dtype ct)
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
    return r->c.flags & PL_CASE_ADDEND ? sum(x, at(r, 2, r->mat[2].batch == 1 ? 0 : b, 0, j), ct) : x;
}

static pl_iv model_bias_act(const pl_op_run *r, int64_t b, int64_t i, int64_t j, polar_dtype ct)
{
    pl_iv x = biased(r, b, i, j, ct);
    int64_t act = pl_nn_case_act(&r->c);
    return act == PL_ACT_NONE ? x
                              : apply(act == PL_ACT_SILU   ? SILU
                                      : act == PL_ACT_GELU ? GELU
                                                           : SIGMOID,
                                      x, ct);
}

static pl_iv model_bias_act_back(const pl_op_run *r, int64_t b, int64_t i, int64_t j, polar_dtype ct)
{
    pl_iv dy = at(r, 3, b, i, j);
    int64_t act = pl_nn_case_act(&r->c);
    return act == PL_ACT_NONE ? dy
                              : product(dy,
                                        apply(act == PL_ACT_SILU   ? SILU_SLOPE
                                              : act == PL_ACT_GELU ? GELU_SLOPE
                                                                   : SIGMOID_SLOPE,
                                              biased(r, b, i, j, ct), ct),
                                        ct);
}

/* ---- rows ---- */

static pl_iv model_row_sum(const pl_op_run *r, int64_t b, int64_t i, int64_t j, polar_dtype ct)
{
    running a = {.whole = 1};
    int64_t n = r->c.K;
    for (int64_t k = 0; k < n; k++) add_term(&a, pl_op_run_before(r, 1, b, i * n + k, j), 1);
    return product(scalar(r->c.alpha, ct),
                   end_sum(&a, (long double)((n < 64 ? n : 64) + (n + 2047) / 2048 + 5), ct), ct);
}

static pl_iv model_row_spread(const pl_op_run *r, int64_t b, int64_t i, int64_t j, polar_dtype ct)
{
    return product(scalar(r->c.alpha, ct), at(r, 1, b, i / r->c.K, j), ct);
}

static pl_iv difference(const pl_op_run *r, int64_t b, int64_t i, polar_dtype ct)
{
    return sum(at(r, 2, b, i, 0), negative(at(r, 3, b, i, 0)), ct);
}

/* The squares of the differences are summed in double: ceil(rows / 32) + 5 additions and the square's own
 * rounding on every path, all terms positive. */
static pl_iv model_mse(const pl_op_run *r, int o, int64_t b, int64_t i, polar_dtype ct)
{
    int64_t rows = r->c.rows;
    if (o == 1) return product(scalar(2 / (double)rows, ct), difference(r, b, i, ct), ct);
    pl_iv total = pl_iv_point(0);
    int whole = 1;
    for (int64_t k = 0; k < rows; k++) {
        pl_iv d = difference(r, b, k, ct), square = pl_iv_mul(d, d);
        if (square.lo < 0) square.lo = 0;
        total = pl_iv_add(total, square);
        whole = whole && is_small_whole(pl_op_run_before(r, 2, b, k, 0)) &&
                is_small_whole(pl_op_run_before(r, 3, b, k, 0));
    }
    if (!total.any && isfinite(total.hi) && !(whole && total.hi < 0x1p53L)) {
        long double err = 1.01L * (long double)((rows + 31) / 32 + 6) * pl_unit_roundoff(F64);
        total.lo *= 1 - err;
        total.hi = total.hi * (1 + err) + (long double)rows * pl_least_half(F64);
        total.lo = fmaxl(0, total.lo - (long double)rows * pl_least_half(F64));
    }
    return pl_iv_in(pl_iv_div(pl_iv_in(total, F64), pl_iv_point((long double)rows)), F64);
}

/* ---- pairs ---- */

static int64_t pair(int64_t n, int64_t i, int64_t j)
{
    int64_t row = 0, lo = i < j ? i : j, hi = i < j ? j : i;
    for (int64_t k = 0; k < lo; k++) row += n - k;
    return row + hi - lo;
}

/* The points of row `row` among the pairs. */
static void points_of(int64_t *i, int64_t *j, int64_t n, int64_t row)
{
    for (*i = 0; row >= n - *i; (*i)++) row -= n - *i;
    *j = *i + row;
}

static pl_iv square_sum(const pl_iv d[3], polar_dtype ct)
{
    pl_iv s = pl_iv_point(0);
    for (int k = 0; k < 3; k++) {
        pl_iv square = pl_iv_mul(d[k], d[k]);
        if (square.lo < 0) square.lo = 0;
        s = sum(s, pl_iv_in(square, ct), ct); /* fused or not */
    }
    return s;
}

static pl_iv model_pair_dist(const pl_op_run *r, int64_t b, int64_t row, polar_dtype ct)
{
    int64_t i, j;
    pl_iv d[3];
    points_of(&i, &j, r->c.rows, row);
    for (int k = 0; k < 3; k++) d[k] = sum(at(r, 1, b, i, k), negative(at(r, 1, b, j, k)), ct);
    return pl_iv_in(pl_iv_sqrt(sum(square_sum(d, ct), scalar(r->c.eps, ct), ct)), ct);
}

static pl_iv model_pair_sum(const pl_op_run *r, int64_t b, int64_t row, int64_t c, polar_dtype ct)
{
    running a = {.whole = 1};
    int64_t n = r->c.rows, K = r->c.K, i = row / K, k = row % K;
    for (int64_t j = 0; j < n; j++)
        add_term(&a, pl_op_run_before(r, 2, b, pair(n, i, j), c), pl_op_run_before(r, 1, b, j * K + k, c));
    pl_iv z = r->c.flags & PL_CASE_ADDEND ? at(r, 3, b, row, c) : pl_iv_point(0);
    return sum(product(scalar(r->c.alpha, ct), end_sum(&a, (long double)n, ct), ct), z, ct);
}

static pl_iv model_pair_grad(const pl_op_run *r, int64_t b, int64_t row, int64_t c, polar_dtype ct)
{
    running a = {.whole = 1};
    int64_t i, j, K = r->c.K;
    points_of(&i, &j, r->c.rows, row);
    for (int64_t k = 0; k < K; k++) {
        add_term(&a, pl_op_run_before(r, 1, b, i * K + k, c), pl_op_run_before(r, 2, b, j * K + k, c));
        if (i != j)
            add_term(&a, pl_op_run_before(r, 1, b, j * K + k, c), pl_op_run_before(r, 2, b, i * K + k, c));
    }
    return product(scalar(r->c.alpha, ct), end_sum(&a, a.terms, ct), ct);
}

/* ---- vectors ---- */

/* The vector of row `row` and channel c of operand o. */
static void get3(pl_iv out[3], const pl_op_run *r, int o, int64_t b, int64_t row, int64_t c)
{
    for (int d = 0; d < 3; d++) out[d] = at(r, o, b, 3 * row + d, c);
}

static pl_iv model_dot(const pl_op_run *r, int o, int64_t a, int p, int64_t c, int64_t b, int64_t row,
                       polar_dtype ct)
{
    running s = {.whole = 1};
    for (int d = 0; d < 3; d++)
        add_term(&s, pl_op_run_before(r, o, b, 3 * row + d, a), pl_op_run_before(r, p, b, 3 * row + d, c));
    return end_sum(&s, 3, ct);
}

static pl_iv model_vec_dots(const pl_op_run *r, int64_t b, int64_t row, int64_t ab, polar_dtype ct)
{
    int64_t i, j;
    points_of(&i, &j, r->c.cols, ab);
    return model_dot(r, 1, i, 1, j, b, row, ct);
}

static pl_iv model_vec_dots_back(const pl_op_run *r, int64_t b, int64_t row, int64_t c, polar_dtype ct)
{
    running a = {.whole = 1};
    int64_t h = r->c.cols;
    for (int64_t k = 0; k < h; k++)
        add_term(&a, (c == k ? 2 : 1) * pl_op_run_before(r, 2, b, row / 3, pair(h, c, k)),
                 pl_op_run_before(r, 1, b, row, k));
    return sum(at(r, 0, b, row, c), end_sum(&a, (long double)h, ct), ct);
}

/* R of row `row` and channel c of operand o. */
static pl_iv norm(const pl_op_run *r, int o, int64_t b, int64_t row, int64_t c, polar_dtype ct)
{
    pl_iv v[3];
    get3(v, r, o, b, row, c);
    return pl_iv_in(pl_iv_sqrt(sum(square_sum(v, ct), scalar(r->c.eps, ct), ct)), ct);
}

static pl_iv model_vec_norm_back(const pl_op_run *r, int64_t b, int64_t i, int64_t c, polar_dtype ct)
{
    pl_iv along = pl_iv_in(pl_iv_div(at(r, 2, b, i / 3, c), norm(r, 1, b, i / 3, c, ct)), ct);
    return fused(along, at(r, 1, b, i, c), at(r, 0, b, i, c), ct);
}

/* g R + b, V and its gate being operands v, v + 1 and v + 2. */
static pl_iv gate_argument(const pl_op_run *r, int v, pl_iv R, int64_t b, int64_t c, polar_dtype ct)
{
    return fused(at(r, v + 1, r->mat[v + 1].batch == 1 ? 0 : b, 0, c), R,
                 at(r, v + 2, r->mat[v + 2].batch == 1 ? 0 : b, 0, c), ct);
}

static pl_iv model_vec_gate(const pl_op_run *r, int64_t b, int64_t i, int64_t c, polar_dtype ct)
{
    pl_iv s = apply(SIGMOID, gate_argument(r, 1, norm(r, 1, b, i / 3, c, ct), b, c, ct), ct);
    return fused(at(r, 1, b, i, c), s, r->c.flags & PL_CASE_ADDEND ? at(r, 4, b, i, c) : pl_iv_point(0), ct);
}

/* Result o: 0 dV (i a row of vectors), 1 T, 2 TR (i a row of scalars). */
static pl_iv model_vec_gate_back(const pl_op_run *r, int o, int64_t b, int64_t i, int64_t c, polar_dtype ct)
{
    int64_t row = o == 0 ? i / 3 : i;
    pl_iv R = norm(r, 3, b, row, c, ct), u = gate_argument(r, 3, R, b, c, ct);
    pl_iv t = product(model_dot(r, 6, c, 3, c, b, row, ct), apply(SIGMOID_SLOPE, u, ct), ct);
    if (o == 1) return t;
    if (o == 2) return product(t, R, ct);
    pl_iv along = pl_iv_in(pl_iv_div(product(t, at(r, 4, r->mat[4].batch == 1 ? 0 : b, 0, c), ct), R), ct);
    return fused(along, at(r, 3, b, i, c), product(at(r, 6, b, i, c), apply(SIGMOID, u, ct), ct), ct);
}

pl_iv pl_nn_model(const pl_op_run *r, int operand, int64_t b, int64_t i, int64_t j, polar_dtype ct)
{
    switch (r->c.op) {
    case PL_OP_bias_act: return model_bias_act(r, b, i, j, ct);
    case PL_OP_bias_act_back: return model_bias_act_back(r, b, i, j, ct);
    case PL_OP_row_sum: return model_row_sum(r, b, i, j, ct);
    case PL_OP_row_spread: return model_row_spread(r, b, i, j, ct);
    case PL_OP_pair_dist: return model_pair_dist(r, b, i, ct);
    case PL_OP_pair_sum: return model_pair_sum(r, b, i, j, ct);
    case PL_OP_pair_grad: return model_pair_grad(r, b, i, j, ct);
    case PL_OP_vec_dots: return model_vec_dots(r, b, i, j, ct);
    case PL_OP_vec_dots_back: return model_vec_dots_back(r, b, i, j, ct);
    case PL_OP_vec_norm: return norm(r, 1, b, i, j, ct);
    case PL_OP_vec_norm_back: return model_vec_norm_back(r, b, i, j, ct);
    case PL_OP_vec_gate: return model_vec_gate(r, b, i, j, ct);
    case PL_OP_vec_gate_back: return model_vec_gate_back(r, operand, b, i, j, ct);
    case PL_OP_mse: return model_mse(r, operand, b, i, ct);
    default: return anything;
    }
}
