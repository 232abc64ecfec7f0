/* op_calls_activation.c -- activations: wrong ops that must be caught, wrong calls that must be refused. */
#include "op_calls.h"

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
