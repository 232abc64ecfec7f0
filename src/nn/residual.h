/* residual.h -- the end of a branch: a linear layer whose result is added to the residual stream, or left out
 * for some images.
 *
 *     Y = Z + s (X W^T + b)         s one factor per image (stochastic depth), or none: 1
 */
#ifndef PL_NN_RESIDUAL_H
#define PL_NN_RESIDUAL_H

#include "nn/linear.h"

/* X (E, rows, in) in the activations' format; Y, Z (E, rows, out) in the stream's, Y may be Z; s (E, images,
 * 1) or none, an image's rows following each other. */
void pl_residual_forward(pl_queue *q, const pl_linear *l, pl_mat Y, pl_mat X, pl_mat Z, pl_mat s);

/* Overwrites the gradients of weight and bias, and dX (E, rows, in) in the activations' format, times F where
 * F is given (as large as dX, where the device has gemm_act); the gradient of Z is dY. dY (E, rows, out) in
 * the stream's format or, where there is no s, in the activations', in which products want it. The rows come
 * in `groups` (images). */
void pl_residual_backward(pl_queue *q, const pl_linear *l, pl_mat dX, pl_mat F, pl_mat dY, pl_mat X, pl_mat s,
                          int64_t groups);

#endif
