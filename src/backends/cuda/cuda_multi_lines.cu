/* cuda_multi_lines.cu -- picked lines of many matrices in one launch a pass: a block finds its call in the
 * table and does 16 lines of one matrix.
 *
 * A line has 32 threads, the lanes of math/lane_sum_elem.h: entry k is lane k mod 32's. Where lines are rows
 * these are a warp, where they are columns 16 neighbours of a row are 16 lines' threads, so that both ways
 * neighbours in memory are neighbours among threads. Sums are in double and in the lanes' order: the bits
 * are those of `ref`, and nothing depends on the grid.
 *
 * pick_lines has three passes, since a line is compared with all others of its matrix: M + g and the lines'
 * sizes (12 bytes an entry), who is picked (few bytes), D and what is picked of M (4 and 8 bytes an entry).
 */
#include "cuda_multi_lines.h"

#include "cuda_access.cuh"
#include "cuda_table.cuh"
#include "math/bf16_elem.h"
#include "math/lane_sum_elem.h"
#include "math/line_elem.h"

#define LINES   16 /* of a block */
#define THREADS (LINES * PL_LANES)
#define BLOCKS  2 /* that a multiprocessor holds at once, at least */
#define FEW     8 /* calls of the small table */
#define FULL    0xffffffffu

template <class CALL, int CAPACITY> struct call_table {
    int count;
    uint32_t first[CAPACITY + 1]; /* block of each call's first lines */
    CALL call[CAPACITY];
};

static_assert(sizeof(call_table<pl_args_pick_lines, PL_CUDA_LINES_CALLS>) <= 32764,
              "kernel parameters end there");

/* ---- a block's lines ---------------------------------------------------------------------------- */

static __host__ __device__ __forceinline__ int64_t batch_of(const pl_args_pick_lines &a)
{
    return a.M.batch;
}

static __host__ __device__ __forceinline__ int64_t batch_of(const pl_args_move_lines &a)
{
    return a.Y.batch;
}

/* Where a thread works: which call, which matrix of it, the block's first line and the thread's own (which
 * may be one too many), its lane. */
struct place {
    int call, lane;
    int64_t b, first, l;
};

template <class CALL, int CAPACITY>
static __device__ __forceinline__ place find(const call_table<CALL, CAPACITY> &table)
{
    const int low = call_of_block(table.first, table.count);
    const CALL &a = table.call[low];
    const uint32_t begin = table.first[low], each = (table.first[low + 1] - begin) / (uint32_t)batch_of(a);
    const int t = (int)threadIdx.x, line = a.trans ? t % LINES : t / PL_LANES;
    place at = {low, a.trans ? t / LINES : t % PL_LANES};
    at.b = (blockIdx.x - begin) / each;
    at.first = (int64_t)((blockIdx.x - begin) % each) * LINES;
    at.l = at.first + line;
    return at;
}

/* ---- entries ------------------------------------------------------------------------------------ */

#define ANY (-1) /* of whatever format, as doubles */

/* Loads of an operand that a thread has under way. */
template <int FORMAT> constexpr int ahead = FORMAT == ANY ? 1 : 8;

/* Entry `at` of m as it is loaded: without a branch, so that several can be waited for at once. */
template <int FORMAT> static __device__ __forceinline__ auto load(const pl_mat &m, int64_t at)
{
    if constexpr (FORMAT == POLAR_DTYPE_F32) return ((const float *)m.data)[at];
    else if constexpr (FORMAT == POLAR_DTYPE_BF16) return pl_bf16_to_f32(((const pl_bf16 *)m.data)[at]);
    else return pl_cuda_get<double>(m, at);
}

/* Returns x as m holds it now. */
template <int FORMAT> static __device__ __forceinline__ double store(const pl_mat &m, int64_t at, double x)
{
    if constexpr (FORMAT == POLAR_DTYPE_F32) return ((float *)m.data)[at] = (float)x;
    else {
        pl_cuda_put<double>(m, at, x);
        return pl_cuda_get<double>(m, at);
    }
}

/* Where line l begins. */
static __device__ __forceinline__ int64_t line_at(const pl_mat &m, int64_t b, int64_t l, int64_t trans)
{
    return pl_cuda_base(m, b) + l * (trans ? 1 : m.rs);
}

/* A lane's entries of line l: the first, and how far it is from each to the next. */
struct walk {
    int64_t at, by;
};

static __device__ __forceinline__ walk walk_of(const pl_mat &m, const place &p, int64_t l, int64_t trans)
{
    const int64_t by = trans ? m.rs : 1;
    return {line_at(m, p.b, l, trans) + p.lane * by, PL_LANES * by};
}

/* How many of a line's n entries are a lane's. */
static __device__ __forceinline__ int64_t entries_of(int64_t n, int lane)
{
    return (n - lane + PL_LANES - 1) / PL_LANES;
}

/* ---- picked lines ------------------------------------------------------------------------------- */

/* A lane's entries of line l of M <- M + g; the sum of their magnitudes. */
template <int M_FORMAT, int G_FORMAT>
static __device__ __forceinline__ double gather(const pl_args_pick_lines &a, const place &p, double grad)
{
    constexpr int N = ahead<M_FORMAT>;
    walk M = walk_of(a.M, p, p.l, a.trans), G = walk_of(a.G, p, p.l, a.trans);
    double sum = 0;
    for (int64_t left = entries_of(a.trans ? a.M.rows : a.M.cols, p.lane); left > 0; left -= N) {
        decltype(load<M_FORMAT>(a.M, 0)) m[N];
        decltype(load<G_FORMAT>(a.G, 0)) g[N];
#pragma unroll
        for (int u = 0; u < N; u++)
            if (u < left)
                m[u] = load<M_FORMAT>(a.M, M.at + u * M.by), g[u] = load<G_FORMAT>(a.G, G.at + u * G.by);
#pragma unroll
        for (int u = 0; u < N; u++)
            if (u < left)
                sum += fabs(store<M_FORMAT>(a.M, M.at + u * M.by, (double)m[u] + grad * (double)g[u]));
        M.at += N * M.by, G.at += N * G.by;
    }
    return sum;
}

static __device__ __forceinline__ double gather_any(const pl_args_pick_lines &a, const place &p, double grad)
{
    if (a.M.dtype == POLAR_DTYPE_F32 && a.G.dtype == POLAR_DTYPE_F32)
        return gather<POLAR_DTYPE_F32, POLAR_DTYPE_F32>(a, p, grad);
    if (a.M.dtype == POLAR_DTYPE_F32 && a.G.dtype == POLAR_DTYPE_BF16)
        return gather<POLAR_DTYPE_F32, POLAR_DTYPE_BF16>(a, p, grad);
    return gather<ANY, ANY>(a, p, grad);
}

/* M <- M + g, F = the lines' sizes. */
template <int CAPACITY>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    line_sizes_kernel(const __grid_constant__ call_table<pl_args_pick_lines, CAPACITY> table)
{
    __shared__ double lanes[LINES][PL_LANES + 1];
    const place p = find(table);
    const pl_args_pick_lines &a = table.call[p.call];
    const double *live = pl_cuda_live(a.live, p.b);
    const int warp = threadIdx.x / PL_LANES, lane = threadIdx.x % PL_LANES;
    if (live[PL_LIVE_SKIP] != 0) return; /* the same for the whole block */
    lanes[p.l - p.first][p.lane] = p.l < a.F.cols ? gather_any(a, p, live[PL_LIVE_GRAD]) : 0;
    __syncthreads();
    double sum = lanes[warp][lane]; /* pl_lanes_fold with one lane per thread */
    for (int half = PL_LANES / 2; half > 0; half /= 2) sum += __shfl_down_sync(FULL, sum, half);
    if (lane == 0 && p.first + warp < a.F.cols)
        ((double *)a.F.data)[p.b * a.F.bs + p.first + warp] = pl_line_size(sum);
}

/* The first entry of each line of D = whether it is picked, F has the sizes until all are compared: a warp a
 * line. */
template <int CAPACITY>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    compare_lines_kernel(const __grid_constant__ call_table<pl_args_pick_lines, CAPACITY> table)
{
    const place p = find(table);
    const pl_args_pick_lines &a = table.call[p.call];
    const int lane = threadIdx.x % PL_LANES;
    const int64_t l = p.first + threadIdx.x / PL_LANES;
    if (pl_cuda_live(a.live, p.b)[PL_LIVE_SKIP] != 0 || l >= a.F.cols) return;
    const double *F = (const double *)a.F.data + p.b * a.F.bs;
    int64_t before = pl_lines_before(F, a.F.cols, l, lane, PL_LANES);
    for (int half = PL_LANES / 2; half > 0; half /= 2) before += __shfl_down_sync(FULL, before, half);
    if (lane == 0) pl_cuda_put<double>(a.D, line_at(a.D, p.b, l, a.trans), before < a.count ? 1 : 0);
}

/* A lane's entries of line l: D = M and M <- beta1 M, or D = 0. */
template <int FORMAT>
static __device__ __forceinline__ void take(const pl_args_pick_lines &a, const place &p, bool picked,
                                            double beta1)
{
    constexpr int N = ahead<FORMAT>;
    walk M = walk_of(a.M, p, p.l, a.trans), D = walk_of(a.D, p, p.l, a.trans);
    for (int64_t left = entries_of(a.trans ? a.M.rows : a.M.cols, p.lane); left > 0; left -= N) {
        decltype(load<FORMAT>(a.M, 0)) m[N];
#pragma unroll
        for (int u = 0; u < N; u++) m[u] = picked && u < left ? load<FORMAT>(a.M, M.at + u * M.by) : 0;
#pragma unroll
        for (int u = 0; u < N; u++)
            if (u < left) {
                store<FORMAT>(a.D, D.at + u * D.by, m[u]);
                if (picked) store<FORMAT>(a.M, M.at + u * M.by, beta1 * (double)m[u]);
            }
        M.at += N * M.by, D.at += N * D.by;
    }
}

/* F and D from what D's first entries say; M loses. */
template <int CAPACITY>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    take_lines_kernel(const __grid_constant__ call_table<pl_args_pick_lines, CAPACITY> table)
{
    __shared__ double picked[LINES];
    const place p = find(table);
    const pl_args_pick_lines &a = table.call[p.call];
    const double *live = pl_cuda_live(a.live, p.b);
    const int64_t mine = p.first + threadIdx.x;
    if (live[PL_LIVE_SKIP] != 0) return;
    if (threadIdx.x < LINES && mine < a.F.cols) {
        picked[threadIdx.x] = pl_cuda_get<double>(a.D, line_at(a.D, p.b, mine, a.trans));
        ((double *)a.F.data)[p.b * a.F.bs + mine] = picked[threadIdx.x];
    }
    __syncthreads();
    if (p.l >= a.F.cols) return;
    const bool taken = picked[p.l - p.first] != 0;
    if (a.M.dtype == POLAR_DTYPE_F32 && a.D.dtype == POLAR_DTYPE_F32)
        take<POLAR_DTYPE_F32>(a, p, taken, live[PL_LIVE_BETA1]);
    else take<ANY>(a, p, taken, live[PL_LIVE_BETA1]);
}

/* ---- moved lines -------------------------------------------------------------------------------- */

/* How many of the first `lines` of F are picked, and of those before line `first`: every warp counts for
 * itself. */
static __device__ __forceinline__ void count_picked(const double *F, int64_t lines, int64_t first,
                                                    int64_t *all, int64_t *before)
{
    const int64_t lane = threadIdx.x % PL_LANES;
    *all = *before = 0;
#pragma unroll 4
    for (int64_t k = 0; k < lines; k += PL_LANES) {
        const bool picked = k + lane < lines && F[k + lane] > 0;
        *all += __popc(__ballot_sync(FULL, picked));
        *before += __popc(__ballot_sync(FULL, picked && k + lane < first));
    }
}

/* A lane's entries: line `to` of Y = line `from` of X, or x where `from` is none. */
template <int FORMAT>
static __device__ __forceinline__ void move(const pl_args_move_lines &a, const place &p, int64_t to,
                                            int64_t from, double x)
{
    constexpr int N = ahead<FORMAT>;
    walk Y = walk_of(a.Y, p, to, a.trans), X = walk_of(a.X, p, from, a.trans);
    for (int64_t left = entries_of(a.trans ? a.Y.rows : a.Y.cols, p.lane); left > 0; left -= N) {
        decltype(load<FORMAT>(a.X, 0)) y[N];
#pragma unroll
        for (int u = 0; u < N; u++) {
            y[u] = x;
            if (from >= 0 && u < left) y[u] = load<FORMAT>(a.X, X.at + u * X.by);
        }
#pragma unroll
        for (int u = 0; u < N; u++)
            if (u < left) store<FORMAT>(a.Y, Y.at + u * Y.by, y[u]);
        Y.at += N * Y.by, X.at += N * X.by;
    }
}

/* The block's lines of F: each that is picked is moved. Of Y each line is written once: without `back` those
 * that none is moved to are the last ones, and their numbers' threads write them. */
template <int FORMAT>
static __device__ __forceinline__ void move_all(const pl_args_move_lines &a, const place &p)
{
    const double *F = (const double *)a.F.data + p.b * a.F.bs;
    const int64_t lines = a.F.cols, lane = threadIdx.x % PL_LANES;
    const pl_mat &few = a.back ? a.X : a.Y;
    const int64_t most = a.trans ? few.cols : few.rows;
    int64_t all, before;
    count_picked(F, a.back && p.first < lines ? p.first : lines, p.first, &all, &before);
    const unsigned near =
        __ballot_sync(FULL, lane < LINES && p.first + lane < lines && F[p.first + lane] > 0);
    const int mine = (int)(p.l - p.first);
    const int64_t rank = before + __popc(near & ((1u << mine) - 1));
    const bool moves = (near >> mine & 1) && rank < most;
    if (!a.back) {
        if (moves) move<FORMAT>(a, p, rank, p.l, 0);
        if (p.l >= all && p.l < most) move<FORMAT>(a, p, p.l, -1, 0);
    } else if (p.l < lines) {
        const bool looks = a.X.rows * a.X.cols > 0;
        const double x = looks ? pl_line_empty(pl_cuda_get<double>(a.X, pl_cuda_base(a.X, p.b))) : 0;
        move<FORMAT>(a, p, p.l, moves ? rank : -1, x);
    }
}

template <int CAPACITY>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    move_lines_kernel(const __grid_constant__ call_table<pl_args_move_lines, CAPACITY> table)
{
    const place p = find(table);
    const pl_args_move_lines &a = table.call[p.call];
    if (a.X.dtype == POLAR_DTYPE_F32 && a.Y.dtype == POLAR_DTYPE_F32) move_all<POLAR_DTYPE_F32>(a, p);
    else move_all<ANY>(a, p);
}

/* ---- launches ----------------------------------------------------------------------------------- */

/* Lines of a matrix that some block looks at. */
static int64_t lines_of(const pl_args_pick_lines &a)
{
    return a.M.rows > 0 && a.M.cols > 0 ? a.F.cols : 0;
}

static int64_t lines_of(const pl_args_move_lines &a)
{
    const int64_t there = a.trans ? a.Y.cols : a.Y.rows;
    return a.Y.rows == 0 || a.Y.cols == 0 ? 0 : there > a.F.cols ? there : a.F.cols;
}

/* Returns the number of blocks. */
template <class CALL, int CAPACITY>
static uint32_t fill(call_table<CALL, CAPACITY> *table, const CALL *call, int count)
{
    int64_t blocks = 0;
    table->count = count;
    for (int i = 0; i < count; i++) {
        table->call[i] = call[i];
        table->first[i] = (uint32_t)blocks;
        blocks += batch_of(call[i]) * ((lines_of(call[i]) + LINES - 1) / LINES);
    }
    table->first[count] = (uint32_t)blocks;
    return (uint32_t)blocks;
}

template <int CAPACITY> static void picks(cudaStream_t stream, const pl_args_pick_lines *call, int count)
{
    call_table<pl_args_pick_lines, CAPACITY> table;
    const uint32_t blocks = fill(&table, call, count);
    if (!blocks) return;
    line_sizes_kernel<CAPACITY><<<blocks, THREADS, 0, stream>>>(table);
    compare_lines_kernel<CAPACITY><<<blocks, THREADS, 0, stream>>>(table);
    take_lines_kernel<CAPACITY><<<blocks, THREADS, 0, stream>>>(table);
}

template <int CAPACITY> static void moves(cudaStream_t stream, const pl_args_move_lines *call, int count)
{
    call_table<pl_args_move_lines, CAPACITY> table;
    const uint32_t blocks = fill(&table, call, count);
    if (blocks) move_lines_kernel<CAPACITY><<<blocks, THREADS, 0, stream>>>(table);
}

void pl_cuda_launch_picks(cudaStream_t stream, const pl_cuda_multi_lines *list)
{
    if (list->picks <= FEW) picks<FEW>(stream, list->pick, list->picks);
    else picks<PL_CUDA_LINES_CALLS>(stream, list->pick, list->picks);
}

void pl_cuda_launch_moves(cudaStream_t stream, const pl_cuda_multi_lines *list)
{
    if (list->moves <= FEW) moves<FEW>(stream, list->move, list->moves);
    else moves<PL_CUDA_LINES_CALLS>(stream, list->move, list->moves);
}
