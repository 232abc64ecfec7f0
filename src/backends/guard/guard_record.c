/* guard_record.c -- calls become records: an op's args by value, an upload's bytes as they are now. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "guard_impl.h"

/* Records are compared byte by byte, so args may have no padding, which nobody sets. */
#define PL_OP(name, out, inout, in, ...)                            \
    typedef struct __attribute__((packed)) {                        \
        __VA_ARGS__                                                 \
    } packed_##name;                                                \
    _Static_assert(sizeof(packed_##name) == sizeof(pl_args_##name), \
                   "the args of " #name " have padding: make every scalar 8 bytes wide");
#include "device/ops.def"

pl_guard_record *pl_guard_tape_add(pl_guard_tape *t)
{
    if (t->count == t->room) {
        int64_t room = t->room ? 2 * t->room : 16;
        pl_guard_record *more =
            pl_realloc(t->records, (size_t)t->room * sizeof *more, (size_t)room * sizeof *more);
        if (!more) return NULL;
        t->records = more;
        t->room = room;
    }
    return &t->records[t->count++];
}

void pl_guard_tape_clear(pl_guard_tape *t)
{
    for (int64_t i = 0; i < t->count; i++) {
        pl_guard_record *r = &t->records[i];
        if (r->kind == PL_GUARD_UPLOAD) pl_free((void *)r->copy.src);
        if (r->kind == PL_GUARD_LAUNCH) pl_guard_graph_drop(r->graph);
    }
    pl_free(t->records);
    *t = (pl_guard_tape){0};
}

static void record_op(pl_queue *q, pl_op_id op, const void *args)
{
    pl_guard_queue *g = q->impl;
    const pl_op_info *info = pl_op_describe(op);
    pl_guard_record *r = pl_guard_tape_add(g->capture ? &g->capture->tape : &g->tape);
    if (!r) {
        PL_QUEUE_FAIL(q, POLAR_E_NOMEM, "guard: a record of %s", info->name);
        return;
    }
    r->kind = PL_GUARD_OP;
    r->op = op;
    memcpy(r->args, args, info->args_bytes);
    snprintf(r->subject, sizeof r->subject, "%s", q->subject ? q->subject : "");
}

#define PL_OP(name, out, inout, in, ...)                           \
    static void guard_##name(pl_queue *q, const pl_args_##name *a) \
    {                                                              \
        record_op(q, PL_OP_##name, a);                             \
    }
#include "device/ops.def"

const pl_ops pl_guard_ops = {
#define PL_OP(name, out, inout, in, ...) .name = guard_##name,
#define PL_FUSED(name, out, inout, in, ...)
#include "device/ops.def"
};

void pl_guard_fused_ops(pl_ops *ops, const pl_ops *inner)
{
#define PL_OP(name, out, inout, in, ...)
#define PL_FUSED(name, out, inout, in, ...) \
    if (inner->name) ops->name = guard_##name;
#include "device/ops.def"
}

void pl_guard_copy(pl_queue *q, void *dst, const void *src, size_t bytes, pl_copy_kind kind)
{
    pl_guard_queue *g = q->impl;
    int up = kind == PL_COPY_UPLOAD;
    void *staged = up ? pl_alloc(bytes) : NULL;
    pl_guard_record *r = up && !staged ? NULL : pl_guard_tape_add(&g->tape);
    if (!r) {
        PL_QUEUE_FAIL(q, POLAR_E_NOMEM, "guard: a record of %s of %zu bytes", up ? "an upload" : "a download",
                      bytes);
        pl_free(staged);
        return;
    }
    if (up) memcpy(staged, src, bytes);
    r->kind = up ? PL_GUARD_UPLOAD : PL_GUARD_DOWNLOAD;
    r->copy.dst = dst;
    r->copy.src = up ? staged : src;
    r->copy.bytes = bytes;
}
