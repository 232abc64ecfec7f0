/* op_calls_polar.c -- the exact polar factor: wrong ops that must be caught, wrong calls that must be
 * refused. */
#include "op_calls.h"

static void polar_negative(pl_queue *q, const pl_args_polar_exact *a)
{
    pl_ref_ops.polar_exact(q, a);
    for (int64_t i = 0; i < a->Y.rows; i++)
        for (int64_t j = 0; j < a->Y.cols; j++)
            pl_store_f64(entry(&a->Y, 0, i, j), a->Y.dtype, 0,
                         -pl_load_f64(entry(&a->Y, 0, i, j), a->Y.dtype, 0));
}

/* 1e-13 off the sphere of orthogonal matrices. */
static void polar_scaled(pl_queue *q, const pl_args_polar_exact *a)
{
    pl_ref_ops.polar_exact(q, a);
    for (int64_t i = 0; i < a->Y.rows; i++)
        for (int64_t j = 0; j < a->Y.cols; j++)
            pl_store_f64(entry(&a->Y, 0, i, j), a->Y.dtype, 0,
                         (1 + 1e-13) * pl_load_f64(entry(&a->Y, 0, i, j), a->Y.dtype, 0));
}

static const fault polar_exact_faults[] = {
    {"minus the polar factor", "polar_exact f64 3x7x13", (op_fn)polar_negative},
    {"a polar factor 1e-13 too long", "polar_exact f64 3x7x13", (op_fn)polar_scaled},
};

static const bad_call polar_exact_bad[] = {
    {1, COLS, 0, POLAR_E_SHAPE},
    {0, ONTO, 1, POLAR_E_ARG},
    {1, UNKNOWN_FORMAT, 0, POLAR_E_DTYPE},
};

const op_calls pl_calls_polar_exact = {"polar_exact f32 3x7x13", LIST(polar_exact_bad),
                                       LIST(polar_exact_faults)};
