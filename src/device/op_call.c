/* op_call.c -- what happens between PL_CALL and a backend: checks, costs, tracing; generated from ops.def.
 *
 *     POLAR_TRACE=1 ./polar verify --quick 2>trace      # every op with its shapes
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "device/backend.h"

static const pl_op_info op_infos[PL_OP_COUNT] = {
#define PL_OP(name, out, inout, in, ...)    {#name, out, inout, in, sizeof(pl_args_##name), 0, #__VA_ARGS__},
#define PL_FUSED(name, out, inout, in, ...) {#name, out, inout, in, sizeof(pl_args_##name), 1, #__VA_ARGS__},
#include "device/ops.def"
};

#define PL_OP(name, out, inout, in, ...)                                                          \
    _Static_assert(sizeof(pl_args_##name) <= PL_MAX_ARGS_BYTES, "PL_MAX_ARGS_BYTES is too small " \
                                                                "for " #name);
#include "device/ops.def"

const pl_op_info *pl_op_describe(pl_op_id id)
{
    return &op_infos[id];
}

#define MARK "OR_NONE " /* of an operand that may be absent (ops.def) */

/* Operand i as the row has it: word i behind "pl_mat", which begins every row, with its mark. */
static const char *written(pl_op_id id, int i)
{
    const char *p = pl_op_describe(id)->fields + sizeof "pl_mat" - 1;
    for (; i > 0; i--) p = strchr(p, ',') + 1;
    return p + strspn(p, " ");
}

int pl_op_or_none(pl_op_id id, int i)
{
    return !strncmp(written(id, i), MARK, sizeof MARK - 1);
}

pl_operand_words pl_op_operand_letter(pl_op_id id, int i)
{
    pl_operand_words w;
    const char *p = written(id, i) + (pl_op_or_none(id, i) ? sizeof MARK - 1 : 0);
    snprintf(w.text, sizeof w.text, "%.*s", (int)strcspn(p, " ,;"), p);
    return w;
}

pl_operand_words pl_op_operand_words(pl_op_id id, int i, const char *subject)
{
    static const struct {
        const char *letter, *role;
    } roles[] = {{"W", "weight"},    {"G", "gradient"},      {"M", "momentum"}, {"V", "second moment"},
                 {"D", "direction"}, {"live", "live values"}}; /* of the ops of a step */
    pl_operand_words w, name = pl_op_operand_letter(id, i);
    for (size_t k = 0; subject && k < sizeof roles / sizeof *roles; k++)
        if (!strcmp(roles[k].letter, name.text)) {
            snprintf(w.text, sizeof w.text, "%s of '%.100s'", roles[k].role, subject);
            return w;
        }
    if (subject) snprintf(w.text, sizeof w.text, "operand %.20s of '%.100s'", name.text, subject);
    else snprintf(w.text, sizeof w.text, "operand %.20s", name.text);
    return w;
}

char *pl_op_print(char *out, size_t bytes, pl_op_id id, const void *args)
{
    const pl_op_info *info = pl_op_describe(id);
    const pl_mat *m = pl_op_operands(args);
    size_t used = (size_t)snprintf(out, bytes, "%s", info->name);
    for (int i = 0; i < pl_op_operand_count(info) && used < bytes; i++) {
        if (m[i].data)
            used += (size_t)snprintf(out + used, bytes - used, "%s %s %lldx%lldx%lld", i ? "," : "",
                                     polar_dtype_name(m[i].dtype), (long long)m[i].batch,
                                     (long long)m[i].rows, (long long)m[i].cols);
        else used += (size_t)snprintf(out + used, bytes - used, "%s none", i ? "," : "");
    }
    return out;
}

int pl_op_takes_f16(pl_op_id id)
{
    return id == PL_OP_copy || id == PL_OP_axpby || id == PL_OP_gemm || id == PL_OP_frob ||
           id == PL_OP_normalise || id == PL_OP_frob_normalise;
}

/* What is true of every operand of every op. */
static polar_status check_operands(const pl_queue *q, pl_op_id id, const void *args)
{
    const pl_op_info *info = pl_op_describe(id);
    const pl_mat *m = pl_op_operands(args);
#define WORDS pl_op_operand_words(id, i, q->subject).text
    for (int i = 0; i < pl_op_operand_count(info); i++) {
        if (!m[i].data) {
            PL_NEED(pl_op_or_none(id, i) || m[i].batch * m[i].rows * m[i].cols == 0, POLAR_E_ARG,
                    "%s: %s has no data", info->name, WORDS);
            continue;
        }
        PL_NEED(m[i].dtype >= 0 && m[i].dtype < POLAR_DTYPE_COUNT, POLAR_E_DTYPE,
                "%s: %s has the unknown format %d", info->name, WORDS, (int)m[i].dtype);
        PL_NEED(m[i].dtype != POLAR_DTYPE_F16 || pl_op_takes_f16(id), POLAR_E_DTYPE,
                "%s: %s is f16, which only the ops of polar maps take", info->name, WORDS);
        PL_NEED(m[i].batch >= 0 && m[i].rows >= 0 && m[i].cols >= 0 &&
                    (m[i].rows <= 1 || m[i].rs >= m[i].cols) && m[i].bs >= 0,
                POLAR_E_SHAPE, "%s: %s is no matrix: %lldx%lldx%lld at strides %lld, %lld", info->name, WORDS,
                (long long)m[i].batch, (long long)m[i].rows, (long long)m[i].cols, (long long)m[i].bs,
                (long long)m[i].rs);
        PL_NEED(i >= info->out + info->inout || m[i].batch <= 1 ||
                    m[i].bs >= (m[i].rows - 1) * m[i].rs + m[i].cols,
                POLAR_E_ARG, "%s: %s is written, but its matrices overlap at a batch stride of %lld",
                info->name, WORDS, (long long)m[i].bs);
    }
#undef WORDS
    return POLAR_OK;
}

static double operand_bytes(pl_op_id id, const void *args)
{
    const pl_op_info *info = pl_op_describe(id);
    const pl_mat *m = pl_op_operands(args);
    double bytes = 0;
    for (int i = 0; i < pl_op_operand_count(info); i++) {
        int twice = i >= info->out && i < info->out + info->inout;
        if (m[i].data) bytes += (twice ? 2 : 1) * (double)pl_mat_bytes(&m[i]);
    }
    return bytes;
}

/* True where the backend must run the op now. */
static int enter(pl_queue *q, pl_op_id id, const void *args, polar_status checked, double flops)
{
    char line[600];
    if (q->error != POLAR_OK) return 0;
    if (checked == POLAR_OK) checked = check_operands(q, id, args);
    if (checked != POLAR_OK) {
        pl_queue_keep(q, checked);
        return 0;
    }
    if (pl_trace_wanted())
        fprintf(stderr, "%s%s: %s\n", q->dev->name, q->dry ? " (dry)" : "",
                pl_op_print(line, sizeof line, id, args));
    const pl_mat *first = pl_op_operands(args);
    if (!first->data && pl_op_or_none(id, 0)) first++;
    if (first->batch * first->rows * first->cols == 0) return 0; /* nothing to write */
    if (!q->dry) return 1;
    q->cost.ops++;
    q->cost.flops += flops;
    q->cost.bytes += operand_bytes(id, args);
    if (q->dev->backend->op_scratch) {
        pl_scratch_mark mark = pl_scratch_begin(q);
        pl_scratch_take(q, q->dev->backend->op_scratch(q, id, args));
        pl_scratch_end(q, mark);
    }
    if (q->overlap && q->dev->backend->put_off_scratch)
        q->put_off += q->dev->backend->put_off_scratch(q, id, args);
    return 0;
}

/* The moment, with nothing left to do before it, or this thread's time where ops run on it alone; an error of
 * the wait stays with the queue. */
static double idle_since(pl_queue *q)
{
    if (!q->dev->backend->queue_sync)
        return q->dev->threads == 1 ? pl_clock_thread_seconds() : pl_clock_seconds();
    polar_status st = q->dev->backend->queue_sync(q);
    if (st != POLAR_OK) pl_queue_keep(q, st);
    return pl_clock_seconds();
}

/* Around an op that is watched: by the device's own clock where it has one. */
static double watch_begin(pl_queue *q)
{
    if (!q->dev->backend->time_begin) return idle_since(q);
    q->dev->backend->time_begin(q);
    return 0;
}

static double watch_end(pl_queue *q, double begin)
{
    return q->dev->backend->time_end ? q->dev->backend->time_end(q) : idle_since(q) - begin;
}

#define PL_OP(op, out, inout, in, ...)                                                       \
    void pl_call_##op(pl_queue *q, const pl_args_##op *a)                                    \
    {                                                                                        \
        if (!enter(q, PL_OP_##op, a, pl_check_##op(a), pl_flops_##op(a))) return;            \
        double begin = q->watch ? watch_begin(q) : 0;                                        \
        if (q->dev->ops.op) q->dev->ops.op(q, a);                                            \
        else PL_QUEUE_FAIL(q, POLAR_E_UNSUPPORTED, "device '%s' has no " #op, q->dev->name); \
        if (q->watch)                                                                        \
            q->watch(q->watch_arg, PL_OP_##op, a, watch_end(q, begin), pl_flops_##op(a),     \
                     operand_bytes(PL_OP_##op, a));                                          \
    }
#include "device/ops.def"

void pl_op_invoke(const pl_ops *ops, pl_op_id id, pl_queue *q, const void *args)
{
    switch (id) {
#define PL_OP(name, out, inout, in, ...) \
    case PL_OP_##name:                   \
        ops->name(q, args);              \
        break;
#include "device/ops.def"
    case PL_OP_COUNT: break;
    }
}

void pl_op_fill(pl_ops *ops, const pl_ops *fallback)
{
    if (!fallback) return;
#define PL_OP(name, out, inout, in, ...) \
    if (!ops->name) ops->name = fallback->name;
#include "device/ops.def"
}

int pl_op_present(const pl_ops *ops, pl_op_id id)
{
#define PL_OP(name, out, inout, in, ...) \
    if (id == PL_OP_##name) return ops->name != NULL;
#include "device/ops.def"
    return 0;
}
