/* cuda_kron_tridiagonal.cuh -- a symmetric matrix to tridiagonal form by Householder reflections, and vectors
 * back from there; a block of W warps a matrix, everything in double.
 *
 *     A = H_0 H_1 .. T .. H_1 H_0,   H_k = I - beta_k v_k v_k^T,   v_k zero up to entry k
 *
 * A is its upper triangle, row after row. One pass over it a reflection: the update by the one before, a -=
 * v_i u_j + u_i v_j, and the product with the next, whose row is made first. A warp has rows i, i + W, ..;
 * lanes are columns, PANEL of them at a time.
 *
 * Invariants
 *  1. Sums have an order of n and W alone.
 *  2. An entry of a vector j belongs to thread j mod 32 W; what another wrote is read behind a barrier.
 *  3. A reflection of a row below 2^-450 of the matrix's largest entry is none: squares would be denormal.
 */
#ifndef PL_CUDA_KRON_TRIDIAGONAL_CUH
#define PL_CUDA_KRON_TRIDIAGONAL_CUH

#include "cuda_double.cuh"

#define PANEL_CHUNKS 8  /* of 32 columns, at most */
#define SWEPT_ROWS   4  /* of a warp, whose sums go over the lanes together */
#define AT_ONCE      8  /* reflections in shared memory at a time */
#define MOST_HELD    32 /* entries of a vector that a lane holds in registers on the way back, at most */

/* A matrix at work; all arrays doubles. */
struct eigen_work {
    int n;
    double *A;            /* n (n + 1) / 2; gone with the tridiagonal form */
    double *V, *Z;        /* (n, n): reflections in rows; vectors in rows */
    double *U, *Y;        /* (n, n): of a merge */
    double *d, *e, *beta; /* n each: diagonal, beside it, reflections' factors; then d: eigenvalues */
    double *vectors;      /* of the phases (eigen_vectors) */
    double *shared;       /* of the phases (eigen_shared) */
    double *sums;         /* 2 W */
};

/* Entry (i, 0) of an upper triangle of n rows; those of it are from (i, i) on. */
static __host__ __device__ inline int64_t upper_row(int64_t n, int64_t i)
{
    return i * n - i * (i + 1) / 2;
}

/* Four sums over the warp at once: lane 0 has the first, 16 the second, 8 the third, 24 the fourth. */
__device__ __forceinline__ double four_sums(const double s[4], int lane)
{
    const bool far = lane & 16, odd = lane & 8;
    const double a = (far ? s[1] : s[0]) + __shfl_xor_sync(PL_WARP_LANES, far ? s[0] : s[1], 16),
                 b = (far ? s[3] : s[2]) + __shfl_xor_sync(PL_WARP_LANES, far ? s[2] : s[3], 16);
    double c = (odd ? b : a) + __shfl_xor_sync(PL_WARP_LANES, odd ? a : b, 8);
    for (int half = 4; half > 0; half /= 2) c += __shfl_xor_sync(PL_WARP_LANES, c, half);
    return c;
}

/* Where four_sums has the q-th. */
__device__ __forceinline__ int lane_of_sum(int q)
{
    return 16 * (q % 2) + 8 * (q / 2);
}

/* Of a warp's sum the block's, for every thread: behind the barrier `sums` is the caller's. */
template <int W> __device__ __forceinline__ double warps_sum(double x, double *sums)
{
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = x;
    __syncthreads();
    double sum = 0;
#pragma unroll
    for (int w = 0; w < W; w++) sum += sums[w];
    return sum;
}

/* Rows from k + 1 on of the columns [first, first + 32 CH): the update, and the sums of the product with
 * `next`: by columns into part, by rows (without the diagonal) into rows. */
template <int W, int CH>
__device__ __forceinline__ void sweep_panel(const eigen_work &m, int k, int first, const double *v,
                                            const double *u, const double *next, double *rows, double *part)
{
    const int n = m.n, lane = threadIdx.x % 32, warp = threadIdx.x / 32, end = min(n, first + 32 * CH);
    double by_column[CH], vj[CH], uj[CH], nj[CH];
#pragma unroll
    for (int c = 0; c < CH; c++) {
        const int j = first + 32 * c + lane;
        const bool there = j < n && j > k;
        by_column[c] = 0;
        vj[c] = there ? v[j] : 0, uj[c] = there ? u[j] : 0, nj[c] = there ? next[j] : 0;
    }
#pragma unroll 1
    for (int group = k + 1 + warp; group < end; group += SWEPT_ROWS * W) {
        double by_row[SWEPT_ROWS];
#pragma unroll
        for (int q = 0; q < SWEPT_ROWS; q++) {
            const int i = group + q * W;
            by_row[q] = 0;
            if (i >= end) continue;
            const double vi = v[i], ui = u[i], ni = next[i];
            double *row = m.A + upper_row(n, i), a[CH];
#pragma unroll
            for (int c = 0; c < CH; c++) {
                const int j = first + 32 * c + lane;
                a[c] = j >= i && j < n ? row[j] : 0;
            }
#pragma unroll
            for (int c = 0; c < CH; c++) {
                const int j = first + 32 * c + lane;
                if (j < i || j >= n) continue;
                a[c] = fma(-vi, uj[c], fma(-ui, vj[c], a[c]));
                row[j] = a[c];
                by_column[c] = fma(a[c], ni, by_column[c]);
                if (j > i) by_row[q] = fma(a[c], nj[c], by_row[q]);
            }
        }
        const double sum = four_sums(by_row, lane);
#pragma unroll
        for (int q = 0; q < SWEPT_ROWS; q++)
            if (lane == lane_of_sum(q) && group + q * W < end) rows[group + q * W] += sum;
    }
#pragma unroll
    for (int c = 0; c < CH; c++) part[(warp * CH + c) * 32 + lane] = by_column[c];
}

/* d, e, beta and V from A. The phase's vectors: 5 n; shared: W x 32 CH. */
template <int W, int CH> __device__ void tridiagonalise(const eigen_work &m)
{
    const int n = m.n, T = 32 * W, t = threadIdx.x;
    double *v = m.vectors, *u = v + n, *next = u + n, *x = next + n, *rows = x + n, *part = m.shared;
    for (int j = t; j < n; j += T) v[j] = u[j] = 0;
    __syncthreads();
#pragma unroll 1
    for (int k = 0; k < n; k++) {
        const double *row = m.A + upper_row(n, k), vk = v[k], uk = u[k];
        double square = 0, dot = 0;
        for (int j = t; j < n; j += T) {
            if (j < k) continue;
            const double y = fma(-vk, u[j], fma(-uk, v[j], row[j]));
            if (j == k) m.d[k] = y;
            else x[j] = y, square = fma(y, y, square);
            if (k == n - 2 && j == n - 1) m.e[k] = y;
        }
        if (k + 2 >= n) continue; /* of the last two rows nothing is left to reflect */
        square = warps_sum<W>(lanes_sum(square), m.sums);
        const double first = x[k + 1];
        double to = 0, beta = 0;
        if (square > 0x1p-900) {
            to = first > 0 ? -sqrt(square) : sqrt(square);
            beta = 1 / (square - first * to);
        }
        for (int j = t; j < n; j += T) {
            if (j <= k) continue;
            const double y = j == k + 1 ? first - to : x[j];
            next[j] = y, rows[j] = 0;
            m.V[(int64_t)k * n + j] = y;
        }
        if (t == 0) m.e[k] = to, m.beta[k] = beta;
        __syncthreads();
#pragma unroll 1
        for (int from = (k + 1) / (32 * CH) * 32 * CH; from < n; from += 32 * CH) {
            sweep_panel<W, CH>(m, k, from, v, u, next, rows, part);
            __syncthreads();
            for (int c = t; c < 32 * CH; c += T) {
                double sum = 0;
                for (int w = 0; w < W; w++) sum += part[w * 32 * CH + c];
                if (from + c < n && from + c > k) x[from + c] = sum;
            }
            if (n > T || n > 32 * CH) __syncthreads(); /* else a thread has its own columns, once */
        }
        for (int j = t; j < n; j += T) {
            if (j <= k) continue;
            x[j] = beta * (x[j] + rows[j]);
            dot = fma(x[j], next[j], dot);
        }
        const double along = 0.5 * beta * warps_sum<W>(lanes_sum(dot), m.sums + W);
        for (int j = t; j < n; j += T) {
            if (j <= k) continue;
            u[j] = fma(-along, next[j], x[j]);
            v[j] = next[j];
        }
        __syncthreads();
    }
    __syncthreads();
}

/* ---- back --------------------------------------------------------------------------------------- */

/* Vectors that a warp turns at a time. */
__host__ __device__ constexpr int vectors_of(int held)
{
    return held <= 8 ? 4 : held <= 20 ? 2 : 1;
}

/* Sums over the warp, of each for every lane. */
template <int NV> __device__ __forceinline__ void each_sum(double s[NV], int lane)
{
    if constexpr (NV == 4) {
        const double all = four_sums(s, lane);
#pragma unroll
        for (int q = 0; q < NV; q++) s[q] = __shfl_sync(PL_WARP_LANES, all, lane_of_sum(q));
    } else {
#pragma unroll
        for (int q = 0; q < NV; q++) s[q] = lanes_sum(s[q]);
    }
}

/* x - beta (v.x) v of NV vectors; v is zero before entry 32 from. */
template <int NV, int E>
__device__ __forceinline__ void reflect_held(double x[NV][E], const double *v, double beta, int from,
                                             int lane)
{
    double sum[NV];
#pragma unroll
    for (int q = 0; q < NV; q++) sum[q] = 0;
#pragma unroll
    for (int c = 0; c < E; c++)
        if (c >= from) {
            const double y = v[lane + 32 * c];
#pragma unroll
            for (int q = 0; q < NV; q++) sum[q] = fma(y, x[q][c], sum[q]);
        }
    each_sum<NV>(sum, lane);
#pragma unroll
    for (int c = 0; c < E; c++)
        if (c >= from) {
            const double y = -beta * v[lane + 32 * c];
#pragma unroll
            for (int q = 0; q < NV; q++) x[q][c] = fma(sum[q], y, x[q][c]);
        }
}

/* The rows of Z become vectors of A, n <= 32 E. Shared: AT_ONCE x 32 E. */
template <int W, int E> __device__ void turn_back_held(const eigen_work &m)
{
    constexpr int NV = vectors_of(E);
    const int n = m.n, T = 32 * W, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    double x[NV][E], *v = m.shared;
#pragma unroll 1
    for (int first = 0; first < n; first += NV * W) {
        const int at = first + NV * warp;
#pragma unroll
        for (int q = 0; q < NV; q++)
#pragma unroll
            for (int c = 0; c < E; c++) {
                const int i = lane + 32 * c;
                x[q][c] = at + q < n && i < n ? m.Z[(int64_t)(at + q) * n + i] : 0;
            }
#pragma unroll 1
        for (int top = n - 3; top >= 0; top -= AT_ONCE) {
            __syncthreads();
            for (int s = threadIdx.x; s < AT_ONCE * 32 * E; s += T) {
                const int k = top - s / (32 * E), i = s % (32 * E);
                v[s] = k >= 0 && i > k && i < n ? m.V[(int64_t)k * n + i] : 0;
            }
            __syncthreads();
#pragma unroll 1
            for (int k = top; k > top - AT_ONCE && k >= 0; k--)
                reflect_held<NV, E>(x, v + (top - k) * 32 * E, m.beta[k], (k + 1) / 32, lane);
        }
#pragma unroll
        for (int q = 0; q < NV; q++)
#pragma unroll
            for (int c = 0; c < E; c++) {
                const int i = lane + 32 * c;
                if (at + q < n && i < n) m.Z[(int64_t)(at + q) * n + i] = x[q][c];
            }
    }
    __syncthreads();
}

/* The same of any n: a vector stays in memory. */
template <int W> __device__ void turn_back_long(const eigen_work &m)
{
    const int n = m.n, lane = threadIdx.x % 32;
#pragma unroll 1
    for (int at = threadIdx.x / 32; at < n; at += W) {
        double *x = m.Z + (int64_t)at * n;
#pragma unroll 1
        for (int k = n - 3; k >= 0; k--) {
            const double *v = m.V + (int64_t)k * n;
            const int from = (k + 1) / 32 * 32 + lane;
            double sum = 0;
            for (int i = from; i < n; i += 32)
                if (i > k) sum = fma(v[i], x[i], sum);
            sum = -m.beta[k] * lanes_sum(sum);
            for (int i = from; i < n; i += 32)
                if (i > k) x[i] = fma(sum, v[i], x[i]);
        }
    }
    __syncthreads();
}

#endif
