/* cuda_parts.h -- f32 products of middling size on bf16 tensor cores, factors in three parts (cuda_parts.cu).
 *
 * gemm of ops.def where all formats are f32: A B^T, A B, A^T B, symmetric ones among them, of which half is
 * made and mirrored. As in cuda_split.h a number is the sum of three of 8 bits and six of nine products of
 * parts are summed, at most 2^-22 of |a| |b| left out; but parts are made on the way into shared memory, so
 * that there is no scratch and no kernel before this one, and sums are begun anew every 16 k and added up in
 * f32. One order of summation, whatever the tiles, the batch and the shape. An infinite factor makes NaN.
 */
#ifndef PL_CUDA_PARTS_H
#define PL_CUDA_PARTS_H

#include <cuda_runtime.h>

#include "device/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Is the product for this kernel, and large enough to pay? By the shape of one matrix, formats, strides. */
int pl_cuda_parts_suits(const pl_args_gemm *a);
cudaError_t pl_cuda_parts(cudaStream_t stream, const pl_args_gemm *a);

#ifdef __cplusplus
}
#endif
#endif
