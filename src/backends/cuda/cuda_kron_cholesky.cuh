/* cuda_kron_cholesky.cuh -- kron_sweep by Cholesky factors, on Hopper: a cluster of RANKS blocks a matrix.
 *
 *     X = K Q                 transposed: a column of it is a row here, and of Y
 *     Y                       the columns of X by descending q.x, each times a power of two
 *     until Y is orthonormal  S = Y^T Y; S = R^T R; Y <- Y R^-1
 *     Q                       Y (1 - F), F the upper triangle of E = S - 1, half of its diagonal
 *
 * QR is unique up to signs, and does not see positive factors of columns, so this is Householder's Q, R's
 * diagonal being positive. All but the triangles' blocks of 64 is products. Sides are filled up to N, a
 * multiple of 64, with zeros, and S with ones.
 *
 * Why it ends well. Let u = 2^-53.
 *  - Sums and Cholesky leave R^T R = S + D, |D_ij| <= about n u |y_i| |y_j| at worst. A pivot, what is
 *    left of S_jj, is known to that, and what it is divided into spoils later pivots by D^2 / pivot. Where it
 *    is not above 64 n u S_jj, of which D may be a 64th, S_jj itself is taken in its place: R^T R = S + D + a
 *    diagonal. That spoils nothing, and leaves as column j the rest that it has beside those before it, below
 *    sqrt(64 n u) |y_j|. The next round sees that rest in its own units.
 *  - Afterwards E = R^-T (S - R^T R) R^-1, whose norm is below |D| cond(Y)^2: small where cond(Y) is, and
 *    where it is not, measured by the next S.
 *  - Whatever the pivots were, Y_old = Y R + rounding of u a column, as long as Y R^-1 is made by
 *    substitution. Inside blocks of 8 R's inverse is multiplied with and corrected once by the residual. So
 *    K Q = Q R' with R' upper triangular, to rounding, after each round.
 *  - |E| <= 1/4: no pivot is below 1/2, the next Y has |E| of rounding alone, and is Q.
 *  - |E| <= 2^-26: (1 - F)^T (1 + E) (1 - F) = 1 + terms in E^2, at most 3 |E|^2 < 7 u: no Cholesky.
 *  - Not finite, or not there after MOST_ROUNDS (columns that are exactly dependent): Householder's
 *    reflections (cuda_kron_sweep.cuh) of the same X.
 *
 * Invariants
 *  1. Sums have an order of the shape alone; whatever is decided is decided by sums that all blocks of a
 *     cluster make alike.
 *  2. Blocks meet at barriers of the cluster only. What another block wrote is read behind one, past the
 *     first cache (copies, __ldcg).
 *  3. In a round entry i of all of Y's columns belongs to one block, which needs no other's; the barriers are
 *     for S.
 *  4. In step k rows 0 .. k - 1 of R are complete, block k of the diagonal lacks no product, and blocks
 *     behind it lack those with rows from k on.
 */
#ifndef PL_CUDA_KRON_CHOLESKY_CUH
#define PL_CUDA_KRON_CHOLESKY_CUH

#include "cuda_kron_triangle.cuh"
#include "cuda_table.cuh"

#define MOST_ROUNDS 5

static __host__ __device__ inline int64_t filled_side(int64_t n)
{
    return (n + BAND - 1) / BAND * BAND;
}

/* Doubles of scratch memory a matrix, an even number. */
static __host__ __device__ inline int64_t quick_room(const pl_args_kron_sweep *a)
{
    const int64_t n = a->Q.rows, N = filled_side(n);
    return (3 * N * N + 3 * N + MOST_RANKS + N / 2 + a->V.rows * a->V.cols + 1) / 2 * 2;
}

/* Doubles of shared memory. */
template <int NT> static __host__ __device__ constexpr int quick_shared()
{
    return STAGES_AT + product_shared<NT>();
}

/* Doubles of it that reflections take, their panel aside. */
static __host__ __device__ constexpr int quick_reflecting()
{
    return gram_warps(QUICK_WARPS) * 256 + 256 + REFLECTED * T_ROW + REFLECTED;
}

/* ---- X, and Y in its order -------------------------------------------------------------------------- */

/* Q^T in S, in double; 32 x 32 entries a warp. */
template <int RANKS> __device__ void turn_basis(const pl_args_kron_sweep &a, const quick_work &s)
{
    const int n = s.n, N = s.N, across = N / 32;
    double *tile = block_there() + s.warp * 32 * 33; /* nothing else is there yet */
#pragma unroll 1
    for (int e = s.rank + RANKS * s.warp; e < across * across; e += RANKS * QUICK_WARPS) {
        const int i0 = e / across * 32, j0 = e % across * 32;
#pragma unroll 8
        for (int i = 0; i < 32; i++)
            tile[i * 33 + s.lane] =
                i0 + i < n && j0 + s.lane < n ? pl_cuda_at<double>(a.Q, s.b, i0 + i, j0 + s.lane) : 0;
        __syncwarp();
#pragma unroll 8
        for (int j = 0; j < 32; j++) s.S[(int64_t)(j0 + j) * N + i0 + s.lane] = tile[s.lane * 33 + j];
        __syncwarp();
    }
}

/* K as products read it: where it lies, or a copy in Y. */
template <int RANKS>
__device__ const double *plain_factor(int64_t *row, const pl_args_kron_sweep &a, const quick_work &s)
{
    const int n = s.n, N = s.N;
    const double *there = (const double *)a.K.data + pl_cuda_base(a.K, s.b);
    *row = a.K.rs;
    if (a.K.dtype == POLAR_DTYPE_F64 && n == N && a.K.rs % 2 == 0 && (uintptr_t)there % 16 == 0) return there;
    *row = N;
    for (int i = s.rank + RANKS * s.warp; i < N; i += RANKS * QUICK_WARPS)
#pragma unroll 4
        for (int j = s.lane; j < N; j += 32)
            s.Y[(int64_t)i * N + j] = i < n && j < n ? pl_cuda_at<double>(a.K, s.b, i, j) : 0;
    return s.Y;
}

/* X^T = Q^T K^T */
template <int NT, int RANKS>
__device__ __noinline__ void multiply_factor(const quick_work &s, const double *K, int64_t k_row)
{
    const int N = s.N, across = (N + 32 * NT - 1) / (32 * NT);
#pragma unroll 1
    for (int e = s.rank; e < N / BAND * across; e += RANKS) {
        const int row = e / across * BAND, col = e % across * 32 * NT;
        double c[2][NT][4] = {};
        long_product<NT, LINES_ALONG>(c, stages_there(), s.S + (int64_t)row * N, N, K + col * k_row, k_row,
                                      N - col, N);
        for_sums<NT>(c, [&](int i, int j, double x, double y) {
            if (col + j < N) *(double2 *)(s.P + (int64_t)(row + i) * N + col + j) = make_double2(x, y);
        });
    }
}

/* value[j] = q_j.x_j, a warp a column. */
template <int RANKS> __device__ void rows_rayleigh(const quick_work &s)
{
#pragma unroll 1
    for (int j = s.rank + RANKS * s.warp; j < s.n; j += RANKS * QUICK_WARPS) {
        const double2 *q = (const double2 *)(s.S + (int64_t)j * s.N),
                      *x = (const double2 *)(s.P + (int64_t)j * s.N);
        double sum = 0;
#pragma unroll 6
        for (int i = s.lane; i < s.N / 2; i += 32) {
            const double2 l = __ldcg(q + i), r = __ldcg(x + i);
            sum = fma(l.x, r.x, sum), sum = fma(l.y, r.y, sum);
        }
        sum = lanes_sum(sum);
        if (s.lane == 0) s.value[j] = sum;
    }
}

/* To `to`, rows of `row` doubles: the columns of X in their order, of entries up to 1 or 2. A column of zeros
 * takes nothing from those after it, whatever stands for it: with `old` its column of the old Q, which lies
 * in S. */
template <int RANKS>
__device__ void sort_columns(const quick_work &s, double *to, int row, int rows, bool old)
{
#pragma unroll 1
    for (int r = s.rank + RANKS * s.warp; r < rows; r += RANKS * QUICK_WARPS) {
        double top = 0;
        const int64_t from = (int64_t)(r < s.n ? __ldcg(s.place + r) : 0) * s.N;
        const double *x = s.P + from;
#pragma unroll 8
        for (int i = s.lane; i < s.n; i += 32) top = fmax(top, fabs(__ldcg(x + i)));
        for (int half = 16; half > 0; half /= 2) top = fmax(top, __shfl_xor_sync(PL_WARP_LANES, top, half));
        if (top == 0 && old) x = s.S + from;
        const int power = top > 0 ? -ilogb(top) : 0, part = power / 2;
        const double by = r < s.n ? ldexp(1.0, part) : 0, and_by = ldexp(1.0, power - part);
#pragma unroll 8
        for (int i = s.lane; i < row; i += 32)
            to[(int64_t)r * row + i] = i < s.n ? __ldcg(x + i) * by * and_by : 0;
    }
}

/* ---- S ---------------------------------------------------------------------------------------------- */

/* On and above the diagonal S = Y^T Y, zeros below it in its blocks; of the diagonal half of S_jj - 1.
 * Returns this block's part of |E|^2, for its first thread. */
template <int NT, int RANKS> __device__ __noinline__ double square(const quick_work &s)
{
    const int N = s.N, across = (N + 32 * NT - 1) / (32 * NT);
    double sum = 0;
#pragma unroll 1
    for (int e = 0, turn = 0; e < N / BAND * across; e++) {
        const int row = e / across * BAND, col = e % across * 32 * NT;
        if (col + 32 * NT <= row || turn++ % RANKS != s.rank) continue;
        double c[2][NT][4] = {};
        long_product<NT, LINES_ALONG>(c, stages_there(), s.Y + (int64_t)row * N, N, s.Y + (int64_t)col * N, N,
                                      N - col, N);
        for_sums<NT>(c, [&](int i, int j, double x, double y) {
            const int r = row + i;
            double entry[2] = {x, y};
            if (col + j >= N || col + j < row) return;
#pragma unroll
            for (int q = 0; q < 2; q++) {
                const int at = col + j + q;
                if (at == r) {
                    if (r >= s.n) entry[q] = 1;
                    s.pivot[r] = s.weight[r] = entry[q];
                    entry[q] -= 1, sum = fma(entry[q], entry[q], sum), entry[q] /= 2;
                } else if (at > r) sum = fma(2 * entry[q], entry[q], sum);
                else entry[q] = 0;
            }
            *(double2 *)(s.S + (int64_t)r * N + col + j) = make_double2(entry[0], entry[1]);
        });
    }
    sum = lanes_sum(sum);
    __syncthreads();
    if (s.lane == 0) weights_there()[s.warp] = sum;
    __syncthreads();
    for (int w = 1; threadIdx.x == 0 && w < QUICK_WARPS; w++) sum += weights_there()[w];
    return sum;
}

/* ---- S = R^T R, Y <- Y R^-1 ------------------------------------------------------------------------- */

/* Rows of block k, columns [col, col + 32 NT) of `of` (S or Y): less products with the rows before them,
 * times R_kk^-T, into the tile in shared memory and to their place. */
template <int NT, bool CORRECTED>
__device__ __noinline__ void eliminate_tile(const quick_work &s, double *of, int k, int col)
{
    constexpr int ROW = 32 * NT + 4;
    const int N = s.N;
    double c[2][NT][4] = {}, *at = of + (int64_t)k * BAND * N + col, *tile = stages_there();
    long_product<NT, LINES_ACROSS>(c, stages_there(), s.S + k * BAND, N, of + col, N, N - col, k * BAND);
    __syncthreads();
    for_sums<NT>(c, [&](int i, int j, double x, double y) {
        const double2 from =
            col + j < N ? __ldcg((const double2 *)(at + (int64_t)i * N + j)) : make_double2(0, 0);
        *(double2 *)(tile + i * ROW + j) = make_double2(from.x - x, from.y - y);
    });
    __syncthreads();
#pragma unroll 1
    for (int strip = s.warp; strip < 4 * NT; strip += QUICK_WARPS)
        substitute<CORRECTED>(s, tile + 8 * strip, ROW);
    __syncthreads();
#pragma unroll
    for (int r = 0; r < 4 * NT; r++) {
        const int e = threadIdx.x + r * CREW, i = e / (16 * NT), j = e % (16 * NT) * 2;
        if (col + j < N) *(double2 *)(at + (int64_t)i * N + j) = *(const double2 *)(tile + i * ROW + j);
    }
}

/* The tile is R_ki: block i of the diagonal loses R_ki^T R_ki. */
static __device__ __noinline__ void reduce_diagonal(const quick_work &s, int i)
{
    double c[2][2][4] = {}, *at = s.S + (int64_t)i * BAND * (s.N + 1);
    add_products<2, LINES_ACROSS>(c, stages_there(), BAND + 4, stages_there(), BAND + 4, BAND);
    for_sums<2>(c, [&](int r, int j, double x, double y) {
        const double lost[2] = {x, y};
#pragma unroll
        for (int q = 0; q < 2; q++) {
            double *to = j + q > r ? at + (int64_t)r * s.N + j + q : s.pivot + i * BAND + r;
            if (j + q >= r) *to = __ldcg(to) - lost[q];
        }
    });
}

/* Columns of the tile that lies in shared memory are rows of Q from `first` on. */
template <int NT>
__device__ __forceinline__ void put_tile(const pl_args_kron_sweep &a, const quick_work &s, int k, int first)
{
    for (int e = threadIdx.x; e < BAND * 32 * NT; e += CREW) {
        const int j = k * BAND + e % BAND, i = first + e / BAND;
        if (i < s.n && j < s.n)
            pl_cuda_set<double>(a.Q, s.b, i, j, stages_there()[e % BAND * (32 * NT + 4) + e / BAND]);
    }
}

/* Q, too, in the last round. */
template <int NT, int RANKS>
__device__ void eliminate(const pl_args_kron_sweep &a, const quick_work &s, bool last)
{
    const int N = s.N, blocks = N / BAND;
#pragma unroll 1
    for (int k = 0; k < blocks; k++) {
        factor_block(s, k);
#pragma unroll 1
        for (int i = k + 1 + s.rank; i < blocks; i += RANKS) {
            eliminate_tile<2, false>(s, s.S, k, i * BAND);
            reduce_diagonal(s, i);
        }
        asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#pragma unroll 1
        for (int col = s.rank * 32 * NT; col < N; col += RANKS * 32 * NT) {
            eliminate_tile<NT, true>(s, s.Y, k, col);
            if (last) put_tile<NT>(a, s, k, col);
        }
        asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    }
    ranks_sync<RANKS>();
}

/* Q = Y (1 - F) */
template <int NT, int RANKS>
__device__ __noinline__ void finish(const pl_args_kron_sweep &a, const quick_work &s)
{
    const int N = s.N, across = (N + 32 * NT - 1) / (32 * NT), all = N / BAND * across;
#pragma unroll 1
    for (int e = s.rank; e < all; e += RANKS) {
        const int k = N / BAND - 1 - e / across, col = e % across * 32 * NT;
        double c[2][NT][4] = {};
        long_product<NT, LINES_ACROSS>(c, stages_there(), s.S + k * BAND, N, s.Y + col, N, N - col,
                                       (k + 1) * BAND);
        __syncthreads();
        for_sums<NT>(c, [&](int i, int j, double x, double y) {
            if (col + j >= N) return;
            const double2 from = __ldcg((const double2 *)(s.Y + (int64_t)(k * BAND + i) * N + col + j));
            *(double2 *)(stages_there() + i * (32 * NT + 4) + j) = make_double2(from.x - x, from.y - y);
        });
        __syncthreads();
        put_tile<NT>(a, s, k, col);
    }
}

/* ---- the kernel ------------------------------------------------------------------------------------- */

/* Q by reflections, from X. */
template <int NT, int RANKS>
__device__ __noinline__ void reflect(const pl_args_kron_sweep &a, const quick_work &q)
{
    double *shared = block_there();
    sweep_work s = q;
    const int n = s.n;
    s.Z = q.Y, s.X = q.S, s.T = q.P;
    s.t = shared, s.beta = s.t + REFLECTED * T_ROW, s.gram = s.beta + REFLECTED, s.parts = s.gram + 256;
    s.row = (int)panel_row(n), s.panel = shared + quick_reflecting();
    if (REFLECTED * s.row > quick_shared<NT>() - quick_reflecting())
        s.panel = q.P + panels_of(n) * REFLECTED * REFLECTED + (int64_t)s.rank * REFLECTED * s.row;
    sort_columns<RANKS>(q, s.Z, n, n, false);
    ranks_sync<RANKS>();
    factorise<QUICK_WARPS, RANKS>(s);
    form<QUICK_WARPS, RANKS>(a, s);
}

/* What a call does with V's lines: moves them; or keeps them, or leaves them, since those of the other side
 * move in the same launch, and both are moved behind it. */
enum { LINES_MOVE, LINES_KEEP, LINES_LEAVE };

/* Of matrix b: the order of its columns, whose first is -1 where they are not finite; V as it was. */
static __device__ __forceinline__ int *place_of(const pl_args_kron_sweep &a, double *scratch, int64_t b)
{
    const int64_t N = filled_side(a.Q.rows);
    return (int *)(scratch + b * quick_room(&a) + 3 * N * N + 3 * N + MOST_RANKS);
}

static __device__ __forceinline__ double *kept_lines(const pl_args_kron_sweep &a, double *scratch, int64_t b)
{
    return (double *)place_of(a, scratch, b) + filled_side(a.Q.rows) / 2;
}

template <int NT, int RANKS>
__device__ __forceinline__ void sweep_matrix(const pl_args_kron_sweep &a, int64_t b, double *scratch,
                                             int lines)
{
    quick_work s;
    s.b = b, s.rank = (int)(blockIdx.x % RANKS), s.n = (int)a.Q.rows;
    s.warp = threadIdx.x / 32, s.lane = threadIdx.x % 32;
    const double *live = pl_cuda_live(a.live, s.b);
    if (!pl_kron_sweep_due(live, a.every, a.after)) return;
    const int n = s.n, N = (int)filled_side(n);
    const int64_t entries = (int64_t)N * N;
    s.N = N, s.Y = scratch + s.b * quick_room(&a), s.P = s.Y + entries, s.S = s.P + entries;
    s.pivot = s.S + entries, s.weight = s.pivot + N, s.value = s.weight + N, s.tops = s.value + N;
    s.place = place_of(a, scratch, b), s.V = kept_lines(a, scratch, b);
    int64_t k_row;
    turn_basis<RANKS>(a, s);
    const double *K = plain_factor<RANKS>(&k_row, a, s);
    ranks_sync<RANKS>();
    multiply_factor<NT, RANKS>(s, K, k_row);
    ranks_sync<RANKS>();
    rows_rayleigh<RANKS>(s);
    if (lines != LINES_LEAVE) keep_lines<QUICK_WARPS, RANKS>(a, s);
    ranks_sync<RANKS>();
    double trace;
    if (!values_finite<QUICK_WARPS, RANKS>(&trace, a, s)) {
        if (s.rank == 0 && threadIdx.x == 0) s.place[0] = -1;
        return;
    }
    order_columns<QUICK_WARPS, RANKS>(s);
    ranks_sync<RANKS>();
    put_factors<QUICK_WARPS, RANKS>(a, s, live, trace);
    if (lines == LINES_MOVE) move_lines<QUICK_WARPS, RANKS>(a, s);
    sort_columns<RANKS>(s, s.Y, N, N, true);
    ranks_sync<RANKS>();
#pragma unroll 1
    for (int round = 0; round < MOST_ROUNDS; round++) {
        double off = square<NT, RANKS>(s);
        if (threadIdx.x == 0) s.tops[s.rank] = off;
        ranks_sync<RANKS>();
        off = 0;
        for (int q = 0; q < RANKS; q++) off += __ldcg(s.tops + q);
        if (off <= 0x1p-52) return finish<NT, RANKS>(a, s);
        if (!(off < INFINITY)) break;
        const bool last = off <= 0x1p-4;
        eliminate<NT, RANKS>(a, s, last);
        if (last) return;
    }
    reflect<NT, RANKS>(a, s);
}

/* Calls of one launch, and the block of each call's first matrix. */
template <int CAPACITY> struct sweep_table {
    int count;
    uint32_t first[CAPACITY + 1];
    double *scratch[CAPACITY];
    uint8_t lines[CAPACITY];
    pl_args_kron_sweep call[CAPACITY];
};

/* The next launch's blocks come where there is room (and wait for this one before they end: else whatever is
 * behind them would not). */
template <int NT, int RANKS, int CAPACITY>
__global__ void __launch_bounds__(CREW, 2)
    quick_sweep_kernel(const __grid_constant__ sweep_table<CAPACITY> table)
{
    const int i = call_of_block(table.first, table.count);
    let_next_begin();
    sweep_matrix<NT, RANKS>(table.call[i], (blockIdx.x - table.first[i]) / RANKS, table.scratch[i],
                            table.lines[i]);
    wait_for_those_before();
}

#define MOVED_ROWS 32 /* of a block */

/* Calls 2 p and 2 p + 1 have changed the two sides of one V, of which the first kept what was in it: its rows
 * and columns change places. `first` counts blocks of pairs. */
template <int CAPACITY>
__global__ void __launch_bounds__(CREW) move_both_kernel(const __grid_constant__ sweep_table<CAPACITY> table)
{
    const int p = call_of_block(table.first, table.count);
    const pl_args_kron_sweep &a = table.call[2 * p], &c = table.call[2 * p + 1];
    const int64_t rows = a.V.rows, cols = a.V.cols, each = (rows + MOVED_ROWS - 1) / MOVED_ROWS,
                  at = blockIdx.x - table.first[p], b = at / each, from = at % each * MOVED_ROWS;
    if (!pl_kron_sweep_due(pl_cuda_live(a.live, b), a.every, a.after)) return;
    const int *place = place_of(a, table.scratch[2 * p], b),
              *other = place_of(c, table.scratch[2 * p + 1], b);
    const int *down = a.trans ? other : place, *across = a.trans ? place : other;
    const double *V = kept_lines(a, table.scratch[2 * p], b);
    const bool moves = down[0] >= 0, shifts = across[0] >= 0;
    for (int64_t i = from + threadIdx.x / 32; i < rows && i < from + MOVED_ROWS; i += CREW / 32) {
        const double *line = V + (moves ? down[i] : i) * cols;
#pragma unroll 4
        for (int64_t j = threadIdx.x % 32; j < cols; j += 32)
            pl_cuda_set<double>(a.V, b, i, j, line[shifts ? across[j] : j]);
    }
}

#endif
