/* leaves.h -- a run whose batches are cut into leaves (train.leaves), shared by the ranks of its device's
 * communicator or made by one alone: the same bits (polar/comm.h).
 *
 *     PL_TRY(pl_leaves_begin(&l, dev, leaves, members));
 *     pl_leaves_optim(&l, &opts);                              // before the optimiser is made
 *     pl_deit_watch_grads(model, pl_leaves_watch(&l, opt));    // gradients leave while the backward goes on
 *     for (leaf = l.first; leaf < l.first + l.count; leaf++) {
 *         l.leaf = leaf; ...backward...; l.loss[leaf - l.first] = ...; PL_TRY(pl_leaves_add(&l, q)); }
 *     PL_TRY(pl_leaves_mean(&l, &loss));                       // over all leaves, on every rank
 *     pl_leaves_end(&l);
 */
#ifndef PL_LAB_LEAVES_H
#define PL_LAB_LEAVES_H

#include "device/queue.h"
#include "nn/param.h"
#include "polar/optim.h"

typedef struct pl_leaves {
    polar_comm *comm;            /* NULL: batches are whole */
    int64_t total, first, count; /* of the run; this rank's. 1, 0, 1 where batches are whole */
    int own;                     /* comm is ours to close */
    double *loss;                /* (count + 1): of this rank's leaves; the caller's to fill */
    int64_t leaf;                /* the one under way; the caller's to set */
    polar_optim *opt;            /* pl_leaves_watch's */
    polar_status st;             /* of its first call that failed; its sentence is the queue's */
} pl_leaves;

/* POLAR_E_ARG: more ranks than leaves, or whole batches on several ranks; POLAR_E_UNSUPPORTED: an ensemble */
polar_status pl_leaves_begin(pl_leaves *out, pl_device *dev, int64_t total, int64_t members);
void pl_leaves_end(pl_leaves *l); /* safe on a zeroed one */
void pl_leaves_optim(const pl_leaves *l, polar_optim_opts *o);
/* for the model's backward: each gradient of leaf l->leaf goes to the optimiser when it is finished; nobody
 * where a backward is a graph, which calls nobody. Parameters of the model and of the optimiser have the same
 * numbers */
pl_grads_watch pl_leaves_watch(pl_leaves *l, polar_optim *opt);
/* those of leaf l->leaf that have not gone yet, after its backward */
polar_status pl_leaves_add(pl_leaves *l, polar_queue *q);
polar_status pl_leaves_mean(const pl_leaves *l, double *out);

#endif
