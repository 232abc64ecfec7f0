/* cuda_attention.h -- attention and its gradient on Hopper's tensor cores (compute capability 9.0), scores
 * never in memory.
 *
 * Served: bf16, heads of at most 64 channels, a multiple of 8; 16-byte aligned rows and images; lse in f32.
 * Any number of tokens.
 */
#ifndef PL_CUDA_ATTENTION_H
#define PL_CUDA_ATTENTION_H

#include "cuda_hopper.h"
#include "device/ops.h"

#define PL_ATTENTION_SHORT 80 /* tokens */
#define PL_ATTENTION_WHOLE 208

#ifdef __cplusplus
extern "C" {
#endif

int pl_hopper_attention_suits(const pl_args_attention *a);
int pl_hopper_attention_back_suits(const pl_args_attention_back *a);
cudaError_t pl_hopper_attention(const pl_hopper_device *dev, cudaStream_t stream, const pl_args_attention *a);
cudaError_t pl_hopper_attention_back(const pl_hopper_device *dev, cudaStream_t stream,
                                     const pl_args_attention_back *a);

/* The same for what suits, a head in shared memory whole: of at most PL_ATTENTION_SHORT tokens by mma.sync,
 * of at most PL_ATTENTION_WHOLE by wgmma. */
cudaError_t pl_hopper_attention_short(const pl_hopper_device *dev, cudaStream_t stream,
                                      const pl_args_attention *a);
cudaError_t pl_hopper_attention_short_back(const pl_hopper_device *dev, cudaStream_t stream,
                                           const pl_args_attention_back *a);
cudaError_t pl_hopper_attention_groups_back(const pl_hopper_device *dev, cudaStream_t stream,
                                            const pl_args_attention_back *a);

#ifdef __cplusplus
}
#endif
#endif
