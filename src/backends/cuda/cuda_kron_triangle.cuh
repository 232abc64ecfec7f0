/* cuda_kron_triangle.cuh -- blocks of 64 on a Cholesky factor's diagonal, for cuda_kron_cholesky.cuh: one
 * becomes R, R^T R = S, and tiles of 64 rows become R^-T of themselves; by a block of eight warps.
 *
 * Invariants
 *  1. Blocks of 8 x 8 have their inverses in shared memory, below the diagonal; between such blocks both are
 *     products of tensor cores.
 *  2. A pivot that cannot be told from zero is replaced by its weight, S_jj: cuda_kron_cholesky.cuh says why.
 */
#ifndef PL_CUDA_KRON_TRIANGLE_CUH
#define PL_CUDA_KRON_TRIANGLE_CUH

#include "cuda_kron_product.cuh"
#include "cuda_kron_sweep.cuh"

#define QUICK_WARPS 8
#define BLOCK_ROW   68 /* doubles from row to row of a block of R */

struct quick_work : sweep_work {
    int N;
    double *Y, *P, *S;      /* N x N, scratch: Y; X; S and R. At first K, X and Q */
    double *pivot, *weight; /* N, scratch: what is left of S's diagonal; the diagonal */
};

#define STAGES_AT (BAND * BLOCK_ROW + 2 * BAND)

/* Shared memory: R's block of the diagonal, its part of the weights, stages or a tile. Asked for where it is
 * used: in what is not inlined the compiler would not know that it is shared. */
__device__ __forceinline__ double *block_there(void)
{
    extern __shared__ double memory[];
    return memory;
}

__device__ __forceinline__ double *weights_there(void)
{
    return block_there() + BAND * BLOCK_ROW;
}

__device__ __forceinline__ double *stages_there(void)
{
    return block_there() + STAGES_AT;
}

/* ---- a block of the diagonal ------------------------------------------------------------------------ */

/* Where the inverse of the transpose of R's 8 x 8 block q lies: below the diagonal, where R has nothing. */
__device__ __forceinline__ int inverse_at(int q)
{
    return q < 7 ? 8 * (q + 1) * BLOCK_ROW + 8 * q : 56 * BLOCK_ROW;
}

/* Block q of 8 x 8 becomes R, and its inverse: lanes 0 .. 7 have columns of it, the next eight of one. */
__device__ __forceinline__ void factor_8x8(const quick_work &s, int q)
{
    double a[8], *at = block_there() + 8 * q * BLOCK_ROW + 8 * q, *inverse = block_there() + inverse_at(q);
    const int lane = s.lane % 16, col = lane % 8;
#pragma unroll
    for (int i = 0; i < 8; i++) a[i] = lane >= 8 ? i == col : i <= col ? at[i * BLOCK_ROW + col] : 0;
    __syncwarp();
#pragma unroll
    for (int p = 0; p < 8; p++) {
        double d = __shfl_sync(PL_WARP_LANES, a[p], p);
        const double weight = weights_there()[8 * q + p];
        if (!(d > 64 * 0x1p-53 * (double)s.n * weight)) d = weight;
        const double over = rsqrt(d);
        a[p] = lane == p ? d * over : a[p] * over;
#pragma unroll
        for (int i = p + 1; i < 8; i++) a[i] = fma(-__shfl_sync(PL_WARP_LANES, a[p], i), a[p], a[i]);
    }
    if (s.lane < 16)
#pragma unroll
        for (int i = 0; i < 8; i++)
            (lane < 8 ? at : inverse)[i * BLOCK_ROW + col] = lane < 8 && i > col ? 0 : a[i];
}

/* C += A B of 8 x 8: A's row lane / 4, B's column lane / 4, depths lane % 4 and 4 more. */
__device__ __forceinline__ void product_8x8x8(double c[2], const double a[2], const double b[2])
{
    product_8x8x4(c, a[0], b[0]);
    product_8x8x4(c, a[1], b[1]);
}

/* Block k of S's diagonal, less all products, becomes R_kk in shared memory: a warp has 8 of its columns. */
static __device__ __noinline__ void factor_block(const quick_work &s, int k)
{
    const double *from = s.S + (int64_t)k * BAND * (s.N + 1);
    const int g = s.lane / 4, quarter = s.lane % 4;
    __syncthreads();
#pragma unroll
    for (int r = 0; r < BAND * BAND / 2 / CREW; r++) {
        const int e = threadIdx.x + r * CREW, i = e / (BAND / 2), j = e % (BAND / 2) * 2;
        const double2 x = __ldcg((const double2 *)(from + (int64_t)i * s.N + j));
        block_there()[i * BLOCK_ROW + j] = i == j ? __ldcg(s.pivot + k * BAND + i) : x.x;
        block_there()[i * BLOCK_ROW + j + 1] = i == j + 1 ? __ldcg(s.pivot + k * BAND + i) : x.y;
    }
    if (threadIdx.x < BAND) weights_there()[threadIdx.x] = __ldcg(s.weight + k * BAND + threadIdx.x);
    __syncthreads();
#pragma unroll 1
    for (int p = 0; p < 8; p++) {
        double *mine = block_there() + 8 * p * BLOCK_ROW + 8 * s.warp;
        if (s.warp == p) factor_8x8(s, p);
        __syncthreads();
        if (s.warp > p) { /* row p: R_pp^-T S_pj */
            const double *inverse = block_there() + inverse_at(p) + g * BLOCK_ROW + quarter,
                         a[2] = {inverse[0], inverse[4]},
                         b[2] = {mine[quarter * BLOCK_ROW + g], mine[(quarter + 4) * BLOCK_ROW + g]};
            double c[2] = {};
            product_8x8x8(c, a, b);
            __syncwarp();
            mine[g * BLOCK_ROW + 2 * quarter] = c[0], mine[g * BLOCK_ROW + 2 * quarter + 1] = c[1];
        }
        __syncthreads();
        if (s.warp > p) {
            const double b[2] = {mine[quarter * BLOCK_ROW + g], mine[(quarter + 4) * BLOCK_ROW + g]};
#pragma unroll 1
            for (int q = p + 1; q <= s.warp; q++) {
                const double *left = block_there() + (8 * p + quarter) * BLOCK_ROW + 8 * q + g,
                             a[2] = {-left[0], -left[4 * BLOCK_ROW]};
                double *at = block_there() + (8 * q + g) * BLOCK_ROW + 8 * s.warp + 2 * quarter,
                       c[2] = {at[0], at[1]};
                product_8x8x8(c, a, b);
                at[0] = c[0], at[1] = c[1];
            }
            __syncwarp();
        }
    }
    __syncthreads();
}

/* B <- R_kk^-T B: of 8 columns of a 64-row tile in shared memory, by a warp. CORRECTED: inside blocks of 8
 * once more for what is left. */
template <bool CORRECTED>
__device__ __forceinline__ void substitute(const quick_work &s, double *tile, int row)
{
    const int g = s.lane / 4, quarter = s.lane % 4;
    double c[8][2];
#pragma unroll
    for (int q = 0; q < 8; q++) {
        const double2 x = *(const double2 *)(tile + (8 * q + g) * row + 2 * quarter);
        c[q][0] = x.x, c[q][1] = x.y;
    }
#pragma unroll
    for (int q = 0; q < 8; q++) {
        double *at = tile + 8 * q * row, y[2] = {}, b[2];
        const double *inverse = block_there() + inverse_at(q) + g * BLOCK_ROW + quarter,
                     a[2] = {inverse[0], inverse[4]},
                     *block = block_there() + (8 * q + quarter) * BLOCK_ROW + 8 * q + g;
        /* from where products leave a number to where they take it */
        const auto put = [&](const double x[2]) {
            __syncwarp();
            *(double2 *)(at + g * row + 2 * quarter) = make_double2(x[0], x[1]);
            __syncwarp();
            b[0] = at[quarter * row + g], b[1] = at[(quarter + 4) * row + g];
        };
        put(c[q]);
        product_8x8x8(y, a, b);
        put(y);
        if (CORRECTED) {
            const double left[2] = {-block[0], -block[4 * BLOCK_ROW]};
            product_8x8x8(c[q], left, b);
            put(c[q]);
            product_8x8x8(y, a, b);
            put(y);
        }
#pragma unroll
        for (int t = q + 1; t < 8; t++) {
            const double left[2] = {-block[8 * (t - q)], -block[4 * BLOCK_ROW + 8 * (t - q)]};
            product_8x8x8(c[t], left, b);
        }
    }
}

#endif
