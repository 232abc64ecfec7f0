/* transformer.h -- the layers of a vision transformer: patches to tokens, layer norm, the two branches of a
 * block, stochastic depth. */
#ifndef PL_NN_TRANSFORMER_H
#define PL_NN_TRANSFORMER_H

#include "base/philox.h"
#include "nn/linear.h"

/* ---- patches to tokens --------------------------------------------------------------------------- */

/* Pictures to tokens: a linear layer on every patch, a class token before them, a position
 * added to each. */

typedef struct pl_patch_embed {
    pl_linear proj;      /* (E, C, 3 p p) with bias: timm's convolution of stride p */
    const pl_param *cls; /* (E, 1, C) */
    const pl_param *pos; /* (E, T, C), T = 1 + patches */
    int64_t patch;       /* p */
} pl_patch_embed;

/* images (E B, 3 H, W) -> X (E, B T, C) in the stream's format; P (E, B (T - 1), 3 p p) keeps the patches in
 * the activations' format. */
void pl_patch_embed_forward(pl_queue *q, const pl_patch_embed *l, pl_mat X, pl_mat P, pl_mat images,
                            int64_t B);
/* overwrites the gradients; a picture has none */
void pl_patch_embed_backward(pl_queue *q, const pl_patch_embed *l, pl_mat dX, pl_mat P, int64_t B);

/* ---- layer norm ---------------------------------------------------------------------------------- */

/* Every row to mean 0 and variance 1, then a scale and a shift per channel. */

typedef struct pl_layer_norm {
    const pl_param *weight, *bias; /* (E, 1, C) */
    double eps;                    /* under the square root, beside the variance */
} pl_layer_norm;

/* X, Y (E, rows, C); S (E, rows, 2): mean and 1/sd of every row, for the backward. */
void pl_layer_norm_forward(pl_queue *q, const pl_layer_norm *l, pl_mat Y, pl_mat S, pl_mat X);

/* dX = Z + what comes through, Z or none; dL = dX, or s dX with s (E, groups, 1), in another format, or none.
 * dX may be Z or dY, dL may be dY where dX is not. Overwrites the gradients. */
void pl_layer_norm_backward(pl_queue *q, const pl_layer_norm *l, pl_mat dX, pl_mat dL, pl_mat s, pl_mat Z,
                            pl_mat X, pl_mat S, pl_mat dY);

/* ---- attention ----------------------------------------------------------------------------------- */

/* The attention branch of a transformer block: qkv, attention, projection, added to the
 * stream. */

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

/* Overwrites dX and the gradients; dU is the branch's, as of pl_residual_backward. dX may be dU. */
void pl_attention_layer_backward(pl_queue *q, const pl_attention_layer *l, pl_mat dX, pl_mat dU,
                                 const pl_attention_kept *kept, pl_mat X, int64_t B);

/* ---- MLP ----------------------------------------------------------------------------------------- */

/* The MLP branch of a transformer block: a wider layer with GELU and back, added to the stream. */

typedef struct pl_mlp {
    pl_linear fc1, fc2; /* (E, M, C) with its activation and (E, C, M), with biases */
} pl_mlp;

typedef struct pl_mlp_kept {
    pl_mat U, A; /* (E, n, M): A = act(fc1(X)). U is what the backward wants of the activation
                  * (pl_activation.kept); A may be U where there is no backward */
} pl_mlp_kept;

/* Y = Z + s fc2(act(fc1(X))). X (E, n, C); Y, Z, s as of pl_residual_forward. */
void pl_mlp_forward(pl_queue *q, const pl_mlp *l, pl_mat Y, const pl_mlp_kept *kept, pl_mat X, pl_mat Z,
                    pl_mat s);

/* Overwrites dX and the gradients; dU is the branch's, as of pl_residual_backward. dX may be dU. */
void pl_mlp_backward(pl_queue *q, const pl_mlp *l, pl_mat dX, pl_mat dU, const pl_mlp_kept *kept, pl_mat X,
                     int64_t groups);

/* ---- stochastic depth ---------------------------------------------------------------------------- */

/* Stochastic depth: which images leave out a branch at a step.
 *
 * As timm's DropPath: a branch's result is multiplied by 0 with probability `rate`, else by 1 / (1 - rate),
 * so that its expectation stays. The draw of (seed, step, branch, image) is philox(seed, PL_STREAM_DROP,
 * step, branch 2^32 + image): the same on any device, whatever else is in the batch. */

/* The rate of block `block` of `depth`: evenly from 0 to most, as timm's linspace. */
static inline double pl_drop_path_rate(double most, int64_t block, int64_t depth)
{
    return depth > 1 ? most * (double)block / (double)(depth - 1) : 0;
}

/* The factor of an image's branch: 0 or 1 / (1 - rate). */
static inline double pl_drop_path_factor(uint64_t seed, uint64_t step, int64_t branch, int64_t image,
                                         double rate)
{
    pl_u4 r = pl_philox(seed, PL_STREAM_DROP, step, (uint64_t)branch << 32 | (uint64_t)image);
    return pl_uniform_f64(r.x, r.y) < rate ? 0 : 1 / (1 - rate);
}

#endif
