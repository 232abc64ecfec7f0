/* graph.c -- capture once, replay after. A dry run first tells how much scratch the capture will want. */
#include "base/alloc.h"
#include "device/backend.h"

struct pl_graph {
    pl_device *dev;
    uint64_t serial; /* of the queue it was captured on */
    void *captured;  /* the backend's; NULL before the first run and where graphs are plain calls */
};

polar_status pl_graph_create(pl_graph **out, pl_device *dev)
{
    pl_graph *g = pl_calloc(1, sizeof *g);
    *out = NULL;
    PL_NEED(g, POLAR_E_NOMEM, "a graph");
    g->dev = dev;
    pl_device_hold(dev);
    *out = g;
    return POLAR_OK;
}

static void drop(pl_graph *g)
{
    if (g->captured) g->dev->backend->graph_free(g->dev, g->captured);
    g->captured = NULL;
}

void pl_graph_destroy(pl_graph *g)
{
    if (!g) return;
    drop(g);
    pl_device_release(g->dev);
    pl_free(g);
}

static polar_status capture(pl_graph *g, pl_queue *q, pl_graph_fn fn, void *arg)
{
    polar_cost cost;
    PL_TRY(polar_queue_dry_begin(q));
    fn(q, arg);
    PL_TRY(polar_queue_dry_end(q, &cost));
    PL_TRY(polar_queue_reserve(q, cost.scratch_bytes));
    PL_TRY(q->dev->backend->graph_begin(q));
    q->capturing = 1;
    fn(q, arg);
    q->capturing = 0;
    polar_status st = q->dev->backend->graph_end(q, &g->captured);
    if (q->error != POLAR_OK) {
        drop(g);
        return polar_queue_sync(q);
    }
    return st;
}

polar_status pl_graph_run(pl_graph *g, pl_queue *q, pl_graph_fn fn, void *arg)
{
    PL_NEED(g->dev == q->dev, POLAR_E_ARG, "a graph of device '%s' on a queue of '%s'", g->dev->name,
            q->dev->name);
    /* a graph inside a graph, ours or the caller's, is part of it */
    if (!q->dev->backend->graph_begin || q->dry || pl_queue_in_capture(q)) {
        fn(q, arg);
        return POLAR_OK;
    }
    if (g->serial != q->serial) drop(g); /* another queue has other scratch */
    g->serial = q->serial;
    if (!g->captured) PL_TRY(capture(g, q, fn, arg));
    return q->dev->backend->graph_launch(q, g->captured, fn, arg);
}

int pl_graph_can_move(const pl_device *dev)
{
    return dev->backend->graph_move != NULL;
}

int pl_graph_move(pl_graph *g, pl_queue *q, const pl_moved *grad, int64_t n)
{
    if (!g->captured || g->serial != q->serial) return 1; /* it will be captured with what is there then */
    return g->dev->backend->graph_move && g->dev->backend->graph_move(q, g->captured, grad, n);
}
