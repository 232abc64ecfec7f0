/* cuda_gemm_act.h -- products of many rows with a small matrix on Hopper's tensor cores (compute
 * capability 9.0), and what follows them in the same pass.
 *
 * gemm_act of ops.def where A and op(B) are bf16, B is small enough to stay in a block's shared memory, and A
 * has many rows: linear layers. Sums in f32 over k ascending in steps of 16, whatever the batch. gemm takes
 * the same way by the same shapes, so that gemm_act has its bits.
 */
#ifndef PL_CUDA_GEMM_ACT_H
#define PL_CUDA_GEMM_ACT_H

#include "cuda_hopper.h"
#include "device/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Is the product A op(B) + D for these kernels? By shapes and formats; the rest is looked at by ..._whole. */
int pl_hopper_rows_suits(const pl_args_gemm_act *a);
int pl_hopper_rows_whole(
    const pl_args_gemm_act *a); /* of such a product: all that follows is done in the same pass, too */
cudaError_t pl_hopper_rows(const pl_hopper_device *dev, cudaStream_t stream, const pl_args_gemm_act *a);

/* What follows a product that stands in Y: Y = act(Y + b), S; or Y = Y F. */
void pl_cuda_launch_finish(cudaStream_t stream, const pl_args_gemm_act *a);

#ifdef __cplusplus
}
#endif
#endif
