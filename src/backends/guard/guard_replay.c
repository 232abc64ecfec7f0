/* guard_replay.c -- a graph's launch, run twice from the same state with different rubbish in its scratch.
 *
 * What a graph reads and nobody wrote shows as a difference between the two. The effect is that of one run.
 */
#include <string.h>

#include "base/alloc.h"
#include "guard_impl.h"

/* How much of a buffer is no scratch of a graph captured at the mark `top`: all of it, or of the queue's
 * chunks what lies below. */
static size_t kept_bytes(const pl_queue *q, const pl_guard_buffer *b, pl_scratch_mark top)
{
    for (int i = 0; i < q->scratch.count; i++)
        if (q->scratch.base[i] == b->data) return i < top.chunk ? b->bytes : i == top.chunk ? top.used : 0;
    return b->bytes;
}

static void forget(pl_guard_device *d)
{
    for (pl_guard_buffer *b = d->buffers; b; b = b->next) {
        pl_free(b->before);
        pl_free(b->after);
        b->before = b->after = NULL;
    }
}

static polar_status remember(pl_queue *q, pl_scratch_mark top)
{
    pl_guard_device *d = q->dev->impl;
    for (pl_guard_buffer *b = d->buffers; b; b = b->next) {
        b->kept = kept_bytes(q, b, top);
        if (!b->kept) continue;
        b->before = pl_alloc(b->kept);
        b->after = pl_alloc(b->kept);
        PL_NEED(b->before && b->after, POLAR_E_NOMEM,
                "guard: copies of a buffer of %zu bytes, to run a graph twice", b->bytes);
        memcpy(b->before, b->data, b->kept);
    }
    return POLAR_OK;
}

static polar_status run_once(pl_queue *q, const pl_guard_graph *graph, int poison)
{
    pl_guard_device *d = q->dev->impl;
    for (pl_guard_buffer *b = d->buffers; b; b = b->next)
        memset(b->data + b->kept, poison, b->bytes - b->kept);
    for (int64_t i = 0; i < graph->tape.count; i++)
        PL_TRY(pl_guard_run_op(q, &graph->tape.records[i], "graph: ", i));
    return POLAR_OK;
}

static size_t first_difference(const char *a, const char *b, size_t bytes)
{
    size_t i = 0;
    while (i < bytes && a[i] == b[i]) i++;
    return i;
}

static polar_status run_twice(pl_queue *q, const pl_guard_graph *graph)
{
    pl_guard_device *d = q->dev->impl;
    pl_guard_buffer *b;
    PL_TRY(remember(q, graph->top));
    PL_TRY(run_once(q, graph, PL_GUARD_POISON));
    for (b = d->buffers; b; b = b->next)
        if (b->kept) {
            memcpy(b->after, b->data, b->kept);
            memcpy(b->data, b->before, b->kept);
        }
    PL_TRY(run_once(q, graph, PL_GUARD_OTHER_POISON));
    for (b = d->buffers; b; b = b->next)
        PL_NEED(!b->kept || !memcmp(b->after, b->data, b->kept), POLAR_E_STATE,
                "graph: two runs from the same state differ (buffer %p of %zu bytes, offset %zu): something "
                "reads memory that nothing wrote",
                (void *)b->data, b->bytes, first_difference(b->after, b->data, b->kept));
    return POLAR_OK;
}

polar_status pl_guard_replay(pl_queue *q, const pl_guard_graph *graph)
{
    polar_status st = run_twice(q, graph);
    forget(q->dev->impl);
    return st;
}
