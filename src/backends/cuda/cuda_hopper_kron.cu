/* cuda_hopper_kron.cu -- kron_sweep of sides from 64 to 1024 on Hopper: a cluster of eight blocks a matrix.
 *
 *     X = K Q                 tiles of 64 x 64 by the tensor cores' double-precision products
 *     order                   columns by descending q.x; V's lines change places likewise
 *     Z                       the columns of X in that order as rows, times a power of two
 *     reflections             row k of Z becomes v_k; row j belongs to block j mod 8, warp j / 8 mod 16
 *     Q                       column j of H_0 H_1 .. H_j e_j, a warp a column, which it holds in registers
 *
 * Everything in double, in scratch memory; the reflections are Householder's, so that any K Q, however near
 * to singular, has orthonormal columns to rounding. Sums have an order of the shape alone.
 *
 * Invariants
 *  1. Blocks meet at barriers of the cluster only; a matrix that is not due, or not finite, is left by all of
 *     them alike.
 *  2. What another block wrote is read behind a barrier and past the first cache.
 */
#include "cuda_hopper_kron.h"

#include "cuda_double.cuh"
#include "cuda_launch.cuh"
#include "cuda_ns_shared.cuh"
#include "device/kron_row.h"

#define RANKS   8
#define WARPS   16
#define BLOCK   (32 * WARPS)
#define TILE    64
#define DEPTH   32 /* of a product's step */
#define A_ROW   36 /* doubles from row to row of a tile: no bank conflicts */
#define B_ROW   68
#define AT_ONCE 8 /* reflections in shared memory at a time */

/* A matrix at work. */
struct sweep {
    int64_t b;
    int n, rank, warp, lane;
    double *X, *Z, *V, *beta, *value, *tops; /* scratch, of the matrix */
    double *shared;
};

/* ---- K Q ---------------------------------------------------------------------------------------- */

__device__ __forceinline__ double entry(const pl_mat &m, int64_t b, int i, int j, int n)
{
    return i < n && j < n ? pl_cuda_at<double>(m, b, i, j) : 0;
}

/* The thread's entries of the step from k on: 4 of K's rows, 4 of Q's. */
__device__ __forceinline__ void load_step(double x[8], const pl_args_kron_sweep &a, const sweep &s, int row,
                                          int col, int k)
{
    const int t = threadIdx.x;
#pragma unroll
    for (int r = 0; r < 4; r++) {
        x[r] = entry(a.K, s.b, row + t / DEPTH + 16 * r, k + t % DEPTH, s.n);
        x[4 + r] = entry(a.Q, s.b, k + t / TILE + 8 * r, col + t % TILE, s.n);
    }
}

/* A tile of X; returns what its magnitudes add up to, scaled. */
__device__ double tile_of(const pl_args_kron_sweep &a, const sweep &s, int row, int col)
{
    double *A = s.shared, *B = A + TILE * A_ROW, c[2][2][2] = {}, x[8], top = 0;
    const int t = threadIdx.x, i0 = s.warp / 4 * 16 + s.lane / 4, j0 = s.warp % 4 * 16 + s.lane / 4,
              quarter = s.lane % 4;
    load_step(x, a, s, row, col, 0);
#pragma unroll 1
    for (int k = 0; k < s.n; k += DEPTH) {
        __syncthreads();
#pragma unroll
        for (int r = 0; r < 4; r++) {
            A[(t / DEPTH + 16 * r) * A_ROW + t % DEPTH] = x[r];
            B[(t / TILE + 8 * r) * B_ROW + t % TILE] = x[4 + r];
        }
        __syncthreads();
        if (k + DEPTH < s.n) load_step(x, a, s, row, col, k + DEPTH);
#pragma unroll
        for (int d = 0; d < DEPTH; d += 4) {
            const double a0 = A[i0 * A_ROW + d + quarter], a1 = A[(i0 + 8) * A_ROW + d + quarter],
                         b0 = B[(d + quarter) * B_ROW + j0], b1 = B[(d + quarter) * B_ROW + j0 + 8];
            product_8x8x4(c[0][0], a0, b0);
            product_8x8x4(c[0][1], a0, b1);
            product_8x8x4(c[1][0], a1, b0);
            product_8x8x4(c[1][1], a1, b1);
        }
    }
#pragma unroll
    for (int q = 0; q < 8; q++) {
        const int i = row + i0 + q / 4 * 8, j = col + s.warp % 4 * 16 + q / 2 % 2 * 8 + 2 * quarter + q % 2;
        const double y = c[q / 4][q / 2 % 2][q % 2];
        if (i < s.n && j < s.n) s.X[(int64_t)i * s.n + j] = y, top += fabs(y) * 0x1p-1000; /* no overflow */
    }
    return top;
}

/* X, and the block's part of the sum of its magnitudes. */
__device__ void multiply(const pl_args_kron_sweep &a, const sweep &s)
{
    const int side = (s.n + TILE - 1) / TILE;
    double top = 0;
#pragma unroll 1
    for (int t = s.rank; t < side * side; t += RANKS) top += tile_of(a, s, t / side * TILE, t % side * TILE);
    top = lanes_sum(top);
    __syncthreads();
    if (s.lane == 0) s.shared[s.warp] = top;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < WARPS; w++) top += s.shared[w];
        s.tops[s.rank] = top;
    }
    __syncthreads();
}

/* ---- order -------------------------------------------------------------------------------------- */

/* value[j] = q_j.x_j, 32 columns at a time; behind the barrier X of all blocks is there. */
__device__ void rayleigh(const pl_args_kron_sweep &a, const sweep &s)
{
#pragma unroll 1
    for (int first = 32 * s.rank; first < s.n; first += 32 * RANKS) {
        const int j = first + s.lane;
        double sum = 0;
#pragma unroll 4
        for (int i = s.warp; i < s.n; i += WARPS)
            if (j < s.n)
                sum = fma(pl_cuda_at<double>(a.Q, s.b, i, j), __ldcg(s.X + (int64_t)i * s.n + j), sum);
        s.shared[s.warp * 32 + s.lane] = sum;
        __syncthreads();
        if (s.warp == 0 && j < s.n) {
            for (int w = 1; w < WARPS; w++) sum += s.shared[w * 32 + s.lane];
            s.value[j] = sum;
        }
        __syncthreads();
    }
}

/* place[r]: of which column the r-th largest is, in every block for itself. 0: something is not finite. */
__device__ bool ordered(int *place, const sweep &s)
{
    double *value = s.shared;
    bool wrong = false;
    for (int j = threadIdx.x; j < s.n; j += BLOCK) {
        value[j] = __ldcg(s.value + j);
        wrong |= !(value[j] - value[j] == 0);
    }
    if (__syncthreads_or(wrong)) return false;
    for (int j = threadIdx.x; j < s.n; j += BLOCK) {
        const double mine = value[j];
        int before = 0;
        for (int i = 0; i < s.n; i++) before += value[i] > mine || (value[i] == mine && i < j);
        place[before] = j;
    }
    __syncthreads();
    return true;
}

/* ---- reflections -------------------------------------------------------------------------------- */

/* Row k's entries from k on, a lane's in z, become v with v.v = 2 / beta; row k of Z holds it then. */
template <int E> __device__ __forceinline__ void reflection(double z[E], const sweep &s, int k)
{
    double square = 0, own = 0;
#pragma unroll
    for (int e = 0; e < E; e++) {
        const int i = s.lane + 32 * e;
        if (i >= k) square = fma(z[e], z[e], square);
        if (i == k) own = z[e];
    }
    square = lanes_sum(square);
    const double first = __shfl_sync(PL_LANES, own, k % 32), to = first > 0 ? -sqrt(square) : sqrt(square),
                 rest = square - first * to;
#pragma unroll
    for (int e = 0; e < E; e++)
        if (s.lane + 32 * e == k) z[e] = first - to;
    if (s.lane == 0) s.beta[k] = rest > 0 ? 1 / rest : 0;
}

/* x - beta (v.x) v; v is zero before entry 32 from. */
template <int E>
__device__ __forceinline__ void reflect(double x[E], const double *v, double beta, int from, int lane)
{
    double sum = 0;
#pragma unroll
    for (int e = 0; e < E; e++)
        if (e >= from) sum = fma(v[lane + 32 * e], x[e], sum);
    sum = beta * lanes_sum(sum);
#pragma unroll
    for (int e = 0; e < E; e++)
        if (e >= from) x[e] = fma(-sum, v[lane + 32 * e], x[e]);
}

template <int E> __device__ __forceinline__ void row_load(double z[E], const sweep &s, int j, int from)
{
#pragma unroll
    for (int e = 0; e < E; e++) {
        const int i = s.lane + 32 * e;
        z[e] = e >= from && i < s.n ? s.Z[(int64_t)j * s.n + i] : 0;
    }
}

template <int E> __device__ __forceinline__ void row_store(const double z[E], const sweep &s, int j, int from)
{
#pragma unroll
    for (int e = 0; e < E; e++) {
        const int i = s.lane + 32 * e;
        if (e >= from && i < s.n) s.Z[(int64_t)j * s.n + i] = z[e];
    }
}

/* Entry i of reflection k, as all blocks may read it. */
__device__ __forceinline__ double reflection_entry(const sweep &s, int k, int i)
{
    return i >= k && i < s.n ? __ldcg(s.Z + (int64_t)k * s.n + i) : 0;
}

/* Rows of Z become reflections: the warp of row k + 1 turns that row first, and makes the next reflection of
 * it while others are still at work. */
template <int E> __device__ void factorise(const sweep &s)
{
    double z[E], *v = s.shared;
    if (s.rank == 0 && s.warp == 0) {
        row_load<E>(z, s, 0, 0);
        reflection<E>(z, s, 0);
        row_store<E>(z, s, 0, 0);
    }
#pragma unroll 1
    for (int k = 0; k + 1 < s.n; k++) {
        cluster_sync();
        for (int i = threadIdx.x; i < 32 * E; i += BLOCK) v[i] = reflection_entry(s, k, i);
        const double beta = __ldcg(s.beta + k);
        const int from = k / 32;
        __syncthreads();
        int l = k < s.rank ? 0 : (k - s.rank) / RANKS + 1; /* the block's first row behind k */
        l += (s.warp - l % WARPS + WARPS) % WARPS;
#pragma unroll 1
        for (int j = s.rank + RANKS * l; j < s.n; j += RANKS * WARPS) {
            row_load<E>(z, s, j, from);
            reflect<E>(z, v, beta, from, s.lane);
            if (j == k + 1) reflection<E>(z, s, j);
            row_store<E>(z, s, j, from);
        }
    }
    cluster_sync();
}

/* The columns of Q, sixteen of a block at a time. */
template <int E> __device__ void form(const pl_args_kron_sweep &a, const sweep &s)
{
    double x[E], *v = s.shared;
#pragma unroll 1
    for (int first = s.rank; first < s.n; first += RANKS * WARPS) {
        const int j = first + RANKS * s.warp, last = min(first + RANKS * (WARPS - 1), s.n - 1);
#pragma unroll
        for (int e = 0; e < E; e++) x[e] = s.lane + 32 * e == j;
#pragma unroll 1
        for (int top = last; top >= 0; top -= AT_ONCE) {
            __syncthreads();
            for (int at = threadIdx.x; at < AT_ONCE * 32 * E; at += BLOCK) {
                const int k = top - at / (32 * E);
                v[at] = k >= 0 ? reflection_entry(s, k, at % (32 * E)) : 0;
            }
            __syncthreads();
#pragma unroll 1
            for (int k = top; k > top - AT_ONCE && k >= 0; k--)
                if (k <= j) reflect<E>(x, v + (top - k) * 32 * E, __ldcg(s.beta + k), k / 32, s.lane);
        }
        if (j >= s.n) continue;
#pragma unroll
        for (int e = 0; e < E; e++) {
            const int i = s.lane + 32 * e;
            if (i < s.n) pl_cuda_set<double>(a.Q, s.b, i, j, x[e]);
        }
    }
}

/* ---- the kernel --------------------------------------------------------------------------------- */

/* Every entry of V, or of Q, that is this thread's of the cluster's. */
#define FOR_OURS(at, count) \
    for (int64_t at = (int64_t)s.rank * BLOCK + threadIdx.x; at < (count); at += RANKS * BLOCK)

template <int E>
__global__ void __cluster_dims__(RANKS, 1, 1) __launch_bounds__(BLOCK, 1)
    sweep_kernel(const __grid_constant__ pl_args_kron_sweep a, double *scratch, int64_t room)
{
    extern __shared__ double memory[];
    __shared__ int place[32 * E];
    uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    sweep s = {};
    s.b = blockIdx.x / RANKS, s.n = (int)a.Q.rows, s.rank = (int)rank;
    s.warp = threadIdx.x / 32, s.lane = threadIdx.x % 32, s.shared = memory;
    const double *live = (const double *)a.live.data + pl_cuda_base(a.live, s.b);
    if (!pl_kron_sweep_due(live, a.every, a.after)) return;
    const int64_t square = (int64_t)s.n * s.n, entries = a.V.rows * a.V.cols;
    s.Z = scratch + s.b * room, s.X = s.Z + square, s.V = s.X + square;
    s.beta = s.V + entries, s.value = s.beta + s.n, s.tops = s.value + s.n;
    multiply(a, s);
    cluster_sync();
    rayleigh(a, s);
    FOR_OURS(at, entries) s.V[at] = pl_cuda_at<double>(a.V, s.b, at / a.V.cols, at % a.V.cols);
    cluster_sync();
    if (!ordered(place, s)) {
        FOR_OURS(at, square) pl_cuda_set<double>(a.Q, s.b, at / s.n, at % s.n, NAN);
        return;
    }
    FOR_OURS(at, entries)
    {
        const int64_t i = at / a.V.cols, j = at % a.V.cols;
        pl_cuda_set<double>(
            a.V, s.b, i, j,
            __ldcg(s.V + (a.trans ? i * a.V.cols + place[j] : (int64_t)place[i] * a.V.cols + j)));
    }
    double top = 0;
    for (int q = 0; q < RANKS; q++) top += __ldcg(s.tops + q);
    /* a power of two that brings the entries near 1, so that squares neither over- nor underflow */
    const int unit = top > 0 ? -ilogb(top) - 1000 : 0;
    for (int r = s.rank + RANKS * s.warp; r < s.n; r += RANKS * WARPS)
        for (int i = s.lane; i < s.n; i += 32)
            s.Z[(int64_t)r * s.n + i] = ldexp(__ldcg(s.X + (int64_t)i * s.n + place[r]), unit);
    __syncthreads();
    factorise<E>(s);
    form<E>(a, s);
}

int pl_hopper_sweeps(int64_t n)
{
    return n >= 64 && n <= 1024;
}

template <int E>
static cudaError_t launch(cudaStream_t stream, const pl_args_kron_sweep *a, double *scratch, int64_t room)
{
    const size_t tiles = (TILE * A_ROW + DEPTH * B_ROW) * sizeof(double),
                 vectors = AT_ONCE * 32 * E * sizeof(double), bytes = tiles > vectors ? tiles : vectors;
    cudaError_t e =
        cudaFuncSetAttribute(sweep_kernel<E>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    if (e != cudaSuccess) return e;
    sweep_kernel<E><<<(unsigned)(RANKS * a->Q.batch), BLOCK, bytes, stream>>>(*a, scratch, room);
    return cudaSuccess; /* the caller asks for the launch's */
}

void pl_hopper_sweep(cudaStream_t stream, const pl_args_kron_sweep *a, double *scratch, int64_t room)
{
    const int64_t lines = (a->Q.rows + 31) / 32;
    if (lines <= 8) launch<8>(stream, a, scratch, room);
    else if (lines <= 16) launch<16>(stream, a, scratch, room);
    else if (lines <= 24) launch<24>(stream, a, scratch, room);
    else launch<32>(stream, a, scratch, room);
}
