/* bench_input.h -- pictures per second of one core, from a file or a pack to the floats a model sees, and
 * where the time goes.
 *
 *     pl_bench_input_opts o = {.sets = sets, .n_sets = 2, .size = 224, .samples = 15, .pictures = 64};
 *     PL_TRY(pl_bench_input(rows, &o));                 // n_sets PL_INPUT_CHAINS rows, set by set
 *
 * Times are CPU times of one thread, so that other programs on the machine count little; files are in the
 * page cache after the first round. A sample is one pass of a chain over `pictures` pictures; the samples of
 * all rows alternate. Sample s is epoch s: other crops, other draws.
 */
#ifndef PL_LAB_BENCH_INPUT_H
#define PL_LAB_BENCH_INPUT_H

#include <stdint.h>

#include "base/status.h"

typedef enum pl_input_chain {
    PL_INPUT_MINIMAL, /* RandomResizedCrop (bilinear), flip, normalise */
    PL_INPUT_DEIT,    /* ... bicubic, RandAugment, erasing */
    PL_INPUT_TEST,    /* Resize, CenterCrop (bilinear), normalise */
    PL_INPUT_CHAINS
} pl_input_chain;

typedef struct pl_bench_input_opts {
    const char *const *sets; /* what pl_image_set_open takes */
    int n_sets;
    int64_t size;     /* of a side of the result */
    int samples;      /* 1 to PL_INPUT_MAX_SAMPLES */
    int64_t pictures; /* of a sample; a smaller set is gone through again */
} pl_bench_input_opts;

#define PL_INPUT_MAX_SAMPLES 101

typedef struct pl_bench_input_row {
    char what[96], set[96];     /* the chain; the set, its beginning left out where it is long */
    double seconds, q1, q3;     /* per picture: median and quartiles */
    double open, pixels, chain; /* of it, on average: file and header; decoding; the rest */
    int samples;
} pl_bench_input_row;

/* one untimed round first */
polar_status pl_bench_input(pl_bench_input_row *rows, const pl_bench_input_opts *o);

#endif
