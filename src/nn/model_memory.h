/* model_memory.h -- what every model does with its parameter list and its device memory: three pieces,
 * measured, committed once, then pointed at.
 *
 *     // while measuring, and again after
 *     pl_params_point(m->params, m->param_count, dtype, members, training, &weights, &gradients);
 *     m->memory.bytes = (pl_model_bytes){weights.used, gradients.used, activations.used};
 *     PL_TRY(pl_model_memory_commit(&m->memory, dev));         // or pl_model_memory_pretend for a dry run
 *     PL_TRY(pl_params_draw(m->params, m->param_count, q, seeds, initial));
 *     pl_model_memory_release(&m->memory, dev);
 */
#ifndef PL_NN_MODEL_MEMORY_H
#define PL_NN_MODEL_MEMORY_H

#include "base/status.h"
#include "nn/arena.h"
#include "nn/param.h"

typedef struct pl_model_bytes { /* device memory of a model */
    size_t weights, gradients, activations;
} pl_model_bytes;

typedef struct pl_model_memory {
    pl_model_bytes bytes;
    char *weights, *gradients, *activations;
} pl_model_memory;

/* entry i of parameter `number` of the member with this seed */
typedef double (*pl_param_initial)(const pl_param *p, int64_t number, uint64_t seed, int64_t i);

/* all three pieces or none; an empty one stays NULL */
polar_status pl_model_memory_commit(pl_model_memory *m, polar_device *dev);
/* addresses for a dry run, apart from each other and from its scratch; returns the first free one */
char *pl_model_memory_pretend(pl_model_memory *m);
void pl_model_memory_release(pl_model_memory *m, polar_device *dev); /* the reverse of commit */

/* W, and G where it is trained */
void pl_params_point(pl_param *params, int64_t count, polar_dtype dtype, int64_t members, int training,
                     pl_arena *weights, pl_arena *gradients);
/* initial weights, one seed per member */
polar_status pl_params_draw(const pl_param *params, int64_t count, polar_queue *q, const uint64_t *seeds,
                            pl_param_initial initial);

#endif
