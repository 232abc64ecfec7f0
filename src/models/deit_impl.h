/* deit_impl.h -- the inside of a pl_deit: its parameters and activations. For deit.c and deit_*.c only.
 *
 * E members, B images each, T tokens per image, n = B T rows per member, C channels, M hidden channels of the
 * MLP. Two formats: `wide` (f32 or f64) of weights, gradients, the residual stream, statistics and logits,
 * `narrow` (shape.dtype) of what products read and write; they differ in mixed precision only.
 */
#ifndef PL_MODELS_DEIT_IMPL_H
#define PL_MODELS_DEIT_IMPL_H

#include "models/deit.h"
#include "nn/transformer.h"

typedef struct pl_deit_block {
    /* parameters, views of the list */
    pl_layer_norm norm1, norm2;
    pl_attention_layer attn;
    pl_mlp mlp;
    double drop; /* rate */
    /* activations */
    pl_mat h1, S1; /* (E, n, C) narrow, (E, n, 2) wide: norm1 and its statistics */
    pl_attention_kept attn_kept;
    pl_mat X1; /* (E, n, C) wide: the stream after the attention */
    pl_mat h2, S2;
    pl_mlp_kept mlp_kept;
    pl_mat X2;     /* ... and after the MLP */
    pl_mat s1, s2; /* (E, B, 1) wide: stochastic depth of the two branches */
} pl_deit_block;

struct pl_deit {
    polar_device *dev;
    pl_deit_shape shape;
    polar_dtype wide;
    int training;
    int64_t tokens, hidden; /* T and M */
    int64_t param_count;
    pl_param *params;
    pl_deit_block *blocks;
    pl_patch_embed embed;
    pl_layer_norm norm;
    pl_linear head;
    pl_model_memory memory;
    pl_grads_watch watch;
    /* host: stochastic depth of one step, (2 depth, E, batch) in the wide format */
    double *factors;
    /* images per member the factors on the device were drawn for; 0: nothing is left out */
    int64_t drop_images;
    /* of the last forward */
    int64_t B;   /* images per member; 0 before the first */
    pl_mat low;  /* mixed: all weights rounded, in one piece */
    pl_mat drop; /* (2 depth, E B, 1) wide */
    /* (E, B (T - 1), 3 p p) narrow: patches;  (E, n, C) wide: tokens */
    pl_mat P, X0;
    /* (E, B, C), (E, B, 2), (E, B, classes), wide: the class tokens' norm, its statistics, the head */
    pl_mat h, S, logits;
};

/* everything but device memory, which is measured */
polar_status pl_deit_make(pl_deit **out, polar_device *dev, const pl_deit_shape *shape, int training);
/* the reverse of make; NULL is fine */
void pl_deit_free(pl_deit *m);
/* how many arrays pl_deit_list fills in */
int64_t pl_deit_param_most(int64_t depth);
/* names and shapes, and which layer each array belongs to */
void pl_deit_list(pl_deit *m);
/* for B images per member; fewer need no more memory */
void pl_deit_point_activations(pl_deit *m, pl_arena *a, int64_t B);

#endif
