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

/* Y = X or X^T */
void pl_cuda_launch_copy(cudaStream_t stream, const pl_args_copy *a);
/* Y = alpha X + beta Z */
void pl_cuda_launch_axpby(cudaStream_t stream, const pl_args_axpby *a);
/* Y = X / norm */
void pl_cuda_launch_normalise(cudaStream_t stream, const pl_args_normalise *a);
/* D, M, V from G */
void pl_cuda_launch_direction(cudaStream_t stream, const pl_args_direction *a);
/* W <- (1 - lr wd) W - lr s D */
void pl_cuda_launch_decay_step(cudaStream_t stream, const pl_args_decay_step *a);
/* both in one pass: W, M, V from G */
void pl_cuda_launch_adamw_step(cudaStream_t stream, const pl_args_adamw_step *a);
/* F = 1 where G is not finite */
void pl_cuda_launch_nonfinite(cudaStream_t stream, const pl_args_nonfinite *a);
/* counts and live rows of a step */
void pl_cuda_launch_advance(cudaStream_t stream, const pl_args_advance *a);
/* Y = act(X + b) */
void pl_cuda_launch_bias_act(cudaStream_t stream, const pl_args_bias_act *a);
/* dX = dY act'(X + b) */
void pl_cuda_launch_bias_act_back(cudaStream_t stream, const pl_args_bias_act_back *a);
/* Y[g] = alpha sum of group g's rows */
void pl_cuda_launch_row_sum(cudaStream_t stream, const pl_args_row_sum *a);
/* Y[r] = alpha X[r / n] */
void pl_cuda_launch_row_spread(cudaStream_t stream, const pl_args_row_spread *a);
/* L and dP from P and Y */
void pl_cuda_launch_mse(cudaStream_t stream, const pl_args_mse *a);
void pl_cuda_launch_pair_dist(cudaStream_t stream, const pl_args_pair_dist *a); /* D from X */
/* Y_i = Z_i + alpha sum_j w_ij X_j */
void pl_cuda_launch_pair_sum(cudaStream_t stream, const pl_args_pair_sum *a);
/* dW from dY and X */
void pl_cuda_launch_pair_grad(cudaStream_t stream, const pl_args_pair_grad *a);
/* Q_ab = v_a . v_b */
void pl_cuda_launch_vec_dots(cudaStream_t stream, const pl_args_vec_dots *a);
/* dV += from dQ */
void pl_cuda_launch_vec_dots_back(cudaStream_t stream, const pl_args_vec_dots_back *a);
/* R = sqrt(|v|^2 + eps) */
void pl_cuda_launch_vec_norm(cudaStream_t stream, const pl_args_vec_norm *a);
/* dV += from dR */
void pl_cuda_launch_vec_norm_back(cudaStream_t stream, const pl_args_vec_norm_back *a);
/* Y = v sigmoid(g R + b) + z */
void pl_cuda_launch_vec_gate(cudaStream_t stream, const pl_args_vec_gate *a);
/* dV, T, TR from dY */
void pl_cuda_launch_vec_gate_back(cudaStream_t stream, const pl_args_vec_gate_back *a);
/* Y and S from X */
void pl_cuda_launch_layernorm(cudaStream_t stream, const pl_args_layernorm *a);
/* scratch: pl_cuda_layernorm_scratch bytes */
void pl_cuda_launch_layernorm_back(cudaStream_t stream, const pl_args_layernorm_back *a, void *scratch);
/* bytes that layernorm_back wants */
size_t pl_cuda_layernorm_scratch(const pl_args_layernorm_back *a);
void pl_cuda_launch_softmax(cudaStream_t stream, const pl_args_softmax *a); /* Y from X */
/* dX from Y and dY */
void pl_cuda_launch_softmax_back(cudaStream_t stream, const pl_args_softmax_back *a);
/* L and dZ from Z and T */
void pl_cuda_launch_cross_entropy(cudaStream_t stream, const pl_args_cross_entropy *a);
void pl_cuda_launch_scale_rows(cudaStream_t stream, const pl_args_scale_rows *a); /* Y = Z + s X */
/* squares of pictures */
void pl_cuda_launch_patches(cudaStream_t stream, const pl_args_patches *a);
/* any formats and strides, k ascending, one fma each: the bits of `cpu` */
void pl_cuda_launch_gemm(cudaStream_t stream, const pl_args_gemm *a);
/* scratch: pl_cuda_frob_scratch bytes */
void pl_cuda_launch_frob(cudaStream_t stream, const pl_args_frob *a, void *scratch);
/* one norm of several */
void pl_cuda_launch_frob_join(cudaStream_t stream, const pl_args_frob_join *a);
/* U's columns (contiguous) whose singular value is at most tol s[0] become zero; all become NaN where the
 * norm is not finite or info is not 0. */
void pl_cuda_launch_keep_rank(cudaStream_t stream, double *u, const double *s, const double *norm,
                              const int *info, int64_t rows, int64_t k, double tol);
/* bytes that frob wants */
size_t pl_cuda_frob_scratch(const pl_args_frob *a);

#ifdef __cplusplus
}
#endif
#endif
