/* cuda_split.h -- f32 products on Hopper's bf16 tensor cores (compute capability 9.0), each factor in three
 * parts.
 *
 * gemm of ops.def where all formats are f32 and the product is large: A B^T, A B or A^T B. A number of 24
 * bits is the sum of three of 8 bits, exactly (below 2^-110 its last bits may be lost); of the nine products
 * of parts the six largest are summed, so that at most 2^-22 of |a| |b| is left out. Sums are in f32, begun
 * anew every 256 k and added up in f32: one order of summation by the shape of one matrix, whatever the
 * batch. An infinite factor makes NaN, for a part of the other may be zero.
 */
#ifndef PL_CUDA_SPLIT_H
#define PL_CUDA_SPLIT_H

#include "cuda_hopper.h"
#include "device/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Is the product for these kernels, and large enough to pay? By the shape of one matrix, formats, strides. */
int pl_hopper_split_suits(const pl_args_gemm *a);
size_t pl_hopper_split_scratch(const pl_args_gemm *a); /* bytes; the parts of one factor */
cudaError_t pl_hopper_split(const pl_hopper_device *dev, cudaStream_t stream, const pl_args_gemm *a,
                            void *scratch);

#ifdef __cplusplus
}
#endif
#endif
