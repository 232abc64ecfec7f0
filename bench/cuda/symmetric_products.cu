/* symmetric_products.cu -- cuda_hopper.h on one Hopper GPU: checked against a plain kernel in fp64, timed
 * beside cuBLASLt.
 *
 *     nvcc -gencode=arch=compute_90a,code=sm_90a -O3 -std=c++17 -DPL_HOPPER_WATCH -o symmetric_products \
 *          bench/cuda/symmetric_products.cu src/backends/cuda/cuda_hopper.cu -ldl
 *     ./symmetric_products [bf16 | f16 | times]    one part; without a word all, each in a process of its own
 */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <type_traits>
#include <vector>

#include "../../src/backends/cuda/cuda_hopper.h"
#include "lt_products.h"
#include "bench_cuda.h"
#include "bench_fill.cuh"

#define GUARD 4096 /* elements before and after every result */

static pl_hopper_device dev;
static const int widths[] = {64, 128, 160};
static const float NS[3] = {3.4445f, -4.7750f, 2.0315f};

/* ---- plain kernels ------------------------------------------------------------------------------ */

/* R = alpha A B^T + beta D in fp64 and S = the sum of the terms' sizes, 16 x 16 tiles. */
template <class T, class U>
__global__ void reference(double *R, double *S, const T *A, const T *B, const U *D, int m, int k, float alpha,
                          float beta)
{
    __shared__ double a[16][17], b[16][17];
    int tx = threadIdx.x, ty = threadIdx.y, r = blockIdx.y * 16 + ty, c = blockIdx.x * 16 + tx,
        cb = blockIdx.x * 16 + ty;
    double sum = 0, size = 0;
    for (int k0 = 0; k0 < k; k0 += 16) {
        a[ty][tx] = r < m && k0 + tx < k ? (double)(float)A[(int64_t)r * k + k0 + tx] : 0;
        b[tx][ty] = cb < m && k0 + tx < k ? (double)(float)B[(int64_t)cb * k + k0 + tx] : 0;
        __syncthreads();
        for (int i = 0; i < 16; i++) {
            double t = a[ty][i] * b[i][tx];
            sum += t, size += fabs(t);
        }
        __syncthreads();
    }
    if (r >= m || c >= m) return;
    double d = D ? (double)(float)D[(int64_t)r * m + c] : 0;
    R[(int64_t)r * m + c] = alpha * sum + beta * d;
    S[(int64_t)r * m + c] = fabs((double)alpha) * size + fabs(beta * d);
}

struct verdict {
    unsigned long long bad, asym;
    unsigned worst; /* error over tolerance in thousandths */
};

/* Before the last rounding a value is off by at most e: sums in f32 of k terms, 16 at a time, k/16 roundings
 * of 2^-22 of the sum of sizes (the tensor cores cut, they do not round), and two in the end. The last
 * rounding of a number x with p bits moves it by half a unit of the power of two below it, at most 2^-p |x|:
 * p = 8 for bf16, 11 for f16, whose units end at 2^-24. (2^-9 for bf16, as this stood once, is a quarter of a
 * unit.) */
template <class T>
__global__ void compare(verdict *v, const T *C, const double *R, const double *S, int m, int k)
{
    int p = std::is_same<T, __half>::value ? 11 : 8;
    int64_t n = (int64_t)m * m;
    FOR_ALL(n)
    {
        double e = (k / 16 + 2) * ldexp(S[i], -22),
               tol = e + ldexp(fabs(R[i]) + e, -p) + (p == 11 ? ldexp(1.0, -25) : 0);
        double ratio = fabs((double)(float)C[i] - R[i]) / (tol + 1e-300);
        if (!(ratio <= 1)) atomicAdd(&v->bad, 1ull);
        atomicMax(&v->worst, ratio < 1e6 ? (unsigned)(ratio * 1000) : 1000000000u);
        const unsigned short *u = (const unsigned short *)C;
        if (u[i] != u[i % m * m + i / m]) atomicAdd(&v->asym, 1ull);
    }
}

__global__ void differ(unsigned long long *count, const uint32_t *a, const uint32_t *b, int64_t n)
{
    FOR_ALL(n) if (a[i] != (b ? b[i] : 0xFFFFFFFFu)) atomicAdd(count, 1ull);
}

/* ---- helpers ------------------------------------------------------------------------------------ */

template <class T> static T *device(int64_t count)
{
    void *p;
    CK(cudaMalloc(&p, (size_t)count * sizeof(T)));
    return (T *)p;
}

template <class T>
static T *random_matrix(int64_t batch, int64_t rows, int64_t cols, float scale, int symmetric, uint64_t seed)
{
    T *x = device<T>(batch * rows * cols);
    fill<<<GRID>>>(x, rows, cols, batch * rows * cols, scale, seed, symmetric);
    CK(cudaGetLastError());
    return x;
}

/* A result with guards around it. */
template <class T> static T *result(int64_t count)
{
    return device<T>(count + 2 * GUARD) + GUARD;
}

template <class T> static void result_poison(T *x, int64_t count)
{
    CK(cudaMemset(x - GUARD, 0xFF, (size_t)(count + 2 * GUARD) * sizeof(T)));
    CK(cudaDeviceSynchronize());
}

/* 32-bit words that differ; b NULL: from the poison. */
static unsigned long long differences(const void *a, const void *b, int64_t bytes)
{
    unsigned long long *c = device<unsigned long long>(1), host;
    CK(cudaMemset(c, 0, 8));
    differ<<<GRID>>>(c, (const uint32_t *)a, (const uint32_t *)b, bytes / 4);
    CK(cudaMemcpy(&host, c, 8, cudaMemcpyDeviceToHost));
    CK(cudaFree(c));
    return host;
}

template <class T>
static pl_hopper_product product_of(T *C, const T *A, const T *B, const void *D, int d_f32, int64_t m,
                                    int64_t k, int64_t batch, float alpha, float beta)
{
    pl_hopper_product p = {C, A, B, D, m, k, batch};
    p.ldc = p.ldd = m, p.lda = p.ldb = k;
    p.bsc = p.bsd = m * m, p.bsa = p.bsb = m * k;
    p.alpha = alpha, p.beta = beta, p.half = std::is_same<T, __half>::value, p.d_f32 = d_f32;
    return p;
}

/* ---- checks ------------------------------------------------------------------------------------- */

/* One product by every width: the first and the last matrix against fp64, the same bits again and by every
 * width and without mates, guards whole. U: D's format. */
template <class T, class U>
static int check_product(const char *what, int64_t m, int64_t k, int64_t batch, const T *A, const T *B,
                         const U *D, float alpha, float beta)
{
    int64_t picked[2] = {0, batch - 1};
    int pickeds = batch > 1 ? 2 : 1, failed = 0, d_f32 = std::is_same<U, float>::value;
    double *R[2], *S[2];
    T *C = result<T>(batch * m * m), *first = result<T>(batch * m * m), *alone = result<T>(m * m);
    verdict *v = device<verdict>(1);
    dim3 grid((unsigned)((m + 15) / 16), (unsigned)((m + 15) / 16));
    for (int i = 0; i < pickeds; i++) {
        int64_t b = picked[i];
        R[i] = device<double>(m * m), S[i] = device<double>(m * m);
        reference<<<grid, dim3(16, 16)>>>(R[i], S[i], A + b * m * k, B + b * m * k, D ? D + b * m * m : D,
                                          (int)m, (int)k, alpha, beta);
        CK(cudaGetLastError());
    }
    for (int width : widths) {
        pl_hopper_product p = product_of(C, A, B, D, d_f32, m, k, batch, alpha, beta);
        verdict all = {0, 0, 0};
        unsigned long long moved = 0, harm, mates = 0;
        if (!pl_hopper_suits(&p)) return printf("  does not suit\n"), 1;
        for (int again = 0; again < 2; again++) { /* once with other groups of rows */
            result_poison(C, batch * m * m);
            CK(pl_hopper_multiply(&dev, 0, &p, {width, again ? 16 : 8}));
            CK(cudaDeviceSynchronize());
            if (width == widths[0] && !again)
                CK(cudaMemcpy(first, C, (size_t)(batch * m * m) * 2, cudaMemcpyDeviceToDevice));
            moved += differences(C, first, batch * m * m * 2);
        }
        harm =
            differences(C - GUARD, nullptr, GUARD * 2) + differences(C + batch * m * m, nullptr, GUARD * 2);
        for (int o = 0; o < pickeds; o++) {
            verdict h = {0, 0, 0};
            CK(cudaMemcpy(v, &h, sizeof h, cudaMemcpyHostToDevice));
            compare<<<GRID>>>(v, C + picked[o] * m * m, R[o], S[o], (int)m, (int)k);
            CK(cudaMemcpy(&h, v, sizeof h, cudaMemcpyDeviceToHost));
            all.bad += h.bad, all.asym += h.asym, all.worst = std::max(all.worst, h.worst);
        }
        if (batch > 1) {
            int64_t b = batch - 1;
            pl_hopper_product q = product_of(alone, A + b * m * k, B + b * m * k, D ? D + b * m * m : D,
                                             d_f32, m, k, 1, alpha, beta);
            CK(pl_hopper_multiply(&dev, 0, &q, pl_hopper_plan_for(&dev, &q)));
            mates = differences(C + b * m * m, alone, m * m * 2);
        }
        int wrong = all.bad || all.asym || moved || harm || mates;
        failed |= wrong;
        printf("  %s %-9s %lldx%lldx%lld batch %lld width %d: bad %llu asym %llu moved %llu guards %llu "
               "mates %llu, error/tol %.3f\n",
               wrong ? "WRONG" : "ok   ", what, (long long)m, (long long)m, (long long)k, (long long)batch,
               width, all.bad, all.asym, moved, harm, mates, all.worst * 1e-3);
        fflush(stdout);
    }
    CK(cudaFree(C - GUARD)), CK(cudaFree(first - GUARD)), CK(cudaFree(alone - GUARD)), CK(cudaFree(v));
    for (int i = 0; i < pickeds; i++) CK(cudaFree(R[i])), CK(cudaFree(S[i]));
    return failed;
}

template <class T> static int check_all(void)
{
    static const struct {
        int64_t m, k, batch;
    } shapes[] = {{512, 512, 1}, {640, 768, 1},    {1000, 1504, 1},
                  {72, 200, 3},  {1024, 1024, 12}, {2048, 2048, 1}};
    int failed = 0;
    for (auto s : shapes) {
        T *X = random_matrix<T>(s.batch, s.m, s.k, 1.0f / sqrtf((float)s.k), 0, 7 + (uint64_t)s.m);
        T *A = random_matrix<T>(s.batch, s.m, s.m, 1.0f / sqrtf((float)s.m), 1, 11 + (uint64_t)s.k);
        float *F = random_matrix<float>(s.batch, s.m, s.m, 1, 1, 13);
        failed |= check_product<T, T>("XX'", s.m, s.k, s.batch, X, X, nullptr, 1, 0);
        failed |= check_product<T, T>("bA+cAA", s.m, s.m, s.batch, A, A, A, NS[2], NS[1]);
        failed |= check_product<T, float>("AA+f32", s.m, s.m, s.batch, A, A, F, 1, 1);
        CK(cudaFree(X)), CK(cudaFree(A)), CK(cudaFree(F));
    }
    return failed;
}

/* ---- times -------------------------------------------------------------------------------------- */

/* C = alpha A A^T + beta D with D A itself (square), an f32 matrix, or none; buffers rotate so that they
 * outgrow the cache. */
template <class T>
static void time_product(lt_library *lt, const char *what, int64_t m, int64_t k, int64_t batch, int addend)
{
    int64_t bytes = 2 * batch * (m * k + m * m) + (addend == 2 ? 4 * batch * m * m : 0);
    int sets = (int)std::max<int64_t>(1, std::min<int64_t>(12, 200000000 / bytes + 1));
    double flop = 2.0 * (double)batch * (double)m * (double)m * (double)k, best = 0;
    int calls = std::max(sets, (int)(3e-3 / (flop / 500e12 + 5e-6)) / sets * sets), best_width = 0;
    std::vector<pl_hopper_product> p;
    for (int i = 0; i < sets; i++) {
        T *A = random_matrix<T>(batch, m, k, 1.0f / sqrtf((float)k), m == k, 100 + (uint64_t)i),
          *C = device<T>(batch * m * m);
        float *F = addend == 2 ? random_matrix<float>(batch, m, m, 1, 1, 13) : nullptr;
        p.push_back(product_of(C, A, A,
                               addend == 2 ? (void *)F
                               : addend    ? (void *)A
                                           : nullptr,
                               addend == 2, m, k, batch, 1, 1));
    }
    printf("  %-8s %s %2lld x %lldx%lld us:", what, p[0].half ? "f16 " : "bf16", (long long)batch,
           (long long)m, (long long)k);
    for (int width : widths)
        for (int group = 8; group <= (m > 2048 ? 16 : 8); group *= 2) {
            double t = time_calls(
                [&](cudaStream_t stream, int c) {
                    CK(pl_hopper_multiply(&dev, stream, &p[(size_t)(c % sets)], {width, group}));
                },
                calls);
            printf(" %d%s %.1f", width, group == 16 ? "/16" : "", t * 1e6);
            if (!best_width || t < best) best = t, best_width = width;
        }
    printf(" |");
    if (lt && addend < 2) {
        lt_plan plan = lt_plan_make(lt, m, m, k, 0, batch);
        double t = time_calls(
            [&](cudaStream_t stream, int c) {
                const pl_hopper_product &q = p[(size_t)(c % sets)];
                if (!lt_multiply(lt, &plan, stream, q.C, q.A, q.B, q.D, q.alpha, q.beta)) _exit(8);
            },
            calls);
        printf(" cublasLt %.1f (%.0f TFLOP/s)", t * 1e6, flop / t * 1e-12);
    }
    printf(" best %d (taken %d), TFLOP/s of the half %.0f\n", best_width,
           pl_hopper_plan_for(&dev, &p[0]).width, flop / 2 / best * 1e-12);
    fflush(stdout);
    for (auto &q : p) {
        CK(cudaFree(q.C)), CK(cudaFree((void *)q.A));
        if (q.d_f32) CK(cudaFree((void *)q.D));
    }
}

static int time_all(void)
{
    static const struct {
        int64_t m, n, batch;
    } shapes[] = {{512, 512, 1},    {512, 512, 12},  {768, 768, 12},   {768, 3072, 12}, {1024, 1024, 1},
                  {1024, 1024, 12}, {1024, 4096, 1}, {1024, 4096, 12}, {1536, 1536, 1}, {2048, 2048, 1},
                  {2048, 8192, 1},  {4096, 4096, 1}, {4096, 16384, 1}, {8192, 8192, 1}};
    lt_library lt;
    int have_lt = lt_open(&lt);
    if (!have_lt) printf("  no cuBLASLt\n");
    for (auto s : shapes) {
        time_product<__nv_bfloat16>(have_lt ? &lt : nullptr, "XX'", s.m, s.n, s.batch, 0);
        if (s.m == s.n) time_product<__nv_bfloat16>(have_lt ? &lt : nullptr, "bA+cAA", s.m, s.m, s.batch, 1);
        if (s.m == s.n && s.m > 1024) time_product<__nv_bfloat16>(nullptr, "AA+f32", s.m, s.m, s.batch, 2);
        if (s.m == s.n && s.m > 1024) time_product<__half>(nullptr, "bA+cAA", s.m, s.m, s.batch, 1);
    }
    return !have_lt;
}

/* ---- parts -------------------------------------------------------------------------------------- */

static int run_part(const char *part)
{
    dev = pl_hopper_open();
    if (!dev.multiprocessors) return printf("no Hopper GPU here\n"), 7;
    if (!strcmp(part, "bf16")) return check_all<__nv_bfloat16>();
    if (!strcmp(part, "f16")) return check_all<__half>();
    if (!strcmp(part, "times")) return time_all();
    return printf("no part %s\n", part), 2;
}

int main(int argc, char **argv)
{
    static const char *parts[] = {"bf16", "f16", "times"};
    int bad = 0;
    if (argc > 1) return run_part(argv[1]);
    for (const char *part : parts) {
        int st = 0;
        printf("%s\n", part);
        fflush(stdout);
        pid_t child = fork();
        if (!child) {
            alarm(90);
            execl("/proc/self/exe", argv[0], part, (char *)nullptr);
            _exit(127);
        }
        waitpid(child, &st, 0);
        printf("%s: %s (%d)\n", part, st ? "FAILED" : "ok",
               WIFEXITED(st) ? WEXITSTATUS(st) : 1000 + WTERMSIG(st));
        bad += st != 0;
    }
    return bad != 0;
}
