/* test_cpu_vectors.c -- what `cpu` promises about pairs of points and vectors beyond the op cases
 * (test_ops.c): the same bits
 *
 *     with any number of threads, alone, in a batch and elsewhere in it, and on every instruction set; and
 * nothing is written outside the results.
 *
 * The fused messages: test_cpu_message.c.
 */
#include "cpu_op_bits.h"

enum { R = 30, H = 19, N = 10, PAIRS = N * (N + 1) / 2, DOTS = H * (H + 1) / 2 };

static void run_pair_dist(pl_queue *q, const matrix *x)
{
    PL_CALL(pair_dist, q, .D = x[0].m, .X = x[1].m, .eps = 1e-8);
}

static void run_pair_sum(pl_queue *q, const matrix *x)
{
    PL_CALL(pair_sum, q, .Y = x[0].m, .X = x[1].m, .W = x[2].m, .Z = x[3].m, .points = N, .alpha = 0.3);
}

static void run_pair_grad(pl_queue *q, const matrix *x)
{
    PL_CALL(pair_grad, q, .dW = x[0].m, .dY = x[1].m, .X = x[2].m, .points = N, .alpha = 0.3);
}

static void run_pair_square(pl_queue *q, const matrix *x)
{
    PL_CALL(pair_square, q, .Y = x[0].m, .W = x[1].m);
}

static void run_pair_fold(pl_queue *q, const matrix *x)
{
    PL_CALL(pair_fold, q, .W = x[0].m, .Y = x[1].m);
}

static void run_vec_dots(pl_queue *q, const matrix *x)
{
    PL_CALL(vec_dots, q, .Q = x[0].m, .V = x[1].m);
}

static void run_vec_dots_back(pl_queue *q, const matrix *x)
{
    PL_CALL(vec_dots_back, q, .dV = x[0].m, .V = x[1].m, .dQ = x[2].m);
}

static void run_vec_norm(pl_queue *q, const matrix *x)
{
    PL_CALL(vec_norm, q, .R = x[0].m, .V = x[1].m, .eps = 1e-8);
}

static void run_vec_norm_back(pl_queue *q, const matrix *x)
{
    PL_CALL(vec_norm_back, q, .dV = x[0].m, .V = x[1].m, .dR = x[2].m, .eps = 1e-8);
}

static void run_vec_gate(pl_queue *q, const matrix *x)
{
    PL_CALL(vec_gate, q, .Y = x[0].m, .V = x[1].m, .g = x[2].m, .b = x[3].m, .Z = x[4].m, .eps = 1e-8);
}

static void run_vec_gate_back(pl_queue *q, const matrix *x)
{
    PL_CALL(vec_gate_back, q, .dV = x[0].m, .T = x[1].m, .TR = x[2].m, .V = x[3].m, .g = x[4].m, .b = x[5].m,
            .dY = x[6].m, .eps = 1e-8);
}

static const cpu_op ops[] = {
    {"pair_dist", 2, 1, {PAIRS, N}, {1, 3}, run_pair_dist, 0, 0},
    {"pair_sum", 4, 1, {3 * N, 3 * N, PAIRS, 3 * N}, {H, H, H, H}, run_pair_sum, 0, 0},
    {"pair_grad", 3, 1, {PAIRS, 3 * N, 3 * N}, {H, H, H}, run_pair_grad, 0, 0},
    {"pair_square", 2, 1, {N, PAIRS}, {N, 1}, run_pair_square, 0, 0},
    {"pair_fold", 2, 1, {PAIRS, N}, {1, N}, run_pair_fold, 0, 0},
    {"vec_dots", 2, 1, {R, 3 * R}, {DOTS, H}, run_vec_dots, 0, 0},
    {"vec_dots_back", 3, 1, {3 * R, 3 * R, R}, {H, H, DOTS}, run_vec_dots_back, 0, 0},
    {"vec_norm", 2, 1, {R, 3 * R}, {H, H}, run_vec_norm, 0, 0},
    {"vec_norm_back", 3, 1, {3 * R, 3 * R, R}, {H, H, H}, run_vec_norm_back, 0, 0},
    {"vec_gate", 5, 1, {3 * R, 3 * R, 1, 1, 3 * R}, {H, H, H, H, H}, run_vec_gate, 0, 0},
    {"vec_gate_back",
     7,
     3,
     {3 * R, R, R, 3 * R, 1, 1, 3 * R},
     {H, H, H, H, H, H, H},
     run_vec_gate_back,
     0,
     0},
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
