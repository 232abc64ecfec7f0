/* deit_keys.h -- the DeiT testbed's keys, and a configuration read into numbers. How many steps an epoch has
 * is known with the data only. */
#ifndef PL_LAB_DEIT_KEYS_H
#define PL_LAB_DEIT_KEYS_H

#include "data/augment/augment.h"
#include "data/augment/mix.h"
#include "lab/spec/config.h"
#include "models/deit.h"
#include "polar/optim.h"

#define PL_DEIT_LAST 10 /* l10 is the mean over so many last epochs */

typedef enum pl_deit_input_key {
    PL_INPUT_AUTO,
    PL_INPUT_HOST,
    PL_INPUT_DEVICE,
    PL_INPUT_STREAM
} pl_deit_input_key;

typedef enum pl_deit_decode_key { PL_DECODE_HOST, PL_DECODE_NVJPEG } pl_deit_decode_key;

typedef struct pl_deit_settings {
    pl_deit_shape shape; /* one member; classes 0: all the set has */
    /* data.set, data.path; these and split borrowed from the configuration */
    const char *set, *path;
    int64_t subset_seed; /* -1: the run's */
    int64_t workers;     /* 0: as many as the device has threads */
    int skip_bad;
    pl_deit_input_key input; /* who makes pictures, and from where */
    pl_deit_decode_key decode;
    pl_augment_options augment;
    pl_mix_options mix;
    int64_t epochs, batch;
    int64_t leaves; /* parts of a batch; 1: none */
    int keep_last;  /* batch of an epoch, though it be short */
    /* rule, lr, decay; its schedule is pl_schedule_read's, once the steps of an epoch are known */
    polar_optim_opts optim;
    const char *split, *no_decay; /* route.split, route.no_decay */
} pl_deit_settings;

extern const pl_schema pl_deit_schema;

/* POLAR_E_ARG where keys contradict each other; borrows from c */
polar_status pl_deit_settings_read(pl_deit_settings *out, const pl_config *c);

/* whether two runs may be members of one ensemble: everything but seed and optimiser alike */
int pl_deit_same_shape(const pl_config *a, const pl_config *b);
/* whether one optimiser may serve both: all but lr and decay, which are the members' own */
int pl_deit_same_rule(const pl_deit_settings *a, const pl_deit_settings *b);

#endif
