/* deit_train.h -- DeiT runs in training: what the files of this folder share.
 *
 * An ensemble's members are runs of one shape, side by side in one model (models/deit.h). A member's place
 * there is its slot: slots are sorted by rule, so that an optimiser serves a range of them. Members of one
 * seed see the same pictures, which are read once.
 *
 * Invariants
 *  1. What a run computes depends on its configuration, its seed and the pictures only: not on its mates, the
 * workers, the device's threads or where it was interrupted.
 *  2. Between calls everything that matters is in: weights, the optimisers' state, the slots, the counters
 * of the epoch under way, the bits of broken pictures. That is the checkpoint; the loaders only have batches
 * that can be made again.
 *  3. An epoch is `steps` training batches, then every test picture, then its rows. step and tested say how
 * far it is.
 *  4. Losses are added up on the device. Whether one was a NaN decides after the batches that
 * pl_deit_loss_decides names, wherever else the sum is read. A run that has ended keeps its slot, and its
 * numbers are nobody's.
 */
#ifndef PL_LAB_DEIT_TRAIN_H
#define PL_LAB_DEIT_TRAIN_H

#include "base/sha256.h"
#include "data/set/image_input.h"
#include "data/set/image_loader.h"
#include "device/queue.h"
#include "lab/deit/deit_keys.h"
#include "lab/run/early_stop.h"
#include "lab/run/leaves.h"
#include "lab/run/optim_keys.h"
#include "lab/run/testbed.h"
#include "lab/run/train_optim.h"

typedef struct pl_deit_place { /* a picture among the bytes on the device */
    int64_t at;
    int32_t width, height;
} pl_deit_place;

typedef enum pl_deit_way {                    /* who makes the floats of a picture, and from what */
                           PL_DEIT_BY_HOST,   /* the loader's threads */
                           PL_DEIT_BY_DEVICE, /* the device, from all pictures in its memory (deit_input.c) */
                           PL_DEIT_BY_DEVICE_PARTS /* the device, from what the loader's threads read of a
                                                      batch (deit_stream.c) */
} pl_deit_way;

/* What the loader reads of a picture whose floats the device makes, or those floats where it cannot. */
typedef struct pl_deit_part {
    pl_image pixels;         /* none of a broken test picture, whose floats are NaNs that nobody looks at */
    double row[PL_AUG_COLS]; /* of these pixels, at 0 */
    float *floats;           /* (3, image, image), or NULL */
} pl_deit_part;

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
    int64_t run, gap; /* training: so many items, then so many places that are other ranks'; gap 0: none */
    size_t picture_bytes; /* as the model sees it */
    pl_deit_way way;
    /* on the device, where pictures are made there: bytes of all of them or of a batch's, the rows of a
     * batch, the values of bytes */
    pl_mat pixels, table, scale;
    polar_device *dev;
    pl_deit_place *places[PL_IMAGE_SPLITS]; /* BY_DEVICE: where each picture lies */
    double *rows;                           /* (batch, PL_AUG_COLS) */
    int64_t tallest, taps;                  /* as augment wants them */
    int64_t ordered;                        /* the epoch of `order`, -1 for none */
    int32_t *labels;                        /* (batch): of the batch under way */
    int64_t counted;                        /* test pictures of the epoch under way that could be read */
} pl_deit_data;

typedef struct pl_deit_reading { /* who hears how far the pictures of all sets are on their way to the device
                                  */
    pl_step_watch watch;         /* step NULL: nobody */
    int64_t before, total;       /* those of the sets that are there, and all */
} pl_deit_reading;

typedef struct pl_deit_batch { /* a batch with its labels; borrowed until the next */
    void *x;                   /* floats (count, 3, image, image), or pl_deit_part (count), the taker's */
    const int32_t *labels;     /* -1: a broken test picture, which does not count */
    int64_t count;
} pl_deit_batch;

typedef struct pl_deit_prefetch { /* the pictures of the next batch, where they are made on the device */
    polar_queue *q;               /* or NULL: by loaders */
    pl_mat x, y;                  /* (sets batch, 3 image, image), (sets, batch, classes) */
    int64_t epoch, pass;          /* whose pictures they are; -1: none */
} pl_deit_prefetch;

typedef struct pl_deit_slot { /* a run */
    const pl_config *config;
    pl_deit_settings set; /* with the data's classes and the schedule of its steps */
    uint64_t seed;
    pl_deit_data *data; /* shared with those of the same seed */
    pl_early_stop stop; /* of -top1: lower is better there */
    double *top1;       /* (epochs) per cent; NaN where not made */
    /* of the epoch under way: test pictures that were right; no test score was a NaN or an infinity */
    int64_t correct, finite;
    double loss_sum; /* of the first loss_steps batches, as last read from the device */
    int64_t lost;    /* batches after which that was found to be none; 0: it was not */
} pl_deit_slot;

struct pl_train {
    polar_device *dev;
    polar_queue *q;
    int64_t members;
    const pl_deit_settings *set; /* the first slot's: shape, batch, mixing and epochs are everybody's */
    pl_leaves leaves;            /* of a batch; shape.batch is that of a leaf */
    pl_deit_slot *slots;
    int64_t *slot_of; /* of a member */
    pl_deit_data *data;
    int64_t data_count;
    pl_train_group *groups;
    int64_t group_count;
    char *prints; /* the fingerprints of all data, by blanks */
    pl_deit *model;
    pl_param *params; /* the model's */
    int64_t param_count;
    /* (members batch, 3 image, image), targets (members, batch, classes), their gradient, logits to look at;
     * (members, 1, 1) f64: a batch's loss, and the sum of the epoch's so far */
    pl_mat x, y, dz, z, loss, sum;
    pl_mat seen; /* of x, as many pictures as the batch has */
    pl_deit_prefetch prefetch;
    pl_graph *train_graph, *test_graph;
    float *host_y; /* (batch, classes) */
    char *host_z;
    double *host_sum; /* (members) */
    uint64_t *seeds;  /* (members), by slots */
    pl_step_watch watch;
    pl_lr_schedule schedule;
    int64_t steps; /* of an epoch */
    int64_t made;  /* epochs, by those that have not ended */
    /* of the epoch under way: batches, test pictures; batches whose losses were read */
    int64_t step, tested, loss_steps;
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

/* ---- pictures made on the device (deit_input.c) ------------------------------------------------- */

/* whether all pictures are to be in the device's memory, or may */
int pl_deit_input_fills(const pl_deit_settings *s, const polar_device *dev);
/* Chooses d->way by data.input, brings the pictures to the device where all of them are to be there and
 * `reserve` bytes are left beside them; synchronises. POLAR_E_STATE where the reading's watch says to return.
 */
polar_status pl_deit_input_create(pl_deit_data *d, const pl_deit_settings *s, polar_device *dev,
                                  polar_queue *q, size_t reserve, const pl_deit_reading *r);
/* safe on a zeroed one */
void pl_deit_input_destroy(pl_deit_data *d);
/* BY_DEVICE: pictures [first, first + Y.batch) of the epoch's order, or of the test, into Y; enqueues */
polar_status pl_deit_input_make(pl_mat Y, pl_deit_data *d, polar_queue *q, pl_image_split split,
                                int64_t epoch, int64_t first);

/* ---- ... from parts (deit_stream.c) -------------------------------------------------------------- */

/* a worker's: what is looked at of the picture that is open */
polar_status pl_deit_part_read(pl_deit_part *out, pl_picture *p, pl_augment *a, pl_image_split split,
                               pl_draw_key key);
void pl_deit_part_drop(pl_deit_part *part); /* safe on a zeroed one */
/* BY_DEVICE_PARTS: the loader's next Y.batch pictures into Y; enqueues, and waits where memory must grow */
polar_status pl_deit_stream_make(pl_mat Y, pl_deit_data *d, polar_queue *q);

/* ---- the next batch's (deit_prefetch.c) --------------------------------------------------------- */

/* a queue and memory, if any set's pictures are made on the device */
polar_status pl_deit_prefetch_create(pl_train *t);
void pl_deit_prefetch_destroy(pl_train *t); /* safe on a zeroed one */
/* pictures and targets of pass number `pass` of the epoch, `count` of each set; enqueues beside t->q */
polar_status pl_deit_prefetch_make(pl_train *t, int64_t pass, int64_t count);
/* makes them unless they are made, and hands them to every slot that sees them: into t->x and t->y */
polar_status pl_deit_prefetch_take(pl_train *t, int64_t pass, int64_t count);

/* ---- batches (deit_batch.c) --------------------------------------------------------------------- */

/* of `steps` batches of an epoch, training */
int64_t pl_deit_pictures(const pl_train *t, int64_t steps);
polar_status pl_deit_batch_create(pl_train *t); /* buffers and graphs */
void pl_deit_batch_destroy(pl_train *t);        /* safe on a zeroed one */
/* the loader of this rank's pictures from pass number `pass` of the epoch on, the first of its step */
polar_status pl_deit_loader_begin(const pl_train *t, pl_deit_data *d, int64_t pass);
/* somebody who is still active sees these pictures */
int pl_deit_data_wanted(const pl_train *t, const pl_deit_data *d);
/* how pass number `pass` of the epoch is mixed */
polar_status pl_deit_mix_draw(pl_mix *out, const pl_train *t, const pl_deit_data *d, int64_t pass);
/* batch `step` of the epoch: forward, backward, the optimiser's step; waits only where the loss decides */
polar_status pl_deit_train_batch(pl_train *t);
/* uploads the slots' sums of losses, as of batch `step` */
void pl_deit_loss_set(pl_train *t);
/* reads them, but for those that are lost; synchronises */
polar_status pl_deit_loss_read(pl_train *t);
/* after so many batches of an epoch the sums are read, and a run whose loss is none ends */
int pl_deit_loss_decides(const pl_train *t, int64_t step);
polar_status pl_deit_test_batch(pl_train *t); /* the test pictures from `tested` on */
/* the epoch under way is of use to the slot: it has not ended, and its loss is a number so far */
int pl_deit_slot_active(const pl_deit_slot *s);
/* rates, decay and whether it is trained, of every slot; from now on */
polar_status pl_deit_set_slots(pl_train *t);

/* ---- checkpoint, weights, cost ------------------------------------------------------------------ */

/* the checkpoint in one rename */
polar_status pl_deit_state_save(pl_train *t, const char *path);
/* POLAR_E_FORMAT: torn, or of another run; POLAR_E_ARG: of other pictures */
polar_status pl_deit_state_load(pl_train *t, const char *path);
/* deit_estimate.c */
polar_status pl_deit_estimate(pl_estimate *out, polar_device *dev, const pl_config *c);
polar_status pl_deit_shorten(pl_config *c, int64_t steps);

#endif
