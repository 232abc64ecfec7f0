/* cuda_graph.c -- captured graphs of the cuda backend, whose gradients may lie elsewhere at every launch.
 *
 * A gradient's address stands in the tables that the optimiser's kernels take as their parameter
 * (cuda_multi.h, cuda_ns.h). A graph keeps a copy of each such table; a move writes the new addresses into
 * the copies and hands these to the executable graph, which keeps everything else.
 *
 * Invariants
 *  1. `place[k].where` points into a table's copy, at the address of the gradient with number
 * `place[k].grad`; places are found at the first move, by the addresses at the capture, and stay.
 *  2. A graph is movable where every gradient has a place and no two have the same address, and where no op
 *     of the capture took a gradient outside of the tables (`fixed`). Any other is dropped by its owner.
 *  3. The captured graph lives as long as the executable one: its nodes name what is changed.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cuda_multi.h"
#include "cuda_ns.h"
#include "cuda_state.h"

typedef struct table {
    cudaGraphNode_t node;
    struct cudaKernelNodeParams params;
    void *copy; /* of the kernel's one parameter */
    void *args[1];
    int changed;
} table;

typedef struct place {
    const void **where;
    int64_t grad;
    int table;
} place;

typedef struct graph {
    cudaGraph_t captured;
    cudaGraphExec_t exec;
    int fixed; /* no gradient can move */
    int tables, places;
    table *table;
    place *place;
} graph;

/* ---- capture, launch, end ----------------------------------------------------------------------- */

static void back_outside(pl_cuda_queue *c)
{
    if (c->outside) c->stream = c->outside;
    c->outside = NULL;
}

polar_status pl_cuda_graph_begin(pl_queue *q)
{
    pl_cuda_queue *c = pl_cuda_q(q);
    if (c->stream == cudaStreamLegacy) {
        if (!c->side)
            PL_TRY(pl_cuda_fail(cudaStreamCreateWithFlags(&c->side, cudaStreamNonBlocking), "making a stream",
                                q->dev));
        c->outside = c->stream;
        c->stream = c->side;
    }
    c->fixed_grads = 0;
    polar_status st = pl_cuda_fail(cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal),
                                   "beginning a capture", q->dev);
    if (st != POLAR_OK) back_outside(c);
    return st;
}

void pl_cuda_graph_free(pl_device *dev, void *opaque)
{
    graph *g = opaque;
    cudaSetDevice(pl_cuda_dev(dev)->ordinal);
    if (g->exec) cudaGraphExecDestroy(g->exec);
    if (g->captured) cudaGraphDestroy(g->captured);
    for (int i = 0; i < g->tables; i++) pl_free(g->table[i].copy);
    pl_free(g->table);
    pl_free(g->place);
    pl_free(g);
}

polar_status pl_cuda_graph_end(pl_queue *q, void **out)
{
    pl_cuda_queue *c = pl_cuda_q(q);
    graph *g = pl_calloc(1, sizeof *g);
    cudaGraph_t captured = NULL;
    *out = NULL;
    cudaError_t e = cudaStreamEndCapture(c->stream, &captured);
    back_outside(c);
    if (!g) {
        if (captured) cudaGraphDestroy(captured);
        return PL_FAIL(POLAR_E_NOMEM, "a captured graph");
    }
    g->captured = captured;
    g->fixed = c->fixed_grads;
    polar_status st = pl_cuda_fail(e, "ending a capture", q->dev);
    if (st == POLAR_OK)
        st = pl_cuda_fail(cudaGraphInstantiate(&g->exec, captured, 0), "making a graph of a capture", q->dev);
    if (st == POLAR_OK) *out = g;
    else pl_cuda_graph_free(q->dev, g);
    return st;
}

polar_status pl_cuda_graph_launch(pl_queue *q, void *opaque, pl_graph_fn fn, void *arg)
{
    graph *g = opaque;
    (void)fn;
    (void)arg;
    return pl_cuda_fail(cudaGraphLaunch(g->exec, pl_cuda_q(q)->stream), "launching a graph", q->dev);
}

/* ---- places of gradients ------------------------------------------------------------------------ */

/* An address and the number of its gradient, for looking up. */
typedef struct named {
    const void *at;
    int64_t grad;
} named;

static int by_address(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t)((const named *)a)->at, y = (uintptr_t)((const named *)b)->at;
    return (x > y) - (x < y);
}

/* A copy of a node's table, if its kernel has one. 0: out of memory. */
static int copy_table(graph *g, cudaGraphNode_t node)
{
    enum cudaGraphNodeType type;
    table *t = &g->table[g->tables];
    if (cudaGraphNodeGetType(node, &type) != cudaSuccess || type != cudaGraphNodeTypeKernel) return 1;
    if (cudaGraphKernelNodeGetParams(node, &t->params) != cudaSuccess) {
        cudaGetLastError(); /* a library's kernel */
        return 1;
    }
    size_t bytes = pl_cuda_multi_bytes(t->params.func) + pl_cuda_ns_bytes(t->params.func);
    if (!bytes) return 1;
    t->copy = pl_alloc(bytes);
    if (!t->copy) return 0;
    memcpy(t->copy, t->params.kernelParams[0], bytes);
    t->node = node;
    g->tables++;
    return 1;
}

static int copy_tables(graph *g)
{
    size_t n = 0;
    if (cudaGraphGetNodes(g->captured, NULL, &n) != cudaSuccess) return 0;
    cudaGraphNode_t *nodes = pl_calloc(n ? n : 1, sizeof *nodes);
    g->table = pl_calloc(n ? n : 1, sizeof *g->table);
    int ok = nodes && g->table && cudaGraphGetNodes(g->captured, nodes, &n) == cudaSuccess;
    for (size_t i = 0; i < n && ok; i++) ok = copy_table(g, nodes[i]);
    pl_free(nodes);
    return ok;
}

/* The addresses of gradients that a table's copy holds. */
static int addresses_of(const table *t, const void ***out)
{
    if (pl_cuda_multi_bytes(t->params.func)) return pl_cuda_multi_grads(t->params.func, t->copy, out);
    return pl_cuda_ns_grads(t->copy, out);
}

static int find_places(graph *g, const pl_moved *grad, int64_t n)
{
    const void **at[PL_CUDA_ITEMS];
    named *list = pl_calloc((size_t)n, sizeof *list);
    unsigned char *seen = pl_calloc((size_t)n, 1);
    g->place = pl_calloc((size_t)g->tables * PL_CUDA_ITEMS + 1, sizeof *g->place);
    int ok = list && seen && g->place;
    int64_t count = 0;
    for (int64_t i = 0; i < n && ok; i++)
        if (grad[i].from) list[count++] = (named){grad[i].from, i};
    if (ok) qsort(list, (size_t)count, sizeof *list, by_address);
    for (int64_t i = 1; i < count && ok; i++) ok = list[i - 1].at != list[i].at;
    for (int t = 0; t < g->tables && ok; t++)
        for (int k = 0, places = addresses_of(&g->table[t], at); k < places && ok; k++) {
            named key = {*at[k], 0}, *hit = bsearch(&key, list, (size_t)count, sizeof key, by_address);
            ok = hit != NULL;
            if (!ok) break;
            seen[hit->grad] = 1;
            g->place[g->places++] = (place){at[k], hit->grad, t};
        }
    for (int64_t i = 0; i < n && ok; i++) ok = !grad[i].from || seen[i];
    pl_free(list);
    pl_free(seen);
    return ok;
}

int pl_cuda_graph_move(pl_queue *q, void *opaque, const pl_moved *grad, int64_t n)
{
    graph *g = opaque;
    pl_cuda_q(q);
    if (!g->place && !g->fixed) g->fixed = !copy_tables(g) || !find_places(g, grad, n);
    if (g->fixed) return 0;
    for (int k = 0; k < g->places; k++) {
        place *p = &g->place[k];
        if (*p->where == grad[p->grad].to) continue;
        *p->where = grad[p->grad].to;
        g->table[p->table].changed = 1;
    }
    for (int i = 0; i < g->tables && !g->fixed; i++) {
        table *t = &g->table[i];
        if (!t->changed) continue;
        t->args[0] = t->copy;
        t->params.kernelParams = t->args;
        t->params.extra = NULL;
        t->changed = 0;
        g->fixed = cudaGraphExecKernelNodeSetParams(g->exec, t->node, &t->params) != cudaSuccess;
    }
    if (g->fixed) cudaGetLastError();
    return !g->fixed;
}
