/* cuda_pairs.cu -- ops on pairs i <= j of a cloud's points; the batch is the clouds. */
#include "cuda_kernels.h"
#include "cuda_launch.cuh"
#include "cuda_formulas.cuh"

static __device__ __forceinline__ int64_t first_pair(int64_t points, int64_t i)
{
    return i * points - i * (i - 1) / 2; /* the pair (i, i) */
}

/* ---- distances: block row i, its threads over j >= i -------------------------------------------- */

template <typename REAL> __global__ void pair_dist_kernel(pl_args_pair_dist a)
{
    int64_t n = a.X.rows;
    FOR_MATRICES(a.X, b)
    for (int64_t i = blockIdx.y; i < n; i += gridDim.y)
        for (int64_t j = i + threadIdx.x; j < n; j += blockDim.x) {
            REAL d[3];
            for (int k = 0; k < 3; k++)
                d[k] = pl_cuda_at<REAL>(a.X, b, i, k) - pl_cuda_at<REAL>(a.X, b, j, k);
            pl_cuda_set<REAL>(a.D, b, first_pair(n, i) + j - i, 0,
                              FORMULA(pl_norm3)(d[0], d[1], d[2], (REAL)a.eps));
        }
}

void pl_cuda_launch_pair_dist(cudaStream_t stream, const pl_args_pair_dist *args)
{
    pl_args_pair_dist a = *args;
    pl_mat *mats[] = {&a.D, &a.X};
    dim3 grid(1, pl_cuda_grid(a.X.rows, 1, MAX_GRID), pl_cuda_grid(a.X.batch, 1, MAX_GRID));
    if (pl_cuda_any_f64(mats, 2)) pair_dist_kernel<double><<<grid, 64, 0, stream>>>(a);
    else pair_dist_kernel<float><<<grid, 64, 0, stream>>>(a);
}

/* ---- messages: a thread for each point and channel, its components in registers ----------------- */

#define MAX_COMPONENTS 3

/* Components [k, k + COUNT) of point i, channel c; j ascending. */
template <typename REAL, int COUNT>
static __device__ __forceinline__ void message(const pl_args_pair_sum &a, int64_t b, int64_t i,
                                               int64_t components, int64_t k, int64_t c)
{
    int64_t n = a.points, w = pl_cuda_base(a.W, b) + i * a.W.rs + c; /* of pair (0, i) */
    REAL s[COUNT];
    for (int d = 0; d < COUNT; d++) s[d] = 0;
    for (int64_t j = 0; j < n; j++) {
        REAL weight = pl_cuda_get<REAL>(a.W, w);
        for (int d = 0; d < COUNT; d++)
            s[d] = fused(weight, pl_cuda_at<REAL>(a.X, b, j * components + k + d, c), s[d]);
        w += (j < i ? n - 1 - j : 1) * a.W.rs; /* (j, i) to (j + 1, i); from (i, i) on along the row */
    }
    for (int d = 0; d < COUNT; d++) {
        int64_t row = i * components + k + d;
        pl_cuda_set<REAL>(
            a.Y, b, row, c,
            FORMULA(pl_sum_end)(s[d], (REAL)a.alpha, a.Z.data ? pl_cuda_at<REAL>(a.Z, b, row, c) : (REAL)0));
    }
}

template <typename REAL> __global__ void pair_sum_kernel(pl_args_pair_sum a)
{
    int64_t components = a.X.rows / a.points;
    FOR_MATRICES(a.Y, b)
    FOR_ROWS(a.points, i) FOR_COLS(a.Y.cols, c)
    {
        int64_t k = 0;
        for (; k + MAX_COMPONENTS <= components; k += MAX_COMPONENTS)
            message<REAL, MAX_COMPONENTS>(a, b, i, components, k, c);
        for (; k < components; k++) message<REAL, 1>(a, b, i, components, k, c);
    }
}

void pl_cuda_launch_pair_sum(cudaStream_t stream, const pl_args_pair_sum *args)
{
    pl_args_pair_sum a = *args;
    pl_mat *mats[] = {&a.Y, &a.X, &a.W, &a.Z};
    LAUNCH_ROWS(pair_sum_kernel, mats, 4, a.Y.batch, a.points, a.Y.cols, a);
}

/* ---- their gradient: block row i, threads over channels and j >= i ------------------------------ */

template <typename REAL> __global__ void pair_grad_kernel(pl_args_pair_grad a)
{
    int64_t n = a.points, components = a.X.rows / n;
    FOR_MATRICES(a.dW, b)
    for (int64_t i = blockIdx.y; i < n; i += gridDim.y)
        for (int64_t j = i + threadIdx.y; j < n; j += blockDim.y) FOR_COLS(a.dW.cols, c)
            {
                REAL s = 0;
                for (int64_t k = 0; k < components; k++) {
                    int64_t ik = i * components + k, jk = j * components + k;
                    s = fused(pl_cuda_at<REAL>(a.dY, b, ik, c), pl_cuda_at<REAL>(a.X, b, jk, c), s);
                    if (i != j)
                        s = fused(pl_cuda_at<REAL>(a.dY, b, jk, c), pl_cuda_at<REAL>(a.X, b, ik, c), s);
                }
                pl_cuda_set<REAL>(a.dW, b, first_pair(n, i) + j - i, c, (REAL)a.alpha * s);
            }
}

void pl_cuda_launch_pair_grad(cudaStream_t stream, const pl_args_pair_grad *args)
{
    pl_args_pair_grad a = *args;
    pl_mat *mats[] = {&a.dW, &a.dY, &a.X};
    dim3 block = pl_cuda_row_block(a.dW.cols, THREADS);
    dim3 grid(pl_cuda_grid(a.dW.cols, block.x, 4096), pl_cuda_grid(a.points, 1, MAX_GRID),
              pl_cuda_grid(a.dW.batch, 1, MAX_GRID));
    if (pl_cuda_any_f64(mats, 3)) pair_grad_kernel<double><<<grid, block, 0, stream>>>(a);
    else pair_grad_kernel<float><<<grid, block, 0, stream>>>(a);
}

/* ---- one number a pair as a square, and back: a thread for each entry of the square ------------- */

template <typename REAL> __global__ void pair_square_kernel(pl_args_pair_square a)
{
    int64_t n = a.Y.rows;
    FOR_MATRICES(a.Y, b)
    FOR_ROWS(n, i) FOR_COLS(n, j)
    {
        int64_t row = i < j ? first_pair(n, i) + j - i : first_pair(n, j) + i - j;
        pl_cuda_set<REAL>(a.Y, b, i, j, pl_cuda_at<REAL>(a.W, b, row, 0));
    }
}

void pl_cuda_launch_pair_square(cudaStream_t stream, const pl_args_pair_square *args)
{
    pl_args_pair_square a = *args;
    pl_mat *mats[] = {&a.Y, &a.W};
    LAUNCH_ROWS(pair_square_kernel, mats, 2, a.Y.batch, a.Y.rows, a.Y.cols, a);
}

template <typename REAL> __global__ void pair_fold_kernel(pl_args_pair_fold a)
{
    int64_t n = a.Y.rows;
    FOR_MATRICES(a.Y, b)
    FOR_ROWS(n, i) FOR_COLS(n, j)
    {
        if (j < i) continue;
        REAL y = pl_cuda_at<REAL>(a.Y, b, i, j);
        if (j > i) y += pl_cuda_at<REAL>(a.Y, b, j, i);
        pl_cuda_set<REAL>(a.W, b, first_pair(n, i) + j - i, 0, y);
    }
}

void pl_cuda_launch_pair_fold(cudaStream_t stream, const pl_args_pair_fold *args)
{
    pl_args_pair_fold a = *args;
    pl_mat *mats[] = {&a.W, &a.Y};
    LAUNCH_ROWS(pair_fold_kernel, mats, 2, a.Y.batch, a.Y.rows, a.Y.cols, a);
}
