/* mlp.h -- the MLP branch of a transformer block: a wider layer with GELU and back, added to the stream. */
#ifndef PL_NN_MLP_H
#define PL_NN_MLP_H

#include "nn/residual.h"

typedef struct pl_mlp {
    pl_linear fc1, fc2; /* (E, M, C) with its activation and (E, C, M), with biases */
} pl_mlp;

typedef struct pl_mlp_kept {
    pl_mat U, A; /* (E, n, M): A = act(fc1(X)). U is fc1 before its bias, or, where the device has gemm_act,
                  * the slope of the activation there, which is all the backward wants; A may be U where there
                  * is no backward */
} pl_mlp_kept;

/* Y = Z + s fc2(act(fc1(X))). X (E, n, C); Y, Z, s as of pl_residual_forward. */
void pl_mlp_forward(pl_queue *q, const pl_mlp *l, pl_mat Y, const pl_mlp_kept *kept, pl_mat X, pl_mat Z,
                    pl_mat s);

/* Overwrites dX and the gradients; dY is the stream's, as of pl_residual_backward, and Z's gradient too. dX
 * may be dY. */
void pl_mlp_backward(pl_queue *q, const pl_mlp *l, pl_mat dX, pl_mat dY, const pl_mlp_kept *kept, pl_mat X,
                     pl_mat s, int64_t groups);

#endif
