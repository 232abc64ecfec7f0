/* cuda_norm.cu -- Frobenius norms in the order of math/lane_sum_elem.h: one warp lane per lane, so the bits are those of `ref`.
 *
 * Three launches: the largest magnitude of each matrix, each row's sum (one warp a row), each matrix's fold of its row sums.
 */
#include "cuda_access.cuh"
#include "cuda_kernels.h"
#include "math/bf16_elem.h"
#include "math/lane_sum_elem.h"
#include "math/norm_elem.h"

#define WARPS   8
#define THREADS (WARPS * PL_LANES)
#define FULL    0xffffffffu

/* pl_lanes_fold with one lane per thread; the sum arrives in lane 0. */
static __device__ double warp_fold(double x)
{
    for (int half = PL_LANES / 2; half > 0; half /= 2) x += __shfl_down_sync(FULL, x, half);
    return x;
}

/* Magnitudes are non-negative, so their bits order like the numbers, and the maximum does not depend on who comes first. A NaN is passed over, as
 * fmax does: the sum will have it. */
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
static __global__ void rows_kernel(pl_mat X, int64_t m, int64_t n, int64_t by_row, int64_t by_col, const unsigned long long *amax, double *sums, int limit, int rounded)
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

static __global__ void fold_kernel(pl_mat N, const unsigned long long *amax, const double *sums, int64_t rows, int limit, double weight)
{
    for (int64_t b = blockIdx.x; b < N.batch; b += gridDim.x) {
        double sum = 0;
        for (int64_t i = threadIdx.x; i < rows; i += PL_LANES) sum += sums[b * rows + i];
        sum = warp_fold(sum);
        if (threadIdx.x == 0) {
            double *n = (double *)N.data + b * N.bs;
            n[0] = pl_norm_scale(__longlong_as_double((long long)amax[b]), limit);
            n[1] = sqrt(weight * sum);
        }
    }
}

size_t pl_cuda_frob_scratch(const pl_args_frob *a)
{
    return (size_t)(a->X.batch * ((a->trans ? a->X.cols : a->X.rows) + 1)) * sizeof(double);
}

void pl_cuda_launch_frob(cudaStream_t stream, const pl_args_frob *a, void *scratch)
{
    unsigned long long *amax = (unsigned long long *)scratch;
    double *sums = (double *)scratch + a->X.batch;
    int limit = a->X.dtype == POLAR_DTYPE_F64 ? PL_SCALE_EXP_F64 : PL_SCALE_EXP_F32;
    int64_t m = a->trans ? a->X.cols : a->X.rows, n = a->trans ? a->X.rows : a->X.cols, by_row = a->trans ? 1 : a->X.rs, by_col = a->trans ? a->X.rs : 1;
    int64_t blocks = (m + WARPS - 1) / WARPS, batch = a->X.batch < 65535 ? a->X.batch : 65535;
    dim3 grid((unsigned)(blocks < 1 ? 1 : blocks < 1024 ? blocks : 1024), (unsigned)batch);
    cudaMemsetAsync(amax, 0, (size_t)a->X.batch * sizeof *amax, stream);
    amax_kernel<<<grid, THREADS, 0, stream>>>(a->X, amax);
    rows_kernel<<<grid, THREADS, 0, stream>>>(a->X, m, n, by_row, by_col, amax, sums, limit, (int)a->rounded);
    fold_kernel<<<(unsigned)batch, PL_LANES, 0, stream>>>(a->N, amax, sums, m, limit, a->weight);
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

/* U's column p (contiguous) becomes zero where the singular value counts as zero, and NaN where there is no answer to give. */
static __global__ void keep_rank_kernel(double *u, const double *s, const double *norm, const int *info, int64_t rows, double tol)
{
    int64_t p = blockIdx.x;
    bool lost = *info != 0 || norm[1] - norm[1] != 0, zero = s[p] <= tol * s[0];
    for (int64_t i = threadIdx.x; i < rows && (lost || zero); i += blockDim.x) u[p * rows + i] = lost ? nan("") : 0.0;
}

void pl_cuda_launch_keep_rank(cudaStream_t stream, double *u, const double *s, const double *norm, const int *info, int64_t rows, int64_t k, double tol)
{
    keep_rank_kernel<<<(unsigned)k, 256, 0, stream>>>(u, s, norm, info, rows, tol);
}
