/* basis_bench.cu -- the products of SOAP's step over DeiT-Tiny (12 matrices of each shape), stage by stage:
 * by cuda_parts.cu, a launch a call, and by cuda_hopper_parts.cu, in one launch or a launch a call.
 *
 *     nvcc -gencode=arch=compute_90a,code=sm_90a -O3 -std=c++17 -fmad=false -Isrc -Iinclude \
 *          bench/cuda/basis_bench.cu src/backends/cuda/cuda_parts.cu src/backends/cuda/cuda_hopper_parts.cu \
 *          -o build/basis_bench
 *     build/basis_bench          exit code 0: everything right
 */
#include <math.h>

#include "../../src/backends/cuda/cuda_hopper_parts.cuh"
#include "../../src/backends/cuda/cuda_parts.h"
#include "bench_cuda.h"

#define BATCH 12

static const int shapes[][2] = {{768, 192}, {192, 768}, {576, 192}, {192, 192}};
enum { SHAPES = 4 };

typedef std::vector<pl_args_gemm> calls;

static __global__ void noise(float *x, int64_t n, uint32_t seed)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x) {
        uint32_t v = (uint32_t)i * 2654435761u + seed;
        v ^= v >> 16, v *= 0x7feb352du, v ^= v >> 15, v *= 0x846ca68bu, v ^= v >> 16;
        x[i] = (float)((double)v * 0x1p-31 - 1);
    }
}

static pl_mat random_mat(int rows, int cols)
{
    static uint32_t seed = 1;
    pl_mat m = {};
    const int64_t n = (int64_t)BATCH * rows * cols;
    CK(cudaMalloc(&m.data, (size_t)n * 4));
    noise<<<1024, 256>>>((float *)m.data, n, seed++ * 7919);
    m.dtype = POLAR_DTYPE_F32, m.batch = BATCH, m.rows = rows, m.cols = cols, m.rs = cols,
    m.bs = (int64_t)rows * cols;
    return m;
}

static pl_args_gemm call_of(pl_mat C, pl_mat A, int ta, pl_mat B, int tb, int sym)
{
    pl_args_gemm a = {};
    a.C = C, a.A = A, a.B = B, a.ta = ta, a.tb = tb, a.sym = sym, a.alpha = 1;
    return a;
}

static const char *const names[] = {"D and g left", "D and g right", "back left", "back right", "moments"};
enum { STAGES = 5 };

static void make(calls (&stage)[STAGES])
{
    for (const int *s : shapes) {
        const int m = s[0], n = s[1];
        pl_mat QL = random_mat(m, m), QR = random_mat(n, n), D = random_mat(m, n), G = random_mat(m, n),
               T = random_mat(m, n), U = random_mat(m, n), X = random_mat(m, n), P = random_mat(m, n);
        stage[0].push_back(call_of(T, QL, 1, D, 0, 0)), stage[0].push_back(call_of(U, QL, 1, G, 0, 0));
        stage[1].push_back(call_of(X, T, 0, QR, 0, 0)), stage[1].push_back(call_of(P, U, 0, QR, 0, 0));
        stage[2].push_back(call_of(T, QL, 0, X, 0, 0));
        stage[3].push_back(call_of(D, T, 0, QR, 1, 0));
        stage[4].push_back(call_of(random_mat(m, m), G, 0, G, 1, 1));
        stage[4].push_back(call_of(random_mat(n, n), G, 1, G, 0, 1));
    }
}

static uint32_t *counter;
static pl_hopper_device device;

typedef enum { PARTS_EACH, EACH, TOGETHER, ROWS_64, ROWS_192, WAYS } way;
static const char *const way_names[] = {"cuda_parts", "a launch a call", "one launch", "64 x 96", "192 x 96"};

static void run(cudaStream_t stream, const calls &c, way w)
{
    pl_hopper_parts_list list = {};
    product_table table = {};
    table.asked = counter;
    for (const pl_args_gemm &a : c) {
        if (w == PARTS_EACH) CK(pl_cuda_parts(stream, &a));
        if (w == EACH) list.calls = 0;
        list.call[list.calls++] = a;
        if (w == EACH) CK(pl_hopper_parts(&device, stream, &list, counter));
    }
    if (w == TOGETHER) CK(pl_hopper_parts(&device, stream, &list, counter));
    if (w >= ROWS_64) fill(&table, &list, w == ROWS_64 ? 64 : 192);
    if (w == ROWS_64) CK(launch<1>(&device, stream, table));
    if (w == ROWS_192) CK(launch<3>(&device, stream, table));
}

/* sums[0] += |x - y|^2, sums[1] += |y|^2; not a number counts as 1e30 */
static __global__ void differ(double *sums, const float *x, const float *y, int64_t n)
{
    double a = 0, b = 0;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x) {
        const double d = (double)x[i] - y[i];
        a += d == d ? d * d : 1e30, b += (double)y[i] * y[i];
    }
    atomicAdd(&sums[0], a), atomicAdd(&sums[1], b);
}

/* |C - that by cuda_parts.cu| over its size, the worst call's. */
static double worst(const calls &c, way w)
{
    double most = 0, sums[2], *d;
    CK(cudaMalloc(&d, sizeof sums));
    for (const pl_args_gemm &a : c) {
        const int64_t n = BATCH * a.C.rows * a.C.cols;
        float *other;
        pl_args_gemm b = a;
        CK(cudaMalloc(&other, (size_t)n * 4));
        b.C.data = other;
        CK(pl_cuda_parts(0, &b));
        CK(cudaMemset(a.C.data, 0xff, (size_t)n * 4));
        run(0, calls(1, a), w);
        CK(cudaMemset(d, 0, sizeof sums));
        differ<<<256, 256>>>(d, (float *)a.C.data, other, n);
        CK(cudaMemcpy(sums, d, sizeof sums, cudaMemcpyDeviceToHost));
        most = fmax(most, sqrt(sums[0] / sums[1]));
        cudaFree(other);
    }
    cudaFree(d);
    return most;
}

int main()
{
    calls stage[STAGES];
    int failures = 0;
    CK(cudaDeviceGetAttribute(&device.multiprocessors, cudaDevAttrMultiProcessorCount, 0));
    CK(cudaMalloc(&counter, 4));
    CK(cudaMemset(counter, 0, 4));
    make(stage);
    CK(cudaDeviceSynchronize());
    /* Sums that are cut 48 times, by 2^-23 each, before they are begun anew; parts left out are 2^-22. A part
     * that is lost is 2^-8 and more. */
    double off = 0;
    for (int w = 1; w < WAYS; w++)
        for (const calls &c : stage) off = fmax(off, worst(c, (way)w));
    printf("off by %.2g of the result's size\n", off);
    failures += !(off < 0x1p-17);
    for (calls &c : stage) c.clear();
    make(stage); /* numbers of size one again */
    printf("us                    %-14s%-14s%-14s%-14s%-14s all\n", names[0], names[1], names[2], names[3],
           names[4]);
    for (int w = 0; w < WAYS; w++) {
        printf("%-20s", way_names[w]);
        for (const calls &c : stage)
            printf("  %-12.1f", 1e6 * time_calls([&](cudaStream_t q, int) { run(q, c, (way)w); }, 10));
        printf("  %.1f\n", 1e6 * time_calls(
                                     [&](cudaStream_t q, int) {
                                         for (const calls &c : stage) run(q, c, (way)w);
                                     },
                                     5));
        fflush(stdout);
    }
    uint32_t left;
    CK(cudaMemcpy(&left, counter, 4, cudaMemcpyDeviceToHost));
    failures += left != 0;
    printf("%d failures\n", failures);
    return failures != 0;
}
