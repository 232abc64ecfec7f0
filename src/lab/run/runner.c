/* runner.c -- the plans into the store, jobs as threads, and what they tell the watcher. The work of a job is
 * in run_job.c.
 *
 * Invariants:
 *  1. The caller's thread only watches; every job has its own store connection, device and claims. What they
 * share is under one lock.
 *  2. The first error counts; the other jobs save and leave.
 */
#include "lab/run/runner.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "lab/run/runner_impl.h"
#include "lab/spec/plan_rows.h"

/* ---- what the jobs share ------------------------------------------------------------------------ */

static int stopped(const pl_runner *r)
{
    return r->o->stop && atomic_load(r->o->stop);
}
static int out_of_time(const pl_runner *r)
{
    return r->o->budget > 0 && pl_clock_seconds() - r->begun >= r->o->budget;
}

int pl_runner_must_leave(const pl_runner *r)
{
    return atomic_load(&r->halt) || stopped(r) || out_of_time(r);
}

double pl_runner_epochs(const pl_plan_run *run)
{
    return (double)pl_config_int(run->config, "train.epochs");
}

void pl_runner_count_done(pl_runner *r, int64_t i, pl_run_state state)
{
    if (r->slots[i].done) return;
    r->slots[i].done = 1;
    r->view.done++;
    r->view.diverged += state == PL_RUN_DIVERGED;
}

static const pl_runner_plan *plan_of(const pl_runner *r, const pl_plan_run *run)
{
    return pl_runner_plan_of(r, run - r->runs);
}

static void count_event(pl_job *job, const pl_runner_event *e)
{
    pl_runner *r = job->r;
    pl_job_view *v = &r->job_views[job->number];
    switch (e->kind) {
    case PL_RUNNER_RESUMED:
        r->view.epochs_gone += (double)e->epochs;
        *v = (pl_job_view){.run = &r->runs[job->group[0]],
                           .plan = pl_runner_plan_of(r, job->group[0]),
                           .members = job->members,
                           .epoch = e->epochs,
                           .epochs = (int64_t)pl_runner_epochs(e->run),
                           .train_loss = (double)NAN,
                           .valid = (double)NAN,
                           .loss = (double)NAN};
        break;
    case PL_RUNNER_EPOCH:
        r->view.epochs_gone++, r->view.epochs_here++, r->view.epochs_made++;
        v->epoch = e->epochs;
        v->train_loss = e->epoch->train_loss;
        v->valid = e->epoch->valid;
        v->part = v->part_here = 0;
        v->loss = (double)NAN;
        break;
    case PL_RUNNER_FINISHED:
        r->view.epochs_gone += pl_runner_epochs(e->run) - (double)e->epochs;
        r->view.epochs_here += pl_runner_epochs(e->run) - (double)e->epochs;
        r->done_here++;
        pl_runner_count_done(r, e->run->first, e->state);
        break;
    default: break;
    }
}

/* Under the lock. */
static void call_watcher(pl_runner *r, pl_runner_event *e)
{
    r->view.seconds = pl_clock_seconds() - r->begun;
    e->view = &r->view;
    if (e->run) e->plan = plan_of(r, e->run);
    if (r->o->watch) r->o->watch(r->o->watch_arg, e);
}

void pl_runner_tell(pl_job *job, pl_runner_event *e)
{
    pthread_mutex_lock(&job->r->lock);
    count_event(job, e);
    call_watcher(job->r, e);
    pthread_mutex_unlock(&job->r->lock);
}

void pl_runner_step(pl_job *job, const pl_step_view *v, double part_here, double rate)
{
    pl_job_view *view = &job->r->job_views[job->number];
    pthread_mutex_lock(&job->r->lock);
    view->what = v->what;
    view->part = v->total ? (double)v->done / (double)v->total : 0;
    view->part_here = part_here;
    view->loss = v->loss;
    view->rate = rate;
    pthread_mutex_unlock(&job->r->lock);
}

void pl_runner_beginning(pl_job *job, const pl_step_view *v, double rate)
{
    pl_job_view *view = &job->r->job_views[job->number];
    pthread_mutex_lock(&job->r->lock);
    view->begins = v ? v->what : NULL;
    view->begun = v ? v->done : 0;
    view->to_begin = v ? v->total : 0;
    view->begin_rate = rate;
    pthread_mutex_unlock(&job->r->lock);
}

/* "model.width=16 muon seed 3: ", of several plans the spec's name before it; how long it is. */
static size_t name_run(char out[480], const pl_runner *r, const pl_plan_run *run)
{
    const char *spec = r->plan_count > 1 ? plan_of(r, run)->spec->name : "";
    return (size_t)snprintf(out, 480, "%.100s%s%.200s %.100s seed %lld: ", spec, *spec ? " " : "", run->cell,
                            run->arm, (long long)run->seed);
}

void pl_runner_note(pl_job *job, const pl_plan_run *run, const char *fmt, ...)
{
    char text[1400];
    size_t used = run ? name_run(text, job->r, run) : 0;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text + used, sizeof text - used, fmt, ap);
    va_end(ap);
    pl_runner_event e = {PL_RUNNER_NOTE, .run = run, .note = text};
    pl_runner_tell(job, &e);
}

/* Until something happens, at most so long. Under the lock. */
void pl_runner_wait(pl_runner *r, double seconds)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += (long)(seconds * 1e9);
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&r->changed, &r->lock, &t);
}

/* ---- jobs --------------------------------------------------------------------------------------- */

static const char *device_at(const pl_runner_opts *o, int d)
{
    return d ? o->beside[d - 1] : o->device;
}

static int jobs_on(const pl_runner_opts *o, int d)
{
    return o->beside_count && pl_runner_trains_many(device_at(o, d)) ? 1 : o->jobs;
}

static int jobs_of(const pl_runner_opts *o)
{
    int n = 0;
    for (int d = 0; d <= o->beside_count; d++) n += jobs_on(o, d);
    return n;
}

/* Jobs of the first device first. */
static pl_job job_of(pl_runner *r, int number)
{
    int d = 0, j = number;
    while (j >= jobs_on(r->o, d)) j -= jobs_on(r->o, d++);
    const char *device = device_at(r->o, d);
    return (pl_job){.r = r, .number = number, .device = device, .cheapest = !pl_runner_trains_many(device)};
}

/* Starts the jobs and watches until the last has ended. */
static polar_status run_jobs(pl_runner *r)
{
    int started = 0, wanted = jobs_of(r->o);
    pl_job *jobs = pl_calloc((size_t)wanted, sizeof *jobs);
    PL_NEED(jobs, POLAR_E_NOMEM, "%d jobs", wanted);
    for (int j = 0; j < wanted; j++) {
        jobs[j] = job_of(r, j);
        pthread_mutex_lock(&r->lock);
        r->jobs_running++;
        pthread_mutex_unlock(&r->lock);
        if (pthread_create(&jobs[j].thread, NULL, pl_job_main, &jobs[j]) != 0) break;
        started++;
    }
    pthread_mutex_lock(&r->lock);
    if (started < wanted) {
        atomic_store(&r->halt, 1);
        r->jobs_running--;
        r->status = POLAR_E_NOMEM;
        snprintf(r->message, sizeof r->message,
                 "the system gives no thread for job %d of %d (try fewer --jobs)", started + 1, wanted);
    }
    while (r->jobs_running) {
        pl_runner_event tick = {.kind = PL_RUNNER_TICK};
        pl_runner_wait(r, PL_RUNNER_TICK_SECONDS);
        call_watcher(r, &tick);
    }
    pthread_mutex_unlock(&r->lock);
    for (int j = 0; j < started; j++) pthread_join(jobs[j].thread, NULL);
    pl_free(jobs);
    return r->status == POLAR_OK ? POLAR_OK : pl_fail_again(r->status, r->message);
}

/* ---- the costliest first ------------------------------------------------------------------------ */

typedef struct costed { /* an entry of the plan */
    int64_t entry;
    int plan;
    const pl_config *config;
    double flops;
} costed;

static int by_its_config(const void *a, const void *b)
{
    const costed *x = a, *y = b;
    uintptr_t c = (uintptr_t)x->config, d = (uintptr_t)y->config;
    return c != d ? (c > d) - (c < d) : (x->entry > y->entry) - (x->entry < y->entry);
}

static int by_cost(const void *a, const void *b)
{
    const costed *x = a, *y = b;
    if (x->plan != y->plan) return x->plan - y->plan;
    return x->flops != y->flops ? (x->flops < y->flops) - (x->flops > y->flops)
                                : (x->entry > y->entry) - (x->entry < y->entry);
}

/* The passes over the data alone: the arms of a cell cost the same, so that pairs are made together. */
static double flops_of(const pl_estimate *e)
{
    return (double)e->epochs * ((double)e->steps * e->pass.flops + e->epoch_looks * e->look.flops);
}

/* The seeds of an arm share a configuration, which is looked at once; without a testbed's estimate all cost
 * the same. */
static polar_status cost_all(costed *all, const pl_runner *r, polar_device *dev)
{
    for (int64_t i = 0; i < r->count; i++) all[i] = (costed){i, r->slots[i].plan, r->runs[i].config, 0};
    qsort(all, (size_t)r->count, sizeof *all, by_its_config);
    for (int64_t i = 0; i < r->count; i++) {
        if (i && all[i].config == all[i - 1].config) {
            all[i].flops = all[i - 1].flops;
            continue;
        }
        pl_estimate e = {0};
        const pl_testbed *tb = r->plans[all[i].plan].tb;
        if (tb->estimate) PL_TRY(tb->estimate(&e, dev, all[i].config));
        all[i].flops = flops_of(&e);
        pl_free(e.routes);
    }
    qsort(all, (size_t)r->count, sizeof *all, by_cost);
    return POLAR_OK;
}

/* Where several devices share the plans. */
static polar_status order_by_cost(pl_runner *r, polar_device *dev)
{
    if (!r->o->beside_count) return POLAR_OK;
    costed *all = pl_calloc((size_t)r->count, sizeof *all);
    r->order = pl_calloc((size_t)r->count, sizeof *r->order);
    polar_status st = all && r->order ? cost_all(all, r, dev)
                                      : PL_FAIL(POLAR_E_NOMEM, "a plan of %lld runs", (long long)r->count);
    for (int64_t i = 0; i < r->count && st == POLAR_OK; i++) r->order[i] = all[i].entry;
    pl_free(all);
    return st;
}

/* ---- the plan ----------------------------------------------------------------------------------- */

static polar_status put_plan(pl_store *s, const pl_runner_plan *plan)
{
    pl_plan_rows rows;
    PL_TRY(pl_plan_rows_create(&rows, plan->runs, plan->count));
    polar_status st = pl_store_put_spec(s, plan->spec, rows.rows, rows.count);
    pl_plan_rows_free(&rows);
    return st;
}

/* A run that is to be made again, as if it had never been begun; unless another process is at it. */
static polar_status forget(pl_store *s, const char *id, pl_run_state *state)
{
    int mine = 0;
    PL_TRY(pl_store_claim(s, id, &mine));
    if (!mine) return POLAR_OK;
    polar_status st = pl_store_remove_checkpoints(s, id);
    if (st == POLAR_OK) st = pl_store_forget(s, id);
    pl_store_release(s, id);
    *state = PL_RUN_PLANNED;
    return st;
}

static void note(pl_runner *r, const char *text)
{
    pl_runner_event e = {PL_RUNNER_NOTE, .note = text};
    pthread_mutex_lock(&r->lock);
    call_watcher(r, &e);
    pthread_mutex_unlock(&r->lock);
}

static polar_status forget_damaged(pl_runner *r, pl_store *s, const pl_plan_run *run, pl_run_state *state)
{
    char text[700];
    const pl_store_damage *d = pl_store_damage_of(s, run->id);
    if (!d) return POLAR_OK;
    size_t used = name_run(text, r, run);
    snprintf(text + used, sizeof text - used, "what the store has of it is damaged (%s), so it is made again",
             d->what);
    note(r, text);
    return forget(s, run->id, state);
}

static polar_status read_states(pl_runner *r, pl_store *s)
{
    for (int64_t i = 0; i < r->count; i++) {
        pl_run_state state = PL_RUN_PLANNED;
        if (r->runs[i].first != i || r->slots[i].done) continue;
        PL_TRY(pl_store_run_state(s, r->runs[i].id, &state, NULL));
        PL_TRY(forget_damaged(r, s, &r->runs[i], &state));
        if (state == PL_RUN_DIVERGED && r->o->retry) PL_TRY(forget(s, r->runs[i].id, &state));
        if (state == PL_RUN_PLANNED || r->o->weights) r->view.epochs_total += pl_runner_epochs(&r->runs[i]);
        else pl_runner_count_done(r, i, state);
    }
    r->view.begun_done = r->view.done;
    return POLAR_OK;
}

static int must_leave(void *r)
{
    return pl_runner_must_leave(r);
}

/* *planned: the store has the plans; it has not where there was no time left for that. */
static polar_status enrol(pl_runner *r, pl_store *s, int *planned)
{
    *planned = 0;
    if (pl_store_torn(s))
        note(r, "the end of the store's log was not whole, after a power cut, a full disk or damage: what it "
                "held is made again");
    PL_TRY(pl_store_set_aside(s)); /* read_states tells of those that are ours */
    pl_store_set_leave(s, must_leave, r);
    polar_status st = POLAR_OK;
    for (int k = 0; k < r->plan_count && st == POLAR_OK; k++) st = put_plan(s, &r->plans[k]);
    if (st == POLAR_E_STATE && pl_runner_must_leave(r)) return POLAR_OK;
    PL_TRY(st);
    *planned = 1;
    PL_TRY(pl_store_sweep(s));
    return read_states(r, s);
}

/* Runs of other shards count as done, and nowhere else. */
static void choose_shard(pl_runner *r)
{
    int64_t number = 0;
    for (int64_t i = 0; i < r->count; i++) {
        if (r->runs[i].first != i) continue;
        int ours = r->o->shards < 2 || number % r->o->shards == r->o->shard;
        number++;
        r->view.total += ours;
        r->slots[i].done = !ours;
    }
}

/* The plans as one. */
static polar_status join_plans(pl_runner *r)
{
    int64_t n = 0;
    for (int k = 0; k < r->plan_count; k++)
        for (int64_t i = 0; i < r->plans[k].count; i++, n++) {
            r->runs[n] = r->plans[k].runs[i];
            r->slots[n].plan = k;
        }
    return pl_plan_find_first(r->runs, r->count, NULL);
}

static polar_status prepare(pl_runner *r, int *planned)
{
    pl_store *s = NULL;
    polar_device *dev = NULL;
    PL_TRY(join_plans(r));
    choose_shard(r);
    for (int d = r->o->beside_count; d >= 0; d--) { /* a wrong name shall leave no store behind */
        PL_TRY(polar_device_open(&dev, device_at(r->o, d)));
        polar_status ordered = d == 0 ? order_by_cost(r, dev) : POLAR_OK;
        polar_device_close(dev);
        PL_TRY(ordered);
    }
    PL_TRY(pl_store_open(&s, r->o->store, PL_STORE_WRITE));
    polar_status st = enrol(r, s, planned);
    pl_store_close(s);
    return st;
}

polar_status pl_runner_run(pl_runner_outcome *out, const pl_runner_plan *plans, int plan_count,
                           const pl_runner_opts *opts)
{
    pl_runner r = {.plans = plans, .plan_count = plan_count, .o = opts, .begun = pl_clock_seconds()};
    *out = (pl_runner_outcome){0};
    for (int k = 0; k < plan_count; k++) r.count += plans[k].count;
    int64_t count = r.count;
    PL_NEED(count > 0, POLAR_E_ARG, "a plan without runs");
    PL_NEED(opts->jobs >= 1 && opts->jobs <= 1024, POLAR_E_ARG, "1 to 1024 jobs, got %d", opts->jobs);
    PL_NEED(!opts->shards || (opts->shard >= 0 && opts->shard < opts->shards), POLAR_E_ARG,
            "shard %lld of %lld: they count from 0", (long long)opts->shard, (long long)opts->shards);
    PL_NEED(!opts->weights || count == 1, POLAR_E_ARG, "weights are kept of one run, not of %lld",
            (long long)count);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&r.taking, NULL);
    pthread_mutex_init(&r.lock, NULL);
    pthread_cond_init(&r.changed, &attr);
    pthread_condattr_destroy(&attr);
    r.runs = pl_calloc((size_t)count, sizeof *r.runs);
    r.slots = pl_calloc((size_t)count, sizeof *r.slots);
    r.job_views = pl_calloc((size_t)jobs_of(opts), sizeof *r.job_views);
    r.view.jobs = r.job_views;
    r.view.job_count = jobs_of(opts);
    polar_status st = r.runs && r.slots && r.job_views
                          ? POLAR_OK
                          : PL_FAIL(POLAR_E_NOMEM, "a plan of %lld runs", (long long)count);
    int planned = 0;
    if (st == POLAR_OK) st = prepare(&r, &planned);
    if (st == POLAR_OK && planned && r.view.done < r.view.total) st = run_jobs(&r);
    *out = (pl_runner_outcome){r.view.total,
                               r.view.done,
                               r.view.diverged,
                               r.done_here,
                               r.view.total - r.view.done,
                               0,
                               0,
                               0,
                               pl_clock_seconds() - r.begun};
    if (st != POLAR_OK && !planned) out->total = out->left = 0; /* it did not come to running */
    out->unplanned = st == POLAR_OK && !planned;
    out->stopped = out->left && stopped(&r);
    out->out_of_time = out->left && !out->stopped && out_of_time(&r);
    pl_free(r.runs);
    pl_free(r.slots);
    pl_free(r.job_views);
    pl_free(r.order);
    pthread_cond_destroy(&r.changed);
    pthread_mutex_destroy(&r.lock);
    pthread_mutex_destroy(&r.taking);
    return st;
}
