/* cuda_kernels.h -- launchers of our own kernels: each enqueues on a stream and reports nothing; the caller
 * asks for the launch error.
 *
 * Built by nvcc as C++ and called from C. The formulas are those of math/formulas_elem.h, compiled with
 * -fmad=false, so elementwise results have the bits of the `cpu` backend.
 */
#ifndef PL_CUDA_KERNELS_H
#define PL_CUDA_KERNELS_H

#include <cuda_runtime.h>

#include "device/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CUDA_LAUNCHED(op) void pl_cuda_launch_##op(cudaStream_t stream, const pl_args_##op *a);
#define CUDA_WITH_SCRATCH(op)                                                            \
    void pl_cuda_launch_##op(cudaStream_t stream, const pl_args_##op *a, void *scratch); \
    size_t pl_cuda_##op##_scratch(const pl_args_##op *a);
#include "device/ops.def"

/* Y = X or X^T */
void pl_cuda_launch_copy(cudaStream_t stream, const pl_args_copy *a);
/* D, M, V from G */
void pl_cuda_launch_direction(cudaStream_t stream, const pl_args_direction *a);
/* W <- (1 - lr wd) W - lr s D */
void pl_cuda_launch_decay_step(cudaStream_t stream, const pl_args_decay_step *a);
/* the same of another polar_apply */
void pl_cuda_launch_apply_step(cudaStream_t stream, const pl_args_apply_step *a);
/* of matrices of any size, one call's (small ones of many calls: cuda_multi_stage.h) */
void pl_cuda_launch_line_factors(cudaStream_t stream, const pl_args_line_factors *a);
void pl_cuda_launch_scale_lines(cudaStream_t stream, const pl_args_scale_lines *a);
void pl_cuda_launch_inner(cudaStream_t stream, const pl_args_inner *a, void *scratch);
size_t pl_cuda_inner_scratch(const pl_args_inner *a); /* bytes */
/* one call's (those of many calls: cuda_multi_norm.h) */
void pl_cuda_launch_frob_normalise(cudaStream_t stream, const pl_args_frob_normalise *a, void *scratch);
size_t pl_cuda_frob_normalise_scratch(const pl_args_frob_normalise *a);
/* one call's sweeps; those of many calls: cuda_hopper_kron.h, where a cluster serves them */
void pl_cuda_launch_kron_sweep(cudaStream_t stream, const pl_args_kron_sweep *a, void *scratch);
size_t pl_cuda_kron_sweep_scratch(const pl_args_kron_sweep *a);
int pl_cuda_sweeps_by_cluster(const pl_args_kron_sweep *a);
/* both in one pass: W, M, V from G */
void pl_cuda_launch_adamw_step(cudaStream_t stream, const pl_args_adamw_step *a);
/* F = 1 where G is not finite */
void pl_cuda_launch_nonfinite(cudaStream_t stream, const pl_args_nonfinite *a);
/* any formats and strides, k ascending, one fma each: the bits of `cpu` */
void pl_cuda_launch_gemm(cudaStream_t stream, const pl_args_gemm *a);
/* Whether pair_message and its gradients take these operands, all of them of one call. */
int pl_cuda_message_suits(const pl_mat *operands, int count, int64_t points);
size_t pl_cuda_pair_message_scratch(const pl_args_pair_message *a); /* bytes */
size_t pl_cuda_pair_message_back_scratch(const pl_args_pair_message_back *a);
void pl_cuda_launch_pair_message(cudaStream_t stream, const pl_args_pair_message *a, void *scratch);
void pl_cuda_launch_pair_message_back(cudaStream_t stream, const pl_args_pair_message_back *a, void *scratch);
/* The same of pair_weight; D and w0 are among the operands. */
int pl_cuda_weight_suits(const pl_mat *operands, int count, const pl_mat *D, const pl_mat *w0);
size_t pl_cuda_pair_weight_scratch(const pl_args_pair_weight *a);
size_t pl_cuda_pair_weight_back_scratch(const pl_args_pair_weight_back *a);
void pl_cuda_launch_pair_weight(cudaStream_t stream, const pl_args_pair_weight *a, void *scratch);
void pl_cuda_launch_pair_weight_back(cudaStream_t stream, const pl_args_pair_weight_back *a, void *scratch);
/* Does nothing for so long. */
void pl_cuda_launch_delay(cudaStream_t stream, int microseconds);
/* U's columns (contiguous) whose singular value is at most tol s[0] become zero, the others f of it times
 * themselves (pl_spectrum; s is in units of the norm); all become NaN where the norm is not finite or info is
 * not 0. */
void pl_cuda_launch_keep_rank(cudaStream_t stream, double *u, const double *s, const double *norm,
                              const int *info, int64_t rows, int64_t k, double tol, int64_t kind,
                              double power);

#ifdef __cplusplus
}
#endif
#endif
