/* so3_points.h -- the SO(3) testbed's network: a cloud of points -> one rotation-invariant number.
 *
 *     pl_so3_shape shape = {.members = 1, .batch = 32, .points = 64, .width = 16, .layers = 3, .dtype =
 *         POLAR_DTYPE_F32, .eps = 1e-8};
 *     pl_so3_create(&m, dev, &shape, 1);
 *     pl_so3_init(m, q, &seed);
 *     pl_mat p = pl_so3_forward(m, q, x);                          // (members * B, N, 3) -> (members, B, 1)
 *     PL_CALL(mse, q, .L = loss, .dP = dp, .P = p, .Y = y);
 *     pl_so3_backward(m, q, dp);                                   // fills the G of pl_so3_params
 *     pl_so3_destroy(m);
 *
 * Members are independent models of one shape side by side; nothing a member computes depends on its mates.
 * Calls that take a queue only enqueue, so that forward and backward may be captured in a graph; misuse is
 * the queue's error.
 */
#ifndef PL_MODELS_SO3_POINTS_H
#define PL_MODELS_SO3_POINTS_H

#include "nn/param.h"

typedef struct pl_so3_shape {
    int64_t members, batch; /* batch: the most clouds per member in one call */
    int64_t points, width, layers;
    polar_dtype dtype; /* of weights, activations and gradients: f32 or f64 */
    double eps;        /* under the square roots of distances and norms */
    int message;       /* a pl_message_kind of compose/message.h; 0: weights by channel */
    int linear_gate;   /* the lengths of all channels open a gate */
    int tf32;          /* products of the linear layers, of an f32 model: factors in tf32 */
    int scalars_only;  /* the readout sees no lengths of vectors */
} pl_so3_shape;

typedef struct pl_so3 pl_so3;

/* training 0: no gradients, one layer's activations */
polar_status pl_so3_create(pl_so3 **out, polar_device *dev, const pl_so3_shape *shape, int training);
void pl_so3_destroy(pl_so3 *m); /* NULL is fine */
/* borrowed; the reference's names and order */
pl_param *pl_so3_params(pl_so3 *m, int64_t *count);
/* one seed per member: philox(seed, PL_STREAM_INIT, parameter number, element) */
polar_status pl_so3_init(pl_so3 *m, polar_queue *q, const uint64_t *seeds);
/* x (members * B, N, 3), packed, B <= batch -> (members, B, 1), borrowed until the next forward */
pl_mat pl_so3_forward(pl_so3 *m, polar_queue *q, pl_mat x);
/* after a forward, whose x must still be there: overwrites every G */
void pl_so3_backward(pl_so3 *m, polar_queue *q, pl_mat dpred);
/* of the backwards from now on; inside a captured graph nobody is called when it is replayed */
void pl_so3_watch_grads(pl_so3 *m, pl_grads_watch watch);

/* What one forward of a full batch (with training: and its backward) costs, and the memory such a model
 * takes; nothing is allocated on the device or computed. memory may be NULL. */
polar_status pl_so3_cost(polar_cost *step, pl_model_bytes *memory, polar_device *dev,
                         const pl_so3_shape *shape, int training);

#endif
