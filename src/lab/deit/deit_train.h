/* deit_train.h -- a DeiT run in training: what deit_run.c, deit_data.c, deit_batch.c and deit_resume.c share.
 *
 * Invariants
 *  1. What a run computes depends on its configuration, its seed and the pictures only: not on the workers,
 * the device's threads or where it was interrupted.
 *  2. Between calls everything that matters is in: weights, the optimiser's state, stop, top1, the counters
 * of the epoch under way, the bits of broken pictures. That is the checkpoint; the loader only has batches
 * that can be made again.
 *  3. An epoch is `steps` training batches, then every test picture, then its row. step and tested say how
 * far it is.
 *  4. Losses are added up on the device. Whether one was a NaN decides after the batches that
 * pl_deit_loss_decides names, wherever else the sum is read.
 */
#ifndef PL_LAB_DEIT_TRAIN_H
#define PL_LAB_DEIT_TRAIN_H

#include "base/sha256.h"
#include "data/set/image_input.h"
#include "data/set/image_loader.h"
#include "device/queue.h"
#include "lab/deit/deit_keys.h"
#include "lab/run/early_stop.h"
#include "lab/run/optim_keys.h"
#include "lab/run/testbed.h"

typedef struct pl_deit_data { /* the pictures of a run, and who reads them */
    pl_image_set *set;
    int64_t classes, count[PL_IMAGE_SPLITS];
    char print[PL_SHA256_HEX]; /* fingerprint of names, classes and order */
    /* name and fingerprint, for the store; "" of a set made on the fly, which the run's id tells */
    char origin[PL_VALUE_CHARS + 192];
    int workers, skip_bad;
    pl_picture *pictures;  /* (workers) */
    pl_augment **augments; /* (workers) */
    int64_t *order;        /* (training pictures): of the epoch under way */
    /* (training or test pictures): what an item of the loader became, -1 for nothing */
    int64_t *picked;
    /* one bit per picture that could not be read, training then test */
    int64_t *bad;
    int64_t bad_words;
    /* of the loader */
    pl_loader *loader;
    pl_image_split split;
    uint64_t seed;
    int64_t epoch, first; /* first: the picture of the loader's item 0 */
    size_t picture_bytes; /* as the model sees it */
} pl_deit_data;

typedef struct pl_deit_batch { /* a batch with its labels; borrowed until the next */
    float *x;                  /* (count, 3, image, image) */
    const int32_t *labels;     /* -1: a broken test picture, which does not count */
    int64_t count;
} pl_deit_batch;

struct pl_train {
    polar_device *dev;
    polar_queue *q;
    const pl_config *config;
    pl_deit_settings set; /* with the data's classes and the schedule of its steps */
    uint64_t seed;
    pl_deit_data data;
    int32_t *labels; /* (batch) */
    pl_deit *model;
    pl_param *params; /* the model's */
    int64_t param_count;
    polar_optim *opt;
    /* (batch, 3 image, image), targets (1, batch, classes), their gradient, logits to look at; (1, 1, 1) f64:
     * a batch's loss, and the sum of the epoch's so far */
    pl_mat x, y, dz, z, loss, sum;
    pl_mat seen; /* of x, as many pictures as the batch has */
    pl_graph *train_graph, *test_graph;
    float *host_y;
    char *host_z;
    pl_step_watch watch;
    /* the state */
    pl_lr_schedule schedule;
    int64_t steps;      /* of an epoch */
    pl_early_stop stop; /* of -top1: lower is better there */
    double *top1;       /* (epochs) per cent; NaN where not made */
    /* of the epoch under way: batches, test pictures, those that could be read, those that were right */
    int64_t step, tested, counted, correct;
    int64_t finite; /* no test score was a NaN or an infinity */
    /* sum of the losses of its first loss_steps batches, as last read from the device */
    double loss_sum;
    int64_t loss_steps;
};

/* ---- pictures (deit_data.c) --------------------------------------------------------------------- */

/* the set with its classes chosen; what to try where it is missing */
polar_status pl_deit_data_open(pl_image_set **out, const pl_deit_settings *s, uint64_t seed);
/* and who reads it */
polar_status pl_deit_data_create(pl_deit_data *d, const pl_deit_settings *s, uint64_t seed, int workers);
/* safe on a zeroed one */
void pl_deit_data_destroy(pl_deit_data *d);
/* items [first, first + items) of an epoch */
polar_status pl_deit_data_begin(pl_deit_data *d, pl_image_split split, int64_t epoch, int64_t first,
                                int64_t items, int64_t batch, int64_t image);
/* the next batch; marks what was broken */
polar_status pl_deit_data_next(pl_deit_batch *out, pl_deit_data *d, int32_t *labels);
/* drops the loader, at any moment */
void pl_deit_data_end(pl_deit_data *d);
/* pictures found broken so far */
int64_t pl_deit_data_skipped(const pl_deit_data *d);

/* ---- batches (deit_batch.c) --------------------------------------------------------------------- */

/* of `steps` batches of an epoch, training */
int64_t pl_deit_pictures(const pl_train *t, int64_t steps);
polar_status pl_deit_batch_create(pl_train *t); /* buffers and graphs */
void pl_deit_batch_destroy(pl_train *t);        /* safe on a zeroed one */
/* batch `step` of the epoch: forward, backward, the optimiser's step; waits only where the loss decides */
polar_status pl_deit_train_batch(pl_train *t);
/* sets the device's sum of losses */
void pl_deit_loss_set(pl_train *t, double sum);
/* reads it into loss_sum; synchronises */
polar_status pl_deit_loss_read(pl_train *t);
/* after so many batches of an epoch the sum is read, and a run whose loss is none ends */
int pl_deit_loss_decides(const pl_train *t, int64_t step);
/* the epoch's loss was found to be none */
int pl_deit_loss_lost(const pl_train *t);
polar_status pl_deit_test_batch(pl_train *t); /* the test pictures from `tested` on */

/* ---- checkpoint, weights, cost ------------------------------------------------------------------ */

/* the checkpoint in one rename */
polar_status pl_deit_state_save(pl_train *t, const char *path);
/* POLAR_E_FORMAT: torn, or of another run; POLAR_E_ARG: of other pictures */
polar_status pl_deit_state_load(pl_train *t, const char *path);
/* deit_estimate.c */
polar_status pl_deit_estimate(pl_estimate *out, polar_device *dev, const pl_config *c);
polar_status pl_deit_shorten(pl_config *c, int64_t steps);

#endif
