/* cuda_layernorm.cu -- rows normalised, and the gradients: a warp for each row (cuda_warp_rows.cuh). */
#include "cuda_formulas.cuh"
#include "cuda_kernels.h"
#include "cuda_warp_rows.cuh"

template <typename REAL> __global__ void layernorm_kernel(pl_args_layernorm a)
{
    const REAL n = (REAL)a.X.cols;
    FOR_MATRICES(a.X, b)
    FOR_ROWS(a.X.rows, i)
    {
        REAL sum = 0, square = 0;
        FOR_LANE(a.X.cols, j) sum += pl_cuda_at<REAL>(a.X, b, i, j);
        const REAL mean = warp_sum(sum) / n;
        FOR_LANE(a.X.cols, j)
        {
            REAL d = pl_cuda_at<REAL>(a.X, b, i, j) - mean;
            square += d * d;
        }
        const REAL r = (REAL)1 / formula<REAL>::root(warp_sum(square) / n + (REAL)a.eps);
        FOR_LANE(a.X.cols, j)
        pl_cuda_set<REAL>(a.Y, b, i, j,
                          formula<REAL>::fused((pl_cuda_at<REAL>(a.X, b, i, j) - mean) * r,
                                               pl_cuda_at<REAL>(a.g, b, 0, j),
                                               pl_cuda_at<REAL>(a.b, b, 0, j)));
        if (threadIdx.x == 0) {
            pl_cuda_set<REAL>(a.S, b, i, 0, mean);
            pl_cuda_set<REAL>(a.S, b, i, 1, r);
        }
    }
}

void pl_cuda_launch_layernorm(cudaStream_t stream, const pl_args_layernorm *args)
{
    pl_args_layernorm a = *args;
    pl_mat *mats[] = {&a.Y, &a.S, &a.X, &a.g, &a.b};
    LAUNCH_WARPS(layernorm_kernel, mats, 5, a.X.batch, a.X.rows, a);
}

/* Sums of dg and db over a chunk of rows, for chunk blockIdx.y and on: sums[b][chunk][dg, db][cols]. */
template <typename REAL> __global__ void chunks_kernel(pl_args_layernorm_back a, REAL *sums)
{
    const int64_t n = a.X.cols, chunks = (a.X.rows + PL_SUM_CHUNK - 1) / PL_SUM_CHUNK;
    FOR_MATRICES(a.X, b)
    for (int64_t k = blockIdx.y; k < chunks; k += gridDim.y) FOR_COLS(n, j)
        {
            const int64_t first = k * PL_SUM_CHUNK,
                          last = first + PL_SUM_CHUNK < a.X.rows ? first + PL_SUM_CHUNK : a.X.rows;
            REAL dg = 0, db = 0;
            for (int64_t i = first; i < last; i++) {
                REAL dy = pl_cuda_at<REAL>(a.dY, b, i, j),
                     x = (pl_cuda_at<REAL>(a.X, b, i, j) - pl_cuda_at<REAL>(a.S, b, i, 0)) *
                         pl_cuda_at<REAL>(a.S, b, i, 1);
                dg = formula<REAL>::fused(dy, x, dg);
                db += dy;
            }
            REAL *to = sums + (b * chunks + k) * 2 * n + j;
            to[0] = dg, to[n] = db;
        }
}

/* The chunks over 32 lanes, the lanes folded: a column to each threadIdx.x, a lane to each threadIdx.y. */
template <typename REAL> __global__ void lanes_kernel(pl_args_layernorm_back a, const REAL *sums)
{
    __shared__ REAL lanes[2][PL_LANES][PL_LANES];
    const int64_t n = a.X.cols, chunks = (a.X.rows + PL_SUM_CHUNK - 1) / PL_SUM_CHUNK;
    const int lane = (int)threadIdx.y, x = (int)threadIdx.x;
    FOR_MATRICES(a.X, b)
    for (int64_t from = (int64_t)blockIdx.x * PL_LANES; from < n; from += (int64_t)gridDim.x * PL_LANES) {
        const int64_t j = from + x;
        REAL dg = 0, db = 0;
        for (int64_t k = lane; k < chunks && j < n; k += PL_LANES) {
            const REAL *at = sums + (b * chunks + k) * 2 * n + j;
            dg += at[0], db += at[n];
        }
        lanes[0][lane][x] = dg, lanes[1][lane][x] = db;
        __syncthreads();
        for (int half = PL_LANES / 2; half > 0; half /= 2) {
            if (lane < half)
                for (int p = 0; p < 2; p++) lanes[p][lane][x] += lanes[p][lane + half][x];
            __syncthreads();
        }
        if (lane == 0 && j < n) {
            pl_cuda_set<REAL>(a.dg, b, 0, j, lanes[0][0][x]);
            pl_cuda_set<REAL>(a.db, b, 0, j, lanes[1][0][x]);
        }
        __syncthreads();
    }
}

template <typename REAL> __global__ void layernorm_back_kernel(pl_args_layernorm_back a)
{
    const REAL n = (REAL)a.X.cols;
    FOR_MATRICES(a.X, b)
    FOR_ROWS(a.X.rows, i)
    {
        const REAL mean = pl_cuda_at<REAL>(a.S, b, i, 0), r = pl_cuda_at<REAL>(a.S, b, i, 1);
        REAL sum = 0, along = 0;
        FOR_LANE(a.X.cols, j)
        {
            REAL h = pl_cuda_at<REAL>(a.dY, b, i, j) * pl_cuda_at<REAL>(a.g, b, 0, j);
            sum += h;
            along = formula<REAL>::fused(h, (pl_cuda_at<REAL>(a.X, b, i, j) - mean) * r, along);
        }
        const REAL m = warp_sum(sum) / n, c = warp_sum(along) / n;
        FOR_LANE(a.X.cols, j)
        {
            REAL h = pl_cuda_at<REAL>(a.dY, b, i, j) * pl_cuda_at<REAL>(a.g, b, 0, j),
                 x = (pl_cuda_at<REAL>(a.X, b, i, j) - mean) * r;
            pl_cuda_set<REAL>(a.dX, b, i, j,
                              formula<REAL>::fused(r, formula<REAL>::fused(-x, c, h - m),
                                                   a.Z.data ? pl_cuda_at<REAL>(a.Z, b, i, j) : (REAL)0));
            /* rounded from what dX holds */
            if (a.dL.data) pl_cuda_set<REAL>(a.dL, b, i, j, pl_cuda_at<REAL>(a.dX, b, i, j));
        }
    }
}

size_t pl_cuda_layernorm_back_scratch(const pl_args_layernorm_back *a)
{
    int64_t chunks = (a->X.rows + PL_SUM_CHUNK - 1) / PL_SUM_CHUNK;
    return (size_t)(a->X.batch * chunks * 2 * a->X.cols) * sizeof(double); /* double serves float too */
}

template <typename REAL>
static void launch_sums(cudaStream_t stream, const pl_args_layernorm_back &a, void *scratch)
{
    int64_t chunks = (a.X.rows + PL_SUM_CHUNK - 1) / PL_SUM_CHUNK;
    unsigned batch = pl_cuda_grid(a.X.batch, 1, MAX_GRID);
    chunks_kernel<REAL>
        <<<dim3(pl_cuda_grid(a.X.cols, 64, 4096), pl_cuda_grid(chunks, 1, MAX_GRID), batch), 64, 0, stream>>>(
            a, (REAL *)scratch);
    lanes_kernel<REAL>
        <<<dim3(pl_cuda_grid(a.X.cols, PL_LANES, 4096), 1, batch), dim3(PL_LANES, PL_LANES), 0, stream>>>(
            a, (const REAL *)scratch);
}

void pl_cuda_launch_layernorm_back(cudaStream_t stream, const pl_args_layernorm_back *args, void *scratch)
{
    pl_args_layernorm_back a = *args;
    pl_mat *mats[] = {&a.dX, &a.dg, &a.db, &a.dL, &a.X, &a.S, &a.g, &a.dY, &a.Z};
    /* first: dX may stand where dY stands */
    if (pl_cuda_any_f64(mats, 9)) launch_sums<double>(stream, a, scratch);
    else launch_sums<float>(stream, a, scratch);
    LAUNCH_WARPS(layernorm_back_kernel, mats, 9, a.X.batch, a.X.rows, a);
}
