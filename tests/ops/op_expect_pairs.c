/* op_expect_pairs.c -- what distances of points and sums over their pairs may be. */
#include "op_calls.h"
#include "op_model_sums.h"

static pl_iv model_pair_dist(const pl_op_run *r, int64_t b, int64_t row, polar_dtype ct)
{
    int64_t i, j;
    pl_iv d[3];
    points_of(&i, &j, r->c.rows, row);
    for (int k = 0; k < 3; k++) d[k] = sum(at(r, 1, b, i, k), negative(at(r, 1, b, j, k)), ct);
    return pl_iv_in(pl_iv_sqrt(sum(pl_square_sum(d, ct), scalar(r->c.how.eps, ct), ct)), ct);
}

MODEL(pair_dist)
{
    return model_pair_dist(r, b, i, ct);
}

static pl_iv model_pair_sum(const pl_op_run *r, int64_t b, int64_t row, int64_t c, polar_dtype ct)
{
    running a = {.whole = 1};
    int64_t n = r->c.rows, K = r->c.K, i = row / K, k = row % K;
    for (int64_t j = 0; j < n; j++)
        add_term(&a, pl_op_run_before(r, 2, b, pair(n, i, j), c), pl_op_run_before(r, 1, b, j * K + k, c));
    pl_iv z = has(r, 3) ? at(r, 3, b, row, c) : pl_iv_point(0);
    return sum(product(scalar(r->c.how.alpha, ct), end_sum(&a, (long double)n, ct), ct), z, ct);
}

MODEL(pair_sum)
{
    return model_pair_sum(r, b, i, j, ct);
}

static pl_iv model_pair_grad(const pl_op_run *r, int64_t b, int64_t row, int64_t c, polar_dtype ct)
{
    running a = {.whole = 1};
    int64_t i, j, K = r->c.K;
    points_of(&i, &j, r->c.rows, row);
    for (int64_t k = 0; k < K; k++) {
        add_term(&a, pl_op_run_before(r, 1, b, i * K + k, c), pl_op_run_before(r, 2, b, j * K + k, c));
        if (i != j)
            add_term(&a, pl_op_run_before(r, 1, b, j * K + k, c), pl_op_run_before(r, 2, b, i * K + k, c));
    }
    return product(scalar(r->c.how.alpha, ct), end_sum(&a, a.terms, ct), ct);
}

MODEL(pair_grad)
{
    return model_pair_grad(r, b, i, j, ct);
}

MODEL(pair_square)
{
    return at(r, 1, b, pair(r->c.rows, i, j), 0);
}

static pl_iv model_pair_fold(const pl_op_run *r, int64_t b, int64_t row, polar_dtype ct)
{
    int64_t i, j;
    points_of(&i, &j, r->c.rows, row);
    return i == j ? at(r, 1, b, i, i) : sum(at(r, 1, b, i, j), at(r, 1, b, j, i), ct);
}

MODEL(pair_fold)
{
    return model_pair_fold(r, b, i, ct);
}

/* ---- wrong ops that must be caught, wrong calls that must be refused ---- */

static void distance_without_epsilon(pl_queue *q, const pl_args_pair_dist *a)
{
    pl_args_pair_dist wrong = *a;
    wrong.eps = 0;
    pl_ref_ops.pair_dist(q, &wrong);
}

static const fault pair_dist_faults[] = {
    {"distances without their epsilon", "pair_dist f32 3x5x3 eps 1e-08", (op_fn)distance_without_epsilon},
};

static const bad_call pair_dist_bad[] = {
    {0, ROWS, 0, POLAR_E_SHAPE}, {1, COLS, 0, POLAR_E_SHAPE}, {1, ROWS, 0, POLAR_E_SHAPE},
    {0, ONTO, 1, POLAR_E_ARG},   {0, SCALAR, 0, POLAR_E_ARG},
};

const op_calls pl_calls_pair_dist = {"pair_dist f32 3x5x3 eps 1e-08", LIST(pair_dist_bad),
                                     LIST(pair_dist_faults)};

/* The pairs in the other order: (j, i) at i N - i (i - 1) / 2 + (j - i) counted from the end. */
static void pairs_from_the_end(pl_queue *q, const pl_args_pair_sum *a)
{
    pl_args_pair_sum wrong = *a;
    pl_mat *W = &wrong.W;
    W->data = (char *)W->data + (size_t)((W->rows - 1) * W->rs) * polar_dtype_size(W->dtype);
    W->rs = -W->rs;
    pl_ref_ops.pair_sum(q, &wrong);
}

static void message_without_itself(pl_queue *q, const pl_args_pair_sum *a)
{
    pl_args_pair_sum wrong = *a;
    wrong.Z.data = NULL;
    pl_ref_ops.pair_sum(q, &wrong);
}

static const fault pair_sum_faults[] = {
    {"pairs in another order", "pair_sum f32 3x5x8x1 1", (op_fn)pairs_from_the_end},
    {"a message without the point itself", "pair_sum f32 2x7x13x3 Z 0.015625", (op_fn)message_without_itself},
};

static const bad_call pair_sum_bad[] = {
    {1, ROWS, 0, POLAR_E_SHAPE}, {2, ROWS, 0, POLAR_E_SHAPE}, {2, BATCH, 0, POLAR_E_SHAPE},
    {3, COLS, 0, POLAR_E_SHAPE}, {0, MODE, 0, POLAR_E_SHAPE}, {0, ONTO, 1, POLAR_E_ARG},
    {0, ONTO, 2, POLAR_E_ARG},   {0, ONTO, 3, POLAR_E_ARG},   {2, NO_DATA, 0, POLAR_E_ARG},
};

const op_calls pl_calls_pair_sum = {"pair_sum f32 2x7x13x3 Z 0.015625", LIST(pair_sum_bad),
                                    LIST(pair_sum_faults)};

/* The diagonal counted twice, as a sum over both orders of a pair would. */
static void diagonal_twice(pl_queue *q, const pl_args_pair_grad *a)
{
    pl_ref_ops.pair_grad(q, a);
    for (int64_t b = 0; b < a->dW.batch; b++)
        for (int64_t c = 0; c < a->dW.cols; c++) put(&a->dW, b, 0, c, 2 * get(&a->dW, b, 0, c));
}

static const fault pair_grad_faults[] = {
    {"a pair's diagonal twice", "pair_grad f32 2x7x13x3 1", (op_fn)diagonal_twice},
};

static const bad_call pair_grad_bad[] = {
    {0, ROWS, 0, POLAR_E_SHAPE}, {1, ROWS, 0, POLAR_E_SHAPE}, {2, COLS, 0, POLAR_E_SHAPE},
    {0, MODE, 0, POLAR_E_SHAPE}, {0, ONTO, 1, POLAR_E_ARG},   {0, ONTO, 2, POLAR_E_ARG},
};

const op_calls pl_calls_pair_grad = {"pair_grad f32 2x7x13x3 1", LIST(pair_grad_bad), LIST(pair_grad_faults)};

/* Rows of the triangle laid down as if they were rows of the square. */
static void square_row_by_row(pl_queue *q, const pl_args_pair_square *a)
{
    (void)q;
    for (int64_t b = 0; b < a->Y.batch; b++)
        for (int64_t k = 0; k < a->Y.rows * a->Y.rows; k++)
            put(&a->Y, b, k / a->Y.rows, k % a->Y.rows, get(&a->W, b, k % a->W.rows, 0));
}

static const fault pair_square_faults[] = {
    {"pairs as rows of the square", "pair_square f32 3x5x3", (op_fn)square_row_by_row},
};

static const bad_call pair_square_bad[] = {
    {0, ROWS, 0, POLAR_E_SHAPE},  {0, COLS, 0, POLAR_E_SHAPE}, {1, ROWS, 0, POLAR_E_SHAPE},
    {1, BATCH, 0, POLAR_E_SHAPE}, {0, ONTO, 1, POLAR_E_ARG},   {1, NO_DATA, 0, POLAR_E_ARG},
};

const op_calls pl_calls_pair_square = {"pair_square f32 3x5x3", LIST(pair_square_bad),
                                       LIST(pair_square_faults)};

/* One half of the square for the whole. */
static void upper_half_alone(pl_queue *q, const pl_args_pair_fold *a)
{
    (void)q;
    for (int64_t b = 0; b < a->Y.batch; b++)
        for (int64_t i = 0, row = 0; i < a->Y.rows; i++)
            for (int64_t j = i; j < a->Y.rows; j++, row++) put(&a->W, b, row, 0, get(&a->Y, b, i, j));
}

static void both_orders_of_a_point(pl_queue *q, const pl_args_pair_fold *a)
{
    pl_ref_ops.pair_fold(q, a);
    for (int64_t b = 0; b < a->W.batch; b++) put(&a->W, b, 0, 0, 2 * get(&a->W, b, 0, 0));
}

static const fault pair_fold_faults[] = {
    {"one half of a square", "pair_fold f32 3x5x3", (op_fn)upper_half_alone},
    {"a square's diagonal twice", "pair_fold f32 3x5x3", (op_fn)both_orders_of_a_point},
};

static const bad_call pair_fold_bad[] = {
    {0, ROWS, 0, POLAR_E_SHAPE},  {1, ROWS, 0, POLAR_E_SHAPE}, {1, COLS, 0, POLAR_E_SHAPE},
    {1, BATCH, 0, POLAR_E_SHAPE}, {0, ONTO, 1, POLAR_E_ARG},   {1, NO_DATA, 0, POLAR_E_ARG},
};

const op_calls pl_calls_pair_fold = {"pair_fold f32 3x5x3", LIST(pair_fold_bad), LIST(pair_fold_faults)};
