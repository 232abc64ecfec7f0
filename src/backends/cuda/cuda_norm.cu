/* cuda_norm.cu -- Frobenius norms in the order of math/lane_sum_elem.h: one warp lane per lane, so the bits
 * are those of `ref`.
 *
 * Two launches: each row's sum and its largest magnitude (one warp a row), each matrix's fold of them.
 * Squares of what is in f32 or less neither over- nor underflow in double, nor do their sums, so the power of
 * two that scales them may come last, and no bit is another. In f64, of rounded terms and of columns it comes
 * first, and the largest magnitudes in a launch of their own.
 */
#include "cuda_access.cuh"
#include "cuda_kernels.h"
#include "math/bf16_elem.h"
#include "math/lane_sum_elem.h"
#include "math/norm_elem.h"
#include "math/spectrum_elem.h"

#define WARPS   8
#define THREADS (WARPS * PL_LANES)
#define FULL    0xffffffffu

/* pl_lanes_fold with one lane per thread; the sum arrives in lane 0. */
static __device__ double warp_fold(double x)
{
    for (int half = PL_LANES / 2; half > 0; half /= 2) x += __shfl_down_sync(FULL, x, half);
    return x;
}

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

#define AHEAD 16 /* elements that a lane has under way */

/* Rows of X: sums of squares, unscaled, and largest magnitudes. Zeros beyond a row's end change neither. */
template <polar_dtype DTYPE> static __global__ void rows_and_tops_kernel(pl_mat X, double *sums, double *tops)
{
    int lane = threadIdx.x % PL_LANES, warp = threadIdx.x / PL_LANES;
    X.dtype = DTYPE; /* known when this is compiled */
    for (int64_t b = blockIdx.y; b < X.batch; b += gridDim.y)
        for (int64_t i = (int64_t)blockIdx.x * WARPS + warp; i < X.rows; i += (int64_t)gridDim.x * WARPS) {
            int64_t row = b * X.bs + i * X.rs;
            double sum = 0;
            float top = 0;
            for (int64_t j = lane; j < X.cols; j += AHEAD * PL_LANES) {
                float x[AHEAD];
                if (j - lane + AHEAD * PL_LANES <= X.cols) { /* no branch between the loads */
#pragma unroll
                    for (int k = 0; k < AHEAD; k++) x[k] = pl_cuda_get<float>(X, row + j + k * PL_LANES);
                } else
                    for (int k = 0; k < AHEAD; k++)
                        x[k] = j + k * PL_LANES < X.cols ? pl_cuda_get<float>(X, row + j + k * PL_LANES) : 0;
#pragma unroll
                for (int k = 0; k < AHEAD; k++) {
                    sum += (double)x[k] * (double)x[k];
                    top = fmaxf(top, fabsf(x[k])); /* passes over a NaN */
                }
            }
            sum = warp_fold(sum);
            for (int half = PL_LANES / 2; half > 0; half /= 2)
                top = fmaxf(top, __shfl_down_sync(FULL, top, half));
            if (lane == 0) {
                sums[b * X.rows + i] = sum;
                tops[b * X.rows + i] = top;
            }
        }
}

#define STAGED 2048 /* row sums, all threads' loads: then the first warp adds them up in its order */

/* N of each matrix's row sums and of its n_tops magnitudes; unscaled: the sums are of x x, else of (s x) (s
 * x). */
static __global__ void fold_kernel(pl_mat N, const double *tops, int64_t n_tops, const double *sums,
                                   int64_t rows, int limit, double weight, int unscaled)
{
    __shared__ double staged[STAGED], group_top[WARPS];
    int lane = threadIdx.x % PL_LANES, warp = threadIdx.x / PL_LANES;
    for (int64_t b = blockIdx.x; b < N.batch; b += gridDim.x) {
        double sum = 0, top = 0;
        for (int64_t first = 0; first < rows; first += STAGED) {
            int here = (int)(rows - first < STAGED ? rows - first : STAGED);
            __syncthreads();
#pragma unroll 8
            for (int k = threadIdx.x; k < here; k += THREADS) staged[k] = sums[b * rows + first + k];
            __syncthreads();
            if (warp == 0) {
#pragma unroll 8
                for (int k = lane; k < here; k += PL_LANES) sum += staged[k];
            }
        }
#pragma unroll 8
        for (int64_t i = threadIdx.x; i < n_tops; i += THREADS) top = fmax(top, tops[b * n_tops + i]);
        for (int half = PL_LANES / 2; half > 0; half /= 2) top = fmax(top, __shfl_down_sync(FULL, top, half));
        if (lane == 0) group_top[warp] = top;
        __syncthreads();
        if (warp == 0) sum = warp_fold(sum);
        if (threadIdx.x == 0) {
            double *n = (double *)N.data + b * N.bs, s;
            for (int w = 1; w < WARPS; w++) top = fmax(top, group_top[w]);
            s = pl_norm_scale(top, limit);
            n[0] = s;
            n[1] = sqrt(weight * (unscaled ? sum * (s * s) : sum));
        }
        __syncthreads();
    }
}

size_t pl_cuda_frob_scratch(const pl_args_frob *a)
{
    return (size_t)(a->X.batch * (2 * (a->trans ? a->X.cols : a->X.rows) + 1)) * sizeof(double);
}

void pl_cuda_launch_frob(cudaStream_t stream, const pl_args_frob *a, void *scratch)
{
    unsigned long long *amax = (unsigned long long *)scratch;
    double *sums = (double *)scratch + a->X.batch;
    int limit = a->X.dtype == POLAR_DTYPE_F64 ? PL_SCALE_EXP_F64 : PL_SCALE_EXP_F32;
    int64_t m = a->trans ? a->X.cols : a->X.rows, n = a->trans ? a->X.rows : a->X.cols,
            by_row = a->trans ? 1 : a->X.rs, by_col = a->trans ? a->X.rs : 1;
    int64_t blocks = (m + WARPS - 1) / WARPS, batch = a->X.batch < 65535 ? a->X.batch : 65535;
    dim3 grid((unsigned)(blocks < 1 ? 1 : blocks < 1024 ? blocks : 1024), (unsigned)batch);
    int unscaled = a->X.dtype != POLAR_DTYPE_F64 && !a->rounded && !a->trans;
    double *tops = unscaled ? sums + a->X.batch * m : (double *)scratch; /* amax's bits are doubles */
    if (!unscaled) {
        cudaMemsetAsync(amax, 0, (size_t)a->X.batch * sizeof *amax, stream);
        amax_kernel<<<grid, THREADS, 0, stream>>>(a->X, amax);
        rows_kernel<<<grid, THREADS, 0, stream>>>(a->X, m, n, by_row, by_col, amax, sums, limit,
                                                  (int)a->rounded);
    } else if (a->X.dtype == POLAR_DTYPE_F32)
        rows_and_tops_kernel<POLAR_DTYPE_F32><<<grid, THREADS, 0, stream>>>(a->X, sums, tops);
    else if (a->X.dtype == POLAR_DTYPE_F16)
        rows_and_tops_kernel<POLAR_DTYPE_F16><<<grid, THREADS, 0, stream>>>(a->X, sums, tops);
    else rows_and_tops_kernel<POLAR_DTYPE_BF16><<<grid, THREADS, 0, stream>>>(a->X, sums, tops);
    fold_kernel<<<(unsigned)batch, THREADS, 0, stream>>>(a->N, tops, unscaled ? m : 1, sums, m, limit,
                                                         a->weight, unscaled);
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
