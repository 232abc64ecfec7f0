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

/* Packed pictures in f32, four pixels of a row at a time: threadIdx.x runs along a row of pixels, blockIdx.y
 * and threadIdx.y over the rows of all channels, blockIdx.z over the pictures. */
static __global__ void fours_kernel(pl_args_patches a)
{
    const int p = (int)a.patch, height = (int)a.height, across = (int)a.width / p, rows = (int)a.X.rows;
    const int row = (int)(blockIdx.y * blockDim.y + threadIdx.y), channel = row / height, y = row % height;
    if (row >= rows) return;
    FOR_MATRICES(a.Y, b)
    for (int x = 4 * (int)threadIdx.x; x < (int)a.width; x += 4 * (int)blockDim.x) {
        float v[4];
        pl_cuda_get4(v, a.X, pl_cuda_base(a.X, b) + (int64_t)row * a.X.rs + x);
        const int64_t token = y / p * across + x / p, column = (channel * p + y % p) * p + x % p;
        pl_cuda_put4(a.Y, pl_cuda_base(a.Y, b) + token * a.Y.rs + column, v);
    }
}

void pl_cuda_launch_patches(cudaStream_t stream, const pl_args_patches *args)
{
    pl_args_patches a = *args;
    pl_mat *mats[] = {&a.Y, &a.X};
    if (a.patch % 4 == 0 && pl_cuda_in_fours(mats, 2) && a.X.rows <= INT32_MAX / 2 &&
        a.width <= INT32_MAX / 8) {
        const dim3 block(64, 4);
        const dim3 grid(1, pl_cuda_grid(a.X.rows, block.y, INT32_MAX), pl_cuda_grid(a.Y.batch, 1, MAX_GRID));
        if (grid.y <= MAX_GRID) {
            fours_kernel<<<grid, block, 0, stream>>>(a);
            return;
        }
    }
    LAUNCH_ROWS(patches_kernel, mats, 2, a.Y.batch, a.Y.rows, a.Y.cols, a);
}
