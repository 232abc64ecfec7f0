/* layer_norm.c -- Y = g (X - mean) / sd + b, row by row;   with xhat = (X - mean) / sd and t = g dY:
 *
 *     dX = Z + (t - mean(t) - xhat mean(t xhat)) / sd     dL = dX     dg = sum dY xhat     db = sum dY
 */
#include "nn/layer_norm.h"

void pl_layer_norm_forward(pl_queue *q, const pl_layer_norm *l, pl_mat Y, pl_mat S, pl_mat X)
{
    PL_CALL(layernorm, q, .Y = Y, .S = S, .X = X, .g = l->weight->W, .b = l->bias->W, .eps = l->eps);
}

void pl_layer_norm_backward(pl_queue *q, const pl_layer_norm *l, pl_mat dX, pl_mat dL, pl_mat Z, pl_mat X,
                            pl_mat S, pl_mat dY)
{
    PL_CALL(layernorm_back, q, .dX = dX, .dg = l->weight->G, .db = l->bias->G, .dL = dL, .X = X, .S = S,
            .g = l->weight->W, .dY = dY, .Z = Z);
}
