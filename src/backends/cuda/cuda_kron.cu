/* cuda_kron.cu -- Kronecker factors: their averages, and one sweep of the QR iteration by Householder
 * reflections (eigenvectors: cuda_kron_eigen.cu). A sweep has a block a matrix, everything in double in
 * scratch memory; nothing comes back to the host, so a graph can hold it. For small sides of which there are
 * many; the others, on Hopper, are cuda_hopper_kron.cu's.
 */
#include "cuda_hopper_kron.h"
#include "cuda_kernels.h"
#include "cuda_launch.cuh"
#include "cuda_ns.h"
#include "device/kron_row.h"
#include "math/kron_elem.h"

#define BLOCK 256

static __device__ const double *live_row(const pl_mat &live, int64_t b)
{
    return (const double *)live.data + pl_cuda_base(live, b);
}

static __global__ void kron_moment_kernel(pl_args_kron_moment a)
{
    FOR_MATRICES(a.K, b)
    {
        const double *live = live_row(a.live, b), *N = (const double *)a.N.data + b * a.N.bs,
                     beta2 = live[PL_LIVE_BETA2], part = pl_kron_part(beta2, live[PL_LIVE_GRAD], N[0], N[1]);
        if (!pl_kron_moves(live)) continue;
        FOR_ROWS(a.K.rows, i)
        FOR_COLS(a.K.cols, j)
        {
            const double t = pl_cuda_at<double>(a.T, b, i, j),
                         k = pl_kron_moment(pl_cuda_at<double>(a.K, b, i, j), t, beta2, part);
            pl_cuda_set<double>(a.K, b, i, j, k);
            if (a.A.data) pl_cuda_set<double>(a.A, b, i, j, pl_kron_moment(k, t, beta2, part));
        }
    }
}

void pl_cuda_launch_kron_moment(cudaStream_t stream, const pl_args_kron_moment *a)
{
    dim3 block = pl_cuda_row_block(a->K.cols, THREADS);
    kron_moment_kernel<<<pl_cuda_row_grid(a->K.batch, a->K.rows, a->K.cols, block), block, 0, stream>>>(*a);
}

/* The sum over the block, for every thread. */
static __device__ double block_sum(double x)
{
    __shared__ double room[BLOCK];
    room[threadIdx.x] = x;
    __syncthreads();
    for (int half = BLOCK / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) room[threadIdx.x] += room[threadIdx.x + half];
        __syncthreads();
    }
    x = room[0];
    __syncthreads();
    return x;
}

/* The largest over the block, for every thread. */
static __device__ int block_max(int x)
{
    __shared__ int room[BLOCK];
    room[threadIdx.x] = x;
    __syncthreads();
    for (int half = BLOCK / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) room[threadIdx.x] = max(room[threadIdx.x], room[threadIdx.x + half]);
        __syncthreads();
    }
    x = room[0];
    __syncthreads();
    return x;
}

/* The exponent of |x|; of 0 that of the smallest number. */
static __device__ int exponent(double x)
{
    return x == 0 ? -1074 : ilogb(x);
}

/* Place k of rank r in the descending order of n values, the first of equals first. */
static __device__ int64_t rank_of(const double *x, int64_t n, int64_t k)
{
    int64_t before = 0;
    for (int64_t i = 0; i < n; i++) before += x[i] > x[k] || (x[i] == x[k] && i < k);
    return before;
}

/* ---- one sweep ---------------------------------------------------------------------------------- */

/* What a matrix wants: Z's columns and Q's as rows, V, scales of the reflections, q.z, places. */
static __host__ __device__ int64_t sweep_room(const pl_args_kron_sweep *a)
{
    const int64_t n = a->Q.rows;
    return 2 * n * n + a->V.rows * a->V.cols + 3 * n;
}

/* Row j of X loses 2 / (v.v) (v.x) v in its entries from k on, a thread a row. */
static __device__ void reflect(double *X, int64_t j, const double *v, double beta, int64_t n, int64_t k)
{
    double s = 0;
    for (int64_t i = k; i < n; i++) s += v[i] * X[j * n + i];
    for (int64_t i = k; i < n; i++) X[j * n + i] -= beta * s * v[i];
}

/* Rows of Z (the columns to be orthonormalised) become reflections; X: rows, the orthonormal columns. */
static __device__ void orthonormalise(double *Z, double *X, double *beta, int64_t n)
{
    for (int64_t k = 0; k < n; k++) {
        double *v = Z + k * n, square = 0;
        for (int64_t i = k + threadIdx.x; i < n; i += BLOCK) square += v[i] * v[i];
        square = block_sum(square);
        if (threadIdx.x == 0) {
            const double first = v[k], to = first > 0 ? -sqrt(square) : sqrt(square),
                         rest = square - first * to;
            v[k] = first - to;
            beta[k] = rest > 0 ? 1 / rest : 0;
        }
        __syncthreads();
        for (int64_t j = k + 1 + threadIdx.x; j < n; j += BLOCK) reflect(Z, j, v, beta[k], n, k);
        __syncthreads();
    }
    for (int64_t at = threadIdx.x; at < n * n; at += BLOCK) X[at] = at / n == at % n;
    __syncthreads();
    for (int64_t k = n - 1; k >= 0; k--) {
        for (int64_t j = k + threadIdx.x; j < n; j += BLOCK) reflect(X, j, Z + k * n, beta[k], n, k);
        __syncthreads();
    }
}

static __global__ void kron_sweep_kernel(pl_args_kron_sweep a, double *scratch)
{
    const int64_t n = a.Q.rows, entries = a.V.rows * a.V.cols;
    for (int64_t b = blockIdx.x; b < a.Q.batch; b += gridDim.x) {
        double *Z = scratch + b * sweep_room(&a), *X = Z + n * n, *V = X + n * n, *beta = V + entries,
               *value = beta + n, *place = value + n, wrong = 0, trace = 0;
        const double *live = live_row(a.live, b);
        int top = -1074;
        if (!pl_kron_sweep_due(live, a.every, a.after)) continue;
        for (int64_t at = threadIdx.x; at < n * n; at += BLOCK) { /* K Q, where Q will be made */
            double s = 0;
            for (int64_t k = 0; k < n; k++)
                s += pl_cuda_at<double>(a.K, b, at / n, k) * pl_cuda_at<double>(a.Q, b, k, at % n);
            X[at] = s;
            if (s - s == 0) top = max(top, exponent(s));
        }
        __syncthreads();
        for (int64_t j = threadIdx.x; j < n; j += BLOCK) {
            double s = 0;
            for (int64_t i = 0; i < n; i++) s += pl_cuda_at<double>(a.Q, b, i, j) * X[i * n + j];
            value[j] = s;
            trace += s;
            wrong += !(s - s == 0);
        }
        wrong = block_sum(wrong), top = block_max(top), trace = block_sum(trace);
        const int unit = -top;
        for (int64_t k = threadIdx.x; k < n && wrong == 0; k += BLOCK)
            place[rank_of(value, n, k)] = (double)k;
        for (int64_t at = threadIdx.x; at < entries; at += BLOCK)
            V[at] = pl_cuda_at<double>(a.V, b, at / a.V.cols, at % a.V.cols);
        __syncthreads();
        if (wrong != 0) {
            for (int64_t at = threadIdx.x; at < n * n; at += BLOCK)
                pl_cuda_set<double>(a.Q, b, at / n, at % n, NAN);
            for (int64_t k = threadIdx.x; k < n && a.F.data; k += BLOCK)
                pl_cuda_set<double>(a.F, b, 0, k, NAN);
            __syncthreads();
            continue;
        }
        const double scale =
            pl_kron_unit(a.kind, (double)n, trace, live[PL_LIVE_BETA2], live[PL_LIVE_C2], live[PL_LIVE_STEP]);
        for (int64_t k = threadIdx.x; k < n && a.F.data; k += BLOCK)
            pl_cuda_set<double>(a.F, b, 0, k,
                                pl_kron_factor(a.kind, scale * value[(int64_t)place[k]],
                                               scale * value[(int64_t)place[n - 1]], live[PL_LIVE_EPS],
                                               a.power));
        for (int64_t at = threadIdx.x; at < n * n; at += BLOCK)
            Z[at] = ldexp(X[at % n * n + (int64_t)place[at / n]], unit);
        for (int64_t at = threadIdx.x; at < entries; at += BLOCK) {
            const int64_t i = at / a.V.cols, j = at % a.V.cols;
            pl_cuda_set<double>(a.V, b, i, j,
                                a.trans ? V[i * a.V.cols + (int64_t)place[j]]
                                        : V[(int64_t)place[i] * a.V.cols + j]);
        }
        __syncthreads();
        orthonormalise(Z, X, beta, n);
        for (int64_t at = threadIdx.x; at < n * n; at += BLOCK)
            pl_cuda_set<double>(a.Q, b, at % n, at / n, X[at]);
        __syncthreads();
    }
}

size_t pl_cuda_kron_sweep_scratch(const pl_args_kron_sweep *a)
{
    return (size_t)(a->Q.batch * sweep_room(a)) * sizeof(double) + sizeof(double);
}

void pl_cuda_launch_kron_sweep(cudaStream_t stream, const pl_args_kron_sweep *a, void *scratch)
{
    int device = 0;
    cudaGetDevice(&device);
    if (!a->F.data && pl_hopper_sweeps(a->Q.rows) && pl_cuda_ns_usable(device)) {
        pl_hopper_sweep(stream, a, (double *)scratch, sweep_room(a));
        return;
    }
    kron_sweep_kernel<<<pl_cuda_grid(a->Q.batch, 1, MAX_GRID), BLOCK, 0, stream>>>(*a, (double *)scratch);
}
