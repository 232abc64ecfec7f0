/* cuda_kron_eigen.cu -- kron_eigen: eigenvectors of symmetric matrices, a block each.
 *
 *     K 2^-k = H T H^T                 reflections (cuda_kron_tridiagonal.cuh), k: the largest entry's
 * exponent T = Z diag(d) Z^T                divide and conquer (cuda_kron_conquer.cuh) Q = H Z, columns by
 * descending d
 *
 * Everything in double. The triangle of K lies in shared memory up to sides of 160, two blocks of a
 * multiprocessor then, vectors of n numbers up to sides of 960; the rest is scratch memory. Nothing comes
 * back to the host, so a graph can hold it. Warps of a block and leaves of the tree are by n alone.
 */
#include "cuda_kernels.h"
#include "cuda_kron_conquer.cuh"
#include "cuda_launch.cuh"
#include "cuda_shared_limit.cuh"
#include "device/kron_row.h"
#include "math/kron_elem.h"

#define SHARED_VECTORS 960 /* the largest side whose vectors lie in shared memory */
#define LEAF           32  /* rows that a warp takes to the end */

/* ---- memory ------------------------------------------------------------------------------------- */

static __host__ __device__ inline int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Doubles of the phases' vectors, behind d, e and beta. */
static __host__ __device__ inline int64_t eigen_vectors(int64_t n)
{
    return larger(5 * n, merge_vectors(n));
}

/* Doubles that the phases have in shared memory: the triangle with the sums beside it, tiles, reflections. */
template <int W, int CH, int E, bool TRIANGLE>
static __host__ __device__ inline int64_t eigen_phases(int64_t n)
{
    const int64_t sweep = W * 32 * CH + (TRIANGLE ? n * (n + 1) / 2 : 0);
    return larger(larger(sweep, n > LEAF ? tiling<W>::DOUBLES : 0), AT_ONCE * 32 * E);
}

template <int W, int CH, int E, bool TRIANGLE>
static __host__ __device__ inline int64_t eigen_shared(int64_t n)
{
    return 2 * W + (E ? 3 * n + eigen_vectors(n) : 0) + eigen_phases<W, CH, E, TRIANGLE>(n);
}

/* Doubles of scratch memory a matrix. */
static __host__ __device__ inline int64_t eigen_room(int64_t n)
{
    return 4 * n * n + (n <= SHARED_VECTORS ? 0 : 3 * n + eigen_vectors(n));
}

/* ---- the kernel --------------------------------------------------------------------------------- */

/* The exponent of |x|; of 0 that of the smallest number. */
static __device__ __forceinline__ int exponent(double x)
{
    return x == 0 ? -1074 : ilogb(x);
}

/* The triangle of K, scaled to a largest entry from 1 to 2 by the power of two that is returned; false: K is
 * not finite. */
template <int W>
static __device__ bool load_triangle(const eigen_work &m, const pl_args_kron_eigen &a, int64_t b, int *power)
{
    const int n = m.n, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    bool wrong = false;
    int top = -1074;
    for (int i = warp; i < n; i += W)
        for (int j = lane; j <= i; j += 32) {
            const double x = pl_cuda_at<double>(a.K, b, i, j);
            wrong |= !(x - x == 0);
            top = max(top, exponent(x));
            m.A[upper_row(n, j) + i] = x;
        }
    if (__syncthreads_or(wrong)) return false;
    for (int half = 16; half > 0; half /= 2) top = max(top, __shfl_xor_sync(PL_WARP_LANES, top, half));
    if (lane == 0) m.sums[warp] = top;
    __syncthreads();
    for (int w = 0; w < W; w++) top = max(top, (int)m.sums[w]);
    for (int64_t at = threadIdx.x; at < (int64_t)n * (n + 1) / 2; at += 32 * W)
        m.A[at] = ldexp(m.A[at], -top);
    __syncthreads();
    *power = top;
    return true;
}

/* Eigenvalues d in K's units, their factors, and which vector is the p-th column. */
template <int W>
static __device__ void put_factors(const eigen_work &m, const pl_args_kron_eigen &a, int64_t b,
                                   const double *live, int power, int *order)
{
    const int n = m.n;
    double trace = 0, least;
    for (int k = threadIdx.x; k < n; k += 32 * W) {
        m.d[k] = ldexp(m.d[k], power);
        trace += m.d[k];
    }
    trace = warps_sum<W>(lanes_sum(trace), m.sums);
    for (int k = threadIdx.x; k < n; k += 32 * W) {
        int place = 0;
        for (int i = 0; i < n; i++) place += m.d[i] > m.d[k] || (m.d[i] == m.d[k] && i < k);
        order[place] = k;
    }
    __syncthreads();
    if (!a.F.data) return;
    least = m.d[order[n - 1]];
    const double unit =
        pl_kron_unit(a.kind, (double)n, trace, live[PL_LIVE_BETA2], live[PL_LIVE_C2], live[PL_LIVE_STEP]);
    for (int p = threadIdx.x; p < n; p += 32 * W)
        pl_cuda_set<double>(
            a.F, b, 0, p,
            pl_kron_factor(a.kind, unit * m.d[order[p]], unit * least, live[PL_LIVE_EPS], a.power));
}

template <int W> static __device__ void put_nan(const pl_args_kron_eigen &a, int64_t b)
{
    const int64_t n = a.K.rows;
    for (int64_t at = threadIdx.x; at < n * n; at += 32 * W) pl_cuda_set<double>(a.Q, b, at / n, at % n, NAN);
    for (int64_t k = threadIdx.x; k < n && a.F.data; k += 32 * W) pl_cuda_set<double>(a.F, b, 0, k, NAN);
}

/* E 0: vectors are too long for registers, and for shared memory. */
template <int W, int CH, int E, bool TRIANGLE>
static __global__ void __launch_bounds__(32 * W, 16 / W)
    eigen_kernel(const __grid_constant__ pl_args_kron_eigen a, double *scratch)
{
    extern __shared__ double memory[];
    const int64_t b = blockIdx.x, n = a.K.rows;
    begin_early(); /* where it is not due, that is all it takes */
    const double *live = (const double *)a.live.data + pl_cuda_base(a.live, b);
    if (!pl_kron_eigen_due(live, a.every, a.after)) return;
    eigen_work m;
    int power;
    m.n = (int)n, m.sums = memory;
    m.V = scratch + b * eigen_room(n), m.Z = m.V + n * n, m.U = m.Z + n * n, m.Y = m.U + n * n;
    m.d = E ? m.sums + 2 * W : m.Y + n * n;
    m.e = m.d + n, m.beta = m.e + n, m.vectors = m.beta + n;
    m.shared = E ? m.vectors + eigen_vectors(n) : m.sums + 2 * W;
    m.A = TRIANGLE ? m.shared + W * 32 * CH : m.Y;
    if (!load_triangle<W>(m, a, b, &power)) {
        put_nan<W>(a, b);
        return;
    }
    tridiagonalise<W, CH>(m);
    conquer<W>(m, LEAF);
    if (E == 0) turn_back_long<W>(m);
    else turn_back_held<W, E ? E : 1>(m);
    int *order = (int *)m.vectors;
    put_factors<W>(m, a, b, live, power, order);
    for (int64_t at = threadIdx.x; at < n * n; at += 32 * W)
        pl_cuda_set<double>(a.Q, b, at / n, at % n, m.Z[order[at % n] * n + at / n]);
}

/* ---- launch ------------------------------------------------------------------------------------- */

template <int W, int CH, int E, bool TRIANGLE>
static void launch(cudaStream_t stream, const pl_args_kron_eigen *a, double *scratch)
{
    const size_t bytes = 8 * (size_t)eigen_shared<W, CH, E, TRIANGLE>(a->K.rows);
    if (allow_all_shared((const void *)eigen_kernel<W, CH, E, TRIANGLE>) != cudaSuccess) return;
    start_early(eigen_kernel<W, CH, E, TRIANGLE>, dim3((unsigned)a->K.batch), dim3(32 * W), (int)bytes,
                stream, *a, scratch);
}

size_t pl_cuda_kron_eigen_scratch(const pl_args_kron_eigen *a)
{
    return (size_t)(a->K.batch * eigen_room(a->K.rows)) * sizeof(double) + sizeof(double);
}

void pl_cuda_launch_kron_eigen(cudaStream_t stream, const pl_args_kron_eigen *a, void *scratch)
{
    const int64_t n = a->K.rows;
    double *room = (double *)scratch;
    if (n <= LEAF) launch<1, 1, 1, true>(stream, a, room);
    else if (n <= 64) launch<4, 2, 2, true>(stream, a, room);
    else if (n <= 160) launch<8, 5, 5, true>(stream, a, room);
    else if (n <= 256) launch<16, 8, 8, false>(stream, a, room);
    else if (n <= 640) launch<16, 8, 20, false>(stream, a, room);
    else if (n <= SHARED_VECTORS) launch<16, 8, 32, false>(stream, a, room);
    else launch<16, 8, 0, false>(stream, a, room);
}
