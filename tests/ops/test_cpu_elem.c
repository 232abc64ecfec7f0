/* test_cpu_elem.c -- the `cpu` backend's elementwise ops, norms and batched exact polar factors: one set of
 * bits.
 *
 * Every op on every instruction set this machine has and on 1, 2 and 3 threads gives the bits of the baseline
 * on one thread; norms and polar factors give ref's. Formats in all mixtures, strides, any exponent, in
 * place. All expectations are exact; no byte outside a result may change.
 */
#include "base/alloc.h"
#include "cpu_bits.h"

typedef struct {
    polar_dtype x, y, z;
    shape s; /* M x N matrices */
    int64_t pad;
    fill how;
} elem_case;

enum {
    STEP = 4,
    NORMALISE,
    FROB,
    DIRECTION = FROB + 2,
    MODES = 2 * PL_MOMENTUM_COUNT,
    ADAMW = DIRECTION + 3 * MODES,
    RESULTS = ADAMW + 3
};

/* The third and later steps: a row per matrix, the second one frozen, the third one with a factor for its
 * gradient. */
static void live_rows(double *live, int64_t n)
{
    for (int64_t b = 0; b < n; b++) {
        double *row = live + PL_LIVE_COLS * b, t = (double)(3 + b);
        pl_live_row(row, 1 / (1 - pow(0.9, t)), 1 / (1 - pow(0.999, t)), b == 1 ? 0 : 0.02, 0.1, 0.9, 0.999,
                    1e-8);
        if (b == 2) row[PL_LIVE_GRAD] = 0.3;
    }
}

static int is_second_moment(int k)
{
    return k >= DIRECTION && (k - DIRECTION) % 3 == 2;
}

static matrix result_create(const elem_case *c, int k)
{
    int64_t n = c->s.batch, M = c->s.M, N = c->s.N;
    if (k == FROB || k == FROB + 1) return matrix_create(POLAR_DTYPE_F64, n, 1, 2, 0, NORMAL, 50);
    matrix r = matrix_create(c->y, n, k == 1 ? N : M, k == 1 ? M : N, c->pad, NORMAL, 30 + (uint64_t)k);
    for (int64_t b = 0; b < n && is_second_moment(k); b++)
        for (int64_t i = 0; i < M; i++)
            for (int64_t j = 0; j < N; j++) {
                char *v = (char *)element(&r.m, b, i, j);
                pl_store_f64(v, c->y, 0, fabs(pl_load_f64(v, c->y, 0))); /* not negative */
            }
    return r;
}

/* adamw_step again, as a direction in the compute format and a step; elements whose bits differ from r's. */
static int64_t composed(machine *at, const elem_case *c, const matrix *x, const matrix *r, pl_mat live)
{
    polar_dtype compute =
        c->x == POLAR_DTYPE_F64 || c->y == POLAR_DTYPE_F64 ? POLAR_DTYPE_F64 : POLAR_DTYPE_F32;
    matrix W = result_create(c, ADAMW), M = result_create(c, ADAMW + 1), V = result_create(c, ADAMW + 2);
    matrix D = matrix_create(compute, c->s.batch, c->s.M, c->s.N, 0, NORMAL, 70);
    PL_CALL(direction, at->q, .D = D.m, .M = M.m, .V = V.m, .G = x->m, .live = live,
            .momentum = POLAR_MOMENTUM_EMA, .precondition = POLAR_PRECONDITION_ADAM);
    PL_CALL(decay_step, at->q, .W = W.m, .D = D.m, .live = live, .scale = 1);
    TEST_TRY(polar_queue_sync(at->q));
    int64_t bad = differences(&W.m, &r[ADAMW].m, 0) + differences(&M.m, &r[ADAMW + 1].m, 0) +
                  differences(&V.m, &r[ADAMW + 2].m, 0);
    matrix_destroy(&W), matrix_destroy(&M), matrix_destroy(&V), matrix_destroy(&D);
    return bad;
}

/* Every elementwise op and both norms; results in r, which start the same each time. Returns where adamw_step
 * differs from its composition. */
static int64_t run_elementwise(machine *at, const elem_case *c, matrix r[RESULTS])
{
    double live[PL_LIVE_COLS * 3];
    int64_t n = c->s.batch;
    live_rows(live, n);
    pl_mat all = pl_mat_dense(live, POLAR_DTYPE_F64, n, 1, PL_LIVE_COLS);
    matrix x = matrix_create(c->x, n, c->s.M, c->s.N, c->pad, c->how, 20),
           z = matrix_create(c->z, n, c->s.M, c->s.N, 0, c->how, 21);
    for (int k = 0; k < RESULTS; k++) r[k] = result_create(c, k);
    PL_CALL(copy, at->q, .Y = r[0].m, .X = x.m);
    PL_CALL(copy, at->q, .Y = r[1].m, .X = x.m, .trans = 1);
    PL_CALL(axpby, at->q, .Y = r[2].m, .X = x.m, .Z = z.m, .alpha = 1.1, .beta = -0.7);
    PL_CALL(axpby, at->q, .Y = r[3].m, .X = x.m, .Z = z.m, .alpha = 1.1, .beta = -0.7, .round_terms = 1);
    PL_CALL(decay_step, at->q, .W = r[STEP].m, .D = x.m, .live = all, .scale = 1.7);
    PL_CALL(frob, at->q, .N = r[FROB].m, .X = x.m, .weight = 1);
    PL_CALL(frob, at->q, .N = r[FROB + 1].m, .X = x.m, .weight = 3, .rounded = 1);
    /* above some norms, below others */
    PL_CALL(normalise, at->q, .Y = r[NORMALISE].m, .X = x.m, .N = r[FROB].m, .eps = 9);
    /* in place */
    PL_CALL(normalise, at->q, .Y = r[0].m, .X = r[0].m, .N = r[FROB + 1].m, .reference = 1, .eps = 1e-7);
    for (int k = 0; k < MODES; k++) {
        matrix *d = &r[DIRECTION + 3 * k];
        PL_CALL(direction, at->q, .D = d[0].m, .M = d[1].m, .V = k % 2 ? d[2].m : (pl_mat){0}, .G = x.m,
                .live = all, .momentum = k / 2, .precondition = k % 2);
    }
    PL_CALL(adamw_step, at->q, .W = r[ADAMW].m, .M = r[ADAMW + 1].m, .V = r[ADAMW + 2].m, .G = x.m,
            .live = all);
    TEST_TRY(polar_queue_sync(at->q));
    /* ref computes in double, whatever the formats */
    int64_t bad = at == &ref ? 0 : composed(at, c, &x, r, all);
    matrix_destroy(&x), matrix_destroy(&z);
    return bad;
}

static const char *result_name(char *out, size_t bytes, int k)
{
    static const char *const names[DIRECTION] = {"copy, normalise reference",
                                                 "copy transposed",
                                                 "axpby",
                                                 "axpby rounded",
                                                 "decay_step",
                                                 "normalise",
                                                 "frob",
                                                 "frob rounded"};
    static const char *const momenta[PL_MOMENTUM_COUNT] = {"heavy ball", "Nesterov", "EMA", "average",
                                                           "average, Nesterov"};
    int d = k - DIRECTION;
    if (k < DIRECTION) snprintf(out, bytes, "%s", names[k]);
    else if (k < ADAMW)
        snprintf(out, bytes, "direction %s%s: %c", momenta[d / 6], d / 3 % 2 ? ", Adam" : "", "DMV"[d % 3]);
    else snprintf(out, bytes, "adamw_step: %c", "WMV"[k - ADAMW]);
    return out;
}

static void test_elementwise(void)
{
    static const shape sizes[] = /* the last two are shared out over threads */
        {{1, 1, 1, 0}, {3, 5, 3, 0}, {2, 64, 33, 0}, {1, 33, 1030, 0}, {3, 101, 111, 0}};
    int64_t bad[RESULTS] = {0}, guards = 0, norms = 0, fused = 0;
    for (int s = 0; s < COUNT(sizes); s++)
        for (int d = 0; d < 9; d++) {
            elem_case c = {.x = d % 3,
                           .y = d / 3,
                           .z = (d + d / 3 + s) % 3,
                           .s = sizes[s],
                           .pad = d % 2 * 3,
                           .how = (s + d) % 2 ? WILD : NORMAL};
            matrix want[RESULTS], got[RESULTS], oracle[RESULTS];
            fused += run_elementwise(&machines[PL_ISA_SCALAR][1], &c, want);
            run_elementwise(&ref, &c, oracle);
            norms += differences(&want[FROB].m, &oracle[FROB].m, 0) +
                     differences(&want[FROB + 1].m, &oracle[FROB + 1].m, 0);
            for (int isa = 0; isa < PL_ISA_COUNT; isa++)
                for (int n = 1; n <= MAX_THREADS && pl_isa_usable((pl_isa)isa); n++) {
                    fused += run_elementwise(&machines[isa][n], &c, got);
                    for (int k = 0; k < RESULTS; k++) {
                        bad[k] += differences(&want[k].m, &got[k].m, 0);
                        guards += guards_broken(&got[k]);
                        matrix_destroy(&got[k]);
                    }
                }
            for (int k = 0; k < RESULTS; k++) matrix_destroy(&want[k]), matrix_destroy(&oracle[k]);
        }
    char name[64];
    for (int k = 0; k < RESULTS; k++) test_exact(result_name(name, sizeof name, k), bad[k]);
    test_exact("adamw_step: the bits of direction, then decay_step", fused);
    test_exact("elementwise: nothing written outside", guards);
    test_exact("frob: ref's bits", norms);
}

/* Batches over threads, and memory that runs out in one of them. The op does not depend on the instruction
 * set. */
static void test_polar(void)
{
    matrix x = matrix_create(POLAR_DTYPE_F32, 14, 12, 9, 1, NORMAL, 60),
           want = matrix_create(POLAR_DTYPE_F64, 14, 12, 9, 0, NORMAL, 61);
    matrix got = matrix_create(POLAR_DTYPE_F64, 14, 12, 9, 2, NORMAL, 62);
    PL_CALL(polar_exact, ref.q, .Y = want.m, .X = x.m);
    PL_CALL(polar_exact, machines[PL_ISA_SCALAR][3].q, .Y = got.m, .X = x.m);
    TEST_TRY(polar_queue_sync(ref.q));
    TEST_TRY(polar_queue_sync(machines[PL_ISA_SCALAR][3].q));
    test_exact("polar_exact: a batch on 3 threads, ref's bits",
               differences(&want.m, &got.m, 0) + guards_broken(&got));
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
    test_true("polar_exact: the n-th allocation fails", st == POLAR_OK && failed > 3 && !leaks,
              "%d failures reported, %d leaks", failed, leaks);
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
