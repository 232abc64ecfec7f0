/* kron_bench.cu -- kron_eigen and kron_sweep on their own: vectors against the definition, and times.
 *
 *     nvcc -gencode=arch=compute_90a,code=sm_90a -O3 -std=c++17 -fmad=false -Isrc -Iinclude \
 *          bench/cuda/kron_bench.cu src/backends/cuda/cuda_kron*.cu src/backends/cuda/cuda_hopper_kron.cu \
 *          -o build/kron_bench
 *     build/kron_bench          exit code 0: everything right
 *     build/kron_bench few      a few small ones, for slow checkers
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <vector>

#include "../../src/backends/cuda/cuda_kernels.h"
#include "../../src/backends/cuda/cuda_ns.h"
#include "bench_cuda.h"

typedef std::vector<double> doubles;
typedef void (*eigen_fn)(cudaStream_t, const pl_args_kron_eigen *, void *);

#ifndef VARIANTS /* (name, function, largest side) */
#define VARIANTS                                         \
    {                                                    \
        "kron_eigen", pl_cuda_launch_kron_eigen, 1 << 20 \
    }
#endif

static const struct {
    const char *name;
    eigen_fn fn;
    int most;
} variants[] = {VARIANTS};

/* of cuda_ns_launch.c: here a chip of 9.0 is taken for granted */
int pl_cuda_ns_usable(int ordinal)
{
    (void)ordinal;
    return 1;
}

static int failures;

static uint64_t seed = 88172645463325252ull;

static double uniform(void)
{
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (double)(seed >> 11) * 0x1p-52 - 1;
}

/* An average of squares of `other` columns over 40 steps, as a rule's factor is; every third one of a few
 * columns, so that most of its eigenvalues are zero. */
static void factor(double *K, int n, int which)
{
    const int rank = which % 3 == 2 ? (n + 8) / 9 : n + n / 2;
    doubles g((size_t)n * rank);
    for (size_t i = 0; i < g.size(); i++) g[i] = uniform() * pow(0.97, (double)(i % rank));
    for (int i = 0; i < n; i++)
        for (int j = 0; j <= i; j++) {
            double s = 0;
            for (int k = 0; k < rank; k++) s += g[(size_t)i * rank + k] * g[(size_t)j * rank + k];
            K[(size_t)i * n + j] = K[(size_t)j * n + i] = s / n;
        }
}

/* Orthonormality and residual of one matrix, in units of n u; ascending columns count as 1e9. */
static double defect(const double *K, const double *Q, int n)
{
    doubles KQ((size_t)n * n), R((size_t)n * n);
    double norm = 0, off = 0, last = 0;
    for (size_t i = 0; i < (size_t)n * n; i++) norm += K[i] * K[i];
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++)
            for (int j = 0; j < n; j++) {
                KQ[(size_t)i * n + j] += K[(size_t)i * n + k] * Q[(size_t)k * n + j];
                R[(size_t)i * n + j] += Q[(size_t)k * n + i] * Q[(size_t)k * n + j];
            }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) off += pow(R[(size_t)i * n + j] - (i == j), 2);
    for (int j = 0; j < n; j++) {
        double value = 0, rest = 0;
        for (int i = 0; i < n; i++) value += Q[(size_t)i * n + j] * KQ[(size_t)i * n + j];
        for (int i = 0; i < n; i++) rest += pow(KQ[(size_t)i * n + j] - value * Q[(size_t)i * n + j], 2);
        off += norm > 0 ? rest / norm : 0;
        if (j > 0 && value > last + 1e-12 * sqrt(norm)) return 1e9;
        last = value;
    }
    return sqrt(off) / (n * 0x1p-53);
}

static pl_mat dense(double *data, int64_t batch, int64_t rows, int64_t cols)
{
    pl_mat m = {};
    m.data = data, m.dtype = POLAR_DTYPE_F64;
    m.batch = batch, m.rows = rows, m.cols = cols, m.rs = cols, m.bs = rows * cols;
    return m;
}

static void run(int n, int batch, int check)
{
    const size_t square = (size_t)n * n;
    const int kinds = std::min(batch, 6);
    doubles K(square * batch), Q(square * batch), live(PL_LIVE_COLS, 0.0);
    double *dk, *dq, *df, *dl, *scratch;
    for (int b = 0; b < batch; b++) {
        if (b < kinds) factor(K.data() + b * square, n, b);
        else
            std::copy(K.begin() + b % kinds * square, K.begin() + (b % kinds + 1) * square,
                      K.begin() + b * square);
    }
    live[PL_LIVE_BETA2] = 0.95, live[PL_LIVE_EPS] = 1e-8, live[PL_LIVE_C2] = 1, live[PL_LIVE_STEP] = 1;
    CK(cudaMalloc(&dk, 8 * square * batch));
    CK(cudaMalloc(&dq, 8 * square * batch));
    CK(cudaMalloc(&df, 8 * (size_t)n * batch));
    CK(cudaMalloc(&dl, 8 * PL_LIVE_COLS));
    CK(cudaMemcpy(dk, K.data(), 8 * square * batch, cudaMemcpyHostToDevice));
    CK(cudaMemcpy(dl, live.data(), 8 * PL_LIVE_COLS, cudaMemcpyHostToDevice));
    pl_args_kron_eigen a = {};
    a.Q = dense(dq, batch, n, n), a.K = dense(dk, batch, n, n);
    a.F = dense(df, batch, 1, n);
    a.live = dense(dl, 1, 1, PL_LIVE_COLS);
    a.every = 1, a.power = 0.25;
    CK(cudaMalloc(&scratch, pl_cuda_kron_eigen_scratch(&a) + 4096 * (size_t)batch));
    printf("side %4d, %4d matrices:", n, batch);
    for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
        if (n > variants[v].most) continue;
        cudaEvent_t from, to;
        double worst = 0;
        float best = 1e30f, ms;
        CK(cudaEventCreate(&from));
        CK(cudaEventCreate(&to));
        CK(cudaMemset(dq, 0xff, 8 * square * batch));
        for (int k = 0; k < (n > 256 || v > 0 ? 3 : 6); k++) {
            CK(cudaEventRecord(from));
            variants[v].fn(0, &a, scratch);
            CK(cudaGetLastError());
            CK(cudaEventRecord(to));
            CK(cudaDeviceSynchronize());
            CK(cudaEventElapsedTime(&ms, from, to));
            best = std::min(best, ms);
        }
        CK(cudaMemcpy(Q.data(), dq, 8 * square * batch, cudaMemcpyDeviceToHost));
        for (int b = 0; b < std::min(check, kinds); b++)
            worst = fmax(worst, defect(K.data() + b * square, Q.data() + b * square, n));
        size_t others = 0; /* the same matrix has the same bits in every place */
        for (int b = kinds; b < batch; b++)
            for (size_t i = 0; i < square; i++) others += Q[b * square + i] != Q[b % kinds * square + i];
        printf("  %s %.3f ms, %.2f n u%s", variants[v].name, best, worst, others ? ", NOT THE SAME" : "");
        failures += !(worst < 40) || others > 0;
    }
    printf("\n");
    cudaFree(dk), cudaFree(dq), cudaFree(df), cudaFree(dl), cudaFree(scratch);
}

/* One sweep from a basis that is nearly one, as between two refreshes; entries of V change places. */
static void sweep(int n, int other, int batch)
{
    const size_t square = (size_t)n * n, entries = (size_t)n * other;
    doubles K(square * batch), Q(square), live(PL_LIVE_COLS, 0.0);
    std::vector<float> start(square * batch);
    double *dk, *dl, *scratch;
    float *dq, *dv, best = 1e30f, ms;
    cudaEvent_t from, to;
    factor(K.data(), n, 0);
    for (int b = 0; b < batch; b++) {
        std::copy(K.begin(), K.begin() + square, K.begin() + b * square);
        for (size_t i = 0; i < square; i++) start[b * square + i] = i / n == i % n ? 1.0f : 0.0f;
    }
    live[PL_LIVE_BETA2] = 0.95, live[PL_LIVE_EPS] = 1e-8, live[PL_LIVE_C2] = 1, live[PL_LIVE_STEP] = 11;
    CK(cudaMalloc(&dk, 8 * square * batch));
    CK(cudaMalloc(&dq, 4 * square * batch));
    CK(cudaMalloc(&dv, 4 * entries * batch));
    CK(cudaMalloc(&dl, 8 * PL_LIVE_COLS));
    CK(cudaMemcpy(dk, K.data(), 8 * square * batch, cudaMemcpyHostToDevice));
    CK(cudaMemcpy(dl, live.data(), 8 * PL_LIVE_COLS, cudaMemcpyHostToDevice));
    CK(cudaMemset(dv, 0, 4 * entries * batch));
    pl_args_kron_sweep a = {};
    a.K = dense(dk, batch, n, n), a.live = dense(dl, 1, 1, PL_LIVE_COLS);
    a.Q = dense((double *)dq, batch, n, n), a.V = dense((double *)dv, batch, n, other);
    a.Q.dtype = a.V.dtype = POLAR_DTYPE_F32;
    a.every = 10, a.after = 1;
    CK(cudaMalloc(&scratch, pl_cuda_kron_sweep_scratch(&a)));
    CK(cudaEventCreate(&from));
    CK(cudaEventCreate(&to));
    for (int k = 0; k < 4; k++) {
        CK(cudaMemcpy(dq, start.data(), 4 * square * batch, cudaMemcpyHostToDevice));
        CK(cudaEventRecord(from));
        pl_cuda_launch_kron_sweep(0, &a, scratch);
        CK(cudaGetLastError());
        CK(cudaEventRecord(to));
        CK(cudaDeviceSynchronize());
        CK(cudaEventElapsedTime(&ms, from, to));
        best = std::min(best, ms);
    }
    printf("side %4d, %4d matrices:  kron_sweep %.3f ms\n", n, batch, best);
    cudaFree(dk), cudaFree(dq), cudaFree(dv), cudaFree(dl), cudaFree(scratch);
}

int main(int argc, char **)
{
    static const int few[][3] = {{1, 2, 1}, {7, 2, 2}, {31, 2, 2}, {48, 2, 2}, {100, 1, 1}, {270, 1, 1}};
    static const int sizes[][3] = {{1, 64, 1},   {2, 64, 2},    {7, 64, 3},   {16, 192, 3},
                                   {32, 192, 3}, {48, 64, 3},   {64, 192, 3}, {96, 192, 3},
                                   {152, 64, 3}, {152, 192, 3}, {192, 48, 3}, {256, 64, 3},
                                   {560, 64, 1}, {560, 192, 0}, {768, 12, 1}, {1100, 2, 1}};
    if (argc > 1)
        for (const int *s : few) run(s[0], s[1], s[2]);
    else {
        for (const int *s : sizes) run(s[0], s[1], s[2]);
        sweep(192, 768, 12), sweep(192, 192, 48), sweep(576, 192, 12), sweep(768, 192, 24);
    }
    printf("%d failures\n", failures);
    return failures != 0;
}
