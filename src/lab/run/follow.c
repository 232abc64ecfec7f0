/* follow.c -- the calls of a testbed on rank 0, told to the others; and the others' loop. */
#include "lab/run/follow.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "device/backend.h"

typedef enum order { ORDER_BEGIN, ORDER_LOAD, ORDER_EPOCH, ORDER_SAVE, ORDER_END, ORDER_QUIT } order;

typedef struct message {
    int64_t what;
    char path[4088];
} message;

static polar_status tell(polar_comm *comm, order what, const char *path)
{
    message m = {.what = what};
    PL_NEED(strlen(path) < sizeof m.path, POLAR_E_ARG, "the path '%.80s...' is too long", path);
    snprintf(m.path, sizeof m.path, "%s", path);
    return polar_comm_broadcast(comm, NULL, &m, sizeof m, 0);
}

/* ---- rank 0 ------------------------------------------------------------------------------------- */

struct pl_train { /* the leader's: what the runner holds in place of the testbed's own */
    const pl_testbed *tb;
    pl_train *train; /* the testbed's own */
    polar_comm *comm;
    pl_step_watch watch;
};

/* Ranks begin together: what rank 0 is told is shown, and it leaves when all have begun. */
static int show_step(void *w, const pl_step_view *v)
{
    const pl_step_watch *own = w;
    (void)own->step(own->arg, v);
    return 0;
}

static polar_status lead_begin(pl_train **out, polar_device *dev, const pl_config *const *configs,
                               const uint64_t *seeds, int64_t members, const pl_step_watch *w)
{
    const pl_step_watch shown = {show_step, (void *)w};
    *out = NULL;
    pl_train *t = pl_calloc(1, sizeof *t);
    PL_NEED(t, POLAR_E_NOMEM, "a run");
    t->comm = dev->comm;
    polar_status st = pl_testbed_find(&t->tb, pl_config_schema(configs[0])->name);
    if (st == POLAR_OK) st = tell(t->comm, ORDER_BEGIN, "");
    if (st == POLAR_OK)
        st = pl_comm_agree(t->comm, t->tb->begin(&t->train, dev, configs, seeds, members, w ? &shown : NULL),
                           "beginning a run");
    if (st == POLAR_OK) *out = t;
    else pl_free(t);
    return st;
}

static const char *lead_data(const pl_train *t, int64_t member)
{
    return t->tb->data ? t->tb->data(t->train, member) : NULL;
}

static void lead_where(const pl_train *t, int64_t *epochs, int *active)
{
    t->tb->where(t->train, epochs, active);
}

static polar_status lead_epoch(pl_train *t, pl_epoch_row *rows, int *active)
{
    PL_TRY(tell(t->comm, ORDER_EPOCH, ""));
    return t->tb->epoch(t->train, rows, active);
}

static int lead_step(void *arg, const pl_step_view *v)
{
    pl_train *t = arg;
    int pause = t->watch.step ? t->watch.step(t->watch.arg, v) : 0;
    return polar_comm_broadcast(t->comm, NULL, &pause, sizeof pause, 0) != POLAR_OK || pause;
}

static void lead_watch(pl_train *t, const pl_step_watch *w)
{
    t->watch = *w;
    if (t->tb->watch) t->tb->watch(t->train, &(pl_step_watch){lead_step, t});
}

static polar_status lead_save(pl_train *t, const char *path)
{
    PL_TRY(tell(t->comm, ORDER_SAVE, path));
    return t->tb->save(t->train, path);
}

static polar_status lead_load(pl_train *t, const char *path)
{
    PL_TRY(tell(t->comm, ORDER_LOAD, path));
    return pl_comm_agree(t->comm, t->tb->load(t->train, path), "loading a checkpoint");
}

static polar_status lead_results(pl_train *t, int64_t member, pl_result *out, int max, int *count)
{
    return t->tb->results(t->train, member, out, max, count);
}

static polar_status lead_gauge(pl_train *t, int64_t member, pl_gauge_row *out, int max, int *count)
{
    *count = 0;
    return t->tb->gauge ? t->tb->gauge(t->train, member, out, max, count) : POLAR_OK;
}

static polar_status lead_weights(pl_train *t, int64_t member, const char *path)
{
    return t->tb->weights(t->train, member, path);
}

static void lead_done(pl_train *t)
{
    if (!t) return;
    (void)tell(t->comm, ORDER_END, "");
    t->tb->end(t->train);
    pl_free(t);
}

void pl_lead(pl_testbed *out, const pl_testbed *tb)
{
    *out = *tb;
    out->begin = lead_begin;
    out->data = lead_data;
    out->where = lead_where;
    out->epoch = lead_epoch;
    out->watch = lead_watch;
    out->save = lead_save;
    out->load = lead_load;
    out->results = lead_results;
    out->gauge = lead_gauge;
    out->weights = lead_weights;
    out->end = lead_done;
}

polar_status pl_lead_end(polar_comm *comm)
{
    return tell(comm, ORDER_QUIT, "");
}

/* ---- the others --------------------------------------------------------------------------------- */

static int follow_step(void *arg, const pl_step_view *v)
{
    int pause = 0;
    (void)v;
    return polar_comm_broadcast(arg, NULL, &pause, sizeof pause, 0) != POLAR_OK || pause;
}

/* One order; *t is the run under way. A checkpoint that rank 0 refuses too is no failure. */
static polar_status obey(pl_train **t, const message *m, polar_comm *comm, const pl_testbed *tb,
                         polar_device *dev, const pl_config *config, uint64_t seed)
{
    pl_epoch_row row;
    int active;
    switch ((order)m->what) {
    case ORDER_BEGIN:
        PL_TRY(pl_comm_agree(comm, tb->begin(t, dev, &config, &seed, 1, NULL), "beginning a run"));
        if (tb->watch) tb->watch(*t, &(pl_step_watch){follow_step, comm});
        return POLAR_OK;
    case ORDER_LOAD:
        (void)pl_comm_agree(comm, tb->load(*t, m->path), "loading a checkpoint");
        return POLAR_OK;
    case ORDER_EPOCH: return tb->epoch(*t, &row, &active);
    case ORDER_SAVE: return tb->save(*t, m->path);
    case ORDER_END:
        tb->end(*t);
        *t = NULL;
        return POLAR_OK;
    default: return POLAR_OK;
    }
}

polar_status pl_follow(polar_comm *comm, const pl_testbed *tb, polar_device *dev, const pl_config *config,
                       uint64_t seed)
{
    pl_train *t = NULL;
    message m = {.what = ORDER_BEGIN};
    polar_status st = POLAR_OK;
    while (st == POLAR_OK && m.what != ORDER_QUIT) {
        st = polar_comm_broadcast(comm, NULL, &m, sizeof m, 0);
        if (st == POLAR_OK) st = obey(&t, &m, comm, tb, dev, config, seed);
    }
    if (t) tb->end(t);
    return st;
}
