/* test_amx.c -- bf16 products and Newton-Schulz on the tile unit: the kernels of cpu:isa=amx, their tile
 * instructions done in plain C (cpu_tiles.h) and, where the CPU has them, by the CPU; and the same kernels on
 * cpu:isa=avx512bf16, by dot products (cpu_dots.h).
 *
 * Exact: the products against their order of sums written down once more here; the fused op against three
 * gemms a step, on any number of threads, alone and in a batch, with strides, NaN and infinity; polar_map and
 * polar_step against the ops they are made of, alone and put off together; the CPU's bits against the
 * emulation's, subnormal numbers among them. Bounded: the map against the oracle's. Returns 77 (skipped)
 * where the CPU lacks AVX-512, which the kernels use around the tiles.
 */
#include "base/alloc.h"
#include "cpu_bits.h"
#include "math/bf16_elem.h"
#include "polar/map.h"
#include "tile_steps.h"

extern const pl_ops pl_cpu_ops_emulated;

/* A device on avx512 with the emulated kernels in its table. */
static machine emulated_open(int threads)
{
    char name[64];
    /* what is beside the tiles: any AVX-512 that is built in */
    snprintf(name, sizeof name, "cpu:isa=%s,threads=%d",
             pl_isa_name(pl_isa_usable(PL_ISA_AVX512) ? PL_ISA_AVX512 : PL_ISA_AVX512BF16), threads);
    machine m = machine_open(name);
    const pl_ops rest = m.dev->ops;
    m.dev->ops = pl_cpu_ops_emulated;
    m.dev->flushes = 1;
    pl_op_fill(&m.dev->ops, &rest);
    return m;
}

/* ---- Newton-Schulz ------------------------------------------------------------------------------ */

/* The kernel mirrors blocks of 32; where the matrix is too large for it gemms do it all. */
static void test_chains(machine *at)
{
    /* K: the steps */
    static const shape cases[] = {{1, 1, 2, 2},     {2, 7, 40, 3},    {2, 64, 128, 2},  {1, 64, 130, 3},
                                  {2, 100, 257, 4}, {1, 192, 576, 3}, {1, 256, 1024, 3}};
    int64_t bad = 0, tall = 0, threads = 0;
    for (int c = 0; c < COUNT(cases); c++) {
        const shape *s = &cases[c];
        int64_t all = ((int64_t)1 << (s->K - 1)) - 1;
        matrix x = iterate_create(s->batch, s->M, s->N, c % 3, (uint64_t)(500 + c)), y = copy_of(&x),
               z = copy_of(&x), t = matrix_create(BF16, s->batch, s->N, s->M, 1, NORMAL, 1);
        PL_CALL(copy, at[1].q, .Y = t.m, .X = x.m, .trans = 1);
        by_chain(&at[1], &y, s->K, s->M > 200 ? 0 : 32);
        by_op(&at[1], &z, s->K, all);
        by_op(&at[2], &t, s->K, all);
        bad += differences(&y.m, &z.m, 0);
        tall += s->M < 200 ? differences(&z.m, &t.m, 1) : 0; /* large ones multiply in another order */
        by_op(&at[3], &x, s->K, all);
        threads += differences(&x.m, &z.m, 0);
        matrix_destroy(&x), matrix_destroy(&y), matrix_destroy(&z), matrix_destroy(&t);
    }
    test_exact("newton_schulz, joined steps: the bits of gemms, mirrored", bad);
    test_exact("newton_schulz, joined steps: tall matrices", tall);
    test_exact("newton_schulz, joined steps: 1 and 3 threads", threads);
}

static void test_fused(machine *at)
{
    static const struct {
        int64_t batch, m, n, steps;
    } cases[] = {{1, 1, 1, 5},    {2, 1, 40, 3},    {3, 7, 13, 5},    {2, 16, 16, 5},
                 {5, 16, 152, 5}, {1, 32, 32, 5},   {3, 33, 33, 4},   {2, 31, 65, 5},
                 {2, 64, 96, 5},  {1, 95, 97, 3},   {1, 20, 300, 5},  {1, 100, 257, 12},
                 {1, 40, 50, 0},  {2, 192, 192, 2}, {1, 192, 768, 2}, {2, 256, 1024, 1}};
    int64_t bad = 0, threads = 0, alone = 0, tall = 0, guards = 0, special = 0, into = 0;
    for (int c = 0; c < COUNT(cases); c++) {
        matrix x = iterate_create(cases[c].batch, cases[c].m, cases[c].n, c % 3, (uint64_t)(100 + c)),
               y = copy_of(&x), one = copy_of(&x), many = copy_of(&x);
        by_gemms(&at[1], &y, cases[c].steps);
        by_op(&at[1], &one, cases[c].steps, 0);
        by_op(&at[3], &many, cases[c].steps, 0);
        bad += differences(&y.m, &one.m, 0);
        threads += differences(&one.m, &many.m, 0);
        guards += guards_broken(&one) + guards_broken(&many);
        into += wrong_into(&at[3], c % 2 ? BF16 : F32, &x, &one, cases[c].steps);
        matrix last = copy_of(&x);
        pl_mat within = pl_mat_at(one.m, cases[c].batch - 1, 1);
        last.m = pl_mat_at(last.m, cases[c].batch - 1, 1);
        by_op(&at[2], &last, cases[c].steps, 0);
        alone += differences(&last.m, &within, 0);
        matrix flat = matrix_create(BF16, cases[c].batch, cases[c].n, cases[c].m, (c + 1) % 3, NORMAL, 1);
        PL_CALL(copy, at[1].q, .Y = flat.m, .X = x.m, .trans = 1);
        by_op(&at[2], &flat, cases[c].steps, 0);
        /* a square one stands for itself */
        if (cases[c].m < cases[c].n) tall += differences(&one.m, &flat.m, 1);
        guards += guards_broken(&flat);
        matrix_destroy(&flat);
        matrix_destroy(&y), matrix_destroy(&one), matrix_destroy(&many), matrix_destroy(&last);

        for (int k = 0; k < 4; k++) { /* one entry NaN, infinite, subnormal, huge */
            static const double values[] = {NAN, -INFINITY, 1e-40, 3e38};
            matrix p = copy_of(&x);
            pl_store_f64((char *)element(&p.m, 0, cases[c].m / 2, cases[c].n / 3), BF16, 0, values[k]);
            matrix g = copy_of(&p);
            int64_t steps = cases[c].steps < 1 ? 0 : 1;
            if (cases[c].m * cases[c].n < 20000) by_op(&at[1], &p, steps, 0), by_gemms(&at[1], &g, steps);
            for (int64_t i = 0; i < p.m.batch * p.m.bs; i++) {
                double v = pl_load_f64(p.m.data, BF16, i), w = pl_load_f64(g.m.data, BF16, i);
                special += !(v == w || (v != v && w != w));
            }
            matrix_destroy(&p), matrix_destroy(&g);
        }
        matrix_destroy(&x);
    }
    test_exact("newton_schulz: the bits of three gemms a step", bad);
    test_exact("newton_schulz: 1 and 3 threads", threads);
    test_exact("newton_schulz: alone and in a batch", alone);
    test_exact("newton_schulz: tall matrices", tall);
    test_exact("newton_schulz: nothing written outside X", guards);
    test_exact("newton_schulz: a result of its own", into);
    test_exact("newton_schulz: NaN, infinity, subnormal, huge", special);
}

static void test_memory(machine *at)
{
    matrix small = iterate_create(4, 40, 70, 0, 20), large = iterate_create(1, 256, 1024, 0, 21);
    int failed = 0, leaks = 0, passed = 0;
    for (int which = 0; which < 2; which++) {
        polar_status st = POLAR_E_NOMEM;
        for (int n = 1; st != POLAR_OK && n < 100; n++) {
            pl_args_newton_schulz a = {
                .X = which ? large.m : small.m, .steps = 1, .coef = {jordan.a, jordan.b, jordan.c}};
            int64_t live = pl_alloc_live();
            pl_alloc_fail_at(n);
            pl_call_newton_schulz(at->q, &a);
            st = polar_queue_sync(at->q);
            pl_alloc_fail_at(0);
            failed += st == POLAR_E_NOMEM;
            leaks += pl_alloc_live() != live;
        }
        passed += st == POLAR_OK;
    }
    test_true("newton_schulz: the n-th allocation fails", passed == 2 && failed >= 3 && !leaks,
              "%d failures reported, %d leaks", failed, leaks);
    matrix_destroy(&small), matrix_destroy(&large);
}

static void refused(machine *at, const char *what, pl_args_newton_schulz a, polar_status wanted)
{
    pl_call_newton_schulz(at->q, &a);
    polar_status st = polar_queue_sync(at->q);
    test_true(what, st == wanted && strstr(polar_error_message(), "newton_schulz"), "%s",
              polar_error_message());
}

static void test_refusals(machine *at)
{
    matrix h = matrix_create(BF16, 1, 4, 8, 0, NORMAL, 30), f = matrix_create(F32, 1, 4, 8, 0, NORMAL, 31);
    refused(at, "newton_schulz: f32 is refused", (pl_args_newton_schulz){.X = f.m, .steps = 1},
            POLAR_E_DTYPE);
    refused(at, "newton_schulz: too many steps are refused",
            (pl_args_newton_schulz){.X = h.m, .steps = PL_FUSED_STEPS + 1}, POLAR_E_ARG);
    refused(at, "newton_schulz: fewer than no steps are refused",
            (pl_args_newton_schulz){.X = h.m, .steps = -1}, POLAR_E_ARG);
    refused(at, "newton_schulz: a chain beyond the last step is refused",
            (pl_args_newton_schulz){.X = h.m, .steps = 2, .chain = 2}, POLAR_E_ARG);
    refused(&ref, "newton_schulz: ref leaves it to the composition",
            (pl_args_newton_schulz){.X = h.m, .steps = 1}, POLAR_E_UNSUPPORTED);
    machine guard = machine_open("guard");
    test_true("newton_schulz: no more has guard on ref",
              !pl_queue_has(guard.q, PL_OP_newton_schulz) && pl_queue_has(guard.q, PL_OP_gemm), "%s",
              polar_device_name(guard.dev));
    machine_close(&guard);
    matrix_destroy(&h), matrix_destroy(&f);
}

/* A direction's root and quotient are the nearest numbers, however they are made (cpu_ratio.h): M / sqrt(V)
 * for every mantissa of V in [1, 4), whose roots take every mantissa in [1, 2), with any M, and with other
 * exponents of V. */
static void test_ratio(machine *at)
{
    enum { COLS = 1 << 16 };
    double live[PL_LIVE_COLS];
    pl_live_row(live, 1, 1, 0, 0, 1, 1, 0);
    matrix M = matrix_create(F32, 1, 1, COLS, 0, NORMAL, 80), V = copy_of(&M), D = copy_of(&M),
           G = copy_of(&M);
    float *m = M.m.data, *v = V.m.data, *d = D.m.data;
    uint64_t state = 84;
    int64_t bad = 0;
    memset(G.m.data, 0, COLS * sizeof(float));
    for (uint32_t first = 0; first < 1u << 24; first += COLS) {
        for (uint32_t k = 0; k < COLS; k++) {
            uint32_t bits = (127u << 23) + first + k, r = (uint32_t)draw(&state);
            float x;
            memcpy(&x, &bits, sizeof x);
            v[k] = first % (8 * COLS) ? x : ldexpf(x, (int)(r % 120) * 2 - 120);
            m[k] = ldexpf((float)(1u << 23 | r >> 9), (int)(r % 64) - 55) * (r & 64 ? 1.0f : -1.0f);
        }
        PL_CALL(direction, at->q, .D = D.m, .M = M.m, .V = V.m, .G = G.m,
                .live = pl_mat_dense(live, POLAR_DTYPE_F64, 1, 1, PL_LIVE_COLS),
                .momentum = POLAR_MOMENTUM_HEAVY_BALL, .precondition = POLAR_PRECONDITION_ADAM);
        TEST_TRY(polar_queue_sync(at->q));
        for (int k = 0; k < COLS; k++) {
            float want = m[k] / sqrtf(v[k]);
            bad += memcmp(&want, &d[k], sizeof want) != 0;
        }
    }
    test_exact("direction: the nearest root and quotient, all mantissas", bad);
    matrix_destroy(&M), matrix_destroy(&V), matrix_destroy(&D), matrix_destroy(&G);
}

/* ---- the map ------------------------------------------------------------------------------------ */

static void map_of(machine *at, matrix *y, const matrix *x, int steps)
{
    polar_map_opts o;
    TEST_TRY(polar_map_opts_parse(&o, "ns_bf16_fused"));
    o.steps = steps;
    polar_tensor in = polar_tensor_3d(x->m.data, x->m.dtype, x->m.batch, x->m.rows, x->m.cols),
                 out = polar_tensor_3d(y->m.data, y->m.dtype, y->m.batch, y->m.rows, y->m.cols);
    TEST_TRY(polar_map_apply(at->q, &out, &in, 1, &o));
    TEST_TRY(polar_queue_sync(at->q));
}

static double distance(const matrix *x, const matrix *y)
{
    double d = 0, r = 0;
    for (int64_t i = 0; i < x->m.batch * x->m.bs; i++) {
        double a = pl_load_f64(x->m.data, x->m.dtype, i), b = pl_load_f64(y->m.data, y->m.dtype, i);
        d += (a - b) * (a - b), r += b * b;
    }
    return sqrt(d / r);
}

static void test_map(machine *at)
{
    int64_t bad = 0;
    double worst = 0;
    /* K: the steps */
    static const shape shapes[] = {{2, 24, 60, 5}, {1, 60, 24, 5}, {1, 64, 64, 5}, {2, 33, 70, 14}};
    for (int s = 0; s < COUNT(shapes); s++) {
        matrix x = matrix_create(F32, shapes[s].batch, shapes[s].M, shapes[s].N, 0, NORMAL,
                                 (uint64_t)(40 + s)),
               y = copy_of(&x), z = copy_of(&x);
        machine composed = emulated_open(2);
        composed.dev->ops = at->dev->ops;
        composed.dev->ops.newton_schulz = NULL, composed.dev->ops.polar_map = NULL;
        map_of(at, &y, &x, (int)shapes[s].K);
        map_of(&composed, &z, &x, (int)shapes[s].K);
        bad += differences(&y.m, &z.m, 0);
        map_of(&ref, &z, &x, (int)shapes[s].K);
        if (shapes[s].K == 5) worst = fmax(worst, distance(&y, &z));
        machine_close(&composed);
        matrix_destroy(&x), matrix_destroy(&y), matrix_destroy(&z);
    }
    test_exact("ns_bf16_fused: with the op and without", bad);
    test_bound("ns_bf16_fused: against ref", worst, 0.05, "another order of sums moves NS5 by 1-3 %");
}

/* ---- polar_map and polar_step ------------------------------------------------------------------- */

static void coefs_fill(double *coef, int64_t steps)
{
    for (int64_t s = 0; s < steps; s++)
        coef[3 * s] = jordan.a - 0.01 * (double)s, coef[3 * s + 1] = jordan.b, coef[3 * s + 2] = jordan.c;
}

/* Some shapes' steps are joined: three, then two. */
static int64_t joins(const pl_mat *x, int64_t steps)
{
    return x->rows % 2 && steps > 1 ? 11 & (((int64_t)1 << (steps - 1)) - 1) : 0;
}

/* Some maps know an eps, above the norm of small matrices. */
static double whole_eps(int64_t steps)
{
    return steps > 0 && steps % 2 == 0 ? 40 : 0;
}

/* Y by frob, normalise, newton_schulz and copy. */
static void map_by_ops(machine *at, const pl_mat *Y, const pl_mat *X, const pl_mat *N, int64_t steps)
{
    matrix x = matrix_create(BF16, X->batch, X->rows, X->cols, 1, NORMAL, 70),
           own = matrix_create(POLAR_DTYPE_F64, X->batch, 1, 2, 0, NORMAL, 71);
    pl_args_newton_schulz a = {.X = x.m, .steps = steps, .chain = joins(X, steps)};
    coefs_fill(a.coef, steps);
    if (!N) PL_CALL(frob, at->q, .N = own.m, .X = *X, .weight = 1, .trans = X->rows > X->cols);
    PL_CALL(normalise, at->q, .Y = x.m, .X = *X, .N = N ? *N : own.m, .eps = whole_eps(steps));
    pl_call_newton_schulz(at->q, &a);
    PL_CALL(copy, at->q, .Y = *Y, .X = x.m);
    TEST_TRY(polar_queue_sync(at->q));
    matrix_destroy(&x), matrix_destroy(&own);
}

static void map_by_op(machine *at, const pl_mat *Y, const pl_mat *X, const pl_mat *N, int64_t steps)
{
    pl_args_polar_map a = {
        .Y = *Y, .X = *X, .steps = steps, .chain = joins(X, steps), .eps = whole_eps(steps)};
    if (N) a.N = *N;
    coefs_fill(a.coef, steps);
    pl_call_polar_map(at->q, &a);
    TEST_TRY(polar_queue_sync(at->q));
}

/* Elements that differ, one NaN being as good as another. */
static int64_t unlike(const pl_mat *x, const pl_mat *y)
{
    int64_t bad = 0;
    for (int64_t b = 0; b < x->batch; b++)
        for (int64_t i = 0; i < x->rows; i++)
            for (int64_t j = 0; j < x->cols; j++) {
                double v = pl_load_f64(element(x, b, i, j), x->dtype, 0),
                       w = pl_load_f64(element(y, b, i, j), y->dtype, 0);
                bad += !((v == w && !signbit(v) == !signbit(w)) || (v != v && w != w));
            }
    return bad;
}

static const shape whole_shapes[] = {{1, 1, 1, 5},
                                     {2, 1, 40, 3},
                                     {3, 13, 7, 5},
                                     {2, 16, 16, 5},
                                     {5, 16, 152, 5},
                                     {3, 33, 33, 4},
                                     /* K: the steps */
                                     {2, 65, 31, 5},
                                     {2, 64, 96, 5},
                                     {1, 95, 97, 3},
                                     {1, 40, 50, 0},
                                     {1, 257, 100, 12},
                                     {2, 1024, 256, 1}};

static void test_polar_map(machine *at)
{
    int64_t bad = 0, wild = 0, given = 0, place = 0, threads = 0, special = 0, guards = 0;
    for (int c = 0; c < COUNT(whole_shapes); c++) {
        const shape *s = &whole_shapes[c];
        for (int f = 0; f < 4; f++) {
            if (s->M * s->N > 20000 && f) continue;
            polar_dtype in = f & 1 ? BF16 : F32, out = f & 2 ? BF16 : F32;
            matrix x = matrix_create(in, s->batch, s->M, s->N, c % 3, NORMAL, (uint64_t)(200 + c)),
                   y = matrix_create(out, s->batch, s->M, s->N, f, NORMAL, 1), z = copy_of(&y),
                   three = copy_of(&y);
            matrix norms = matrix_create(POLAR_DTYPE_F64, s->batch, 1, 2, 1, NORMAL, 72);
            map_by_ops(&at[1], &y.m, &x.m, NULL, s->K);
            map_by_op(&at[1], &z.m, &x.m, NULL, s->K);
            map_by_op(&at[3], &three.m, &x.m, NULL, s->K);
            bad += differences(&y.m, &z.m, 0);
            threads += differences(&y.m, &three.m, 0);
            guards += guards_broken(&z) + guards_broken(&three);
            for (int64_t b = 0; b < s->batch; b++)
                ((double *)norms.m.data)[b * norms.m.bs] = 0.5,
                                             ((double *)norms.m.data)[b * norms.m.bs + 1] =
                                                 1.7 * sqrt((double)(s->M * s->N)) + (double)b;
            pl_mat one = pl_mat_at(norms.m, s->batch - 1, 1), *n = f % 2 ? &one : &norms.m;
            map_by_ops(&at[1], &y.m, &x.m, n, s->K);
            map_by_op(&at[2], &z.m, &x.m, n, s->K);
            given += differences(&y.m, &z.m, 0);
            if (in == out) {
                map_by_op(&at[2], &x.m, &x.m, n, s->K);
                place += differences(&y.m, &x.m, 0) + guards_broken(&x);
            }
            matrix_destroy(&x), matrix_destroy(&y), matrix_destroy(&z), matrix_destroy(&three),
                matrix_destroy(&norms);
        }
        matrix x = matrix_create(F32, s->batch, s->M, s->N, 1, WILD, (uint64_t)(300 + c)), y = copy_of(&x),
               z = copy_of(&x);
        map_by_ops(&at[1], &y.m, &x.m, NULL, s->K < 1 ? 0 : 1);
        map_by_op(&at[1], &z.m, &x.m, NULL, s->K < 1 ? 0 : 1);
        wild += unlike(&y.m, &z.m);
        matrix_destroy(&x), matrix_destroy(&y), matrix_destroy(&z);
        /* one entry NaN, infinite, subnormal, huge; all zero */
        for (int k = 0; k < 5 && s->M * s->N < 20000; k++) {
            static const double values[] = {NAN, -INFINITY, 1e-40, 3e38, 0};
            matrix p = matrix_create(F32, s->batch, s->M, s->N, 0, NORMAL, (uint64_t)(400 + c)),
                   q = copy_of(&p), r = copy_of(&p);
            pl_store_f64((char *)element(&p.m, 0, s->M / 2, s->N / 3), F32, 0, values[k]);
            if (k == 4) memset(p.m.data, 0, (size_t)(p.m.batch * p.m.bs) * sizeof(float));
            map_by_ops(&at[1], &q.m, &p.m, NULL, s->K < 1 ? 0 : 1);
            map_by_op(&at[1], &r.m, &p.m, NULL, s->K < 1 ? 0 : 1);
            special += unlike(&q.m, &r.m);
            matrix_destroy(&p), matrix_destroy(&q), matrix_destroy(&r);
        }
    }
    test_exact("polar_map: frob, normalise, newton_schulz, copy", bad);
    test_exact("polar_map: the same, any exponents", wild);
    test_exact("polar_map: norms given, one or one each", given);
    test_exact("polar_map: in place", place);
    test_exact("polar_map: 1 and 3 threads", threads);
    test_exact("polar_map: NaN, infinity, subnormal, huge, zero", special);
    test_exact("polar_map: nothing written outside Y", guards);
}

/* The quotient without a division: x s / n within two units of the middle between two neighbours in bf16,
 * where one unit decides; and x anywhere, down to subnormal. */
static void test_quotients(machine *at)
{
    enum { SIDE = 64 };
    uint64_t state = 900;
    int64_t bad = 0;
    for (int round = 0; round < 200; round++) {
        matrix x = matrix_create(F32, 1, SIDE, SIDE, 0, WILD, (uint64_t)(1000 + round)),
               y = matrix_create(BF16, 1, SIDE, SIDE, 0, NORMAL, 1), z = copy_of(&y);
        double norm[2] = {ldexp(1, (int)(draw(&state) % 3) - 1), 0};
        pl_mat N = pl_mat_dense(norm, POLAR_DTYPE_F64, 1, 1, 2);
        float n = round % 8 == 0   ? 1 + 0x1p-23f
                  : round % 8 == 1 ? 2 - 0x1p-23f
                  : round % 8 == 2 ? 1.5f
                                   : 1 + (float)(draw(&state) % (1 << 23)) * 0x1p-23f;
        n = ldexpf(n, (int)(draw(&state) % 20) - 5);
        norm[1] = (double)n;
        for (int k = 0; k < SIDE * SIDE && round % 10; k++) {
            double middle = ldexp((double)(2 * (128 + draw(&state) % 128) + 1), -9 - (int)(draw(&state) % 8));
            float v = (float)(middle * (double)n / norm[0]);
            for (int64_t off = (int64_t)(draw(&state) % 5) - 2; off; off += off < 0 ? 1 : -1)
                v = nextafterf(v, off < 0 ? 0 : 1e30f);
            ((float *)x.m.data)[k] = draw(&state) % 2 ? v : -v;
        }
        map_by_op(&at[1], &y.m, &x.m, &N, 0);
        PL_CALL(normalise, at[1].q, .Y = z.m, .X = x.m, .N = N);
        TEST_TRY(polar_queue_sync(at[1].q));
        bad += differences(&y.m, &z.m, 0);
        matrix_destroy(&x), matrix_destroy(&y), matrix_destroy(&z);
    }
    test_exact("polar_map: quotients are those of a division", bad);
}

static int64_t parameter_differences(const parameter *a, const parameter *b)
{
    return unlike(&a->W.m, &b->W.m) + differences(&a->M.m, &b->M.m, 0) + differences(&a->V.m, &b->V.m, 0) +
           differences(&a->G.m, &b->G.m, 0);
}

/* momentum and preconditioner from the number of the mode */
static void step_by_ops(machine *at, parameter *p, int mode, int64_t steps)
{
    matrix D = matrix_create(F32, p->W.m.batch, p->W.m.rows, p->W.m.cols, 0, NORMAL, 73);
    PL_CALL(direction, at->q, .D = D.m, .M = p->M.m, .V = mode % 2 ? p->V.m : (pl_mat){0}, .G = p->G.m,
            .live = live_rows(p), .momentum = mode / 2, .precondition = mode % 2);
    map_by_ops(at, &D.m, &D.m, NULL, steps);
    PL_CALL(decay_step, at->q, .W = p->W.m, .D = D.m, .live = live_rows(p), .scale = 1.7);
    TEST_TRY(polar_queue_sync(at->q));
    matrix_destroy(&D);
}

static void step_by_op(machine *at, parameter *p, int mode, int64_t steps)
{
    pl_args_polar_step a = {.W = p->W.m,
                            .M = p->M.m,
                            .V = mode % 2 ? p->V.m : (pl_mat){0},
                            .G = p->G.m,
                            .live = live_rows(p),
                            .momentum = mode / 2,
                            .precondition = mode % 2,
                            .steps = steps,
                            .chain = joins(&p->W.m, steps),
                            .eps = whole_eps(steps),
                            .scale = 1.7};
    coefs_fill(a.coef, steps);
    pl_call_polar_step(at->q, &a);
}

static void test_polar_step(machine *at)
{
    enum { MANY = 12 };
    int64_t bad = 0, guards = 0, together = 0, special = 0;
    parameter want[MANY], got[MANY];
    for (int c = 0; c < MANY; c++) {
        for (int mode = 0; mode < 2 * PL_MOMENTUM_COUNT; mode++) {
            if (mode != c % (2 * PL_MOMENTUM_COUNT) && whole_shapes[c].M * whole_shapes[c].N > 5000) continue;
            parameter p = parameter_create(&whole_shapes[c], mode % 2 ? BF16 : F32, (c + mode) % 3, mode > 2,
                                           (uint64_t)(500 + 10 * c + mode)),
                      r = parameter_copy(&p);
            step_by_ops(&at[1], &p, mode, whole_shapes[c].K);
            step_by_op(&at[c % 3 + 1], &r, mode, whole_shapes[c].K);
            TEST_TRY(polar_queue_sync(at[c % 3 + 1].q));
            bad += parameter_differences(&p, &r);
            guards += guards_broken(&r.W) + guards_broken(&r.M) + guards_broken(&r.V);
            parameter_destroy(&p), parameter_destroy(&r);
        }
        want[c] = parameter_create(&whole_shapes[c], F32, c % 2, 1, (uint64_t)(600 + c));
        if (c < 3) ((float *)want[c].G.m.data)[0] = c == 0 ? NAN : c == 1 ? 3e38f : 1e-40f;
        got[c] = parameter_copy(&want[c]);
        step_by_ops(&at[1], &want[c], 5, whole_shapes[c].K);
    }
    pl_queue_overlap_begin(at[3].q);
    for (int c = 0; c < MANY; c++) step_by_op(&at[3], &got[c], 5, whole_shapes[c].K);
    pl_queue_overlap_end(at[3].q);
    TEST_TRY(polar_queue_sync(at[3].q));
    for (int c = 0; c < MANY; c++) {
        *(c < 3 ? &special : &together) += parameter_differences(&want[c], &got[c]);
        parameter_destroy(&want[c]), parameter_destroy(&got[c]);
    }
    test_exact("polar_step: direction, the map, decay_step", bad);
    test_exact("polar_step: nothing written outside", guards);
    test_exact("polar_step: many, together on 3 threads", together);
    test_exact("polar_step: NaN, huge, subnormal gradients", special);
}

/* More AdamW parameters than a queue puts off at once, with matrices among them: the bits of one call after
 * the other. */
static void test_together(machine *at)
{
    enum { MANY = 300 };
    static parameter want[MANY], got[MANY];
    int64_t bad = 0;
    for (int c = 0; c < MANY; c++) {
        shape s = {1 + c % 3, 1 + c % 5, c == 7 ? 40000 : 1 + 13 * (c % 11), 0};
        want[c] = parameter_create(&s, c % 4 ? F32 : BF16, c % 2, c % 3 == 0, (uint64_t)(2000 + c));
        got[c] = parameter_copy(&want[c]);
        PL_CALL(adamw_step, at[1].q, .W = want[c].W.m, .M = want[c].M.m, .V = want[c].V.m, .G = want[c].G.m,
                .live = live_rows(&want[c]));
        TEST_TRY(polar_queue_sync(at[1].q));
        if (c % 50 == 20) step_by_op(&at[1], &want[c], 5, 2);
    }
    pl_queue_overlap_begin(at[3].q);
    for (int c = 0; c < MANY; c++)
        if (c % 50 != 20)
            PL_CALL(adamw_step, at[3].q, .W = got[c].W.m, .M = got[c].M.m, .V = got[c].V.m, .G = got[c].G.m,
                    .live = live_rows(&got[c]));
    pl_queue_overlap_end(at[3].q);
    pl_queue_overlap_begin(at[3].q);
    for (int c = 20; c < MANY; c += 50)
        PL_CALL(adamw_step, at[3].q, .W = got[c].W.m, .M = got[c].M.m, .V = got[c].V.m, .G = got[c].G.m,
                .live = live_rows(&got[c]));
    pl_queue_overlap_end(at[3].q);
    for (int c = 20; c < MANY; c += 50) step_by_op(&at[3], &got[c], 5, 2);
    TEST_TRY(polar_queue_sync(at[3].q));
    for (int c = 0; c < MANY; c++) {
        bad += parameter_differences(&want[c], &got[c]);
        parameter_destroy(&want[c]), parameter_destroy(&got[c]);
    }
    test_exact("together: 300 parameters, the bits of one after the other", bad);
}

/* ---- the CPU's own tiles ------------------------------------------------------------------------ */

static void test_hardware(machine *emulated)
{
    int64_t product = 0, fused = 0;
    machine *cpu = machines[PL_ISA_AMX];
    for (int64_t k = 1; k < 200; k += 13)
        for (int how = NORMAL; how <= WILD; how++) {
            matrix A = matrix_create(BF16, 2, 37, k, 0, (fill)how, (uint64_t)k),
                   B = matrix_create(BF16, 2, k, 50, 0, (fill)how, (uint64_t)k + 1000);
            matrix C = matrix_create(F32, 2, 37, 50, 0, NORMAL, 3), D = copy_of(&C);
            PL_CALL(gemm, cpu[1].q, .C = C.m, .A = A.m, .B = B.m, .alpha = 1);
            PL_CALL(gemm, emulated[1].q, .C = D.m, .A = A.m, .B = B.m, .alpha = 1);
            TEST_TRY(polar_queue_sync(cpu[1].q));
            TEST_TRY(polar_queue_sync(emulated[1].q));
            product += differences(&C.m, &D.m, 0);
            matrix_destroy(&A), matrix_destroy(&B), matrix_destroy(&C), matrix_destroy(&D);
        }
    matrix x = iterate_create(3, 70, 130, 1, 50), y = copy_of(&x);
    by_op(&cpu[2], &x, 8, 11 << 3); /* three steps alone, three joined, two joined */
    by_op(&emulated[1], &y, 8, 11 << 3);
    fused = differences(&x.m, &y.m, 0);
    matrix_destroy(&x), matrix_destroy(&y);
    test_exact("the CPU's products: the bits of the emulation", product);
    test_exact("the CPU's newton_schulz: the bits of the emulation", fused);
}

static void test_all(machine *at, sum_of *sum)
{
    test_products(&at[1], &at[3], sum);
    test_fused(at);
    test_chains(at);
    test_memory(&at[2]);
    test_refusals(&at[1]);
    test_map(&at[2]);
    test_polar_map(at);
    test_quotients(at);
    test_polar_step(at);
    test_together(at);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    if (!pl_isa_usable(PL_ISA_AVX512) && !pl_isa_usable(PL_ISA_AVX512BF16)) {
        printf("skipped: this CPU has no AVX-512\n");
        return 77;
    }
    machine emulated[MAX_THREADS + 1] = {{NULL, NULL}};
    machines_open();
    for (int n = 1; n <= MAX_THREADS; n++) emulated[n] = emulated_open(n);
    test_device = "emulated";
    test_all(emulated, tile_sum);
    test_ratio(&emulated[1]);
    if (pl_isa_usable(PL_ISA_AVX512BF16)) {
        test_device = "avx512bf16";
        test_all(machines[PL_ISA_AVX512BF16], dot_sum);
    }
    if (pl_isa_usable(PL_ISA_AMX)) {
        test_device = "amx";
        test_all(machines[PL_ISA_AMX], tile_sum);
        test_ratio(&machines[PL_ISA_AMX][1]);
        test_hardware(emulated);
    }
    for (int n = 1; n <= MAX_THREADS; n++) machine_close(&emulated[n]);
    machines_close();
    return test_end();
}
