/* cuda_layernorm.cu -- rows normalised, and the gradients: a warp for each row (cuda_warp_rows.cuh).
 *
 * Common widths in the formats of a network in mixed precision: a row to eight threads, which have it in
 * registers; backward one block has a chunk of row_sum's rows, whose sums it makes in the same pass. The bits
 * are the general kernels'.
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

/* Eight threads to a row, each with four neighbours of every 32 columns: neighbour i of thread q is lane
 * 4 q + i of the row's sums (lane_sum_elem.h). So lanes are folded by 16, 8 and 4 between threads, by 2 and 1
 * within one. */
#define ROW_THREADS  8
#define ROWS_OF_WARP (PL_LANES / ROW_THREADS)

struct row_part {
    float v[4];
};

__device__ __forceinline__ float folded(row_part s)
{
#pragma unroll
    for (int half = ROW_THREADS / 2; half > 0; half /= 2)
#pragma unroll
        for (int i = 0; i < 4; i++) s.v[i] += __shfl_xor_sync(FULL, s.v[i], half);
    return (s.v[0] + s.v[2]) + (s.v[1] + s.v[3]);
}

__device__ __forceinline__ row_part part_at(const float *from)
{
    const float4 v = *(const float4 *)from;
    return {{v.x, v.y, v.z, v.w}};
}

__device__ __forceinline__ row_part part_of(ushort4 v)
{
    return {{pl_bf16_to_f32(v.x), pl_bf16_to_f32(v.y), pl_bf16_to_f32(v.z), pl_bf16_to_f32(v.w)}};
}

__device__ __forceinline__ void put(float *to, row_part x)
{
    *(float4 *)to = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
}

__device__ __forceinline__ void put(pl_bf16 *to, row_part x)
{
    *(ushort4 *)to =
        make_ushort4(pl_cuda_bf16(x.v[0]), pl_cuda_bf16(x.v[1]), pl_cuda_bf16(x.v[2]), pl_cuda_bf16(x.v[3]));
}

/* Times that a warp takes ROWS_OF_WARP rows: all of them are under way at once. */
__host__ __device__ constexpr int times_of(int each)
{
    return each <= 6 ? 2 : 1;
}

template <int EACH, typename Y>
__global__ void __launch_bounds__(PL_LANES *WARPS) rows_kernel(pl_args_layernorm a)
{
    constexpr int TIMES = times_of(EACH);
    const int q = (int)threadIdx.x % ROW_THREADS;
    const int64_t b = blockIdx.z, first = ((int64_t)blockIdx.y * WARPS + threadIdx.y) * ROWS_OF_WARP * TIMES +
                                          threadIdx.x / ROW_THREADS;
    const float n = (float)a.X.cols, eps = (float)a.eps;
    const float *g = (const float *)a.g.data + pl_cuda_base(a.g, b) + 4 * q,
                *beta = (const float *)a.b.data + pl_cuda_base(a.b, b) + 4 * q;
    row_part x[TIMES][EACH];
    float mean[TIMES], s[TIMES];
    begin_early();
#pragma unroll
    for (int u = 0; u < TIMES; u++) { /* the last row again where there is none */
        const int64_t i = first + u * ROWS_OF_WARP < a.X.rows ? first + u * ROWS_OF_WARP : a.X.rows - 1;
#pragma unroll
        for (int k = 0; k < EACH; k++)
            x[u][k] =
                part_at((const float *)a.X.data + pl_cuda_base(a.X, b) + i * a.X.rs + PL_LANES * k + 4 * q);
    }
#pragma unroll
    for (int u = 0; u < TIMES; u++) {
        row_part sum = {}, square = {};
#pragma unroll
        for (int k = 0; k < EACH; k++)
            for (int i = 0; i < 4; i++) sum.v[i] += x[u][k].v[i];
        mean[u] = folded(sum) / n;
#pragma unroll
        for (int k = 0; k < EACH; k++)
            for (int i = 0; i < 4; i++) {
                const float d = x[u][k].v[i] - mean[u];
                square.v[i] += d * d;
            }
        s[u] = 1.0f / sqrtf(folded(square) / n + eps);
    }
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        const row_part scale = part_at(g + PL_LANES * k), shift = part_at(beta + PL_LANES * k);
#pragma unroll
        for (int u = 0; u < TIMES; u++) {
            const int64_t i = first + u * ROWS_OF_WARP;
            row_part y;
            for (int j = 0; j < 4; j++)
                y.v[j] = fmaf((x[u][k].v[j] - mean[u]) * s[u], scale.v[j], shift.v[j]);
            if (i < a.X.rows)
                put((Y *)a.Y.data + pl_cuda_base(a.Y, b) + i * a.Y.rs + PL_LANES * k + 4 * q, y);
        }
    }
#pragma unroll
    for (int u = 0; u < TIMES; u++) {
        const int64_t i = first + u * ROWS_OF_WARP;
        if (q < 2 && i < a.X.rows)
            ((float *)a.S.data)[pl_cuda_base(a.S, b) + i * a.S.rs + q] = q ? s[u] : mean[u];
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
        grid(1, pl_cuda_grid(a.X.rows, WARPS * ROWS_OF_WARP * times_of(EACH), MAX_GRID), (unsigned)a.X.batch);
    if (a.Y.dtype == POLAR_DTYPE_F32) start_early(rows_kernel<EACH, float>, grid, block, 0, stream, a);
    else start_early(rows_kernel<EACH, pl_bf16>, grid, block, 0, stream, a);
}

/* False where it is left to the general kernel. */
static bool in_registers(cudaStream_t stream, const pl_args_layernorm &a)
{
    pl_mat fours[] = {a.X, a.Y, a.g, a.b}, *in_fours[] = {&fours[0], &fours[1], &fours[2], &fours[3]};
    const pl_mat *wide[] = {&a.X, &a.S, &a.g, &a.b};
    if (!all_of(POLAR_DTYPE_F32, wide, 4) || a.Y.dtype == POLAR_DTYPE_F64) return false;
    if (!pl_cuda_in_fours(in_fours, 4)) return false;
    if (a.X.batch > MAX_GRID || a.X.rows > (int64_t)MAX_GRID * WARPS * ROWS_OF_WARP) return false;
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
    begin_early();
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
    const int64_t each = a.s.data ? a.X.rows / a.s.rows : 1;
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
            if (!a.dL.data) continue;
            const REAL dx = pl_cuda_at<REAL>(a.dX, b, i, j); /* rounded from what dX holds */
            pl_cuda_set<REAL>(a.dL, b, i, j, a.s.data ? pl_cuda_at<REAL>(a.s, b, i / each, 0) * dx : dx);
        }
    }
}

/* A chunk of rows to a block: dY in bf16, everything else in f32. dY and x^ stand in shared memory for the
 * sums, which are made when the block is through with its rows, so results may stand on dY. */
template <int EACH>
__global__ void __launch_bounds__(PL_LANES *WARPS, EACH <= 6 ? 3 : 1)
    chunk_kernel(pl_args_layernorm_back a, float *sums)
{
    constexpr int COLS = PL_LANES * EACH;
    extern __shared__ float4 memory[]; /* x^ (64, COLS), then dY */
    float *normed = (float *)memory;
    pl_bf16 *slopes = (pl_bf16 *)(normed + PL_SUM_CHUNK * COLS);
    const int64_t b = blockIdx.z, chunk = blockIdx.y, first = chunk * PL_SUM_CHUNK;
    const int count = (int)(a.X.rows - first < PL_SUM_CHUNK ? a.X.rows - first : PL_SUM_CHUNK),
              at = 4 * ((int)threadIdx.x % ROW_THREADS), each = a.s.data ? (int)(a.X.rows / a.s.rows) : 1;
    const float n = (float)COLS, *S = (const float *)a.S.data + pl_cuda_base(a.S, b),
                *X = (const float *)a.X.data + pl_cuda_base(a.X, b) + at,
                *Z = (const float *)a.Z.data + pl_cuda_base(a.Z, b) + at,
                *g = (const float *)a.g.data + pl_cuda_base(a.g, b) + at,
                *s = (const float *)a.s.data + pl_cuda_base(a.s, b);
    const pl_bf16 *dY = (const pl_bf16 *)a.dY.data + pl_cuda_base(a.dY, b) + at;
    float *dX = (float *)a.dX.data + pl_cuda_base(a.dX, b) + at;
    pl_bf16 *dL = (pl_bf16 *)a.dL.data + pl_cuda_base(a.dL, b) + at;
    begin_early();
    for (int top = 0; top < count; top += ROWS_OF_WARP * WARPS) { /* for all threads: they fold sums */
        const int row = top + ROWS_OF_WARP * (int)threadIdx.y + (int)threadIdx.x / ROW_THREADS;
        const bool there = row < count; /* a missing row does not read what results may stand on */
        const int64_t i = first + (there ? row : count - 1);
        const float mean = S[i * a.S.rs], r = S[i * a.S.rs + 1],
                    factor = a.s.data ? s[(int)i / each * a.s.rs] : 1.0f;
        row_part x[EACH], z[EACH], sum = {}, along = {};
        ushort4 y[EACH];
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            x[k] = part_at(X + i * a.X.rs + PL_LANES * k);
            y[k] = make_ushort4(0, 0, 0, 0);
            if (there) y[k] = *(const ushort4 *)(dY + i * a.dY.rs + PL_LANES * k);
            z[k] = there && a.Z.data ? part_at(Z + i * a.Z.rs + PL_LANES * k) : row_part{};
        }
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            const row_part dy = part_of(y[k]), scale = part_at(g + PL_LANES * k);
            for (int j = 0; j < 4; j++) {
                const float h = dy.v[j] * scale.v[j];
                x[k].v[j] = (x[k].v[j] - mean) * r;
                sum.v[j] += h;
                along.v[j] = fmaf(h, x[k].v[j], along.v[j]);
            }
            if (there) {
                put(normed + row * COLS + PL_LANES * k + at, x[k]);
                *(ushort4 *)(slopes + row * COLS + PL_LANES * k + at) = y[k];
            }
        }
        const float m = folded(sum) / n, c = folded(along) / n;
        if (!there) continue;
#pragma unroll
        for (int k = 0; k < EACH; k++) { /* a thread's own from shared memory: registers are for the loads */
            const int j4 = PL_LANES * k + at;
            const row_part dy = part_of(*(const ushort4 *)(slopes + row * COLS + j4)),
                           xhat = part_at(normed + row * COLS + j4), scale = part_at(g + PL_LANES * k);
            row_part d;
            for (int j = 0; j < 4; j++)
                d.v[j] = fmaf(r, fmaf(-xhat.v[j], c, dy.v[j] * scale.v[j] - m), z[k].v[j]);
            put(dX + i * a.dX.rs + PL_LANES * k, d);
            for (int j = 0; j < 4; j++) d.v[j] *= factor;
            if (a.dL.data) put(dL + i * a.dL.rs + PL_LANES * k, d);
        }
    }
    __syncthreads();
    for (int j = (int)threadIdx.y * PL_LANES + (int)threadIdx.x; j < COLS; j += PL_LANES * WARPS) {
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
    start_early(chunk_kernel<EACH>, dim3(1, chunks, batch), dim3(PL_LANES, WARPS), BYTES, stream, a,
                (float *)scratch);
    start_early(lanes_kernel<float>, dim3(EACH, 1, batch), dim3(PL_LANES, PL_LANES), 0, stream, a,
                (const float *)scratch);
    return true;
}

/* False where it is left to the general kernels. */
static bool in_one_pass(cudaStream_t stream, const pl_args_layernorm_back &a, void *scratch)
{
    const pl_mat *wide[] = {&a.X, &a.S, &a.g, &a.Z, &a.dX, &a.dg, &a.db, &a.s}, *narrow[] = {&a.dY, &a.dL};
    pl_mat fours[] = {a.X, a.g, a.Z, a.dX, a.dY, a.dL}, *in_fours[6];
    if (!all_of(POLAR_DTYPE_F32, wide, 8) || !all_of(POLAR_DTYPE_BF16, narrow, 2)) return false;
    for (int k = 0; k < 6; k++) in_fours[k] = &fours[k];
    if (!pl_cuda_in_fours(in_fours, 6)) return false;
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
    pl_mat *mats[] = {&a.dX, &a.dg, &a.db, &a.dL, &a.X, &a.S, &a.g, &a.dY, &a.Z, &a.s};
    if (in_one_pass(stream, a, scratch)) return;
    /* first: dX may stand where dY stands */
    if (pl_cuda_any_f64(mats, 10)) launch_sums<double>(stream, a, scratch);
    else launch_sums<float>(stream, a, scratch);
    LAUNCH_WARPS(layernorm_back_kernel, mats, 10, a.X.batch, a.X.rows, a);
}
