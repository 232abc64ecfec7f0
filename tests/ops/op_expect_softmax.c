/* op_expect_softmax.c -- what softmax and its gradient may be. */
#include "op_calls.h"
#include "op_model_softmax.h"

MODEL(softmax)
{
    double m = largest(r, 1, b, i);
    pl_iv scale = scalar(r->c.how.alpha, ct),
          part = pl_iv_in(pl_iv_div(pl_iv_point(1), weights(r, 1, m, scale, b, i, ct)), ct);
    return product(weight(r, 1, m, scale, b, i, j, ct), part, ct);
}

MODEL(softmax_back)
{
    total t = {0};
    for (int64_t k = 0; k < r->c.cols; k++) add(&t, pl_iv_mul(at(r, 2, b, i, k), at(r, 1, b, i, k)));
    pl_iv s = end(&t, along_row(r->c.cols) + 1, ct);
    return product(product(scalar(r->c.how.alpha, ct), at(r, 1, b, i, j), ct),
                   sum(at(r, 2, b, i, j), negative(s), ct), ct);
}

/* ---- wrong ops that must be caught, wrong calls that must be refused ---- */

static void softmax_without_scale(pl_queue *q, const pl_args_softmax *a)
{
    pl_args_softmax wrong = *a;
    wrong.scale = 1;
    pl_ref_ops.softmax(q, &wrong);
}

static void softmax_of_columns(pl_queue *q, const pl_args_softmax *a)
{
    pl_args_softmax less = *a;
    pl_ref_ops.softmax(q, a);
    less.X.cols -= 1, less.Y.cols -= 1;
    pl_ref_ops.softmax(q, &less);
}

static void softmax_twenty_ulps_off(pl_queue *q, const pl_args_softmax *a)
{
    pl_ref_ops.softmax(q, a);
    scale_all(&a->Y, 1 + 20 * 0x1p-23);
}

static const fault softmax_faults[] = {
    {"a softmax without its scale", "softmax f32 3x7x13 0.125", (op_fn)softmax_without_scale},
    {"a softmax of all columns but one", "softmax f32 3x7x13 1", (op_fn)softmax_of_columns},
    {"a softmax 20 ulps off", "softmax f32 1x2x100 1", (op_fn)softmax_twenty_ulps_off},
};

static const bad_call softmax_bad[] = {
    {1, ROWS, 0, POLAR_E_SHAPE}, {1, COLS, 0, POLAR_E_SHAPE}, {0, BATCH, 0, POLAR_E_SHAPE},
    {0, ONTO, 1, POLAR_E_ARG},   {0, SCALAR, 0, POLAR_E_ARG}, {1, NO_DATA, 0, POLAR_E_ARG},
};

const op_calls pl_calls_softmax = {"softmax f32 3x7x13 1", LIST(softmax_bad), LIST(softmax_faults)};

static void softmax_back_without_sum(pl_queue *q, const pl_args_softmax_back *a)
{
    (void)q;
    for (int64_t b = 0; b < a->dX.batch; b++)
        for (int64_t i = 0; i < a->dX.rows; i++)
            for (int64_t j = 0; j < a->dX.cols; j++)
                put(&a->dX, b, i, j, a->scale * get(&a->Y, b, i, j) * get(&a->dY, b, i, j));
}

static const fault softmax_back_faults[] = {
    {"a softmax's slope without its sum", "softmax_back f32 3x7x13 1", (op_fn)softmax_back_without_sum},
};

static const bad_call softmax_back_bad[] = {
    {1, COLS, 0, POLAR_E_SHAPE}, {2, ROWS, 0, POLAR_E_SHAPE}, {0, ONTO, 1, POLAR_E_ARG},
    {0, ONTO, 2, POLAR_E_ARG},   {0, SCALAR, 0, POLAR_E_ARG},
};

const op_calls pl_calls_softmax_back = {"softmax_back f32 3x7x13 1", LIST(softmax_back_bad),
                                        LIST(softmax_back_faults)};
