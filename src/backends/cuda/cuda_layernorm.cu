/* cuda_layernorm.cu -- rows normalised, and the gradients: a warp for each row (cuda_warp_rows.cuh).
 *
 * Rows of 32 COLS / 32 columns in the formats of a network in mixed precision stay in registers; backward one
 * block has a chunk of row_sum's rows, whose sums it makes in the same pass. The bits are the general
 * kernels'.
 */
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
        const REAL r = (REAL)1 / sqrt(warp_sum(square) / n + (REAL)a.eps);
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

/* ---- rows in registers ----------------------------------------------------------------------------- */

#define ROWS_AT_ONCE 4 /* of a warp */

__device__ __forceinline__ void put(float *to, float x)
{
    *to = x;
}

__device__ __forceinline__ void put(pl_bf16 *to, float x)
{
    *to = pl_cuda_bf16(x);
}

template <int EACH, typename Y>
__global__ void __launch_bounds__(PL_LANES *WARPS) rows_kernel(pl_args_layernorm a)
{
    const int64_t b = blockIdx.z, first = ((int64_t)blockIdx.y * WARPS + threadIdx.y) * ROWS_AT_ONCE;
    const float n = (float)a.X.cols, eps = (float)a.eps;
    const float *g = (const float *)a.g.data + pl_cuda_base(a.g, b),
                *beta = (const float *)a.b.data + pl_cuda_base(a.b, b);
    float x[ROWS_AT_ONCE][EACH];
#pragma unroll
    for (int r = 0; r < ROWS_AT_ONCE; r++)
#pragma unroll
        for (int k = 0; k < EACH; k++)
            if (first + r < a.X.rows)
                x[r][k] =
                    ((const float *)
                         a.X.data)[pl_cuda_base(a.X, b) + (first + r) * a.X.rs + PL_LANES * k + threadIdx.x];
#pragma unroll
    for (int r = 0; r < ROWS_AT_ONCE; r++) {
        const int64_t i = first + r;
        float sum = 0, square = 0;
        if (i >= a.X.rows) return;
#pragma unroll
        for (int k = 0; k < EACH; k++) sum += x[r][k];
        const float mean = warp_sum(sum) / n;
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            const float d = x[r][k] - mean;
            square += d * d;
        }
        const float s = 1.0f / sqrtf(warp_sum(square) / n + eps);
        Y *to = (Y *)a.Y.data + pl_cuda_base(a.Y, b) + i * a.Y.rs + threadIdx.x;
#pragma unroll
        for (int k = 0; k < EACH; k++)
            put(to + PL_LANES * k,
                fmaf((x[r][k] - mean) * s, g[PL_LANES * k + threadIdx.x], beta[PL_LANES * k + threadIdx.x]));
        if (threadIdx.x < 2)
            ((float *)a.S.data)[pl_cuda_base(a.S, b) + i * a.S.rs + threadIdx.x] = threadIdx.x ? s : mean;
    }
}

static bool all_of(polar_dtype dtype, const pl_mat *const *mats, int n)
{
    for (int k = 0; k < n; k++)
        if (mats[k]->data && mats[k]->dtype != dtype) return false;
    return true;
}

/* Columns of a lane that a kernel is made for; 0: none. */
static int columns_each(int64_t cols)
{
    return cols == 64 || cols == 128 || cols == 192 || cols == 256 || cols == 384 ? (int)(cols / PL_LANES)
                                                                                  : 0;
}

template <int EACH> static void launch_rows(cudaStream_t stream, const pl_args_layernorm &a)
{
    const dim3 block(PL_LANES, WARPS),
        grid(1, pl_cuda_grid(a.X.rows, WARPS * ROWS_AT_ONCE, MAX_GRID), (unsigned)a.X.batch);
    if (a.Y.dtype == POLAR_DTYPE_F32) rows_kernel<EACH, float><<<grid, block, 0, stream>>>(a);
    else rows_kernel<EACH, pl_bf16><<<grid, block, 0, stream>>>(a);
}

/* False where it is left to the general kernel. */
static bool in_registers(cudaStream_t stream, const pl_args_layernorm &a)
{
    const pl_mat *wide[] = {&a.X, &a.S, &a.g, &a.b};
    if (!all_of(POLAR_DTYPE_F32, wide, 4) || a.Y.dtype == POLAR_DTYPE_F64) return false;
    if (a.X.batch > MAX_GRID || a.X.rows > (int64_t)MAX_GRID * WARPS * ROWS_AT_ONCE) return false;
    switch (columns_each(a.X.cols)) {
    case 2: launch_rows<2>(stream, a); return true;
    case 4: launch_rows<4>(stream, a); return true;
    case 6: launch_rows<6>(stream, a); return true;
    case 8: launch_rows<8>(stream, a); return true;
    case 12: launch_rows<12>(stream, a); return true;
    default: return false;
    }
}

void pl_cuda_launch_layernorm(cudaStream_t stream, const pl_args_layernorm *args)
{
    pl_args_layernorm a = *args;
    pl_mat *mats[] = {&a.Y, &a.S, &a.X, &a.g, &a.b};
    if (in_registers(stream, a)) return;
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

/* A chunk of rows to a block: dY in bf16, everything else in f32. dY and x^ stand in shared memory for the
 * sums, which are made when the block is through with its rows, so results may stand on dY. */
template <int EACH>
__global__ void __launch_bounds__(PL_LANES *WARPS) chunk_kernel(pl_args_layernorm_back a, float *sums)
{
    constexpr int COLS = PL_LANES * EACH, AT_ONCE = 2;
    extern __shared__ float normed[]; /* (64, COLS), then dY */
    pl_bf16 *slopes = (pl_bf16 *)(normed + PL_SUM_CHUNK * COLS);
    const int64_t b = blockIdx.z, chunk = blockIdx.y, first = chunk * PL_SUM_CHUNK;
    const int count = (int)(a.X.rows - first < PL_SUM_CHUNK ? a.X.rows - first : PL_SUM_CHUNK),
              lane = (int)threadIdx.x;
    const float n = (float)COLS, *S = (const float *)a.S.data + pl_cuda_base(a.S, b),
                *X = (const float *)a.X.data + pl_cuda_base(a.X, b) + lane,
                *Z = (const float *)a.Z.data + pl_cuda_base(a.Z, b) + lane;
    const pl_bf16 *dY = (const pl_bf16 *)a.dY.data + pl_cuda_base(a.dY, b) + lane;
    float *dX = (float *)a.dX.data + pl_cuda_base(a.dX, b) + lane, g[EACH];
    pl_bf16 *dL = (pl_bf16 *)a.dL.data + pl_cuda_base(a.dL, b) + lane;
#pragma unroll
    for (int k = 0; k < EACH; k++)
        g[k] = ((const float *)a.g.data)[pl_cuda_base(a.g, b) + PL_LANES * k + lane];
    for (int row = AT_ONCE * (int)threadIdx.y; row < count; row += AT_ONCE * WARPS) {
        float x[AT_ONCE][EACH], z[AT_ONCE][EACH], mean[AT_ONCE], r[AT_ONCE];
        pl_bf16 y[AT_ONCE][EACH];
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) { /* the last row twice where there is none behind it */
            const int64_t i = first + (row + u < count ? row + u : count - 1);
            mean[u] = S[i * a.S.rs], r[u] = S[i * a.S.rs + 1];
#pragma unroll
            for (int k = 0; k < EACH; k++) {
                x[u][k] = X[i * a.X.rs + PL_LANES * k], y[u][k] = dY[i * a.dY.rs + PL_LANES * k];
                z[u][k] = a.Z.data ? Z[i * a.Z.rs + PL_LANES * k] : 0.0f;
            }
        }
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            const int64_t i = first + row + u;
            float sum = 0, along = 0;
            if (row + u >= count) break;
#pragma unroll
            for (int k = 0; k < EACH; k++) {
                const float dy = pl_bf16_to_f32(y[u][k]), h = dy * g[k];
                x[u][k] = (x[u][k] - mean[u]) * r[u];
                sum += h;
                along = fmaf(h, x[u][k], along);
                normed[(row + u) * COLS + PL_LANES * k + lane] = x[u][k];
                slopes[(row + u) * COLS + PL_LANES * k + lane] = y[u][k];
            }
            const float m = warp_sum(sum) / n, c = warp_sum(along) / n;
#pragma unroll
            for (int k = 0; k < EACH; k++) {
                const float d = fmaf(r[u], fmaf(-x[u][k], c, pl_bf16_to_f32(y[u][k]) * g[k] - m), z[u][k]);
                dX[i * a.dX.rs + PL_LANES * k] = d;
                if (a.dL.data) dL[i * a.dL.rs + PL_LANES * k] = pl_cuda_bf16(d);
            }
        }
    }
    __syncthreads();
    for (int j = (int)threadIdx.y * PL_LANES + lane; j < COLS; j += PL_LANES * WARPS) {
        float dg = 0, db = 0;
#pragma unroll 8
        for (int i = 0; i < count; i++) {
            const float dy = pl_bf16_to_f32(slopes[i * COLS + j]);
            dg = fmaf(dy, normed[i * COLS + j], dg);
            db += dy;
        }
        float *to = sums + ((int64_t)b * gridDim.y + chunk) * 2 * COLS + j;
        to[0] = dg, to[COLS] = db;
    }
}

size_t pl_cuda_layernorm_back_scratch(const pl_args_layernorm_back *a)
{
    int64_t chunks = (a->X.rows + PL_SUM_CHUNK - 1) / PL_SUM_CHUNK;
    return (size_t)(a->X.batch * chunks * 2 * a->X.cols) * sizeof(double); /* double serves float too */
}

template <int EACH>
static bool launch_chunks(cudaStream_t stream, const pl_args_layernorm_back &a, void *scratch)
{
    constexpr int BYTES = PL_SUM_CHUNK * PL_LANES * EACH * 6;
    const unsigned chunks = (unsigned)((a.X.rows + PL_SUM_CHUNK - 1) / PL_SUM_CHUNK),
                   batch = (unsigned)a.X.batch;
    if (cudaFuncSetAttribute(chunk_kernel<EACH>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES) !=
        cudaSuccess) {
        cudaGetLastError(); /* a GPU with less of it: the general kernels */
        return false;
    }
    chunk_kernel<EACH><<<dim3(1, chunks, batch), dim3(PL_LANES, WARPS), BYTES, stream>>>(a, (float *)scratch);
    lanes_kernel<float>
        <<<dim3(EACH, 1, batch), dim3(PL_LANES, PL_LANES), 0, stream>>>(a, (const float *)scratch);
    return true;
}

/* False where it is left to the general kernels. */
static bool in_one_pass(cudaStream_t stream, const pl_args_layernorm_back &a, void *scratch)
{
    const pl_mat *wide[] = {&a.X, &a.S, &a.g, &a.Z, &a.dX, &a.dg, &a.db}, *narrow[] = {&a.dY, &a.dL};
    if (!all_of(POLAR_DTYPE_F32, wide, 7) || !all_of(POLAR_DTYPE_BF16, narrow, 2)) return false;
    if (a.X.batch > MAX_GRID || a.X.rows > (int64_t)MAX_GRID * PL_SUM_CHUNK) return false;
    switch (columns_each(a.X.cols)) {
    case 2: return launch_chunks<2>(stream, a, scratch);
    case 4: return launch_chunks<4>(stream, a, scratch);
    case 6: return launch_chunks<6>(stream, a, scratch);
    case 8: return launch_chunks<8>(stream, a, scratch);
    case 12: return launch_chunks<12>(stream, a, scratch);
    default: return false;
    }
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
    if (in_one_pass(stream, a, scratch)) return;
    /* first: dX may stand where dY stands */
    if (pl_cuda_any_f64(mats, 9)) launch_sums<double>(stream, a, scratch);
    else launch_sums<float>(stream, a, scratch);
    LAUNCH_WARPS(layernorm_back_kernel, mats, 9, a.X.batch, a.X.rows, a);
}
