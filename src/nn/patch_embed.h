/* patch_embed.h -- pictures to tokens: a linear layer on every patch, a class token before them, a position
 * added to each. */
#ifndef PL_NN_PATCH_EMBED_H
#define PL_NN_PATCH_EMBED_H

#include "nn/linear.h"

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

#endif
