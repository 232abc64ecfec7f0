/* cuda_hopper_ns_warp.cu -- Newton-Schulz of matrices with m <= 16 and n <= 256: a warp each, registers only.
 * MAP and ITERATE: elementwise work is done by many more threads in launches of its own (cuda_multi.cu).
 *
 * X stands in fragments of 16 x 16: register k of a lane has rows lane / 4 and + 8 (k odd), columns
 * 2 (lane % 4) + (0, 1) and + 8 (k >= 2). A fragment is at once the left operand of X X^T and, by halves, the
 * right one; for P X it is transposed 8 x 8 by 8 x 8.
 */
#include "cuda_ns_memory.cuh"

__device__ __forceinline__ uint32_t transpose(uint32_t x)
{
    uint32_t y;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}

/* acc (16 x 16) += X X^T of one fragment. */
__device__ __forceinline__ void square(float acc[8], const uint32_t x[4])
{
    mma(acc, x, x[0], x[2]);
    mma(acc + 4, x, x[1], x[3]);
}

/* Where a lane's entry k (of 8) of fragment b lies in a matrix with that row stride; -1 outside of it. */
__device__ __forceinline__ int entry_at(const view &v, int b, int k, int lane, int rs)
{
    int i = lane / 4 + k / 2 % 2 * 8, j = 16 * b + 2 * (lane % 4) + k / 4 * 8 + k % 2;
    if (i >= v.m || j >= v.n) return -1;
    return v.tall ? j * rs + i : i * rs + j;
}

__device__ __forceinline__ float to_f32(float x)
{
    return x;
}

__device__ __forceinline__ float to_f32(pl_bf16 x)
{
    return pl_bf16_to_f32(x);
}

/* All of the matrix; zeros beyond it. Every load is under way before the first value is used. */
template <int NK, typename T>
__device__ __forceinline__ void load(float (*d)[8], const T *p, const view &v, int lane, int rs)
{
    T x[NK][8];
#pragma unroll
    for (int b = 0; b < NK; b++)
#pragma unroll
        for (int k = 0; k < 8; k++) {
            int at = entry_at(v, b, k, lane, rs);
            x[b][k] = at < 0 ? (T)0 : p[at];
        }
#pragma unroll
    for (int b = 0; b < NK; b++)
#pragma unroll
        for (int k = 0; k < 8; k++) d[b][k] = to_f32(x[b][k]);
}

/* A = R(X X^T), P = R(b A + c A A), X = R(a X + P X). */
template <int NK> __device__ __forceinline__ void step(uint32_t (*x)[4], int blocks, const float *coef)
{
    float acc[8] = {0, 0, 0, 0, 0, 0, 0, 0}, acc2[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    uint32_t a[4], p[4];
#pragma unroll
    for (int b = 0; b < NK; b++)
        if (b < blocks) square(acc, x[b]);
            /* acc[0, 1]: rows 0-7, columns 0-7; [2, 3]: rows 8-15; [4 ..]: columns 8-15: the order of a
             * fragment's registers */
#pragma unroll
    for (int k = 0; k < 4; k++) a[k] = pack2(acc[2 * k], acc[2 * k + 1]);
    square(acc2, a);
#pragma unroll
    for (int k = 0; k < 4; k++) p[k] = epilogue2(acc2[2 * k], acc2[2 * k + 1], coef[2], coef[1], a[k]);
#pragma unroll
    for (int b = 0; b < NK; b++) {
        if (b >= blocks) continue;
        float y[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        mma(y, p, transpose(x[b][0]), transpose(x[b][1]));
        mma(y + 4, p, transpose(x[b][2]), transpose(x[b][3]));
#pragma unroll
        for (int k = 0; k < 4; k++) x[b][k] = epilogue2(y[2 * k], y[2 * k + 1], 1, coef[0], x[b][k]);
    }
}

template <int NK>
__device__ __forceinline__ void store(const uint32_t (*x)[4], const pl_cuda_ns_task &t, const view &v,
                                      int lane)
{
#pragma unroll
    for (int b = 0; b < NK; b++)
#pragma unroll
        for (int k = 0; k < 8; k++) {
            int at = entry_at(v, b, k, lane, t.w_rs);
            if (at < 0) continue;
            if (t.w_bf16) ((pl_bf16 *)v.W)[at] = (pl_bf16)(x[b][k / 2] >> (k % 2 * 16));
            else ((float *)v.W)[at] = k % 2 ? high(x[b][k / 2]) : low(x[b][k / 2]);
        }
}

template <int NK>
__global__ void __launch_bounds__(32 * PL_NS_WARPS) warp_kernel(const __grid_constant__ pl_ns_table table)
{
    const int lane = threadIdx.x % 32, index = blockIdx.x * PL_NS_WARPS + threadIdx.x / 32;
    if (index >= table.matrices) return;
    const pl_cuda_ns_task &t = table.task[task_of(table, index)];
    const view v = view_of(t, index - t.first);
    const int blocks = (v.n + 15) / 16;
    float d[NK][8];
    uint32_t x[NK][4];
    double sum = 0;
    float top = 0, s, n;
    if (t.g_bf16) load<NK>(d, (const pl_bf16 *)v.G, v, lane, t.g_rs);
    else load<NK>(d, (const float *)v.G, v, lane, t.g_rs);
#pragma unroll
    for (int b = 0; b < NK; b++)
#pragma unroll
        for (int k = 0; k < 8 && b < blocks; k++) {
            sum += (double)d[b][k] * (double)d[b][k];
            top = fmaxf(top, fabsf(d[b][k]));
        }
    for (int half = 16; half > 0; half /= 2) {
        sum += __shfl_xor_sync(PL_NS_FULL, sum, half);
        top = fmaxf(top, __shfl_xor_sync(PL_NS_FULL, top, half));
    }
    norm_from(&s, &n, sum, top, v.N, t.eps);
    const divisor by = divisor_of(s, n);
#pragma unroll
    for (int b = 0; b < NK; b++)
        if (t.kind == PL_CUDA_NS_MAP && b < blocks) normalise_8(x[b], d[b], by);
        else {
#pragma unroll
            for (int k = 0; k < 4; k++) x[b][k] = pack2(d[b][2 * k], d[b][2 * k + 1]);
        }
    for (int i = 0; i < table.steps; i++) step<NK>(x, blocks, table.coef + 3 * i);
    store<NK>(x, t, v, lane);
}

const void *pl_ns_warp_kernel(int blocks)
{
    switch (blocks) {
    case 1: return (const void *)warp_kernel<1>;
    case 4: return (const void *)warp_kernel<4>;
    case 10: return (const void *)warp_kernel<10>;
    default: return (const void *)warp_kernel<16>;
    }
}
