/* op_model_vit.c -- what the transformer's ops may return: the formulas of ops.def operation by operation
 * over intervals. Letters as there.
 *
 *     sums    of n terms, each known to an interval: the sum of the ends, give or take gamma_p S + n eta, S
 *             the sum of magnitudes, p the additions behind a term: over
 *             a row ceil(n / 32) + 5 (lanes), over rows min(n, 64) + ceil(n / 2048) + 5 (chunks), and
 *                 one more where the term is a product, fused or not
 *     e^x     within 4u of itself (an exponential good to 2 ulps) and 4 eta;   log x within 4u of itself
 */
#include "verify/ops/op_case_impl.h"
#include "op_model_impl.h"

static const pl_iv anything = {-INFINITY, INFINITY, 1};

/* ---- sums ---- */

typedef struct {
    pl_iv s;
    long double S;
    int64_t n;
} total;

static void add(total *t, pl_iv x)
{
    t->s = pl_iv_add(t->s, x);
    t->S += fmaxl(fabsl(x.lo), fabsl(x.hi));
    t->n++;
}

static pl_iv end(const total *t, int64_t path, polar_dtype ct)
{
    long double u = pl_unit_roundoff(ct), p = (long double)path;
    if (t->s.any || pl_iv_is_nan(t->s)) return t->s;
    if (isinf(t->s.lo) || isinf(t->s.hi)) return t->s.lo == t->s.hi ? t->s : anything;
    if (!(t->S * (1 + 2 * p * u) < pl_largest(ct))) return anything; /* may overflow on the way */
    pl_iv err = pl_iv_around(0, p * u / (1 - p * u) * t->S + (long double)t->n * pl_least_half(ct));
    return t->S == 0 ? t->s : pl_iv_in(pl_iv_add(t->s, err), ct);
}

static int64_t along_row(int64_t n)
{
    return (n + 31) / 32 + 5;
}

static int64_t down_rows(int64_t n)
{
    return (n < 64 ? n : 64) + (n + 2047) / 2048 + 5;
}

static pl_iv mean_of(const total *t, int64_t path, int64_t n, polar_dtype ct)
{
    return pl_iv_in(pl_iv_div(end(t, path, ct), pl_iv_point((long double)n)), ct);
}

/* ---- layernorm ---- */

/* Column j of a row of values: one for all matrices, or one each. */
static pl_iv value(const pl_op_run *r, int o, int64_t b, int64_t j)
{
    return at(r, o, r->mat[o].batch == 1 ? 0 : b, 0, j);
}

static pl_iv square(pl_iv d)
{
    pl_iv s = pl_iv_mul(d, d);
    if (!s.any && s.lo < 0) s.lo = 0;
    return s;
}

/* Result o: 0 Y, 1 S. */
static pl_iv model_layernorm(const pl_op_run *r, int o, int64_t b, int64_t i, int64_t j, polar_dtype ct)
{
    int64_t n = r->c.cols;
    total x = {0}, var = {0};
    for (int64_t k = 0; k < n; k++) add(&x, at(r, 2, b, i, k));
    pl_iv mean = mean_of(&x, along_row(n), n, ct);
    if (o == 1 && j == 0) return mean;
    for (int64_t k = 0; k < n; k++)
        add(&var, pl_iv_in(square(sum(at(r, 2, b, i, k), negative(mean), ct)), ct));
    pl_iv v = mean_of(&var, along_row(n), n, ct);
    if (!v.any && v.lo < 0) v.lo = 0;
    pl_iv root = pl_iv_in(pl_iv_sqrt(sum(v, scalar(r->c.eps, ct), ct)), ct);
    pl_iv rs = root.lo <= 0 && root.hi > 0 ? anything : pl_iv_in(pl_iv_div(pl_iv_point(1), root), ct);
    if (o == 1) return rs;
    return fused(product(sum(at(r, 2, b, i, j), negative(mean), ct), rs, ct), value(r, 3, b, j),
                 value(r, 4, b, j), ct);
}

/* x^ */
static pl_iv unit(const pl_op_run *r, int64_t b, int64_t i, int64_t k, polar_dtype ct)
{
    return product(sum(at(r, 4, b, i, k), negative(at(r, 5, b, i, 0)), ct), at(r, 5, b, i, 1), ct);
}

/* Result o: 0 dX, 1 dg, 2 db, 3 dL. */
static pl_iv model_layernorm_back(const pl_op_run *r, int o, int64_t b, int64_t i, int64_t j, polar_dtype ct)
{
    int64_t n = r->c.cols, rows = r->c.rows;
    total h = {0}, along = {0};
    if (o == 3) return pl_iv_round(model_layernorm_back(r, 0, b, i, j, ct), r->mat[0].dtype);
    if (o > 0) {
        for (int64_t k = 0; k < rows; k++)
            add(&h, o == 2 ? at(r, 7, b, k, j) : pl_iv_mul(at(r, 7, b, k, j), unit(r, b, k, j, ct)));
        return end(&h, down_rows(rows) + (o == 1), ct);
    }
    for (int64_t k = 0; k < n; k++) {
        pl_iv hk = product(at(r, 7, b, i, k), value(r, 6, b, k), ct);
        add(&h, hk);
        add(&along, pl_iv_mul(hk, unit(r, b, i, k, ct)));
    }
    pl_iv m = mean_of(&h, along_row(n), n, ct), c = mean_of(&along, along_row(n) + 1, n, ct),
          hj = product(at(r, 7, b, i, j), value(r, 6, b, j), ct);
    pl_iv inner = fused(negative(unit(r, b, i, j, ct)), c, sum(hj, negative(m), ct), ct);
    return fused(at(r, 5, b, i, 1), inner, r->c.flags & PL_CASE_ADDEND ? at(r, 8, b, i, j) : pl_iv_point(0),
                 ct);
}

/* ---- softmax ---- */

static pl_iv exponential(pl_iv x, polar_dtype ct)
{
    long double u = pl_unit_roundoff(ct), eta = pl_least_half(ct);
    if (x.any || pl_iv_is_nan(x)) return x;
    pl_iv e = {expl(x.lo) * (1 - 4.01L * u) - 4 * eta, expl(x.hi) * (1 + 4.01L * u) + 4 * eta, 0};
    if (e.lo < 0) e.lo = 0;
    if (x.hi == 0 && e.hi < 1 + 4.01L * u) e.hi = 1 + 4.01L * u;
    /* 1, 0 and infinity are exact */
    return x.lo == x.hi && (x.lo == 0 || isinf(x.lo)) ? pl_iv_point(expl(x.lo)) : e;
}

static double largest(const pl_op_run *r, int o, int64_t b, int64_t i)
{
    double m = -INFINITY;
    /* passes a NaN over */
    for (int64_t k = 0; k < r->c.cols; k++) m = fmax(m, pl_op_run_before(r, o, b, i, k));
    return m;
}

/* e^(scale (x - max)) */
static pl_iv weight(const pl_op_run *r, int o, double m, pl_iv scale, int64_t b, int64_t i, int64_t k,
                    polar_dtype ct)
{
    return exponential(product(scale, sum(at(r, o, b, i, k), negative(pl_iv_point(m)), ct), ct), ct);
}

/* The sum of the weights of a row. */
static pl_iv weights(const pl_op_run *r, int o, double m, pl_iv scale, int64_t b, int64_t i, polar_dtype ct)
{
    total t = {0};
    for (int64_t k = 0; k < r->c.cols; k++) add(&t, weight(r, o, m, scale, b, i, k, ct));
    return end(&t, along_row(r->c.cols), ct);
}

static pl_iv model_softmax(const pl_op_run *r, int64_t b, int64_t i, int64_t j, polar_dtype ct)
{
    double m = largest(r, 1, b, i);
    pl_iv scale = scalar(r->c.alpha, ct),
          part = pl_iv_in(pl_iv_div(pl_iv_point(1), weights(r, 1, m, scale, b, i, ct)), ct);
    return product(weight(r, 1, m, scale, b, i, j, ct), part, ct);
}

static pl_iv model_softmax_back(const pl_op_run *r, int64_t b, int64_t i, int64_t j, polar_dtype ct)
{
    total t = {0};
    for (int64_t k = 0; k < r->c.cols; k++) add(&t, pl_iv_mul(at(r, 2, b, i, k), at(r, 1, b, i, k)));
    pl_iv s = end(&t, along_row(r->c.cols) + 1, ct);
    return product(product(scalar(r->c.alpha, ct), at(r, 1, b, i, j), ct),
                   sum(at(r, 2, b, i, j), negative(s), ct), ct);
}

/* ---- the loss ---- */

static pl_iv logarithm(pl_iv x, polar_dtype ct)
{
    if (x.any || pl_iv_is_nan(x)) return x;
    if (!(x.lo > 0) || isinf(x.hi)) return anything;
    long double lo = logl(x.lo), hi = logl(x.hi), u = pl_unit_roundoff(ct);
    return lo == 0 && hi == 0 ? pl_iv_point(0) : (pl_iv){lo - 4 * u * fabsl(lo), hi + 4 * u * fabsl(hi), 0};
}

static pl_iv targets(const pl_op_run *r, int64_t b, int64_t i, polar_dtype ct)
{
    total t = {0};
    for (int64_t k = 0; k < r->c.cols; k++) add(&t, at(r, 3, b, i, k));
    return end(&t, along_row(r->c.cols), ct);
}

static pl_iv row_loss(const pl_op_run *r, int64_t b, int64_t i, polar_dtype ct)
{
    total t = {0};
    double m = largest(r, 2, b, i);
    pl_iv log_s = logarithm(weights(r, 2, m, pl_iv_point(1), b, i, ct), ct);
    for (int64_t k = 0; k < r->c.cols; k++) {
        pl_iv d = sum(at(r, 2, b, i, k), negative(pl_iv_point(m)), ct);
        add(&t, pl_iv_mul(at(r, 3, b, i, k), sum(log_s, negative(d), ct)));
    }
    return end(&t, along_row(r->c.cols) + 1, ct);
}

/* Result o: 0 L, 1 dZ. */
static pl_iv model_cross_entropy(const pl_op_run *r, int o, int64_t b, int64_t i, int64_t j, polar_dtype ct)
{
    int64_t rows = r->c.rows;
    if (o == 1) {
        double m = largest(r, 2, b, i);
        pl_iv part =
            pl_iv_in(pl_iv_div(targets(r, b, i, ct), weights(r, 2, m, pl_iv_point(1), b, i, ct)), ct);
        pl_iv p = fused(weight(r, 2, m, pl_iv_point(1), b, i, j, ct), part, negative(at(r, 3, b, i, j)), ct);
        return pl_iv_in(pl_iv_div(p, pl_iv_point((long double)rows)), ct);
    }
    total t = {0};
    for (int64_t k = 0; k < rows; k++) add(&t, row_loss(r, b, k, ct));
    return mean_of(&t, along_row(rows), rows, ct);
}

/* ---- groups of rows, patches ---- */

static pl_iv model_scale_rows(const pl_op_run *r, int64_t b, int64_t i, int64_t j, polar_dtype ct)
{
    pl_iv s = at(r, 2, b, i / r->c.K, 0), x = at(r, 1, b, i, j);
    return r->c.flags & PL_CASE_ADDEND ? fused(s, x, at(r, 3, b, i, j), ct) : product(s, x, ct);
}

/* Walks over the picture instead of dividing the position in Y. */
static pl_iv model_patches(const pl_op_run *r, int64_t b, int64_t i, int64_t j)
{
    int64_t K = r->c.K, channel = 0, token = 0;
    while (j >= K * K) j -= K * K, channel++;
    while (i >= r->c.cols) i -= r->c.cols, token++;
    return at(r, 1, b, (channel * r->c.rows + token) * K + j / K, i * K + j % K);
}

pl_iv pl_vit_model(const pl_op_run *r, int operand, int64_t b, int64_t i, int64_t j, polar_dtype ct)
{
    switch (r->c.op) {
    case PL_OP_layernorm: return model_layernorm(r, operand, b, i, j, ct);
    case PL_OP_layernorm_back: return model_layernorm_back(r, operand, b, i, j, ct);
    case PL_OP_softmax: return model_softmax(r, b, i, j, ct);
    case PL_OP_softmax_back: return model_softmax_back(r, b, i, j, ct);
    case PL_OP_cross_entropy: return model_cross_entropy(r, operand, b, i, j, ct);
    case PL_OP_scale_rows: return model_scale_rows(r, b, i, j, ct);
    case PL_OP_patches: return model_patches(r, b, i, j);
    default: return anything;
    }
}
