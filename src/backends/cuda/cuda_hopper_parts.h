/* cuda_hopper_parts.h -- f32 products of middling size on Hopper's tensor cores (compute capability 9.0),
 * factors in parts of bf16, calls put off together in one launch (cuda_hopper_parts.cu).
 *
 * gemm of ops.def where all formats are f32, factors as they are: A B^T, A B, A^T B, symmetric ones among
 * them, of which half is made and mirrored. Three parts have all 24 bits; six of nine products of parts leave
 * out at most 2^-22 of |a| |b|.
 *
 * Invariants
 *  1. Sums in f32, of numbers of 24 bits begun anew every 128 k and added up: one order of summation,
 *     whatever the tiles, the batch, the shape and what else is in the list.
 *  2. An infinite factor makes NaN.
 *  3. The calls of a list do not depend on each other.
 */
#ifndef PL_CUDA_HOPPER_PARTS_H
#define PL_CUDA_HOPPER_PARTS_H

#include "cuda_hopper.h"
#include "device/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PL_HOPPER_PARTS_CALLS 24 /* of one launch, 3 KB of parameters */

typedef struct pl_hopper_parts_list {
    int calls;
    pl_args_gemm call[PL_HOPPER_PARTS_CALLS];
} pl_hopper_parts_list;

/* Is the product for this kernel, and large enough to pay? By the shape of one matrix, formats, strides. */
int pl_hopper_parts_suits(const pl_args_gemm *a);
/* one launch for all calls; `counter` is zero, and zero again in the end */
cudaError_t pl_hopper_parts(const pl_hopper_device *dev, cudaStream_t stream,
                            const pl_hopper_parts_list *list, uint32_t *counter);

#ifdef __cplusplus
}
#endif
#endif
