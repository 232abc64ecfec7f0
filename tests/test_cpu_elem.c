/* test_cpu_elem.c -- the `cpu` backend's elementwise ops, norms and batched exact polar factors: one set of bits.
 *
 * Every op on every instruction set this machine has and on 1, 2 and 3 threads gives the bits of the baseline on one thread; norms and polar
 * factors give ref's. Formats in all mixtures, strides, any exponent, in place. All expectations are exact; no byte outside a result may change.
 */
#include "base/alloc.h"
#include "cpu_bits.h"

typedef struct {
    polar_dtype x, y, z;
    shape       s;    /* M x N matrices */
    int64_t     pad;
    fill        how;
} elem_case;

enum { RESULTS = 11 };

/* Every elementwise op and both norms; results in r, which start the same each time. */
static void run_elementwise(machine *at, const elem_case *c, matrix r[RESULTS])
{
    double live_adam[2] = {1 / (1 - 0.9 * 0.9), 1 / (1 - 0.999 * 0.999)}, live_step[2] = {0.02, 0.1};
    int64_t n = c->s.batch, M = c->s.M, N = c->s.N;
    matrix x = matrix_create(c->x, n, M, N, c->pad, c->how, 20), z = matrix_create(c->z, n, M, N, 0, c->how, 21);
    for (int k = 0; k < 9; k++) r[k] = matrix_create(c->y, n, k == 1 ? N : M, k == 1 ? M : N, c->pad, NORMAL, 30 + (uint64_t)k);
    for (int k = 9; k < RESULTS; k++) r[k] = matrix_create(POLAR_DTYPE_F64, n, 1, 2, 0, NORMAL, 50);
    for (int64_t b = 0; b < n; b++)
        for (int64_t i = 0; i < M; i++)
            for (int64_t j = 0; j < N; j++) {
                char *v = (char *)element(&r[6].m, b, i, j);
                pl_store_f64(v, c->y, 0, fabs(pl_load_f64(v, c->y, 0)));    /* second moments are not negative */
            }
    PL_CALL(copy, at->q, .Y = r[0].m, .X = x.m);
    PL_CALL(copy, at->q, .Y = r[1].m, .X = x.m, .trans = 1);
    PL_CALL(axpby, at->q, .Y = r[2].m, .X = x.m, .Z = z.m, .alpha = 1.1, .beta = -0.7);
    PL_CALL(axpby, at->q, .Y = r[3].m, .X = x.m, .Z = z.m, .alpha = 1.1, .beta = -0.7, .round_terms = 1);
    PL_CALL(adam_direction, at->q, .D = r[4].m, .M = r[5].m, .V = r[6].m, .G = x.m, .live = pl_mat_dense(live_adam, POLAR_DTYPE_F64, 1, 1, 2),
            .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8);
    PL_CALL(decay_step, at->q, .W = r[7].m, .D = x.m, .live = pl_mat_dense(live_step, POLAR_DTYPE_F64, 1, 1, 2), .scale = 1.7);
    PL_CALL(frob, at->q, .N = r[9].m, .X = x.m, .weight = 1);
    PL_CALL(frob, at->q, .N = r[10].m, .X = x.m, .weight = 3, .rounded = 1);
    PL_CALL(normalise, at->q, .Y = r[8].m, .X = x.m, .N = r[9].m);
    PL_CALL(normalise, at->q, .Y = r[0].m, .X = r[0].m, .N = r[10].m, .reference = 1, .eps = 1e-7);    /* in place */
    TEST_TRY(polar_queue_sync(at->q));
    matrix_destroy(&x), matrix_destroy(&z);
}

static void test_elementwise(void)
{
    static const char *const names[RESULTS] = {"copy, normalise reference", "copy transposed", "axpby", "axpby rounded", "adam_direction", "its M",
                                               "its V", "decay_step", "normalise", "frob", "frob rounded"};
    static const shape sizes[] =    /* the last two are shared out over threads */
        {{1, 1, 1, 0}, {3, 5, 3, 0}, {2, 64, 33, 0}, {1, 33, 1030, 0}, {3, 101, 111, 0}};
    int64_t bad[RESULTS] = {0}, guards = 0, norms = 0;
    for (int s = 0; s < COUNT(sizes); s++)
        for (int d = 0; d < 9; d++) {
            elem_case c = {.x = d % 3, .y = d / 3, .z = (d + d / 3 + s) % 3, .s = sizes[s], .pad = d % 2 * 3, .how = (s + d) % 2 ? WILD : NORMAL};
            matrix want[RESULTS], got[RESULTS], oracle[RESULTS];
            run_elementwise(&machines[PL_ISA_SCALAR][1], &c, want);
            run_elementwise(&ref, &c, oracle);
            norms += differences(&want[9].m, &oracle[9].m, 0) + differences(&want[10].m, &oracle[10].m, 0);
            for (int isa = 0; isa < PL_ISA_COUNT; isa++)
                for (int n = 1; n <= MAX_THREADS && pl_isa_usable((pl_isa)isa); n++) {
                    run_elementwise(&machines[isa][n], &c, got);
                    for (int k = 0; k < RESULTS; k++) {
                        bad[k] += differences(&want[k].m, &got[k].m, 0);
                        guards += guards_broken(&got[k]);
                        matrix_destroy(&got[k]);
                    }
                }
            for (int k = 0; k < RESULTS; k++) matrix_destroy(&want[k]), matrix_destroy(&oracle[k]);
        }
    for (int k = 0; k < RESULTS; k++) test_exact(names[k], bad[k]);
    test_exact("elementwise: nothing written outside", guards);
    test_exact("frob: ref's bits", norms);
}

/* Batches over threads, and memory that runs out in one of them. The op does not depend on the instruction set. */
static void test_polar(void)
{
    matrix x = matrix_create(POLAR_DTYPE_F32, 14, 12, 9, 1, NORMAL, 60), want = matrix_create(POLAR_DTYPE_F64, 14, 12, 9, 0, NORMAL, 61);
    matrix got = matrix_create(POLAR_DTYPE_F64, 14, 12, 9, 2, NORMAL, 62);
    PL_CALL(polar_exact, ref.q, .Y = want.m, .X = x.m);
    PL_CALL(polar_exact, machines[PL_ISA_SCALAR][3].q, .Y = got.m, .X = x.m);
    TEST_TRY(polar_queue_sync(ref.q));
    TEST_TRY(polar_queue_sync(machines[PL_ISA_SCALAR][3].q));
    test_exact("polar_exact: a batch on 3 threads, ref's bits", differences(&want.m, &got.m, 0) + guards_broken(&got));
    int failed = 0, leaks = 0, st = POLAR_E_NOMEM;
    for (int n = 1; st != POLAR_OK && n < 1000; n++) {
        int64_t live = pl_alloc_live();
        pl_alloc_fail_at(n);
        PL_CALL(polar_exact, machines[PL_ISA_SCALAR][3].q, .Y = got.m, .X = x.m);
        st = (int)polar_queue_sync(machines[PL_ISA_SCALAR][3].q);
        pl_alloc_fail_at(0);
        failed += st == POLAR_E_NOMEM;
        leaks += pl_alloc_live() != live;
    }
    test_true("polar_exact: the n-th allocation fails", st == POLAR_OK && failed > 3 && !leaks, "%d failures reported, %d leaks", failed, leaks);
    matrix_destroy(&x), matrix_destroy(&want), matrix_destroy(&got);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    machines_open();
    test_elementwise();
    test_polar();
    machines_close();
    return test_end();
}
