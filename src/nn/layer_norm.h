/* layer_norm.h -- every row to mean 0 and variance 1, then a scale and a shift per channel. */
#ifndef PL_NN_LAYER_NORM_H
#define PL_NN_LAYER_NORM_H

#include "device/queue.h"
#include "nn/param.h"

typedef struct pl_layer_norm {
    const pl_param *weight, *bias; /* (E, 1, C) */
    double eps;                    /* under the square root, beside the variance */
} pl_layer_norm;

/* X, Y (E, rows, C); S (E, rows, 2): mean and 1/sd of every row, for the backward. */
void pl_layer_norm_forward(pl_queue *q, const pl_layer_norm *l, pl_mat Y, pl_mat S, pl_mat X);

/* dX = Z + what comes through, Z or none; dL = dX in another format, or none. dX may be Z or dY, dL may be dY
 * where dX is not. Overwrites the gradients. */
void pl_layer_norm_backward(pl_queue *q, const pl_layer_norm *l, pl_mat dX, pl_mat dL, pl_mat Z, pl_mat X,
                            pl_mat S, pl_mat dY);

#endif
