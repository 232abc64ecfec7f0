/* cuda_kron_product.cuh -- long products of doubles by a block of eight warps, on Hopper.
 *
 *     C += A B^T     rows of A and B lie along the depth (LINES_ALONG)
 *     C += A^T B     their columns do (LINES_ACROSS)
 *
 * C has 64 rows and 32 NT columns, a warp 32 x 8 NT of them in registers. Factors come in three stages of a
 * depth of 16 by copies that are under way while products are made.
 *
 * Invariants
 *  1. Matrices are in double, rows 16 bytes aligned; A's 64 lines are all there, of B's lines `there` are, an
 *     even number: in place of others comes the first, and what they make of C is for nobody.
 *  2. Rows of a stage are 4 doubles longer than a multiple of 16: half a warp reads 16 different banks.
 *  3. A product begins with a barrier of the block. After it the stages may still be read: a barrier lies
 *     before whatever else is put there.
 */
#ifndef PL_CUDA_KRON_PRODUCT_CUH
#define PL_CUDA_KRON_PRODUCT_CUH

#include <stdint.h>

#include "cuda_double.cuh"

#define BAND   64 /* rows of a product, and of a block of a triangular matrix */
#define DEPTH  16 /* of a stage */
#define STAGES 3
#define CREW   256 /* threads */

enum lines { LINES_ALONG, LINES_ACROSS };

/* C += A B, 16 x 8 from 16 x 8 and 8 x 8: of A rows lane / 4 and 8 more, of B column lane / 4, depths lane %
 * 4 and 4 more; of C rows lane / 4 and 8 more, columns 2 (lane % 4) and the next. */
__device__ __forceinline__ void product_16x8x8(double c[4], const double a[4], const double b[2])
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                 "{%8, %9}, {%0, %1, %2, %3};"
                 : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
                 : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
}

__device__ __forceinline__ void copy_16(double *to, const double *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((uint32_t)__cvta_generic_to_shared(to)),
                 "l"(from)
                 : "memory");
}

__device__ __forceinline__ void copies_end(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* All but the last LEFT groups have come. */
template <int LEFT> __device__ __forceinline__ void copies_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

/* Doubles from row to row of a stage of `count` lines, and of the whole stage. */
template <lines L, int COUNT> struct stage_of {
    static constexpr int ROW = (L == LINES_ALONG ? DEPTH : COUNT) + 4,
                         DOUBLES = ROW * (L == LINES_ALONG ? COUNT : DEPTH);
};

/* Doubles of shared memory. */
template <int NT> static __host__ __device__ constexpr int product_shared()
{
    return STAGES * (stage_of<LINES_ALONG, BAND>::DOUBLES + stage_of<LINES_ALONG, 32 * NT>::DOUBLES);
}

/* This warp's rows and columns of C. */
__device__ __forceinline__ int product_row(void)
{
    return (int)(threadIdx.x / 128 * 32);
}

template <int NT> __device__ __forceinline__ int product_col(void)
{
    return (int)(threadIdx.x / 32 % 4 * 8 * NT);
}

/* f(row, column, C of it and of the next column) */
template <int NT, class F> __device__ __forceinline__ void for_sums(const double (&c)[2][NT][4], const F &f)
{
    const int lane = threadIdx.x % 32, r = product_row() + lane / 4, col = product_col<NT>() + 2 * (lane % 4);
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int t = 0; t < NT; t++)
                f(r + 16 * m + 8 * h, col + 8 * t, c[m][t][2 * h], c[m][t][2 * h + 1]);
}

/* C += the product of depth entries that lie in shared memory. */
template <int NT, lines L>
__device__ __forceinline__ void add_products(double (&c)[2][NT][4], const double *A, int a_row,
                                             const double *B, int b_row, int depth)
{
    const int lane = threadIdx.x % 32, i = product_row() + lane / 4, j = product_col<NT>() + lane / 4,
              quarter = lane % 4;
#pragma unroll 2
    for (int k = quarter; k < depth; k += 8) {
        double a[2][4], b[NT][2];
#pragma unroll
        for (int q = 0; q < 8; q++) {
            const int line = i + q / 4 * 16 + q % 2 * 8, at = k + q % 4 / 2 * 4;
            a[q / 4][q % 4] = A[L == LINES_ALONG ? line * a_row + at : at * a_row + line];
        }
#pragma unroll
        for (int q = 0; q < 2 * NT; q++) {
            const int line = j + q / 2 * 8, at = k + q % 2 * 4;
            b[q / 2][q % 2] = B[L == LINES_ALONG ? line * b_row + at : at * b_row + line];
        }
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int t = 0; t < NT; t++) product_16x8x8(c[m][t], a[m], b[t]);
    }
}

/* The stage from depth k on of COUNT lines begins to come. */
template <lines L, int COUNT>
__device__ __forceinline__ void copy_stage(double *to, const double *from, int64_t row, int k, int there)
{
#pragma unroll
    for (int r = 0; r < COUNT / 32; r++) {
        const int e = threadIdx.x + r * CREW;
        if (L == LINES_ALONG) {
            const int line = e / (DEPTH / 2), at = e % (DEPTH / 2) * 2;
            copy_16(to + line * stage_of<L, COUNT>::ROW + at,
                    from + (line < there ? line * row : 0) + k + at);
        } else {
            const int at = e / (COUNT / 2), line = e % (COUNT / 2) * 2;
            copy_16(to + at * stage_of<L, COUNT>::ROW + line,
                    from + (k + at) * row + (line < there ? line : 0));
        }
    }
}

/* C += A B^T or A^T B; depth is a multiple of DEPTH, a_row and b_row doubles from row to row. */
template <int NT, lines L>
__device__ __forceinline__ void long_product(double (&c)[2][NT][4], double *shared, const double *A,
                                             int64_t a_row, const double *B, int64_t b_row, int there,
                                             int depth)
{
    typedef stage_of<L, BAND> left;
    typedef stage_of<L, 32 * NT> right;
    constexpr int STAGE = left::DOUBLES + right::DOUBLES;
    __syncthreads();
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (s * DEPTH < depth) {
            copy_stage<L, BAND>(shared + s * STAGE, A, a_row, s * DEPTH, BAND);
            copy_stage<L, 32 * NT>(shared + s * STAGE + left::DOUBLES, B, b_row, s * DEPTH, there);
        }
        copies_end();
    }
    int now = 0, next = STAGES - 1;
#pragma unroll 1
    for (int k = 0; k < depth; k += DEPTH) {
        copies_wait<STAGES - 2>();
        __syncthreads(); /* everybody's copies have come, and nobody reads what the next ones overwrite */
        if (k + (STAGES - 1) * DEPTH < depth) {
            double *to = shared + next * STAGE;
            copy_stage<L, BAND>(to, A, a_row, k + (STAGES - 1) * DEPTH, BAND);
            copy_stage<L, 32 * NT>(to + left::DOUBLES, B, b_row, k + (STAGES - 1) * DEPTH, there);
        }
        copies_end();
        const double *at = shared + now * STAGE;
        add_products<NT, L>(c, at, left::ROW, at + left::DOUBLES, right::ROW, DEPTH);
        now = now + 1 == STAGES ? 0 : now + 1, next = next + 1 == STAGES ? 0 : next + 1;
    }
}

#endif
