/* cuda_elem.cu -- elementwise ops: the loops around math/formulas_elem.h. */
#include "cuda_formulas.cuh"
#include "cuda_kernels.h"
#include "cuda_launch.cuh"
#include "device/advance_row.h"

/* ---- the loop: matrices over z, rows over y, columns over x ------------------------------------- */

#define FOR_ENTRIES(m, i, j)                                                           \
    for (int64_t i = blockIdx.y; i < (m).rows; i += gridDim.y)                         \
        for (int64_t j = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; j < (m).cols; \
             j += (int64_t)gridDim.x * blockDim.x)
#define FOR_EACH(m, b, i, j) FOR_MATRICES(m, b) FOR_ENTRIES(m, i, j)

static dim3 grid_for(const pl_mat &m)
{
    int64_t x = (m.cols + THREADS - 1) / THREADS;
    return dim3((unsigned)(x < 4096 ? x : 4096), (unsigned)(m.rows < MAX_GRID ? m.rows : MAX_GRID),
                (unsigned)(m.batch < MAX_GRID ? m.batch : MAX_GRID));
}

/* Packed operands are one long row per matrix: longer runs, fewer blocks. */
static void flatten(pl_mat **mats, int n)
{
    for (int k = 0; k < n; k++)
        if (mats[k]->data && mats[k]->rows > 1 && mats[k]->rs != mats[k]->cols) return;
    for (int k = 0; k < n; k++) {
        mats[k]->cols *= mats[k]->rows;
        mats[k]->rs = mats[k]->cols;
        mats[k]->rows = 1;
    }
}

/* In fours (pl_cuda_in_fours): rows over y, a row's elements over x; such kernels begin early. */
#define FOR_FOURS(m, i, j)                                                               \
    FOR_ROWS((m).rows, i)                                                                \
    for (int64_t j = 4 * ((int64_t)blockIdx.x * blockDim.x + threadIdx.x); j < (m).cols; \
         j += 4 * (int64_t)gridDim.x * blockDim.x)

#define LAUNCH_FOURS(kernel, lead, args)                                                                    \
    do {                                                                                                    \
        dim3 block_ = pl_cuda_row_block((lead).cols / 4, THREADS),                                          \
             grid_(pl_cuda_grid((lead).cols / 4, block_.x, 1 << 20),                                        \
                   pl_cuda_grid((lead).rows, block_.y, MAX_GRID), pl_cuda_grid((lead).batch, 1, MAX_GRID)); \
        start_early(kernel, grid_, block_, 0, stream, args);                                                \
    } while (0)

#define LAUNCH(kernel, mats, n, shape, ...)                                                                 \
    do {                                                                                                    \
        if (pl_cuda_any_f64(mats, n)) kernel<double><<<grid_for(shape), THREADS, 0, stream>>>(__VA_ARGS__); \
        else kernel<float><<<grid_for(shape), THREADS, 0, stream>>>(__VA_ARGS__);                           \
    } while (0)

/* ---- nothing ------------------------------------------------------------------------------------ */

static __global__ void delay_kernel(int64_t nanoseconds)
{
    int64_t begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - begin < nanoseconds);
}

void pl_cuda_launch_delay(cudaStream_t stream, int microseconds)
{
    delay_kernel<<<1, 1, 0, stream>>>((int64_t)microseconds * 1000);
}

/* ---- copy --------------------------------------------------------------------------------------- */

template <typename REAL> __global__ void copy_kernel(pl_args_copy a)
{
    FOR_EACH(a.Y, b, i, j)
    pl_cuda_put<REAL>(a.Y, pl_cuda_base(a.Y, b) + i * a.Y.rs + j,
                      pl_cuda_get<REAL>(a.X, pl_cuda_base(a.X, b) + i * a.X.rs + j));
}

/* Packed and not in f64. */
static __global__ void copy_fours_kernel(pl_args_copy a)
{
    begin_early();
    FOR_MATRICES(a.Y, b)
    FOR_FOURS(a.Y, i, j)
    {
        float x[4];
        pl_cuda_get4(x, a.X, pl_cuda_base(a.X, b) + i * a.X.rs + j);
        pl_cuda_put4(a.Y, pl_cuda_base(a.Y, b) + i * a.Y.rs + j, x);
    }
}

#define AT_ONCE     4   /* fours that a thread has under way */
#define LONG_BLOCKS 128 /* of what is worth it: with fewer, multiprocessors would have nothing to do */

/* The same of one long row a matrix, X's format known when this is compiled. */
template <polar_dtype FROM> static __global__ void copy_long_kernel(pl_args_copy a)
{
    const int64_t step = 4 * (int64_t)blockDim.x;
    a.X.dtype = FROM;
    begin_early();
    FOR_MATRICES(a.Y, b)
    for (int64_t j = step * AT_ONCE * blockIdx.x + 4 * threadIdx.x; j < a.Y.cols;
         j += step * AT_ONCE * gridDim.x) {
        float x[AT_ONCE][4];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            if (j + k * step < a.Y.cols) pl_cuda_get4(x[k], a.X, pl_cuda_base(a.X, b) + j + k * step);
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            if (j + k * step < a.Y.cols) pl_cuda_put4(a.Y, pl_cuda_base(a.Y, b) + j + k * step, x[k]);
    }
}

static void copy_fours(cudaStream_t stream, const pl_args_copy &a)
{
    const int64_t block = 4 * AT_ONCE * THREADS;
    if (a.Y.rows > 1 || a.Y.batch * a.Y.cols < LONG_BLOCKS * block) {
        LAUNCH_FOURS(copy_fours_kernel, a.Y, a);
        return;
    }
    dim3 grid(pl_cuda_grid(a.Y.cols, block, 1 << 20), 1, pl_cuda_grid(a.Y.batch, 1, MAX_GRID));
    auto *kernel = a.X.dtype == POLAR_DTYPE_F32   ? copy_long_kernel<POLAR_DTYPE_F32>
                   : a.X.dtype == POLAR_DTYPE_F16 ? copy_long_kernel<POLAR_DTYPE_F16>
                                                  : copy_long_kernel<POLAR_DTYPE_BF16>;
    start_early(kernel, grid, dim3(THREADS), 0, stream, a);
}

#define TILE 32

/* Through a shared tile, so that both sides are read and written along rows; the odd pitch keeps columns off
 * one bank. */
template <typename REAL> __global__ void transpose_kernel(pl_args_copy a)
{
    __shared__ REAL tile[TILE][TILE + 1];
    for (int64_t b = blockIdx.z; b < a.Y.batch; b += gridDim.z)
        for (int64_t i0 = (int64_t)blockIdx.y * TILE; i0 < a.Y.rows; i0 += (int64_t)gridDim.y * TILE)
            for (int64_t j0 = (int64_t)blockIdx.x * TILE; j0 < a.Y.cols; j0 += (int64_t)gridDim.x * TILE) {
                for (int r = threadIdx.y; r < TILE; r += blockDim.y) /* X is (Y.cols, Y.rows) */
                    if (j0 + r < a.Y.cols && i0 + threadIdx.x < a.Y.rows)
                        tile[r][threadIdx.x] = pl_cuda_get<REAL>(
                            a.X, pl_cuda_base(a.X, b) + (j0 + r) * a.X.rs + i0 + threadIdx.x);
                __syncthreads();
                for (int r = threadIdx.y; r < TILE; r += blockDim.y)
                    if (i0 + r < a.Y.rows && j0 + threadIdx.x < a.Y.cols)
                        pl_cuda_put<REAL>(a.Y, pl_cuda_base(a.Y, b) + (i0 + r) * a.Y.rs + j0 + threadIdx.x,
                                          tile[threadIdx.x][r]);
                __syncthreads();
            }
}

#define COPY_ENGINE_BYTES ((size_t)1 << 20) /* below that a kernel starts sooner */

/* Bytes of a copy that is one run of memory in one format; 0 where it is not. */
static size_t one_run_bytes(const pl_args_copy &a)
{
    size_t element = a.X.dtype == POLAR_DTYPE_F64 ? 8 : a.X.dtype == POLAR_DTYPE_F32 ? 4 : 2;
    bool dense = a.X.dtype == a.Y.dtype && a.Y.rows == 1 &&
                 (a.Y.batch == 1 || (a.Y.bs == a.Y.cols && a.X.bs == a.X.cols));
    return dense ? (size_t)(a.Y.batch * a.Y.cols) * element : 0;
}

void pl_cuda_launch_copy(cudaStream_t stream, const pl_args_copy *args)
{
    pl_args_copy a = *args;
    pl_mat *mats[] = {&a.Y, &a.X};
    if (!a.trans) {
        if (a.Y.data == a.X.data) return; /* need_apart: element on element */
        flatten(mats, 2);
        size_t bytes = one_run_bytes(a);
        if (bytes >= COPY_ENGINE_BYTES) {
            cudaMemcpyAsync(a.Y.data, a.X.data, bytes, cudaMemcpyDeviceToDevice, stream);
            return;
        }
        if (pl_cuda_in_fours(mats, 2)) copy_fours(stream, a);
        else LAUNCH(copy_kernel, mats, 2, a.Y, a);
        return;
    }
    int64_t x = (a.Y.cols + TILE - 1) / TILE, y = (a.Y.rows + TILE - 1) / TILE;
    dim3 grid((unsigned)(x < MAX_GRID ? x : MAX_GRID), (unsigned)(y < MAX_GRID ? y : MAX_GRID),
              (unsigned)(a.Y.batch < MAX_GRID ? a.Y.batch : MAX_GRID));
    if (pl_cuda_any_f64(mats, 2)) transpose_kernel<double><<<grid, dim3(TILE, 8), 0, stream>>>(a);
    else transpose_kernel<float><<<grid, dim3(TILE, 8), 0, stream>>>(a);
}

/* ---- the others --------------------------------------------------------------------------------- */

template <typename REAL> __global__ void axpby_kernel(pl_args_axpby a)
{
    REAL alpha = (REAL)a.alpha, beta = (REAL)a.beta;
    FOR_EACH(a.Y, b, i, j)
    {
        REAL x = pl_cuda_get<REAL>(a.X, pl_cuda_base(a.X, b) + i * a.X.rs + j);
        REAL z = a.Z.data ? pl_cuda_get<REAL>(a.Z, pl_cuda_base(a.Z, b) + i * a.Z.rs + j) : (REAL)0;
        REAL y = a.round_terms ? FORMULA(pl_axpby_rounded)(alpha, x, beta, z)
                               : FORMULA(pl_axpby)(alpha, x, beta, z);
        pl_cuda_put<REAL>(a.Y, pl_cuda_base(a.Y, b) + i * a.Y.rs + j, y);
    }
}

static __global__ void axpby_fours_kernel(pl_args_axpby a)
{
    begin_early();
    float alpha = (float)a.alpha, beta = (float)a.beta;
    FOR_MATRICES(a.Y, b)
    FOR_FOURS(a.Y, i, j)
    {
        float x[4], z[4] = {0, 0, 0, 0};
        pl_cuda_get4(x, a.X, pl_cuda_base(a.X, b) + i * a.X.rs + j);
        if (a.Z.data) pl_cuda_get4(z, a.Z, pl_cuda_base(a.Z, b) + i * a.Z.rs + j);
        for (int k = 0; k < 4; k++)
            x[k] = a.round_terms ? pl_axpby_rounded_f32(alpha, x[k], beta, z[k])
                                 : pl_axpby_f32(alpha, x[k], beta, z[k]);
        pl_cuda_put4(a.Y, pl_cuda_base(a.Y, b) + i * a.Y.rs + j, x);
    }
}

void pl_cuda_launch_axpby(cudaStream_t stream, const pl_args_axpby *args)
{
    pl_args_axpby a = *args;
    pl_mat *mats[] = {&a.Y, &a.X, &a.Z};
    flatten(mats, 3);
    if (pl_cuda_in_fours(mats, 3)) LAUNCH_FOURS(axpby_fours_kernel, a.Y, a);
    else LAUNCH(axpby_kernel, mats, 3, a.Y, a);
}

template <typename REAL> __global__ void normalise_kernel(pl_args_normalise a)
{
    FOR_MATRICES(a.Y, b)
    {
        const double *norm = (const double *)a.N.data + pl_cuda_base(a.N, b);
        REAL s = (REAL)norm[0], n = (REAL)norm[1], eps = (REAL)a.eps;
        REAL t = a.reference ? FORMULA(pl_reference_divisor)(s, n, eps) : FORMULA(pl_norm_or_eps)(s, n, eps);
        FOR_ENTRIES(a.Y, i, j)
        {
            REAL x = pl_cuda_get<REAL>(a.X, pl_cuda_base(a.X, b) + i * a.X.rs + j);
            REAL y = a.reference ? FORMULA(pl_normalise_reference)(x, s, t) : FORMULA(pl_normalise)(x, s, t);
            pl_cuda_put<REAL>(a.Y, pl_cuda_base(a.Y, b) + i * a.Y.rs + j, y);
        }
    }
}

static __global__ void normalise_fours_kernel(pl_args_normalise a)
{
    begin_early();
    FOR_MATRICES(a.Y, b)
    {
        const double *norm = (const double *)a.N.data + pl_cuda_base(a.N, b);
        float s = (float)norm[0], n = (float)norm[1], eps = (float)a.eps;
        float t = a.reference ? pl_reference_divisor_f32(s, n, eps) : pl_norm_or_eps_f32(s, n, eps);
        FOR_FOURS(a.Y, i, j)
        {
            float x[4];
            pl_cuda_get4(x, a.X, pl_cuda_base(a.X, b) + i * a.X.rs + j);
            for (int k = 0; k < 4; k++)
                x[k] = a.reference ? pl_normalise_reference_f32(x[k], s, t) : pl_normalise_f32(x[k], s, t);
            pl_cuda_put4(a.Y, pl_cuda_base(a.Y, b) + i * a.Y.rs + j, x);
        }
    }
}

void pl_cuda_launch_normalise(cudaStream_t stream, const pl_args_normalise *args)
{
    pl_args_normalise a = *args;
    pl_mat *mats[] = {&a.Y, &a.X};
    flatten(mats, 2);
    if (pl_cuda_in_fours(mats, 2)) LAUNCH_FOURS(normalise_fours_kernel, a.Y, a);
    else LAUNCH(normalise_kernel, mats, 2, a.Y, a);
}

/* A live row (pl_live_col) in the format computed in. */
template <typename REAL> struct live_values {
    REAL b1, o1, b2, o2, eps, c1, c2, lr, wd, grad;
    bool skip;
    __device__ live_values(const pl_mat &live, int64_t b)
    {
        const double *v = (const double *)live.data + pl_cuda_base(live, b);
        b1 = (REAL)v[PL_LIVE_BETA1], o1 = (REAL)(1 - v[PL_LIVE_BETA1]), b2 = (REAL)v[PL_LIVE_BETA2],
        o2 = (REAL)(1 - v[PL_LIVE_BETA2]);
        eps = (REAL)v[PL_LIVE_EPS], c1 = (REAL)v[PL_LIVE_C1], c2 = (REAL)v[PL_LIVE_C2],
        lr = (REAL)v[PL_LIVE_LR], wd = (REAL)v[PL_LIVE_WD];
        grad = (REAL)v[PL_LIVE_GRAD];
        skip = v[PL_LIVE_SKIP] != 0;
    }
};

template <typename REAL> __global__ void direction_kernel(pl_args_direction a)
{
    FOR_MATRICES(a.D, b)
    {
        const live_values<REAL> k(a.live, b);
        if (k.skip) continue; /* the same branch for every thread */
        FOR_ENTRIES(a.D, i, j)
        {
            int64_t am = pl_cuda_base(a.M, b) + i * a.M.rs + j;
            REAL g = k.grad * pl_cuda_get<REAL>(a.G, pl_cuda_base(a.G, b) + i * a.G.rs + j),
                 m = pl_cuda_get<REAL>(a.M, am);
            int64_t av = pl_cuda_base(a.V, b) + i * a.V.rs + j;
            REAL v = a.precondition ? pl_cuda_get<REAL>(a.V, av) : (REAL)0, d;
            /* the same branches for every thread */
            if (a.precondition == POLAR_PRECONDITION_LAPROP)
                d = FORMULA(pl_laprop_direction)(g, &m, &v, a.momentum, k.b1, k.o1, k.b2, k.o2, k.c1, k.c2,
                                                 k.eps);
            else d = FORMULA(pl_momentum)(g, &m, a.momentum, k.b1, k.o1, k.c1);
            if (a.precondition == POLAR_PRECONDITION_ADAM)
                d = FORMULA(pl_precondition)(d, g, &v, k.b2, k.o2, k.c2, k.eps);
            pl_cuda_put<REAL>(a.M, am, m);
            if (a.precondition) pl_cuda_put<REAL>(a.V, av, v);
            pl_cuda_put<REAL>(a.D, pl_cuda_base(a.D, b) + i * a.D.rs + j, d);
        }
    }
}

void pl_cuda_launch_direction(cudaStream_t stream, const pl_args_direction *args)
{
    pl_args_direction a = *args;
    pl_mat *mats[] = {&a.D, &a.M, &a.V, &a.G};
    flatten(mats, 4);
    LAUNCH(direction_kernel, mats, 4, a.D, a);
}

template <typename REAL> __global__ void step_kernel(pl_args_decay_step a)
{
    REAL s = (REAL)a.scale;
    FOR_MATRICES(a.W, b)
    {
        const live_values<REAL> k(a.live, b);
        if (k.skip) continue;
        FOR_ENTRIES(a.W, i, j)
        {
            int64_t at = pl_cuda_base(a.W, b) + i * a.W.rs + j;
            REAL d = pl_cuda_get<REAL>(a.D, pl_cuda_base(a.D, b) + i * a.D.rs + j);
            pl_cuda_put<REAL>(a.W, at,
                              FORMULA(pl_decay_and_step)(pl_cuda_get<REAL>(a.W, at), d, k.lr, k.wd, s));
        }
    }
}

void pl_cuda_launch_decay_step(cudaStream_t stream, const pl_args_decay_step *args)
{
    pl_args_decay_step a = *args;
    pl_mat *mats[] = {&a.W, &a.D};
    flatten(mats, 2);
    LAUNCH(step_kernel, mats, 2, a.W, a);
}

template <typename REAL> __global__ void adamw_kernel(pl_args_adamw_step a)
{
    FOR_MATRICES(a.W, b)
    {
        const live_values<REAL> k(a.live, b);
        if (k.skip) continue;
        FOR_ENTRIES(a.W, i, j)
        {
            int64_t aw = pl_cuda_base(a.W, b) + i * a.W.rs + j, am = pl_cuda_base(a.M, b) + i * a.M.rs + j,
                    av = pl_cuda_base(a.V, b) + i * a.V.rs + j;
            REAL w = pl_cuda_get<REAL>(a.W, aw), m = pl_cuda_get<REAL>(a.M, am),
                 v = pl_cuda_get<REAL>(a.V, av);
            REAL g = k.grad * pl_cuda_get<REAL>(a.G, pl_cuda_base(a.G, b) + i * a.G.rs + j);
            REAL d = FORMULA(pl_adam_direction)(g, &m, &v, k.b1, k.o1, k.b2, k.o2, k.c1, k.c2, k.eps);
            pl_cuda_put<REAL>(a.W, aw, FORMULA(pl_decay_and_step)(w, d, k.lr, k.wd, (REAL)1));
            pl_cuda_put<REAL>(a.M, am, m);
            pl_cuda_put<REAL>(a.V, av, v);
        }
    }
}

void pl_cuda_launch_adamw_step(cudaStream_t stream, const pl_args_adamw_step *args)
{
    pl_args_adamw_step a = *args;
    pl_mat *mats[] = {&a.W, &a.M, &a.V, &a.G};
    flatten(mats, 4);
    LAUNCH(adamw_kernel, mats, 4, a.W, a);
}

/* ---- steps that may be left out ----------------------------------------------------------------- */

template <typename REAL> __global__ void nonfinite_kernel(pl_mat F, pl_mat G)
{
    FOR_EACH(G, b, i, j)
    {
        REAL g = pl_cuda_get<REAL>(G, pl_cuda_base(G, b) + i * G.rs + j);
        /* several threads may write the same 1 */
        if (g - g != 0) ((float *)F.data)[pl_cuda_base(F, b)] = 1;
    }
}

void pl_cuda_launch_nonfinite(cudaStream_t stream, const pl_args_nonfinite *args)
{
    pl_mat G = args->G, *mats[] = {&G};
    if (G.batch * G.rows * G.cols == 0) return;
    flatten(mats, 1);
    LAUNCH(nonfinite_kernel, mats, 1, G, args->F, G);
}

/* One block: every row has read its flag before a flag is cleared. */
static __global__ void advance_kernel(pl_args_advance a)
{
    for (int64_t r = threadIdx.x; r < a.L.batch; r += blockDim.x) pl_advance_row(&a, r);
    __syncthreads();
    if (!a.F.data) return;
    for (int64_t b = threadIdx.x; b < a.F.batch; b += blockDim.x) ((float *)a.F.data)[b * a.F.bs] = 0;
}

void pl_cuda_launch_advance(cudaStream_t stream, const pl_args_advance *args)
{
    advance_kernel<<<1, THREADS, 0, stream>>>(*args);
}
