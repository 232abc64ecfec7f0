/* cuda_hopper.h -- the products of Newton-Schulz on Hopper's tensor cores (compute capability 9.0), bf16 in and out.
 *
 *     C = alpha A B^T + beta D    symmetric: only tiles on and above the diagonal are computed, each stored twice
 *     C = alpha A B   + beta D    plain
 *
 * Row-major; sums in f32, one rounding; every element is summed over k in one order, whatever the tile, the batch and its mates.
 * Served: rows, columns and row strides that are multiples of 8 elements, pointers and batch strides of 16 bytes.
 */
#ifndef PL_CUDA_HOPPER_H
#define PL_CUDA_HOPPER_H

#include <cuda_runtime.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    void       *C;               /* (batch, m, n) */
    const void *A;               /* (batch, m, k) */
    const void *B;               /* symmetric: (batch, n, k), n = m; plain: (batch, k, n) */
    const void *D;               /* (batch, m, n) or NULL; not C */
    int64_t     m, n, k, batch;
    int64_t     ldc, lda, ldb, ldd;    /* row strides in elements */
    int64_t     bsc, bsa, bsb, bsd;    /* batch strides in elements */
    float       alpha, beta;
    int         symmetric;
} pl_hopper_product;

/* Which kernel: columns of a block's tile (its rows are 128), blocks that share B's tile, early launch. */
typedef struct {
    int width;
    int cluster;
    int early;    /* programmatic dependent launch: starts while the kernel before it ends */
} pl_hopper_plan;

/* Multiprocessors of the current device if it is a Hopper GPU whose driver makes tensor maps, else 0. */
int pl_hopper_open(void);

/* Can the product be had here? */
int pl_hopper_suits(const pl_hopper_product *p);

/* The plan of a product, by its sizes alone. */
pl_hopper_plan pl_hopper_plan_for(const pl_hopper_product *p, int multiprocessors);

/* Enqueues the product; cudaErrorInvalidValue where no kernel has that plan. */
cudaError_t pl_hopper_multiply(cudaStream_t stream, const pl_hopper_product *p, pl_hopper_plan plan, int multiprocessors);

#ifdef __cplusplus
}
#endif
#endif
