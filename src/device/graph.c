/* graph.c -- capture once, replay after. A dry run first tells how much scratch the capture will want. */
#include "base/alloc.h"
#include "device/backend.h"

struct pl_graph {
    pl_queue *q;
    void     *captured;    /* the backend's; NULL before the first run and where graphs are plain calls */
};

polar_status pl_graph_create(pl_graph **out, pl_queue *q)
{
    pl_graph *g = pl_calloc(1, sizeof *g);
    *out = NULL;
    PL_NEED(g, POLAR_E_NOMEM, "a graph");
    g->q = q;
    *out = g;
    return POLAR_OK;
}

void pl_graph_destroy(pl_graph *g)
{
    if (!g) return;
    if (g->captured) g->q->dev->backend->graph_free(g->q, g->captured);
    pl_free(g);
}

static polar_status capture(pl_graph *g, pl_graph_fn fn, void *arg)
{
    pl_queue *q = g->q;
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
        if (g->captured) q->dev->backend->graph_free(q, g->captured);
        g->captured = NULL;
        return polar_queue_sync(q);
    }
    return st;
}

polar_status pl_graph_run(pl_graph *g, pl_graph_fn fn, void *arg)
{
    pl_queue *q = g->q;
    if (!q->dev->backend->graph_begin || q->dry || q->capturing) {    /* a graph inside a graph is part of it */
        fn(q, arg);
        return POLAR_OK;
    }
    if (!g->captured) PL_TRY(capture(g, fn, arg));
    return q->dev->backend->graph_launch(q, g->captured, fn, arg);
}
