/* test_gemm_f32.c -- f32 products at sizes where a backend may make them of parts, with factors as they are
 * and in tf32, one by one and put off together, on the device argv[1]; with "few" behind it the smaller ones
 * alone, for slow checkers.
 *
 * Exact: where one factor picks numbers of the other, or each sum has one product of two numbers of 16 bits,
 * every result is a float, and all parts of both factors are needed for it.
 *
 * Bound: a sum of k terms in f32 is off by at most k 2^-24 of the sum of sizes, twice that where a unit cuts
 * instead of rounding; parts that are left out are 2^-22 of it at most; alpha, beta and the addend round once
 * each. The sizes of row i times column j sum to |a_i| |b_j| at most. An addend that is forgotten, or a
 * column that is another's, is 2^12 times that.
 *
 * In tf32 a factor is off by u = 2^-11 of itself at most, 2^-10 where a device cuts, so a product by 2 u +
 * u^2.
 */
#include "device/backend.h"
#include "device/queue.h"
#include "fixtures/model_fixture.h"

typedef struct {
    pl_device *dev;
    pl_queue *q;
} rig;

typedef struct {
    const char *name;
    int64_t batch, m, n, k, ta, tb, slack; /* slack: row strides beyond the columns */
    double beta;                           /* 0: no addend */
    int64_t sym;                           /* of the first factor with itself; the addend symmetric too */
    int64_t tf32;
} product_case;

typedef double (*entry_fn)(int64_t b, int64_t row, int64_t col);

static double normal_of(int64_t stream, int64_t b, int64_t row, int64_t col)
{
    return (float)pl_normal(11, PL_STREAM_TEST, (uint64_t)(stream * 64 + b), (uint64_t)(row << 20 | col)).a;
}

static double normal_a(int64_t b, int64_t row, int64_t col)
{
    return normal_of(1, b, row, col);
}

static double normal_b(int64_t b, int64_t row, int64_t col)
{
    return normal_of(2, b, row, col);
}

static double normal_d(int64_t b, int64_t row, int64_t col)
{
    return normal_of(3, b, row, col);
}

static double symmetric_d(int64_t b, int64_t row, int64_t col)
{
    return row < col ? normal_d(b, row, col) : normal_d(b, col, row);
}

/* (batch, rows, cols) with a row stride of cols + slack, and its entries. */
static pl_mat mat(rig *r, const product_case *c, int64_t rows, int64_t cols, entry_fn entry, double **out)
{
    pl_mat m;
    double *x = model_new(c->batch * rows * cols), *all = model_new(c->batch * rows * (cols + c->slack));
    for (int64_t b = 0; b < c->batch; b++)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < cols; j++)
                x[(b * rows + i) * cols + j] = all[(b * rows + i) * (cols + c->slack) + j] =
                    entry ? entry(b, i, j) : 0;
    TEST_TRY(pl_mat_alloc(&m, r->dev, POLAR_DTYPE_F32, c->batch, rows, cols + c->slack));
    TEST_TRY(pl_mat_upload_f64(r->q, &m, all));
    m.cols = cols;
    free(all);
    if (out) *out = x;
    else free(x);
    return m;
}

static double *values(rig *r, pl_mat m)
{
    double *all, *x = model_new(m.batch * m.rows * m.cols);
    pl_mat whole = m;
    whole.cols = m.rs;
    all = model_new(m.batch * m.rows * m.rs);
    TEST_TRY(pl_mat_download_f64(r->q, &whole, all));
    for (int64_t i = 0; i < m.batch * m.rows * m.cols; i++) x[i] = all[i / m.cols * m.rs + i % m.cols];
    free(all);
    return x;
}

typedef struct {
    pl_mat A, B, C, D;
    double *a, *b, *d; /* entries as they lie */
} operands;

static operands operands_make(rig *r, const product_case *c, entry_fn of_a, entry_fn of_b)
{
    operands o = {0};
    o.A = mat(r, c, c->ta ? c->k : c->m, c->ta ? c->m : c->k, of_a, &o.a);
    if (c->sym) o.B = o.A, o.b = o.a;
    else o.B = mat(r, c, c->tb ? c->n : c->k, c->tb ? c->k : c->n, of_b, &o.b);
    o.C = mat(r, c, c->m, c->n, NULL, NULL);
    if (c->beta != 0) o.D = mat(r, c, c->m, c->n, c->sym ? symmetric_d : normal_d, &o.d);
    return o;
}

static void operands_free(rig *r, operands *o)
{
    pl_mat *all[] = {&o->A, &o->B, &o->C, &o->D};
    if (o->b == o->a) o->B.data = NULL, o->b = NULL;
    for (int i = 0; i < 4; i++)
        if (all[i]->data) pl_mat_free(all[i], r->dev);
    free(o->a), free(o->b), free(o->d);
}

static pl_args_gemm call_of(const product_case *c, const operands *o, double alpha)
{
    return (pl_args_gemm){.C = o->C,
                          .A = o->A,
                          .B = o->B,
                          .D = o->D,
                          .ta = c->ta,
                          .tb = c->tb,
                          .sym = c->sym,
                          .tf32 = c->tf32,
                          .alpha = alpha,
                          .beta = c->beta};
}

static double at_a(const product_case *c, const operands *o, int64_t b, int64_t i, int64_t k)
{
    return c->ta ? o->a[(b * c->k + k) * c->m + i] : o->a[(b * c->m + i) * c->k + k];
}

static double at_b(const product_case *c, const operands *o, int64_t b, int64_t k, int64_t j)
{
    return c->tb ? o->b[(b * c->n + j) * c->k + k] : o->b[(b * c->k + k) * c->n + j];
}

/* At once, or as calls that may be put off are made, which a backend may do by another kernel. */
static void multiply(rig *r, const pl_args_gemm *call, int together)
{
    if (together) pl_queue_overlap_begin(r->q);
    pl_call_gemm(r->q, call);
    if (together) pl_queue_overlap_end(r->q);
}

/* Every 7th row and column, of which no tile has a multiple: against sums in double. */
static void random_product(rig *r, const product_case *c, int together)
{
    const double alpha = 1.25, u = !c->tf32 ? 0 : r->dev->cuts_tf32 ? 0x1p-10 : 0x1p-11;
    operands o = operands_make(r, c, normal_a, normal_b);
    const pl_args_gemm call = call_of(c, &o, alpha);
    pl_args_gemm one = call;
    double worst = 0;
    multiply(r, &call, together);
    double *x = values(r, o.C);
    for (int64_t b = 0; b < c->batch; b++)
        for (int64_t i = b; i < c->m; i += 7)
            for (int64_t j = 0; j < c->n; j += 7) {
                double sum = 0, aa = 0, bb = 0, d = o.d ? o.d[(b * c->m + i) * c->n + j] : 0;
                for (int64_t k = 0; k < c->k; k++) {
                    const double p = at_a(c, &o, b, i, k), q = at_b(c, &o, b, k, j);
                    sum += p * q, aa += p * p, bb += q * q;
                }
                const double size = alpha * sqrt(aa * bb) + fabs(c->beta * d);
                const double tol = ((2 * (double)c->k + 4 + 3) * 0x1p-24 + 2 * u + u * u) * size;
                worst = fmax(worst, fabs(x[(b * c->m + i) * c->n + j] - (alpha * sum + c->beta * d)) / tol);
            }
    test_bound(c->name, worst, 1, c->tf32 ? "factors in tf32" : "sums of k terms, parts left out");
    const int mirrored = c->sym && !c->tf32; /* a library's is symmetric up to its roundings */
    int64_t askew = 0;
    for (int64_t b = 0; b < c->batch && mirrored; b++)
        for (int64_t i = 0; i < c->m * c->n; i++)
            askew += x[b * c->m * c->n + i] != x[b * c->m * c->n + i % c->n * c->n + i / c->n];
    if (mirrored) test_exact("... and it is symmetric", askew);

    int64_t mates = 0;
    double *alone;
    one.C = pl_mat_at(o.C, 0, 1), one.A = pl_mat_at(o.A, c->batch - 1, 1);
    one.B = pl_mat_at(o.B, c->batch - 1, 1);
    if (o.D.data) one.D = pl_mat_at(o.D, c->batch - 1, 1);
    multiply(r, &one, together);
    alone = values(r, one.C);
    for (int64_t i = 0; i < c->m * c->n; i++) mates += alone[i] != x[(c->batch - 1) * c->m * c->n + i];
    test_exact("... and the last matrix alone", mates);
    free(x), free(alone);
    operands_free(r, &o);
}

/* 24 bits, of both signs. */
static double long_entry(int64_t b, int64_t row, int64_t col)
{
    const int64_t x = (row * 7919 + col * 104729 + b * 15485863) % (1 << 23);
    return (double)((x | 1) + (1 << 23)) * ((row + col) % 2 ? -0x1p-24 : 0x1p-20);
}

/* One column of each row, and one row of each column, is picked, times a power of two. */
static double pick(int64_t b, int64_t row, int64_t col)
{
    (void)b;
    return (row * 3) % 61 == col % 61 && row / 61 == col / 61 ? 0x1p-3 : 0;
}

/* 16 bits: hi and mid of the parts. */
static double short_entry(int64_t b, int64_t row, int64_t col)
{
    return row == col ? (double)(((row * 977 + b) % (1 << 11) | 1) + (1 << 11)) : 0;
}

/* 11 bits, of both signs: what tf32 keeps. */
static double tf32_entry(int64_t b, int64_t row, int64_t col)
{
    const int64_t x = (row * 7919 + col * 104729 + b * 15485863) % (1 << 10);
    return (double)((x | 1) + (1 << 10)) * ((row + col) % 2 ? -0x1p-24 : 0x1p-20);
}

static void exact_product(rig *r, const product_case *given, int together, const char *what, entry_fn of_a,
                          entry_fn of_b)
{
    product_case c = *given;
    c.beta = 0;
    operands o = operands_make(r, &c, of_a, of_b);
    const pl_args_gemm call = call_of(&c, &o, 1);
    int64_t wrong = 0;
    multiply(r, &call, together);
    double *x = values(r, o.C);
    for (int64_t b = 0; b < c.batch; b++)
        for (int64_t i = 0; i < c.m; i += 3)
            for (int64_t j = 0; j < c.n; j += 3) {
                double sum = 0;
                for (int64_t k = 0; k < c.k; k++) sum += at_a(&c, &o, b, i, k) * at_b(&c, &o, b, k, j);
                wrong += x[(b * c.m + i) * c.n + j] != sum;
            }
    test_exact(what, wrong);
    free(x);
    operands_free(r, &o);
}

#define TOGETHER 60 /* calls, more than a table holds */

/* Numbers that differ between two results, those beyond the columns too. */
static int64_t differ(rig *r, pl_mat x, pl_mat y)
{
    int64_t bad = 0;
    x.cols = x.rs, y.cols = y.rs;
    double *u = values(r, x), *v = values(r, y);
    for (int64_t i = 0; i < x.batch * x.rows * x.cols; i++) bad += u[i] != v[i];
    free(u), free(v);
    return bad;
}

/* Calls put off together, of several k, layouts, in tf32 and not, have the bits of each put off by itself. */
static void put_off(rig *r, const product_case *cases, int count, int times)
{
    static operands o[TOGETHER];
    static product_case of[TOGETHER];
    pl_mat alone[TOGETHER];
    int64_t bad = 0, rounded = 0;
    for (int i = 0; i < TOGETHER; i++) {
        of[i] = cases[i % count], of[i].tf32 = i / 7 % 3 == 1, of[i].batch *= times;
        o[i] = operands_make(r, &of[i], normal_a, normal_b);
        const pl_args_gemm call = call_of(&of[i], &o[i], 1.25);
        multiply(r, &call, 1);
        alone[i] = o[i].C;
        o[i].C = mat(r, &of[i], of[i].m, of[i].n, NULL, NULL);
    }
    pl_queue_overlap_begin(r->q);
    for (int i = 0; i < TOGETHER; i++) {
        const pl_args_gemm call = call_of(&of[i], &o[i], 1.25);
        pl_call_gemm(r->q, &call);
    }
    pl_queue_overlap_end(r->q);
    for (int i = 0; i < TOGETHER; i++) {
        bad += differ(r, alone[i], o[i].C);
        if (i >= count && of[i].tf32 != of[i - count].tf32)
            rounded += differ(r, alone[i - count], o[i].C) > 0;
    }
    test_exact("put off together, and each by itself", bad);
    test_true("... and tf32 has other bits", rounded > 0, "of %d calls", (int)rounded);
    for (int i = 0; i < TOGETHER; i++) pl_mat_free(&alone[i], r->dev), operands_free(r, &o[i]);
}

int main(int argc, char **argv)
{
    static const product_case cases[] = {
        {"A B^T, tails on all sides", 2, 300, 96, 4700, 0, 1, 4, 0, 0, 0},
        {"A B^T, 64 columns", 1, 2048, 64, 1028, 0, 1, 0, -0.5, 0, 0},
        {"A B^T, two tiles of columns", 1, 260, 130, 4004, 0, 1, 8, 2, 0, 0},
        {"A B, a small k", 2, 260, 4100, 132, 0, 0, 4, 0.75, 0, 0},
        {"A B, square", 1, 512, 514, 516, 0, 0, 0, 0, 0, 0},
        {"A^T B, 66 rows", 2, 66, 2052, 1040, 1, 0, 4, 1.5, 0, 0},
        {"A^T B, 130 rows", 1, 130, 1100, 1000, 1, 0, 0, 0, 0, 0},
        {"A^T B, 64 rows", 1, 64, 2144, 1024, 1, 0, 0, 0, 0, 0},
        {"too small for parts", 2, 40, 36, 52, 0, 1, 4, 1, 0, 0},
        {"A B^T, middling, tails", 2, 100, 150, 212, 0, 1, 4, 0, 0, 0},
        {"A B, middling", 3, 192, 128, 192, 0, 0, 0, -2, 0, 0},
        {"A B, middling, many, tails", 30, 132, 196, 100, 0, 0, 4, 0, 0, 0},
        {"A^T B, middling", 2, 192, 192, 160, 1, 0, 0, 0.5, 0, 0},
        {"A^T B, middling, tails", 2, 140, 100, 180, 1, 0, 4, 0, 0, 0},
        {"A A^T", 2, 192, 192, 128, 0, 1, 0, 0, 1, 0},
        {"A A^T, tails", 2, 132, 132, 164, 0, 1, 4, 0, 1, 0},
        {"A^T A, an addend", 3, 200, 200, 136, 1, 0, 0, 1.5, 1, 0},
        {"A^T A, many", 40, 180, 180, 100, 1, 0, 0, 0, 1, 0},
        {"A B^T, taller tiles", 22, 250, 128, 132, 0, 1, 4, 0, 0, 0},
        {"A B, taller tiles", 24, 256, 128, 100, 0, 0, 0, 1, 0, 0},
        {"A^T B, taller tiles", 12, 256, 184, 68, 1, 0, 0, 0, 0, 0},
        {"A^T A, taller tiles", 16, 252, 252, 64, 1, 0, 0, 0, 1, 0},
        {"A B, tiles for a large GPU", 70, 190, 180, 64, 0, 0, 0, 0.5, 0, 0},
        {"A B^T, tiles for a large GPU", 70, 190, 180, 68, 0, 1, 4, 0, 0, 0},
        {"A^T B, tiles for a large GPU", 70, 188, 180, 64, 1, 0, 0, 0, 0, 0},
        {"A A^T, tiles for a large GPU", 140, 188, 188, 64, 0, 1, 0, 0, 1, 0},
    };
    const char *device = test_begin(argc, argv);
    const int few = argc > 2 && !strcmp(argv[2], "few");
    rig r = {0};
    TEST_TRY(polar_device_open(&r.dev, device));
    TEST_TRY(polar_queue_create(&r.q, r.dev, NULL));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const product_case *c = &cases[i];
        if (few && (c->m * c->n * c->k > 1 << 23 || c->batch > 12)) continue;
        for (int together = 0; together < 2; together++) {
            product_case tf32 = *c;
            tf32.tf32 = 1;
            random_product(&r, c, together);
            if (c->m * c->n * c->k <= 1 << 23) random_product(&r, &tf32, together);
            if (c->sym) continue; /* its factors are one */
            exact_product(&r, c, together, "... exact, the second factor picks", long_entry, pick);
            exact_product(&r, c, together, "... exact, the first factor picks", pick, long_entry);
            exact_product(&r, c, together, "... exact, middle parts of both", short_entry, short_entry);
            if (c->m * c->n * c->k > 1 << 23) continue;
            exact_product(&r, &tf32, together, "... exact in tf32, the second factor picks", tf32_entry,
                          pick);
            exact_product(&r, &tf32, together, "... exact in tf32, the first factor picks", pick, tf32_entry);
        }
    }
    static const product_case small[] = {
        {"", 2, 100, 150, 212, 0, 1, 4, 0, 0, 0},   {"", 3, 192, 128, 192, 0, 0, 0, -2, 0, 0},
        {"", 3, 130, 194, 180, 0, 0, 4, 0, 0, 0},   {"", 2, 192, 192, 160, 1, 0, 0, 0.5, 0, 0},
        {"", 3, 192, 192, 128, 0, 1, 0, 0, 1, 0},   {"", 1, 204, 204, 100, 1, 0, 4, 1.5, 1, 0},
        {"", 2, 192, 192, 160, 1, 0, 0, 0, 0, 0},   {"", 2, 40, 36, 52, 0, 1, 4, 1, 0, 0},
        {"", 3, 192, 128, 192, 0, 0, 0, 1.5, 0, 0},
    };
    put_off(&r, small, (int)(sizeof small / sizeof *small),
            few ? 1 : 4); /* on a GPU of many multiprocessors */
    polar_queue_destroy(r.q);
    polar_device_close(r.dev);
    return test_end();
}
