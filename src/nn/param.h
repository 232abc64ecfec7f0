/* param.h -- what every model does with its parameters and its device memory: the list of trainable arrays,
 * three pieces of memory (weights, gradients, activations), measured, committed once, then pointed at. */
#ifndef PL_NN_PARAM_H
#define PL_NN_PARAM_H

#include "base/status.h"
#include "device/mat.h"

/* ---- parameters ---------------------------------------------------------------------------------- */

/* A trainable array of a model, for all members of an ensemble at once.
 *
 * A member's matrix is (rows, cols); W and G are (members, rows, cols), packed, in device memory. A
 * one-dimensional array of n numbers has ndim 1, rows 1, cols n; an array of more than two dimensions says in
 * shape what the checkpoint calls it, and how it is seen as a matrix in rows and cols. Names and order are
 * the checkpoint's. */

#define PL_PARAM_NAME 64
#define PL_PARAM_DIMS 4

typedef struct pl_param {
    char name[PL_PARAM_NAME];
    int ndim; /* of one member's array in a checkpoint */
    int64_t rows, cols;
    int64_t shape[PL_PARAM_DIMS]; /* with ndim > 2; rows * cols numbers in all */
    /* inputs of the layer it belongs to: initial values lie within 1/sqrt(fan_in); 0: as the model says (a
     * gate: weight 1, bias 0) */
    int64_t fan_in;
    pl_mat W, G; /* G has no data in a model that is not trained */
    /* mixed precision: W rounded to the activations' format, for products; otherwise without data */
    pl_mat low;
} pl_param;

/* W as a factor of a product with activations. */
static inline pl_mat pl_param_factor(const pl_param *p)
{
    return p->low.data ? p->low : p->W;
}

/* m, a W or a G of p, as an optimiser wants it: the checkpoint's shape, the members before it where there are
 * several. */
static inline polar_tensor pl_param_tensor(const pl_param *p, const pl_mat *m)
{
    polar_tensor t = {.data = m->data, .dtype = m->dtype};
    if (m->batch > 1) t.shape[t.ndim++] = m->batch;
    if (p->ndim > 2)
        for (int i = 0; i < p->ndim; i++) t.shape[t.ndim++] = p->shape[i];
    else {
        if (p->ndim == 2) t.shape[t.ndim++] = p->rows;
        t.shape[t.ndim++] = p->cols;
    }
    int64_t stride = 1;
    for (int i = t.ndim - 1; i >= 0; stride *= t.shape[i], i--) t.stride[i] = stride;
    return t;
}

/* Who wants to know that the gradients of parameters [first, first + count) are finished while the backward
 * goes on with others: it is called between the backward's ops, from the last parameters to the first. */
typedef void (*pl_grads_done)(void *arg, polar_queue *q, int64_t first, int64_t count);

typedef struct pl_grads_watch {
    pl_grads_done done; /* NULL: nobody */
    void *arg;
} pl_grads_watch;

/* Those from `first` to `last`, two of the list. */
static inline void pl_grads_tell(const pl_grads_watch *w, polar_queue *q, const pl_param *list,
                                 const pl_param *first, const pl_param *last)
{
    if (w->done) w->done(w->arg, q, first - list, last - first + 1);
}

/* ---- an arena ------------------------------------------------------------------------------------ */

/* One piece of device memory with matrices laid over it: measured, committed once, then pointed at
 * by the same function (docs/STYLE.md, rule 9).
 *
 *     static void net_point(net *n, pl_arena *a) { n->W = pl_arena_mat(a, dtype, E, rows, cols);  ... }
 *
 *     pl_arena a = {0};                 net_point(n, &a);       // a.used: the bytes to commit
 *     a = (pl_arena){.base = memory};   net_point(n, &a);       // now the matrices have addresses */

#define PL_ARENA_ALIGN ((size_t)256)

typedef struct pl_arena {
    char *base;  /* NULL while measuring */
    size_t used; /* bytes so far */
} pl_arena;

/* The next packed matrix of the arena; without data while measuring. */
static inline pl_mat pl_arena_mat(pl_arena *a, polar_dtype dtype, int64_t batch, int64_t rows, int64_t cols)
{
    pl_mat m = pl_mat_dense(a->base ? a->base + a->used : NULL, dtype, batch, rows, cols);
    a->used += (pl_mat_bytes(&m) + PL_ARENA_ALIGN - 1) / PL_ARENA_ALIGN * PL_ARENA_ALIGN;
    return m;
}

/* ---- a model's memory ---------------------------------------------------------------------------- */

/* What every model does with its parameter list and its device memory: three pieces,
 * measured, committed once, then pointed at.
 *
 *     // while measuring, and again after
 *     pl_params_point(m->params, m->param_count, dtype, members, training, &weights, &gradients);
 *     m->memory.bytes = (pl_model_bytes){weights.used, gradients.used, activations.used};
 *     PL_TRY(pl_model_memory_commit(&m->memory, dev));         // or pl_model_memory_pretend for a dry run
 *     PL_TRY(pl_params_draw(m->params, m->param_count, q, seeds, initial));
 *     pl_model_memory_release(&m->memory, dev); */

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
