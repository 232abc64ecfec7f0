/* cuda_multi_moment.cu -- moments of Kronecker factors, K <- BETA2 K + part T, of several calls in one
 * launch: a block finds its call in the table and does a chunk of one matrix.
 *
 * Bytes are what it costs, 20 an entry: K in double read and written, T in float read. A thread moves pairs
 * of neighbours, so that a warp's loads of K are 512 bytes side by side, and has four of them under way
 * before it looks at its live row. Packed operands and an even number of entries go this way; what else there
 * may be goes entry by entry.
 */
#include "cuda_multi_moment.h"

#include "cuda_launch.cuh"
#include "cuda_table.cuh"
#include "device/kron_row.h"
#include "math/kron_elem.h"

#define PAIRS 4                     /* of K, and of T, that a thread has under way */
#define CHUNK (2 * PAIRS * THREADS) /* entries of a block */

enum { ENTRIES, PAIRS_OF_F32, PAIRS_OF_F64 }; /* how a call is done: by T's format */

struct moment_table {
    int count;
    uint32_t first[PL_CUDA_MOMENT_CALLS + 1]; /* block of each call's first chunk */
    int how[PL_CUDA_MOMENT_CALLS];
    pl_args_kron_moment call[PL_CUDA_MOMENT_CALLS];
};

/* What a matrix's live row and norm say. */
struct move {
    double beta2, part;
    bool moves;
};

static __device__ __forceinline__ move move_of(const pl_args_kron_moment &a, int64_t b)
{
    const double *live = pl_cuda_live(a.live, b), *N = (const double *)a.N.data + b * a.N.bs;
    const double beta2 = live[PL_LIVE_BETA2];
    return {beta2, pl_kron_part(beta2, live[PL_LIVE_GRAD], N[0], N[1]), pl_kron_moves(live) != 0};
}

static __device__ __forceinline__ double2 moved(double2 k, double tx, double ty, const move &m)
{
    return make_double2(pl_kron_moment(k.x, tx, m.beta2, m.part), pl_kron_moment(k.y, ty, m.beta2, m.part));
}

/* Entries [at, at + n) of packed matrix b, n even, at most a chunk; PAIR is float2 or double2. */
template <typename PAIR>
static __device__ __forceinline__ void move_pairs(const pl_args_kron_moment &a, int64_t b, int64_t at, int n)
{
    double2 *K = (double2 *)((double *)a.K.data + pl_cuda_base(a.K, b) + at);
    const int t = (int)threadIdx.x, pairs = n / 2;
    const PAIR *T = (const PAIR *)a.T.data + (pl_cuda_base(a.T, b) + at) / 2;
    double2 k[PAIRS];
    PAIR x[PAIRS];
#pragma unroll
    for (int u = 0; u < PAIRS; u++)
        if (t + u * THREADS < pairs) k[u] = K[t + u * THREADS], x[u] = T[t + u * THREADS];
    const move m = move_of(a, b);
    if (!m.moves) return; /* the same for the whole block */
#pragma unroll
    for (int u = 0; u < PAIRS; u++)
        if (t + u * THREADS < pairs)
            K[t + u * THREADS] = k[u] = moved(k[u], (double)x[u].x, (double)x[u].y, m);
    if (!a.A.data) return;
    double2 *A = (double2 *)((double *)a.A.data + pl_cuda_base(a.A, b) + at);
#pragma unroll
    for (int u = 0; u < PAIRS; u++)
        if (t + u * THREADS < pairs) A[t + u * THREADS] = moved(k[u], (double)x[u].x, (double)x[u].y, m);
}

/* The same of any formats and strides. */
static __device__ __forceinline__ void move_entries(const pl_args_kron_moment &a, int64_t b, int64_t at,
                                                    int n)
{
    const move m = move_of(a, b);
    if (!m.moves) return;
    for (int e = (int)threadIdx.x; e < n; e += THREADS) {
        const int64_t i = (at + e) / a.K.cols, j = (at + e) % a.K.cols;
        double *K = (double *)a.K.data + pl_cuda_base(a.K, b) + i * a.K.rs + j;
        const double t = pl_cuda_get<double>(a.T, pl_cuda_base(a.T, b) + i * a.T.rs + j),
                     k = pl_kron_moment(*K, t, m.beta2, m.part);
        *K = k;
        if (a.A.data)
            ((double *)a.A.data)[pl_cuda_base(a.A, b) + i * a.A.rs + j] =
                pl_kron_moment(k, t, m.beta2, m.part);
    }
}

static __host__ __device__ __forceinline__ int64_t chunks_of(const pl_args_kron_moment &a)
{
    return (a.K.rows * a.K.cols + CHUNK - 1) / CHUNK;
}

static __global__ void __launch_bounds__(THREADS) moments_kernel(const __grid_constant__ moment_table table)
{
    const int low = call_of_block(table.first, table.count);
    begin_early();
    const pl_args_kron_moment &a = table.call[low];
    const uint32_t chunks = (uint32_t)chunks_of(a), mine = blockIdx.x - table.first[low];
    const int64_t b = mine / chunks, at = (int64_t)(mine % chunks) * CHUNK, left = a.K.rows * a.K.cols - at;
    const int n = left < CHUNK ? (int)left : CHUNK;
    if (table.how[low] == PAIRS_OF_F32) move_pairs<float2>(a, b, at, n);
    else if (table.how[low] == PAIRS_OF_F64) move_pairs<double2>(a, b, at, n);
    else move_entries(a, b, at, n);
}

/* Rows without gaps and matrices of an even number of entries, from an address that a pair may have. */
static bool in_pairs(const pl_mat &m)
{
    const size_t pair = 2 * polar_dtype_size(m.dtype);
    return !m.data || ((m.rows <= 1 || m.rs == m.cols) && m.rows * m.cols % 2 == 0 &&
                       (m.batch <= 1 || m.bs % 2 == 0) && (uintptr_t)m.data % pair == 0);
}

static int how_of(const pl_args_kron_moment &a)
{
    if (!in_pairs(a.K) || !in_pairs(a.A) || !in_pairs(a.T)) return ENTRIES;
    if (a.T.dtype == POLAR_DTYPE_F32) return PAIRS_OF_F32;
    return a.T.dtype == POLAR_DTYPE_F64 ? PAIRS_OF_F64 : ENTRIES;
}

void pl_cuda_launch_moments(cudaStream_t stream, const pl_cuda_multi_moment *list)
{
    moment_table table;
    int64_t blocks = 0;
    table.count = list->count;
    for (int i = 0; i < list->count; i++) {
        table.call[i] = list->call[i];
        table.how[i] = how_of(list->call[i]);
        table.first[i] = (uint32_t)blocks;
        blocks += list->call[i].K.batch * chunks_of(list->call[i]);
    }
    table.first[list->count] = (uint32_t)blocks;
    if (blocks) start_early(moments_kernel, dim3((unsigned)blocks), dim3(THREADS), 0, stream, table);
}
