/* test_op_calls_nn.c -- test_op_calls for the layers' ops: planted faults are seen (on ref), and the device
 * argv[1] refuses calls that make no sense. */
#include "math/vectors_elem.h"
#include "op_calls.h"

/* ---- wrong ops ---- */

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

static void slope_without_bias(pl_queue *q, const pl_args_bias_act_back *a)
{
    pl_args_bias_act_back wrong = *a;
    wrong.b.data = NULL;
    pl_ref_ops.bias_act_back(q, &wrong);
}

/* Of 2113 rows the last is left out. */
static void sum_short(pl_queue *q, const pl_args_row_sum *a)
{
    pl_args_row_sum less = *a;
    less.X.rows -= 1;
    pl_ref_ops.row_sum(q, &less);
}

static void spread_by_turns(pl_queue *q, const pl_args_row_spread *a)
{
    (void)q;
    for (int64_t b = 0; b < a->Y.batch; b++)
        for (int64_t i = 0; i < a->Y.rows; i++)
            for (int64_t j = 0; j < a->Y.cols; j++)
                put(&a->Y, b, i, j, a->alpha * get(&a->X, b, i % a->X.rows, j));
}

static void distance_without_epsilon(pl_queue *q, const pl_args_pair_dist *a)
{
    pl_args_pair_dist wrong = *a;
    wrong.eps = 0;
    pl_ref_ops.pair_dist(q, &wrong);
}

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

/* The diagonal counted twice, as a sum over both orders of a pair would. */
static void diagonal_twice(pl_queue *q, const pl_args_pair_grad *a)
{
    pl_ref_ops.pair_grad(q, a);
    for (int64_t b = 0; b < a->dW.batch; b++)
        for (int64_t c = 0; c < a->dW.cols; c++) put(&a->dW, b, 0, c, 2 * get(&a->dW, b, 0, c));
}

static void dots_swapped(pl_queue *q, const pl_args_vec_dots *a)
{
    pl_ref_ops.vec_dots(q, a);
    double x = get(&a->Q, 0, 0, 1);
    put(&a->Q, 0, 0, 1, get(&a->Q, 0, 0, 2));
    put(&a->Q, 0, 0, 2, x);
}

/* dv_a += sum_b dQ_ab v_b with the diagonal once. */
static void square_slope_once(pl_queue *q, const pl_args_vec_dots_back *a)
{
    pl_ref_ops.vec_dots_back(q, a);
    for (int64_t i = 0; i < a->dV.rows; i++)
        put(&a->dV, 0, i, 0, get(&a->dV, 0, i, 0) - get(&a->dQ, 0, i / 3, 0) * get(&a->V, 0, i, 0));
}

static void norm_of_two(pl_queue *q, const pl_args_vec_norm *a)
{
    (void)q;
    for (int64_t b = 0; b < a->R.batch; b++)
        for (int64_t r = 0; r < a->R.rows; r++)
            for (int64_t c = 0; c < a->R.cols; c++)
                put(&a->R, b, r, c,
                    sqrt(pow(get(&a->V, b, 3 * r, c), 2) + pow(get(&a->V, b, 3 * r + 1, c), 2) + a->eps));
}

static void norm_back_overwrites(pl_queue *q, const pl_args_vec_norm_back *a)
{
    for (int64_t b = 0; b < a->dV.batch; b++)
        for (int64_t i = 0; i < a->dV.rows; i++)
            for (int64_t c = 0; c < a->dV.cols; c++) put(&a->dV, b, i, c, 0);
    pl_ref_ops.vec_norm_back(q, a);
}

static void gate_without_bias(pl_queue *q, const pl_args_vec_gate *a)
{
    pl_args_vec_gate wrong = *a;
    wrong.b = wrong.g;
    pl_ref_ops.vec_gate(q, &wrong);
}

static void gate_back_without_norm(pl_queue *q, const pl_args_vec_gate_back *a)
{
    pl_ref_ops.vec_gate_back(q, a);
    for (int64_t c = 0; c < a->T.cols; c++) put(&a->TR, 0, 0, c, get(&a->T, 0, 0, c));
}

static void gate_back_straight_only(pl_queue *q, const pl_args_vec_gate_back *a)
{
    (void)q;
    pl_ref_ops.vec_gate_back(q, a);
    for (int64_t c = 0; c < a->T.cols; c++) {
        double v[3], r;
        for (int d = 0; d < 3; d++) v[d] = get(&a->V, 0, d, c);
        r = pl_norm3_f64(v[0], v[1], v[2], a->eps);
        put(&a->dV, 0, 0, c,
            get(&a->dY, 0, 0, c) * pl_sigmoid_f64(get(&a->g, 0, 0, c) * r + get(&a->b, 0, 0, c)));
    }
}

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

static const fault faults[] = {
    FAULT("silu 20 ulps off", "bias_act f32 3x7x13 silu", bias_act, silu_twenty_ulps_off),
    FAULT("one bias for all of a batch", "bias_act f32 3x7x13 per_matrix silu b", bias_act,
          bias_of_the_first),
    FAULT("a slope without its bias", "bias_act_back f32 3x7x13 silu b", bias_act_back, slope_without_bias),
    FAULT("the last of 2113 rows left out", "row_sum f32 1x1x2x2113 1", row_sum, sum_short),
    FAULT("rows spread by turns", "row_spread f32 2x3x5x7 1", row_spread, spread_by_turns),
    FAULT("distances without their epsilon", "pair_dist f32 3x5x3 eps 1e-08", pair_dist,
          distance_without_epsilon),
    FAULT("pairs in another order", "pair_sum f32 3x5x8x1 1", pair_sum, pairs_from_the_end),
    FAULT("a message without the point itself", "pair_sum f32 2x7x13x3 Z 0.015625", pair_sum,
          message_without_itself),
    FAULT("a pair's diagonal twice", "pair_grad f32 2x7x13x3 1", pair_grad, diagonal_twice),
    FAULT("two dot products swapped", "vec_dots f32 2x3x2", vec_dots, dots_swapped),
    FAULT("the slope of a square once", "vec_dots_back f32 2x3x2", vec_dots_back, square_slope_once),
    FAULT("a norm of two components", "vec_norm f32 3x7x13 eps 1e-08", vec_norm, norm_of_two),
    FAULT("a gradient that replaces", "vec_norm_back f32 3x7x13 eps 1e-08", vec_norm_back,
          norm_back_overwrites),
    FAULT("a gate with another bias", "vec_gate f32 3x7x13 eps 1e-08", vec_gate, gate_without_bias),
    FAULT("T for T R", "vec_gate_back f32 3x7x13 eps 1e-08", vec_gate_back, gate_back_without_norm),
    FAULT("a gate's gradient without its norm's", "vec_gate_back f32 3x7x13 eps 1e-08", vec_gate_back,
          gate_back_straight_only),
    FAULT("a sum for a mean", "mse f32 3x5x1 dP", mse, sum_of_squares),
    FAULT("half of the loss's slope", "mse f32 3x5x1 dP", mse, loss_slope_half),
};

/* ---- bad calls ---- */

static const bad_call bad_calls[] = {
    {PL_OP_bias_act, 1, ROWS, 0, POLAR_E_SHAPE},
    {PL_OP_bias_act, 2, COLS, 0, POLAR_E_SHAPE},
    {PL_OP_bias_act, 2, BATCH, 0, POLAR_E_SHAPE},
    {PL_OP_bias_act, 0, ONTO, 1, POLAR_E_ARG},
    {PL_OP_bias_act, 0, ONTO, 2, POLAR_E_ARG},
    {PL_OP_bias_act, 0, MODE, 0, POLAR_E_ARG},
    {PL_OP_bias_act, 1, NO_DATA, 0, POLAR_E_ARG},
    {PL_OP_bias_act, 2, UNKNOWN_FORMAT, 0, POLAR_E_DTYPE},
    {PL_OP_bias_act_back, 1, COLS, 0, POLAR_E_SHAPE},
    {PL_OP_bias_act_back, 3, ROWS, 0, POLAR_E_SHAPE},
    {PL_OP_bias_act_back, 2, COLS, 0, POLAR_E_SHAPE},
    {PL_OP_bias_act_back, 0, ONTO, 1, POLAR_E_ARG},
    {PL_OP_bias_act_back, 0, ONTO, 3, POLAR_E_ARG},
    {PL_OP_bias_act_back, 0, ONTO, 2, POLAR_E_ARG},
    {PL_OP_bias_act_back, 0, MODE, 0, POLAR_E_ARG},
    {PL_OP_bias_act_back, 3, NO_DATA, 0, POLAR_E_ARG},
    {PL_OP_row_sum, 1, ROWS, 0, POLAR_E_SHAPE},
    {PL_OP_row_sum, 1, COLS, 0, POLAR_E_SHAPE},
    {PL_OP_row_sum, 0, BATCH, 0, POLAR_E_SHAPE},
    {PL_OP_row_sum, 0, ONTO, 1, POLAR_E_ARG},
    {PL_OP_row_sum, 1, NO_DATA, 0, POLAR_E_ARG},
    {PL_OP_row_spread, 0, ROWS, 0, POLAR_E_SHAPE},
    {PL_OP_row_spread, 1, COLS, 0, POLAR_E_SHAPE},
    {PL_OP_row_spread, 1, BATCH, 0, POLAR_E_SHAPE},
    {PL_OP_row_spread, 0, ONTO, 1, POLAR_E_ARG},
    {PL_OP_pair_dist, 0, ROWS, 0, POLAR_E_SHAPE},
    {PL_OP_pair_dist, 1, COLS, 0, POLAR_E_SHAPE},
    {PL_OP_pair_dist, 1, ROWS, 0, POLAR_E_SHAPE},
    {PL_OP_pair_dist, 0, ONTO, 1, POLAR_E_ARG},
    {PL_OP_pair_dist, 0, SCALAR, 0, POLAR_E_ARG},
    {PL_OP_pair_sum, 1, ROWS, 0, POLAR_E_SHAPE},
    {PL_OP_pair_sum, 2, ROWS, 0, POLAR_E_SHAPE},
    {PL_OP_pair_sum, 2, BATCH, 0, POLAR_E_SHAPE},
    {PL_OP_pair_sum, 3, COLS, 0, POLAR_E_SHAPE},
    {PL_OP_pair_sum, 0, MODE, 0, POLAR_E_SHAPE},
    {PL_OP_pair_sum, 0, ONTO, 1, POLAR_E_ARG},
    {PL_OP_pair_sum, 0, ONTO, 2, POLAR_E_ARG},
    {PL_OP_pair_sum, 0, ONTO, 3, POLAR_E_ARG},
    {PL_OP_pair_sum, 2, NO_DATA, 0, POLAR_E_ARG},
    {PL_OP_pair_grad, 0, ROWS, 0, POLAR_E_SHAPE},
    {PL_OP_pair_grad, 1, ROWS, 0, POLAR_E_SHAPE},
    {PL_OP_pair_grad, 2, COLS, 0, POLAR_E_SHAPE},
    {PL_OP_pair_grad, 0, MODE, 0, POLAR_E_SHAPE},
    {PL_OP_pair_grad, 0, ONTO, 1, POLAR_E_ARG},
    {PL_OP_pair_grad, 0, ONTO, 2, POLAR_E_ARG},
    {PL_OP_vec_dots, 0, COLS, 0, POLAR_E_SHAPE},
    {PL_OP_vec_dots, 0, ROWS, 0, POLAR_E_SHAPE},
    {PL_OP_vec_dots, 1, BATCH, 0, POLAR_E_SHAPE},
    {PL_OP_vec_dots, 0, ONTO, 1, POLAR_E_ARG},
    {PL_OP_vec_dots_back, 1, ROWS, 0, POLAR_E_SHAPE},
    {PL_OP_vec_dots_back, 2, COLS, 0, POLAR_E_SHAPE},
    {PL_OP_vec_dots_back, 2, ROWS, 0, POLAR_E_SHAPE},
    {PL_OP_vec_dots_back, 0, ONTO, 1, POLAR_E_ARG},
    {PL_OP_vec_dots_back, 0, ONTO, 2, POLAR_E_ARG},
    {PL_OP_vec_norm, 0, ROWS, 0, POLAR_E_SHAPE},
    {PL_OP_vec_norm, 1, COLS, 0, POLAR_E_SHAPE},
    {PL_OP_vec_norm, 0, ONTO, 1, POLAR_E_ARG},
    {PL_OP_vec_norm, 0, SCALAR, 0, POLAR_E_ARG},
    {PL_OP_vec_norm_back, 1, ROWS, 0, POLAR_E_SHAPE},
    {PL_OP_vec_norm_back, 2, ROWS, 0, POLAR_E_SHAPE},
    {PL_OP_vec_norm_back, 0, ONTO, 1, POLAR_E_ARG},
    {PL_OP_vec_norm_back, 0, ONTO, 2, POLAR_E_ARG},
    {PL_OP_vec_norm_back, 0, SCALAR, 0, POLAR_E_ARG},
    {PL_OP_vec_gate, 1, ROWS, 0, POLAR_E_SHAPE},
    {PL_OP_vec_gate, 2, COLS, 0, POLAR_E_SHAPE},
    {PL_OP_vec_gate, 3, BATCH, 0, POLAR_E_SHAPE},
    {PL_OP_vec_gate, 4, COLS, 0, POLAR_E_SHAPE},
    {PL_OP_vec_gate, 0, ONTO, 1, POLAR_E_ARG},
    {PL_OP_vec_gate, 0, ONTO, 2, POLAR_E_ARG},
    {PL_OP_vec_gate, 0, ONTO, 4, POLAR_E_ARG},
    {PL_OP_vec_gate, 0, SCALAR, 0, POLAR_E_ARG},
    {PL_OP_vec_gate, 3, NO_DATA, 0, POLAR_E_ARG},
    {PL_OP_vec_gate_back, 1, ROWS, 0, POLAR_E_SHAPE},
    {PL_OP_vec_gate_back, 2, COLS, 0, POLAR_E_SHAPE},
    {PL_OP_vec_gate_back, 3, ROWS, 0, POLAR_E_SHAPE},
    {PL_OP_vec_gate_back, 4, COLS, 0, POLAR_E_SHAPE},
    {PL_OP_vec_gate_back, 5, BATCH, 0, POLAR_E_SHAPE},
    {PL_OP_vec_gate_back, 6, ROWS, 0, POLAR_E_SHAPE},
    {PL_OP_vec_gate_back, 0, ONTO, 6, POLAR_E_ARG},
    {PL_OP_vec_gate_back, 0, ONTO, 3, POLAR_E_ARG},
    {PL_OP_vec_gate_back, 1, ONTO, 2, POLAR_E_ARG},
    {PL_OP_vec_gate_back, 1, ONTO, 6, POLAR_E_ARG},
    {PL_OP_vec_gate_back, 2, NO_DATA, 0, POLAR_E_ARG},
    {PL_OP_vec_gate_back, 0, SCALAR, 0, POLAR_E_ARG},
    {PL_OP_mse, 0, FORMAT, 0, POLAR_E_DTYPE},
    {PL_OP_mse, 0, BATCH, 0, POLAR_E_SHAPE},
    {PL_OP_mse, 1, ROWS, 0, POLAR_E_SHAPE},
    {PL_OP_mse, 3, ROWS, 0, POLAR_E_SHAPE},
    {PL_OP_mse, 2, COLS, 0, POLAR_E_SHAPE},
    {PL_OP_mse, 1, ONTO, 2, POLAR_E_ARG},
    {PL_OP_mse, 1, ONTO, 3, POLAR_E_ARG},
    {PL_OP_mse, 2, NO_DATA, 0, POLAR_E_ARG},
};

static const char *const valid[PL_OP_COUNT] = {
    [PL_OP_bias_act] = "bias_act f32 3x7x13 per_matrix silu b",
    [PL_OP_bias_act_back] = "bias_act_back f32 3x7x13 per_matrix silu b",
    [PL_OP_row_sum] = "row_sum f32 3x2x17x65 1",
    [PL_OP_row_spread] = "row_spread f32 3x2x17x65 1",
    [PL_OP_pair_dist] = "pair_dist f32 3x5x3 eps 1e-08",
    [PL_OP_pair_sum] = "pair_sum f32 2x7x13x3 Z 0.015625",
    [PL_OP_pair_grad] = "pair_grad f32 2x7x13x3 1",
    [PL_OP_vec_dots] = "vec_dots f32 3x7x13",
    [PL_OP_vec_dots_back] = "vec_dots_back f32 3x7x13",
    [PL_OP_vec_norm] = "vec_norm f32 3x7x13 eps 1e-08",
    [PL_OP_vec_norm_back] = "vec_norm_back f32 3x7x13 eps 1e-08",
    [PL_OP_vec_gate] = "vec_gate f32 3x7x13 per_matrix in_place_x Z eps 0.25",
    [PL_OP_vec_gate_back] = "vec_gate_back f32 3x7x13 per_matrix eps 1e-08",
    [PL_OP_mse] = "mse f32 3x5x1 dP"};

int main(int argc, char **argv)
{
    const char *name = test_begin(argc, argv);
    pl_device *dev;
    TEST_TRY(polar_device_open(&dev, name));
    if (!strcmp(name, "ref")) planted_faults(faults, sizeof faults / sizeof *faults);
    bad_use(dev, bad_calls, (int)(sizeof bad_calls / sizeof *bad_calls), valid, 1);
    polar_device_close(dev);
    return test_end();
}
