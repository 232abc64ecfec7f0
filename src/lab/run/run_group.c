/* run_group.c -- one ensemble of claimed runs: begin or resume, epochs, checkpoints, results.
 *
 * Invariants (they make kill -9 harmless at any moment):
 *  1. Epochs are in the store before the checkpoint that contains them: a resumed run lacks none, and puts
 * some again with the same numbers.
 *  2. A checkpoint takes its name in one rename; the one before it is whole until then.
 *  3. Results and state of a run are one transaction; its checkpoint goes only afterwards. Of an ensemble the
 * first run, whose name the checkpoint bears, finishes last.
 *  4. The seconds of a run are those of its epochs, an ensemble's shared among its active members, summed
 * over all sittings; they are in no result.
 *  5. An epoch may be made in parts (testbed.h, 6). What the store knows of seconds beyond its epochs' is the
 * part of the next one that a checkpoint holds.
 *  6. At every moment each run is finished or in a whole file, also while members leave (run_leave.c).
 */
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/safetensors.h"
#include "lab/run/run_group.h"

#define GAUGE_ROWS 256 /* fetched at a time */
#define SAVE_SHARE 20  /* times as long as a checkpoint took, nothing is saved */

/* ---- memory ------------------------------------------------------------------------------------- */

/* Room for one more item at *data; *data and *room grow. */
static polar_status grow(void **data, int64_t count, int64_t *room, size_t item)
{
    if (count < *room) return POLAR_OK;
    int64_t more = *room ? 2 * *room : 128;
    void *bigger = pl_realloc(*data, (size_t)*room * item, (size_t)more * item);
    PL_NEED(bigger, POLAR_E_NOMEM, "rows of a run");
    *data = bigger;
    *room = more;
    return POLAR_OK;
}

/* The run's own name, or for an ensemble one that tells its members: another set of runs has another
 * checkpoint. */
static void checkpoint_name(char out[96], const pl_group *g)
{
    uint64_t h = UINT64_C(14695981039346656037); /* FNV-1a over the ids */
    for (int64_t i = 0; i < g->n; i++)
        for (const char *c = g->m[i].run->id; *c; c++) h = (h ^ (unsigned char)*c) * UINT64_C(1099511628211);
    if (g->n == 1) snprintf(out, 96, "%s", g->m[0].run->id);
    else snprintf(out, 96, "%s-%lld-%016llx", g->m[0].run->id, (long long)g->n, (unsigned long long)h);
}

polar_status pl_group_name(pl_group *g)
{
    char name[96];
    checkpoint_name(name, g);
    return pl_store_checkpoint_path(&g->path, g->job->store, name);
}

static polar_status group_create(pl_group *g, pl_job *job)
{
    *g = (pl_group){.job = job, .tb = pl_runner_plan_of(job->r, job->group[0])->tb, .n = job->members};
    size_t n = (size_t)g->n;
    g->m = pl_calloc(n, sizeof *g->m);
    g->configs = pl_calloc(n, sizeof *g->configs);
    g->seeds = pl_calloc(n, sizeof *g->seeds);
    g->rows = pl_calloc(n, sizeof *g->rows);
    g->made = pl_calloc(n, sizeof *g->made);
    g->active = pl_calloc(n, sizeof *g->active);
    g->was_active = pl_calloc(n, sizeof *g->was_active);
    PL_NEED(g->m && g->configs && g->seeds && g->rows && g->made && g->active && g->was_active, POLAR_E_NOMEM,
            "an ensemble of %lld runs", (long long)g->n);
    for (int64_t i = 0; i < g->n; i++) {
        const pl_plan_run *run = &job->r->runs[job->group[i]];
        g->m[i].run = run;
        g->configs[i] = run->config;
        g->seeds[i] = (uint64_t)run->seed;
    }
    return pl_group_name(g);
}

static void group_destroy(pl_group *g)
{
    if (g->t) g->tb->end(g->t);
    for (int64_t i = 0; g->m && i < g->n; i++) {
        pl_free(g->m[i].epochs);
        pl_free(g->m[i].gauges);
    }
    pl_free(g->m);
    pl_free((void *)g->configs);
    pl_free(g->seeds);
    pl_free(g->rows);
    pl_free(g->made);
    pl_free(g->active);
    pl_free(g->was_active);
    pl_free(g->path);
}

/* ---- within epochs ------------------------------------------------------------------------------- */

/* Whether a checkpoint is due, after an epoch or within one. Saving shall not take more than a small part of
 * the time. */
static int save_due(const pl_group *g, int within)
{
    double gone = pl_clock_seconds() - g->saved_at, every = g->job->r->o->save_every;
    return every > 0 ? gone >= every && gone >= SAVE_SHARE * g->save_took : !within;
}

/* pl_step_watch: within an epoch, to leave or to save. */
static int watch_step(void *arg, const pl_step_view *v)
{
    pl_group *g = arg;
    double now = pl_clock_seconds();
    if (g->counted_from < 0) g->counted_from = v->done, g->counted_since = now;
    double seconds = now - g->counted_since, here = (double)(v->done - g->counted_from);
    pl_runner_step(g->job, v, v->total ? here / (double)v->total : 0, seconds > 0 ? here / seconds : 0);
    return pl_runner_must_leave(g->job->r) || save_due(g, 1);
}

/* ---- begin or resume ---------------------------------------------------------------------------- */

/* Whether the store has every epoch that the checkpoint has made (invariant 1); not so where a store was
 * deleted and its folder stayed. */
static polar_status store_is_complete(const pl_group *g, int *complete)
{
    *complete = 1;
    for (int64_t i = 0; i < g->n && *complete; i++) {
        pl_store_epochs e;
        PL_TRY(pl_store_select_epochs(&e, g->job->store, g->m[i].run->id));
        *complete = e.count >= g->made[i];
        pl_store_epochs_free(&e);
    }
    return POLAR_OK;
}

/* Seconds of a resumed run that belong to no epoch of the store. */
static polar_status read_part(pl_member *m, pl_store *store)
{
    pl_store_epochs e;
    double known = 0;
    PL_TRY(pl_store_select_epochs(&e, store, m->run->id));
    for (int64_t i = 0; i < e.count; i++) known += e.rows[i].seconds;
    pl_store_epochs_free(&e);
    m->part = m->wall > known ? m->wall - known : 0; /* 0 also where epochs have no seconds */
    return POLAR_OK;
}

/* pl_step_watch: of what comes before the first epoch. */
static int watch_begin(void *arg, const pl_step_view *v)
{
    pl_group *g = arg;
    double now = pl_clock_seconds();
    if (v->what != g->begins) g->begins = v->what, g->counted_since = now, g->counted_from = v->done;
    double seconds = now - g->counted_since;
    pl_runner_beginning(g->job, v, seconds > 0 ? (double)(v->done - g->counted_from) / seconds : 0);
    g->left = pl_runner_must_leave(g->job->r);
    return g->left;
}

polar_status pl_group_begin(pl_group *g)
{
    double begun = pl_clock_seconds();
    g->begins = NULL;
    polar_status st =
        g->tb->begin(&g->t, g->job->dev, g->configs, g->seeds, g->n, &(pl_step_watch){watch_begin, g});
    pl_runner_beginning(g->job, NULL, 0);
    PL_TRY(st);
    if (g->tb->watch) g->tb->watch(g->t, &(pl_step_watch){watch_step, g});
    g->begin_took = pl_clock_seconds() - begun;
    g->idle = 0;
    return POLAR_OK;
}

/* The checkpoint that holds all of the group, of several the latest; *path NULL: there is none. *own: it is
 * named after one of them, so that it is ours to remove. */
static polar_status find_checkpoint(char **path, int *own, const pl_group *g)
{
    pl_store_checkpoints list;
    *path = NULL;
    *own = 0;
    PL_TRY(pl_store_list_checkpoints(&list, g->job->store));
    const pl_store_checkpoint *c = pl_store_checkpoint_of(&list, g->m[0].run->id);
    for (int64_t i = 0; c && i < g->n; i++) {
        *own |= !strcmp(c->bearer, g->m[i].run->id);
        if (pl_store_checkpoint_of(&list, g->m[i].run->id) != c) c = NULL;
    }
    polar_status st = POLAR_OK;
    if (c) {
        *path = pl_strdup(c->path);
        if (!*path) st = PL_FAIL(POLAR_E_NOMEM, "a path");
    }
    pl_store_checkpoints_free(&list);
    return st;
}

/* *resumed: the checkpoint at path is good. A bad one is noted and, if it is ours, removed, and g->t is as
 * after begin. */
static polar_status resume_from(pl_group *g, const char *path, int own, int *resumed)
{
    int complete = 0;
    polar_status st = g->tb->load(g->t, path);
    if (st == POLAR_OK) {
        g->tb->where(g->t, g->made, g->active);
        PL_TRY(store_is_complete(g, &complete));
        *resumed = complete;
        if (!complete) (void)PL_FAIL(POLAR_E_FORMAT, "it is of another store");
        else if (!pl_safetensors_has_checksum(path))
            pl_runner_note(
                g->job, g->m[0].run,
                "its checkpoint is of an older polar and has no checksum: it goes on from there unchecked");
    } else if (st != POLAR_E_FORMAT && st != POLAR_E_SHAPE && st != POLAR_E_DTYPE) return st;
    if (*resumed) return POLAR_OK;
    pl_runner_note(g->job, g->m[0].run, "its checkpoint cannot be used, so it starts anew (%s)",
                   polar_error_message());
    g->tb->end(g->t);
    g->t = NULL;
    PL_NEED(!own || unlink(path) == 0 || errno == ENOENT, POLAR_E_IO, "remove the checkpoint '%s': %s", path,
            strerror(errno));
    return pl_group_begin(g);
}

static polar_status resume(pl_group *g, int *resumed)
{
    char *path;
    int own;
    *resumed = 0;
    PL_TRY(find_checkpoint(&path, &own, g));
    polar_status st = path ? resume_from(g, path, own, resumed) : POLAR_OK;
    pl_free(path);
    return st;
}

/* Runs that are compared shall have been trained on the same data, not only on data of one name. */
static polar_status check_data(const pl_group *g, const char *data)
{
    char other[PL_RUN_ID_CHARS] = "";
    if (data) PL_TRY(pl_store_other_data(other, g->job->store, data));
    PL_NEED(!*other, POLAR_E_ARG,
            "run %.12s of the store was trained on other data of the same name (now: %s; other classes, "
            "names or number of pictures, or a pack): give the same, or call these by "
            "another name (--set data.set=NAME)",
            other, data);
    return POLAR_OK;
}

static polar_status begin(pl_group *g)
{
    int resumed = 0;
    pl_provenance from = g->job->provenance;
    PL_TRY(pl_group_begin(g));
    for (int64_t i = 0; i < g->n && g->tb->data; i++) PL_TRY(check_data(g, g->tb->data(g->t, i)));
    PL_TRY(resume(g, &resumed));
    g->tb->where(g->t, g->made, g->active);
    for (int64_t i = 0; i < g->n; i++) {
        pl_run_state state = PL_RUN_PLANNED;
        PL_TRY(pl_store_run_state(g->job->store, g->m[i].run->id, &state, &g->m[i].wall));
        if (resumed) PL_TRY(read_part(&g->m[i], g->job->store));
        else g->m[i].wall = 0;
        g->within |= g->m[i].part > 0;
        from.data = g->tb->data ? g->tb->data(g->t, i) : NULL;
        /* else: only its weights are wanted */
        if (state == PL_RUN_PLANNED)
            PL_TRY(pl_store_begin_run(g->job->store, g->m[i].run->id, &from, !resumed));
        g->m[i].made = g->made[i];
        pl_runner_event e = {PL_RUNNER_RESUMED, .run = g->m[i].run, .epochs = g->made[i], .state = state};
        pl_runner_tell(g->job, &e);
    }
    g->saved_at = pl_clock_seconds();
    g->counted_from = -1;
    return POLAR_OK;
}

/* ---- epochs ------------------------------------------------------------------------------------- */

static polar_status fetch_gauge(pl_group *g, int64_t i)
{
    pl_member *m = &g->m[i];
    for (int count = GAUGE_ROWS; g->tb->gauge && count == GAUGE_ROWS;) {
        void *data = m->gauges;
        int64_t need = m->gauge_count + GAUGE_ROWS - 1;
        while (need >= m->gauge_room) {
            PL_TRY(grow(&data, m->gauge_room, &m->gauge_room, sizeof *m->gauges));
            m->gauges = data;
        }
        PL_TRY(g->tb->gauge(g->t, i, m->gauges + m->gauge_count, GAUGE_ROWS, &count));
        m->gauge_count += count;
    }
    return POLAR_OK;
}

static polar_status keep_row(pl_group *g, int64_t i)
{
    pl_member *m = &g->m[i];
    void *data = m->epochs;
    PL_TRY(grow(&data, m->epoch_count, &m->epoch_room, sizeof *m->epochs));
    m->epochs = data;
    g->rows[i].seconds = m->part;
    m->epochs[m->epoch_count++] = g->rows[i];
    m->made++;
    m->part = 0;
    PL_TRY(fetch_gauge(g, i));
    pl_runner_event e = {PL_RUNNER_EPOCH, .run = m->run, .epoch = &g->rows[i], .epochs = m->made};
    pl_runner_tell(g->job, &e);
    return POLAR_OK;
}

int64_t pl_group_active(const pl_group *g)
{
    int64_t n = 0;
    for (int64_t i = 0; i < g->n; i++) n += g->active[i] != 0;
    return n;
}

/* An epoch of every active member, or a part of it. Rows that are not whole keep the epoch 0. */
static polar_status one_epoch(pl_group *g)
{
    int64_t active = pl_group_active(g);
    double begun = pl_clock_seconds();
    for (int64_t i = 0; i < g->n; i++) {
        g->rows[i] = (pl_epoch_row){0};
        g->was_active[i] = g->active[i];
    }
    if (!g->within) g->counted_from = 0, g->counted_since = begun;
    PL_TRY(g->tb->epoch(g->t, g->rows, g->active));
    double took = pl_clock_seconds() - begun, each = took / (double)active;
    g->idle += took * (double)(g->n - active) / (double)g->n;
    g->within = 0;
    for (int64_t i = 0; i < g->n; i++) {
        if (!g->was_active[i]) continue;
        g->m[i].wall += each;
        g->m[i].part += each;
        if (g->rows[i].epoch > 0) PL_TRY(keep_row(g, i));
        else g->within = 1;
    }
    return POLAR_OK;
}

/* ---- checkpoints and the end -------------------------------------------------------------------- */

static pl_run_progress progress_of(const pl_member *m)
{
    return (pl_run_progress){m->epochs, m->epoch_count, m->gauges, m->gauge_count, m->wall};
}

polar_status pl_group_save(pl_group *g)
{
    double begun = pl_clock_seconds();
    for (int64_t i = 0; i < g->n; i++) {
        pl_member *m = &g->m[i];
        pl_run_progress p = progress_of(m);
        if (!m->epoch_count && !m->gauge_count && !m->part) continue;
        PL_TRY(pl_store_put_progress(g->job->store, m->run->id, &p));
        m->epoch_count = m->gauge_count = 0;
    }
    PL_TRY(g->tb->save(g->t, g->path));
    g->saved_at = pl_clock_seconds();
    g->save_took = g->saved_at - begun;
    return POLAR_OK;
}

polar_status pl_group_take_outcome(pl_outcome *o, pl_group *g, int64_t i)
{
    o->state = PL_RUN_DONE;
    PL_TRY(g->tb->results(g->t, i, o->results, PL_MAX_RESULTS, &o->count));
    for (int k = 0; k < o->count; k++) {
        assert(pl_schema_has_result(g->tb->schema, o->results[k].name));
        if (!strcmp(o->results[k].name, "diverged") && o->results[k].value != 0) o->state = PL_RUN_DIVERGED;
    }
    return POLAR_OK;
}

polar_status pl_group_put_outcome(pl_group *g, const pl_member *m, const pl_outcome *o)
{
    pl_run_progress p = progress_of(m);
    PL_TRY(pl_store_finish(g->job->store, m->run->id, o->state, o->results, o->count, &p));
    PL_TRY(pl_store_remove_checkpoints(g->job->store, m->run->id));
    pl_runner_event e = {PL_RUNNER_FINISHED,       .run = m->run,   .state = o->state, .results = o->results,
                         .result_count = o->count, .wall = m->wall, .epochs = m->made};
    pl_runner_tell(g->job, &e);
    return POLAR_OK;
}

static polar_status finish_member(pl_group *g, int64_t i)
{
    pl_outcome o;
    PL_TRY(pl_group_take_outcome(&o, g, i));
    if (g->job->r->o->weights) PL_TRY(g->tb->weights(g->t, i, g->job->r->o->weights));
    return pl_group_put_outcome(g, &g->m[i], &o);
}

static polar_status train(pl_group *g)
{
    while (pl_group_active(g)) {
        PL_TRY(one_epoch(g));
        int go = pl_runner_must_leave(g->job->r);
        if (!go && pl_group_leaving_pays(g)) PL_TRY(pl_group_leave(g));
        else if (pl_group_active(g) && (go || save_due(g, g->within))) PL_TRY(pl_group_save(g));
        if (go && pl_group_active(g)) return POLAR_OK;
    }
    for (int64_t i = g->n; i-- > 0;) PL_TRY(finish_member(g, i));
    return POLAR_OK;
}

polar_status pl_group_run(pl_job *job)
{
    pl_group g;
    polar_status st = group_create(&g, job);
    if (st == POLAR_OK) st = begin(&g);
    if (st == POLAR_OK) st = train(&g);
    group_destroy(&g);
    return st == POLAR_E_STATE && g.left ? POLAR_OK : st; /* what is saved is as it was */
}
