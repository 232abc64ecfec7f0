/* deit.h -- the DeiT testbed's network: a vision transformer as timm's vit_tiny_patch16_224 and its kin.
 * Pictures -> one score per class.
 *
 *     // 224 x 224, patches of 16, 12 blocks of width 192, 100 classes
 *     pl_deit_shape shape = PL_DEIT_TINY;
 *     pl_deit_create(&m, dev, &shape, 1);
 *     // or pl_deit_load(m, q, 0, "timm.safetensors")
 *     pl_deit_init(m, q, &seed);
 *     // training with drop_path > 0: this step's stochastic depth
 *     pl_deit_set_drop(m, q, &seed, step, B);
 *     // (members * B, 3 image, image) -> (members, B, classes)
 *     pl_mat z = pl_deit_forward(m, q, x);
 *     PL_CALL(cross_entropy, q, .L = loss, .dZ = dz, .Z = z, .T = targets);
 *     pl_deit_backward(m, q, dz);                                  // fills the G of pl_deit_params
 *     pl_deit_destroy(m);
 *
 * Members are independent models of one shape side by side; nothing a member computes depends on its mates.
 * Calls that take a queue only enqueue (init, load and save apart), and forward and backward may be
 * captured in a graph; misuse is the queue's error.
 *
 * Mixed precision (dtype bf16): weights, gradients of weights, the residual stream and its gradient,
 * statistics, the head, logits are f32; what goes into and comes out of the blocks' products is bf16, as
 * torch's autocast has it. Each forward rounds the weights afresh.
 */
#ifndef PL_MODELS_DEIT_H
#define PL_MODELS_DEIT_H

#include "nn/param.h"

typedef struct pl_deit_shape {
    int64_t members, batch;      /* batch: the most images per member in one call */
    int64_t image, patch;        /* pixels along a side; image is a multiple of patch */
    int64_t width, depth, heads; /* width is a multiple of heads */
    /* hidden channels of the MLP: the whole part of width * mlp_ratio */
    double mlp_ratio;
    int64_t classes;
    polar_dtype dtype; /* of the activations: f64, f32, or bf16 (mixed) */
    /* stochastic depth: a block's branches are left out at 0 in the first block, rising evenly to this in the
     * last */
    double drop_path;
} pl_deit_shape;

#define PL_DEIT_TINY                                                                                 \
    {                                                                                                \
        .members = 1, .batch = 32, .image = 224, .patch = 16, .width = 192, .depth = 12, .heads = 3, \
        .mlp_ratio = 4, .classes = 100, .dtype = POLAR_DTYPE_F32, .drop_path = 0                     \
    }

typedef struct pl_deit pl_deit;

/* training 0: no gradients, one block's activations */
polar_status pl_deit_create(pl_deit **out, polar_device *dev, const pl_deit_shape *shape, int training);
void pl_deit_destroy(pl_deit *m); /* NULL is fine */
/* borrowed; timm's names and order */
pl_param *pl_deit_params(pl_deit *m, int64_t *count);
/* one seed per member: philox(seed, PL_STREAM_INIT, parameter number, element) */
polar_status pl_deit_init(pl_deit *m, polar_queue *q, const uint64_t *seeds);
/* x (members * B, 3 image, image), packed, any format, B <= batch; borrowed until the next forward */
pl_mat pl_deit_forward(pl_deit *m, polar_queue *q, pl_mat x);
/* after a forward: overwrites every G; dlogits (members, B, classes) in the logits' format */
void pl_deit_backward(pl_deit *m, polar_queue *q, pl_mat dlogits);
/* of the backwards from now on; inside a captured graph nobody is called when it is replayed */
void pl_deit_watch_grads(pl_deit *m, pl_grads_watch watch);

/* Stochastic depth of the next forwards, for B images per member: image i of a member is drawn at (seed,
 * PL_STREAM_DROP, step, branch, i), see drop_path.h. seeds NULL: nothing is left out (evaluation; so a model
 * begins). The draws are live values; whether there are any is part of a captured graph. Not inside a
 * capture. */
void pl_deit_set_drop(pl_deit *m, polar_queue *q, const uint64_t *seeds, uint64_t step, int64_t B);

/* A member's weights as timm's state_dict in a safetensors file. Load takes f64, f32 and bf16; all or
 * nothing: a file of another model changes nothing. Both synchronise. */
polar_status pl_deit_save(pl_deit *m, polar_queue *q, int64_t member, const char *path);
polar_status pl_deit_load(pl_deit *m, polar_queue *q, int64_t member, const char *path);

/* What one forward of a full batch (with training: and its backward, every branch drawn) costs, and the
 * memory such a model takes; nothing is allocated on the device or computed. memory may be NULL. */
polar_status pl_deit_cost(polar_cost *step, pl_model_bytes *memory, polar_device *dev,
                          const pl_deit_shape *shape, int training);

#endif
