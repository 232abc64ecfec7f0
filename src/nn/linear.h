/* linear.h -- linear layers: with bias and activation, and at the end of a branch, added to a stream. */
#ifndef PL_NN_LINEAR_H
#define PL_NN_LINEAR_H

#include "compose/product.h"
#include "nn/param.h"

/* Y = act(X W^T + b) */
typedef struct pl_linear {
    const pl_param *weight; /* (E, out, in) */
    const pl_param *bias;   /* (E, 1, out), or NULL */
    int64_t act;            /* PL_ACT_NONE, PL_ACT_SILU, ... */
    int64_t tf32;           /* its three products are of factors in tf32; not at the end of a branch */
} pl_linear;

/* X (E, rows, in), U and Y (E, rows, out). U = X W^T is what the backward needs of an activation; Y may be U,
 * and is where there is neither bias nor activation. */
void pl_linear_forward(pl_queue *q, const pl_linear *l, pl_mat Y, pl_mat U, pl_mat X);

/* Overwrites the gradients of weight and bias. dX = dU W + add; dX or none, add or none (dX may be add). U is
 * looked at only with an activation. The rows come in `groups` equal groups, along which the sum over them
 * may be cut (weight_grad.h). */
void pl_linear_backward(pl_queue *q, const pl_linear *l, pl_mat dX, pl_mat add, pl_mat dY, pl_mat U, pl_mat X,
                        int64_t groups);

/* ---- the end of a branch ------------------------------------------------------------------------- */

/* The end of a branch: a linear layer whose result is added to the residual stream, or left out
 * for some images.
 *
 *     Y = Z + s (X W^T + b)         s one factor per image (stochastic depth), or none: 1 */

/* X (E, rows, in) in the activations' format; Y, Z (E, rows, out) in the stream's, Y may be Z; s (E, images,
 * 1) or none, an image's rows following each other. */
void pl_residual_forward(pl_queue *q, const pl_linear *l, pl_mat Y, pl_mat X, pl_mat Z, pl_mat s);

/* What the branch gets of the stream's gradient dY, which is Z's too: s dY, in the format of dU, in which
 * products want it. Where that is dY itself it is returned; else dU is written, and returned. A layer norm
 * behind the branch makes both at once (pl_layer_norm_backward). */
pl_mat pl_residual_gradient(pl_queue *q, pl_mat dU, pl_mat dY, pl_mat s);

/* Overwrites the gradients of weight and bias, and dX (E, rows, in) in the activations' format, through
 * the activation before the layer where one is given (or NULL), from the branch's gradient dU (E, rows, out)
 * in the activations' format. The rows come in `groups` (images). */
void pl_residual_backward(pl_queue *q, const pl_linear *l, pl_mat dX, const pl_activation *before, pl_mat dU,
                          pl_mat X, int64_t groups);

#endif
