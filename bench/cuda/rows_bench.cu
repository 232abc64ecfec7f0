/* rows_bench.cu -- the linear layers of DeiT-Tiny on one Hopper GPU by several plans of cuda_rows_walk.cuh
 * (WIDTH/PADS/GROUPS): the bits of all against the first one's, and times, as graphs of calls over operands
 * that outgrow the cache.
 *
 *     nvcc -gencode=arch=compute_90a,code=sm_90a -O3 -std=c++17 -fmad=false -DPL_HOPPER_WATCH \
 *          -Isrc -Iinclude -Isrc/backends/cuda -o rows_bench bench/cuda/rows_bench.cu \
 *          src/backends/cuda/cuda_hopper_gemm_act.cu src/backends/cuda/cuda_hopper.cu -ldl
 *     ./rows_bench [check]
 *
 * A figure: microseconds a call, and the share of 4.2 TB/s that its arrays, each read or written once, come
 * to.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <vector>

#include "../../src/backends/cuda/cuda_gemm_act.h"
#include "../../src/backends/cuda/cuda_rows_walk.cuh"
#include "bench_cuda.h"

extern "C" size_t polar_dtype_size(polar_dtype dtype) /* so that nothing else of the library is wanted */
{
    return dtype == POLAR_DTYPE_F32 ? 4 : 2;
}

typedef cudaError_t (*plan_function)(const pl_hopper_device *, cudaStream_t, const pl_args_gemm_act *);
typedef struct {
    const char *name;
    plan_function run;
} plan;

typedef struct {
    const char *name;
    int64_t n, k;
    int tb, kind, f32;
    std::vector<plan> plans;
} layer;

template <int WIDTH, int TB, int KIND, int F32, int PADS, int GROUPS> static plan by(void)
{
    static char name[16];
    snprintf(name, sizeof name, "%d/%d/%d", WIDTH, PADS, GROUPS);
    return {name, launch<WIDTH, TB, KIND, F32, PADS, GROUPS>};
}

static std::vector<layer> layers(void)
{
    std::vector<layer> all;
    all.push_back({"qkv", 576, 192, 1, PLAIN, 0});
    all.back().plans = {by<192, 0, PLAIN, 0, 1, 3>(), by<192, 0, PLAIN, 0, 1, 2>(),
                        by<96, 0, PLAIN, 0, 1, 4>(), by<96, 0, PLAIN, 0, 0, 4>()};
    all.push_back({"proj", 192, 192, 1, ADD, 1});
    all.back().plans = {by<192, 0, ADD, 1, 1, 2>(), by<96, 0, ADD, 1, 1, 4>(), by<96, 0, ADD, 1, 0, 3>()};
    all.push_back({"fc1", 768, 192, 1, GELU, 0});
    all.back().plans = {by<192, 0, GELU, 0, 1, 3>(), by<192, 0, GELU, 0, 1, 2>(), by<128, 0, GELU, 0, 1, 4>(),
                        by<96, 0, GELU, 0, 1, 4>(), by<96, 0, GELU, 0, 0, 4>()};
    all.push_back({"fc2", 192, 768, 1, ADD, 1});
    all.back().plans = {by<96, 0, ADD, 1, 0, 3>(), by<96, 0, ADD, 1, 0, 2>(), by<96, 0, ADD, 1, 1, 2>()};
    all.push_back({"proj s", 192, 192, 1, SCALED, 1}); /* stochastic depth */
    all.back().plans = {by<192, 0, SCALED, 1, 1, 2>(), by<96, 0, SCALED, 1, 1, 4>()};
    all.push_back({"fc2 s", 192, 768, 1, SCALED, 1});
    all.back().plans = {by<96, 0, SCALED, 1, 0, 3>(), by<96, 0, SCALED, 1, 0, 2>()};
    all.push_back({"dA", 768, 192, 0, FACTOR, 0});
    all.back().plans = {by<192, 1, FACTOR, 0, 1, 3>(), by<192, 1, FACTOR, 0, 1, 2>(),
                        by<128, 1, FACTOR, 0, 1, 4>(), by<96, 1, FACTOR, 0, 1, 4>(),
                        by<96, 1, FACTOR, 0, 0, 4>()};
    all.push_back({"fc1 dX", 192, 768, 0, PLAIN, 0});
    all.back().plans = {by<96, 1, PLAIN, 0, 0, 3>(), by<96, 1, PLAIN, 0, 0, 2>(),
                        by<96, 1, PLAIN, 0, 1, 3>()};
    all.push_back({"proj dX", 192, 192, 0, PLAIN, 0});
    all.back().plans = {by<192, 1, PLAIN, 0, 1, 3>(), by<192, 1, PLAIN, 0, 1, 2>(),
                        by<96, 1, PLAIN, 0, 1, 4>()};
    all.push_back({"qkv dX", 192, 576, 0, PLAIN, 0});
    all.back().plans = {by<96, 1, PLAIN, 0, 0, 4>(), by<96, 1, PLAIN, 0, 1, 2>(),
                        by<96, 1, PLAIN, 0, 1, 3>()};
    for (layer &l : all) l.plans.push_back({"library", pl_hopper_rows});
    return all;
}

__global__ void fill(void *x, int f32, int64_t n, float scale, uint64_t seed)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x) {
        uint64_t h = (i + 1) * 0x9e3779b97f4a7c15ull + seed * 0xd1342543de82ef95ull;
        h ^= h >> 32, h *= 0xff51afd7ed558ccdull, h ^= h >> 29, h *= 0xc4ceb9fe1a85ec53ull, h ^= h >> 32;
        const float u =
            (float)(h & 0xffff) + (float)(h >> 16 & 0xffff) + (float)(h >> 32 & 0xffff) + (float)(h >> 48);
        const float v = (u / 65536.0f - 2.0f) * 1.732f * scale;
        if (f32) ((float *)x)[i] = v;
        else ((__nv_bfloat16 *)x)[i] = __float2bfloat16(v);
    }
}

static pl_mat make(int f32, int64_t batch, int64_t rows, int64_t cols, float scale, uint64_t seed)
{
    pl_mat m = {};
    m.dtype = f32 ? POLAR_DTYPE_F32 : POLAR_DTYPE_BF16, m.batch = batch, m.rows = rows, m.cols = cols,
    m.rs = cols, m.bs = rows * cols;
    CK(cudaMalloc(&m.data, (size_t)(batch * rows * cols) * (f32 ? 4 : 2)));
    fill<<<1024, 256>>>(m.data, f32, batch * rows * cols, scale, seed);
    CK(cudaGetLastError());
    return m;
}

static size_t bytes_of(const pl_mat &m)
{
    return m.data ? (size_t)(m.batch * m.rows * m.cols) * (m.dtype == POLAR_DTYPE_F32 ? 4 : 2) : 0;
}

static pl_args_gemm_act operands(const layer &l, int64_t members, int64_t rows, uint64_t seed)
{
    pl_args_gemm_act a = {};
    a.tb = l.tb, a.act = l.kind == GELU ? PL_ACT_GELU : PL_ACT_NONE;
    a.A = make(0, members, rows, l.k, 1, seed), a.Y = make(l.f32, members, rows, l.n, 1, seed + 1);
    a.B = l.tb ? make(0, members, l.n, l.k, 1.5f / sqrtf((float)l.k), seed + 2)
               : make(0, members, l.k, l.n, 1.5f / sqrtf((float)l.k), seed + 2);
    if (l.kind == GELU) a.S = make(0, members, rows, l.n, 1, seed + 3);
    if (l.kind == FACTOR) a.F = make(0, members, rows, l.n, 1, seed + 4);
    if (adds(l.kind)) a.D = make(1, members, rows, l.n, 1, seed + 5);
    if (l.tb) a.b = make(1, members, 1, l.n, 1, seed + 6);
    const int64_t tokens = rows % 197 == 0 ? 197 : rows % 65 == 0 ? 65 : 1;
    if (l.kind == SCALED) a.s = make(1, members, rows / tokens, 1, 1, seed + 7);
    return a;
}

static void release(pl_args_gemm_act &a)
{
    pl_mat *all[] = {&a.A, &a.B, &a.Y, &a.S, &a.D, &a.b, &a.F, &a.s};
    for (pl_mat *m : all)
        if (m->data) cudaFree(m->data);
}

/* Words that differ, and those by more than one; of slopes near their zero any number may. */
__global__ void compare(const uint16_t *x, const uint16_t *y, int64_t n, int slopes,
                        unsigned long long *count)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x) {
        const int d = abs((int)x[i] - (int)y[i]);
        if (d) atomicAdd(count, 1ull);
        if (d > 1 && !(slopes && (x[i] & 0x7fff) < 0x3d00)) atomicAdd(count + 1, 1ull);
    }
}

/* Bits of all plans against the first one's; with gelu at most a unit in the last place of bf16 apart. */
static int check(const pl_hopper_device *dev, int64_t members, int64_t rows)
{
    int bad = 0;
    unsigned long long *count;
    CK(cudaMalloc(&count, 16));
    for (const layer &l : layers()) {
        pl_args_gemm_act a = operands(l, members, rows, 7);
        pl_mat *results[] = {&a.Y, &a.S};
        void *want[2] = {};
        for (size_t k = 0; k < l.plans.size(); k++) {
            unsigned long long n[2];
            for (pl_mat *m : results)
                if (m->data) CK(cudaMemset(m->data, 0xff, bytes_of(*m)));
            CK(cudaMemset(count, 0, 16));
            CK(l.plans[k].run(dev, 0, &a));
            CK(cudaDeviceSynchronize());
            for (int i = 0; i < 2; i++) {
                if (!results[i]->data) continue;
                const size_t bytes = bytes_of(*results[i]);
                if (!k) {
                    CK(cudaMalloc(&want[i], bytes));
                    CK(cudaMemcpy(want[i], results[i]->data, bytes, cudaMemcpyDeviceToDevice));
                }
                compare<<<1024, 256>>>((const uint16_t *)results[i]->data, (const uint16_t *)want[i],
                                       (int64_t)bytes / 2, i, count);
            }
            CK(cudaMemcpy(n, count, 16, cudaMemcpyDeviceToHost));
            const int wrong = l.kind == GELU ? n[1] != 0 || n[0] > bytes_of(a.Y) / 100 : n[0] != 0;
            if (wrong || (l.kind == GELU && n[0]))
                printf("%lld x %lld %-8s %-8s %llu of %zu words differ, %llu by more than one%s\n",
                       (long long)members, (long long)rows, l.name, l.plans[k].name, n[0], bytes_of(a.Y),
                       n[1], wrong ? "  WRONG" : "");
            bad += wrong;
        }
        cudaFree(want[0]), cudaFree(want[1]);
        release(a);
    }
    cudaFree(count);
    printf("%lld x %lld checked: %s\n", (long long)members, (long long)rows, bad ? "WRONG" : "right");
    fflush(stdout);
    return bad;
}

static float timed(const pl_hopper_device *dev, const plan &p, const std::vector<pl_args_gemm_act> &sets)
{
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t run;
    cudaEvent_t from, to;
    const int calls = 8;
    CK(cudaStreamCreate(&stream));
    CK(p.run(dev, stream, &sets[0]));
    CK(cudaStreamSynchronize(stream));
    CK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < calls; i++) CK(p.run(dev, stream, &sets[i % sets.size()]));
    CK(cudaStreamEndCapture(stream, &graph));
    CK(cudaGraphInstantiate(&run, graph, 0));
    CK(cudaEventCreate(&from));
    CK(cudaEventCreate(&to));
    std::vector<float> us;
    for (int i = 0; i < 8; i++) {
        float ms;
        CK(cudaEventRecord(from, stream));
        CK(cudaGraphLaunch(run, stream));
        CK(cudaEventRecord(to, stream));
        CK(cudaStreamSynchronize(stream));
        CK(cudaEventElapsedTime(&ms, from, to));
        if (i) us.push_back(ms * 1000 / calls);
    }
    cudaGraphExecDestroy(run), cudaGraphDestroy(graph), cudaStreamDestroy(stream);
    std::sort(us.begin(), us.end());
    return us[us.size() / 2];
}

static void times(const pl_hopper_device *dev, int64_t members, int64_t rows)
{
    for (const layer &l : layers()) {
        std::vector<pl_args_gemm_act> sets;
        double bytes = 0;
        do {
            sets.push_back(operands(l, members, rows, 11 * sets.size() + 1));
            const pl_args_gemm_act &a = sets[0];
            bytes = (double)(bytes_of(a.A) + bytes_of(a.B) + bytes_of(a.Y) + bytes_of(a.S) + bytes_of(a.D) +
                             bytes_of(a.F));
        } while ((double)sets.size() * bytes < 2e8 && sets.size() < 8);
        printf("%2lld x %6lld %-8s floor %6.1f:", (long long)members, (long long)rows, l.name, bytes / 4.2e6);
        for (const plan &p : l.plans) {
            const float us = timed(dev, p, sets);
            printf("  %s %.1f (%.0f%%)", p.name, us, 100 * bytes / 4.2e6 / us);
        }
        printf("\n");
        fflush(stdout);
        for (pl_args_gemm_act &a : sets) release(a);
    }
}

int main(int argc, char **argv)
{
    const pl_hopper_device dev = pl_hopper_open();
    if (!dev.multiprocessors) {
        printf("rows_bench: no Hopper GPU\n");
        return 3;
    }
    if (argc > 1 && !strcmp(argv[1], "check"))
        return check(&dev, 3, 1091) + check(&dev, 12, 8320) + check(&dev, 1, 25216) != 0;
    static const int64_t sizes[][2] = {{12, 8320}, {1, 25216}, {1, 8320}, {6, 8320}, {1, 201728}};
    for (auto &size : sizes) times(&dev, size[0], size[1]);
    return 0;
}
