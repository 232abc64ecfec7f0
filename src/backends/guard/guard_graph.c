/* guard_graph.c -- capture, and the proof on every later launch that what was captured is still what the
 * caller means.
 *
 * A launch replays the captured records, as a GPU does. From the second on, fn is also called into a
 * recording that is thrown away: a byte that differs is a value that changes between runs and was captured by
 * value (a learning rate in an args field), or work that is not the same every time. The error is returned
 * and stays with the queue too, for callers who look only there.
 *
 * Gradients may move where `cuda` can follow them, in the ops that it collects into tables, and nowhere else:
 * another op that reads one is found by that comparison. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "guard_impl.h"

void pl_guard_graph_drop(pl_guard_graph *graph)
{
    if (!graph || --graph->refs) return;
    pl_guard_tape_clear(&graph->tape);
    pl_free(graph->places);
    pl_free(graph);
}

/* under way on this thread: others may take memory meanwhile, as on a GPU */
static _Thread_local int captures;

int pl_guard_captures(void)
{
    return captures;
}

static void set_capturing(pl_queue *q, pl_guard_graph *into)
{
    pl_guard_queue *g = q->impl;
    captures += (into != NULL) - (g->capture != NULL);
    g->capture = into;
}

polar_status pl_guard_graph_begin(pl_queue *q)
{
    pl_guard_graph *graph = pl_calloc(1, sizeof *graph);
    PL_NEED(graph, POLAR_E_NOMEM, "guard: a graph");
    graph->refs = 1;
    graph->top = q->top;
    set_capturing(q, graph);
    return POLAR_OK;
}

polar_status pl_guard_graph_end(pl_queue *q, void **graph)
{
    pl_guard_queue *g = q->impl;
    *graph = g->capture;
    set_capturing(q, NULL);
    return POLAR_OK;
}

void pl_guard_graph_free(pl_device *dev, void *graph)
{
    (void)dev;
    pl_guard_graph_drop(graph); /* launches not yet run keep it */
}

static polar_status compare_op(const pl_guard_record *was, const pl_guard_record *is, int64_t number)
{
    const pl_op_info *info = pl_op_describe(was->op);
    PL_NEED(was->op == is->op, POLAR_E_STATE,
            "graph: op #%lld is %s now and was %s when captured: fn must enqueue the same work every time",
            (long long)number, pl_op_describe(is->op)->name, info->name);
    size_t at = 0, operands = (size_t)pl_op_operand_count(info);
    /* every field begins at a multiple of 8 */
    while (at < info->args_bytes && !memcmp(was->args + at, is->args + at, 8)) at += 8;
    if (at == info->args_bytes) return POLAR_OK;
    char where[200];
    if (at >= operands * sizeof(pl_mat))
        snprintf(where, sizeof where, "scalar %zu", (at - operands * sizeof(pl_mat)) / 8);
    else snprintf(where, sizeof where, "%s", pl_guard_operand(is, (int)(at / sizeof(pl_mat))).text);
    return PL_FAIL(POLAR_E_STATE,
                   "graph: op #%lld %s differs from its capture at byte %zu of its arguments (%s): a value "
                   "that changes between runs must be a live value in device memory",
                   (long long)number, info->name, at, where);
}

static polar_status compare(const pl_guard_tape *was, const pl_guard_tape *is)
{
    for (int64_t i = 0; i < was->count && i < is->count; i++)
        PL_TRY(compare_op(&was->records[i], &is->records[i], i));
    PL_NEED(was->count == is->count, POLAR_E_STATE,
            "graph: %lld ops now and %lld when captured: fn must enqueue the same work every time",
            (long long)is->count, (long long)was->count);
    return POLAR_OK;
}

/* fn once more, from the scratch mark of the capture, into a recording of its own. */
static polar_status record_again(pl_queue *q, const pl_guard_graph *graph, pl_graph_fn fn, void *arg)
{
    pl_scratch_mark held = q->top;
    pl_guard_graph again = {.refs = 1};
    PL_NEED(
        held.total <= graph->top.total, POLAR_E_STATE,
        "graph: %zu bytes of scratch are held and %zu were when it was captured: it would overwrite the rest",
        held.total, graph->top.total);
    q->top = graph->top;
    set_capturing(q, &again);
    q->capturing = 1;
    fn(q, arg);
    q->capturing = 0;
    set_capturing(q, NULL);
    q->top = held;
    polar_status st =
        q->error == POLAR_OK ? compare(&graph->tape, &again.tape) : pl_fail_again(q->error, q->message);
    pl_guard_tape_clear(&again.tape);
    return st;
}

static polar_status launch(pl_queue *q, pl_guard_graph *graph, pl_graph_fn fn, void *arg)
{
    pl_guard_queue *g = q->impl;
    if (graph->launches) PL_TRY(record_again(q, graph, fn, arg));
    pl_guard_record *r = pl_guard_tape_add(&g->tape);
    PL_NEED(r, POLAR_E_NOMEM, "guard: a record of a graph's launch");
    r->kind = PL_GUARD_LAUNCH;
    r->graph = graph;
    graph->refs++;
    graph->launches++;
    return POLAR_OK;
}

polar_status pl_guard_graph_launch(pl_queue *q, void *graph, pl_graph_fn fn, void *arg)
{
    if (q->error != POLAR_OK) return POLAR_OK; /* skipped like any call after the first error */
    polar_status st = launch(q, graph, fn, arg);
    if (st != POLAR_OK) pl_queue_keep(q, st);
    return st;
}

/* ---- gradients that move ------------------------------------------------------------------------ */

/* The ops whose gradients stand in a table on `cuda` (cuda_multi.h, cuda_ns.h). */
static int is_followed(pl_op_id op)
{
    return op == PL_OP_adamw_step || op == PL_OP_direction || op == PL_OP_nonfinite || op == PL_OP_polar_step;
}

static pl_mat *operand_of(pl_guard_record *r, int64_t i)
{
    return (pl_mat *)r->args + i;
}

/* 1: every gradient stands in some op that can be followed. */
static int find_places(pl_guard_graph *graph, const pl_moved *grad, int64_t n)
{
    int64_t most = graph->tape.count * n, found = 0;
    graph->places = pl_calloc((size_t)(most ? most : 1), sizeof *graph->places);
    if (!graph->places) return 0;
    for (int64_t g = 0; g < n; g++) {
        int64_t before = found;
        for (int64_t i = 0; i < graph->tape.count && grad[g].from; i++) {
            pl_guard_record *r = &graph->tape.records[i];
            int64_t operands = is_followed(r->op) ? pl_op_operand_count(pl_op_describe(r->op)) : 0;
            for (int64_t k = 0; k < operands && found < most; k++)
                if (operand_of(r, k)->data == grad[g].from)
                    graph->places[found++] = (pl_guard_place){i, k, g};
        }
        if (grad[g].from && found == before) return 0;
    }
    graph->place_count = found;
    return 1;
}

int pl_guard_graph_move(pl_queue *q, void *opaque, const pl_moved *grad, int64_t n)
{
    pl_guard_graph *graph = opaque;
    (void)q;
    if (graph->refs > 1) return 0; /* launches that have not run read them where they were */
    if (!graph->places && !find_places(graph, grad, n)) return 0;
    for (int64_t i = 0; i < graph->place_count; i++) {
        const pl_guard_place *p = &graph->places[i];
        operand_of(&graph->tape.records[p->record], p->operand)->data = (void *)grad[p->grad].to;
    }
    return 1;
}
