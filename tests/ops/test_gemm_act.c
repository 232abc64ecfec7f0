/* test_gemm_act.c -- a product and what follows it in one op, against gemm, bias_act, bias_act_back, a factor
 * and scale_rows one after the other on the same device; the formula of gelu for results in bf16 against the
 * exact one; the fused MLP of a layer is test_nn's and test_deit's.
 *
 *     ctest -R test_gemm_act
 *     test_gemm_act DEVICE few    without the large products and the formula
 */
#include "device/queue.h"
#include "math/bf16_elem.h"
#include "math/gelu_bf16_elem.h"
#include "fixtures/model_fixture.h"

#define U32 0x1p-24

typedef struct {
    pl_device *dev;
    pl_queue *q;
    pl_mat A, B, D, b, F, Y, S, U; /* U: what the ops leave one after the other */
    pl_mat s, V;                   /* factors of groups of rows; U in A's format */
} rig;

/* A prime: in large matrices the same numbers come again, in no row or tile at the same place. */
#define PERIOD 65537

static pl_mat mat(rig *r, polar_dtype dtype, int64_t batch, int64_t rows, int64_t cols, uint64_t what)
{
    pl_mat m;
    TEST_TRY(pl_mat_alloc(&m, r->dev, dtype, batch, rows, cols));
    double *x = model_new(batch * rows * cols);
    for (int64_t i = 0; i < batch * rows * cols; i++)
        x[i] = i < PERIOD ? (float)pl_normal(5, PL_STREAM_TEST, what, (uint64_t)i).a : x[i - PERIOD];
    TEST_TRY(pl_mat_upload_f64(r->q, &m, x));
    free(x);
    return m;
}

static double *values(rig *r, pl_mat m)
{
    double *x = model_new(m.batch * m.rows * m.cols);
    TEST_TRY(pl_mat_download_f64(r->q, &m, x));
    return x;
}

/* factors, bias, results and what they are added to or multiplied by */
typedef struct {
    const char *name;
    polar_dtype factor, wide, result;
    int64_t batch, m, n, k;
} form;

static const form forms[] = {
    {"f64", POLAR_DTYPE_F64, POLAR_DTYPE_F64, POLAR_DTYPE_F64, 2, 33, 37, 20},
    {"f32", POLAR_DTYPE_F32, POLAR_DTYPE_F32, POLAR_DTYPE_F32, 1, 70, 64, 96},
    {"bf16", POLAR_DTYPE_BF16, POLAR_DTYPE_F32, POLAR_DTYPE_BF16, 1, 197, 192, 64},
    {"bf16 odd", POLAR_DTYPE_BF16, POLAR_DTYPE_F32, POLAR_DTYPE_BF16, 3, 19, 45, 33},
    {"bf16->f32", POLAR_DTYPE_BF16, POLAR_DTYPE_F32, POLAR_DTYPE_F32, 2, 65, 96, 600},
    {"bf16, bias bf16", POLAR_DTYPE_BF16, POLAR_DTYPE_BF16, POLAR_DTYPE_BF16, 1, 40, 33, 40},
    /* above 8 MB: stored non-temporally (cpu_convert.h) */
    {"bf16 large", POLAR_DTYPE_BF16, POLAR_DTYPE_F32, POLAR_DTYPE_BF16, 1, 2073, 2048, 32},
    /* the same, and half a block in the end */
    {"bf16->f32 large", POLAR_DTYPE_BF16, POLAR_DTYPE_F32, POLAR_DTYPE_F32, 1, 2073, 1040, 32},
    /* many rows with a small matrix: cuda's own kernel (cuda_gemm_act.h), its widths of 192 and 96 columns,
       several slices, edges within a tile */
    {"bf16 rows 192", POLAR_DTYPE_BF16, POLAR_DTYPE_F32, POLAR_DTYPE_BF16, 1, 1300, 192, 192},
    {"bf16 rows 200, two", POLAR_DTYPE_BF16, POLAR_DTYPE_F32, POLAR_DTYPE_BF16, 2, 1027, 200, 72},
    {"bf16->f32 rows 192", POLAR_DTYPE_BF16, POLAR_DTYPE_F32, POLAR_DTYPE_F32, 1, 1099, 192, 192},
    {"bf16->f32 rows, k 768", POLAR_DTYPE_BF16, POLAR_DTYPE_F32, POLAR_DTYPE_F32, 1, 1099, 192, 768},
    {"bf16->f32 rows 96", POLAR_DTYPE_BF16, POLAR_DTYPE_F32, POLAR_DTYPE_F32, 2, 1029, 96, 64},
    {"bf16 rows 40, k 1000", POLAR_DTYPE_BF16, POLAR_DTYPE_BF16, POLAR_DTYPE_BF16, 1, 1024, 40, 1000},
};

/* Groups of rows that have a factor each: of seven rows, which tiles cut, or of one where 7 does not divide
 * them. */
static int64_t groups_of(const form *f)
{
    return f->m % 7 ? f->m : f->m / 7;
}

/* 0 or 1 / 0.9, as stochastic depth has them, and others. */
static pl_mat factors(rig *r, const form *f)
{
    const int64_t n = f->batch * groups_of(f);
    pl_mat s = mat(r, f->result == POLAR_DTYPE_F64 ? POLAR_DTYPE_F64 : POLAR_DTYPE_F32, f->batch,
                   groups_of(f), 1, 10);
    double *x = values(r, s);
    for (int64_t i = 0; i < n; i++) x[i] = i % 3 == 0 ? 0 : i % 3 == 1 ? 1 / 0.9 : x[i];
    TEST_TRY(pl_mat_upload_f64(r->q, &s, x));
    free(x);
    return s;
}

static void rig_fill(rig *r, const form *f)
{
    r->A = mat(r, f->factor, f->batch, f->m, f->k, 1);
    r->B = mat(r, f->factor, f->batch, f->n, f->k, 2);
    r->D = mat(r, f->result, f->batch, f->m, f->n, 3);
    r->b = mat(r, f->wide, 1, 1, f->n, 4);
    r->F = mat(r, f->result, f->batch, f->m, f->n, 5);
    r->Y = mat(r, f->result, f->batch, f->m, f->n, 6);
    r->S = mat(r, f->result, f->batch, f->m, f->n, 7);
    r->U = mat(r, f->result, f->batch, f->m, f->n, 8);
    r->V = mat(r, f->factor, f->batch, f->m, f->n, 9);
    r->s = factors(r, f);
}

static void rig_empty(rig *r)
{
    pl_mat *all[] = {&r->A, &r->B, &r->D, &r->b, &r->F, &r->Y, &r->S, &r->U, &r->s, &r->V};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) pl_mat_free(all[i], r->dev);
}

static int64_t differ(rig *r, pl_mat x, pl_mat y)
{
    double *a = values(r, x), *b = values(r, y);
    int64_t bad = model_mismatches(a, b, x.batch * x.rows * x.cols);
    free(a), free(b);
    return bad;
}

/* With a bias, an addend, a factor, an activation that is computed as bias_act does: the same bits. */
static void same_bits(rig *r, const form *f, const char *line)
{
    int64_t bad = 0;
    PL_CALL(gemm_act, r->q, .Y = r->Y, .A = r->A, .B = r->B, .D = r->D, .b = r->b, .tb = 1,
            .act = PL_ACT_NONE);
    PL_CALL(gemm, r->q, .C = r->U, .A = r->A, .B = r->B, .D = r->D, .tb = 1, .alpha = 1, .beta = 1);
    PL_CALL(bias_act, r->q, .Y = r->U, .X = r->U, .b = r->b, .act = PL_ACT_NONE);
    bad += differ(r, r->Y, r->U);
    PL_CALL(gemm_act, r->q, .Y = r->Y, .A = r->A, .B = r->B, .b = r->b, .tb = 1, .act = PL_ACT_SILU);
    PL_CALL(gemm, r->q, .C = r->U, .A = r->A, .B = r->B, .tb = 1, .alpha = 1);
    PL_CALL(bias_act, r->q, .Y = r->U, .X = r->U, .b = r->b, .act = PL_ACT_SILU);
    bad += differ(r, r->Y, r->U);
    PL_CALL(copy, r->q, .Y = r->Y, .X = r->D); /* in the addend's place, without a bias */
    PL_CALL(gemm_act, r->q, .Y = r->Y, .A = r->A, .B = r->B, .D = r->Y, .tb = 1, .act = PL_ACT_NONE);
    PL_CALL(gemm, r->q, .C = r->U, .A = r->A, .B = r->B, .D = r->D, .tb = 1, .alpha = 1, .beta = 1);
    bad += differ(r, r->Y, r->U);
    PL_CALL(gemm_act, r->q, .Y = r->Y, .A = r->A, .B = r->B, .F = r->F, .tb = 1);
    PL_CALL(gemm, r->q, .C = r->U, .A = r->A, .B = r->B, .tb = 1, .alpha = 1);
    double *y = values(r, r->Y), *u = values(r, r->U), *x = values(r, r->F);
    for (int64_t i = 0; i < f->batch * f->m * f->n; i++) {
        double want = f->result == POLAR_DTYPE_F64   ? u[i] * x[i]
                      : f->result == POLAR_DTYPE_F32 ? (double)((float)u[i] * (float)x[i])
                                                     : (double)pl_bf16_round((float)u[i] * (float)x[i]);
        bad += y[i] != want;
    }
    free(y), free(u), free(x);
    test_exact(line, bad);
}

/* Factors of rows, with a bias and without: the bits of the product in A's format and scale_rows after it. A
 * device says which it takes: `cpu` and guard all, a GPU that has weight_grad of many rows the f32 results of
 * many rows with a small bf16 matrix, which is what a branch of a transformer ends in. */
static void rows_scaled(rig *r, const form *f, const char *device, const char *line)
{
    int64_t bad = 0, served = 0;
    for (int biased = 0; biased < 2; biased++) {
        const pl_mat bias = biased ? r->b : (pl_mat){0};
        const pl_args_gemm_act a = {
            .Y = r->Y, .A = r->A, .B = r->B, .D = r->D, .b = bias, .s = r->s, .tb = 1};
        if (!pl_queue_serves(r->q, PL_OP_gemm_act, &a)) continue;
        served++;
        pl_call_gemm_act(r->q, &a);
        PL_CALL(gemm_act, r->q, .Y = r->V, .A = r->A, .B = r->B, .b = bias, .tb = 1, .act = PL_ACT_NONE);
        PL_CALL(scale_rows, r->q, .Y = r->U, .X = r->V, .s = r->s, .Z = r->D);
        bad += differ(r, r->Y, r->U);
    }
    const pl_args_weight_grad many = {
        .dW = pl_mat_dense(r->S.data, POLAR_DTYPE_F32, f->batch, f->n, f->k), .dY = r->V, .X = r->A};
    const int must = strncmp(device, "cuda", 4) || (f->factor != f->result && f->n <= f->m / 4 &&
                                                    pl_queue_serves(r->q, PL_OP_weight_grad, &many));
    test_true(line, !bad && (served == 2 || !must), "%lld of 2 calls served, %lld results differ",
              (long long)served, (long long)bad);
}

/* gelu and its slope against the exact formula at U + b as the product left it. A result in bf16 is off by
 * its rounding, 2^-8, and by the formula's 2^-12 (or 2^-25 beyond |x| = 5); a slope by its rounding, 2^-8 of
 * itself, and 2^-13. In f32 both are of the exact formula, below 17 u relative (normal_elem.h) and a
 * rounding; the sum U + b is rounded once, the slope times 0.8 at most, gelu times 1.13. */
static void gelu(rig *r, const form *f, const char *line)
{
    int narrow = f->result == POLAR_DTYPE_BF16;
    double u = f->result == POLAR_DTYPE_F64 ? 0x1p-53 : U32, worst[2] = {0};
    PL_CALL(gemm_act, r->q, .Y = r->Y, .S = r->S, .A = r->A, .B = r->B, .b = r->b, .tb = 1,
            .act = PL_ACT_GELU);
    PL_CALL(gemm, r->q, .C = r->U, .A = r->A, .B = r->B, .tb = 1, .alpha = 1);
    double *y = values(r, r->Y), *s = values(r, r->S), *x = values(r, r->U), *b = values(r, r->b);
    for (int64_t i = 0; i < f->batch * f->m * f->n; i++) {
        double t = x[i] + b[i % f->n], phi = erfc(-t / sqrt(2)) / 2, want = t * phi,
               slope = phi + t * exp(-t * t / 2) / sqrt(2 * M_PI), moved = u * fabs(t);
        double tol_y = narrow ? (0x1p-8 + 0x1p-12) * fabs(want) * 1.01 + 0x1p-25 + 1.13 * moved
                              : 24 * u * fabs(want) + 1.13 * moved + 0x1p-140;
        double tol_s = narrow ? 0x1p-8 * fabs(slope) + 0x1p-13 * 1.01 + 0.8 * moved
                              : 24 * u * (phi + fabs(t)) + 0.8 * moved;
        worst[0] = fmax(worst[0], fabs(y[i] - want) / tol_y);
        worst[1] = fmax(worst[1], fabs(s[i] - slope) / tol_s);
    }
    test_bound(line, fmax(worst[0], worst[1]), 1, "of the tolerance, derived above");
    PL_CALL(copy, r->q, .Y = r->U, .X = r->Y);
    PL_CALL(gemm_act, r->q, .Y = r->Y, .A = r->A, .B = r->B, .b = r->b, .tb = 1, .act = PL_ACT_GELU);
    test_exact("... and the same without the slopes", differ(r, r->U, r->Y));
    free(y), free(s), free(x), free(b);
}

/* The product itself, with B and with B^T stored, against sums in double. A sum of k products in f32, in any
 * order, is off by at most k u of the sum of their sizes, twice that where a unit cuts off instead of
 * rounding; that sum is at most |row of A| |column of B|. Then comes the rounding to the result's format. */
static void product(rig *r, const form *f, const char *line)
{
    int64_t nk = f->n * f->k;
    double u = f->result == POLAR_DTYPE_F64 ? 0x1p-53 : U32, worst = 0,
           rounding = f->result == POLAR_DTYPE_BF16 ? 0x1p-8 : 2 * u;
    pl_mat across = mat(r, f->factor, f->batch, f->k, f->n, 9);
    double *a = values(r, r->A), *b = values(r, r->B), *turned = model_new(f->batch * nk),
           *want = model_new(f->n), *column = model_new(f->batch * f->n), *c[2];
    for (int64_t i = 0; i < f->batch * nk; i++) turned[i / nk * nk + i % f->k * f->n + i % nk / f->k] = b[i];
    for (int64_t j = 0; j < f->batch * f->n; j++) column[j] = model_norm(b + j * f->k, NULL, f->k);
    TEST_TRY(pl_mat_upload_f64(r->q, &across, turned));
    for (int tb = 0; tb < 2; tb++) {
        PL_CALL(gemm, r->q, .C = r->U, .A = r->A, .B = tb ? r->B : across, .tb = tb, .alpha = 1);
        c[tb] = values(r, r->U);
    }
    for (int64_t i = 0; i < f->batch * f->m; i++) {
        const double *x = a + i * f->k, *B = turned + i / f->m * nk;
        memset(want, 0, (size_t)f->n * sizeof *want);
        for (int64_t k = 0; k < f->k; k++)
            for (int64_t j = 0; j < f->n; j++) want[j] += x[k] * B[k * f->n + j];
        const double row = model_norm(x, NULL, f->k);
        for (int64_t j = 0; j < f->n; j++) {
            const double size = row * column[i / f->m * f->n + j];
            for (int tb = 0; tb < 2; tb++)
                worst = fmax(worst, fabs(c[tb][i * f->n + j] - want[j]) /
                                        (2 * (double)f->k * u * size + 1.01 * rounding * fabs(want[j])));
        }
    }
    test_bound(line, worst, 1, "of 2 k u |a| |b| and a rounding");
    pl_mat_free(&across, r->dev);
    free(a), free(b), free(turned), free(want), free(column), free(c[0]), free(c[1]);
}

/* A NaN of the factors, of the bias (in the last column) and of F (the last element) is in every result that
 * it goes into, and in no other: that is how divergence is seen. */
static void nan_stays(rig *r, const form *f, const char *line)
{
    int64_t n = f->batch * f->m * f->n, bad = 0;
    double *a = values(r, r->A), *b = values(r, r->b), *x = values(r, r->F);
    a[0] = b[f->n - 1] = x[n - 1] = NAN;
    TEST_TRY(pl_mat_upload_f64(r->q, &r->A, a));
    TEST_TRY(pl_mat_upload_f64(r->q, &r->b, b));
    TEST_TRY(pl_mat_upload_f64(r->q, &r->F, x));
    for (int k = 0; k < 5; k++) {
        static const int64_t act[] = {PL_ACT_GELU, PL_ACT_GELU, PL_ACT_NONE, PL_ACT_SILU, PL_ACT_NONE};
        pl_args_gemm_act c = {.Y = r->Y, .A = r->A, .B = r->B, .tb = 1, .act = act[k]};
        if (k == 0) c.S = r->S;
        if (k < 4) c.b = r->b;
        else c.F = r->F;
        pl_call_gemm_act(r->q, &c);
        double *y = values(r, r->Y), *s = values(r, r->S);
        for (int64_t i = 0; i < n; i++) {
            int want = i < f->n || (k < 4 ? i % f->n == f->n - 1 : i == n - 1);
            bad += (isnan(y[i]) != 0) != want || (k == 0 && (isnan(s[i]) != 0) != want);
        }
        free(y), free(s);
    }
    test_exact(line, bad);
    free(a), free(b), free(x);
}

/* A matrix's bits in a batch are its bits alone, with weights and biases of its own: several tiles to each of
 * a device's blocks, some of which go from one matrix to the next. */
static const form batches[] = {
    {"bf16, 3 of many rows", POLAR_DTYPE_BF16, POLAR_DTYPE_F32, POLAR_DTYPE_BF16, 3, 3091, 768, 64},
    {"bf16->f32, 3 of many rows", POLAR_DTYPE_BF16, POLAR_DTYPE_F32, POLAR_DTYPE_F32, 3, 3087, 768, 64},
    {"bf16, 21 of many rows, k 768", POLAR_DTYPE_BF16, POLAR_DTYPE_F32, POLAR_DTYPE_BF16, 21, 1091, 192, 768},
    {"bf16->f32, 21 of many rows, k 768", POLAR_DTYPE_BF16, POLAR_DTYPE_F32, POLAR_DTYPE_F32, 21, 1099, 192,
     768},
};

static void alone(rig *r, const form *f, const char *line)
{
    const int64_t n = f->batch * f->m * f->n;
    int64_t bad = 0;
    TEST_TRY(polar_queue_sync(r->q)); /* its upload is done */
    pl_mat_free(&r->b, r->dev);
    r->b = mat(r, f->wide, f->batch, 1, f->n, 4);
    const pl_args_gemm_act all[] = {
        {.Y = r->Y, .A = r->A, .B = r->B, .b = r->b, .tb = 1},
        {.Y = r->Y, .S = r->S, .A = r->A, .B = r->B, .b = r->b, .tb = 1, .act = PL_ACT_GELU},
        {.Y = r->Y, .A = r->A, .B = r->B, .D = r->D, .b = r->b, .tb = 1},
        {.Y = r->Y, .A = r->A, .B = r->B, .F = r->F, .tb = 1},
        {.Y = r->Y, .A = r->A, .B = r->B, .D = r->D, .b = r->b, .s = r->s, .tb = 1},
    };
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        double *y[2], *s[2];
        if (!pl_queue_serves(r->q, PL_OP_gemm_act, &all[k])) continue;
        for (int apart = 0; apart < 2; apart++) {
            PL_CALL(copy, r->q, .Y = r->Y, .X = r->U);
            PL_CALL(copy, r->q, .Y = r->S, .X = r->U);
            for (int64_t e = 0; e < (apart ? f->batch : 1); e++) {
                pl_args_gemm_act one = all[k];
                pl_mat *mats[] = {&one.Y, &one.S, &one.A, &one.B, &one.D, &one.b, &one.F, &one.s};
                for (size_t i = 0; i < sizeof mats / sizeof *mats && apart; i++)
                    if (mats[i]->data) *mats[i] = pl_mat_at(*mats[i], e, 1);
                pl_call_gemm_act(r->q, &one);
            }
            y[apart] = values(r, r->Y), s[apart] = values(r, r->S);
        }
        bad += model_mismatches(y[0], y[1], n) + model_mismatches(s[0], s[1], n);
        for (int apart = 0; apart < 2; apart++) free(y[apart]), free(s[apart]);
    }
    test_exact(line, bad);
}

static void on_device(const char *device, int few)
{
    rig r = {0};
    polar_status st = polar_device_open(&r.dev, device);
    if (st == POLAR_E_UNSUPPORTED) exit(77);
    TEST_TRY(st);
    TEST_TRY(polar_queue_create(&r.q, r.dev, NULL));
    for (size_t i = 0; i < sizeof forms / sizeof *forms && pl_queue_has(r.q, PL_OP_gemm_act); i++) {
        char line[80];
        if (few && forms[i].m * forms[i].n > 1 << 20) continue;
        rig_fill(&r, &forms[i]);
        snprintf(line, sizeof line, "%s: the bits of the ops one by one", forms[i].name);
        same_bits(&r, &forms[i], line);
        snprintf(line, sizeof line, "%s: rows times factors to a stream", forms[i].name);
        rows_scaled(&r, &forms[i], device, line);
        snprintf(line, sizeof line, "%s: the product", forms[i].name);
        product(&r, &forms[i], line);
        snprintf(line, sizeof line, "%s: gelu and its slope", forms[i].name);
        gelu(&r, &forms[i], line);
        snprintf(line, sizeof line, "%s: a NaN stays one", forms[i].name);
        nan_stays(&r, &forms[i], line);
        rig_empty(&r);
    }
    for (size_t i = 0; i < sizeof batches / sizeof *batches && pl_queue_has(r.q, PL_OP_gemm_act) && !few;
         i++) {
        char line[80];
        form f = batches[i];
        if (strncmp(device, "cuda", 4) && f.batch > 3) f.batch = 3; /* threads of a CPU meet less */
        rig_fill(&r, &f);
        snprintf(line, sizeof line, "%s: each as alone", f.name);
        alone(&r, &f, line);
        rig_empty(&r);
    }
    polar_queue_destroy(r.q);
    polar_device_close(r.dev);
}

/* The formula itself at one place: near, of itself, where |x| <= 5 (less the rounding of a subnormal result);
 * far beyond, less a few ulps of float (16 u) for its own arithmetic. */
typedef struct {
    double near, far, slope;
} gelu_errors;

static void formula_at(gelu_errors *e, float x)
{
    float s, y = pl_gelu_bf16(x, &s);
    double t = (double)x, phi = erfc(-t / sqrt(2)) / 2, want = t * phi;
    if (fabs(t) > 5) e->far = fmax(e->far, fabs((double)y - want) - 16 * U32 * fabs(want));
    else if (t != 0) e->near = fmax(e->near, (fabs((double)y - want) - 0x1p-150) / fabs(want));
    e->slope = fmax(e->slope, fabs((double)s - phi - t * exp(-t * t / 2) / sqrt(2 * M_PI)));
}

/* At 2^20 places of [-14, 14], and at every number of bf16; what is none stays none. */
static void formula(void)
{
    gelu_errors e = {0};
    int64_t odd = 0;
    for (int64_t i = 0; i <= 1 << 20; i++) formula_at(&e, (float)(28.0 * (double)i / (1 << 20) - 14));
    for (uint32_t h = 0; h <= 0xffff; h++) {
        float s, x = pl_bf16_to_f32((pl_bf16)h), y = pl_gelu_bf16(x, &s);
        if (isfinite(x)) formula_at(&e, x);
        odd += isnan(x)
                   ? !isnan(y) || !isnan(s)
                   : !isfinite(s) || (x > 16 && (y != x || s != 1)) ||
                         (x < -16 && (fabsf(y) >= 0x1p-100f || fabsf(s) >= 0x1p-100f)) || (x == 0 && y != 0);
    }
    test_bound("gelu for bf16, |x| <= 5, of itself", e.near, 0x1p-12,
               "polynomials 2^-12.87 + 2^-13.7 + 2^-15 for the sums");
    test_bound("... beyond", e.far, 0x1p-25, "t e^(-t^2 / 2) (h(5) - h(t))");
    test_bound("its slope", e.slope, 0x1p-13, "(2^-13.06 + 2^-13.7) / 2 + 0.4 max t e^(-t^2 / 2) 2^-13.7");
    test_exact("infinities, zeros, large numbers, NaNs", odd);
}

static int refused(pl_queue *q, const pl_args_gemm_act *a, polar_status want)
{
    pl_call_gemm_act(q, a);
    return polar_queue_sync(q) != want || !strstr(polar_error_message(), "gemm");
}

static void bad_calls(const char *device)
{
    rig r = {0};
    int64_t accepted = 0;
    TEST_TRY(polar_device_open(&r.dev, device));
    TEST_TRY(polar_queue_create(&r.q, r.dev, NULL));
    rig_fill(&r, &forms[1]);
    pl_args_gemm_act
        good = {.Y = r.Y, .S = r.S, .A = r.A, .B = r.B, .D = r.D, .b = r.b, .tb = 1, .act = PL_ACT_GELU},
        a;
    a = good, a.tb = 0, accepted += refused(r.q, &a, POLAR_E_SHAPE);
    a = good, a.S.rows--, accepted += refused(r.q, &a, POLAR_E_SHAPE);
    a = good, a.b.cols--, accepted += refused(r.q, &a, POLAR_E_SHAPE);
    a = good, a.D.cols--, accepted += refused(r.q, &a, POLAR_E_SHAPE);
    a = good, a.act = PL_ACT_COUNT, accepted += refused(r.q, &a, POLAR_E_ARG);
    a = good, a.S.data = a.Y.data, accepted += refused(r.q, &a, POLAR_E_ARG);
    a = good, a.S.data = a.D.data, accepted += refused(r.q, &a, POLAR_E_ARG);
    a = good, a.F = r.F, accepted += refused(r.q, &a, POLAR_E_ARG);
    a = good, a.Y.data = a.A.data, accepted += refused(r.q, &a, POLAR_E_ARG);
    a = (pl_args_gemm_act){.Y = r.Y, .A = r.A, .B = r.B, .F = r.F, .tb = 1}, a.F.rows--,
    accepted += refused(r.q, &a, POLAR_E_SHAPE);
    good = (pl_args_gemm_act){.Y = r.Y, .A = r.A, .B = r.B, .D = r.D, .b = r.b, .s = r.s, .tb = 1};
    a = good, a.s.rows--, accepted += refused(r.q, &a, POLAR_E_SHAPE);
    a = good, a.s.cols++, accepted += refused(r.q, &a, POLAR_E_SHAPE);
    a = good, a.D.data = NULL, accepted += refused(r.q, &a, POLAR_E_ARG);
    a = good, a.D.data = a.Y.data, accepted += refused(r.q, &a, POLAR_E_ARG);
    a = good, a.s.data = a.Y.data, accepted += refused(r.q, &a, POLAR_E_ARG);
    a = good, a.act = PL_ACT_GELU, accepted += refused(r.q, &a, POLAR_E_ARG);
    a = good, a.S = r.S, accepted += refused(r.q, &a, POLAR_E_ARG);
    a = good, a.F = r.F, a.b.data = NULL, accepted += refused(r.q, &a, POLAR_E_ARG);
    a = good, a.s.dtype = POLAR_DTYPE_F64, accepted += refused(r.q, &a, POLAR_E_DTYPE);
    a = good, a.Y.dtype = POLAR_DTYPE_BF16, accepted += refused(r.q, &a, POLAR_E_DTYPE);
    test_exact("what makes no sense is refused", accepted);
    rig_empty(&r);
    polar_queue_destroy(r.q);
    polar_device_close(r.dev);
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    on_device(device, test_few(argc, argv));
    if (!test_few(argc, argv)) formula();
    bad_calls(device);
    return test_end();
}
