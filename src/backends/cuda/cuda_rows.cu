/* cuda_rows.cu -- groups of rows: summed, spread, scaled. */
#include "cuda_formulas.cuh"
#include "cuda_kernels.h"
#include "cuda_launch.cuh"
#include "math/lane_sum_elem.h"

/* Rows [first, end) of column j, ascending. */
template <typename REAL>
static __device__ __forceinline__ REAL chunk_sum(const pl_mat &X, int64_t b, int64_t first, int64_t end,
                                                 int64_t j)
{
    REAL s = 0;
    for (int64_t r = first; r < end; r++) s += pl_cuda_at<REAL>(X, b, r, j);
    return s;
}

/* Groups of one chunk: a thread each. */
template <typename REAL> __global__ void short_sum_kernel(pl_args_row_sum a)
{
    int64_t n = a.X.rows / a.Y.rows;
    FOR_MATRICES(a.Y, b)
    FOR_ROWS(a.Y.rows, i)
    FOR_COLS(a.Y.cols, j)
    pl_cuda_set<REAL>(a.Y, b, i, j, (REAL)a.alpha * chunk_sum<REAL>(a.X, b, i * n, (i + 1) * n, j));
}

/* Longer ones: a block each, threadIdx.y is the lane; group i is blockIdx.y, columns over x. */
template <typename REAL> __global__ void long_sum_kernel(pl_args_row_sum a)
{
    __shared__ REAL sums[PL_LANES * PL_LANES];
    int64_t n = a.X.rows / a.Y.rows;
    int lane = (int)threadIdx.y, width = (int)blockDim.x;
    REAL *own = sums + lane * width + threadIdx.x;
    FOR_MATRICES(a.Y, b)
    for (int64_t i = blockIdx.y; i < a.Y.rows; i += gridDim.y)
        for (int64_t first_col = (int64_t)blockIdx.x * width; first_col < a.Y.cols;
             first_col += (int64_t)gridDim.x * width) {
            int64_t j = first_col + threadIdx.x;
            REAL s = 0;
            if (j < a.Y.cols)
                for (int64_t first = (int64_t)lane * PL_SUM_CHUNK; first < n;
                     first += PL_LANES * PL_SUM_CHUNK) {
                    int64_t end = first + PL_SUM_CHUNK < n ? first + PL_SUM_CHUNK : n;
                    s += chunk_sum<REAL>(a.X, b, i * n + first, i * n + end, j);
                }
            *own = s;
            __syncthreads();
            for (int half = (int)blockDim.y / 2; half > 0; half /= 2) {
                if (lane < half) *own += own[half * width];
                __syncthreads();
            }
            if (lane == 0 && j < a.Y.cols) pl_cuda_set<REAL>(a.Y, b, i, j, (REAL)a.alpha * *own);
            __syncthreads();
        }
}

void pl_cuda_launch_row_sum(cudaStream_t stream, const pl_args_row_sum *args)
{
    pl_args_row_sum a = *args;
    pl_mat *mats[] = {&a.Y, &a.X};
    int64_t each = a.X.rows / a.Y.rows;
    if (each <= PL_SUM_CHUNK) {
        LAUNCH_ROWS(short_sum_kernel, mats, 2, a.Y.batch, a.Y.rows, a.Y.cols, a);
        return;
    }
    /* lanes that get no chunk hold zero, which changes no sum: they need no threads */
    unsigned lanes = 2;
    while (lanes < PL_LANES && lanes * PL_SUM_CHUNK < each) lanes *= 2;
    dim3 block(pl_cuda_row_block(a.Y.cols, lanes > 8 ? PL_LANES : 128).x, lanes);
    dim3 grid(pl_cuda_grid(a.Y.cols, block.x, 4096), pl_cuda_grid(a.Y.rows, 1, MAX_GRID),
              pl_cuda_grid(a.Y.batch, 1, MAX_GRID));
    if (pl_cuda_any_f64(mats, 2)) long_sum_kernel<double><<<grid, block, 0, stream>>>(a);
    else long_sum_kernel<float><<<grid, block, 0, stream>>>(a);
}

template <typename REAL> __global__ void row_spread_kernel(pl_args_row_spread a)
{
    int64_t n = a.Y.rows / a.X.rows;
    FOR_MATRICES(a.Y, b)
    FOR_ROWS(a.Y.rows, i)
    FOR_COLS(a.Y.cols, j) pl_cuda_set<REAL>(a.Y, b, i, j, (REAL)a.alpha * pl_cuda_at<REAL>(a.X, b, i / n, j));
}

void pl_cuda_launch_row_spread(cudaStream_t stream, const pl_args_row_spread *args)
{
    pl_args_row_spread a = *args;
    pl_mat *mats[] = {&a.Y, &a.X};
    LAUNCH_ROWS(row_spread_kernel, mats, 2, a.Y.batch, a.Y.rows, a.Y.cols, a);
}

template <typename REAL> __global__ void scale_rows_kernel(pl_args_scale_rows a)
{
    const int64_t n = a.Y.rows / a.s.rows;
    FOR_MATRICES(a.Y, b)
    FOR_ROWS(a.Y.rows, i)
    FOR_COLS(a.Y.cols, j)
    {
        const REAL s = pl_cuda_at<REAL>(a.s, b, i / n, 0), x = pl_cuda_at<REAL>(a.X, b, i, j);
        pl_cuda_set<REAL>(a.Y, b, i, j, a.Z.data ? fused(s, x, pl_cuda_at<REAL>(a.Z, b, i, j)) : s * x);
    }
}

/* Rows whose elements can be taken four at a time. */
static __global__ void scale_fours_kernel(pl_args_scale_rows a)
{
    const int n = (int)(a.Y.rows / a.s.rows), rows = (int)a.Y.rows, cols = (int)a.Y.cols;
    FOR_MATRICES(a.Y, b)
    for (int i = (int)(blockIdx.y * blockDim.y + threadIdx.y); i < rows; i += (int)(gridDim.y * blockDim.y)) {
        const float s = pl_cuda_at<float>(a.s, b, i / n, 0);
        for (int j = 4 * (int)(blockIdx.x * blockDim.x + threadIdx.x); j < cols;
             j += 4 * (int)(gridDim.x * blockDim.x)) {
            float x[4], z[4] = {0, 0, 0, 0};
            pl_cuda_get4(x, a.X, pl_cuda_base(a.X, b) + i * a.X.rs + j);
            if (a.Z.data) pl_cuda_get4(z, a.Z, pl_cuda_base(a.Z, b) + i * a.Z.rs + j);
            for (int k = 0; k < 4; k++) x[k] = a.Z.data ? fmaf(s, x[k], z[k]) : s * x[k];
            pl_cuda_put4(a.Y, pl_cuda_base(a.Y, b) + i * a.Y.rs + j, x);
        }
    }
}

void pl_cuda_launch_scale_rows(cudaStream_t stream, const pl_args_scale_rows *args)
{
    pl_args_scale_rows a = *args;
    pl_mat *mats[] = {&a.Y, &a.X, &a.s, &a.Z}, *fours[] = {&a.Y, &a.X, &a.Z};
    if (a.s.dtype != POLAR_DTYPE_F64 && pl_cuda_in_fours(fours, 3) && a.Y.rows < INT32_MAX / 2 &&
        a.Y.cols < INT32_MAX / 8) {
        dim3 block = pl_cuda_row_block(a.Y.cols / 4, THREADS),
             grid = pl_cuda_row_grid(a.Y.batch, a.Y.rows, a.Y.cols / 4, block);
        scale_fours_kernel<<<grid, block, 0, stream>>>(a);
        return;
    }
    LAUNCH_ROWS(scale_rows_kernel, mats, 4, a.Y.batch, a.Y.rows, a.Y.cols, a);
}
