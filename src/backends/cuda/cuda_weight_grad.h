/* cuda_weight_grad.h -- the gradients of a linear layer's weight and bias on Hopper's tensor cores (compute
 * capability 9.0), the rows cut into pieces that are multiplied side by side.
 *
 * weight_grad of ops.def where dY and X are bf16 and have many rows. How many pieces is a matter of the
 * shape, never of the batch or the device; the pieces' sums, in f32, are added in one order. Scratch may be
 * no bytes.
 */
#ifndef PL_CUDA_WEIGHT_GRAD_H
#define PL_CUDA_WEIGHT_GRAD_H

#include "cuda_hopper.h"
#include "device/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

int pl_hopper_weight_grad_suits(const pl_args_weight_grad *a);
size_t pl_hopper_weight_grad_scratch(const pl_args_weight_grad *a); /* bytes */
cudaError_t pl_hopper_weight_grad(const pl_hopper_device *dev, cudaStream_t stream,
                                  const pl_args_weight_grad *a, void *scratch);

/* Of few rows: no scratch. */
cudaError_t pl_hopper_weight_grad_few(const pl_hopper_device *dev, cudaStream_t stream,
                                      const pl_args_weight_grad *a);

#ifdef __cplusplus
}
#endif
#endif
