/* test_cpu_rows.c -- what `cpu` promises about activations and groups of rows beyond the op cases
 * (test_ops.c): the same bits
 *
 *     with any number of threads, alone, in a batch and elsewhere in it, and on every instruction set; and
 * nothing is written outside the results.
 *
 * Rows longer than the kernels' buffers (4096) are here too.
 */
#include "cpu_op_bits.h"
#include "math/activation.h"

enum { R = 150, H = 43, LONG = 4100 };

static void run_bias_act(pl_queue *q, const matrix *x)
{
    PL_CALL(bias_act, q, .Y = x[0].m, .X = x[1].m, .b = x[2].m, .act = PL_ACT_SILU);
}

static void run_bias_act_back(pl_queue *q, const matrix *x)
{
    PL_CALL(bias_act_back, q, .dX = x[0].m, .X = x[1].m, .b = x[2].m, .dY = x[3].m, .act = PL_ACT_SILU);
}

static void run_gelu(pl_queue *q, const matrix *x)
{
    PL_CALL(bias_act, q, .Y = x[0].m, .X = x[1].m, .b = x[2].m, .act = PL_ACT_GELU);
}

static void run_gelu_back(pl_queue *q, const matrix *x)
{
    PL_CALL(bias_act_back, q, .dX = x[0].m, .X = x[1].m, .b = x[2].m, .dY = x[3].m, .act = PL_ACT_GELU);
}

static void run_row_sum(pl_queue *q, const matrix *x)
{
    PL_CALL(row_sum, q, .Y = x[0].m, .X = x[1].m, .alpha = 0.3);
}

static void run_row_spread(pl_queue *q, const matrix *x)
{
    PL_CALL(row_spread, q, .Y = x[0].m, .X = x[1].m, .alpha = 0.3);
}

static void run_scale_rows(pl_queue *q, const matrix *x)
{
    PL_CALL(scale_rows, q, .Y = x[0].m, .X = x[1].m, .s = x[2].m, .Z = x[3].m);
}

static const cpu_op ops[] = {
    {"bias_act", 3, 1, {R, R, 1}, {H, H, H}, run_bias_act, 0, 0},
    {"bias_act_back", 4, 1, {R, R, 1, R}, {H, H, H, H}, run_bias_act_back, 0, 0},
    {"row_sum", 2, 1, {2, 900}, {70, 70}, run_row_sum, 0, 0},
    {"row_sum, wide", 2, 1, {1, 270}, {1100, 1100}, run_row_sum, 0, 0},
    {"row_spread", 2, 1, {R, 3}, {H, H}, run_row_spread, 0, 0},
    {"gelu", 3, 1, {R, R, 1}, {H, H, H}, run_gelu, 0, 0},
    {"gelu back", 4, 1, {R, R, 1, R}, {H, H, H, H}, run_gelu_back, 0, 0},
    {"scale_rows", 4, 1, {R, R, 3, R}, {H, H, 1, H}, run_scale_rows, 0, 0},
    {"scale_rows, long", 4, 1, {2, 2, 2, 2}, {LONG, LONG, 1, LONG}, run_scale_rows, 0, 0},
};

static void test_all(pl_isa isa)
{
    for (int i = 0; i < COUNT(ops); i++) test_op(isa, &ops[i]);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    machines_run(test_all);
    return test_end();
}
