/* cuda_ns_memory.cuh -- the Newton-Schulz kernels' view of memory: the task at hand, entries in and out, bf16
 * pairs. */
#ifndef PL_CUDA_NS_MEMORY_CUH
#define PL_CUDA_NS_MEMORY_CUH

#include "cuda_mma.cuh"
#include "cuda_ns_table.h"
#include "cuda_quotient.cuh"
#include "device/ops.h"
#include "math/formulas_elem.h"
#include "math/norm_elem.h"

#define PL_NS_FULL 0xffffffffu /* all lanes */

__device__ __forceinline__ float low(uint32_t pair)
{
    return __uint_as_float(pair << 16);
}

__device__ __forceinline__ float high(uint32_t pair)
{
    return __uint_as_float(pair & 0xffff0000u);
}

/* alpha acc + beta d, rounded: of two neighbours. */
__device__ __forceinline__ uint32_t epilogue2(float acc0, float acc1, float alpha, float beta, uint32_t d)
{
    return pack2(pl_gemm_epilogue_f32(acc0, alpha, beta, low(d)),
                 pl_gemm_epilogue_f32(acc1, alpha, beta, high(d)));
}

/* A live row (pl_live_col) as floats. */
struct numbers {
    float c1, c2, lr, wd, beta1, one_minus_beta1, beta2, one_minus_beta2, eps, grad;
};

/* What a task has in memory for the matrix at hand: X is m x n, m <= n, and a tall matrix's transpose. */
struct view {
    char *W;
    float *M, *V;
    const char *G;
    const double *N;
    int m, n, tall;
    numbers k;
};

__device__ __forceinline__ numbers numbers_of(const pl_cuda_ns_task &t, int b)
{
    const double *live = t.live + (int64_t)b * t.live_bs;
    numbers k;
    k.c1 = (float)live[PL_LIVE_C1], k.c2 = (float)live[PL_LIVE_C2];
    k.lr = (float)live[PL_LIVE_LR], k.wd = (float)live[PL_LIVE_WD];
    k.beta1 = (float)live[PL_LIVE_BETA1], k.one_minus_beta1 = (float)(1 - live[PL_LIVE_BETA1]);
    k.beta2 = (float)live[PL_LIVE_BETA2], k.one_minus_beta2 = (float)(1 - live[PL_LIVE_BETA2]);
    k.eps = (float)live[PL_LIVE_EPS], k.grad = (float)live[PL_LIVE_GRAD];
    return k;
}

__device__ __forceinline__ view view_of(const pl_cuda_ns_task &t, int b)
{
    view v;
    v.tall = t.rows > t.cols;
    v.m = v.tall ? t.cols : t.rows;
    v.n = v.tall ? t.rows : t.cols;
    v.W = (char *)t.W + (t.w_bf16 ? 2 : 4) * (b * t.w_bs);
    v.M = t.M + b * t.m_bs;
    v.V = t.V ? t.V + b * t.v_bs : NULL;
    v.G = (const char *)t.G + (t.g_bf16 ? 2 : 4) * (b * t.g_bs);
    v.N = t.N ? t.N + (int64_t)b * t.n_bs : NULL;
    v.k = {};
    if (t.kind == PL_CUDA_NS_STEP) v.k = numbers_of(t, b);
    return v;
}

/* The matrix is to be left alone. */
__device__ __forceinline__ bool is_skipped(const pl_cuda_ns_task &t, int b)
{
    return t.kind == PL_CUDA_NS_STEP && t.live[(int64_t)b * t.live_bs + PL_LIVE_SKIP] != 0;
}

/* The task that matrix `index` of the launch belongs to. */
__device__ __forceinline__ int task_of(const pl_ns_table &table, int index)
{
    int lo = 0, hi = table.tasks - 1;
    while (lo < hi) {
        int mid = (lo + hi + 1) / 2;
        if (table.task[mid].first <= index) lo = mid;
        else hi = mid - 1;
    }
    return lo;
}

/* One entry's direction; the moments move on. */
__device__ __forceinline__ float direction_of(float g, float *m, float *v, const pl_cuda_ns_task &t,
                                              const numbers &k)
{
    g *= k.grad;
    float u = pl_momentum_f32(g, m, t.momentum, k.beta1, k.one_minus_beta1, k.c1);
    return t.V ? pl_precondition_f32(u, g, v, k.beta2, k.one_minus_beta2, k.c2, k.eps) : u;
}

__device__ __forceinline__ float stepped(float w, float x, const numbers &k, float scale)
{
    return pl_decay_and_step_f32(w, x, k.lr, k.wd, scale);
}

/* (s, n) as frob leaves them, or as they are given: of a sum of squares, which a double holds unscaled, and
 * the largest magnitude; n at least eps. */
__device__ __forceinline__ void norm_from(float *s, float *n, double sum, float top, const double *given,
                                          float eps)
{
    double scale = pl_norm_scale(top, PL_SCALE_EXP_F32), norm = sqrt(sum) * scale;
    *s = (float)(given ? given[0] : scale);
    *n = pl_norm_or_eps_f32(*s, (float)(given ? given[1] : norm), eps);
}

/* R(pl_normalise_f32) of 8 entries. */
__device__ __forceinline__ void normalise_8(uint32_t x[4], const float (&d)[8], const divisor &by)
{
    float q[8];
    quotients<1>(q, d, by);
#pragma unroll
    for (int k = 0; k < 4; k++) x[k] = pack2(q[2 * k], q[2 * k + 1]);
}

#endif
