/* so3_train.h -- an ensemble of SO(3) runs in training: the data shared by so3_run.c, so3_batch.c and
 * so3_checkpoint.c.
 *
 * Members come in the caller's order; inside they have slots, so that the members of one update rule lie side
 * by side in every parameter and one optimiser serves them. Invariants
 *  1. What a slot computes depends on its configuration and seed only.
 *  2. Active slots have all made `made` epochs. A slot that ended is never trained again; its weights may be
 * overwritten by its best ones.
 *  3. Between calls everything that matters is in: weights, best weights, optimisers' states, shadows'
 * states, early-stopping counters, `made`. That is the checkpoint.
 */
#ifndef PL_LAB_SO3_TRAIN_H
#define PL_LAB_SO3_TRAIN_H

#include "data/point_cloud.h"
#include "device/queue.h"
#include "lab/run/early_stop.h"
#include "lab/run/leaves.h"
#include "lab/so3/so3_keys.h"
#include "lab/run/testbed.h"
#include "lab/run/train_optim.h"
#include "models/so3_points.h"
#include "verify/gauge_shadow.h"

typedef struct pl_so3_data { /* of one seed; shared by its arms */
    uint64_t seed;
    pl_clouds split[PL_SPLITS];
    pl_cloud_baseline baseline;
    double plateau; /* the trace-only predictor's validation error, less a tenth */
    int64_t *order; /* (train): of the epoch under way */
} pl_so3_data;

typedef struct pl_so3_slot {
    const pl_config *config;
    pl_so3_settings set;
    uint64_t seed;
    pl_so3_data *data;
    pl_early_stop stop;
    /* the first epoch with a validation error below data->plateau; 0: none yet, -1: made by an older program,
     * which did not look */
    int64_t plateau_epoch;
    int tested;
    double test_mse;
    pl_gauge_shadow *shadow; /* or NULL */
    int64_t shadow_blocks;
    double *deviation;  /* (maps, blocks, shadows): room for one measurement */
    pl_gauge_row *rows; /* not yet handed out: [taken, count) */
    int64_t taken, count, room;
} pl_so3_slot;

typedef struct pl_so3_turn { /* a block in rotated coordinates, see so3_turned.c */
    int64_t param;
    pl_mat W, G;               /* the model's */
    pl_mat turned_W, turned_G; /* the optimiser's */
    pl_mat P, Q;               /* (1, rows, rows), (1, cols, cols) */
} pl_so3_turn;

typedef struct pl_so3_batches { /* of some steps, one after the other */
    pl_mat x, y;                /* (steps members batch, N, 3), (steps members, batch, 1) */
    char *host_x;
    double *host_y;
    int64_t steps; /* 0: there are none */
} pl_so3_batches;

struct pl_train {
    const pl_step_watch *begins; /* until it has begun: hears of rotations; or NULL */
    int64_t drawn, rotations;    /* of them, and in all */
    polar_device *dev;
    polar_queue *q;
    int64_t members, made; /* made: epochs */
    pl_leaves leaves;      /* of a batch; the slots' `batch` is then that of a leaf */
    pl_so3_slot *slots;
    int64_t *slot_of; /* of a member */
    pl_so3_data *data;
    int64_t data_count;
    pl_train_group *groups;
    int64_t group_count;
    pl_so3 *model;
    pl_param *params; /* the model's; in rotated coordinates turned_params, what the optimiser sees */
    int64_t param_count;
    pl_param *turned_params; /* or NULL */
    pl_so3_turn *turns;
    int64_t turn_count;
    pl_mat *best;          /* of every parameter, as its W */
    pl_mat x, y;           /* (members batch, N, 3), (members, batch, 1): the batch under way */
    pl_mat dp;             /* (members, batch, 1) */
    pl_mat loss, loss_now; /* f64: (steps members, 1, 1) of an epoch, (members, 1, 1) of a step */
    pl_mat pred, pred_now; /* (chunks members, batch, 1) of a split, (members, batch, 1) */
    pl_graph *train_graph, *eval_graph;
    char *disturbed, *before;    /* host: matrices after and before a step; or NULL */
    int before_good;             /* before is what the last step left */
    double *update;              /* room for one matrix */
    pl_so3_batches ahead, valid; /* of the epoch under way; of the validation split */
    double *losses;              /* (steps, members) of an epoch */
    char *host_pred;             /* (chunks, members, batch) of a split, in the run's format */
};

polar_status pl_so3_batch_create(pl_train *t); /* buffers and graphs */
void pl_so3_batch_destroy(pl_train *t);        /* safe on a zeroed one */
/* forward and backward of batch `step` of the epoch; enqueues */
polar_status pl_so3_train_step(pl_train *t, int64_t step);
/* the same, part by part of the batch and with what other ranks have of it; synchronises */
polar_status pl_so3_train_leaves(pl_train *t, int64_t step);
/* of all steps of the epoch to t->losses; synchronises */
polar_status pl_so3_losses(pl_train *t);
/* of every slot's weights, (members); synchronises */
polar_status pl_so3_evaluate(double *mse, pl_train *t, pl_split split);

/* the checkpoint in one rename */
polar_status pl_so3_save(pl_train *t, const char *path);
/* POLAR_E_FORMAT: torn, or of other runs */
polar_status pl_so3_load(pl_train *t, const char *path);
/* the best epoch's, under the reference's names */
polar_status pl_so3_weights(pl_train *t, int64_t member, const char *path);

polar_status pl_so3_estimate(pl_estimate *out, polar_device *dev, const pl_config *c); /* so3_estimate.c */
polar_status pl_so3_shorten(pl_config *c, int64_t steps);

/* around the optimisers' steps, where a run asks for disturbed updates (so3_disturb.h): both synchronise
 * then; step of the run, from 1 */
polar_status pl_so3_disturb_begin(pl_train *t);
polar_status pl_so3_disturb_end(pl_train *t, int64_t step);

/* a rotation more, of a run in rotated coordinates or of a shadow (t, as void): not 0 where it is not to go
 * on */
int pl_so3_rotation_drawn(void *t);
int64_t pl_so3_turned_rotations(const pl_train *t); /* that are to be drawn */
int64_t pl_so3_shadow_rotations(const pl_train *t);

/* after the model's making, where the runs ask for rotated coordinates */
polar_status pl_so3_turned_create(pl_train *t);
void pl_so3_turned_destroy(pl_train *t); /* safe on a zeroed one */
/* the model's weights from the optimiser's; before a forward. Both enqueue, nothing in plain coordinates */
void pl_so3_turned_weights(pl_train *t, pl_queue *q);
/* the optimiser's gradients from the model's; after a backward */
void pl_so3_turned_gradients(pl_train *t, pl_queue *q);
/* X, of a parameter in the optimiser's coordinates, in the model's: scratch, or X itself */
pl_mat pl_so3_turned_back(pl_train *t, pl_queue *q, int64_t param, pl_mat X);

/* where the slot's configuration asks for shadows */
polar_status pl_so3_shadow_create(pl_train *t, pl_so3_slot *s);
void pl_so3_shadow_destroy(pl_so3_slot *s); /* safe on a zeroed one */
/* after the backward; step of the run, from 1 */
polar_status pl_so3_shadow_step(pl_train *t, pl_so3_slot *s, int64_t step);
/* rows not yet handed out */
polar_status pl_so3_shadow_take(pl_train *t, int64_t member, pl_gauge_row *out, int max, int *count);

#endif
