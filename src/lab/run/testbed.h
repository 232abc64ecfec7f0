/* testbed.h -- what the laboratory asks of an experiment's model: begin, epochs, checkpoint, results. One
 * table of functions per testbed.
 *
 *     pl_train *t;
 *     // an ensemble: runs of one shape trained together, on the CPU one
 *     PL_TRY(tb->begin(&t, dev, configs, seeds, members, NULL));
 *     // POLAR_E_FORMAT: torn, or of another ensemble; then end and begin again
 *     if (access(path, R_OK) == 0) PL_TRY(tb->load(t, path));
 *     tb->where(t, epochs, active);
 *     while (any(active)) {
 *         PL_TRY(tb->epoch(t, rows, active));
 *         ...                                                   // now and then PL_TRY(tb->save(t, path));
 *     }
 *     for (m ...) PL_TRY(tb->results(t, m, results, PL_MAX_RESULTS, &count));
 *     tb->end(t);
 *
 * What the laboratory counts on:
 *  1. A member's numbers depend on its configuration and seed only: not on its mates, the device's threads,
 *     or where a run was saved and loaded.
 *  2. save puts the file in one rename, synced, with the metadata polar.runs (store.h); load of it continues
 *     to the same bits, in the ensemble that was saved and in one of some of its members. save does not
 *     disturb the training.
 *  3. A NaN or an infinity ends a member, with a result "diverged" of 1; it is not an error.
 *  4. No function prints; different ensembles on different devices may be driven by different threads at
 *     the same time.
 *  5. Every testbed has the key "train.epochs", the most epochs a run may take.
 *  6. Where epochs are long (it has `watch`), epoch tells after every batch where it stands and returns in
 *     the middle when asked to, with rows whose epoch is 0; a save then and there is a
 *     checkpoint like any other, and the next call goes on.
 */
#ifndef PL_LAB_TESTBED_H
#define PL_LAB_TESTBED_H

#include <stdint.h>

#include "lab/spec/config.h"
#include "polar/device.h"
#include "store/store.h"

#define PL_MAX_RESULTS 64

typedef struct pl_train pl_train; /* an ensemble in training; each testbed has its own */

typedef struct pl_step_view { /* where an epoch stands, or what comes before the first */
    const char *what;         /* is counted: "images" */
    int64_t done, total;      /* of them, training and test together */
    double loss;              /* mean of the epoch's training so far; NaN before */
} pl_step_view;

typedef struct pl_step_watch {
    int (*step)(void *arg, const pl_step_view *v); /* not 0: return from epoch, or from begin, now */
    void *arg;
} pl_step_watch;

typedef struct pl_estimate { /* of one run, without running it; shadows not counted */
    /* of a batch: forward and backward; the optimiser's step; forward only */
    polar_cost pass, step, look;
    /* in all, if nothing stops the run early; the data's making not counted */
    double flops, bytes;
    double epoch_looks;    /* batches that an epoch looks at without training */
    int64_t epochs, steps; /* the most epochs, and steps of an epoch */
    int64_t matrix_arrays, matrix_weights, aux_arrays, aux_weights; /* by route */
    /* device memory: weights, gradients, activations, optimiser's state and scratch */
    size_t memory;
    char *routes;     /* polar_optim_report; free with pl_free */
    int may_stop;     /* before its last epoch */
    const char *note; /* what was assumed, a sentence; static; or NULL */
} pl_estimate;

typedef struct pl_testbed {
    const pl_schema *schema; /* name, version, metric, keys */
    /* by a dry run on dev; NULL: not known */
    polar_status (*estimate)(pl_estimate *out, polar_device *dev, const pl_config *c);
    /* into a run of the same shape with about so many steps an epoch, on data made on the fly; NULL: cannot.
     * For pl_run_rate_measure. */
    polar_status (*shorten)(pl_config *c, int64_t steps);
    /* whether two runs may be members of one ensemble: everything but seed, rule, lr, decay alike */
    int (*same_shape)(const pl_config *a, const pl_config *b);
    /* before the first epoch; borrows dev and configs; with several members POLAR_E_NOMEM and
     * POLAR_E_UNSUPPORTED: try fewer. w, or NULL, hears of what takes long there: POLAR_E_STATE where it
     * says to return */
    polar_status (*begin)(pl_train **out, polar_device *dev, const pl_config *const *configs,
                          const uint64_t *seeds, int64_t members, const pl_step_watch *w);
    /* what a member is trained on (store.h, pl_provenance), borrowed; gives NULL, or is NULL, where the ids
     * tell it */
    const char *(*data)(const pl_train *t, int64_t member);
    /* of each member: epochs made, and whether it goes on */
    void (*where)(const pl_train *t, int64_t *epochs, int *active);
    /* one epoch of every active member; rows[member] of those; active as after it */
    polar_status (*epoch)(pl_train *t, pl_epoch_row *rows, int *active);
    /* copied; from the next epoch on; NULL: its epochs are short and are not watched */
    void (*watch)(pl_train *t, const pl_step_watch *w);
    polar_status (*save)(pl_train *t, const char *path); /* a checkpoint */
    /* after begin; POLAR_E_FORMAT leaves t fit only for end */
    polar_status (*load)(pl_train *t, const char *path);
    /* of a member that is no longer active; with "diverged", no clock */
    polar_status (*results)(pl_train *t, int64_t member, pl_result *out, int max, int *count);
    /* rows since the last call, at most max (call again while it fills max); NULL: none ever */
    polar_status (*gauge)(pl_train *t, int64_t member, pl_gauge_row *out, int max, int *count);
    /* the best epoch's, or the last one's where none is chosen by a validation set, as safetensors */
    polar_status (*weights)(pl_train *t, int64_t member, const char *path);
    void (*end)(pl_train *t); /* NULL is fine */
} pl_testbed;

/* The testbeds of this build: a new one is a word here. */
#define PL_TESTBEDS(TESTBED) TESTBED(pl_testbed_so3) TESTBED(pl_testbed_deit)

#define PL_TESTBED_DECLARE(name) extern const pl_testbed name;
PL_TESTBEDS(PL_TESTBED_DECLARE)

#define PL_TESTBED_MAX 8

/* "so3", "deit"; POLAR_E_ARG names those there are */
polar_status pl_testbed_find(const pl_testbed **out, const char *name);
/* of every testbed, as pl_spec_read wants them; gives their number */
int pl_testbed_schemas(pl_schema out[PL_TESTBED_MAX]);

#endif
