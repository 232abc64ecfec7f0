/* op_calls_gemm.c -- products: wrong ops that must be caught, wrong calls that must be refused. */
#include "op_calls.h"

static void gemm_on_factor(pl_queue *q, const pl_args_gemm *a)
{
    pl_ref_ops.gemm(q, a);
    *entry(&a->A, 0, 0, 0) ^= 1;
}

/* Forgets the last k. */
static void gemm_short(pl_queue *q, const pl_args_gemm *a)
{
    pl_args_gemm less = *a;
    less.A.cols -= 1;
    less.B.rows -= 1;
    pl_ref_ops.gemm(q, &less);
}

static void gemm_nan(pl_queue *q, const pl_args_gemm *a)
{
    pl_ref_ops.gemm(q, a);
    pl_store_f64(a->C.data, a->C.dtype, 0, NAN);
}

/* Rounds the accumulator to bf16 before the epilogue. */
static void gemm_rounds_twice(pl_queue *q, const pl_args_gemm *a)
{
    pl_ref_ops.gemm(q, a);
    for (int64_t i = 0; i < a->C.rows; i++)
        for (int64_t j = 0; j < a->C.cols; j++)
            pl_store_f64(
                entry(&a->C, 0, i, j), a->C.dtype, 0,
                (double)pl_round_to(pl_load_f64(entry(&a->C, 0, i, j), a->C.dtype, 0), POLAR_DTYPE_BF16));
}

static const fault gemm_faults[] = {
    {"a factor written to", "gemm f32 3x33x17x64 1", (op_fn)gemm_on_factor},
    {"the last of 300 terms left out", "gemm f32 1x9x21x300 1", (op_fn)gemm_short},
    {"a NaN", "gemm f64 1x8x44x8 1", (op_fn)gemm_nan},
    {"f32 results rounded to bf16", "gemm bf16->f32 1x8x44x8 1", (op_fn)gemm_rounds_twice},
};

static const bad_call gemm_bad[] = {
    {0, ROWS, 0, POLAR_E_SHAPE},     {0, COLS, 0, POLAR_E_SHAPE},   {1, COLS, 0, POLAR_E_SHAPE},
    {2, ROWS, 0, POLAR_E_SHAPE},     {1, BATCH, 0, POLAR_E_SHAPE},  {2, BATCH, 0, POLAR_E_SHAPE},
    {3, ROWS, 0, POLAR_E_SHAPE},     {2, FORMAT, 0, POLAR_E_DTYPE}, {0, ONTO, 1, POLAR_E_ARG},
    {0, ONTO, 2, POLAR_E_ARG},       {0, ONTO, 3, POLAR_E_ARG},     {1, NO_DATA, 0, POLAR_E_ARG},
    {1, NEGATIVE, 0, POLAR_E_SHAPE},
};

const op_calls pl_calls_gemm = {"gemm f32 3x33x17x64 D 2,-3", LIST(gemm_bad), LIST(gemm_faults)};
