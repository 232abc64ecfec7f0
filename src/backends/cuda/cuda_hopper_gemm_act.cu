/* cuda_hopper_gemm_act.cu -- products of many rows with a small matrix (cuda_gemm_act.h): what is served, and
 * by which plan of cuda_rows_walk.cuh. */
#include "cuda_gemm_act.h"
#include "cuda_rows_walk.cuh"

static int rows_aligned(const pl_mat &m)
{
    const int64_t unit = 16 / (int64_t)polar_dtype_size(m.dtype);
    return (uintptr_t)m.data % 16 == 0 && m.rs % unit == 0 && (m.batch <= 1 || m.bs % unit == 0);
}

#define MANY_ROWS 1024
#define MOST_K    1024
#define MOST_N    1024

int pl_hopper_rows_suits(const pl_args_gemm_act *a)
{
    const int64_t m = a->Y.rows, n = a->Y.cols, k = a->A.cols;
    const int f32 = a->Y.dtype == POLAR_DTYPE_F32;
    if (a->A.dtype != POLAR_DTYPE_BF16 || a->B.dtype != POLAR_DTYPE_BF16 ||
        (a->Y.dtype != POLAR_DTYPE_BF16 && !f32))
        return 0;
    if (m < MANY_ROWS || m < 4 * n || n > MOST_N || n < 32 || k > MOST_K || k < 16 || n % 8 || k % 8)
        return 0;
    if (m > INT32_MAX / 2 || over(m, TILE) * a->Y.batch > INT32_MAX) return 0;
    if (a->D.data && (!f32 || a->D.dtype != POLAR_DTYPE_F32 || !rows_aligned(a->D))) return 0;
    return rows_aligned(a->Y) && rows_aligned(a->A) && rows_aligned(a->B);
}

int pl_hopper_rows_whole(const pl_args_gemm_act *a)
{
    const int f32 = a->Y.dtype == POLAR_DTYPE_F32;
    if (a->F.data) return !f32 && !a->D.data && a->F.dtype == POLAR_DTYPE_BF16 && rows_aligned(a->F);
    if (a->b.data && a->b.dtype != POLAR_DTYPE_F32 && a->b.dtype != POLAR_DTYPE_BF16) return 0;
    if (a->s.data && (!f32 || !a->tb || a->s.dtype != POLAR_DTYPE_F32)) return 0;
    if (a->S.data && (a->S.dtype != POLAR_DTYPE_BF16 || !rows_aligned(a->S))) return 0;
    return a->act == PL_ACT_NONE ? !a->S.data : a->act == PL_ACT_GELU && !f32;
}

/* A wide slice where its part of op(B) fits beside pads and the stages of a tile and a half; else a narrow
 * one, with pads where a tile's stages fit beside them. By the shape of one matrix and by what follows:
 * results in f32 have pads for two warpgroups; with a factor more groups of fewer columns were faster. */
template <int TB, int KIND, int F32>
static cudaError_t by_shape(const pl_hopper_device *dev, cudaStream_t stream, const pl_args_gemm_act *a)
{
    constexpr int WIDE = KIND == FACTOR ? 128 : 192, GROUPS = KIND == FACTOR ? 4 : F32 ? 2 : 3;
    const int64_t k = a->A.cols, blocks = over(k, DEPTH);
    if (a->Y.cols > 96 && 2 * stages_of<WIDE, KIND, F32, 1, GROUPS>(k) >= 3 * blocks)
        return launch<WIDE, TB, KIND, F32, 1, GROUPS>(dev, stream, a);
    if (stages_of<96, KIND, F32, 1, 3>(k) >= blocks) return launch<96, TB, KIND, F32, 1, 3>(dev, stream, a);
    return launch<96, TB, KIND, F32, 0, 3>(dev, stream, a);
}

template <int TB>
static cudaError_t by_kind(const pl_hopper_device *dev, cudaStream_t stream, const pl_args_gemm_act *a)
{
    if constexpr (!TB) /* linear layers that end a branch */
        if (a->s.data) return by_shape<TB, SCALED, 1>(dev, stream, a);
    if (a->Y.dtype == POLAR_DTYPE_F32)
        return a->D.data ? by_shape<TB, ADD, 1>(dev, stream, a) : by_shape<TB, PLAIN, 1>(dev, stream, a);
    if (a->F.data) return by_shape<TB, FACTOR, 0>(dev, stream, a);
    return a->act == PL_ACT_GELU ? by_shape<TB, GELU, 0>(dev, stream, a)
                                 : by_shape<TB, PLAIN, 0>(dev, stream, a);
}

cudaError_t pl_hopper_rows(const pl_hopper_device *dev, cudaStream_t stream, const pl_args_gemm_act *a)
{
    return a->tb ? by_kind<0>(dev, stream, a) : by_kind<1>(dev, stream, a);
}
