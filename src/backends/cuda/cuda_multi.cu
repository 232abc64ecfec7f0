/* cuda_multi.cu -- the elementwise ops of many parameters in one launch: a block finds its item in the table
 * and does a chunk of it.
 *
 * Bytes are what such a step costs (AdamW: 28 an entry), so threads move 16 bytes at a time and an SM has
 * 2,048 of them.
 */
#include "cuda_multi.h"

#include "cuda_table.cuh"
#include "device/ops.h"
#include "math/bf16_elem.h"
#include "math/formulas_elem.h"
#include "math/line_elem.h"

#define THREADS 256
#define CHUNK   2048 /* entries of a block */
#define FEW     8    /* items of the small table: a call by itself should not carry 30 KB */

template <int CAPACITY> struct item_table {
    int count;
    uint32_t first[CAPACITY + 1]; /* block of each item's first chunk */
    pl_cuda_item item[CAPACITY];
};

static_assert(sizeof(item_table<PL_CUDA_ITEMS>) <= 32764, "kernel parameters end there");

/* A live row (pl_live_col) as floats. */
struct live_values {
    float c1, c2, lr, wd, beta1, one_minus_beta1, beta2, one_minus_beta2, eps, grad;
    bool skip;
};

__device__ __forceinline__ live_values live_of(const pl_cuda_item &it, int64_t matrix)
{
    const double *live = it.live + matrix * it.live_stride;
    live_values k = {};
    k.skip = live[PL_LIVE_SKIP] != 0;
    if (it.op != PL_MULTI_DIRECTION) k.lr = (float)live[PL_LIVE_LR], k.wd = (float)live[PL_LIVE_WD];
    if (it.op >= PL_MULTI_DECAY_STEP) return k;
    k.c1 = (float)live[PL_LIVE_C1], k.c2 = (float)live[PL_LIVE_C2], k.eps = (float)live[PL_LIVE_EPS],
    k.grad = (float)live[PL_LIVE_GRAD];
    k.beta1 = (float)live[PL_LIVE_BETA1], k.one_minus_beta1 = (float)(1 - live[PL_LIVE_BETA1]);
    k.beta2 = (float)live[PL_LIVE_BETA2], k.one_minus_beta2 = (float)(1 - live[PL_LIVE_BETA2]);
    return k;
}

/* ---- WIDTH entries from and to memory ----------------------------------------------------------- */

template <int WIDTH> __device__ __forceinline__ void load(float (&x)[WIDTH], const void *p, int64_t at)
{
    if constexpr (WIDTH == 4) {
        float4 y = *(const float4 *)((const float *)p + at);
        x[0] = y.x, x[1] = y.y, x[2] = y.z, x[3] = y.w;
    } else x[0] = ((const float *)p)[at];
}

template <int WIDTH>
__device__ __forceinline__ void load_grad(float (&x)[WIDTH], const pl_cuda_item &it, const live_values &k,
                                          int64_t at)
{
    if (!it.g_bf16) load(x, it.g, at);
    else if constexpr (WIDTH == 4) {
        ushort4 y = *(const ushort4 *)((const pl_bf16 *)it.g + at);
        x[0] = pl_bf16_to_f32(y.x), x[1] = pl_bf16_to_f32(y.y), x[2] = pl_bf16_to_f32(y.z),
        x[3] = pl_bf16_to_f32(y.w);
    } else x[0] = pl_bf16_to_f32(((const pl_bf16 *)it.g)[at]);
    for (int i = 0; i < WIDTH; i++) x[i] *= k.grad;
}

template <int WIDTH> __device__ __forceinline__ void store(void *p, int64_t at, const float (&x)[WIDTH])
{
    if constexpr (WIDTH == 4) *(float4 *)((float *)p + at) = make_float4(x[0], x[1], x[2], x[3]);
    else ((float *)p)[at] = x[0];
}

template <int WIDTH> __device__ __forceinline__ void store_bf16(void *p, int64_t at, const float (&x)[WIDTH])
{
    for (int i = 0; i < WIDTH; i++) ((pl_bf16 *)p)[at + i] = pl_bf16_from_f32(x[i]);
}

/* ---- the ops ------------------------------------------------------------------------------------ */

template <int WIDTH>
__device__ __forceinline__ void adamw_step(const pl_cuda_item &it, const live_values &k, int64_t at)
{
    float g[WIDTH], m[WIDTH], v[WIDTH], w[WIDTH];
    load_grad(g, it, k, at), load(m, it.m, at), load(v, it.v, at), load(w, it.w, at);
    for (int i = 0; i < WIDTH; i++) {
        float d = pl_adam_direction_f32(g[i], &m[i], &v[i], k.beta1, k.one_minus_beta1, k.beta2,
                                        k.one_minus_beta2, k.c1, k.c2, k.eps);
        w[i] = pl_decay_and_step_f32(w[i], d, k.lr, k.wd, 1);
    }
    store(it.w, at, w), store(it.m, at, m), store(it.v, at, v);
}

template <int WIDTH>
__device__ __forceinline__ void direction(const pl_cuda_item &it, const live_values &k, int64_t at)
{
    float g[WIDTH], m[WIDTH], v[WIDTH] = {}, d[WIDTH];
    load_grad(g, it, k, at), load(m, it.m, at);
    if (it.precondition) load(v, it.v, at);
    for (int i = 0; i < WIDTH; i++) {
        if (it.precondition == POLAR_PRECONDITION_LAPROP) {
            d[i] = pl_laprop_direction_f32(g[i], &m[i], &v[i], it.momentum, k.beta1, k.one_minus_beta1,
                                           k.beta2, k.one_minus_beta2, k.c1, k.c2, k.eps);
            continue;
        }
        d[i] = pl_momentum_f32(g[i], &m[i], it.momentum, k.beta1, k.one_minus_beta1, k.c1);
        if (it.precondition)
            d[i] = pl_precondition_f32(d[i], g[i], &v[i], k.beta2, k.one_minus_beta2, k.c2, k.eps);
    }
    store(it.m, at, m), store(it.d, at, d);
    if (it.precondition) store(it.v, at, v);
}

template <int WIDTH>
__device__ __forceinline__ void decay_step(const pl_cuda_item &it, const live_values &k, int64_t at)
{
    float w[WIDTH], d[WIDTH];
    load(w, it.w, at), load(d, it.d, at);
    for (int i = 0; i < WIDTH; i++) w[i] = pl_decay_and_step_f32(w[i], d[i], k.lr, k.wd, (float)it.scale);
    store(it.w, at, w);
}

template <int WIDTH>
__device__ __forceinline__ void cautious_step(const pl_cuda_item &it, const live_values &k, int64_t at)
{
    float w[WIDTH], d[WIDTH];
    load(w, it.w, at), load(d, it.d, at);
    for (int i = 0; i < WIDTH; i++) w[i] = pl_cautious_step_f32(w[i], d[i], k.lr, k.wd, (float)it.scale);
    store(it.w, at, w);
}

template <int WIDTH> __device__ __forceinline__ void copy_bf16(const pl_cuda_item &it, int64_t at)
{
    float x[WIDTH];
    load(x, it.g, at);
    store_bf16(it.w, at, x);
}

template <int WIDTH> __device__ __forceinline__ void copy_f32(const pl_cuda_item &it, int64_t at)
{
    float x[WIDTH];
    load(x, it.g, at);
    store(it.w, at, x);
}

/* The flag of a matrix with an entry that is not finite; several threads may write the same 1. */
__device__ __forceinline__ void nonfinite(const pl_cuda_item &it, int64_t matrix, int64_t from, int64_t to)
{
    bool bad = false;
    for (int64_t at = from + threadIdx.x; at < to; at += THREADS) {
        float x = it.g_bf16 ? pl_bf16_to_f32(((const pl_bf16 *)it.g)[at]) : ((const float *)it.g)[at];
        bad |= x - x != 0;
    }
    if (bad) ((float *)it.w)[matrix] = 1;
}

template <int WIDTH>
__device__ __forceinline__ void chunk_of(const pl_cuda_item &it, const live_values &k, int64_t from,
                                         int64_t to)
{
    for (int64_t at = from + (int64_t)threadIdx.x * WIDTH; at < to; at += THREADS * WIDTH)
        switch (it.op) { /* the same branch for every thread */
        case PL_MULTI_ADAMW_STEP: adamw_step<WIDTH>(it, k, at); break;
        case PL_MULTI_DIRECTION: direction<WIDTH>(it, k, at); break;
        case PL_MULTI_DECAY_STEP: decay_step<WIDTH>(it, k, at); break;
        case PL_MULTI_CAUTIOUS_STEP: cautious_step<WIDTH>(it, k, at); break;
        case PL_MULTI_COPY_F32: copy_f32<WIDTH>(it, at); break;
        default: copy_bf16<WIDTH>(it, at); break;
        }
}

__device__ __forceinline__ bool aligned(const pl_cuda_item &it, int64_t from)
{
    uintptr_t bits = (uintptr_t)it.w | (uintptr_t)it.m | (uintptr_t)it.v | (uintptr_t)it.d | (uintptr_t)it.g;
    return (bits & 15) == 0 && from % 4 == 0;
}

/* keep and move of a step that looks at W: a few roots and quotients in double, one thread's. */
__device__ __forceinline__ void look(float *keep, float *move, const pl_cuda_item &it, int64_t matrix)
{
    __shared__ float factors[2];
    if (threadIdx.x == 0) {
        const double *live = it.live + matrix * it.live_stride, *norms = (const double *)it.g;
        double by[2];
        pl_apply_factors(&by[0], &by[1], norms + matrix * it.g_stride, it.apply, live[PL_LIVE_LR],
                         live[PL_LIVE_WD], it.scale, it.strength);
        factors[0] = (float)by[0], factors[1] = (float)by[1];
    }
    __syncthreads();
    *keep = factors[0], *move = factors[1];
}

/* The first entries are under way while one thread looks. */
__device__ __forceinline__ void looking_step(const pl_cuda_item &it, const live_values &k, int64_t matrix,
                                             int64_t from, int64_t to)
{
    const bool fours = (((uintptr_t)it.w | (uintptr_t)it.d) & 15) == 0 && from % 4 == 0;
    const int64_t whole = fours ? from + (to - from) / 4 * 4 : from;
    int64_t at = from + 4 * (int64_t)threadIdx.x;
    float w[4], d[4], keep, move;
    if (at < whole) load(w, it.w, at), load(d, it.d, at);
    look(&keep, &move, it, matrix);
    while (at < whole) {
        for (int i = 0; i < 4; i++) w[i] = pl_ball_step_f32(w[i], d[i], k.lr, keep, move);
        store(it.w, at, w);
        at += 4 * THREADS;
        if (at < whole) load(w, it.w, at), load(d, it.d, at);
    }
    for (at = whole + threadIdx.x; at < to; at += THREADS) {
        float *x = (float *)it.w + at;
        *x = pl_ball_step_f32(*x, ((const float *)it.d)[at], k.lr, keep, move);
    }
}

template <int CAPACITY>
__global__ void __launch_bounds__(THREADS) multi_kernel(const __grid_constant__ item_table<CAPACITY> table)
{
    const int low = call_of_block(table.first, table.count);
    const pl_cuda_item &it = table.item[low];
    int64_t chunks = (it.each + CHUNK - 1) / CHUNK, chunk = blockIdx.x - table.first[low];
    int64_t matrix = chunk / chunks, base = matrix * it.each;
    int64_t from = base + chunk % chunks * CHUNK, end = base + it.each,
            to = from + CHUNK < end ? from + CHUNK : end;
    live_values k = it.live ? live_of(it, matrix) : live_values{};
    if (k.skip) return; /* the same for the whole block */
    if (it.op == PL_MULTI_NONFINITE) nonfinite(it, matrix, from, to);
    else if (it.op == PL_MULTI_LOOKING_STEP) looking_step(it, k, matrix, from, to);
    else if (!aligned(it, from)) chunk_of<1>(it, k, from, to);
    else {
        int64_t whole = from + (to - from) / 4 * 4;
        chunk_of<4>(it, k, from, whole);
        chunk_of<1>(it, k, whole, to);
    }
}

template <int CAPACITY> static void launch(cudaStream_t stream, const pl_cuda_item *item, int count)
{
    item_table<CAPACITY> table;
    int64_t blocks = 0;
    table.count = count;
    for (int i = 0; i < count; i++) {
        table.item[i] = item[i];
        table.first[i] = (uint32_t)blocks;
        blocks += (item[i].each + CHUNK - 1) / CHUNK * item[i].matrices;
    }
    table.first[count] = (uint32_t)blocks;
    if (blocks) multi_kernel<CAPACITY><<<(unsigned)blocks, THREADS, 0, stream>>>(table);
}

void pl_cuda_launch_multi(cudaStream_t stream, const pl_cuda_multi *list)
{
    if (list->count <= FEW) launch<FEW>(stream, list->item, list->count);
    else launch<PL_CUDA_ITEMS>(stream, list->item, list->count);
}

/* ---- what a captured graph may change ------------------------------------------------------------ */

size_t pl_cuda_multi_bytes(const void *kernel)
{
    if (kernel == (const void *)multi_kernel<FEW>) return sizeof(item_table<FEW>);
    if (kernel == (const void *)multi_kernel<PL_CUDA_ITEMS>) return sizeof(item_table<PL_CUDA_ITEMS>);
    return 0;
}

template <int CAPACITY> static int grads_of(item_table<CAPACITY> *table, const void ***out)
{
    int n = 0;
    for (int i = 0; i < table->count; i++) {
        int op = table->item[i].op;
        if (op == PL_MULTI_ADAMW_STEP || op == PL_MULTI_DIRECTION || op == PL_MULTI_NONFINITE)
            out[n++] = &table->item[i].g;
    }
    return n;
}

int pl_cuda_multi_grads(const void *kernel, void *table, const void ***out)
{
    if (kernel == (const void *)multi_kernel<FEW>) return grads_of((item_table<FEW> *)table, out);
    return grads_of((item_table<PL_CUDA_ITEMS> *)table, out);
}
