/* cuda_patches.cu -- pictures cut into squares. */
#include "cuda_kernels.h"
#include "cuda_launch.cuh"

template <typename REAL> __global__ void patches_kernel(pl_args_patches a)
{
    const int64_t p = a.patch, across = a.width / p;
    FOR_MATRICES(a.Y, b)
    FOR_ROWS(a.Y.rows, i)
    FOR_COLS(a.Y.cols, j)
    {
        const int64_t y = i / across * p + j / p % p, x = i % across * p + j % p;
        pl_cuda_set<REAL>(a.Y, b, i, j, pl_cuda_at<REAL>(a.X, b, j / (p * p) * a.height + y, x));
    }
}

void pl_cuda_launch_patches(cudaStream_t stream, const pl_args_patches *args)
{
    pl_args_patches a = *args;
    pl_mat *mats[] = {&a.Y, &a.X};
    LAUNCH_ROWS(patches_kernel, mats, 2, a.Y.batch, a.Y.rows, a.Y.cols, a);
}
