/* cuda_kron.cu -- Kronecker factors: their averages, eigenvectors by Jacobi rotations, one sweep of the QR
 * iteration by Householder reflections. A block a matrix, everything in double in scratch memory; nothing
 * comes back to the host, so a graph can hold them. For the small sides (to some hundreds) of which there
 * are many; a single large matrix keeps one multiprocessor busy for long, but for sweeps on Hopper
 * (cuda_hopper_kron.cu).
 */
#include "cuda_hopper_kron.h"
#include "cuda_kernels.h"
#include "cuda_launch.cuh"
#include "cuda_ns.h"
#include "device/kron_row.h"
#include "math/kron_elem.h"

#define BLOCK      256
#define MOST_SWEPT 40 /* sweeps of Jacobi rotations; a dozen are enough */

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

/* ---- eigenvectors ------------------------------------------------------------------------------- */

/* Pair k of round r, of n (even) numbers: the circle method; every pair meets once in n - 1 rounds. */
static __device__ void pair_of(int64_t *p, int64_t *q, int64_t n, int64_t r, int64_t k)
{
    const int64_t m = n - 1, x = k == 0 ? n - 1 : (r + k) % m, y = k == 0 ? r : (r - k + m) % m;
    *p = x < y ? x : y;
    *q = x < y ? y : x;
}

/* The rotation that makes A_pq zero, as (c, s). */
static __device__ void rotation(double *out, double app, double aqq, double apq)
{
    out[0] = 1, out[1] = 0;
    if (apq == 0) return;
    const double theta = (aqq - app) / (2 * apq),
                 t = (theta >= 0 ? 1 : -1) / (fabs(theta) + hypot(1.0, theta));
    out[0] = 1 / sqrt(1 + t * t);
    out[1] = t * out[0];
}

/* One round: rows, then columns of A and of the vectors X. turns: (c, s) of each pair. */
static __device__ void turn(double *A, double *X, double *turns, int64_t n, int64_t even, int64_t r)
{
    const int64_t pairs = even / 2;
    int64_t p, q;
    for (int64_t k = threadIdx.x; k < pairs; k += BLOCK) {
        pair_of(&p, &q, even, r, k);
        if (q < n) rotation(turns + 2 * k, A[p * n + p], A[q * n + q], A[p * n + q]);
    }
    __syncthreads();
    for (int64_t at = threadIdx.x; at < pairs * n; at += BLOCK) {
        const int64_t k = at / n, j = at % n;
        const double c = turns[2 * k], s = turns[2 * k + 1];
        pair_of(&p, &q, even, r, k);
        if (q >= n) continue;
        const double x = A[p * n + j], y = A[q * n + j];
        A[p * n + j] = c * x - s * y, A[q * n + j] = s * x + c * y;
        const double u = X[p * n + j], v = X[q * n + j]; /* vectors in rows */
        X[p * n + j] = c * u - s * v, X[q * n + j] = s * u + c * v;
    }
    __syncthreads();
    for (int64_t at = threadIdx.x; at < pairs * n; at += BLOCK) {
        const int64_t k = at % pairs, i = at / pairs;
        const double c = turns[2 * k], s = turns[2 * k + 1];
        pair_of(&p, &q, even, r, k);
        if (q >= n) continue;
        const double x = A[i * n + p], y = A[i * n + q];
        A[i * n + p] = c * x - s * y, A[i * n + q] = s * x + c * y;
    }
    __syncthreads();
}

/* A becomes diagonal, its eigenvectors the rows of X. */
static __device__ void diagonalise(double *A, double *X, double *turns, int64_t n)
{
    const int64_t even = n + n % 2;
    for (int64_t at = threadIdx.x; at < n * n; at += BLOCK) X[at] = at / n == at % n;
    __syncthreads();
    for (int sweep = 0; sweep < MOST_SWEPT; sweep++) {
        double off = 0, all = 0;
        for (int64_t at = threadIdx.x; at < n * n; at += BLOCK) {
            all += A[at] * A[at];
            off += at / n == at % n ? 0 : A[at] * A[at];
        }
        off = block_sum(off), all = block_sum(all);
        if (!(off > 1e-30 * all)) break; /* to rounding; or not finite */
        for (int64_t r = 0; r < even - 1; r++) turn(A, X, turns, n, even, r);
    }
}

/* What a matrix wants: A, X, turns, eigenvalues. */
static __host__ __device__ int64_t eigen_room(int64_t n)
{
    return 2 * n * n + 2 * (n + 1) + n;
}

static __global__ void kron_eigen_kernel(pl_args_kron_eigen a, double *scratch)
{
    const int64_t n = a.K.rows;
    for (int64_t b = blockIdx.x; b < a.K.batch; b += gridDim.x) {
        const double *live = live_row(a.live, b), beta2 = live[PL_LIVE_BETA2];
        double *A = scratch + b * eigen_room(n), *X = A + n * n, *turns = X + n * n,
               *values = turns + 2 * (n + 1);
        double wrong = 0, trace = 0;
        int top = -1074;
        if (!pl_kron_eigen_due(live, a.every, a.after)) continue;
        for (int64_t at = threadIdx.x; at < n * n; at += BLOCK) {
            const int64_t i = at / n > at % n ? at / n : at % n, j = at / n > at % n ? at % n : at / n;
            const double k = pl_cuda_at<double>(a.K, b, i, j);
            wrong += !(k - k == 0);
            top = max(top, exponent(k));
            A[at] = k;
        }
        wrong = block_sum(wrong), top = block_max(top);
        /* a power of two that brings the largest entry near 1, so that squares neither over- nor underflow */
        const int unit_exp = -top;
        for (int64_t at = threadIdx.x; at < n * n; at += BLOCK) A[at] = wrong ? NAN : ldexp(A[at], unit_exp);
        __syncthreads();
        if (wrong == 0) diagonalise(A, X, turns, n);
        for (int64_t k = threadIdx.x; k < n; k += BLOCK) {
            values[k] = ldexp(A[k * n + k], -unit_exp);
            trace += values[k];
        }
        trace = block_sum(trace);
        for (int64_t at = threadIdx.x; at < n * n; at += BLOCK)
            if (wrong != 0) pl_cuda_set<double>(a.Q, b, at / n, at % n, NAN);
        for (int64_t k = threadIdx.x; k < n; k += BLOCK) {
            if (wrong != 0) {
                if (a.F.data) pl_cuda_set<double>(a.F, b, 0, k, NAN);
                continue;
            }
            const int64_t place = rank_of(values, n, k);
            for (int64_t i = 0; i < n; i++) pl_cuda_set<double>(a.Q, b, i, place, X[k * n + i]);
            if (!a.F.data) continue;
            double least = values[0];
            for (int64_t i = 1; i < n; i++) least = values[i] < least ? values[i] : least;
            const double unit =
                pl_kron_unit(a.kind, (double)n, trace, beta2, live[PL_LIVE_C2], live[PL_LIVE_STEP]);
            pl_cuda_set<double>(
                a.F, b, 0, place,
                pl_kron_factor(a.kind, unit * values[k], unit * least, live[PL_LIVE_EPS], a.power));
        }
        __syncthreads();
    }
}

size_t pl_cuda_kron_eigen_scratch(const pl_args_kron_eigen *a)
{
    return (size_t)(a->K.batch * eigen_room(a->K.rows)) * sizeof(double) + sizeof(double);
}

void pl_cuda_launch_kron_eigen(cudaStream_t stream, const pl_args_kron_eigen *a, void *scratch)
{
    kron_eigen_kernel<<<pl_cuda_grid(a->K.batch, 1, MAX_GRID), BLOCK, 0, stream>>>(*a, (double *)scratch);
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
