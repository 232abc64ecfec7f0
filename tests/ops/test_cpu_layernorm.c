/* test_cpu_layernorm.c -- what `cpu` promises about normalised rows, softmax, cross entropy and patches
 * beyond the op cases (test_ops.c): the same bits
 *
 *     with any number of threads, alone, in a batch and elsewhere in it, and on every instruction set; and
 * nothing is written outside the results.
 *
 * Rows longer than the kernels' buffers (4096) are here too.
 */
#include "cpu_op_bits.h"

enum { R = 150, H = 43, LANES = 96, LONG = 4100, SIDE = 12, PATCH = 4 };

static void run_layernorm(pl_queue *q, const matrix *x)
{
    PL_CALL(layernorm, q, .Y = x[0].m, .S = x[1].m, .X = x[2].m, .g = x[3].m, .b = x[4].m, .eps = 1e-6);
}

static void run_layernorm_back(pl_queue *q, const matrix *x)
{
    PL_CALL(layernorm_back, q, .dX = x[0].m, .dg = x[1].m, .db = x[2].m, .dL = x[3].m, .X = x[4].m,
            .S = x[5].m, .g = x[6].m, .dY = x[7].m, .Z = x[8].m);
}

static void run_layernorm_back_scaled(pl_queue *q, const matrix *x)
{
    PL_CALL(layernorm_back, q, .dX = x[0].m, .dg = x[1].m, .db = x[2].m, .dL = x[3].m, .X = x[4].m,
            .S = x[5].m, .g = x[6].m, .dY = x[7].m, .Z = x[8].m, .s = x[9].m);
}

static void run_softmax(pl_queue *q, const matrix *x)
{
    PL_CALL(softmax, q, .Y = x[0].m, .X = x[1].m, .scale = 0.7);
}

static void run_softmax_back(pl_queue *q, const matrix *x)
{
    PL_CALL(softmax_back, q, .dX = x[0].m, .Y = x[1].m, .dY = x[2].m, .scale = 0.7);
}

static void run_patches(pl_queue *q, const matrix *x)
{
    PL_CALL(patches, q, .Y = x[0].m, .X = x[1].m, .height = SIDE, .width = SIDE, .patch = PATCH);
}

static const cpu_op ops[] = {
    {"layernorm", 5, 2, {R, R, R, 1, 1}, {H, 2, H, H, H}, run_layernorm, 1 << 1, 0},
    {"layernorm, whole lanes",
     5,
     2,
     {R, R, R, 1, 1},
     {LANES, 2, LANES, LANES, LANES},
     run_layernorm,
     1 << 1,
     0},
    {"layernorm, long", 5, 2, {2, 2, 2, 1, 1}, {LONG, 2, LONG, LONG, LONG}, run_layernorm, 1 << 1, 0},
    {"layernorm_back",
     9,
     4,
     {R, 1, 1, R, R, R, 1, R, R},
     {H, H, H, H, H, 2, H, H, H},
     run_layernorm_back,
     1 << 5 | 1,
     0},
    {"layernorm_back, whole lanes",
     9,
     4,
     {R, 1, 1, R, R, R, 1, R, R},
     {LANES, LANES, LANES, LANES, LANES, 2, LANES, LANES, LANES},
     run_layernorm_back,
     1 << 5 | 1,
     0},
    {"layernorm_back, long",
     9,
     4,
     {2, 1, 1, 2, 2, 2, 1, 2, 2},
     {LONG, LONG, LONG, LONG, LONG, 2, LONG, LONG, LONG},
     run_layernorm_back,
     1 << 5 | 1,
     0},
    {"layernorm_back, factors",
     10,
     4,
     {R, 1, 1, R, R, R, 1, R, R, R / 5},
     {H, H, H, H, H, 2, H, H, H, 1},
     run_layernorm_back_scaled,
     1 << 5 | 1,
     0},
    {"layernorm_back, factors, long",
     10,
     4,
     {2, 1, 1, 2, 2, 2, 1, 2, 2, 1},
     {LONG, LONG, LONG, LONG, LONG, 2, LONG, LONG, LONG, 1},
     run_layernorm_back_scaled,
     1 << 5 | 1,
     0},
    {"softmax", 2, 1, {R, R}, {H, H}, run_softmax, 0, 0},
    {"softmax, long", 2, 1, {2, 2}, {LONG, LONG}, run_softmax, 0, 0},
    {"softmax_back", 3, 1, {R, R, R}, {H, H, H}, run_softmax_back, 0, 0},
    {"softmax_back, long", 3, 1, {2, 2, 2}, {LONG, LONG, LONG}, run_softmax_back, 0, 0},
    {"patches", 2, 1, {SIDE * SIDE / PATCH / PATCH, 3 * SIDE}, {3 * PATCH * PATCH, SIDE}, run_patches, 0, 0},
};

/* The loss by its definition: rows, classes, the mean; one for each matrix of the batch, whatever the
 * threads. */
static void test_loss(pl_isa isa)
{
    enum { ROWS = 70, CLASSES = 130 };
    matrix z = matrix_create(POLAR_DTYPE_F32, BATCH, ROWS, CLASSES, 2, NORMAL, 1),
           t = matrix_create(POLAR_DTYPE_F32, BATCH, ROWS, CLASSES, 0, NORMAL, 2);
    matrix l[MAX_THREADS + 1], dz[MAX_THREADS + 1];
    int64_t threads = 0, guards = 0;
    for (int n = 1; n <= MAX_THREADS; n++) {
        l[n] = matrix_create(POLAR_DTYPE_F64, BATCH, 1, 1, 1, NORMAL, 3),
        dz[n] = matrix_create(POLAR_DTYPE_F32, BATCH, ROWS, CLASSES, 1, NORMAL, 4);
        PL_CALL(cross_entropy, machines[isa][n].q, .L = l[n].m, .dZ = dz[n].m, .Z = z.m, .T = t.m);
        TEST_TRY(polar_queue_sync(machines[isa][n].q));
        threads += differences(&l[n].m, &l[1].m, 0) + differences(&dz[n].m, &dz[1].m, 0);
        guards += guards_broken(&l[n]) + guards_broken(&dz[n]);
    }
    PL_CALL(cross_entropy, ref.q, .L = l[2].m, .dZ = dz[2].m, .Z = z.m, .T = t.m);
    TEST_TRY(polar_queue_sync(ref.q));
    test_exact("cross_entropy: threads", threads);
    test_exact("cross_entropy: the oracle's bits",
               differences(&l[2].m, &l[1].m, 0) + differences(&dz[2].m, &dz[1].m, 0));
    test_exact("cross_entropy: nothing written outside", guards);
    for (int n = 1; n <= MAX_THREADS; n++) matrix_destroy(&l[n]), matrix_destroy(&dz[n]);
    matrix_destroy(&z), matrix_destroy(&t);
}

/* dL is a copy of dX in another format, or the rows of dX times their factors as scale_rows has them; rows of
 * whole lanes and others. */
static void test_low(pl_isa isa)
{
    machine *on = &machines[isa][2];
    int64_t differ = 0, scaled = 0;
    for (int64_t cols = H; cols <= LANES; cols += LANES - H) {
        const polar_dtype f = POLAR_DTYPE_F32, h = POLAR_DTYPE_BF16;
        matrix x[] = {
            matrix_create(f, 1, R, cols, 0, NORMAL, 1), matrix_create(f, 1, 1, cols, 0, NORMAL, 2),
            matrix_create(f, 1, 1, cols, 0, NORMAL, 3), matrix_create(h, 1, R, cols, 3, NORMAL, 4),
            matrix_create(f, 1, R, cols, 0, NORMAL, 5), matrix_create(f, 1, R, 2, 0, NORMAL, 6),
            matrix_create(f, 1, 1, cols, 0, NORMAL, 7), matrix_create(h, 1, R, cols, 0, NORMAL, 8),
            matrix_create(f, 1, R, cols, 0, NORMAL, 9), matrix_create(f, 1, R / 5, 1, 0, NORMAL, 10),
            matrix_create(h, 1, R, cols, 0, NORMAL, 11)};
        run_layernorm_back(on->q, x);
        PL_CALL(copy, on->q, .Y = x[10].m, .X = x[0].m);
        TEST_TRY(polar_queue_sync(on->q));
        differ += differences(&x[3].m, &x[10].m, 0);
        run_layernorm_back_scaled(on->q, x);
        PL_CALL(scale_rows, on->q, .Y = x[10].m, .X = x[0].m, .s = x[9].m);
        TEST_TRY(polar_queue_sync(on->q));
        scaled += differences(&x[3].m, &x[10].m, 0);
        for (int i = 0; i < COUNT(x); i++) matrix_destroy(&x[i]);
    }
    test_exact("layernorm_back: dL is a copy of dX", differ);
    test_exact("layernorm_back: dL is scale_rows of dX", scaled);
}

static void test_all(pl_isa isa)
{
    for (int i = 0; i < COUNT(ops); i++) test_op(isa, &ops[i]);
    test_loss(isa);
    test_low(isa);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    machines_run(test_all);
    return test_end();
}
