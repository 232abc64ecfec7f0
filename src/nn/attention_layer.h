/* attention_layer.h -- the attention branch of a transformer block: qkv, attention, projection, added to the
 * stream. */
#ifndef PL_NN_ATTENTION_LAYER_H
#define PL_NN_ATTENTION_LAYER_H

#include "nn/residual.h"

typedef struct pl_attention_layer {
    pl_linear qkv, proj; /* (E, 3 C, C) and (E, C, C), with biases */
    int64_t heads;
} pl_attention_layer;

/* what the backward wants of the forward; B images of T tokens, n = B T rows per member */
typedef struct pl_attention_kept {
    pl_mat QKV, O; /* (E, n, 3 C), (E, n, C) */
    pl_mat lse;    /* (E B, heads, T), in the stream's format */
} pl_attention_kept;

/* Y = Z + s proj(attention(qkv(X))). X (E, n, C); Y, Z, s as of pl_residual_forward. */
void pl_attention_layer_forward(pl_queue *q, const pl_attention_layer *l, pl_mat Y,
                                const pl_attention_kept *kept, pl_mat X, pl_mat Z, pl_mat s, int64_t B);

/* Overwrites dX and the gradients; dY is the stream's, as of pl_residual_backward, and Z's gradient too. dX
 * may be dY. */
void pl_attention_layer_backward(pl_queue *q, const pl_attention_layer *l, pl_mat dX, pl_mat dY,
                                 const pl_attention_kept *kept, pl_mat X, pl_mat s, int64_t B);

#endif
