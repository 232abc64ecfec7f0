/* guard_backend.c -- `guard`: records ops and runs them at synchronisation on `ref`, or by "guard:on=cpu" on
 * `cpu`. See guard_impl.h.
 *
 *     guard                          on ref
 *     guard:on=cpu,isa=avx2          on cpu; every option but `on` goes to it
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "guard_impl.h"

typedef struct {
    char on[8];
    char rest[96]; /* "isa=avx2,threads=2" */
} guard_options;

static polar_status set_option(void *ctx, const char *key, const char *value)
{
    guard_options *o = ctx;
    if (!strcmp(key, "on")) {
        PL_NEED(!strcmp(value, "ref") || !strcmp(value, "cpu"), POLAR_E_ARG,
                "device 'guard' runs on ref or on cpu, not on '%s'", value);
        snprintf(o->on, sizeof o->on, "%s", value);
        return POLAR_OK;
    }
    size_t used = strlen(o->rest);
    int n = snprintf(o->rest + used, sizeof o->rest - used, "%s%s=%s", used ? "," : "", key, value);
    PL_NEED(n > 0 && (size_t)n < sizeof o->rest - used, POLAR_E_ARG,
            "device 'guard': options of more than %zu characters", sizeof o->rest - 1);
    return POLAR_OK;
}

static void guard_close(pl_device *dev)
{
    pl_guard_device *d = dev->impl;
    pl_guard_watch_end(d);
    pl_guard_release(d);
    polar_device_close(d->inner);
    pthread_mutex_destroy(&d->lock);
    pl_free(d);
}

/* Those of the inner device, and the name that goes with them. */
static void take_threads(pl_device *dev)
{
    const pl_device *inner = ((pl_guard_device *)dev->impl)->inner;
    dev->threads = inner->threads;
    dev->pool = inner->pool;
    if (!strcmp(inner->backend->name, "ref")) return;
    snprintf(dev->name, sizeof dev->name, "guard:on=%.80s", inner->name);
    char *second = strchr(dev->name + sizeof "guard:on=" - 1, ':');
    /* guard:on=cpu,isa=avx2,threads=2: a name that opens the same device again */
    if (second) *second = ',';
}

static polar_status open_inner(pl_device *dev, const guard_options *o)
{
    pl_guard_device *d = dev->impl;
    char name[120];
    int plain = !strcmp(o->on, "ref");
    PL_NEED(!plain || !o->rest[0], POLAR_E_ARG,
            "device 'guard' has no option '%s' (there is on=ref|cpu; the cpu's own go with on=cpu)", o->rest);
    snprintf(name, sizeof name, "%s%s%s", o->on, o->rest[0] ? ":" : "", o->rest);
    PL_TRY(polar_device_open(&d->inner, name));
    dev->flushes = d->inner->flushes;
    pl_guard_fused_ops(&dev->ops, &d->inner->ops);
    take_threads(dev);
    return POLAR_OK;
}

static polar_status guard_set_threads(pl_device *dev, int threads, int spin)
{
    pl_guard_device *d = dev->impl;
    PL_TRY(polar_device_set_threads(d->inner, threads, spin));
    take_threads(dev);
    return POLAR_OK;
}

static polar_status guard_open(pl_device *dev, const char *options)
{
    guard_options o = {.on = "ref"};
    PL_TRY(pl_device_options("guard", options, set_option, &o));
    pl_guard_device *d = pl_calloc(1, sizeof *d);
    PL_NEED(d, POLAR_E_NOMEM, "a guard device");
    pthread_mutex_init(&d->lock, NULL);
    dev->impl = d;
    polar_status st = open_inner(dev, &o);
    if (st == POLAR_OK) st = pl_guard_reserve(d);
    if (st == POLAR_OK) pl_guard_watch_begin(d);
    else guard_close(dev);
    return st;
}

static polar_status guard_queue_open(pl_queue *q, void *stream)
{
    pl_guard_device *d = q->dev->impl;
    PL_NEED(!stream, POLAR_E_ARG, "device 'guard' has no streams");
    pl_guard_queue *g = pl_calloc(1, sizeof *g);
    PL_NEED(g, POLAR_E_NOMEM, "a guard queue");
    polar_status st = polar_queue_create(&g->inner, d->inner, NULL);
    if (st == POLAR_OK) q->impl = g;
    else pl_free(g);
    return st;
}

static void guard_queue_close(pl_queue *q)
{
    pl_guard_queue *g = q->impl;
    pl_guard_tape_clear(&g->tape);
    polar_queue_destroy(g->inner);
    pl_free(g);
}

const pl_backend pl_backend_guard = {
    .name = "guard",
    .summary = "a CPU with a GPU's manners, for tests: memory the host cannot read, work that waits for "
               "synchronisation",
    .ops = &pl_guard_ops,
    .device_open = guard_open,
    .device_close = guard_close,
    .set_threads = guard_set_threads,
    .mem_alloc = pl_guard_mem_alloc,
    .mem_free = pl_guard_mem_free,
    .queue_open = guard_queue_open,
    .queue_close = guard_queue_close,
    .queue_sync = pl_guard_sync,
    .copy = pl_guard_copy,
    .graph_begin = pl_guard_graph_begin,
    .graph_end = pl_guard_graph_end,
    .graph_launch = pl_guard_graph_launch,
    .graph_move = pl_guard_graph_move,
    .graph_free = pl_guard_graph_free,
};
