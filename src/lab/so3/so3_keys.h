/* so3_keys.h -- the SO(3) testbed's keys, and a configuration read into numbers. */
#ifndef PL_LAB_SO3_KEYS_H
#define PL_LAB_SO3_KEYS_H

#include "lab/run/optim_keys.h"
#include "lab/so3/so3_disturb.h"
#include "lab/spec/config.h"
#include "polar/optim.h"

typedef struct pl_so3_settings {
    int64_t width, layers, points, train, valid, test;
    double eps;
    int message;                  /* of pl_so3_shape */
    int scalars_only;             /* the same */
    int linear_gate;              /* the same */
    int tf32;                     /* the same */
    double anisotropy;            /* of the clouds; 0: Gaussian */
    int rotated;                  /* coordinates of the matrix route's blocks */
    int64_t rotation;             /* which, see so3_turned.c */
    int64_t epochs, batch, steps; /* steps of an epoch: whole batches only */
    int64_t leaves;               /* parts of a batch; 1: none */
    int64_t patience;
    polar_dtype dtype;
    /* rule, lr, decay, what of the schedule is its own; members is 1; matrix_names borrows from the
     * configuration */
    polar_optim_opts optim;
    pl_lr_schedule schedule;
    pl_disturb disturb;                    /* of the matrix route's updates */
    const char *no_decay;                  /* route.no_decay; borrowed */
    int64_t shadows, gauge_every;          /* gauge_every 0: steps 1, 2, 5, 10, 20, 50, ... */
    const char *gauge_maps, *gauge_blocks; /* borrowed from the configuration */
    polar_dtype gauge_dtype;
    int spectra; /* at the measured steps too */
} pl_so3_settings;

extern const pl_schema pl_so3_schema;
extern const char *const pl_so3_messages[]; /* of model.message, by pl_message_kind */

/* POLAR_E_ARG where keys contradict each other; borrows from c */
polar_status pl_so3_settings_read(pl_so3_settings *out, const pl_config *c);
/* all but rule, lr, decay, routes (where coordinates are plain), patience and shadows alike */
int pl_so3_same_shape(const pl_config *a, const pl_config *b);

#endif
