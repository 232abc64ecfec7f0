/* cuda_vectors.cu -- ops on vectors: row r's vector of channel c is V[3r + d, c]. A thread for each row and
 * channel, but for vec_dots and its gradient in f32. */
#include "cuda_kernels.h"
#include "cuda_launch.cuh"
#include "cuda_formulas.cuh"

template <typename REAL>
static __device__ __forceinline__ void get3(REAL v[3], const pl_mat &V, int64_t b, int64_t r, int64_t c)
{
    for (int d = 0; d < 3; d++) v[d] = pl_cuda_at<REAL>(V, b, 3 * r + d, c);
}

/* ---- dot products ------------------------------------------------------------------------------- */

/* Any formats: a block for each row, threads over a and b >= a. */

template <typename REAL> __global__ void vec_dots_kernel(pl_args_vec_dots args)
{
    int64_t h = args.V.cols;
    FOR_MATRICES(args.Q, m)
    for (int64_t r = blockIdx.y; r < args.Q.rows; r += gridDim.y)
        for (int64_t a = threadIdx.y; a < h; a += blockDim.y) {
            REAL v[3], w[3];
            get3(v, args.V, m, r, a);
            for (int64_t b = threadIdx.x; b < h; b += blockDim.x) {
                if (b < a) continue;
                get3(w, args.V, m, r, b);
                pl_cuda_set<REAL>(args.Q, m, r, a * h - a * (a - 1) / 2 + b - a,
                                  FORMULA(pl_dot3)(v[0], v[1], v[2], w[0], w[1], w[2]));
            }
        }
}

/* Some rows of a block lie in shared memory; a thread has a pair (a, b) after the other, each for all of
 * those rows, so that neighbours write neighbours. f32 alone. */

#define DOTS_ROWS  16
#define DOTS_WIDTH 256 /* channels that the f32 kernels take */

/* The a of a pair's number: the largest with a h - a (a - 1) / 2 <= ab. */
static __device__ __forceinline__ int pair_first(int ab, int h)
{
    float n = 2.0f * (float)h + 1;
    int a = (int)((n - sqrtf(n * n - 8.0f * (float)ab)) * 0.5f);
    while (a > 0 && a * h - a * (a - 1) / 2 > ab) a--;
    while ((a + 1) * h - (a + 1) * a / 2 <= ab) a++;
    return a;
}

static __global__ void vec_dots_f32(pl_args_vec_dots args)
{
    extern __shared__ float3 vectors[]; /* (DOTS_ROWS, h) */
    const int h = (int)args.V.cols, pairs = h * (h + 1) / 2;
    const float *V = (const float *)args.V.data;
    float *Q = (float *)args.Q.data;
    FOR_MATRICES(args.Q, m)
    for (int64_t first = (int64_t)blockIdx.y * DOTS_ROWS; first < args.Q.rows;
         first += (int64_t)gridDim.y * DOTS_ROWS) {
        const int rows = (int)min((int64_t)DOTS_ROWS, args.Q.rows - first);
        __syncthreads(); /* the vectors of the last rows have been read */
        for (int x = threadIdx.x; x < 3 * rows * h; x += blockDim.x) {
            int row = x / h, c = x % h;
            ((float *)&vectors[row / 3 * h + c])[row % 3] =
                V[pl_cuda_base(args.V, m) + (3 * first + row) * args.V.rs + c];
        }
        __syncthreads();
        for (int ab = threadIdx.x; ab < pairs; ab += blockDim.x) {
            int a = pair_first(ab, h), b = ab - (a * h - a * (a - 1) / 2) + a;
            float *to = Q + pl_cuda_base(args.Q, m) + first * args.Q.rs + ab;
            for (int r = 0; r < rows; r++) {
                const float3 v = vectors[r * h + a], w = vectors[r * h + b];
                to[r * args.Q.rs] = pl_dot3_f32(v.x, v.y, v.z, w.x, w.y, w.z);
            }
        }
    }
}

static bool all_f32(pl_mat *const *mats, int n, int64_t h)
{
    bool f32 = h <= DOTS_WIDTH;
    for (int k = 0; k < n; k++) f32 = f32 && mats[k]->dtype == POLAR_DTYPE_F32;
    return f32;
}

void pl_cuda_launch_vec_dots(cudaStream_t stream, const pl_args_vec_dots *args)
{
    pl_args_vec_dots a = *args;
    pl_mat *mats[] = {&a.Q, &a.V};
    dim3 block(pl_cuda_row_block(a.V.cols, 32).x);
    block.y = THREADS / block.x < block.x ? THREADS / block.x : block.x;
    dim3 grid(1, pl_cuda_grid(a.Q.rows, 1, MAX_GRID), pl_cuda_grid(a.Q.batch, 1, MAX_GRID));
    if (all_f32(mats, 2, a.V.cols)) {
        size_t bytes = sizeof(float3) * DOTS_ROWS * (size_t)a.V.cols;
        grid.y = pl_cuda_grid(a.Q.rows, DOTS_ROWS, MAX_GRID);
        vec_dots_f32<<<grid, THREADS, bytes, stream>>>(a);
    } else if (pl_cuda_any_f64(mats, 2)) vec_dots_kernel<double><<<grid, block, 0, stream>>>(a);
    else vec_dots_kernel<float><<<grid, block, 0, stream>>>(a);
}

template <typename REAL> __global__ void vec_dots_back_kernel(pl_args_vec_dots_back args)
{
    int64_t h = args.V.cols;
    FOR_MATRICES(args.dV, m)
    FOR_ROWS(args.dQ.rows, r) FOR_COLS(h, a)
    {
        REAL s[3] = {0, 0, 0}, v[3];
        int64_t ab = a; /* the pair (0, a) */
        for (int64_t b = 0; b < h; b++) {
            REAL dq = pl_cuda_at<REAL>(args.dQ, m, r, ab);
            if (a == b) dq *= 2;
            get3(v, args.V, m, r, b);
            for (int d = 0; d < 3; d++) s[d] = fused(dq, v[d], s[d]);
            ab += b < a ? h - 1 - b : 1;
        }
        for (int d = 0; d < 3; d++)
            pl_cuda_set<REAL>(args.dV, m, 3 * r + d, a, pl_cuda_at<REAL>(args.dV, m, 3 * r + d, a) + s[d]);
    }
}

/* s += x w_b for the b of [from, to), each term by fma; where the pair (a, b) stands moves on by `on` a b,
 * and by `less` less each time. */
static __device__ __forceinline__ void dots_add(float s[3], const float *dq, const float4 *w, int &ab,
                                                int from, int to, int on, int less)
{
#pragma unroll 4
    for (int b = from; b < to; b++, ab += on, on -= less) {
        const float x = dq[ab];
        const float4 v = w[b];
        s[0] = fmaf(x, v.x, s[0]);
        s[1] = fmaf(x, v.y, s[1]);
        s[2] = fmaf(x, v.z, s[2]);
    }
}

/* A row's dQ and vectors lie in shared memory, some rows at a time, with a thread for each row and channel a.
 * Threads of one b read neighbours where b < a; where b >= a their distances are those of triangular numbers,
 * which visit every bank once where h is a multiple of 32. Only the b of the warp's own 32 channels are on
 * both sides of some a. */
static __global__ void vec_dots_back_f32(pl_args_vec_dots_back args, int across, int fours)
{
    extern __shared__ float4 shared[];
    const int h = (int)args.V.cols, pairs = h * (h + 1) / 2, many = blockDim.x / across;
    const int mine = threadIdx.x / across, a = threadIdx.x % across, own = min(a & ~31, h);
    const int pitch = (pairs + 3) / 4 * 4;
    float4 *v = shared + mine * h;                                       /* (many, h) */
    const float *dq = (const float *)(shared + many * h) + mine * pitch; /* (many, pitch) */
    const float *V = (const float *)args.V.data, *dQ = (const float *)args.dQ.data;
    float *dV = (float *)args.dV.data;
    FOR_MATRICES(args.dV, m)
    for (int64_t first = (int64_t)blockIdx.y * many; first < args.dQ.rows;
         first += (int64_t)gridDim.y * many) {
        const int rows = (int)min((int64_t)many, args.dQ.rows - first);
        __syncthreads(); /* the last rows have been read */
        for (int x = threadIdx.x; x < 3 * rows * h; x += blockDim.x) {
            int row = x / h, c = x % h;
            ((float *)&shared[row / 3 * h + c])[row % 3] =
                V[pl_cuda_base(args.V, m) + (3 * first + row) * args.V.rs + c];
        }
        for (int r = 0; r < rows; r++) {
            const float *from = dQ + pl_cuda_base(args.dQ, m) + (first + r) * args.dQ.rs;
            float *to = (float *)(shared + many * h) + r * pitch;
            const int whole = fours ? pairs / 4 : 0; /* 16 bytes at a time */
#pragma unroll 8
            for (int x = threadIdx.x; x < whole; x += blockDim.x)
                ((float4 *)to)[x] = __ldcs((const float4 *)from + x);
            for (int x = 4 * whole + threadIdx.x; x < pairs; x += blockDim.x) to[x] = from[x];
        }
        __syncthreads();
        if (mine >= rows || a >= h) continue;
        float s[3] = {0, 0, 0};
        int ab = a; /* the pair (0, a) */
        dots_add(s, dq, v, ab, 0, own, h - 1, 1);
        for (int b = own; b < min(own + 32, h); b++) {
            float x = dq[ab];
            float4 w = v[b];
            if (a == b) x *= 2;
            s[0] = fmaf(x, w.x, s[0]);
            s[1] = fmaf(x, w.y, s[1]);
            s[2] = fmaf(x, w.z, s[2]);
            ab += b < a ? h - 1 - b : 1;
        }
        dots_add(s, dq, v, ab, min(own + 32, h), h, 1, 0);
        for (int d = 0; d < 3; d++) {
            float *to = dV + pl_cuda_base(args.dV, m) + (3 * (first + mine) + d) * args.dV.rs + a;
            *to = *to + s[d];
        }
    }
}

void pl_cuda_launch_vec_dots_back(cudaStream_t stream, const pl_args_vec_dots_back *args)
{
    pl_args_vec_dots_back a = *args;
    pl_mat *mats[] = {&a.dV, &a.V, &a.dQ};
    const int64_t h = a.V.cols;
    if (!all_f32(mats, 3, h)) {
        LAUNCH_ROWS(vec_dots_back_kernel, mats, 3, a.dV.batch, a.dQ.rows, a.V.cols, a);
        return;
    }
    int across = 1;
    while (across < h) across *= 2;
    int many = THREADS / across;
    size_t each = sizeof(float4) * (size_t)(h + (h * (h + 1) / 2 + 3) / 4), bytes = each * many;
    const int fours = (uintptr_t)a.dQ.data % 16 == 0 && a.dQ.rs % 4 == 0 && a.dQ.bs % 4 == 0;
    dim3 grid(1, pl_cuda_grid(a.dQ.rows, many, MAX_GRID), pl_cuda_grid(a.dV.batch, 1, MAX_GRID));
    cudaFuncSetAttribute(vec_dots_back_f32, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    vec_dots_back_f32<<<grid, THREADS, bytes, stream>>>(a, across, fours);
}

/* ---- lengths ------------------------------------------------------------------------------------ */

template <typename REAL> __global__ void vec_norm_kernel(pl_args_vec_norm a)
{
    FOR_MATRICES(a.R, b)
    FOR_ROWS(a.R.rows, r) FOR_COLS(a.R.cols, c)
    {
        REAL v[3];
        get3(v, a.V, b, r, c);
        pl_cuda_set<REAL>(a.R, b, r, c, FORMULA(pl_norm3)(v[0], v[1], v[2], (REAL)a.eps));
    }
}

void pl_cuda_launch_vec_norm(cudaStream_t stream, const pl_args_vec_norm *args)
{
    pl_args_vec_norm a = *args;
    pl_mat *mats[] = {&a.R, &a.V};
    LAUNCH_ROWS(vec_norm_kernel, mats, 2, a.R.batch, a.R.rows, a.R.cols, a);
}

template <typename REAL> __global__ void vec_norm_back_kernel(pl_args_vec_norm_back a)
{
    FOR_MATRICES(a.dR, b)
    FOR_ROWS(a.dR.rows, r) FOR_COLS(a.dR.cols, c)
    {
        REAL v[3];
        get3(v, a.V, b, r, c);
        REAL along = pl_cuda_at<REAL>(a.dR, b, r, c) / FORMULA(pl_norm3)(v[0], v[1], v[2], (REAL)a.eps);
        for (int d = 0; d < 3; d++)
            pl_cuda_set<REAL>(a.dV, b, 3 * r + d, c,
                              fused(along, v[d], pl_cuda_at<REAL>(a.dV, b, 3 * r + d, c)));
    }
}

void pl_cuda_launch_vec_norm_back(cudaStream_t stream, const pl_args_vec_norm_back *args)
{
    pl_args_vec_norm_back a = *args;
    pl_mat *mats[] = {&a.dV, &a.V, &a.dR};
    LAUNCH_ROWS(vec_norm_back_kernel, mats, 3, a.dR.batch, a.dR.rows, a.dR.cols, a);
}

/* ---- gates -------------------------------------------------------------------------------------- */

template <typename REAL> __global__ void vec_gate_kernel(pl_args_vec_gate a)
{
    FOR_MATRICES(a.V, b)
    FOR_ROWS(a.V.rows / 3, r) FOR_COLS(a.V.cols, c)
    {
        REAL v[3], z[3] = {0, 0, 0};
        get3(v, a.V, b, r, c);
        if (a.Z.data) get3(z, a.Z, b, r, c);
        REAL u = fused(pl_cuda_at<REAL>(a.g, b, 0, c), FORMULA(pl_norm3)(v[0], v[1], v[2], (REAL)a.eps),
                       pl_cuda_at<REAL>(a.b, b, 0, c));
        REAL s = FORMULA(pl_sigmoid)(u);
        for (int d = 0; d < 3; d++) pl_cuda_set<REAL>(a.Y, b, 3 * r + d, c, fused(v[d], s, z[d]));
    }
}

void pl_cuda_launch_vec_gate(cudaStream_t stream, const pl_args_vec_gate *args)
{
    pl_args_vec_gate a = *args;
    pl_mat *mats[] = {&a.Y, &a.V, &a.g, &a.b, &a.Z};
    LAUNCH_ROWS(vec_gate_kernel, mats, 5, a.V.batch, a.V.rows / 3, a.V.cols, a);
}

template <typename REAL> __global__ void vec_gate_back_kernel(pl_args_vec_gate_back a)
{
    FOR_MATRICES(a.T, b)
    FOR_ROWS(a.T.rows, r) FOR_COLS(a.T.cols, c)
    {
        REAL v[3], dy[3], s, along, tr;
        get3(v, a.V, b, r, c);
        get3(dy, a.dY, b, r, c);
        REAL t = FORMULA(pl_gate_back)(v, dy, pl_cuda_at<REAL>(a.g, b, 0, c), pl_cuda_at<REAL>(a.b, b, 0, c),
                                       (REAL)a.eps, &s, &along, &tr);
        pl_cuda_set<REAL>(a.T, b, r, c, t);
        pl_cuda_set<REAL>(a.TR, b, r, c, tr);
        for (int d = 0; d < 3; d++) pl_cuda_set<REAL>(a.dV, b, 3 * r + d, c, fused(along, v[d], dy[d] * s));
    }
}

void pl_cuda_launch_vec_gate_back(cudaStream_t stream, const pl_args_vec_gate_back *args)
{
    pl_args_vec_gate_back a = *args;
    pl_mat *mats[] = {&a.dV, &a.T, &a.TR, &a.V, &a.g, &a.b, &a.dY};
    LAUNCH_ROWS(vec_gate_back_kernel, mats, 7, a.T.batch, a.T.rows, a.T.cols, a);
}
