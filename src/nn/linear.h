/* linear.h -- a linear layer with bias and activation: Y = act(X W^T + b). */
#ifndef PL_NN_LINEAR_H
#define PL_NN_LINEAR_H

#include "device/queue.h"
#include "nn/param.h"

typedef struct pl_linear {
    const pl_param *weight; /* (E, out, in) */
    const pl_param *bias;   /* (E, 1, out), or NULL */
    int64_t act;            /* PL_ACT_NONE, PL_ACT_SILU, ... */
} pl_linear;

/* X (E, rows, in), U and Y (E, rows, out). U = X W^T is what the backward needs of an activation; Y may be U,
 * and is where there is neither bias nor activation. */
void pl_linear_forward(pl_queue *q, const pl_linear *l, pl_mat Y, pl_mat U, pl_mat X);

/* Overwrites the gradients of weight and bias. dX = dU W + add; dX or none, add or none (dX may be add). U is
 * looked at only with an activation. The rows come in `groups` equal groups, along which the sum over them
 * may be cut (weight_grad.h). */
void pl_linear_backward(pl_queue *q, const pl_linear *l, pl_mat dX, pl_mat add, pl_mat dY, pl_mat U, pl_mat X,
                        int64_t groups);

#endif
