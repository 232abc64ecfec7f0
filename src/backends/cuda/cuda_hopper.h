/* cuda_hopper.h -- symmetric products on Hopper's tensor cores (compute capability 9.0), half of them
 * computed.
 *
 *     C = alpha A B^T + beta D,    C (and D) symmetric: tiles on and above the diagonal, each stored twice
 *
 * Row-major; sums in f32, one rounding; every element is summed over k in one order, whatever the tile, the
 * batch and its mates. Served: sizes and row strides that are multiples of 8 elements, pointers and batch
 * strides of 16 bytes.
 */
#ifndef PL_CUDA_HOPPER_H
#define PL_CUDA_HOPPER_H

#include <cuda_runtime.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    void *C;           /* (batch, m, m) */
    const void *A, *B; /* (batch, m, k) */
    const void *D;     /* (batch, m, m) or NULL; not C */
    int64_t m, k, batch;
    int64_t ldc, lda, ldb, ldd; /* row strides in elements */
    int64_t bsc, bsa, bsb, bsd; /* batch strides in elements */
    float alpha, beta;
    int half;  /* C, A, B are f16, else bf16 */
    int d_f32; /* D is f32, else as C */
} pl_hopper_product;

/* Which kernel: columns of a block's tile (its rows are 128), rows of tiles walked together. No bit depends
 * on it. */
typedef struct {
    int width;
    int group;
} pl_hopper_plan;

/* What is to know of a device. */
typedef struct pl_hopper_device {
    int multiprocessors; /* 0: not a GPU for these kernels */
    void *encode;        /* the driver's cuTensorMapEncodeTiled, so that nothing links with it */
} pl_hopper_device;

/* Of the current device: zeros unless it is a Hopper GPU whose driver makes tensor maps. */
pl_hopper_device pl_hopper_open(void);

/* Can the product be had here? */
int pl_hopper_suits(const pl_hopper_product *p);

/* Is it faster here than a whole product by cuBLASLt? By the sizes of one matrix alone, never by the batch.
 */
int pl_hopper_pays(int64_t m, int64_t k);

/* The plan of a product, by its sizes and its batch. */
pl_hopper_plan pl_hopper_plan_for(const pl_hopper_device *dev, const pl_hopper_product *p);

/* Its microseconds on an H200, about. */
double pl_hopper_estimate(const pl_hopper_device *dev, const pl_hopper_product *p);

/* Enqueues the product; cudaErrorInvalidValue where no kernel has that plan. */
cudaError_t pl_hopper_multiply(const pl_hopper_device *dev, cudaStream_t stream, const pl_hopper_product *p,
                               pl_hopper_plan plan);

#ifdef __cplusplus
}
#endif
#endif
