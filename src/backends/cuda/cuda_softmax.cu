/* cuda_softmax.cu -- softmax of rows, and its gradient: a warp for each row (cuda_warp_rows.cuh). */
#include "cuda_formulas.cuh"
#include "cuda_kernels.h"
#include "cuda_warp_rows.cuh"

template <typename REAL> __global__ void softmax_kernel(pl_args_softmax a)
{
    const REAL scale = (REAL)a.scale;
    FOR_MATRICES(a.X, b)
    FOR_ROWS(a.X.rows, i)
    {
        const REAL m = row_max<REAL>(a.X, b, i);
        REAL sum = 0;
        FOR_LANE(a.X.cols, j) sum += FORMULA(pl_exp)(scale * (pl_cuda_at<REAL>(a.X, b, i, j) - m));
        const REAL part = (REAL)1 / warp_sum(sum);
        FOR_LANE(a.X.cols, j)
        pl_cuda_set<REAL>(a.Y, b, i, j, FORMULA(pl_exp)(scale * (pl_cuda_at<REAL>(a.X, b, i, j) - m)) * part);
    }
}

void pl_cuda_launch_softmax(cudaStream_t stream, const pl_args_softmax *args)
{
    pl_args_softmax a = *args;
    pl_mat *mats[] = {&a.Y, &a.X};
    LAUNCH_WARPS(softmax_kernel, mats, 2, a.X.batch, a.X.rows, a);
}

template <typename REAL> __global__ void softmax_back_kernel(pl_args_softmax_back a)
{
    FOR_MATRICES(a.Y, b)
    FOR_ROWS(a.Y.rows, i)
    {
        REAL sum = 0;
        FOR_LANE(a.Y.cols, j)
        sum = fused(pl_cuda_at<REAL>(a.dY, b, i, j), pl_cuda_at<REAL>(a.Y, b, i, j), sum);
        const REAL s = warp_sum(sum);
        FOR_LANE(a.Y.cols, j)
        pl_cuda_set<REAL>(a.dX, b, i, j,
                          (REAL)a.scale * pl_cuda_at<REAL>(a.Y, b, i, j) *
                              (pl_cuda_at<REAL>(a.dY, b, i, j) - s));
    }
}

void pl_cuda_launch_softmax_back(cudaStream_t stream, const pl_args_softmax_back *args)
{
    pl_args_softmax_back a = *args;
    pl_mat *mats[] = {&a.dX, &a.Y, &a.dY};
    LAUNCH_WARPS(softmax_back_kernel, mats, 3, a.Y.batch, a.Y.rows, a);
}
