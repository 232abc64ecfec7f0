/* weight_grad_bench.cu -- cuda_weight_grad.h on one Hopper GPU: entries against sums in double, a
 * member's bits against its bits alone, times beside the bytes of the factors at the rate of a copy.
 *
 *     nvcc -gencode=arch=compute_90a,code=sm_90a -O3 -std=c++17 -fmad=false -DPL_HOPPER_WATCH -Iinclude -Isrc
 * \
 *          -Isrc/backends/cuda -o weight_grad_bench bench/cuda/weight_grad_bench.cu \
 *          src/backends/cuda/cuda_hopper_weight_grad*.cu src/backends/cuda/cuda_hopper.cu -ldl
 *     ./weight_grad_bench [check]    without times
 */
#include <cuda_bf16.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "../../src/backends/cuda/cuda_weight_grad.h"
#include "bench_cuda.h"

#define SAMPLES 400
#define COPY    4.2e6 /* bytes a microsecond */

static pl_hopper_device dev;
static cudaStream_t stream;

/* ---- operands ----------------------------------------------------------------------------------- */

__device__ static uint32_t mixed(uint64_t x)
{
    x ^= x >> 33, x *= 0xff51afd7ed558ccdull, x ^= x >> 33, x *= 0xc4ceb9fe1a85ec53ull, x ^= x >> 33;
    return (uint32_t)x;
}

static __global__ void fill(__nv_bfloat16 *x, int64_t n, uint64_t seed)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x) {
        float v = 0;
        for (int k = 0; k < 3; k++)
            v += (float)mixed(seed * 1000003 + (uint64_t)i * 4 + (uint64_t)k) * 2.3283064e-10f - 0.5f;
        x[i] = __float2bfloat16(v * 2);
    }
}

typedef struct {
    int members;
    int64_t rows;
    int out, in;
} form;

static pl_mat mat(polar_dtype t, int64_t batch, int64_t rows, int64_t cols)
{
    pl_mat m = {};
    m.dtype = t, m.batch = batch, m.rows = rows, m.cols = cols, m.rs = cols, m.bs = rows * cols;
    CK(cudaMalloc(&m.data, (size_t)(batch * rows * cols) * (t == POLAR_DTYPE_F32 ? 4 : 2)));
    return m;
}

static int64_t count(const pl_mat &m)
{
    return m.batch * m.rows * m.cols;
}

static pl_args_weight_grad make(form f, uint64_t seed)
{
    pl_args_weight_grad a = {};
    a.dY = mat(POLAR_DTYPE_BF16, f.members, f.rows, f.out);
    a.X = mat(POLAR_DTYPE_BF16, f.members, f.rows, f.in);
    a.dW = mat(POLAR_DTYPE_F32, f.members, f.out, f.in);
    a.db = mat(POLAR_DTYPE_F32, f.members, 1, f.out);
    fill<<<1024, 256, 0, stream>>>((__nv_bfloat16 *)a.dY.data, count(a.dY), seed);
    fill<<<1024, 256, 0, stream>>>((__nv_bfloat16 *)a.X.data, count(a.X), seed + 1);
    return a;
}

static void drop(const pl_args_weight_grad &a)
{
    const pl_mat mats[] = {a.dY, a.X, a.dW, a.db};
    for (const pl_mat &m : mats) cudaFree(m.data);
}

static void *scratch_for(const pl_args_weight_grad &a)
{
    void *scratch;
    CK(cudaMalloc(&scratch, pl_hopper_weight_grad_scratch(&a) + 256));
    return scratch;
}

/* ---- checks ------------------------------------------------------------------------------------- */

/* Block s: an entry of dW, or of db, as a share of 2 n u sum |y x| (test_weight_grad.c). */
static __global__ void sample(double *share, pl_args_weight_grad a, int member, int bias)
{
    __shared__ double sums[256], sizes[256];
    const int t = (int)threadIdx.x, out = (int)a.dW.rows, in = (int)a.dW.cols;
    const int i = (int)(mixed(5 + blockIdx.x * 2) % (uint32_t)out),
              j = (int)(mixed(6 + blockIdx.x * 2) % (uint32_t)in);
    const __nv_bfloat16 *Y = (const __nv_bfloat16 *)a.dY.data + member * a.dY.bs + i,
                        *X = (const __nv_bfloat16 *)a.X.data + member * a.X.bs + j;
    double sum = 0, size = 0;
    for (int64_t r = t; r < a.X.rows; r += 256) {
        const double term = (double)(float)Y[r * out] * (bias ? 1. : (double)(float)X[r * in]);
        sum += term, size += fabs(term);
    }
    sums[t] = sum, sizes[t] = size;
    __syncthreads();
    for (int half = 128; half; half /= 2) {
        if (t < half) sums[t] += sums[t + half], sizes[t] += sizes[t + half];
        __syncthreads();
    }
    if (t) return;
    const double got = bias ? ((const float *)a.db.data)[member * a.db.bs + i]
                            : ((const float *)a.dW.data)[member * a.dW.bs + (int64_t)i * in + j];
    const double e = fabs(got - sums[0]) / (2. * (double)a.X.rows * 0x1p-24 * sizes[0]);
    share[blockIdx.x] = e == e ? e : 1e30;
}

static double worst_of(const pl_args_weight_grad &a)
{
    double *on_device, share[SAMPLES], worst = 0;
    CK(cudaMalloc(&on_device, sizeof share));
    for (int k = 0; k < 4; k++) {
        sample<<<SAMPLES, 256, 0, stream>>>(on_device, a, k / 2 ? (int)a.dW.batch - 1 : 0, k % 2);
        CK(cudaMemcpyAsync(share, on_device, sizeof share, cudaMemcpyDeviceToHost, stream));
        CK(cudaStreamSynchronize(stream));
        worst = std::max(worst, *std::max_element(share, share + SAMPLES));
    }
    cudaFree(on_device);
    return worst;
}

static std::vector<uint32_t> bits_of(const pl_args_weight_grad &a)
{
    const size_t w = (size_t)count(a.dW), b = (size_t)count(a.db);
    std::vector<uint32_t> r(w + b);
    CK(cudaMemcpyAsync(r.data(), a.dW.data, w * 4, cudaMemcpyDeviceToHost, stream));
    CK(cudaMemcpyAsync(r.data() + w, a.db.data, b * 4, cudaMemcpyDeviceToHost, stream));
    CK(cudaStreamSynchronize(stream));
    return r;
}

static cudaError_t call(const pl_args_weight_grad &a, void *scratch)
{
    return pl_hopper_weight_grad(&dev, stream, &a, scratch);
}

static pl_args_weight_grad member_of(const pl_args_weight_grad &a, int m)
{
    pl_args_weight_grad one = a;
    pl_mat *mats[] = {&one.dY, &one.X, &one.dW, &one.db};
    for (pl_mat *x : mats) {
        x->data = (char *)x->data + x->bs * m * (x->dtype == POLAR_DTYPE_F32 ? 4 : 2);
        x->batch = 1;
    }
    return one;
}

static int check(form f)
{
    const pl_args_weight_grad a = make(f, 17 + (uint64_t)f.rows);
    const size_t size = (size_t)(f.out * f.in);
    void *scratch = scratch_for(a);
    CK(cudaMemsetAsync(a.dW.data, 0xff, (size_t)count(a.dW) * 4, stream)); /* NaN */
    CK(cudaMemsetAsync(a.db.data, 0xff, (size_t)count(a.db) * 4, stream));
    CK(call(a, scratch));
    const std::vector<uint32_t> together = bits_of(a);
    const double worst = worst_of(a);
    int bad = !(worst <= 1);
    for (int m = 0; m < f.members; m += std::max(1, f.members - 1)) {
        const pl_args_weight_grad one = member_of(a, m);
        CK(cudaMemsetAsync(one.dW.data, 0xff, size * 4, stream));
        CK(call(one, scratch));
        if (memcmp(bits_of(one).data(), together.data() + (size_t)m * size, size * 4))
            printf("member %d alone: other bits\n", m), bad = 1;
    }
    printf("%d x %lld x %d x %d: %.5f of 2 n u sum |y x|  %s\n", f.members, (long long)f.rows, f.out, f.in,
           worst, bad ? "FAIL" : "PASS");
    fflush(stdout);
    cudaFree(scratch), drop(a);
    return bad;
}

/* ---- times -------------------------------------------------------------------------------------- */

/* Microseconds a call, the median of graphs of as many calls as there are sets of operands. */
static double time_of(const std::vector<pl_args_weight_grad> &sets, void *scratch)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t begin, end;
    std::vector<float> ms;
    CK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (const pl_args_weight_grad &a : sets) CK(call(a, scratch));
    CK(cudaStreamEndCapture(stream, &graph));
    CK(cudaGraphInstantiate(&exec, graph, 0));
    CK(cudaEventCreate(&begin));
    CK(cudaEventCreate(&end));
    for (int i = 0; i < 8; i++) {
        float t;
        CK(cudaEventRecord(begin, stream));
        CK(cudaGraphLaunch(exec, stream));
        CK(cudaEventRecord(end, stream));
        CK(cudaEventSynchronize(end));
        CK(cudaEventElapsedTime(&t, begin, end));
        if (i) ms.push_back(t);
    }
    std::sort(ms.begin(), ms.end());
    cudaGraphExecDestroy(exec), cudaGraphDestroy(graph), cudaEventDestroy(begin), cudaEventDestroy(end);
    return ms[ms.size() / 2] * 1e3 / (double)sets.size();
}

static void time_layers(int members, int64_t rows)
{
    static const struct {
        const char *name;
        int out, in;
    } layers[] = {{"qkv", 576, 192}, {"proj", 192, 192}, {"fc1", 768, 192}, {"fc2", 192, 768}};
    double sum = 0, floors = 0;
    for (const auto &l : layers) {
        const form f = {members, rows, l.out, l.in};
        const double bytes = 2. * members * (double)rows * (l.out + l.in), floor = bytes / COPY;
        /* sets that outgrow the cache */
        const int n = (int)std::min(24., std::max(2., ceil(500e6 / bytes)));
        std::vector<pl_args_weight_grad> sets;
        for (int i = 0; i < n; i++) sets.push_back(make(f, 100 + (uint64_t)i));
        void *scratch = scratch_for(sets[0]);
        const double us = time_of(sets, scratch);
        floors += floor, sum += us;
        printf("%3d x %-8lld %-5s %6.1f %7.1f (%3.0f%%)\n", members, (long long)rows, l.name, floor, us,
               100 * floor / us);
        for (const pl_args_weight_grad &a : sets) drop(a);
        cudaFree(scratch);
    }
    printf("%3d x %-8lld %-5s %6.1f %7.1f (%3.0f%%)\n", members, (long long)rows, "all", floors, sum,
           100 * floors / sum);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static const form forms[] = {{1, 1024, 64, 64},    {3, 1035, 200, 72},   {1, 1379, 192, 192},
                                 {40, 1100, 136, 104}, {2, 25664, 136, 104}, {2, 8320, 576, 192},
                                 {1, 8320, 192, 768}};
    int bad = 0;
    dev = pl_hopper_open();
    if (!dev.multiprocessors) {
        printf("no Hopper GPU\n");
        return 77;
    }
    CK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (const form &f : forms) bad |= check(f);
    if (bad || (argc > 1 && !strcmp(argv[1], "check"))) return bad;
    printf("members x rows, layer, bytes at the copy's rate and measured, us\n");
    time_layers(12, 8320), time_layers(6, 8320), time_layers(1, 8320);
    time_layers(1, 25216), time_layers(1, 201728);
    return 0;
}
