/* op_expect_loss.c -- what losses and their gradients may be. log x is good to 4u of itself. */
#include "op_calls.h"
#include "op_model_softmax.h"

#define F64 POLAR_DTYPE_F64

static pl_iv difference(const pl_op_run *r, int64_t b, int64_t i, polar_dtype ct)
{
    return sum(at(r, 2, b, i, 0), negative(at(r, 3, b, i, 0)), ct);
}

/* The squares of the differences are summed in double: ceil(rows / 32) + 5 additions and the square's own
 * rounding on every path, all terms positive. */
MODEL(mse)
{
    int64_t rows = r->c.rows;
    if (o == 1) return product(scalar(2 / (double)rows, ct), difference(r, b, i, ct), ct);
    pl_iv all = pl_iv_point(0);
    int whole = 1;
    for (int64_t k = 0; k < rows; k++) {
        pl_iv d = difference(r, b, k, ct), square = pl_iv_mul(d, d);
        if (square.lo < 0) square.lo = 0;
        all = pl_iv_add(all, square);
        whole = whole && is_small_whole(pl_op_run_before(r, 2, b, k, 0)) &&
                is_small_whole(pl_op_run_before(r, 3, b, k, 0));
    }
    if (!all.any && isfinite(all.hi) && !(whole && all.hi < 0x1p53L)) {
        long double err = 1.01L * (long double)((rows + 31) / 32 + 6) * pl_unit_roundoff(F64);
        all.lo *= 1 - err;
        all.hi = all.hi * (1 + err) + (long double)rows * pl_least_half(F64);
        all.lo = fmaxl(0, all.lo - (long double)rows * pl_least_half(F64));
    }
    return pl_iv_in(pl_iv_div(pl_iv_in(all, F64), pl_iv_point((long double)rows)), F64);
}

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
MODEL(cross_entropy)
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

/* ---- wrong ops that must be caught, wrong calls that must be refused ---- */

static void sum_of_squares(pl_queue *q, const pl_args_mse *a)
{
    pl_ref_ops.mse(q, a);
    put(&a->L, 0, 0, 0, (double)a->P.rows * get(&a->L, 0, 0, 0));
}

static void loss_slope_half(pl_queue *q, const pl_args_mse *a)
{
    pl_ref_ops.mse(q, a);
    put(&a->dP, 0, 0, 0, get(&a->dP, 0, 0, 0) / 2);
}

static const fault mse_faults[] = {
    {"a sum for a mean", "mse f32 3x5x1 dP", (op_fn)sum_of_squares},
    {"half of the loss's slope", "mse f32 3x5x1 dP", (op_fn)loss_slope_half},
};

static const bad_call mse_bad[] = {
    {0, FORMAT, 0, POLAR_E_DTYPE}, {0, BATCH, 0, POLAR_E_SHAPE}, {1, ROWS, 0, POLAR_E_SHAPE},
    {3, ROWS, 0, POLAR_E_SHAPE},   {2, COLS, 0, POLAR_E_SHAPE},  {1, ONTO, 2, POLAR_E_ARG},
    {1, ONTO, 3, POLAR_E_ARG},     {2, NO_DATA, 0, POLAR_E_ARG},
};

const op_calls pl_calls_mse = {"mse f32 3x5x1 dP", LIST(mse_bad), LIST(mse_faults)};

static void loss_summed(pl_queue *q, const pl_args_cross_entropy *a)
{
    pl_ref_ops.cross_entropy(q, a);
    put(&a->L, 0, 0, 0, (double)a->Z.rows * get(&a->L, 0, 0, 0));
}

/* dZ = (softmax - T) / rows, as if the targets' weights summed to 1. */
static void slope_of_unit_targets(pl_queue *q, const pl_args_cross_entropy *a)
{
    double t = 0;
    pl_ref_ops.cross_entropy(q, a);
    for (int64_t j = 0; j < a->T.cols; j++) t += get(&a->T, 0, 0, j);
    for (int64_t j = 0; j < a->T.cols; j++) {
        double target = get(&a->T, 0, 0, j), rows = (double)a->Z.rows;
        put(&a->dZ, 0, 0, j, ((get(&a->dZ, 0, 0, j) * rows + target) / t - target) / rows);
    }
}

static const fault cross_entropy_faults[] = {
    {"a summed loss for a mean", "cross_entropy f32 3x7x13 dZ", (op_fn)loss_summed},
    {"targets taken to sum to 1", "cross_entropy f32 3x7x13 dZ", (op_fn)slope_of_unit_targets},
};

static const bad_call cross_entropy_bad[] = {
    {0, FORMAT, 0, POLAR_E_DTYPE}, {0, BATCH, 0, POLAR_E_SHAPE}, {1, ROWS, 0, POLAR_E_SHAPE},
    {3, COLS, 0, POLAR_E_SHAPE},   {1, ONTO, 2, POLAR_E_ARG},    {1, ONTO, 3, POLAR_E_ARG},
    {3, NO_DATA, 0, POLAR_E_ARG},
};

const op_calls pl_calls_cross_entropy = {"cross_entropy f32 3x7x13 dZ", LIST(cross_entropy_bad),
                                         LIST(cross_entropy_faults)};
