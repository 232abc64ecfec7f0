/* cuda_warp_rows.cuh -- a warp for each row of a batch of matrices, its lanes those of the row's sums
 * (lane_sum_elem.h): the bits are those of `cpu`. Lanes read and write their own columns, so results may
 * stand on operands.
 */
#ifndef PL_CUDA_WARP_ROWS_CUH
#define PL_CUDA_WARP_ROWS_CUH

#include "cuda_launch.cuh"
#include "math/lane_sum_elem.h"

#define WARPS 8
#define FULL  0xffffffffu

/* The lanes folded by halves, for every lane to know. */
template <typename REAL> static __device__ __forceinline__ REAL warp_sum(REAL x)
{
    /* lanes from `half` on hold what nobody reads */
    for (int half = PL_LANES / 2; half > 0; half /= 2) x += __shfl_down_sync(FULL, x, half);
    return __shfl_sync(FULL, x, 0);
}

template <typename REAL> static __device__ __forceinline__ REAL warp_max(REAL x)
{
    for (int half = PL_LANES / 2; half > 0; half /= 2) {
        REAL other = __shfl_xor_sync(FULL, x, half);
        x = other > x ? other : x;
    }
    return x;
}

/* The largest of a row; a NaN is passed over. */
template <typename REAL> static __device__ __forceinline__ REAL row_max(const pl_mat &X, int64_t b, int64_t i)
{
    REAL m = -(REAL)INFINITY;
    for (int64_t j = threadIdx.x; j < X.cols; j += PL_LANES) {
        REAL x = pl_cuda_at<REAL>(X, b, i, j);
        m = x > m ? x : m;
    }
    return warp_max(m);
}

#define LAUNCH_WARPS(kernel, mats, n, batch, rows, args)                                     \
    do {                                                                                     \
        dim3 block_(PL_LANES, WARPS),                                                        \
            grid_(1, pl_cuda_grid(rows, WARPS, MAX_GRID), pl_cuda_grid(batch, 1, MAX_GRID)); \
        if (pl_cuda_any_f64(mats, n)) kernel<double><<<grid_, block_, 0, stream>>>(args);    \
        else kernel<float><<<grid_, block_, 0, stream>>>(args);                              \
    } while (0)
#define FOR_LANE(cols, j) for (int64_t j = threadIdx.x; j < (cols); j += PL_LANES)

#endif
