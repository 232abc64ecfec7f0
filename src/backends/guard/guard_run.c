/* guard_run.c -- synchronisation: device memory is opened, every record is checked and run, memory is closed.
 */
#include <stdio.h>
#include <string.h>

#include "guard_impl.h"

/* "gradient of 'fc.weight'" */
pl_operand_words pl_guard_operand(const pl_guard_record *r, int i)
{
    return pl_op_operand_words(r->op, i, r->subject[0] ? r->subject : NULL);
}

/* Every operand lies in one live buffer. */
static polar_status check_op(const pl_guard_device *d, const pl_guard_record *r, const char *where,
                             int64_t number)
{
    const pl_op_info *info = pl_op_describe(r->op);
    const pl_mat *m = pl_op_operands(r->args);
    for (int i = 0; i < pl_op_operand_count(info); i++) {
        char what[400];
        if (!pl_mat_extent(&m[i])) continue;
        snprintf(what, sizeof what, "%sop #%lld %s: %s (%s %lldx%lldx%lld)", where, (long long)number,
                 info->name, pl_guard_operand(r, i).text, polar_dtype_name(m[i].dtype), (long long)m[i].batch,
                 (long long)m[i].rows, (long long)m[i].cols);
        PL_TRY(pl_guard_inside(d, what, m[i].data, pl_mat_extent(&m[i])));
    }
    return POLAR_OK;
}

static polar_status check_red_zones(const pl_guard_device *d, const pl_guard_record *r, const char *where,
                                    int64_t number)
{
    const pl_op_info *info = pl_op_describe(r->op);
    const pl_mat *m = pl_op_operands(r->args);
    for (int i = 0; i < pl_op_operand_count(info); i++) {
        const pl_guard_buffer *b = pl_mat_extent(&m[i]) ? pl_guard_find(d, m[i].data) : NULL;
        int64_t at = b ? pl_guard_torn(b) : 0;
        PL_NEED(!at, POLAR_E_DEVICE, "%sop #%lld %s wrote outside a buffer: at byte %lld of %zu (%s)", where,
                (long long)number, info->name, (long long)at, b->bytes, pl_guard_operand(r, i).text);
    }
    return POLAR_OK;
}

polar_status pl_guard_run_op(pl_queue *q, const pl_guard_record *r, const char *where, int64_t number)
{
    pl_guard_device *d = q->dev->impl;
    pl_guard_queue *g = q->impl;
    PL_TRY(check_op(d, r, where, number));
    d->op = pl_op_describe(r->op)->name;
    d->op_number = number;
    d->subject = r->subject;
    pl_op_invoke(&d->inner->ops, r->op, g->inner, r->args);
    d->op = NULL;
    PL_TRY(polar_queue_sync(g->inner));
    return check_red_zones(d, r, where, number);
}

static polar_status run_copy(const pl_guard_device *d, const pl_guard_record *r)
{
    int up = r->kind == PL_GUARD_UPLOAD;
    char what[100];
    snprintf(what, sizeof what, "%s of %zu bytes: its %s", up ? "upload" : "download", r->copy.bytes,
             up ? "destination" : "source");
    PL_TRY(pl_guard_inside(d, what, up ? r->copy.dst : r->copy.src, r->copy.bytes));
    PL_NEED(up || !pl_guard_owns(d, r->copy.dst), POLAR_E_ARG,
            "download of %zu bytes: its destination is device memory", r->copy.bytes);
    memcpy(r->copy.dst, r->copy.src, r->copy.bytes);
    return POLAR_OK;
}

static polar_status run_tape(pl_queue *q, const pl_guard_tape *t)
{
    int64_t ops = 0;
    for (int64_t i = 0; i < t->count; i++) {
        const pl_guard_record *r = &t->records[i];
        switch (r->kind) {
        case PL_GUARD_OP: PL_TRY(pl_guard_run_op(q, r, "", ops++)); break;
        case PL_GUARD_LAUNCH: PL_TRY(pl_guard_replay(q, r->graph)); break;
        default: PL_TRY(run_copy(q->dev->impl, r)); break;
        }
    }
    return POLAR_OK;
}

static polar_status run_open(pl_queue *q)
{
    pl_guard_device *d = q->dev->impl;
    pl_guard_queue *g = q->impl;
    if (g->tape.count) {
        polar_status st = pl_guard_open(d);
        if (st == POLAR_OK) st = run_tape(q, &g->tape);
        if (st != POLAR_OK) pl_queue_keep(q, st); /* before closing says something else */
        PL_TRY(pl_guard_close(d));
    }
    if (!d->misuse[0]) return POLAR_OK;
    polar_status st = PL_FAIL(POLAR_E_ARG, "%s", d->misuse);
    d->misuse[0] = 0;
    return st;
}

polar_status pl_guard_sync(pl_queue *q)
{
    pl_guard_device *d = q->dev->impl;
    pl_guard_queue *g = q->impl;
    pthread_mutex_lock(&d->lock);
    polar_status st = run_open(q);
    pthread_mutex_unlock(&d->lock);
    if (st != POLAR_OK) pl_queue_keep(q, st);
    pl_guard_tape_clear(&g->tape);
    return q->error;
}
