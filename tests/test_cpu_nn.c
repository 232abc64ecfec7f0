/* test_cpu_nn.c -- what `cpu` promises about the layers' ops beyond the op cases (test_ops.c): the same bits
 *
 *     with any number of threads, alone, in a batch and elsewhere in it, and on every instruction set; and nothing is written outside the results.
 *
 * The fused messages: test_cpu_message.c.
 */
#include "cpu_bits.h"
#include "math/activation.h"

enum { MAX_OPERANDS = 8 };

typedef struct {
    const char *name;
    int     count, written;                    /* operands; how many lead and are written */
    int64_t rows[MAX_OPERANDS], cols[MAX_OPERANDS];
    void  (*run)(pl_queue *q, const matrix *x);
} layer_op;

enum { R = 30, H = 19, N = 10, PAIRS = N * (N + 1) / 2, DOTS = H * (H + 1) / 2 };

static void run_bias_act(pl_queue *q, const matrix *x) { PL_CALL(bias_act, q, .Y = x[0].m, .X = x[1].m, .b = x[2].m, .act = PL_ACT_SILU); }
static void run_bias_act_back(pl_queue *q, const matrix *x) { PL_CALL(bias_act_back, q, .dX = x[0].m, .X = x[1].m, .b = x[2].m, .dY = x[3].m, .act = PL_ACT_SILU); }
static void run_row_sum(pl_queue *q, const matrix *x) { PL_CALL(row_sum, q, .Y = x[0].m, .X = x[1].m, .alpha = 0.3); }
static void run_row_spread(pl_queue *q, const matrix *x) { PL_CALL(row_spread, q, .Y = x[0].m, .X = x[1].m, .alpha = 0.3); }
static void run_pair_dist(pl_queue *q, const matrix *x) { PL_CALL(pair_dist, q, .D = x[0].m, .X = x[1].m, .eps = 1e-8); }
static void run_pair_sum(pl_queue *q, const matrix *x) { PL_CALL(pair_sum, q, .Y = x[0].m, .X = x[1].m, .W = x[2].m, .Z = x[3].m, .points = N, .alpha = 0.3); }
static void run_pair_grad(pl_queue *q, const matrix *x) { PL_CALL(pair_grad, q, .dW = x[0].m, .dY = x[1].m, .X = x[2].m, .points = N, .alpha = 0.3); }
static void run_vec_dots(pl_queue *q, const matrix *x) { PL_CALL(vec_dots, q, .Q = x[0].m, .V = x[1].m); }
static void run_vec_dots_back(pl_queue *q, const matrix *x) { PL_CALL(vec_dots_back, q, .dV = x[0].m, .V = x[1].m, .dQ = x[2].m); }
static void run_vec_norm(pl_queue *q, const matrix *x) { PL_CALL(vec_norm, q, .R = x[0].m, .V = x[1].m, .eps = 1e-8); }
static void run_vec_norm_back(pl_queue *q, const matrix *x) { PL_CALL(vec_norm_back, q, .dV = x[0].m, .V = x[1].m, .dR = x[2].m, .eps = 1e-8); }
static void run_vec_gate(pl_queue *q, const matrix *x) { PL_CALL(vec_gate, q, .Y = x[0].m, .V = x[1].m, .g = x[2].m, .b = x[3].m, .Z = x[4].m, .eps = 1e-8); }
static void run_vec_gate_back(pl_queue *q, const matrix *x)
{
    PL_CALL(vec_gate_back, q, .dV = x[0].m, .T = x[1].m, .TR = x[2].m, .V = x[3].m, .g = x[4].m, .b = x[5].m, .dY = x[6].m, .eps = 1e-8);
}

static const layer_op layer_ops[] = {
    {"bias_act", 3, 1, {R, R, 1}, {H, H, H}, run_bias_act},
    {"bias_act_back", 4, 1, {R, R, 1, R}, {H, H, H, H}, run_bias_act_back},
    {"row_sum", 2, 1, {2, 30 * R}, {70, 70}, run_row_sum},
    {"row_spread", 2, 1, {R, 3}, {H, H}, run_row_spread},
    {"pair_dist", 2, 1, {PAIRS, N}, {1, 3}, run_pair_dist},
    {"pair_sum", 4, 1, {3 * N, 3 * N, PAIRS, 3 * N}, {H, H, H, H}, run_pair_sum},
    {"pair_grad", 3, 1, {PAIRS, 3 * N, 3 * N}, {H, H, H}, run_pair_grad},
    {"vec_dots", 2, 1, {R, 3 * R}, {DOTS, H}, run_vec_dots},
    {"vec_dots_back", 3, 1, {3 * R, 3 * R, R}, {H, H, DOTS}, run_vec_dots_back},
    {"vec_norm", 2, 1, {R, 3 * R}, {H, H}, run_vec_norm},
    {"vec_norm_back", 3, 1, {3 * R, 3 * R, R}, {H, H, H}, run_vec_norm_back},
    {"vec_gate", 5, 1, {3 * R, 3 * R, 1, 1, 3 * R}, {H, H, H, H, H}, run_vec_gate},
    {"vec_gate_back", 7, 3, {3 * R, R, R, 3 * R, 1, 1, 3 * R}, {H, H, H, H, H, H, H}, run_vec_gate_back},
};

enum { BATCH = 5 };

/* The op on fresh operands. A batch of `batch` matrices whose number `shift` and after are those of a larger batch from its beginning. */
static void layer_run(matrix *x, machine *on, const layer_op *op, polar_dtype dtype, int64_t first, int64_t batch)
{
    for (int i = 0; i < op->count; i++) {
        matrix whole = matrix_create(dtype, BATCH, op->rows[i], op->cols[i], i % 3, NORMAL, (uint64_t)(50 + i));
        x[i] = matrix_create(dtype, batch, op->rows[i], op->cols[i], i % 3, NORMAL, 0);
        for (int64_t b = 0; b < batch; b++)
            for (int64_t r = 0; r < op->rows[i]; r++)
                memcpy((char *)element(&x[i].m, b, r, 0), element(&whole.m, first + b, r, 0), (size_t)op->cols[i] * polar_dtype_size(dtype));
        matrix_destroy(&whole);
    }
    op->run(on->q, x);
    TEST_TRY(polar_queue_sync(on->q));
}

static void layer_end(matrix *x, const layer_op *op)
{
    for (int i = 0; i < op->count; i++) matrix_destroy(&x[i]);
}

static void test_layer_op(pl_isa isa, const layer_op *op)
{
    static const polar_dtype dtypes[] = {POLAR_DTYPE_F32, POLAR_DTYPE_F64, POLAR_DTYPE_BF16};
    int64_t threads = 0, sets = 0, alone = 0, guards = 0;
    char what[80];
    for (int t = 0; t < COUNT(dtypes); t++) {
        matrix x[MAX_OPERANDS], y[MAX_OPERANDS];
        layer_run(x, &machines[isa][1], op, dtypes[t], 0, BATCH);
        for (int i = 0; i < op->written; i++) guards += guards_broken(&x[i]);
        for (int n = 2; n <= MAX_THREADS; n++) {
            layer_run(y, &machines[isa][n], op, dtypes[t], 0, BATCH);
            for (int i = 0; i < op->written; i++) threads += differences(&x[i].m, &y[i].m, 0);
            layer_end(y, op);
        }
        for (int lower = 0; lower < (int)isa; lower++) {
            if (!pl_isa_usable((pl_isa)lower)) continue;
            layer_run(y, &machines[lower][1], op, dtypes[t], 0, BATCH);
            for (int i = 0; i < op->written; i++) sets += differences(&x[i].m, &y[i].m, 0);
            layer_end(y, op);
        }
        for (int64_t b = 0; b < BATCH; b++) {
            layer_run(y, &machines[isa][2], op, dtypes[t], b, 1);
            for (int i = 0; i < op->written; i++) {
                pl_mat of = pl_mat_at(x[i].m, b, 1);
                alone += differences(&y[i].m, &of, 0);
            }
            layer_end(y, op);
        }
        layer_end(x, op);
    }
    snprintf(what, sizeof what, "%s: threads", op->name), test_exact(what, threads);
    snprintf(what, sizeof what, "%s: lower instruction sets", op->name), test_exact(what, sets);
    snprintf(what, sizeof what, "%s: alone and in a batch", op->name), test_exact(what, alone);
    snprintf(what, sizeof what, "%s: nothing written outside", op->name), test_exact(what, guards);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    machines_open();
    for (int isa = 0; isa < PL_ISA_COUNT; isa++)
        if (pl_isa_usable((pl_isa)isa)) {
            test_device = pl_isa_name((pl_isa)isa);
            for (int i = 0; i < COUNT(layer_ops); i++) test_layer_op((pl_isa)isa, &layer_ops[i]);
        }
    machines_close();
    return test_end();
}
