/* op_expect_rows.c -- what sums, spreads and scalings of groups of rows may return. */
#include "op_calls.h"
#include "op_model_sums.h"

MODEL(row_sum)
{
    running a = {.whole = 1};
    int64_t n = r->c.K;
    for (int64_t k = 0; k < n; k++) add_term(&a, pl_op_run_before(r, 1, b, i * n + k, j), 1);
    return product(scalar(r->c.how.alpha, ct),
                   end_sum(&a, (long double)((n < 64 ? n : 64) + (n + 2047) / 2048 + 5), ct), ct);
}

MODEL(row_spread)
{
    return product(scalar(r->c.how.alpha, ct), at(r, 1, b, i / r->c.K, j), ct);
}

MODEL(scale_rows)
{
    pl_iv s = at(r, 2, b, i / r->c.K, 0), x = at(r, 1, b, i, j);
    return has(r, 3) ? fused(s, x, at(r, 3, b, i, j), ct) : product(s, x, ct);
}

/* ---- wrong ops that must be caught, wrong calls that must be refused ---- */

/* Of 2113 rows the last is left out. */
static void sum_short(pl_queue *q, const pl_args_row_sum *a)
{
    pl_args_row_sum less = *a;
    less.X.rows -= 1;
    pl_ref_ops.row_sum(q, &less);
}

static const fault row_sum_faults[] = {
    {"the last of 2113 rows left out", "row_sum f32 1x1x2x2113 1", (op_fn)sum_short},
};

static const bad_call row_sum_bad[] = {
    {1, ROWS, 0, POLAR_E_SHAPE}, {1, COLS, 0, POLAR_E_SHAPE},  {0, BATCH, 0, POLAR_E_SHAPE},
    {0, ONTO, 1, POLAR_E_ARG},   {1, NO_DATA, 0, POLAR_E_ARG},
};

const op_calls pl_calls_row_sum = {"row_sum f32 3x2x17x65 1", LIST(row_sum_bad), LIST(row_sum_faults)};

static void spread_by_turns(pl_queue *q, const pl_args_row_spread *a)
{
    (void)q;
    for (int64_t b = 0; b < a->Y.batch; b++)
        for (int64_t i = 0; i < a->Y.rows; i++)
            for (int64_t j = 0; j < a->Y.cols; j++)
                put(&a->Y, b, i, j, a->alpha * get(&a->X, b, i % a->X.rows, j));
}

static const fault row_spread_faults[] = {
    {"rows spread by turns", "row_spread f32 2x3x5x7 1", (op_fn)spread_by_turns},
};

static const bad_call row_spread_bad[] = {
    {0, ROWS, 0, POLAR_E_SHAPE},
    {1, COLS, 0, POLAR_E_SHAPE},
    {1, BATCH, 0, POLAR_E_SHAPE},
    {0, ONTO, 1, POLAR_E_ARG},
};

const op_calls pl_calls_row_spread = {"row_spread f32 3x2x17x65 1", LIST(row_spread_bad),
                                      LIST(row_spread_faults)};

static void factors_by_turns(pl_queue *q, const pl_args_scale_rows *a)
{
    (void)q;
    for (int64_t b = 0; b < a->Y.batch; b++)
        for (int64_t i = 0; i < a->Y.rows; i++)
            for (int64_t j = 0; j < a->Y.cols; j++)
                put(&a->Y, b, i, j,
                    get(&a->Z, b, i, j) + get(&a->s, b, i % a->s.rows, 0) * get(&a->X, b, i, j));
}

static const fault scale_rows_faults[] = {
    {"factors by turns", "scale_rows f32 2x3x5x7 Z", (op_fn)factors_by_turns},
};

static const bad_call scale_rows_bad[] = {
    {1, ROWS, 0, POLAR_E_SHAPE}, {2, ROWS, 0, POLAR_E_SHAPE},  {2, BATCH, 0, POLAR_E_SHAPE},
    {3, COLS, 0, POLAR_E_SHAPE}, {0, ONTO, 1, POLAR_E_ARG},    {0, ONTO, 2, POLAR_E_ARG},
    {0, ONTO, 3, POLAR_E_ARG},   {2, NO_DATA, 0, POLAR_E_ARG},
};

const op_calls pl_calls_scale_rows = {"scale_rows f32 2x3x5x7 Z", LIST(scale_rows_bad),
                                      LIST(scale_rows_faults)};
