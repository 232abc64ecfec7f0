/* cuda_vit.cu -- the transformer's ops: normalised rows, softmax, cross entropy, rows scaled by group,
 * patches of a picture.
 *
 * A warp for each row, its lanes those of the row's sums (lane_sum_elem.h): the bits are those of `cpu`.
 * Lanes read and write their own columns, so results may stand on operands.
 */
#include "cuda_kernels.h"
#include "cuda_launch.cuh"
#include "math/exp_elem.h"
#include "math/lane_sum_elem.h"
#include "math/log_elem.h"

#define WARPS 8
#define FULL  0xffffffffu

static __device__ __forceinline__ float exp_of(float x)
{
    return pl_exp_f32(x);
}
static __device__ __forceinline__ double exp_of(double x)
{
    return pl_exp_f64(x);
}
static __device__ __forceinline__ float root_of(float x)
{
    return sqrtf(x);
}
static __device__ __forceinline__ double root_of(double x)
{
    return sqrt(x);
}
static __device__ __forceinline__ float fused(float a, float x, float y)
{
    return fmaf(a, x, y);
}
static __device__ __forceinline__ double fused(double a, double x, double y)
{
    return fma(a, x, y);
}

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

/* ---- layernorm ---------------------------------------------------------------------------------- */

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
        const REAL r = (REAL)1 / root_of(warp_sum(square) / n + (REAL)a.eps);
        FOR_LANE(a.X.cols, j)
        pl_cuda_set<REAL>(a.Y, b, i, j,
                          fused((pl_cuda_at<REAL>(a.X, b, i, j) - mean) * r, pl_cuda_at<REAL>(a.g, b, 0, j),
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
                dg = fused(dy, x, dg);
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
            along = fused(h, (pl_cuda_at<REAL>(a.X, b, i, j) - mean) * r, along);
        }
        const REAL m = warp_sum(sum) / n, c = warp_sum(along) / n;
        FOR_LANE(a.X.cols, j)
        {
            REAL h = pl_cuda_at<REAL>(a.dY, b, i, j) * pl_cuda_at<REAL>(a.g, b, 0, j),
                 x = (pl_cuda_at<REAL>(a.X, b, i, j) - mean) * r;
            pl_cuda_set<REAL>(
                a.dX, b, i, j,
                fused(r, fused(-x, c, h - m), a.Z.data ? pl_cuda_at<REAL>(a.Z, b, i, j) : (REAL)0));
            /* rounded from what dX holds */
            if (a.dL.data) pl_cuda_set<REAL>(a.dL, b, i, j, pl_cuda_at<REAL>(a.dX, b, i, j));
        }
    }
}

size_t pl_cuda_layernorm_scratch(const pl_args_layernorm_back *a)
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

/* ---- softmax ------------------------------------------------------------------------------------ */

template <typename REAL> __global__ void softmax_kernel(pl_args_softmax a)
{
    const REAL scale = (REAL)a.scale;
    FOR_MATRICES(a.X, b)
    FOR_ROWS(a.X.rows, i)
    {
        const REAL m = row_max<REAL>(a.X, b, i);
        REAL sum = 0;
        FOR_LANE(a.X.cols, j) sum += exp_of(scale * (pl_cuda_at<REAL>(a.X, b, i, j) - m));
        const REAL part = (REAL)1 / warp_sum(sum);
        FOR_LANE(a.X.cols, j)
        pl_cuda_set<REAL>(a.Y, b, i, j, exp_of(scale * (pl_cuda_at<REAL>(a.X, b, i, j) - m)) * part);
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

/* ---- the loss, in double ------------------------------------------------------------------------ */

/* A block for each matrix: rows i, i + 32, ... to warp i, whose lane of the sum over the rows they are. */
static __global__ void cross_entropy_kernel(pl_args_cross_entropy a)
{
    __shared__ double lanes[PL_LANES];
    const int warp = (int)threadIdx.y;
    const double rows = (double)a.Z.rows;
    FOR_MATRICES(a.Z, b)
    {
        double total = 0;
        for (int64_t i = warp; i < a.Z.rows; i += PL_LANES) {
            const double m = row_max<double>(a.Z, b, i);
            double sum = 0, weight = 0, loss = 0;
            FOR_LANE(a.Z.cols, j)
            {
                sum += pl_exp_f64(pl_cuda_at<double>(a.Z, b, i, j) - m);
                weight += pl_cuda_at<double>(a.T, b, i, j);
            }
            const double s = warp_sum(sum), part = warp_sum(weight) / s, log_s = pl_log_f64(s);
            FOR_LANE(a.Z.cols, j)
            {
                const double d = pl_cuda_at<double>(a.Z, b, i, j) - m,
                             target = pl_cuda_at<double>(a.T, b, i, j);
                loss = fma(target, log_s - d, loss);
                if (a.dZ.data) pl_cuda_set<double>(a.dZ, b, i, j, fma(pl_exp_f64(d), part, -target) / rows);
            }
            total += warp_sum(loss);
        }
        if (threadIdx.x == 0) lanes[warp] = total;
        __syncthreads();
        if (warp == 0) {
            const double all = warp_sum(lanes[threadIdx.x]);
            if (threadIdx.x == 0) pl_cuda_set<double>(a.L, b, 0, 0, all / rows);
        }
        __syncthreads();
    }
}

void pl_cuda_launch_cross_entropy(cudaStream_t stream, const pl_args_cross_entropy *a)
{
    cross_entropy_kernel<<<dim3(1, 1, pl_cuda_grid(a->Z.batch, 1, MAX_GRID)), dim3(PL_LANES, PL_LANES), 0,
                           stream>>>(*a);
}

/* ---- groups of rows, patches -------------------------------------------------------------------- */

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

void pl_cuda_launch_scale_rows(cudaStream_t stream, const pl_args_scale_rows *args)
{
    pl_args_scale_rows a = *args;
    pl_mat *mats[] = {&a.Y, &a.X, &a.s, &a.Z};
    LAUNCH_ROWS(scale_rows_kernel, mats, 4, a.Y.batch, a.Y.rows, a.Y.cols, a);
}

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
