/* train_optim.h -- what testbeds share around the optimiser of a model: making it over the model's
 * parameters, and what its steps will cost. */
#ifndef PL_LAB_TRAIN_OPTIM_H
#define PL_LAB_TRAIN_OPTIM_H

#include "lab/run/testbed.h"
#include "nn/param.h"
#include "polar/optim.h"

typedef struct pl_train_routes { /* patterns of parameters that are treated otherwise; "" for none */
    const char *split;           /* matrices whose rows fall into three blocks */
    const char *no_decay;        /* parameters without weight decay */
} pl_train_routes;

typedef struct pl_train_group { /* slots [first, first + count), served by one optimiser */
    polar_optim *opt;
    int64_t first, count;
} pl_train_group;

/* Slots: the members in the order of their groups, a group's in the caller's order; alike: one optimiser may
 * serve the members i and k of settings. Gives the number of groups. */
int64_t pl_train_slots(int64_t *slot_of, pl_train_group *groups, int64_t members,
                       int (*alike)(const void *settings, int64_t i, int64_t k), const void *settings);

/* An optimiser over members [first, first + count) of a model's parameters; opts->members is count. */
polar_status pl_train_optim_create(polar_optim **out, polar_device *dev, const pl_param *params, int64_t n,
                                   int64_t first, int64_t count, const polar_optim_opts *opts,
                                   const pl_train_routes *routes);
/* whether one optimiser may serve the members of both: all alike but rates and decays, which are theirs */
int pl_train_optim_same(const polar_optim_opts *a, const polar_optim_opts *b);
/* a member's rates times factor, its decay (not of the parameters without) and whether it is trained */
polar_status pl_train_optim_set_member(polar_optim *opt, int64_t member, const polar_optim_opts *o,
                                       double factor, int active);

/* step, routes, weights, memory of the state */
polar_status pl_estimate_step(pl_estimate *e, polar_device *dev, const pl_param *params, int64_t n,
                              const polar_optim_opts *opts, const pl_train_routes *routes);
/* flops, bytes and memory of the whole, after pass, step, look, epochs, steps and epoch_looks; looks:
 * evaluations of a batch after the last epoch */
void pl_estimate_sum(pl_estimate *e, double looks);
double pl_whole_batches(int64_t items, int64_t batch); /* rounded up */

#endif
