/* runner.h -- does every run of one or several plans that is not done yet: jobs side by side, checkpoints,
 * resume, several processes on one store.
 *
 *     pl_runner_opts o = PL_RUNNER_OPTS_INIT;
 *     o.store = "polar.db";  o.jobs = 2;  o.stop = &stop;              // stop: set by a signal handler
 *     const pl_runner_plan of = {tb, &spec, plan->runs, plan->count};
 *     PL_TRY(pl_runner_run(&outcome, &of, 1, &o));
 *     // stopped or out of time: the same call goes on from there
 *     if (outcome.left) ...
 *
 * Each job is a thread with its own connection to the store, its own device and its own claims. On a device
 * "cuda..." a job takes as many unfinished runs of one shape as may be trained together, those of one
 * checkpoint or those of none; elsewhere one run at a time. Several devices share a plan: one that trains
 * many has one job and takes the costliest runs first, the others have `jobs` each and begin with the
 * cheapest. A job that finds everything left claimed by another process waits for it, and takes over what
 * that process leaves unfinished.
 *
 * Several plans are one, made of them in the order given: a job begins with the first plan that has something
 * free, so no device waits for the last runs of a plan while there is another. An ensemble that a plan cannot
 * fill takes runs of the same shape from the plans behind it. A run of two plans is made once, as the first
 * one's.
 *
 * However it ends (stop, an error, kill -9, a power cut), the results of finished runs are stored, and the
 * table of a finished plan is the same to the bit.
 */
#ifndef PL_LAB_RUNNER_H
#define PL_LAB_RUNNER_H

#include <stdatomic.h>
#include <stdint.h>

#include "lab/spec/plan.h"
#include "lab/run/testbed.h"

typedef struct pl_runner_plan { /* the plan of a spec */
    const pl_testbed *tb;
    const pl_store_spec *spec; /* its row */
    const pl_plan_run *runs;
    int64_t count;
} pl_runner_plan;

typedef struct pl_job_view {    /* what a job is at */
    const pl_plan_run *run;     /* of an ensemble the first; NULL: nothing */
    const pl_runner_plan *plan; /* whose it is */
    int64_t members;
    int64_t epoch, epochs;    /* made, and the most it will make */
    double train_loss, valid; /* of the last epoch; NaN before it */
    /* before the first epoch, where the testbed tells what takes long there ("pictures read"); NULL elsewhere
     */
    const char *begins;
    int64_t begun, to_begin; /* of these */
    double begin_rate;       /* of them, per second */
    /* of the epoch under way, where the testbed tells; zeros elsewhere */
    const char *what;       /* is counted: "images"; or NULL */
    double part, part_here; /* of it done, and done in this sitting, 0 to 1 */
    double loss;            /* its training so far; NaN before */
    double rate;            /* of what is counted, per second, in this epoch */
} pl_job_view;

typedef struct pl_runner_view {
    /* distinct runs of all plans, of the shard; those finished, in all, and with a NaN */
    int64_t total, done, diverged;
    int64_t begun_done; /* ... and those finished before we began */
    /* of the runs not finished when we began; an early stop counts as all of its epochs */
    double epochs_total, epochs_gone;
    double epochs_here;  /* of epochs_gone, by us in this sitting */
    int64_t epochs_made; /* epochs that were computed in this sitting */
    double seconds;      /* since we began */
    int waiting;         /* everything left is another process's */
    const pl_job_view *jobs;
    int job_count;
} pl_runner_view;

typedef enum pl_runner_event_kind {
    PL_RUNNER_TICK,     /* some time passed */
    PL_RUNNER_EPOCH,    /* run, epoch */
    PL_RUNNER_RESUMED,  /* run, epochs: goes on after so many */
    PL_RUNNER_FINISHED, /* run, state, results, wall, epochs */
    PL_RUNNER_NOTE      /* note: worth a line */
} pl_runner_event_kind;

typedef struct pl_runner_event { /* everything borrowed, until the callback returns */
    pl_runner_event_kind kind;
    const pl_runner_view *view;
    const pl_plan_run *run;
    const pl_runner_plan *plan; /* the run's, where there is one */
    const pl_epoch_row *epoch;
    const pl_result *results;
    int64_t result_count, epochs;
    pl_run_state state;
    double wall;
    const char *note;
} pl_runner_event;

typedef struct pl_runner_opts {
    const char *store; /* the file */
    /* "cpu" with jobs > 1 gets threads = processors / jobs unless told */
    const char *device;
    int jobs; /* with other devices beside it: on each that is not "cuda...", which has one */
    /* of the distinct runs, numbered in the plans' order from 0, those whose number is `shard` modulo
     * `shards`; plans are put whole. shards 0: all of them */
    int64_t shard, shards;
    int retry;     /* do diverged runs again */
    double budget; /* seconds after which everything is saved and left; 0: none */
    /* seconds between checkpoints of a run, more where saving takes long (at most one part in 20 of the
     * time); 0: after every epoch */
    double save_every;
    int64_t ensemble; /* the most runs trained together; 0: 64 on "cuda...", 1 elsewhere */
    /* where the best weights of the only run go; it is made again if it was done. NULL: nowhere */
    const char *weights;
    atomic_int *stop; /* not 0: save and leave; may be NULL */
    /* one call at a time, from any thread; may be NULL */
    void (*watch)(void *arg, const pl_runner_event *e);
    void *watch_arg;
    const char *const *beside; /* further devices */
    int beside_count;
    /* the ranks that share the runs, of which this process is the first; the testbed is pl_lead's; or NULL */
    struct polar_comm *comm;
    /* members that have ended leave their ensemble when they have cost so many times what leaving takes; 0:
     * at once */
    double leave_after;
} pl_runner_opts;

#define PL_RUNNER_OPTS_INIT                                                              \
    {                                                                                    \
        "polar.db", "cpu", 1, 0, 0, 0, 0, 5, 0, NULL, NULL, NULL, NULL, NULL, 0, NULL, 1 \
    }

typedef struct pl_runner_outcome {
    int64_t total, done, diverged; /* distinct runs, of the shard; diverged ones are done too */
    int64_t done_here, left;
    int stopped, out_of_time; /* why there are some left */
    /* so early that the plan is not in the store, and of the runs nothing is known */
    int unplanned;
    double seconds;
} pl_runner_outcome;

/* Plans the runs in the store and does those that are not done; the specs' names differ. POLAR_OK also when
 * stopped; an error of one job ends all, after a last checkpoint where it can be. */
polar_status pl_runner_run(pl_runner_outcome *out, const pl_runner_plan *plans, int plan_count,
                           const pl_runner_opts *opts);

#endif
