/* cuda_norm.cu -- Frobenius norms in the order of math/lane_sum_elem.h: one warp lane per lane, so the bits
 * are those of `ref`; and matrices over their own norms.
 *
 * Two launches: sums and largest magnitudes of lines (a row a warp, or eight columns a block), each matrix's
 * fold of them; or, where the matrix is wanted over its norm, the pass that divides, each of whose blocks
 * does the fold. Squares of what is in f32 or less neither over- nor underflow in double, nor do their sums,
 * so the power of two that scales them may come last, and no bit is another. In f64 and of rounded terms it
 * comes first, and the largest magnitudes in a launch of their own.
 */
#include "cuda_kernels.h"
#include "cuda_launch.cuh"
#include "cuda_norm.cuh"
#include "math/bf16_elem.h"
#include "math/spectrum_elem.h"

/* Magnitudes are non-negative, so their bits order like the numbers, and the maximum does not depend on who
 * comes first. A NaN is passed over, as fmax does: the sum will have it. */
static __global__ void amax_kernel(pl_mat X, unsigned long long *amax)
{
    for (int64_t b = blockIdx.y; b < X.batch; b += gridDim.y) {
        unsigned long long top = 0;
        for (int64_t i = blockIdx.x; i < X.rows; i += gridDim.x)
            for (int64_t j = threadIdx.x; j < X.cols; j += blockDim.x) {
                double x = fabs(pl_cuda_get<double>(X, b * X.bs + i * X.rs + j));
                unsigned long long bits = (unsigned long long)__double_as_longlong(x);
                if (x == x && bits > top) top = bits;
            }
        for (int half = PL_LANES / 2; half > 0; half /= 2) {
            unsigned long long other = __shfl_down_sync(FULL, top, half);
            top = other > top ? other : top;
        }
        if (threadIdx.x % PL_LANES == 0 && top) atomicMax(&amax[b], top);
    }
}

/* Of op(X), m x n: row i's element j lies at i by_row + j by_col. */
static __global__ void rows_kernel(pl_mat X, int64_t m, int64_t n, int64_t by_row, int64_t by_col,
                                   const unsigned long long *amax, double *sums, int limit, int rounded)
{
    int lane = threadIdx.x % PL_LANES, warp = threadIdx.x / PL_LANES;
    for (int64_t b = blockIdx.y; b < X.batch; b += gridDim.y) {
        double s = pl_norm_scale(__longlong_as_double((long long)amax[b]), limit);
        for (int64_t i = (int64_t)blockIdx.x * WARPS + warp; i < m; i += (int64_t)gridDim.x * WARPS) {
            double sum = 0;
            for (int64_t j = lane; j < n; j += PL_LANES) {
                double x = pl_cuda_get<double>(X, b * X.bs + i * by_row + j * by_col) * s;
                if (rounded) x = pl_bf16_round_f64(x);
                sum += x * x;
            }
            sum = warp_fold(sum);
            if (lane == 0) sums[b * m + i] = sum;
        }
    }
}

/* ---- rows, or columns, in one pass -------------------------------------------------------------- */

/* Rows of X: sums of squares, unscaled; of the rows of each block the largest magnitude. */
template <polar_dtype DTYPE> static __global__ void rows_and_tops_kernel(pl_mat X, double *sums, double *tops)
{
    wait_for_those_before();
    for (int64_t b = blockIdx.y; b < X.batch; b += gridDim.y)
        rows_of_block<DTYPE>(X, b, blockIdx.x, gridDim.x, sums, tops + b * gridDim.x + blockIdx.x);
}

#define STRIP      WARPS /* columns of a block: 32 bytes of a row in f32; a warp folds each */
#define AHEAD_DOWN 16

/* The same of columns: element i belongs to lane i mod 32, a thread each. */
template <polar_dtype DTYPE>
static __global__ void columns_and_tops_kernel(pl_mat X, double *sums, double *tops)
{
    __shared__ double lanes[STRIP][PL_LANES + 1];
    const int column = threadIdx.x % STRIP, lane = threadIdx.x / STRIP, warp = threadIdx.x / PL_LANES;
    X.dtype = DTYPE;
    wait_for_those_before();
    for (int64_t b = blockIdx.y; b < X.batch; b += gridDim.y) {
        float top = 0;
        for (int64_t first = (int64_t)blockIdx.x * STRIP; first < X.cols;
             first += (int64_t)gridDim.x * STRIP) {
            const int64_t at = b * X.bs + first + column, rows = first + column < X.cols ? X.rows : 0;
            double sum = 0;
            for (int64_t i = lane; i < rows; i += AHEAD_DOWN * PL_LANES) {
                float x[AHEAD_DOWN];
#pragma unroll
                for (int k = 0; k < AHEAD_DOWN; k++)
                    x[k] =
                        i + k * PL_LANES < rows ? pl_cuda_get<float>(X, at + (i + k * PL_LANES) * X.rs) : 0;
                add_squares(sum, top, x);
            }
            let_next_begin();
            lanes[column][lane] = sum;
            __syncthreads();
            sum = warp_fold(lanes[warp][threadIdx.x % PL_LANES]);
            if (threadIdx.x % PL_LANES == 0 && first + warp < X.cols) sums[b * X.cols + first + warp] = sum;
            __syncthreads();
        }
        put_top(tops + b * gridDim.x + blockIdx.x, top);
    }
}

/* ---- a matrix's norm from its row sums ---------------------------------------------------------- */

static __global__ void fold_kernel(pl_mat N, norm_parts p)
{
    __shared__ fold_room room;
    begin_early();
    for (int64_t b = blockIdx.x; b < N.batch; b += gridDim.x) {
        fold(room, p, b);
        double *n = (double *)N.data + b * N.bs;
        if (threadIdx.x == 0) n[0] = room.s, n[1] = room.n;
    }
}

/* Blocks for m lines, eight each. */
static dim3 lines_grid(const pl_mat &X, int64_t m)
{
    return dim3(pl_cuda_grid(m, WARPS, 1024), pl_cuda_grid(X.batch, 1, MAX_GRID));
}

template <polar_dtype DTYPE>
static void sum_lines_of(cudaStream_t stream, const pl_mat &X, int64_t trans, dim3 grid, double *sums,
                         double *tops)
{
    start_early(trans ? columns_and_tops_kernel<DTYPE> : rows_and_tops_kernel<DTYPE>, grid, dim3(THREADS), 0,
                stream, X, sums, tops);
}

/* Sums and magnitudes of rows, or columns, in one pass into `scratch`; X is not in f64. */
static norm_parts sum_lines(cudaStream_t stream, const pl_mat &X, int64_t trans, double weight, void *scratch)
{
    const int64_t m = trans ? X.cols : X.rows;
    double *sums = (double *)scratch, *tops = sums + X.batch * m;
    const dim3 grid = lines_grid(X, m);
    if (X.dtype == POLAR_DTYPE_F32) sum_lines_of<POLAR_DTYPE_F32>(stream, X, trans, grid, sums, tops);
    else if (X.dtype == POLAR_DTYPE_F16) sum_lines_of<POLAR_DTYPE_F16>(stream, X, trans, grid, sums, tops);
    else sum_lines_of<POLAR_DTYPE_BF16>(stream, X, trans, grid, sums, tops);
    return {sums, tops, m, grid.x, weight, PL_SCALE_EXP_F32, 1};
}

/* The same in two passes, the scale first: of f64 and of rounded terms. */
static norm_parts sum_scaled_lines(cudaStream_t stream, const pl_args_frob *a, void *scratch)
{
    unsigned long long *amax = (unsigned long long *)scratch;
    double *sums = (double *)scratch + a->X.batch;
    int limit = a->X.dtype == POLAR_DTYPE_F64 ? PL_SCALE_EXP_F64 : PL_SCALE_EXP_F32;
    int64_t m = a->trans ? a->X.cols : a->X.rows, n = a->trans ? a->X.rows : a->X.cols,
            by_row = a->trans ? 1 : a->X.rs, by_col = a->trans ? a->X.rs : 1;
    const dim3 grid = lines_grid(a->X, m);
    cudaMemsetAsync(amax, 0, (size_t)a->X.batch * sizeof *amax, stream);
    amax_kernel<<<grid, THREADS, 0, stream>>>(a->X, amax);
    rows_kernel<<<grid, THREADS, 0, stream>>>(a->X, m, n, by_row, by_col, amax, sums, limit, (int)a->rounded);
    return {sums, (const double *)scratch, m, 1, a->weight, limit, 0}; /* amax's bits are doubles */
}

size_t pl_cuda_frob_scratch(const pl_args_frob *a)
{
    return (size_t)(a->X.batch * (2 * (a->trans ? a->X.cols : a->X.rows) + 1)) * sizeof(double);
}

void pl_cuda_launch_frob(cudaStream_t stream, const pl_args_frob *a, void *scratch)
{
    norm_parts p = a->X.dtype == POLAR_DTYPE_F64 || a->rounded
                       ? sum_scaled_lines(stream, a, scratch)
                       : sum_lines(stream, a->X, a->trans, a->weight, scratch);
    start_early(fold_kernel, dim3(pl_cuda_grid(a->X.batch, 1, MAX_GRID)), dim3(THREADS), 0, stream, a->N, p);
}

/* ---- a matrix over its own norm ----------------------------------------------------------------- */

#define OWN_BLOCKS 264 /* of a matrix: two a multiprocessor of an H200 */

/* Y = X over its norm, matrices as one row each, a thread FOURS times four neighbours at a time; every block
 * folds the row sums for itself.
 *
 * The kernel before this one summed the lines; its blocks have all waited for what made X before they let
 * this one begin: so X is there, and is read before the wait for the sums. It went from the first entry to
 * the last, so this one goes back: what was read last is still in the second cache. */
template <polar_dtype DTYPE, int FOURS>
static __global__ void __launch_bounds__(OWN_THREADS, 2)
    normalise_own_kernel(pl_args_frob_normalise a, norm_parts p)
{
    __shared__ fold_room room;
    const int64_t chunk = (int64_t)4 * FOURS * OWN_THREADS;
    const int64_t last = (a.Y.cols + chunk - 1) / chunk - 1 - blockIdx.x; /* of the block's chunks */
    for (int64_t b = a.Y.batch - 1 - blockIdx.y; b >= 0; b -= gridDim.y) {
        divisor by = {};
        for (int64_t at = last; at >= 0; at -= gridDim.x) {
            float x[FOURS][4];
            const int64_t mine = at * chunk + 4 * threadIdx.x;
#pragma unroll
            for (int k = 0; k < FOURS; k++)
                if (mine + 4 * OWN_THREADS * k < a.Y.cols)
                    get_fresh4<DTYPE>(x[k], a.X, pl_cuda_base(a.X, b) + mine + 4 * OWN_THREADS * k);
            if (at == last) {
                begin_early();
                fold(room, p, b);
                const float s = (float)room.s;
                by = divisor_of(s, pl_norm_or_eps_f32(s, (float)room.n, (float)a.eps));
                double *n = (double *)a.N.data + b * a.N.bs;
                if (a.N.data && blockIdx.x == 0 && threadIdx.x == 0) n[0] = room.s, n[1] = room.n;
            }
#pragma unroll
            for (int k = 0; k < FOURS; k++)
                if (mine + 4 * OWN_THREADS * k < a.Y.cols)
                    put_quotients(a.Y, pl_cuda_base(a.Y, b) + mine + 4 * OWN_THREADS * k, x[k], by);
        }
    }
}

template <polar_dtype DTYPE>
static void normalise_own(cudaStream_t stream, const pl_args_frob_normalise &a, const norm_parts &p)
{
    const int64_t fours = a.Y.cols / 4 / OWN_THREADS; /* of one thread, were there a block a matrix */
    const int few = fours * a.Y.batch <= 4 * OWN_BLOCKS;
    dim3 grid(pl_cuda_grid(a.Y.cols, 4 * (few ? 4 : 8) * OWN_THREADS, OWN_BLOCKS),
              pl_cuda_grid(a.Y.batch, 1, MAX_GRID));
    start_early(few ? normalise_own_kernel<DTYPE, 4> : normalise_own_kernel<DTYPE, 8>, grid,
                dim3(OWN_THREADS), 0, stream, a, p);
}

size_t pl_cuda_frob_normalise_scratch(const pl_args_frob_normalise *a)
{
    pl_args_frob f = {.X = a->X, .trans = a->trans};
    return pl_cuda_frob_scratch(&f) + (size_t)a->X.batch * 2 * sizeof(double);
}

/* What is not in fours and packed, and f64: the two ops. */
void pl_cuda_launch_frob_normalise(cudaStream_t stream, const pl_args_frob_normalise *args, void *scratch)
{
    pl_args_frob_normalise a = *args;
    pl_mat *mats[] = {&a.Y, &a.X};
    const int packed = a.X.rows <= 1 || (a.X.rs == a.X.cols && a.Y.rs == a.Y.cols);
    if (!packed || !pl_cuda_in_fours(mats, 2)) {
        pl_mat N = {.data = scratch,
                    .dtype = POLAR_DTYPE_F64,
                    .batch = a.X.batch,
                    .rows = 1,
                    .cols = 2,
                    .bs = 2,
                    .rs = 2};
        if (a.N.data) N = a.N;
        pl_args_frob f = {.N = N, .X = a.X, .weight = 1, .trans = a.trans};
        pl_args_normalise n = {.Y = a.Y, .X = a.X, .N = N, .eps = a.eps};
        pl_cuda_launch_frob(stream, &f, (double *)scratch + 2 * a.X.batch);
        pl_cuda_launch_normalise(stream, &n);
        return;
    }
    norm_parts p = sum_lines(stream, a.X, a.trans, 1, scratch);
    for (pl_mat *m : mats) m->cols *= m->rows, m->rs = m->cols, m->rows = 1;
    if (a.X.dtype == POLAR_DTYPE_F32) normalise_own<POLAR_DTYPE_F32>(stream, a, p);
    else if (a.X.dtype == POLAR_DTYPE_F16) normalise_own<POLAR_DTYPE_F16>(stream, a, p);
    else normalise_own<POLAR_DTYPE_BF16>(stream, a, p);
}

/* In units of the smallest s among the parts that are not zero. */
static __global__ void join_kernel(pl_mat N, pl_mat M)
{
    const double *m = (const double *)M.data;
    double s = 0, sum = 0;
    for (int64_t b = 0; b < M.batch; b++)
        if (m[b * M.bs + 1] != 0) s = s == 0 ? m[b * M.bs] : fmin(s, m[b * M.bs]);
    for (int64_t b = threadIdx.x; b < M.batch; b += PL_LANES) {
        double n = m[b * M.bs + 1];
        if (n != 0) n *= s / m[b * M.bs];
        sum += n * n;
    }
    sum = warp_fold(sum);
    if (threadIdx.x == 0) {
        ((double *)N.data)[0] = s == 0 ? 1 : s;
        ((double *)N.data)[1] = sqrt(sum);
    }
}

void pl_cuda_launch_frob_join(cudaStream_t stream, const pl_args_frob_join *a)
{
    join_kernel<<<1, PL_LANES, 0, stream>>>(a->N, a->M);
}

/* U's column p (contiguous) becomes zero where the singular value counts as zero, and NaN where there is no
 * answer to give; else f(sigma) times itself, sigma being s[p] ||X||. */
static __global__ void keep_rank_kernel(double *u, const double *s, const double *norm, const int *info,
                                        int64_t rows, double tol, int64_t k, int64_t kind, double power)
{
    int64_t p = blockIdx.x;
    bool lost = *info != 0 || norm[1] - norm[1] != 0, zero = s[p] <= tol * s[0];
    const double size = norm[1] / norm[0];
    const double f = lost ? nan("") : pl_spectrum(kind, power, s[p] * size, size / sqrt((double)k));
    for (int64_t i = threadIdx.x; i < rows && (lost || zero || f != 1); i += blockDim.x)
        u[p * rows + i] = lost ? f : zero ? 0.0 : f * u[p * rows + i];
}

void pl_cuda_launch_keep_rank(cudaStream_t stream, double *u, const double *s, const double *norm,
                              const int *info, int64_t rows, int64_t k, double tol, int64_t kind,
                              double power)
{
    keep_rank_kernel<<<(unsigned)k, 256, 0, stream>>>(u, s, norm, info, rows, tol, k, kind, power);
}
