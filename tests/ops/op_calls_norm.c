/* op_calls_norm.c -- Frobenius norms: wrong ops that must be caught, wrong calls that must be refused. */
#include "op_calls.h"

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
