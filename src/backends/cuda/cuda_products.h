/* cuda_products.h -- products of a batch of 16-bit matrices by tiles on Hopper's tensor cores, one after
 * the other or several that depend on each other in one launch.
 *
 *     C = alpha op(A) op(B)^T + (beta D + gamma E)
 *
 * Row-major; op(A) is (rows of C, k), op(B) (columns of C, k), each as it stands or transposed. `sym`: C and
 * D are symmetric, so tiles on and above the diagonal are made and stored twice. Sums in f32, one rounding;
 * every element is summed over k in one order, whatever the tile, the width, the batch and its mates.
 *
 * In a list of several products each is made of a matrix after all before it have been made of that matrix;
 * the batch's matrices do not wait for each other.
 */
#ifndef PL_CUDA_PRODUCTS_H
#define PL_CUDA_PRODUCTS_H

#include <cuda_runtime.h>
#include <stdint.h>

#include "cuda_hopper.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PL_CUDA_PRODUCTS_ARRAYS   8
#define PL_CUDA_PRODUCTS_MAX      48
#define PL_CUDA_PRODUCTS_NONE     255
#define PL_CUDA_PRODUCTS_BATCH    4096 /* matrices of a list of several products */
#define PL_CUDA_PRODUCTS_COUNTERS (PL_CUDA_PRODUCTS_BATCH + 2)

/* (batch, rows, cols), row and batch strides in elements */
typedef struct {
    const void *data; /* may be NULL where only pl_cuda_products_suit looks */
    int64_t rows, cols, ld, bs;
} pl_cuda_product_array;

typedef struct {
    uint8_t c, a, b, d, e; /* places in the list's arrays; d: PL_CUDA_PRODUCTS_NONE for no addend */
    uint8_t ta, tb;        /* op is the transpose of what stands there */
    uint8_t sym;
    float alpha, beta, gamma; /* gamma 0: no E; where there is one, there is a D */
    uint8_t lent;             /* product by product it is made elsewhere: cuBLASLt's time is counted for it */
} pl_cuda_product;

typedef struct {
    pl_cuda_product_array array[PL_CUDA_PRODUCTS_ARRAYS];
    pl_cuda_product product[PL_CUDA_PRODUCTS_MAX];
    int arrays, products;
    int64_t batch;
    int half;          /* f16, else bf16 */
    const float *wide; /* an addend in f32, of C's shape, instead of D; or NULL */
    int64_t ldw, bsw;  /* its strides */
    float *out; /* where the last product's results go instead of C, rounded as there, in f32; or NULL */
    int64_t ldo, bso;   /* its strides; that product is not symmetric and has no second addend */
    uint32_t *counters; /* several products: PL_CUDA_PRODUCTS_COUNTERS zeros, zeros again in the end */
} pl_cuda_product_list;

/* Can the list be had here: pointers and batch strides of 16 bytes, sizes and row strides multiples of 8,
 * columns of what is taken transposed of 64. */
int pl_cuda_products_suit(const pl_cuda_product_list *l);

/* Columns of a tile that end soonest. No bit depends on it. */
int pl_cuda_products_width(const pl_hopper_device *dev, const pl_cuda_product_list *l);

/* One launch ends sooner than product by product. */
int pl_cuda_products_together(const pl_hopper_device *dev, const pl_cuda_product_list *l);

/* Enqueues product i of the list, lent or not. */
cudaError_t pl_cuda_products_single(const pl_hopper_device *dev, cudaStream_t stream,
                                    const pl_cuda_product_list *l, int i);

/* Enqueues the list in one launch, by tiles of 128 rows and `width` columns: 64, 128, 192 or 256. */
cudaError_t pl_cuda_products_launch(const pl_hopper_device *dev, cudaStream_t stream,
                                    const pl_cuda_product_list *l, int width);

#ifdef __cplusplus
}
#endif
#endif
