/* runner_impl.h -- inside the runner: what the jobs share, and the work of one job on one ensemble
 * (run_group.c). */
#ifndef PL_LAB_RUNNER_IMPL_H
#define PL_LAB_RUNNER_IMPL_H

#include <pthread.h>

#include "lab/run/provenance.h"
#include "lab/run/runner.h"

typedef struct pl_slot { /* of a run, as far as we know */
    char done, busy;     /* finished; claimed by a job of ours */
    int plan;            /* whose it is */
} pl_slot;

typedef struct pl_runner {
    const pl_runner_plan *plans;
    int plan_count;
    pl_plan_run *runs; /* of all plans one after the other, `first` among all of them */
    int64_t count;
    const pl_runner_opts *o;
    double begun;
    atomic_int halt;        /* a job failed: the others save and leave */
    pthread_mutex_t taking; /* held by the job that chooses its runs */
    pthread_mutex_t lock;   /* of everything below */
    pthread_cond_t changed;
    pl_slot *slots; /* count of them; only a run's first entry counts */
    /* the entries, those of a plan the costliest first; NULL: one device, which takes them as they come */
    int64_t *order;
    int64_t open_from; /* entries before it are done, or not their run's first */
    pl_job_view *job_views;
    pl_runner_view view;
    int jobs_running, said_waiting;
    int64_t done_here;
    polar_status status; /* the first failure, and its sentence */
    char message[1200];
} pl_runner;

typedef struct pl_job {
    pl_runner *r;
    int number;
    const char *device; /* one of the options' */
    int cheapest;       /* begins with the cheapest runs */
    pthread_t thread;
    pl_store *store;
    polar_device *dev;
    pl_provenance_text text;
    pl_provenance provenance;
    int64_t *group; /* entries of the plan that this job has claimed */
    int64_t members;
    /* the most members: 1, or o->ensemble on a device that trains many, less where its memory did not suffice
     */
    int64_t limit;
} pl_job;

#define PL_RUNNER_TICK_SECONDS 0.2

static inline const pl_runner_plan *pl_runner_plan_of(const pl_runner *r, int64_t entry)
{
    return &r->plans[r->slots[entry].plan];
}

int pl_runner_must_leave(const pl_runner *r); /* stop, out of time, or a job failed */
/* counts what happened and calls the watcher, one at a time */
void pl_runner_tell(pl_job *job, pl_runner_event *e);
/* one line for people; run may be NULL */
void pl_runner_note(pl_job *job, const pl_plan_run *run, const char *fmt, ...) PL_PRINTF(3, 4);
/* where the job's epoch stands; the watcher sees it at the next tick */
void pl_runner_step(pl_job *job, const pl_step_view *v, double part_here, double rate);
/* what the job does before its first epoch; NULL: it has done it */
void pl_runner_beginning(pl_job *job, const pl_step_view *v, double rate);
/* an entry is finished; under the lock */
void pl_runner_count_done(pl_runner *r, int64_t i, pl_run_state state);
/* until something happens, at most so long; under the lock */
void pl_runner_wait(pl_runner *r, double seconds);
double pl_runner_epochs(const pl_plan_run *run); /* the most it may make */

int pl_runner_trains_many(const char *device); /* the members of an ensemble at once (run_job.c) */
void *pl_job_main(void *job);                  /* of a thread: a job from its begin to its end (run_job.c) */

/* entry k of the job's group is finished: its claim is given up, those behind it move up (run_job.c) */
void pl_job_drop(pl_job *job, int64_t k);

/* The job's group from where it stands to its end, or until the runner must leave (then it is saved).
 * POLAR_E_NOMEM with several members: try fewer. */
polar_status pl_group_run(pl_job *job);

#endif
