/* train_state.h -- a testbed's checkpoint: arrays on the device, arrays on the host and optimisers in one
 * safetensors file.
 *
 *     pl_state s;
 *     PL_TRY(pl_state_create(&s, "so3 2", arrays, optimisers, runs));        // the most of each
 *     PL_TRY(pl_state_add_run(&s, config, seed));                            // whose it is
 *     pl_state_add_mat(&s, W, "weight.%s", name);
 *     // host arrays: doubles; pl_state_add_counts: int64_t
 *     pl_state_add_reals(&s, losses, n, 0, "losses");
 *     pl_state_add_groups(&s, groups, group_count);
 *     s.made = 7;
 *     PL_TRY(pl_state_save(&s, q, path));                                    // in one rename, synced
 *
 *     // the same list: every name, shape and format is checked, host arrays and made are read,
 *     PL_TRY(pl_state_open(&file, &s, path));
 *     //   their values are the testbed's to check
 *     ...
 *     PL_TRY(pl_state_apply(file, &s, q));                                   // and now the device
 *     pl_state_close(file);
 *     pl_state_destroy(&s);
 *
 * Metadata: polar.checkpoint (the kind), polar.runs (the run ids by blanks), polar.epochs (made),
 * polar.data (what the runs were trained on, where that is not in their ids), and the optimisers'. A file
 * of other runs is known by its ids; half a file cannot be read as safetensors, and a changed bit is seen
 * by the checksum that every file of ours carries.
 *
 * A file is good for any of its runs: an ensemble of some of them, in any order, reads what is theirs. So
 * members that have ended leave (run_group.c). For that every array has the runs as its first axis, in the
 * order in which they were added (of one run that axis may be missing), and optimiser g serves the runs
 * [first, first + count) of group g, the groups one after the other.
 */
#ifndef PL_LAB_TRAIN_STATE_H
#define PL_LAB_TRAIN_STATE_H

#include "device/queue.h"
#include "lab/run/train_optim.h"
#include "lab/spec/config.h"
#include "nn/param.h"
#include "optim/optim_state.h"

#define PL_STATE_NAME (PL_PARAM_NAME + 16) /* bytes of an array's name */

typedef struct pl_state_array {
    char name[PL_STATE_NAME];
    pl_mat mat; /* on the device, or without data: */
    void *host; /* (rows, cols), with cols 0 (rows) */
    int whole;  /* host: int64_t rather than double */
    int lacked; /* a file may be without it: then it stays as it is */
    int64_t rows, cols;
} pl_state_array;

typedef struct pl_state_optim {
    const char *stem;     /* its names begin with it, a number and a dot: */
    int64_t number;       /* the group's, or the run's */
    int64_t first, count; /* runs that it serves; count 0: one run's own, of other members */
    polar_optim *opt;
} pl_state_optim;

typedef struct pl_state {
    /* older: of files from before there was a checksum, which are read unchecked; or NULL */
    const char *kind, *older;
    char *runs;       /* ids by blanks */
    const char *data; /* or NULL */
    int64_t made;     /* epochs */
    pl_state_array *arrays;
    pl_state_optim *optims;
    int64_t array_count, optim_count, run_count;
    int64_t array_room, optim_room, run_room;
} pl_state;

typedef struct pl_state_file pl_state_file;

/* room for so many; kind is borrowed */
polar_status pl_state_create(pl_state *out, const char *kind, int64_t arrays, int64_t optims, int64_t runs);
/* safe on a zeroed one and after a failed create */
void pl_state_destroy(pl_state *s);
polar_status pl_state_add_run(pl_state *s, const pl_config *config, uint64_t seed); /* its id */
/* device memory; the name last, here and below */
void pl_state_add_mat(pl_state *s, pl_mat m, const char *fmt, ...) PL_PRINTF(3, 4);
/* host memory, borrowed */
void pl_state_add_reals(pl_state *s, double *x, int64_t rows, int64_t cols, const char *name);
/* host memory, borrowed */
void pl_state_add_counts(pl_state *s, int64_t *x, int64_t rows, int64_t cols, const char *name);
/* the array just added is not in files of older programs */
void pl_state_may_lack(pl_state *s);
/* "optim0.", "optim1.", ...: all groups of the ensemble in the order of their runs */
void pl_state_add_groups(pl_state *s, const pl_train_group *groups, int64_t count);
/* "<stem><run>.": an optimiser of one run's own; stem is borrowed */
void pl_state_add_own(pl_state *s, polar_optim *opt, int64_t run, const char *stem);

/* synchronises; does not disturb the training */
polar_status pl_state_save(const pl_state *s, polar_queue *q, const char *path);
/* POLAR_E_FORMAT: torn, or of other runs; POLAR_E_ARG: of other data */
polar_status pl_state_open(pl_state_file **out, pl_state *s, const char *path);
/* synchronises */
polar_status pl_state_apply(pl_state_file *f, const pl_state *s, polar_queue *q);
/* NULL is fine */
void pl_state_close(pl_state_file *f);

#endif
