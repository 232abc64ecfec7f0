/* cuda_kron_sweep.cuh -- kron_sweep: a matrix has a block of W warps, or a cluster of RANKS of them.
 *
 *     X = K Q                 tiles by the tensor cores' double-precision products
 *     order                   columns by descending q.x; V's lines change places likewise
 *     Z                       the columns of X in that order as rows, times a power of two
 *     reflections             sixteen rows of Z at a time: v_0 .. v_15 by the first block, and T with
 *                             H_0 .. H_15 = I - V^T T V; then strips of eight rows below, X -= ((X V^T) T) V,
 *                             a warp each, by tensor cores
 *     Q                       its columns as rows of X, from e_j: the same with T^T, last panel first
 *
 * Everything in double, in scratch memory; the reflections are Householder's, so that any K Q, however near
 * to singular, has orthonormal columns to rounding.
 *
 * Invariants
 *  1. Sums have an order of the shape, W and RANKS alone.
 *  2. Blocks meet at barriers of the cluster only; a matrix that is not due, or not finite, is left by all of
 *     them alike.
 *  3. What another block wrote is read behind such a barrier and past the first cache. A strip is one warp's
 *     for as long as it is a strip.
 */
#ifndef PL_CUDA_KRON_SWEEP_CUH
#define PL_CUDA_KRON_SWEEP_CUH

#include "cuda_double.cuh"
#include "cuda_launch.cuh"
#include "device/kron_row.h"
#include "math/kron_elem.h"

#define REFLECTED  16 /* rows of a panel */
#define STRIP      8  /* rows of a warp's product */
#define T_ROW      20 /* doubles from row to row of T: no bank conflicts */
#define MOST_RANKS 8  /* blocks a cluster */

/* A matrix at work. */
struct sweep_work {
    int64_t b;
    int n, rank, warp, lane;
    double *Z, *X, *V, *T, *value, *tops; /* scratch, of the matrix */
    int *place;
    double *panel;                          /* of the block; shared, or scratch */
    int row;                                /* doubles from row to row of it */
    double *tile, *parts, *gram, *t, *beta; /* shared */
};

static __host__ __device__ inline int64_t panels_of(int64_t n)
{
    return (n + REFLECTED - 1) / REFLECTED;
}

/* A panel's rows: four more than a multiple of sixteen doubles, against bank conflicts. */
static __host__ __device__ inline int64_t panel_row(int64_t n)
{
    return (n + 15) / 16 * 16 + 4;
}

/* The largest side whose panels lie in shared memory, on Hopper and elsewhere; of larger ones they lie in
 * scratch memory. */
static __host__ __device__ constexpr int panel_side(int ranks)
{
    return ranks > 1 ? 1400 : 960;
}

/* Warps that make a panel's Gram matrix: each has room for one. */
static __host__ __device__ constexpr int gram_warps(int warps)
{
    return warps == 8 ? 4 : warps;
}

/* Doubles of scratch memory a matrix. */
static __host__ __device__ inline int64_t sweep_room(const pl_args_kron_sweep *a)
{
    const int64_t n = a->Q.rows, panels = n > panel_side(1) ? MOST_RANKS * REFLECTED * panel_row(n) : 0;
    return 2 * n * n + a->V.rows * a->V.cols + panels_of(n) * REFLECTED * REFLECTED + n + MOST_RANKS +
           (n + 1) / 2 + panels;
}

/* Doubles of shared memory. */
template <int W, int RANKS> static __host__ __device__ inline int64_t sweep_shared(int64_t n)
{
    const int64_t panel = n > panel_side(RANKS) ? 0 : REFLECTED * panel_row(n), tile = tiling<W>::DOUBLES;
    return (panel > tile ? panel : tile) + W * 256 + 256 + REFLECTED * T_ROW + REFLECTED;
}

template <int RANKS> __device__ __forceinline__ void ranks_sync()
{
    if constexpr (RANKS > 1) {
        asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
        asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    } else __syncthreads();
}

/* ---- K Q and its order ---------------------------------------------------------------------------- */

/* X, and the block's part of the sum of its magnitudes. */
template <int W, int RANKS> __device__ void multiply(const pl_args_kron_sweep &a, const sweep_work &s)
{
    using S = tiling<W>;
    const int n = s.n, across = (n + S::COLS - 1) / S::COLS, down = (n + S::ROWS - 1) / S::ROWS;
    double top = 0;
#pragma unroll 1
    for (int tile = s.rank; tile < down * across; tile += RANKS) {
        const int row = tile / across * S::ROWS, col = tile % across * S::COLS;
        const auto left = [&](int i, int k) {
            return row + i < n && k < n ? pl_cuda_at<double>(a.K, s.b, row + i, k) : 0;
        };
        const auto right = [&](int k, int j) {
            return k < n && col + j < n ? pl_cuda_at<double>(a.Q, s.b, k, col + j) : 0;
        };
        const auto put = [&](int i, int j, double y) {
            if (row + i >= n || col + j >= n) return;
            s.X[(int64_t)(row + i) * n + col + j] = y;
            if (y - y == 0) top += fabs(y) * 0x1p-1000; /* no overflow */
        };
        tile_product<W>(s.tile, n, left, right, put);
    }
    top = lanes_sum(top);
    if (s.lane == 0) s.parts[s.warp] = top;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < W; w++) top += s.parts[w];
        s.tops[s.rank] = top;
    }
}

/* value[j] = q_j.x_j, 32 columns at a time. */
template <int W, int RANKS> __device__ void rayleigh(const pl_args_kron_sweep &a, const sweep_work &s)
{
#pragma unroll 1
    for (int first = 32 * s.rank; first < s.n; first += 32 * RANKS) {
        const int j = first + s.lane;
        double sum = 0;
        __syncthreads();
#pragma unroll 4
        for (int i = s.warp; i < s.n; i += W)
            if (j < s.n)
                sum = fma(pl_cuda_at<double>(a.Q, s.b, i, j), __ldcg(s.X + (int64_t)i * s.n + j), sum);
        s.parts[s.warp * 32 + s.lane] = sum;
        __syncthreads();
        if (s.warp == 0 && j < s.n) {
            for (int w = 1; w < W; w++) sum += s.parts[w * 32 + s.lane];
            s.value[j] = sum;
        }
    }
}

/* place[r]: of which column the r-th largest is; a warp a column, its lanes over the others. */
template <int W, int RANKS> __device__ void order_columns(const sweep_work &s)
{
#pragma unroll 1
    for (int j = s.rank + RANKS * s.warp; j < s.n; j += RANKS * W) {
        const double mine = __ldcg(s.value + j);
        int before = 0;
#pragma unroll 8
        for (int i = s.lane; i < s.n; i += 32) {
            const double x = __ldcg(s.value + i);
            before += x > mine || (x == mine && i < j);
        }
        for (int half = 16; half > 0; half /= 2) before += __shfl_xor_sync(PL_WARP_LANES, before, half);
        if (s.lane == 0) s.place[before] = j;
    }
}

/* V as it was, into scratch memory. */
template <int W, int RANKS> __device__ void keep_lines(const pl_args_kron_sweep &a, const sweep_work &s)
{
    for (int64_t i = s.rank + RANKS * s.warp; i < a.V.rows; i += RANKS * W)
#pragma unroll 4
        for (int64_t j = s.lane; j < a.V.cols; j += 32)
            s.V[i * a.V.cols + j] = pl_cuda_at<double>(a.V, s.b, i, j);
}

template <int W, int RANKS> __device__ void move_lines(const pl_args_kron_sweep &a, const sweep_work &s)
{
    for (int64_t i = s.rank + RANKS * s.warp; i < a.V.rows; i += RANKS * W) {
        const int64_t from = a.trans ? i : __ldcg(s.place + i);
#pragma unroll 4
        for (int64_t j = s.lane; j < a.V.cols; j += 32)
            pl_cuda_set<double>(a.V, s.b, i, j,
                                __ldcg(s.V + from * a.V.cols + (a.trans ? __ldcg(s.place + j) : j)));
    }
}

/* All of the cluster's threads: what is this one's. */
#define FOR_OURS(at, count) \
    for (int64_t at = (int64_t)s.rank * 32 * W + threadIdx.x; at < (count); at += RANKS * 32 * W)

/* The sum of the values for every lane; one of them is not finite: Q and F become NaN, and false. */
template <int W, int RANKS>
__device__ bool values_finite(double *trace, const pl_args_kron_sweep &a, const sweep_work &s)
{
    const int n = s.n;
    double sum = 0;
    bool wrong = false;
    for (int j = s.lane; j < n; j += 32) {
        const double x = __ldcg(s.value + j);
        sum += x, wrong |= !(x - x == 0);
    }
    *trace = lanes_sum(sum);
    if (!__syncthreads_or(wrong)) return true;
    FOR_OURS(at, (int64_t)n * n) pl_cuda_set<double>(a.Q, s.b, at / n, at % n, NAN);
    if (a.F.data) FOR_OURS(k, n) pl_cuda_set<double>(a.F, s.b, 0, k, NAN);
    return false;
}

/* F from the values in their order. */
template <int W, int RANKS>
__device__ void put_factors(const pl_args_kron_sweep &a, const sweep_work &s, const double *live,
                            double trace)
{
    const int n = s.n;
    if (!a.F.data) return;
    const double unit = pl_kron_unit(a.kind, (double)n, trace, live[PL_LIVE_BETA2], live[PL_LIVE_C2],
                                     live[PL_LIVE_STEP]),
                 least = unit * __ldcg(s.value + __ldcg(s.place + n - 1));
    FOR_OURS(k, n)
    pl_cuda_set<double>(a.F, s.b, 0, k,
                        pl_kron_factor(a.kind, unit * __ldcg(s.value + __ldcg(s.place + k)), least,
                                       live[PL_LIVE_EPS], a.power));
}

/* ---- reflections ----------------------------------------------------------------------------------- */

/* The panel from row k0 on comes from Z; zeros below and beside it. */
template <int W> __device__ void load_panel(const sweep_work &s, int k0)
{
    const int n = s.n, m = n - k0, whole = (m + 7) / 8 * 8;
    for (int i = s.warp; i < REFLECTED; i += W)
        for (int c = s.lane; c < whole; c += 32)
            s.panel[i * s.row + c] = c < m && k0 + i < n ? __ldcg(s.Z + (int64_t)(k0 + i) * n + k0 + c) : 0;
}

/* Row k of the panel becomes a reflection, by its warp. */
__device__ __forceinline__ void make_reflection(const sweep_work &s, int k, int m)
{
    double *v = s.panel + k * s.row, square = 0;
    for (int c = s.lane; c < m; c += 32)
        if (c >= k) square = fma(v[c], v[c], square);
    square = lanes_sum(square);
    if (square < 0x1p-900) { /* in other units: squares near the smallest numbers have no digits */
        square = 0;
        for (int c = s.lane; c < m; c += 32)
            if (c >= k) v[c] *= 0x1p600, square = fma(v[c], v[c], square);
        square = lanes_sum(square);
        __syncwarp();
    }
    const double first = v[k];
    double to = 0, beta = 0;
    if (square > 0x1p-900) {
        to = first > 0 ? -sqrt(square) : sqrt(square);
        beta = 1 / (square - first * to);
    }
    __syncwarp();
    if (s.lane < k) v[s.lane] = 0;
    if (s.lane == k) v[k] = first - to, s.beta[k] = beta;
}

/* The panel's rows become v_0 .., one after the other. */
template <int W> __device__ void reflect_panel(const sweep_work &s, int k0)
{
    const int m = s.n - k0, rows = min(REFLECTED, m);
#pragma unroll 1
    for (int k = 0; k < REFLECTED; k++) {
        if (k >= rows && threadIdx.x == 0) s.beta[k] = 0;
        if (k < rows && s.warp == k % W) make_reflection(s, k, m);
        __syncthreads();
        const double *v = s.panel + k * s.row, beta = s.beta[k];
#pragma unroll 1
        for (int i = s.warp; i < rows; i += W) {
            if (i <= k) continue;
            double *x = s.panel + i * s.row, sum = 0;
            for (int c = s.lane; c < m; c += 32) sum = fma(v[c], x[c], sum);
            sum = -beta * lanes_sum(sum);
            for (int c = s.lane; c < m; c += 32) x[c] = fma(sum, v[c], x[c]);
            __syncwarp();
        }
    }
    __syncthreads();
}

/* T of the panel, to shared memory and to its place. */
template <int W> __device__ void make_t(const sweep_work &s, int k0)
{
    constexpr int G = gram_warps(W);
    const int m = s.n - k0, t = threadIdx.x, at = s.lane / 4 * s.row + s.lane % 4;
    double g[3][2] = {};
#pragma unroll 1
    for (int c = 4 * s.warp; c < m && s.warp < G; c += 4 * G) {
        const double a = s.panel[at + c], b = s.panel[at + 8 * s.row + c];
        product_8x8x4(g[0], a, a);
        product_8x8x4(g[1], a, b);
        product_8x8x4(g[2], b, b);
    }
#pragma unroll
    for (int q = 0; q < 6 && s.warp < G; q++) {
        const int i = s.lane / 4 + q / 4 * 8, j = 2 * (s.lane % 4) + q % 2 + (q / 2 ? 8 : 0);
        s.parts[s.warp * 256 + i * REFLECTED + j] = g[q / 2][q % 2];
    }
    __syncthreads();
    for (int e = t; e < 256; e += 32 * W) {
        double sum = 0;
        for (int w = 0; w < G; w++) sum += s.parts[w * 256 + e]; /* below the diagonal it is anything */
        s.gram[e] = sum;
    }
    __syncthreads();
    if (s.warp == 0) {
        const int i = s.lane % REFLECTED;
        double x[REFLECTED];
#pragma unroll
        for (int j = 0; j < REFLECTED; j++) {
            double sum = 0;
#pragma unroll
            for (int l = 0; l < j; l++) sum = fma(x[l], s.gram[l * REFLECTED + j], sum);
            x[j] = i > j ? 0 : i == j ? s.beta[j] : -s.beta[j] * sum;
        }
#pragma unroll
        for (int j = 0; j < REFLECTED; j++)
            if (s.lane < REFLECTED) s.t[i * T_ROW + j] = x[j], s.T[k0 * REFLECTED + i * REFLECTED + j] = x[j];
    }
    __syncthreads();
}

/* The reflections of the panel from k0 on into shared memory, as another block, or an earlier time, left
 * them. */
template <int W> __device__ void fetch_panel(const sweep_work &s, int k0)
{
    load_panel<W>(s, k0);
    for (int e = threadIdx.x; e < REFLECTED * REFLECTED; e += 32 * W)
        s.t[e / REFLECTED * T_ROW + e % REFLECTED] = __ldcg(s.T + k0 * REFLECTED + e);
    __syncthreads();
}

/* Of an 8 x 16 matrix as products leave it (two tiles) the pieces of 4 columns that products take. */
__device__ __forceinline__ void pieces_of(double out[4], const double c[2][2], int lane)
{
#pragma unroll
    for (int q = 0; q < 4; q++) {
        const int from = lane / 4 * 4 + 2 * (q % 2) + lane % 4 / 2;
        const double even = __shfl_sync(PL_WARP_LANES, c[q / 2][0], from),
                     odd = __shfl_sync(PL_WARP_LANES, c[q / 2][1], from);
        out[q] = lane % 2 ? odd : even;
    }
}

/* Rows [row, row + 8) of Y: entries from k0 + first on lose ((Y V^T) T) V, or with T^T (back). */
__device__ __forceinline__ void reflect_strip(const sweep_work &s, double *Y, int row, int k0, int first,
                                              bool back)
{
    const int n = s.n, m = n - k0, r = s.lane / 4, quarter = s.lane % 4;
    const bool there = row + r < n;
    double *y = Y + (int64_t)(row + r) * n + k0, c[2][2][2] = {}, a[4], b[4];
    const double *v = s.panel + r * s.row + quarter;
#pragma unroll 4
    for (int k = 0; k < m; k += 8) {
        const double low = there && k + quarter < m ? __ldcg(y + k + quarter) : 0,
                     high = there && k + 4 + quarter < m ? __ldcg(y + k + 4 + quarter) : 0;
        product_8x8x4(c[0][0], low, v[k]);
        product_8x8x4(c[0][1], low, v[8 * s.row + k]);
        product_8x8x4(c[1][0], high, v[k + 4]);
        product_8x8x4(c[1][1], high, v[8 * s.row + k + 4]);
    }
#pragma unroll
    for (int q = 0; q < 4; q++) c[0][q / 2][q % 2] += c[1][q / 2][q % 2], c[1][q / 2][q % 2] = 0;
    pieces_of(a, c[0], s.lane);
#pragma unroll
    for (int u = 0; u < 2; u++)
#pragma unroll
        for (int q = 0; q < 4; q++) {
            const int i = 4 * q + quarter, j = 8 * u + r;
            product_8x8x4(c[1][u], a[q], s.t[back ? j * T_ROW + i : i * T_ROW + j]);
        }
    pieces_of(b, c[1], s.lane);
    __syncwarp(); /* the other lanes have read what is written now: exchanges order no memory */
#pragma unroll 2
    for (int k = first; k < m; k += 8) {
        const bool left = there && k + 2 * quarter < m, right = there && k + 2 * quarter + 1 < m;
        double *at = y + k + 2 * quarter, d[2] = {left ? __ldcg(at) : 0, right ? __ldcg(at + 1) : 0};
#pragma unroll
        for (int q = 0; q < 4; q++) product_8x8x4(d, -b[q], s.panel[(4 * q + quarter) * s.row + k + r]);
        if (left) at[0] = d[0];
        if (right) at[1] = d[1];
    }
}

/* The strips of this warp that begin at `from` or behind it. */
#define FOR_STRIPS(row, from)                                                              \
    for (int row = STRIP * (s.rank + RANKS * s.warp); row < s.n; row += STRIP * RANKS * W) \
        if (row >= (from))

template <int W, int RANKS> __device__ void factorise(const sweep_work &s)
{
#pragma unroll 1
    for (int k0 = 0; k0 < s.n; k0 += REFLECTED) {
        const int n = s.n, m = n - k0;
        if (s.rank == 0) {
            load_panel<W>(s, k0);
            __syncthreads();
            reflect_panel<W>(s, k0);
            make_t<W>(s, k0);
            for (int i = s.warp; i < REFLECTED && k0 + i < n; i += W)
                for (int c = s.lane; c < m; c += 32)
                    s.Z[(int64_t)(k0 + i) * n + k0 + c] = s.panel[i * s.row + c];
        }
        ranks_sync<RANKS>();
        if (s.rank != 0) fetch_panel<W>(s, k0);
#pragma unroll 1
        FOR_STRIPS(row, k0 + REFLECTED) reflect_strip(s, s.Z, row, k0, REFLECTED, false);
        ranks_sync<RANKS>();
    }
}

/* The columns of Q: a warp has its strips from the beginning to the end. */
template <int W, int RANKS> __device__ void form(const pl_args_kron_sweep &a, const sweep_work &s)
{
    const int n = s.n;
    FOR_STRIPS(row, 0)
    for (int i = row; i < min(row + STRIP, n); i++)
        for (int c = s.lane; c < n; c += 32) s.X[(int64_t)i * n + c] = i == c;
#pragma unroll 1
    for (int k0 = ((int)panels_of(n) - 1) * REFLECTED; k0 >= 0; k0 -= REFLECTED) {
        __syncthreads();
        fetch_panel<W>(s, k0);
#pragma unroll 1
        FOR_STRIPS(row, k0) reflect_strip(s, s.X, row, k0, 0, true);
    }
    __syncwarp();
    const int j = s.lane % STRIP, step = 32 / STRIP;
    FOR_STRIPS(row, 0)
    for (int i = s.lane / STRIP; i < n; i += step)
        if (row + j < n) pl_cuda_set<double>(a.Q, s.b, i, row + j, __ldcg(s.X + (int64_t)(row + j) * n + i));
}

/* ---- the kernel ------------------------------------------------------------------------------------ */

template <int W, int RANKS>
__global__ void __launch_bounds__(32 * W, W == 16 ? 1 : 4)
    sweep_kernel(const __grid_constant__ pl_args_kron_sweep a, double *scratch)
{
    extern __shared__ double memory[];
    sweep_work s;
    s.b = blockIdx.x / RANKS, s.rank = (int)(blockIdx.x % RANKS), s.n = (int)a.Q.rows;
    s.warp = threadIdx.x / 32, s.lane = threadIdx.x % 32;
    const double *live = pl_cuda_live(a.live, s.b);
    if (!pl_kron_sweep_due(live, a.every, a.after)) return;
    const int n = s.n;
    const int64_t square = (int64_t)n * n, entries = a.V.rows * a.V.cols;
    s.Z = scratch + s.b * sweep_room(&a), s.X = s.Z + square, s.V = s.X + square, s.T = s.V + entries;
    s.value = s.T + panels_of(n) * REFLECTED * REFLECTED, s.tops = s.value + n;
    s.place = (int *)(s.tops + MOST_RANKS);
    s.t = memory, s.beta = s.t + REFLECTED * T_ROW, s.gram = s.beta + REFLECTED, s.parts = s.gram + 256;
    s.tile = s.parts + W * 256, s.row = (int)panel_row(n), s.panel = s.tile;
    if (n > panel_side(RANKS))
        s.panel = s.tops + MOST_RANKS + (n + 1) / 2 + (int64_t)s.rank * REFLECTED * s.row;
    multiply<W, RANKS>(a, s);
    ranks_sync<RANKS>();
    rayleigh<W, RANKS>(a, s);
    keep_lines<W, RANKS>(a, s);
    ranks_sync<RANKS>();
    double trace;
    if (!values_finite<W, RANKS>(&trace, a, s)) return;
    order_columns<W, RANKS>(s);
    ranks_sync<RANKS>();
    put_factors<W, RANKS>(a, s, live, trace);
    move_lines<W, RANKS>(a, s);
    double top = 0;
    for (int q = 0; q < RANKS; q++) top += __ldcg(s.tops + q);
    /* a power of two that brings the entries near 1, so that squares neither over- nor underflow */
    const int power = top > 0 ? -ilogb(top) - 1000 : 0;
    for (int r = s.rank + RANKS * s.warp; r < n; r += RANKS * W) {
        const int from = __ldcg(s.place + r);
        for (int i = s.lane; i < n; i += 32)
            s.Z[(int64_t)r * n + i] = ldexp(__ldcg(s.X + (int64_t)i * n + from), power);
    }
    ranks_sync<RANKS>();
    factorise<W, RANKS>(s);
    form<W, RANKS>(a, s);
}

#endif
