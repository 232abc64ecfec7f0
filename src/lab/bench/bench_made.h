/* bench_made.h -- pictures per second that a device makes, from a set in its memory and from one that comes
 * batch by batch, beside the pictures per second of the training step that takes them.
 *
 *     pl_bench_made_opts o = {.sets = sets, .n_sets = 1, .dev = dev, .size = 224, .patch = 16, .batch = 128,
 *         .samples = 15};
 *     PL_TRY(pl_bench_made(rows, &o));                      // n_sets PL_MADE_ROWS + 1, set by set, the step
 * last
 *
 * A sample is as many batches as the set has, PL_MADE_BATCHES at most, by the wall clock, from the first draw
 * to the end of the device's work; sample s is epoch s: other crops, other draws. */
#ifndef PL_LAB_BENCH_MADE_H
#define PL_LAB_BENCH_MADE_H

#include <stdint.h>

#include "polar/device.h"

#define PL_MADE_ROWS        4 /* both recipes, all in memory and batch by batch */
#define PL_MADE_BATCHES     16
#define PL_MADE_MAX_SAMPLES 101

typedef struct pl_bench_made_opts {
    const char *const *sets; /* what pl_image_set_open takes */
    int n_sets;
    polar_device *dev;
    int64_t size, patch, batch; /* of a side of a picture and of a patch; pictures of a batch */
    int samples;                /* 1 to PL_MADE_MAX_SAMPLES */
} pl_bench_made_opts;

typedef struct pl_bench_made_row {
    char what[96], set[96];
    double seconds, q1, q3; /* per picture: median and quartiles */
    int samples;
} pl_bench_made_row;

/* one untimed round first; the step is PolarAdamW's on DeiT-Tiny */
polar_status pl_bench_made(pl_bench_made_row *rows, const pl_bench_made_opts *o);

#endif
