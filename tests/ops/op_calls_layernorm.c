/* op_calls_layernorm.c -- normalised rows: wrong ops that must be caught, wrong calls that must be refused.
 */
#include "op_calls.h"

static void norm_without_epsilon(pl_queue *q, const pl_args_layernorm *a)
{
    pl_args_layernorm wrong = *a;
    wrong.eps = 0;
    pl_ref_ops.layernorm(q, &wrong);
}

/* The variance over n - 1. */
static void norm_unbiased(pl_queue *q, const pl_args_layernorm *a)
{
    pl_ref_ops.layernorm(q, a);
    for (int64_t i = 0; i < a->S.rows; i++)
        put(&a->S, 0, i, 1, get(&a->S, 0, i, 1) * sqrt((double)(a->X.cols - 1) / (double)a->X.cols));
}

static void norm_ten_ulps_off(pl_queue *q, const pl_args_layernorm *a)
{
    pl_ref_ops.layernorm(q, a);
    scale_all(&a->S, 1 + 10 * 0x1p-23);
}

static void gain_of_the_first(pl_queue *q, const pl_args_layernorm *a)
{
    pl_args_layernorm wrong = *a;
    wrong.g.batch = 1;
    pl_ref_ops.layernorm(q, &wrong);
}

static const fault layernorm_faults[] = {
    {"rows normalised without the epsilon", "layernorm f32 3x7x13 eps 1e-06", (op_fn)norm_without_epsilon},
    {"a variance over n - 1", "layernorm f32 3x7x13 eps 1e-06", (op_fn)norm_unbiased},
    {"statistics 10 ulps off", "layernorm f32 3x7x13 eps 1e-06", (op_fn)norm_ten_ulps_off},
    {"one gain for all of a batch", "layernorm f32 3x7x13 per_matrix eps 1e-06", (op_fn)gain_of_the_first},
};

static const bad_call layernorm_bad[] = {
    {2, ROWS, 0, POLAR_E_SHAPE},   {1, ROWS, 0, POLAR_E_SHAPE}, {1, COLS, 0, POLAR_E_SHAPE},
    {1, FORMAT, 0, POLAR_E_DTYPE}, {3, COLS, 0, POLAR_E_SHAPE}, {4, BATCH, 0, POLAR_E_SHAPE},
    {0, ONTO, 2, POLAR_E_ARG},     {0, ONTO, 3, POLAR_E_ARG},   {1, ONTO, 2, POLAR_E_ARG},
    {1, ONTO, 0, POLAR_E_ARG},     {0, SCALAR, 0, POLAR_E_ARG}, {1, NO_DATA, 0, POLAR_E_ARG},
};

const op_calls pl_calls_layernorm = {"layernorm f32 3x7x13 per_matrix eps 1e-06", LIST(layernorm_bad),
                                     LIST(layernorm_faults)};

static void back_without_z(pl_queue *q, const pl_args_layernorm_back *a)
{
    pl_args_layernorm_back wrong = *a;
    wrong.Z.data = NULL;
    pl_ref_ops.layernorm_back(q, &wrong);
}

/* dx = r h: the statistics' own gradients left out. */
static void back_straight_only(pl_queue *q, const pl_args_layernorm_back *a)
{
    pl_ref_ops.layernorm_back(q, a);
    for (int64_t j = 0; j < a->dX.cols; j++)
        put(&a->dX, 0, 0, j, get(&a->S, 0, 0, 1) * get(&a->dY, 0, 0, j) * get(&a->g, 0, 0, j));
}

/* Of 2113 rows the last is left out of dg and db. */
static void back_sums_short(pl_queue *q, const pl_args_layernorm_back *a)
{
    pl_args_layernorm_back less = *a;
    pl_ref_ops.layernorm_back(q, a);
    less.dX.rows -= 1, less.X.rows -= 1, less.S.rows -= 1, less.dY.rows -= 1, less.Z.rows -= 1;
    pl_ref_ops.layernorm_back(q, &less);
}

/* dX is right, dL is not: as if there were no Z, */
static void low_without_z(pl_queue *q, const pl_args_layernorm_back *a)
{
    pl_args_layernorm_back wrong = *a;
    wrong.dX = a->dL;
    wrong.Z.data = wrong.dL.data = NULL;
    pl_ref_ops.layernorm_back(q, a);
    pl_ref_ops.layernorm_back(q, &wrong);
}

/* or cut to bf16 instead of rounded. */
static void low_cut(pl_queue *q, const pl_args_layernorm_back *a)
{
    pl_ref_ops.layernorm_back(q, a);
    for (int64_t i = 0; i < a->dL.rows; i++)
        for (int64_t j = 0; j < a->dL.cols; j++) {
            float x = (float)get(&a->dX, 0, i, j);
            uint32_t bits;
            memcpy(&bits, &x, sizeof bits);
            bits &= 0xffff0000u;
            memcpy(&x, &bits, sizeof x);
            put(&a->dL, 0, i, j, x);
        }
}

static void gains_swapped(pl_queue *q, const pl_args_layernorm_back *a)
{
    pl_args_layernorm_back wrong = *a;
    wrong.dg = a->db, wrong.db = a->dg;
    pl_ref_ops.layernorm_back(q, &wrong);
}

static const fault layernorm_back_faults[] = {
    {"a gradient without Z", "layernorm_back f32 3x7x13 Z", (op_fn)back_without_z},
    {"a gradient without the statistics'", "layernorm_back f32 3x7x13", (op_fn)back_straight_only},
    {"the last of 2113 rows left out", "layernorm_back f32 1x2113x2", (op_fn)back_sums_short},
    {"the gradient's copy without Z", "layernorm_back f32 3x7x13 strided dL Z", (op_fn)low_without_z},
    {"the gradient's copy cut", "layernorm_back f32,bf16,f32->f32,bf16 3x7x13 strided dL Z", (op_fn)low_cut},
    {"gains for shifts", "layernorm_back f32 3x7x13", (op_fn)gains_swapped},
};

static const bad_call layernorm_back_bad[] = {
    {4, ROWS, 0, POLAR_E_SHAPE}, {1, COLS, 0, POLAR_E_SHAPE},   {2, BATCH, 0, POLAR_E_SHAPE},
    {5, ROWS, 0, POLAR_E_SHAPE}, {5, FORMAT, 0, POLAR_E_DTYPE}, {6, COLS, 0, POLAR_E_SHAPE},
    {7, ROWS, 0, POLAR_E_SHAPE}, {8, COLS, 0, POLAR_E_SHAPE},   {0, ONTO, 4, POLAR_E_ARG},
    {0, ONTO, 7, POLAR_E_ARG},   {0, ONTO, 8, POLAR_E_ARG},     {1, ONTO, 2, POLAR_E_ARG},
    {1, ONTO, 7, POLAR_E_ARG},   {2, ONTO, 8, POLAR_E_ARG},     {7, NO_DATA, 0, POLAR_E_ARG},
    {3, ROWS, 0, POLAR_E_SHAPE}, {3, COLS, 0, POLAR_E_SHAPE},   {3, ONTO, 0, POLAR_E_ARG},
    {3, ONTO, 4, POLAR_E_ARG},   {3, ONTO, 7, POLAR_E_ARG},     {3, ONTO, 8, POLAR_E_ARG},
};

const op_calls pl_calls_layernorm_back = {"layernorm_back f32 3x7x13 strided dL Z", LIST(layernorm_back_bad),
                                          LIST(layernorm_back_faults)};
