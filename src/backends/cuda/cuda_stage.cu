/* cuda_stage.cu -- stages of rules beside momentum, map and step: factors of lines, moments of entries,
 * products of two matrices, other ways to apply a step.
 *
 * Sums are in double, in the order of math/lane_sum_elem.h with one warp lane per lane, so the bits are those
 * of `ref`; nothing depends on the grid.
 */
#include "cuda_formulas.cuh"
#include "cuda_kernels.h"
#include "cuda_launch.cuh"
#include "math/lane_sum_elem.h"
#include "math/line_elem.h"

#define WARPS (THREADS / PL_LANES)
#define FULL  0xffffffffu

/* pl_lanes_fold with one lane per thread; the sum arrives in lane 0. */
static __device__ double warp_fold(double x)
{
    for (int half = PL_LANES / 2; half > 0; half /= 2) x += __shfl_down_sync(FULL, x, half);
    return x;
}

#define AHEAD 8 /* loads of an operand that a thread has under way; sums take them in their order */

/* Entry `at` as it is loaded: of f32 without a branch, so that AHEAD of them can be waited for at once. */
template <typename T> static __device__ __forceinline__ T raw(const pl_mat &m, int64_t at)
{
    return pl_cuda_get<double>(m, at);
}

template <> __device__ __forceinline__ float raw<float>(const pl_mat &m, int64_t at)
{
    return ((const float *)m.data)[at];
}

/* ---- lines -------------------------------------------------------------------------------------- */

/* The squares of a lane's entries: every 32nd from `first` on, `by` elements apart, of n. */
template <typename T>
static __device__ __forceinline__ double lane_squares(const pl_mat &m, int64_t base, int64_t by,
                                                      int64_t first, int64_t n)
{
    double sum = 0;
    for (int64_t j = first; j < n; j += AHEAD * PL_LANES) {
        T x[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; u++)
            if (j + u * PL_LANES < n) x[u] = raw<T>(m, base + (j + u * PL_LANES) * by);
#pragma unroll
        for (int u = 0; u < AHEAD; u++)
            if (j + u * PL_LANES < n) sum += (double)x[u] * (double)x[u];
    }
    return sum;
}

/* F = the squares of rows, a warp each. */
template <typename T> static __global__ void row_squares_kernel(pl_args_line_factors a)
{
    int lane = threadIdx.x % PL_LANES, warp = threadIdx.x / PL_LANES;
    FOR_MATRICES(a.X, b)
    {
        if (pl_cuda_live(a.live, b)[PL_LIVE_SKIP] != 0) continue;
        for (int64_t i = (int64_t)blockIdx.x * WARPS + warp; i < a.X.rows; i += (int64_t)gridDim.x * WARPS) {
            double sum =
                warp_fold(lane_squares<T>(a.X, pl_cuda_base(a.X, b) + i * a.X.rs, 1, lane, a.X.cols));
            if (lane == 0) ((double *)a.F.data)[b * a.F.bs + i] = sum;
        }
    }
}

/* F = the squares of 32 columns, row i in lane i mod 32: a block of 32 x 32 threads, its y the lane. */
template <typename T> static __global__ void column_squares_kernel(pl_args_line_factors a)
{
    __shared__ double lanes[PL_LANES][PL_LANES + 1];
    FOR_MATRICES(a.X, b)
    {
        if (pl_cuda_live(a.live, b)[PL_LIVE_SKIP] != 0) continue;
        for (int64_t first = (int64_t)blockIdx.x * PL_LANES; first < a.X.cols;
             first += (int64_t)gridDim.x * PL_LANES) {
            int64_t j = first + threadIdx.x;
            double sum = 0;
            if (j < a.X.cols)
                sum = lane_squares<T>(a.X, pl_cuda_base(a.X, b) + j, a.X.rs, threadIdx.y, a.X.rows);
            lanes[threadIdx.x][threadIdx.y] = sum;
            __syncthreads();
            sum = warp_fold(lanes[threadIdx.y][threadIdx.x]); /* column y, its lanes along the warp */
            if (threadIdx.x == 0 && first + threadIdx.y < a.X.cols)
                ((double *)a.F.data)[b * a.F.bs + first + threadIdx.y] = sum;
            __syncthreads();
        }
    }
}

/* F from the squares that it holds: a block a matrix. Roots and quotients are all threads', THREADS lines at
 * a time; sums over lines are one warp's, which has their lanes. */
static __global__ void factors_kernel(pl_args_line_factors a)
{
    __shared__ double squares[THREADS], terms[THREADS], kept;
    const int64_t lines = a.F.cols;
    const double n = (double)(a.trans ? a.X.rows : a.X.cols);
    const int all = (int)blockDim.x, t = (int)threadIdx.x;
    for (int64_t b = blockIdx.x; b < a.X.batch; b += gridDim.x) {
        const double *live = pl_cuda_live(a.live, b), eps = live[PL_LIVE_EPS], beta2 = live[PL_LIVE_BETA2];
        double *F = (double *)a.F.data + b * a.F.bs, before = 0, after = 0;
        if (live[PL_LIVE_SKIP] != 0 || a.kind == PL_LINE_EQUILIBRATE) {
            for (int64_t l = t; l < lines; l += all)
                F[l] = live[PL_LIVE_SKIP] != 0 ? 1 : pl_line_equilibrate(F[l], eps);
            continue;
        }
        for (int64_t first = 0; first < lines; first += all) {
            const int64_t l = first + t;
            if (l < lines) {
                const double square = F[l];
                double v = pl_cuda_get<double>(a.V, b * a.V.bs + l);
                const double f = pl_line_moment(&v, square / n, beta2, eps, a.kind == PL_LINE_CLAMPED);
                pl_cuda_put<double>(a.V, b * a.V.bs + l, v);
                F[l] = f, squares[t] = square, terms[t] = square * f * f;
            }
            __syncthreads();
            for (int k = t; t < PL_LANES && k < all && first + k < lines; k += PL_LANES)
                before += squares[k], after += terms[k];
            __syncthreads();
        }
        if (t < PL_LANES) {
            before = warp_fold(before), after = warp_fold(after);
            if (t == 0) kept = pl_line_kept(before, after);
        }
        __syncthreads();
        for (int64_t l = t; l < lines; l += all) F[l] = kept * F[l];
        __syncthreads();
    }
}

void pl_cuda_launch_line_factors(cudaStream_t stream, const pl_args_line_factors *a)
{
    const unsigned batch = pl_cuda_grid(a->X.batch, 1, MAX_GRID);
    const bool f32 = a->X.dtype == POLAR_DTYPE_F32;
    if (a->trans) {
        dim3 grid(pl_cuda_grid(a->X.cols, PL_LANES, 4096), 1, batch), block(PL_LANES, PL_LANES);
        if (f32) column_squares_kernel<float><<<grid, block, 0, stream>>>(*a);
        else column_squares_kernel<double><<<grid, block, 0, stream>>>(*a);
    } else {
        dim3 grid(pl_cuda_grid(a->X.rows, WARPS, 4096), 1, batch);
        if (f32) row_squares_kernel<float><<<grid, THREADS, 0, stream>>>(*a);
        else row_squares_kernel<double><<<grid, THREADS, 0, stream>>>(*a);
    }
    factors_kernel<<<batch, PL_LANES * pl_cuda_grid(a->F.cols, PL_LANES, WARPS), 0, stream>>>(*a);
}

static __global__ void scale_lines_kernel(pl_args_scale_lines a)
{
    FOR_MATRICES(a.Y, b)
    FOR_ROWS(a.Y.rows, i)
    {
        double r = a.R.data ? ((const double *)a.R.data)[b * a.R.bs + i] : 1;
        FOR_COLS(a.Y.cols, j)
        {
            double c = a.C.data ? ((const double *)a.C.data)[b * a.C.bs + j] : 1;
            pl_cuda_set<double>(a.Y, b, i, j, pl_scale_entry_f64(pl_cuda_at<double>(a.X, b, i, j), r, c));
        }
    }
}

/* The same, four columns at a time. */
static __global__ void scale_lines_fours_kernel(pl_args_scale_lines a)
{
    FOR_MATRICES(a.Y, b)
    FOR_ROWS(a.Y.rows, i)
    {
        const double r = a.R.data ? ((const double *)a.R.data)[b * a.R.bs + i] : 1;
        FOR_COLS(a.Y.cols / 4, four)
        {
            const double *C = a.C.data ? (const double *)a.C.data + b * a.C.bs + 4 * four : NULL;
            float x[4];
            pl_cuda_get4(x, a.X, pl_cuda_base(a.X, b) + i * a.X.rs + 4 * four);
            for (int k = 0; k < 4; k++) x[k] = (float)pl_scale_entry_f64((double)x[k], r, C ? C[k] : 1);
            pl_cuda_put4(a.Y, pl_cuda_base(a.Y, b) + i * a.Y.rs + 4 * four, x);
        }
    }
}

void pl_cuda_launch_scale_lines(cudaStream_t stream, const pl_args_scale_lines *args)
{
    pl_args_scale_lines a = *args;
    pl_mat *mats[] = {&a.Y, &a.X};
    const bool f32 = a.Y.dtype == POLAR_DTYPE_F32 && a.X.dtype == POLAR_DTYPE_F32;
    const bool fours = f32 && pl_cuda_in_fours(mats, 2);
    const int64_t cols = fours ? a.Y.cols / 4 : a.Y.cols;
    dim3 block = pl_cuda_row_block(cols, THREADS), grid = pl_cuda_row_grid(a.Y.batch, a.Y.rows, cols, block);
    if (fours) scale_lines_fours_kernel<<<grid, block, 0, stream>>>(a);
    else scale_lines_kernel<<<grid, block, 0, stream>>>(a);
}

/* ---- entries ------------------------------------------------------------------------------------ */

template <typename REAL> __global__ void entry_stage_kernel(pl_args_entry_stage a)
{
    FOR_MATRICES(a.Y, b)
    {
        const double *live = pl_cuda_live(a.live, b), beta2 = live[PL_LIVE_BETA2];
        const REAL b2 = (REAL)beta2, o2 = (REAL)(1 - beta2), c2 = (REAL)live[PL_LIVE_C2],
                   eps = (REAL)live[PL_LIVE_EPS], grad = (REAL)live[PL_LIVE_GRAD];
        if (live[PL_LIVE_SKIP] != 0) continue;
        if (a.after && live[PL_LIVE_STEP] <= (double)a.after) continue;
        FOR_ROWS(a.Y.rows, i)
        FOR_COLS(a.Y.cols, j)
        {
            REAL x = pl_cuda_at<REAL>(a.X, b, i, j);
            if (a.V.data) {
                REAL v = pl_cuda_at<REAL>(a.V, b, i, j);
                const REAL g = a.G.data ? grad * pl_cuda_at<REAL>(a.G, b, i, j) : x;
                if (a.root) x = FORMULA(pl_precondition_root)(x, g, &v, b2, o2, eps);
                else x = FORMULA(pl_precondition)(x, g, &v, b2, o2, c2, eps);
                pl_cuda_set<REAL>(a.V, b, i, j, v);
            } else x = FORMULA(pl_sign)(x);
            pl_cuda_set<REAL>(a.Y, b, i, j, x);
        }
    }
}

#define FOURS 2 /* four neighbours of each operand that a thread has under way, so often */

/* What an entry's stage reads off a live row. */
struct entry_values {
    float b2, o2, c2, eps, grad;
    bool rests;
};

static __device__ __forceinline__ entry_values entry_values_of(const pl_args_entry_stage &a, int64_t b)
{
    const double *live = pl_cuda_live(a.live, b), beta2 = live[PL_LIVE_BETA2];
    entry_values k = {(float)beta2, (float)(1 - beta2), (float)live[PL_LIVE_C2], (float)live[PL_LIVE_EPS],
                      (float)live[PL_LIVE_GRAD]};
    k.rests = live[PL_LIVE_SKIP] != 0 || (a.after && live[PL_LIVE_STEP] <= (double)a.after);
    return k;
}

static __device__ __forceinline__ void load_fours(float4 (&x)[FOURS], const pl_mat &m, int64_t base, int at,
                                                  int end)
{
#pragma unroll
    for (int u = 0; u < FOURS; u++)
        if (at + u * THREADS < end) x[u] = ((const float4 *)((const float *)m.data + base))[at + u * THREADS];
}

static __device__ __forceinline__ void store_four(const pl_mat &m, int64_t base, int at, const float (&x)[4])
{
    ((float4 *)((float *)m.data + base))[at] = make_float4(x[0], x[1], x[2], x[3]);
}

/* The same of f32, every matrix one row: a block FOURS times THREADS fours, all loads before the live row is
 * looked at. */
static __global__ void __launch_bounds__(THREADS) entry_stage_fours_kernel(pl_args_entry_stage a)
{
    const int end = (int)(a.Y.cols / 4), at = (int)(blockIdx.x * FOURS * THREADS + threadIdx.x);
    begin_early();
    FOR_MATRICES(a.Y, b)
    {
        const int64_t Y = pl_cuda_base(a.Y, b), V = pl_cuda_base(a.V, b);
        float4 x4[FOURS], v4[FOURS] = {}, g4[FOURS] = {};
        load_fours(x4, a.X, pl_cuda_base(a.X, b), at, end);
        if (a.V.data) load_fours(v4, a.V, V, at, end);
        if (a.G.data) load_fours(g4, a.G, pl_cuda_base(a.G, b), at, end);
        const entry_values k = entry_values_of(a, b);
        if (k.rests) continue;
#pragma unroll
        for (int u = 0; u < FOURS; u++) {
            float x[4] = {x4[u].x, x4[u].y, x4[u].z, x4[u].w}, v[4] = {v4[u].x, v4[u].y, v4[u].z, v4[u].w},
                  g[4] = {g4[u].x, g4[u].y, g4[u].z, g4[u].w};
            if (at + u * THREADS >= end) break;
#pragma unroll
            for (int n = 0; n < 4; n++) {
                const float seen = a.G.data ? k.grad * g[n] : x[n];
                if (!a.V.data) x[n] = pl_sign_f32(x[n]);
                else if (a.root) x[n] = pl_precondition_root_f32(x[n], seen, &v[n], k.b2, k.o2, k.eps);
                else x[n] = pl_precondition_f32(x[n], seen, &v[n], k.b2, k.o2, k.c2, k.eps);
            }
            if (a.V.data) store_four(a.V, V, at + u * THREADS, v);
            store_four(a.Y, Y, at + u * THREADS, x);
        }
    }
}

/* Each matrix as one row, those that are there being f32 without gaps; false: they are not so. */
static bool flatten(pl_mat *const *mats, int n)
{
    for (int k = 0; k < n; k++) {
        const pl_mat *m = mats[k];
        if (m->data && (m->dtype != POLAR_DTYPE_F32 || (m->rows > 1 && m->rs != m->cols))) return false;
    }
    for (int k = 0; k < n; k++)
        mats[k]->cols *= mats[k]->rows, mats[k]->rs = mats[k]->cols, mats[k]->rows = 1;
    return true;
}

void pl_cuda_launch_entry_stage(cudaStream_t stream, const pl_args_entry_stage *args)
{
    pl_args_entry_stage a = *args, flat = a;
    pl_mat *mats[] = {&a.Y, &a.V, &a.X, &a.G}, *rows[] = {&flat.Y, &flat.V, &flat.X, &flat.G};
    if (a.Y.rows * a.Y.cols <= INT32_MAX && flatten(rows, 4) && pl_cuda_in_fours(rows, 4)) {
        dim3 grid(pl_cuda_grid(flat.Y.cols, 4 * FOURS * THREADS, INT32_MAX), 1,
                  pl_cuda_grid(flat.Y.batch, 1, MAX_GRID));
        start_early(entry_stage_fours_kernel, grid, dim3(THREADS), 0, stream, flat);
        return;
    }
    LAUNCH_ROWS(entry_stage_kernel, mats, 4, a.Y.batch, a.Y.rows, a.Y.cols, a);
}

template <typename REAL> __global__ void apply_step_kernel(pl_args_apply_step a)
{
    FOR_MATRICES(a.W, b)
    {
        const double *live = pl_cuda_live(a.live, b);
        const REAL lr = (REAL)live[PL_LIVE_LR], wd = (REAL)live[PL_LIVE_WD], scale = (REAL)a.scale;
        double keep = 1, move = 0;
        if (live[PL_LIVE_SKIP] != 0) continue;
        if (a.N.data)
            pl_apply_factors(&keep, &move, (const double *)a.N.data + b * a.N.bs, a.apply, live[PL_LIVE_LR],
                             live[PL_LIVE_WD], a.scale, a.strength);
        FOR_ROWS(a.W.rows, i)
        FOR_COLS(a.W.cols, j)
        {
            REAL w = pl_cuda_at<REAL>(a.W, b, i, j), d = pl_cuda_at<REAL>(a.D, b, i, j);
            w = a.apply == POLAR_APPLY_CAUTIOUS ? FORMULA(pl_cautious_step)(w, d, lr, wd, scale)
                                                : FORMULA(pl_ball_step)(w, d, lr, (REAL)keep, (REAL)move);
            pl_cuda_set<REAL>(a.W, b, i, j, w);
        }
    }
}

void pl_cuda_launch_apply_step(cudaStream_t stream, const pl_args_apply_step *args)
{
    pl_args_apply_step a = *args;
    pl_mat *mats[] = {&a.W, &a.D};
    LAUNCH_ROWS(apply_step_kernel, mats, 2, a.W.batch, a.W.rows, a.W.cols, a);
}

/* A thread a matrix: a few numbers. */
static __global__ void norm_moment_kernel(pl_args_norm_moment a)
{
    for (int64_t b = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; b < a.F.batch;
         b += (int64_t)gridDim.x * blockDim.x) {
        const double *live = pl_cuda_live(a.live, b), *n = (const double *)a.N.data + b * a.N.bs;
        double *F = (double *)a.F.data + b * a.F.bs, v = pl_cuda_get<double>(a.V, b * a.V.bs);
        F[1] = 1;
        if (live[PL_LIVE_SKIP] != 0) {
            F[0] = 1;
            continue;
        }
        F[0] = a.kind == PL_NORM_MOMENT
                   ? pl_norm_moment(&v, n, live[PL_LIVE_GRAD], live[PL_LIVE_BETA2], live[PL_LIVE_EPS])
                   : pl_norm_sum(&v, n, live[PL_LIVE_GRAD], a.clip, live[PL_LIVE_EPS], live[PL_LIVE_LR]);
        pl_cuda_put<double>(a.V, b * a.V.bs, v);
    }
}

void pl_cuda_launch_norm_moment(cudaStream_t stream, const pl_args_norm_moment *a)
{
    norm_moment_kernel<<<pl_cuda_grid(a->F.batch, THREADS, MAX_GRID), THREADS, 0, stream>>>(*a);
}

/* ---- products ----------------------------------------------------------------------------------- */

/* Each row's three sums, a warp a row. */
template <typename T> static __global__ void row_products_kernel(pl_args_inner a, double *sums)
{
    int lane = threadIdx.x % PL_LANES, warp = threadIdx.x / PL_LANES;
    begin_early();
    FOR_MATRICES(a.X, b)
    for (int64_t i = (int64_t)blockIdx.x * WARPS + warp; i < a.X.rows; i += (int64_t)gridDim.x * WARPS) {
        const int64_t X = pl_cuda_base(a.X, b) + i * a.X.rs, Y = pl_cuda_base(a.Y, b) + i * a.Y.rs;
        double sum[3] = {0, 0, 0};
        for (int64_t j = lane; j < a.X.cols; j += AHEAD * PL_LANES) {
            T x[AHEAD], y[AHEAD];
#pragma unroll
            for (int u = 0; u < AHEAD; u++)
                if (j + u * PL_LANES < a.X.cols)
                    x[u] = raw<T>(a.X, X + j + u * PL_LANES), y[u] = raw<T>(a.Y, Y + j + u * PL_LANES);
#pragma unroll
            for (int u = 0; u < AHEAD; u++) {
                if (j + u * PL_LANES >= a.X.cols) break;
                const double c = x[u], d = y[u];
                sum[0] += c * d, sum[1] += c * c, sum[2] += d * d;
            }
        }
        for (int k = 0; k < 3; k++) {
            double s = warp_fold(sum[k]);
            if (lane == 0) sums[(b * a.X.rows + i) * 3 + k] = s;
        }
    }
}

/* A block a matrix, a warp a sum: row i in lane i mod 32. */
static __global__ void fold_products_kernel(pl_args_inner a, const double *sums)
{
    const int k = threadIdx.y;
    begin_early();
    for (int64_t b = blockIdx.x; b < a.X.batch; b += gridDim.x) {
        double sum = 0, *N = (double *)a.N.data + b * a.N.bs;
        for (int64_t i = threadIdx.x; i < a.X.rows; i += AHEAD * PL_LANES) {
            double x[AHEAD];
#pragma unroll
            for (int u = 0; u < AHEAD; u++)
                if (i + u * PL_LANES < a.X.rows) x[u] = sums[(b * a.X.rows + i + u * PL_LANES) * 3 + k];
#pragma unroll
            for (int u = 0; u < AHEAD; u++)
                if (i + u * PL_LANES < a.X.rows) sum += x[u];
        }
        sum = warp_fold(sum);
        if (threadIdx.x == 0) N[k ? k + 1 : 0] = sum;
        if (threadIdx.x == 0 && k == 0) N[1] = 1;
    }
}

size_t pl_cuda_inner_scratch(const pl_args_inner *a)
{
    return (size_t)(a->X.batch * a->X.rows * 3) * sizeof(double) + sizeof(double);
}

void pl_cuda_launch_inner(cudaStream_t stream, const pl_args_inner *a, void *scratch)
{
    unsigned batch = pl_cuda_grid(a->X.batch, 1, MAX_GRID);
    dim3 grid(pl_cuda_grid(a->X.rows, WARPS, 4096), 1, batch);
    double *sums = (double *)scratch;
    const bool f32 = a->X.dtype == POLAR_DTYPE_F32 && a->Y.dtype == POLAR_DTYPE_F32;
    if (f32) start_early(row_products_kernel<float>, grid, THREADS, 0, stream, *a, sums);
    else start_early(row_products_kernel<double>, grid, THREADS, 0, stream, *a, sums);
    start_early(fold_products_kernel, batch, dim3(PL_LANES, 3), 0, stream, *a, sums);
}
