/* tile_products.cu -- cuda_products.h on one Hopper GPU: checked, and timed beside cuBLASLt.
 *
 *     nvcc -gencode=arch=compute_90a,code=sm_90a -O3 -std=c++17 -fmad=false -Isrc -Iinclude \
 *          -o tile_products bench/cuda/tile_products.cu src/backends/cuda/cuda_hopper.cu \
 *          src/backends/cuda/cuda_hopper_products.cu -ldl
 *     ./tile_products [check | products | steps | large | beside]...
 *
 * Checks: each form of a product against sums in fp64 (the bound below), symmetric, and the same bits by
 * every width, by the transposed form, without its mates, and in a list of five Newton-Schulz steps in one
 * launch, three times in a row.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "../../src/backends/cuda/cuda_products.h"
#include "lt_products.h"
#include "bench_cuda.h"
#include "product_kernels.cuh"

static pl_hopper_device dev;
static lt_library lt;
static const int widths[] = {64, 128, 192, 256};
static const float NS[3] = {3.4445f, -4.7750f, 2.0315f};
static int failed;

/* In one launch or product by product, whichever ends sooner by the library's count. */
static cudaError_t taken(cudaStream_t stream, const pl_cuda_product_list *l)
{
    if (pl_cuda_products_together(&dev, l))
        return pl_cuda_products_launch(&dev, stream, l, pl_cuda_products_width(&dev, l));
    cudaError_t e = cudaSuccess;
    for (int i = 0; i < l->products && e == cudaSuccess; i++) e = pl_cuda_products_single(&dev, stream, l, i);
    return e;
}

/* ---- helpers ------------------------------------------------------------------------------------ */

static verdict *judge;

template <class T> static T *device(int64_t count)
{
    void *p;
    CK(cudaMalloc(&p, (size_t)count * sizeof(T)));
    CK(cudaMemset(p, 0xFF, (size_t)count * sizeof(T)));
    return (T *)p;
}

template <class T>
static T *matrices(int64_t batch, int64_t rows, int64_t cols, float scale, int symmetric, uint64_t seed)
{
    T *x = device<T>(batch * rows * cols);
    fill<<<GRID>>>(x, rows, cols, batch * rows * cols, scale, seed, symmetric);
    CK(cudaGetLastError());
    return x;
}

static verdict verdict_take(void)
{
    verdict h, none = {0, 0, 0};
    CK(cudaDeviceSynchronize());
    CK(cudaMemcpy(&h, judge, sizeof h, cudaMemcpyDeviceToHost));
    CK(cudaMemcpy(judge, &none, sizeof none, cudaMemcpyHostToDevice));
    return h;
}

template <class T> static unsigned long long differences(const T *a, const T *b, int64_t n)
{
    differ<<<GRID>>>(judge, (const uint16_t *)a, (const uint16_t *)b, n);
    return verdict_take().differ;
}

static pl_cuda_product_array array_of(const void *data, int64_t rows, int64_t cols)
{
    pl_cuda_product_array x = {data, rows, cols, cols, rows * cols};
    return x;
}

static pl_cuda_product_list list_of(int64_t batch, int half)
{
    pl_cuda_product_list l = {};
    l.batch = batch, l.half = half;
    return l;
}

static uint8_t add(pl_cuda_product_list *l, const void *data, int64_t rows, int64_t cols)
{
    l->array[l->arrays] = array_of(data, rows, cols);
    return (uint8_t)l->arrays++;
}

static void step_add(pl_cuda_product_list *l, uint8_t y, uint8_t x, uint8_t a, uint8_t p, int tall)
{
    const uint8_t none = PL_CUDA_PRODUCTS_NONE, t = (uint8_t)tall;
    pl_cuda_product gram = {a, x, x, none, 0, t, t, 1, 1, 0, 0},
                    poly = {p, a, a, a, 0, 0, 0, 1, NS[2], NS[1], 0},
                    wide = {y, p, x, x, 0, 0, 1, 0, 1, NS[0], 0},
                    high = {y, x, p, x, 0, 0, 0, 0, 1, NS[0], 0};
    l->product[l->products++] = gram;
    l->product[l->products++] = poly;
    l->product[l->products++] = tall ? high : wide;
}

/* Five steps in one list: X, Y (m, n) or, tall, (n, m). The result ends in Y. */
template <class T>
static pl_cuda_product_list steps_list(T *X, T *Y, T *A, T *P, int64_t m, int64_t n, int64_t batch, int tall,
                                       uint32_t *counters)
{
    pl_cuda_product_list l = list_of(batch, std::is_same<T, __half>::value);
    uint8_t x = add(&l, X, tall ? n : m, tall ? m : n), y = add(&l, Y, tall ? n : m, tall ? m : n),
            a = add(&l, A, m, m), p = add(&l, P, m, m);
    for (int s = 0; s < 5; s++) step_add(&l, s % 2 ? x : y, s % 2 ? y : x, a, p, tall);
    l.counters = counters;
    return l;
}

/* The i-th product of a list alone. */
static pl_cuda_product_list single(const pl_cuda_product_list *l, int i)
{
    pl_cuda_product_list r = *l;
    r.products = 1, r.product[0] = l->product[i], r.counters = nullptr;
    return r;
}

/* ---- checks ------------------------------------------------------------------------------------- */

static void say(const char *what, int wrong, const char *detail)
{
    failed |= wrong;
    if (wrong) printf("  WRONG %s: %s\n", what, detail);
    fflush(stdout);
}

/* One product of each form by every width; the first width's bits are the measure. */
template <class T> static void check_forms(int64_t m, int64_t n, int64_t batch)
{
    char name[200], detail[200];
    const uint8_t none = PL_CUDA_PRODUCTS_NONE;
    const int half = std::is_same<T, __half>::value;
    T *X = matrices<T>(batch, m, n, 1 / sqrtf((float)n), 0, 7), *Xt = device<T>(batch * m * n);
    T *A = matrices<T>(batch, m, m, 1 / sqrtf((float)m), 1, 11);
    float *F = matrices<float>(batch, m, m, 1, 1, 13);
    T *C = device<T>(batch * m * n), *first = device<T>(batch * m * n);
    double worst = 0;
    transpose<<<GRID>>>(Xt, X, m, n, batch * m * n);
    struct {
        const char *name;
        int64_t rows, cols;
        pl_cuda_product q;
        int wide;
    } forms[] = {
        {"XX'", m, m, {0, 1, 1, none, 0, 0, 0, 1, 1, 0, 0}, 0},
        {"XX' of the transpose", m, m, {0, 2, 2, none, 0, 1, 1, 1, 1, 0, 0}, 0},
        {"bA+cAA", m, m, {0, 3, 3, 3, 0, 0, 0, 1, NS[2], NS[1], 0}, 0},
        {"AA+f32", m, m, {0, 3, 3, none, 0, 0, 0, 1, 1, 1, 0}, 1},
        {"aX+AX", m, n, {0, 3, 1, 1, 0, 0, 1, 0, 1, NS[0], 0}, 0},
        {"aX+XA", n, m, {0, 2, 3, 2, 0, 0, 0, 0, 1, NS[0], 0}, 0},
    };
    for (auto &f : forms) {
        int64_t count = batch * f.rows * f.cols;
        for (int width : widths) {
            pl_cuda_product_list l = list_of(batch, half);
            add(&l, C, f.rows, f.cols), add(&l, X, m, n), add(&l, Xt, n, m), add(&l, A, m, m);
            l.product[0] = f.q, l.products = 1;
            if (f.wide) l.wide = F, l.ldw = m, l.bsw = m * m;
            snprintf(name, sizeof name, "%s %lldx%lld batch %lld width %d", f.name, (long long)m,
                     (long long)n, (long long)batch, width);
            const int whole = (!f.q.ta || m % 64 == 0) && (!f.q.tb || f.q.ta || n % 64 == 0); /* panels */
            if (pl_cuda_products_suit(&l) != whole) say(name, 1, "suits, or does not");
            if (!whole) continue;
            for (int again = 0; again < 2; again++) {
                CK(cudaMemset(C, 0xFF, (size_t)count * sizeof(T)));
                CK(pl_cuda_products_launch(&dev, 0, &l, width));
                CK(cudaDeviceSynchronize());
                /* the transposed forms have the bits of the form before them */
                if (width == widths[0] && !again && &f != &forms[1] && (&f != &forms[5] || n % 64))
                    CK(cudaMemcpy(first, C, (size_t)count * sizeof(T), cudaMemcpyDeviceToDevice));
                if (&f == &forms[5] && n % 64 == 0) {
                    T *turned = device<T>(count);
                    transpose<<<GRID>>>(turned, C, n, m, count);
                    CK(cudaMemcpy(C, turned, (size_t)count * sizeof(T), cudaMemcpyDeviceToDevice));
                    CK(cudaFree(turned));
                }
                unsigned long long d = differences(C, first, count);
                snprintf(detail, sizeof detail, "%llu other bits", d);
                say(name, d != 0, detail);
            }
            if (f.q.sym) {
                asymmetric<<<GRID>>>(judge, (const uint16_t *)C, m, count);
                unsigned long long d = verdict_take().differ;
                snprintf(detail, sizeof detail, "%llu not symmetric", d);
                say(name, d != 0, detail);
            }
            if (batch > 1) { /* the last matrix without its mates */
                T *alone = device<T>(f.rows * f.cols);
                for (int i = 1; i < 4; i++)
                    l.array[i].data = (const T *)l.array[i].data + (batch - 1) * l.array[i].bs;
                l.array[0].data = alone, l.batch = 1;
                if (f.wide) l.wide = F + (batch - 1) * m * m;
                CK(pl_cuda_products_launch(&dev, 0, &l, pl_cuda_products_width(&dev, &l)));
                if (&f != &forms[5]) {
                    unsigned long long d =
                        differences(C + (batch - 1) * f.rows * f.cols, alone, f.rows * f.cols);
                    snprintf(detail, sizeof detail, "%llu other bits without its mates", d);
                    say(name, d != 0, detail);
                }
                CK(cudaFree(alone));
            }
        }
        if ((f.q.ta && m % 64) || (&f >= &forms[4] && n % 64)) continue;
        const T *left = &f == &forms[0] || &f == &forms[1] ? X : A;
        int tb = &f >= &forms[4];
        const T *right = tb ? X : left, *D = tb ? X : &f == &forms[2] ? A : nullptr;
        int64_t k = left == X ? n : m, cols = tb ? n : m, last = batch - 1;
        compare<<<GRID>>>(judge, C + last * m * cols, left + last * m * k, right + last * m * (tb ? n : k),
                          D ? D + last * m * cols : D, f.wide ? F + last * m * m : nullptr, (int)m, (int)cols,
                          (int)k, tb, f.q.alpha, f.q.beta, m * n > 600000 ? 37 : 1);
        verdict v = verdict_take();
        snprintf(detail, sizeof detail, "%llu beyond the bound, worst %.3f of it", v.bad, v.worst * 1e-3);
        say(name, v.bad != 0, detail);
        worst = std::max(worst, v.worst * 1e-3);
    }
    printf("  forms %s %lldx%lld batch %lld: worst %.3f of the bound%s\n", half ? "f16" : "bf16",
           (long long)m, (long long)n, (long long)batch, worst, failed ? " (FAILED so far)" : "");
    fflush(stdout);
    CK(cudaFree(X)), CK(cudaFree(Xt)), CK(cudaFree(A)), CK(cudaFree(F)), CK(cudaFree(C)), CK(cudaFree(first));
}

/* Five steps in one launch, three times, against the same products one by one. */
template <class T> static void check_steps(int64_t m, int64_t n, int64_t batch, int tall)
{
    char name[200], detail[200];
    int64_t count = batch * m * n;
    T *X = matrices<T>(batch, tall ? n : m, tall ? m : n, 1 / sqrtf((float)(m * n)), 0, 5),
      *x = device<T>(count), *Y = device<T>(count), *y = device<T>(count), *A = device<T>(batch * m * m),
      *P = device<T>(batch * m * m);
    uint32_t *counters = device<uint32_t>(PL_CUDA_PRODUCTS_COUNTERS);
    CK(cudaMemset(counters, 0, 4 * PL_CUDA_PRODUCTS_COUNTERS));
    CK(cudaMemcpy(x, X, (size_t)count * 2, cudaMemcpyDeviceToDevice));
    pl_cuda_product_list l = steps_list(x, y, A, P, m, n, batch, tall, counters);
    for (int i = 0; i < l.products; i++) {
        pl_cuda_product_list one = single(&l, i);
        CK(pl_cuda_products_launch(&dev, 0, &one, 128));
    }
    CK(cudaDeviceSynchronize());
    CK(cudaMemcpy(Y, y, (size_t)count * 2, cudaMemcpyDeviceToDevice));
    for (int width : widths) {
        snprintf(name, sizeof name, "five steps %lldx%lld%s batch %lld width %d", (long long)m, (long long)n,
                 tall ? " tall" : "", (long long)batch, width);
        for (int again = 0; again < 3; again++) {
            CK(cudaMemcpy(x, X, (size_t)count * 2, cudaMemcpyDeviceToDevice));
            CK(cudaMemset(y, 0xFF, (size_t)count * 2));
            CK(cudaMemset(A, 0xFF, (size_t)(batch * m * m) * 2));
            CK(cudaMemset(P, 0xFF, (size_t)(batch * m * m) * 2));
            if (!pl_cuda_products_suit(&l)) say(name, 1, "does not suit");
            CK(pl_cuda_products_launch(&dev, 0, &l, width));
            CK(cudaDeviceSynchronize());
            unsigned long long d = differences(y, Y, count);
            std::vector<uint32_t> c(PL_CUDA_PRODUCTS_COUNTERS);
            CK(cudaMemcpy(c.data(), counters, 4 * PL_CUDA_PRODUCTS_COUNTERS, cudaMemcpyDeviceToHost));
            int left = 0;
            for (uint32_t v : c) left += v != 0;
            snprintf(detail, sizeof detail, "%llu other bits, %d counters not zero", d, left);
            say(name, d || left, detail);
        }
    }
    CK(cudaFree(X)), CK(cudaFree(x)), CK(cudaFree(Y)), CK(cudaFree(y)), CK(cudaFree(A)), CK(cudaFree(P));
    CK(cudaFree(counters));
}

static void check_all(int few)
{
    check_forms<bf16>(72, 200, 3);
    check_steps<bf16>(320, 576, 3, 0);
    if (few) return;
    check_forms<bf16>(512, 512, 1);
    check_forms<bf16>(640, 768, 2);
    check_forms<bf16>(1000, 1536, 1);
    check_forms<__half>(328, 704, 5);
    check_forms<bf16>(2048, 2048, 1);
    check_steps<bf16>(320, 576, 5, 1);
    check_steps<bf16>(768, 3072, 5, 0);
    check_steps<bf16>(768, 3072, 5, 1);
    check_steps<bf16>(1024, 1024, 12, 0);
    check_steps<__half>(640, 1024, 3, 1);
    printf("  five steps in one launch: %s\n", failed ? "WRONG" : "the bits of the products one by one");
}

/* ---- times -------------------------------------------------------------------------------------- */

static void by_lt(const lt_plan &plan, cudaStream_t stream, void *C, const void *A, const void *B,
                  const void *D, float alpha, float beta)
{
    if (lt_multiply(&lt, &plan, stream, C, A, B, D, alpha, beta)) return;
    printf("  cuBLASLt fails\n");
    _exit(8);
}

struct workbench {
    bf16 *X, *Y, *A, *P;
    uint32_t *counters;
    int64_t m, n, batch;
    lt_plan gram, poly, apply;
};

static workbench open_bench(int64_t m, int64_t n, int64_t batch)
{
    workbench w = {};
    w.m = m, w.n = n, w.batch = batch;
    w.X = matrices<bf16>(batch, m, n, 1 / sqrtf((float)(m * n)), 0, 3);
    w.Y = device<bf16>(batch * m * n), w.A = device<bf16>(batch * m * m), w.P = device<bf16>(batch * m * m);
    w.counters = device<uint32_t>(PL_CUDA_PRODUCTS_COUNTERS);
    CK(cudaMemset(w.counters, 0, 4 * PL_CUDA_PRODUCTS_COUNTERS));
    w.gram = lt_plan_make(&lt, m, m, n, 0, batch), w.poly = lt_plan_make(&lt, m, m, m, 0, batch);
    w.apply = lt_plan_make(&lt, m, n, m, 1, batch);
    /* A, P and Y have numbers of their sizes from now on */
    pl_cuda_product_list l = steps_list(w.X, w.Y, w.A, w.P, m, n, batch, 0, w.counters);
    for (int i = 0; i < 3; i++) {
        pl_cuda_product_list one = single(&l, i);
        CK(pl_cuda_products_launch(&dev, 0, &one, 128));
    }
    CK(cudaDeviceSynchronize());
    return w;
}

static void close_bench(workbench &w)
{
    CK(cudaFree(w.X)), CK(cudaFree(w.Y)), CK(cudaFree(w.A)), CK(cudaFree(w.P)), CK(cudaFree(w.counters));
}

static int calls_for(double flop)
{
    return std::max(1, std::min(40, (int)(1.5e-3 / (flop / 500e12 + 5e-6))));
}

/* us of each of the three products: cuBLASLt's, whole, and tiles by width. */
static void time_products(int64_t m, int64_t n, int64_t batch)
{
    workbench w = open_bench(m, n, batch);
    pl_cuda_product_list l = steps_list(w.X, w.Y, w.A, w.P, m, n, batch, 0, w.counters);
    static const char *const names[] = {"XX'", "bA+cAA", "aX+PX"};
    for (int i = 0; i < 3; i++) {
        pl_cuda_product_list one = single(&l, i);
        double flop = 2.0 * (double)(batch * m) * (double)m * (double)n;
        if (i == 1) flop = flop / (double)n * (double)m;
        int calls = calls_for(flop);
        printf("  %-6s %2lld x %lldx%lld us: cublasLt", names[i], (long long)batch, (long long)m,
               (long long)n);
        double t = time_calls(
            [&](cudaStream_t s, int) {
                if (i == 0) by_lt(w.gram, s, w.A, w.X, w.X, nullptr, 1, 0);
                if (i == 1) by_lt(w.poly, s, w.P, w.A, w.A, w.A, NS[2], NS[1]);
                if (i == 2) by_lt(w.apply, s, w.Y, w.P, w.X, w.X, 1, NS[0]);
            },
            calls);
        printf(" %.1f |", t * 1e6);
        double best = 0;
        for (int width : widths) {
            t = time_calls([&](cudaStream_t s, int) { CK(pl_cuda_products_launch(&dev, s, &one, width)); },
                           calls);
            printf(" %d: %.1f", width, t * 1e6);
            if (best == 0 || t < best) best = t;
        }
        printf(" (taken %d), %.0f TFLOP/s\n", pl_cuda_products_width(&dev, &one),
               flop / (i < 2 ? 2 : 1) / best * 1e-12);
        fflush(stdout);
    }
    close_bench(w);
}

/* us of five steps: by cuBLASLt, by tiles product by product, in one launch by width, and what is taken. */
static void time_steps(int64_t m, int64_t n, int64_t batch)
{
    workbench w = open_bench(m, n, batch);
    pl_cuda_product_list l = steps_list(w.X, w.Y, w.A, w.P, m, n, batch, 0, w.counters);
    pl_cuda_product_list tall = steps_list(w.X, w.Y, w.A, w.P, m, n, batch, 1, w.counters);
    double flop = 5.0 * (double)batch * (double)m * (double)m * (double)(3 * n + m);
    int calls = std::min(10, calls_for(flop));
    double t = time_calls(
        [&](cudaStream_t s, int) {
            for (int i = 0; i < 5; i++) {
                bf16 *X = i % 2 ? w.Y : w.X, *Y = i % 2 ? w.X : w.Y;
                by_lt(w.gram, s, w.A, X, X, nullptr, 1, 0);
                by_lt(w.poly, s, w.P, w.A, w.A, w.A, NS[2], NS[1]);
                by_lt(w.apply, s, Y, w.P, X, X, 1, NS[0]);
            }
        },
        calls);
    printf("  NS5 %2lld x %lldx%lld us: cublasLt %.1f |", (long long)batch, (long long)m, (long long)n,
           t * 1e6);
    t = time_calls(
        [&](cudaStream_t s, int) {
            for (int i = 0; i < l.products; i++) {
                pl_cuda_product_list one = single(&l, i);
                CK(pl_cuda_products_launch(&dev, s, &one, pl_cuda_products_width(&dev, &one)));
            }
        },
        calls);
    printf(" one by one %.1f | at once", t * 1e6);
    double best = t;
    for (int width : widths) {
        t = time_calls([&](cudaStream_t s, int) { CK(pl_cuda_products_launch(&dev, s, &l, width)); }, calls);
        printf(" %d: %.1f", width, t * 1e6);
        best = std::min(best, t);
    }
    t = time_calls([&](cudaStream_t s, int) { CK(taken(s, &l)); }, calls);
    printf(" | taken %.1f", t * 1e6);
    t = time_calls([&](cudaStream_t s, int) { CK(taken(s, &tall)); }, calls);
    printf(", tall %.1f; %.0f TFLOP/s\n", t * 1e6, flop / best * 1e-12);
    fflush(stdout);
    close_bench(w);
}

/* us of a large matrix's products: the symmetric ones as the library has had them (cuda_hopper.h) and by
 * tiles; a X + P X by cuBLASLt, by tiles, and into f32: by cuBLASLt with a copy behind it, by tiles at once.
 */
static void time_large(int64_t m, int64_t n)
{
    workbench w = open_bench(m, n, 1);
    pl_cuda_product_list l = steps_list(w.X, w.Y, w.A, w.P, m, n, 1, 0, w.counters);
    float *out = device<float>(m * n);
    int calls = std::min(8, calls_for(2.0 * (double)m * (double)m * (double)n));
    printf("  %lldx%lld us:", (long long)m, (long long)n);
    for (int i = 0; i < 2; i++) {
        pl_cuda_product_list one = single(&l, i);
        pl_hopper_product half = {};
        const pl_cuda_product *q = one.product;
        half.C = (void *)one.array[q->c].data, half.A = one.array[q->a].data, half.B = one.array[q->b].data;
        half.m = m, half.k = one.array[q->a].cols, half.batch = 1;
        half.ldc = m, half.lda = half.ldb = half.k;
        if (i) half.D = w.A, half.ldd = m;
        half.alpha = q->alpha, half.beta = q->beta;
        double t =
            time_calls([&](cudaStream_t s,
                           int) { CK(pl_hopper_multiply(&dev, s, &half, pl_hopper_plan_for(&dev, &half))); },
                       calls);
        printf(" %s halves %.1f", i ? "bA+cAA" : "XX'", t * 1e6);
        for (int width : {128, 192, 256}) {
            t = time_calls([&](cudaStream_t s, int) { CK(pl_cuda_products_launch(&dev, s, &one, width)); },
                           calls);
            printf(" %d: %.1f", width, t * 1e6);
        }
        printf(" |");
    }
    pl_cuda_product_list plain = single(&l, 2), wide = plain;
    wide.out = out, wide.ldo = n, wide.bso = m * n;
    double t =
        time_calls([&](cudaStream_t s, int) { by_lt(w.apply, s, w.Y, w.P, w.X, w.X, 1, NS[0]); }, calls);
    printf(" aX+PX cublasLt %.1f", t * 1e6);
    t = time_calls(
        [&](cudaStream_t s, int) { CK(pl_cuda_products_launch(&dev, s, &plain, m > 1024 ? 256 : 64)); },
        calls);
    printf(" tiles %.1f, into f32: cublasLt", t * 1e6);
    t = time_calls(
        [&](cudaStream_t s, int) {
            by_lt(w.apply, s, w.Y, w.P, w.X, w.X, 1, NS[0]);
            widen<<<1056, 256, 0, s>>>((float4 *)out, (const uint2 *)w.Y, m * n / 4);
        },
        calls);
    printf(" %.1f", t * 1e6);
    t = time_calls(
        [&](cudaStream_t s, int) { CK(pl_cuda_products_launch(&dev, s, &wide, m > 1024 ? 256 : 64)); },
        calls);
    bf16 *other = device<bf16>(m * n);
    plain.array[plain.product[0].c].data = other;
    CK(pl_cuda_products_launch(&dev, 0, &plain, m > 1024 ? 256 : 64));
    by_lt(w.apply, 0, w.Y, w.P, w.X, w.X, 1, NS[0]);
    printf(" tiles %.1f; %llu entries differ from cublasLt's\n", t * 1e6, differences(w.Y, other, m * n));
    fflush(stdout);
    CK(cudaFree(out)), CK(cudaFree(other));
    close_bench(w);
}

int main(int argc, char **argv)
{
    static const struct {
        int64_t m, n;
    } large[] = {{768, 768}, {1024, 1024}, {2048, 2048}, {4096, 4096}, {4096, 16384}, {8192, 8192}};
    static const struct {
        int64_t m, n, batch;
    } beside[] = {{1024, 1024, 1}, {1024, 1024, 4}, {1024, 1024, 12}, {768, 3072, 24}, {1024, 4096, 24}};
    static const struct {
        int64_t m, n, batch;
    } products[] = {{768, 768, 12},  {768, 3072, 24}, {1024, 1024, 12}, {1024, 4096, 24},
                    {1024, 1024, 1}, {2048, 2048, 1}, {4096, 4096, 1}},
      steps[] = {{768, 768, 12},   {768, 2304, 12}, {768, 3072, 24}, {1024, 1024, 12}, {1024, 1024, 96},
                 {1024, 4096, 24}, {512, 512, 12},  {384, 1536, 24}, {768, 768, 1},    {1024, 1024, 1},
                 {1024, 1024, 4},  {2048, 2048, 1}, {2048, 8192, 1}, {4096, 4096, 1}};
    dev = pl_hopper_open();
    if (!dev.multiprocessors) return printf("no Hopper GPU here\n"), 7;
    judge = device<verdict>(1);
    CK(cudaMemset(judge, 0, sizeof *judge));
    for (int i = 1; i < argc; i++) {
        printf("%s\n", argv[i]);
        int timed = !strcmp(argv[i], "products") || !strcmp(argv[i], "steps") || !strcmp(argv[i], "large") ||
                    !strcmp(argv[i], "beside");
        if (!strcmp(argv[i], "few")) check_all(1);
        else if (!strcmp(argv[i], "check")) check_all(0);
        else if (!timed) return printf("no part %s\n", argv[i]), 2;
        if (timed && !lt.handle && !lt_open(&lt)) return printf("no cuBLASLt\n"), 8;
        if (!strcmp(argv[i], "products"))
            for (auto s : products) time_products(s.m, s.n, s.batch);
        if (!strcmp(argv[i], "large"))
            for (auto s : large) time_large(s.m, s.n);
        if (!strcmp(argv[i], "beside")) /* few enough to run an old build beside a new one */
            for (auto s : beside) time_steps(s.m, s.n, s.batch);
        if (!strcmp(argv[i], "steps"))
            for (auto s : steps) time_steps(s.m, s.n, s.batch);
    }
    printf("%s\n", failed ? "FAILED" : "ok");
    return failed;
}
