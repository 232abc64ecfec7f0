/* cuda_ns_stages.cuh -- the end of a step whose rule has stages after the map: moments of lines (polar_post)
 * and other ways to apply it (polar_apply), over X as it lies in shared memory.
 *
 *     lines       squares of D's lines, D = X; their moments move on; factors that keep D's norm
 *     products    <W, D>, <W, W>, <D, D>, and what W and D are multiplied with
 *     step        W
 *
 * Lines of the matrix are rows or columns of X. A column is in one block, a row in all blocks of the cluster.
 * Sums are in double and in an order of the shape alone: a thread's entries, lanes or threads of a line,
 * warps, blocks by rank. line_factors and inner have another order. Squares of bf16 above 2^-19 of a line's
 * norm are added without rounding, and of the other sums the last bit of a double may differ, so that results
 * in f32 have the bits of those ops but for one entry in hundreds of millions.
 *
 * Invariants
 *  1. What lies over A is written after the last product of all blocks: others' places after a barrier of the
 *     cluster, or they are in the control part, which no product uses.
 *  2. Where all blocks read a moment, its writer, the first one, comes behind a barrier.
 *  3. No block ends before the last write to it: that is before a barrier, and what follows is its own.
 */
#ifndef PL_CUDA_NS_STAGES_CUH
#define PL_CUDA_NS_STAGES_CUH

#include "cuda_ns_chunks.cuh"
#include "math/line_elem.h"

/* in the control part, bytes: norm_of's are before them */
#define STAGES_LINES    384 /* double[2][PL_NS_RANKS] */
#define STAGES_PRODUCTS 512 /* double[3][PL_NS_RANKS] */
#define STAGES_FACTORS  704 /* double[2] */

/* What a step takes beside X: factors of its rows or of the block's columns (NULL: none), of W and of D. */
struct stage_factors {
    const double *lines;
    bool by_rows;
    float keep, move;
};

__device__ __forceinline__ double *doubles_at(uint32_t at)
{
    return (double *)__cvta_shared_to_generic(at);
}

/* Into a place that block `rank` of the cluster has for it, or the block itself. */
__device__ __forceinline__ void put_double(double *to, double x, const place &p, int rank)
{
    if (p.c == 1) *to = x;
    else
        asm volatile("st.shared::cluster.f64 [%0], %1;" ::"r"(remote(shared_address(to), rank)), "d"(x)
                     : "memory");
}

__device__ __forceinline__ void sync_all(const place &p)
{
    if (p.c > 1) cluster_sync();
    else __syncthreads();
}

/* pl_lanes_fold with one lane per thread, for all of them. */
__device__ __forceinline__ double lanes_sum(double x)
{
    for (int half = 16; half > 0; half /= 2) x += __shfl_xor_sync(PL_NS_FULL, x, half);
    return x;
}

/* Of all blocks, by rank. */
__device__ __forceinline__ double ranks_sum(const double *of, const place &p)
{
    double sum = 0;
#pragma unroll 1
    for (int q = 0; q < p.c; q++) sum += ((const volatile double *)of)[q];
    return sum;
}

template <int MB> __device__ __forceinline__ void x_chunk(float d[8], const place &p, int i, int group)
{
    uint32_t x[4];
    load_16(x, p.x + chunk_at<MB>(i, group));
    unpack(d, x);
}

/* ---- lines -------------------------------------------------------------------------------------- */

/* parts[rank][M] of every block: the squares of this block's share of the rows. A row has two threads. */
template <int MB>
__device__ __forceinline__ void row_squares(double *parts, double *halves, const place &p, const share &s)
{
    const int M = shape<MB>::M, T = shape<MB>::THREADS, t = threadIdx.x;
    double sum[2] = {0, 0};
    if (p.c > 1) cluster_arrive(); /* this block's A is free */
#pragma unroll 2
    for (int q = t; q < s.chunks; q += T) {
        float d[8];
        x_chunk<MB>(d, p, t % M, q / M);
#pragma unroll
        for (int k = 0; k < 8; k++) sum[k % 2] = fma((double)d[k], (double)d[k], sum[k % 2]);
    }
    double mine = sum[0] + sum[1];
    if (t >= M) halves[t - M] = mine;
    __syncthreads();
    if (p.c > 1) cluster_wait();
    if (t < M) {
        mine += halves[t];
#pragma unroll 1
        for (int q = 0; q < p.c; q++) put_double(parts + p.rank * M + t, mine, p, q);
    }
    sync_all(p);
}

/* parts[warp][64 panels]: each warp's share of the squares of the block's columns. */
template <int MB>
__device__ __forceinline__ void column_squares(double *parts, const place &p, const share &s)
{
    const int T = shape<MB>::THREADS, t = threadIdx.x, warp = t / 32;
#pragma unroll 1
    for (int panel = 0; panel < s.panels; panel++) {
        double sum[8], *to = parts + (warp * s.panels + panel) * 64 + 8 * p.lane;
#pragma unroll
        for (int k = 0; k < 8; k++) sum[k] = 0;
#pragma unroll
        for (int r = 0; r < 4; r++) {
            float d[8];
            x_chunk<MB>(d, p, (t + r * T) / 8, 8 * panel + t % 8);
#pragma unroll
            for (int k = 0; k < 8; k++) sum[k] = fma((double)d[k], (double)d[k], sum[k]);
        }
#pragma unroll
        for (int k = 0; k < 8; k++) { /* lanes l, l + 8, l + 16, l + 24 have the same columns */
            sum[k] += __shfl_xor_sync(PL_NS_FULL, sum[k], 8);
            sum[k] += __shfl_xor_sync(PL_NS_FULL, sum[k], 16);
            if (p.lane < 8) to[k] = sum[k];
        }
    }
    __syncthreads();
}

/* Factors of all lines that the block's entries lie in, and their moments a step on. Over A: factors, squares
 * and terms of the norm afterwards, a line's each; then parts. */
template <int MB>
__device__ __forceinline__ void line_factors(stage_factors *f, const place &p, const pl_cuda_ns_task &t,
                                             const view &v, const share &s, const double *live, int b)
{
    const int M = shape<MB>::M, T = shape<MB>::THREADS, WARPS = 4 * MB;
    const bool by_rows = t.columns == v.tall;
    const int lines = by_rows ? v.m : s.columns, room = by_rows ? M : 64 * s.panels;
    const int parts_by = by_rows ? M : 64 * s.panels, n_parts = by_rows ? p.c : WARPS;
    double *factor = doubles_at(p.a), *square = factor + room, *term = square + room, *parts = term + room;
    float *P = t.P + (int64_t)b * t.p_bs + (by_rows ? 0 : s.column);
    const double beta2 = live[PL_LIVE_BETA2], eps = live[PL_LIVE_EPS], n = by_rows ? v.n : v.m;
    /* before the barriers: the first block writes moments of rows behind them */
    const float first = threadIdx.x < (unsigned)lines ? P[threadIdx.x] : 0;
    if (by_rows) row_squares<MB>(parts, factor, p, s);
    else column_squares<MB>(parts, p, s);
#pragma unroll 1
    for (int l = threadIdx.x; l < lines; l += T) {
        double sum = 0, moment = l < T ? first : P[l];
#pragma unroll 1
        for (int k = 0; k < n_parts; k++) sum += parts[k * parts_by + l];
        double by = pl_line_moment(&moment, sum / n, beta2, eps, t.clamped);
        if (!by_rows || p.rank == 0) P[l] = (float)moment;
        factor[l] = by, square[l] = sum, term[l] = sum * by * by;
    }
    __syncthreads();
    double before = 0, after = 0;
#pragma unroll 1
    for (int l = p.lane; l < lines; l += 32) before += square[l], after += term[l];
    before = lanes_sum(before), after = lanes_sum(after);
    if (!by_rows && p.c > 1) {
        double *all = doubles_at(p.control + STAGES_LINES);
        if (threadIdx.x < (unsigned)p.c) {
            put_double(all + p.rank, before, p, threadIdx.x);
            put_double(all + PL_NS_RANKS + p.rank, after, p, threadIdx.x);
        }
        cluster_sync();
        before = ranks_sum(all, p), after = ranks_sum(all + PL_NS_RANKS, p);
    }
    const double kept = pl_line_kept(before, after);
#pragma unroll 1
    for (int l = threadIdx.x; l < lines; l += T) factor[l] = kept * factor[l];
    __syncthreads();
    f->lines = factor, f->by_rows = by_rows;
}

/* D from X: the chunk (i, j .. j + 7), j counted from the block's first column. Beyond the matrix it is
 * anything. */
__device__ __forceinline__ void scale_8(float d[8], const stage_factors &f, int i, int j)
{
    if (!f.lines) return;
    if (f.by_rows) {
        const double r = f.lines[i];
#pragma unroll
        for (int k = 0; k < 8; k++) d[k] = (float)pl_scale_entry_f64((double)d[k], r, 1);
        return;
    }
#pragma unroll
    for (int k = 0; k < 8; k++) d[k] = (float)pl_scale_entry_f64((double)d[k], 1, f.lines[j + k]);
}

/* ---- products ----------------------------------------------------------------------------------- */

/* <W, D>, <W, W>, <D, D> of the thread's entries; products of floats are exact in double. */
__device__ __forceinline__ void add_products(double sum[3], float w, float d)
{
    const double x = w, y = d;
    sum[0] = fma(x, y, sum[0]), sum[1] = fma(x, x, sum[1]), sum[2] = fma(y, y, sum[2]);
}

template <int MB>
__device__ __forceinline__ void products_edge(double sum[3], const place &p, const pl_cuda_ns_task &t,
                                              const view &v, const share &s, const stage_factors &f)
{
#pragma unroll 1
    for (int q = threadIdx.x; q < s.chunks; q += shape<MB>::THREADS) {
        int i, group;
        float w[8], d[8];
        chunk_place<MB>(q, v.tall, &i, &group);
        edge e = edge_of(v, i, s.column + 8 * group, t.w_rs);
        load_edge(w, v.W, 0, e);
        x_chunk<MB>(d, p, i, group);
        scale_8(d, f, i, 8 * group);
#pragma unroll
        for (int k = 0; k < 8; k++)
            if (k < e.count) add_products(sum, w[k], d[k]);
    }
}

template <int MB, bool TALL>
__device__ __forceinline__ void products_regular(double sum[3], const place &p, const pl_cuda_ns_task &t,
                                                 const view &v, const share &s, const stage_factors &f)
{
    const int SOME = MB == 4 ? 2 : 4; /* a thread has 4 x panels chunks */
#pragma unroll 1
    for (int q = threadIdx.x; q < s.chunks; q += SOME * shape<MB>::THREADS) {
        float w[SOME][8];
        int i[SOME], group[SOME];
#pragma unroll
        for (int c = 0; c < SOME; c++) {
            chunk_place<MB>(q + c * shape<MB>::THREADS, TALL, &i[c], &group[c]);
            load_8<TALL>(w[c], (const float *)v.W, i[c], s.column + 8 * group[c], t.w_rs);
        }
#pragma unroll
        for (int c = 0; c < SOME; c++) {
            float d[8];
            x_chunk<MB>(d, p, i[c], group[c]);
            scale_8(d, f, i[c], 8 * group[c]);
#pragma unroll
            for (int k = 0; k < 8; k++) add_products(sum, w[c][k], d[k]);
        }
    }
}

/* keep and move of a step that looks at W. */
template <int MB>
__device__ __forceinline__ void weight_factors(stage_factors *f, const place &p, const pl_cuda_ns_task &t,
                                               const view &v, const share &s, const double *live)
{
    const int WARPS = 4 * MB;
    /* behind the factors and squares of lines, whatever these are */
    double *sums = doubles_at(p.a) + (f->lines ? (f->by_rows ? shape<MB>::M : 64 * s.panels) : 0);
    double *all = doubles_at(p.control + STAGES_PRODUCTS), *result = doubles_at(p.control + STAGES_FACTORS);
    double sum[3] = {0, 0, 0};
    if (!s.regular) products_edge<MB>(sum, p, t, v, s, *f);
    else if (v.tall) products_regular<MB, true>(sum, p, t, v, s, *f);
    else products_regular<MB, false>(sum, p, t, v, s, *f);
#pragma unroll
    for (int k = 0; k < 3; k++) {
        sum[k] = lanes_sum(sum[k]);
        if (p.lane == 0) sums[k * WARPS + threadIdx.x / 32] = sum[k];
    }
    __syncthreads();
    if (threadIdx.x < 3 * (unsigned)p.c) {
        const int k = threadIdx.x / p.c;
        double total = 0;
#pragma unroll 1
        for (int w = 0; w < WARPS; w++) total += sums[k * WARPS + w];
        put_double(all + k * PL_NS_RANKS + p.rank, total, p, threadIdx.x % p.c);
    }
    sync_all(p);
    if (threadIdx.x == 0) {
        const double n[4] = {ranks_sum(all, p), 1, ranks_sum(all + PL_NS_RANKS, p),
                             ranks_sum(all + 2 * PL_NS_RANKS, p)};
        pl_apply_factors(&result[0], &result[1], n, t.apply, live[PL_LIVE_LR], live[PL_LIVE_WD], t.scale,
                         t.strength);
    }
    __syncthreads();
    f->keep = (float)result[0], f->move = (float)result[1];
}

/* ---- the step ----------------------------------------------------------------------------------- */

/* keep and move of a step that does not look at W, as pl_decay_and_step has them. */
__device__ __forceinline__ void decay_factors(stage_factors *f, const pl_cuda_ns_task &t, const numbers &k)
{
    f->keep = fmaf(-k.lr, k.wd, 1.0f), f->move = k.lr * (float)t.scale;
}

/* A branch of its own for every entry would cost more than the step: cautious is known where this is
 * compiled.
 */
template <bool CAUTIOUS>
__device__ __forceinline__ float stepped_by(float w, float d, float scale, const numbers &k,
                                            const stage_factors &f)
{
    return CAUTIOUS ? pl_cautious_step_f32(w, d, k.lr, k.wd, scale)
                    : pl_ball_step_f32(w, d, k.lr, f.keep, f.move);
}

template <int MB, bool CAUTIOUS>
__device__ __forceinline__ void step_edge(const place &p, const pl_cuda_ns_task &t, const view &v,
                                          const share &s, const stage_factors &f)
{
#pragma unroll 1
    for (int q = threadIdx.x; q < s.chunks; q += shape<MB>::THREADS) {
        int i, group;
        float w[8], d[8];
        chunk_place<MB>(q, v.tall, &i, &group);
        edge e = edge_of(v, i, s.column + 8 * group, t.w_rs);
        load_edge(w, v.W, 0, e);
        x_chunk<MB>(d, p, i, group);
        scale_8(d, f, i, 8 * group);
#pragma unroll
        for (int k = 0; k < 8; k++) w[k] = stepped_by<CAUTIOUS>(w[k], d[k], (float)t.scale, v.k, f);
        store_edge((float *)v.W, w, e);
    }
}

template <int MB, bool TALL, bool CAUTIOUS>
__device__ __forceinline__ void step_regular(const place &p, const pl_cuda_ns_task &t, const view &v,
                                             const share &s, const stage_factors &f)
{
    const int SOME = 2; /* a thread has 4 x panels chunks */
    const float scale = (float)t.scale;
#pragma unroll 1
    for (int q = threadIdx.x; q < s.chunks; q += SOME * shape<MB>::THREADS) {
        float w[SOME][8];
        int i[SOME], group[SOME];
#pragma unroll
        for (int c = 0; c < SOME; c++) {
            chunk_place<MB>(q + c * shape<MB>::THREADS, TALL, &i[c], &group[c]);
            load_8<TALL>(w[c], (const float *)v.W, i[c], s.column + 8 * group[c], t.w_rs);
        }
#pragma unroll
        for (int c = 0; c < SOME; c++) {
            float d[8];
            x_chunk<MB>(d, p, i[c], group[c]);
            scale_8(d, f, i[c], 8 * group[c]);
#pragma unroll
            for (int k = 0; k < 8; k++) w[c][k] = stepped_by<CAUTIOUS>(w[c][k], d[k], scale, v.k, f);
            store_8<TALL>((float *)v.W, i[c], s.column + 8 * group[c], t.w_rs, w[c]);
        }
    }
}

template <int MB, bool CAUTIOUS>
__device__ __forceinline__ void step_all(const place &p, const pl_cuda_ns_task &t, const view &v,
                                         const share &s, const stage_factors &f)
{
    if (!s.regular) step_edge<MB, CAUTIOUS>(p, t, v, s, f);
    else if (v.tall) step_regular<MB, true, CAUTIOUS>(p, t, v, s, f);
    else step_regular<MB, false, CAUTIOUS>(p, t, v, s, f);
}

/* All of it, of matrix b of the task. */
template <int MB>
__device__ __forceinline__ void finish_stages(const place &p, const pl_cuda_ns_task &t, int b, const view &v,
                                              const share &s)
{
    const double *live = t.live + (int64_t)b * t.live_bs;
    stage_factors f = {NULL, false, 1, 0};
    if (t.P) line_factors<MB>(&f, p, t, v, s, live, b);
    if (t.apply >= POLAR_APPLY_HYPERBALL) weight_factors<MB>(&f, p, t, v, s, live);
    else decay_factors(&f, t, v.k);
    if (t.apply == POLAR_APPLY_CAUTIOUS) step_all<MB, true>(p, t, v, s, f);
    else step_all<MB, false>(p, t, v, s, f);
}

#endif
