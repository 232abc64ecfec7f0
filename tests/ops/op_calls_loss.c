/* op_calls_loss.c -- losses: wrong ops that must be caught, wrong calls that must be refused. */
#include "op_calls.h"

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
