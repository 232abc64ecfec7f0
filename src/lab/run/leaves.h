/* leaves.h -- a run whose batches are cut into leaves (train.leaves), shared by the ranks of its device's
 * communicator or made by one alone: the same bits (polar/comm.h).
 *
 *     PL_TRY(pl_leaves_begin(&l, dev, leaves, members));
 *     pl_leaves_optim(&l, &opts);                              // before the optimiser is made
 *     for (leaf = l.first; leaf < l.first + l.count; leaf++) { ...backward...; l.loss[leaf - l.first] = ...;
 *         polar_optim_add_grads(opt, q, leaf); }
 *     PL_TRY(pl_leaves_mean(&l, &loss));                       // over all leaves, on every rank
 *     pl_leaves_end(&l);
 */
#ifndef PL_LAB_LEAVES_H
#define PL_LAB_LEAVES_H

#include "device/queue.h"
#include "polar/optim.h"

typedef struct pl_leaves {
    polar_comm *comm;            /* NULL: batches are whole */
    int64_t total, first, count; /* of the run; this rank's. 1, 0, 1 where batches are whole */
    int own;                     /* comm is ours to close */
    double *loss;                /* (count + 1): of this rank's leaves; the caller's to fill */
} pl_leaves;

/* POLAR_E_ARG: more ranks than leaves, or whole batches on several ranks; POLAR_E_UNSUPPORTED: an ensemble */
polar_status pl_leaves_begin(pl_leaves *out, pl_device *dev, int64_t total, int64_t members);
void pl_leaves_end(pl_leaves *l); /* safe on a zeroed one */
void pl_leaves_optim(const pl_leaves *l, polar_optim_opts *o);
polar_status pl_leaves_mean(const pl_leaves *l, double *out);

#endif
