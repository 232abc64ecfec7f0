/* run_job.c -- a job: takes runs of the plans that are to be done, one ensemble after the other, until none
 * is left or it must leave.
 *
 * Invariants:
 *  1. A run is begun only by who holds its claim and, holding it, has read that it is not finished: never two
 * at once, never twice.
 *  2. A claim is given up only after the run's results are stored, or after its last checkpoint.
 *  3. The runs of an ensemble are all of one checkpoint, or none of them has any: nobody's epochs are made
 * again for the sake of mates.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/thread_pool.h"
#include "device/backend.h"
#include "lab/run/runner_impl.h"

#define ENSEMBLE 64 /* runs trained together on a device that is good at it, unless told */

/* ---- taking runs -------------------------------------------------------------------------------- */

/* Whether two entries may be trained together. */
static int same_shape(const pl_runner *r, int64_t a, int64_t b)
{
    const pl_testbed *tb = pl_runner_plan_of(r, a)->tb;
    return tb == pl_runner_plan_of(r, b)->tb && tb->same_shape(r->runs[a].config, r->runs[b].config);
}

/* Marks an entry as ours among the jobs of this process, if it is free and fits the group. */
static int reserve(pl_job *job, int64_t i)
{
    pl_runner *r = job->r;
    pthread_mutex_lock(&r->lock);
    int fits = r->runs[i].first == i && !r->slots[i].done && !r->slots[i].busy;
    if (fits && job->members) fits = same_shape(r, job->group[0], i);
    if (fits) r->slots[i].busy = 1;
    pthread_mutex_unlock(&r->lock);
    return fits;
}

static void give_back(pl_job *job, int64_t i)
{
    pthread_mutex_lock(&job->r->lock);
    job->r->slots[i].busy = 0;
    pthread_mutex_unlock(&job->r->lock);
}

/* A reserved entry: claims it and looks whether it is still to be done. *mine with the claim held. */
static polar_status claim(pl_job *job, int64_t i, int *mine, int64_t *others)
{
    pl_runner *r = job->r;
    const char *id = r->runs[i].id;
    pl_run_state state = PL_RUN_PLANNED;
    PL_TRY(pl_store_claim(job->store, id, mine));
    if (!*mine) {
        ++*others;
        return POLAR_OK;
    }
    polar_status st = pl_store_run_state(job->store, id, &state, NULL);
    if (st == POLAR_OK && (state == PL_RUN_PLANNED || r->o->weights)) return POLAR_OK;
    *mine = 0;
    pl_store_release(job->store, id);
    if (st == POLAR_OK) { /* another process has done it meanwhile */
        pthread_mutex_lock(&r->lock);
        pl_runner_count_done(r, i, state);
        r->view.epochs_gone += pl_runner_epochs(&r->runs[i]);
        pthread_mutex_unlock(&r->lock);
    }
    return st;
}

/* The k-th entry that a job looks at: plan after plan, in a plan's order or, where devices share them, by
 * cost. */
static int64_t entry_at(const pl_job *job, int64_t k)
{
    const pl_runner *r = job->r;
    if (!r->order) return k;
    if (!job->cheapest) return r->order[k];
    int64_t begin = 0, n = 0;
    while (k - begin >= r->plans[n].count) begin += r->plans[n++].count;
    return r->order[begin + r->plans[n].count - 1 - (k - begin)];
}

/* Where there may be something to do; a plan of many runs is not looked through from its start for each. */
static int64_t first_open(pl_runner *r)
{
    if (r->order) return 0;
    pthread_mutex_lock(&r->lock);
    while (r->open_from < r->count &&
           (r->slots[r->open_from].done || r->runs[r->open_from].first != r->open_from))
        r->open_from++;
    int64_t i = r->open_from;
    pthread_mutex_unlock(&r->lock);
    return i;
}

/* Whether the run goes on from where the group's first one does. */
static int comes_along(const pl_job *job, const pl_store_checkpoints *list, int64_t i)
{
    const pl_plan_run *runs = job->r->runs;
    return !job->members ||
           pl_store_checkpoint_of(list, runs[i].id) == pl_store_checkpoint_of(list, runs[job->group[0]].id);
}

/* The first run that is to be done and free, and its mates. *others counts those that another process has. */
static polar_status take(pl_job *job, int64_t *others)
{
    pl_store_checkpoints list = {0};
    *others = 0;
    polar_status st = job->limit > 1 ? pl_store_list_checkpoints(&list, job->store) : POLAR_OK;
    pthread_mutex_lock(&job->r->taking); /* one job after the other: the same ensembles in every sitting */
    const pl_runner *r = job->r;
    for (int64_t k = first_open(job->r); k < r->count && job->members < job->limit && st == POLAR_OK; k++) {
        int64_t i = entry_at(job, k);
        int mine = 0;
        if (!comes_along(job, &list, i) || !reserve(job, i)) continue;
        st = claim(job, i, &mine, others);
        if (st == POLAR_OK && mine) job->group[job->members++] = i;
        else give_back(job, i);
    }
    pthread_mutex_unlock(&job->r->taking);
    pl_store_checkpoints_free(&list);
    return st;
}

void pl_job_drop(pl_job *job, int64_t k)
{
    pl_runner *r = job->r;
    pl_store_release(job->store, r->runs[job->group[k]].id);
    give_back(job, job->group[k]);
    job->members--;
    memmove(job->group + k, job->group + k + 1, (size_t)(job->members - k) * sizeof *job->group);
    pthread_mutex_lock(&r->lock);
    pl_job_view *v = &r->job_views[job->number];
    v->members = job->members;
    if (v->run && job->members) v->run = &r->runs[job->group[0]];
    pthread_mutex_unlock(&r->lock);
}

static void release_from(pl_job *job, int64_t first)
{
    for (int64_t k = first; k < job->members; k++) {
        pl_store_release(job->store, job->r->runs[job->group[k]].id);
        give_back(job, job->group[k]);
    }
    job->members = first;
}

static polar_status run_taken(pl_job *job)
{
    polar_status st = pl_group_run(job);
    while ((st == POLAR_E_NOMEM || st == POLAR_E_UNSUPPORTED) && job->members > 1) {
        const char *no = st == POLAR_E_NOMEM ? "no memory for" : "no way to train";
        job->limit = job->members / 2;
        pl_runner_note(job, NULL, "%s %lld runs at once on %s: trying %lld (%s)", no, (long long)job->members,
                       job->provenance.device, (long long)job->limit, polar_error_message());
        release_from(job, job->limit);
        st = pl_group_run(job);
    }
    release_from(job, 0);
    pthread_mutex_lock(&job->r->lock);
    job->r->job_views[job->number] = (pl_job_view){0};
    pthread_cond_broadcast(&job->r->changed);
    pthread_mutex_unlock(&job->r->lock);
    return st;
}

static void wait_for_others(pl_job *job, int64_t others)
{
    pl_runner *r = job->r;
    pthread_mutex_lock(&r->lock);
    int tell = !r->said_waiting;
    r->said_waiting = r->view.waiting = 1;
    pthread_mutex_unlock(&r->lock);
    if (tell)
        pl_runner_note(job, NULL,
                       "another process is at %lld of the runs left: waiting for it (Ctrl-C leaves)",
                       (long long)others);
    pthread_mutex_lock(&r->lock);
    pl_runner_wait(r, PL_RUNNER_TICK_SECONDS);
    pthread_mutex_unlock(&r->lock);
}

static polar_status work(pl_job *job)
{
    int64_t others = 0;
    while (!pl_runner_must_leave(job->r)) {
        PL_TRY(take(job, &others));
        if (job->members) {
            pthread_mutex_lock(&job->r->lock);
            job->r->view.waiting = 0;
            pthread_mutex_unlock(&job->r->lock);
            PL_TRY(run_taken(job));
        } else if (others) wait_for_others(job, others);
        else break;
    }
    return POLAR_OK;
}

/* ---- a job -------------------------------------------------------------------------------------- */

int pl_runner_trains_many(const char *device)
{
    return !strncmp(device, "cuda", 4);
}

/* The job's device; of a CPU shared by several jobs each gets its part. */
static void device_name(char out[256], const char *device, int jobs)
{
    int cpu = !strcmp(device, "cpu") || !strncmp(device, "cpu:", 4);
    int64_t threads = pl_processor_count() / jobs;
    if (!cpu || jobs == 1 || strstr(device, "threads=")) snprintf(out, 256, "%s", device);
    else
        snprintf(out, 256, "%s%sthreads=%lld", device, strchr(device, ':') ? "," : ":",
                 (long long)(threads > 0 ? threads : 1));
}

static polar_status job_begin(pl_job *job)
{
    char name[256];
    const pl_runner_opts *o = job->r->o;
    int many = pl_runner_trains_many(job->device);
    /* --ensemble speaks of the devices that train many, where there are others beside them */
    job->limit = o->ensemble && (many || !o->beside_count) ? o->ensemble : many ? ENSEMBLE : 1;
    job->group = pl_calloc((size_t)job->limit, sizeof *job->group);
    PL_NEED(job->group, POLAR_E_NOMEM, "a job");
    PL_TRY(pl_store_open(&job->store, o->store, PL_STORE_WRITE));
    device_name(name, job->device, o->jobs);
    PL_TRY(polar_device_open(&job->dev, name));
    job->dev->comm = o->comm;
    job->provenance = pl_provenance_of(&job->text, job->dev);
    return POLAR_OK;
}

void *pl_job_main(void *arg)
{
    pl_job *job = arg;
    pl_runner *r = job->r;
    polar_status st = job_begin(job);
    if (st == POLAR_OK) st = work(job);
    if (job->store) release_from(job, 0);
    polar_device_close(job->dev);
    pl_store_close(job->store);
    pl_free(job->group);
    pthread_mutex_lock(&r->lock);
    if (st != POLAR_OK && r->status == POLAR_OK) {
        r->status = st;
        snprintf(r->message, sizeof r->message, "%s", polar_error_message());
    }
    if (st != POLAR_OK) atomic_store(&r->halt, 1);
    r->jobs_running--;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    return NULL;
}
