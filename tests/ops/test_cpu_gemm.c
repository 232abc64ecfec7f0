/* test_cpu_gemm.c -- what the `cpu` backend's product promises beyond agreeing with `ref`: bits that depend
 * on the operands alone.
 *
 * For every instruction set this machine has: one thread against two and three, a matrix alone against one in
 * a batch, zero padding, the mirrored product, views with strides, C in the place of D, integers, work memory
 * that runs out. All expectations are exact; no byte outside C may change.
 */
#include "base/alloc.h"
#include "cpu_bits.h"
#include "math/bf16_elem.h"

typedef struct {
    polar_dtype in, out, d;
    int has_d;
} format;

static const shape shapes[] = {{1, 1, 1, 1},     {2, 1, 17, 3},    {3, 13, 33, 7},   {1, 12, 32, 16},
                               {2, 5, 3, 0},     {40, 8, 8, 8},    {1, 7, 129, 1},   {1, 61, 90, 401},
                               {3, 97, 131, 90}, {1, 50, 45, 801}, {1, 400, 67, 39}, {1, 30, 500, 64},
                               {1, 1, 900, 385}};
static const format formats[] = {{POLAR_DTYPE_F32, POLAR_DTYPE_F32, POLAR_DTYPE_F32, 1},
                                 {POLAR_DTYPE_F64, POLAR_DTYPE_F64, POLAR_DTYPE_F64, 1},
                                 {POLAR_DTYPE_BF16, POLAR_DTYPE_BF16, POLAR_DTYPE_BF16, 1},
                                 {POLAR_DTYPE_F32, POLAR_DTYPE_BF16, POLAR_DTYPE_F32, 0},
                                 {POLAR_DTYPE_BF16, POLAR_DTYPE_F32, POLAR_DTYPE_F64, 1},
                                 {POLAR_DTYPE_BF16, POLAR_DTYPE_F64, POLAR_DTYPE_F32, 0}};

typedef struct {
    shape s;
    format f;
    int ta, tb;
    matrix A, B, C, D;
    double alpha, beta;
} product;

static product product_create(shape s, format f, int ta, int tb, fill how, int64_t pad)
{
    product p = {.s = s,
                 .f = f,
                 .ta = ta,
                 .tb = tb,
                 .alpha = how == INTEGERS ? 2 : 1.25,
                 .beta = how == INTEGERS ? -3 : 0.3};
    p.A = ta ? matrix_create(f.in, s.batch, s.K, s.M, pad, how, 1)
             : matrix_create(f.in, s.batch, s.M, s.K, pad, how, 1);
    p.B = tb ? matrix_create(f.in, s.batch, s.N, s.K, pad, how, 2)
             : matrix_create(f.in, s.batch, s.K, s.N, pad, how, 2);
    p.C = matrix_create(f.out, s.batch, s.M, s.N, pad, how, 3);
    p.D = matrix_create(f.d, s.batch, s.M, s.N, pad, how, 4);
    return p;
}

static void product_destroy(product *p)
{
    matrix_destroy(&p->A), matrix_destroy(&p->B), matrix_destroy(&p->C), matrix_destroy(&p->D);
}

static void multiply(machine *at, const product *p, pl_mat C)
{
    pl_mat D = p->f.has_d ? p->D.m : (pl_mat){0};
    PL_CALL(gemm, at->q, .C = C, .A = p->A.m, .B = p->B.m, .D = D, .ta = p->ta, .tb = p->tb,
            .alpha = p->alpha, .beta = p->beta);
    TEST_TRY(polar_queue_sync(at->q));
}

/* The integer sums: at most 64 x 801 x 2 + 24, exact in float. */
static int64_t integer_errors(const product *p)
{
    int64_t bad = 0;
    for (int64_t b = 0; b < p->s.batch; b++)
        for (int64_t i = 0; i < p->s.M; i++)
            for (int64_t j = 0; j < p->s.N; j++) {
                double sum = 0;
                for (int64_t k = 0; k < p->s.K; k++) {
                    const char *a = element(&p->A.m, b, p->ta ? k : i, p->ta ? i : k),
                               *c = element(&p->B.m, b, p->tb ? j : k, p->tb ? k : j);
                    sum += pl_load_f64(a, p->f.in, 0) * pl_load_f64(c, p->f.in, 0);
                }
                sum = p->alpha * sum +
                      (p->f.has_d ? p->beta * pl_load_f64(element(&p->D.m, b, i, j), p->f.d, 0) : 0);
                char want[8], *got = (char *)element(&p->C.m, b, i, j);
                pl_store_f64(want, p->f.out, 0, sum);
                bad += pl_load_f64(want, p->f.out, 0) != pl_load_f64(got, p->f.out, 0);
            }
    return bad;
}

/* B^T A^T against A B. */
static int64_t mirror_errors(machine *at, const product *p)
{
    matrix C = matrix_create(p->f.out, p->s.batch, p->s.N, p->s.M, 1, NORMAL, 5);
    product t = *p;
    t.A = p->B, t.B = p->A, t.ta = !p->tb, t.tb = !p->ta;
    t.D = matrix_create(p->f.d, p->s.batch, p->s.N, p->s.M, 2, NORMAL, 6);
    PL_CALL(copy, at->q, .Y = t.D.m, .X = p->D.m, .trans = 1);
    multiply(at, &t, C.m);
    int64_t bad = differences(&p->C.m, &C.m, 1);
    matrix_destroy(&C), matrix_destroy(&t.D);
    return bad;
}

/* Each matrix of the batch alone. */
static int64_t alone_errors(machine *at, const product *p)
{
    int64_t bad = 0;
    matrix C = matrix_create(p->f.out, 1, p->s.M, p->s.N, 0, NORMAL, 7);
    for (int64_t b = 0; b < p->s.batch; b++) {
        product one = *p;
        pl_mat within = pl_mat_at(p->C.m, b, 1);
        one.A.m = pl_mat_at(p->A.m, b, 1), one.B.m = pl_mat_at(p->B.m, b, 1),
        one.D.m = pl_mat_at(p->D.m, b, 1);
        multiply(at, &one, C.m);
        bad += differences(&C.m, &within, 0);
    }
    matrix_destroy(&C);
    return bad;
}

/* X in the corner of a larger matrix of zeros. */
static matrix padded(machine *at, const matrix *x, int64_t more_rows, int64_t more_cols)
{
    matrix y =
        matrix_create(x->m.dtype, x->m.batch, x->m.rows + more_rows, x->m.cols + more_cols, 0, INTEGERS, 8);
    pl_mat corner = y.m;
    memset(y.block, 0, y.bytes);
    corner.rows = x->m.rows, corner.cols = x->m.cols;
    PL_CALL(copy, at->q, .Y = corner, .X = x->m);
    return y;
}

static int64_t padding_errors(machine *at, const product *p)
{
    int64_t m = 3, n = 18, k = 5, bad = 0;
    product w = *p;
    w.A = padded(at, &p->A, p->ta ? k : m, p->ta ? m : k);
    w.B = padded(at, &p->B, p->tb ? n : k, p->tb ? k : n);
    w.D = padded(at, &p->D, m, n);
    w.C = matrix_create(p->f.out, p->s.batch, p->s.M + m, p->s.N + n, 0, NORMAL, 9);
    multiply(at, &w, w.C.m);
    bad += differences(&p->C.m, &w.C.m, 0);
    for (int64_t b = 0; b < p->s.batch; b++)
        for (int64_t i = 0; i < p->s.M + m; i++)
            for (int64_t j = 0; j < p->s.N + n; j++)
                if (i >= p->s.M || j >= p->s.N)
                    bad += pl_load_f64(element(&w.C.m, b, i, j), p->f.out, 0) != 0;
    product_destroy(&w);
    return bad;
}

/* C in the place of D. */
static int64_t in_place_errors(machine *at, const product *p)
{
    product w = *p;
    if (!p->f.has_d || p->f.d != p->f.out) return 0;
    w.D = matrix_create(p->f.d, p->s.batch, p->s.M, p->s.N, 2, NORMAL, 10);
    PL_CALL(copy, at->q, .Y = w.D.m, .X = p->D.m);
    multiply(at, &w, w.D.m);
    int64_t bad = differences(&p->C.m, &w.D.m, 0) + guards_broken(&w.D);
    matrix_destroy(&w.D);
    return bad;
}

static void test_products(pl_isa isa)
{
    int64_t threads = 0, mirror = 0, alone = 0, padding = 0, in_place = 0, integers = 0, guards = 0,
            fused = 0;
    machine *one = &machines[isa][1];
    for (int s = 0; s < COUNT(shapes); s++)
        for (int f = 0; f < COUNT(formats); f++)
            for (int t = 0; t < 4; t++) {
                product p = product_create(shapes[s], formats[f], t & 1, t >> 1, NORMAL, s % 3);
                matrix C = matrix_create(p.f.out, p.s.batch, p.s.M, p.s.N, 5, NORMAL, 11);
                multiply(one, &p, p.C.m);
                for (int n = 2; n <= MAX_THREADS; n++) {
                    multiply(&machines[isa][n], &p, C.m);
                    threads += differences(&p.C.m, &C.m, 0);
                    guards += guards_broken(&C);
                }
                if (isa == PL_ISA_AVX512) { /* the same chain of fma as in avx2 */
                    multiply(&machines[PL_ISA_AVX2][1], &p, C.m);
                    fused += differences(&p.C.m, &C.m, 0);
                }
                guards += guards_broken(&p.C);
                mirror += mirror_errors(one, &p);
                alone += alone_errors(one, &p);
                padding += padding_errors(one, &p);
                in_place += in_place_errors(one, &p);
                matrix_destroy(&C), product_destroy(&p);

                product i = product_create(shapes[s], formats[f], t & 1, t >> 1, INTEGERS, 0);
                multiply(&machines[isa][2], &i, i.C.m);
                integers += integer_errors(&i);
                product_destroy(&i);
            }
    test_exact("gemm: 1, 2 and 3 threads", threads);
    test_exact("gemm: nothing written outside C", guards);
    test_exact("gemm: (A B)^T = B^T A^T", mirror);
    test_exact("gemm: alone and in a batch", alone);
    test_exact("gemm: zero padding", padding);
    test_exact("gemm: C in the place of D", in_place);
    test_exact("gemm: integers", integers);
    if (isa == PL_ISA_AVX512) test_exact("gemm: avx2 and avx512", fused);
}

static void test_memory(pl_isa isa)
{
    product small = product_create((shape){100, 16, 16, 16}, formats[0], 0, 0, NORMAL, 0);
    product large = product_create((shape){1, 150, 140, 500}, formats[1], 0, 1, NORMAL, 0);
    for (int n = 1; n <= MAX_THREADS; n += 2) {
        machine *at = &machines[isa][n];
        int failed = 0, leaks = 0, st = POLAR_E_NOMEM;
        for (int k = 1; st != POLAR_OK && k < 100; k++) {
            int64_t live = pl_alloc_live();
            pl_alloc_fail_at(k);
            PL_CALL(gemm, at->q, .C = large.C.m, .A = large.A.m, .B = large.B.m, .tb = 1, .alpha = 1);
            st = (int)polar_queue_sync(at->q);
            pl_alloc_fail_at(0);
            failed += st == POLAR_E_NOMEM && strstr(polar_error_message(), "gemm") != NULL;
            leaks += pl_alloc_live() != live;
        }
        int ok = st == POLAR_OK && failed >= 1 && !leaks;
        test_true("gemm: the n-th allocation fails", ok, "%d threads: %d failures reported, %d leaks", n,
                  failed, leaks);
        pl_alloc_fail_at(1);
        PL_CALL(gemm, at->q, .C = small.C.m, .A = small.A.m, .B = small.B.m, .alpha = 1);
        st = (int)polar_queue_sync(at->q);
        pl_alloc_fail_at(0);
        test_true("gemm: small products allocate nothing", st == POLAR_OK, "%d threads", n);
    }
    product_destroy(&small), product_destroy(&large);
}

/* Sums become bf16 as pl_bf16_from_f32 makes them: every upper half of a float with five lower ones (ties,
 * their neighbours, NaN with a payload in the lower half only), as 1 x, k = 1. Seven rows and a last column
 * too many: full tiles, part of one, the edge. */
static void test_rounding(pl_isa isa)
{
    static const uint32_t lower[] = {0, 0x7fff, 0x8000, 0x8001, 0xffff};
    const int64_t n = COUNT(lower) * 0x10000;
    int64_t bad = 0;
    matrix A = matrix_create(POLAR_DTYPE_F32, 1, 7, 1, 0, INTEGERS, 1),
           B = matrix_create(POLAR_DTYPE_F32, 1, 1, n + 1, 0, INTEGERS, 2);
    matrix C = matrix_create(POLAR_DTYPE_BF16, 1, 7, n + 1, 0, INTEGERS, 3);
    for (int i = 0; i < 7; i++) ((float *)A.m.data)[i] = 1;
    for (int64_t j = 0; j < n; j++) {
        uint32_t u = (uint32_t)(j / COUNT(lower)) << 16 | lower[j % COUNT(lower)];
        memcpy((float *)B.m.data + j, &u, sizeof u);
    }
    PL_CALL(gemm, machines[isa][2].q, .C = C.m, .A = A.m, .B = B.m, .alpha = 1);
    TEST_TRY(polar_queue_sync(machines[isa][2].q));
    for (int64_t j = 0; j <= n; j++) {
        float x = ((const float *)B.m.data)[j];
        pl_bf16 want = x == 0 ? 0 : pl_bf16_from_f32(x); /* a sum begins at +0 */
        for (int64_t i = 0; i < 7; i++) bad += ((const pl_bf16 *)C.m.data)[i * C.m.rs + j] != want;
    }
    test_exact("gemm: rounding to bf16", bad + guards_broken(&C));
    matrix_destroy(&A), matrix_destroy(&B), matrix_destroy(&C);
}

static void test_all(pl_isa isa)
{
    test_products(isa);
    test_rounding(isa);
    test_memory(isa);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    machines_run(test_all);
    return test_end();
}
