/* cpu_message_plan.c -- see cpu_message.h: who lies where in the scratch memory of a fused message. */
#include "cpu_message.h"

#define LINE  64
#define STRIP 512       /* pairs: their gradients stay in the second cache */
#define SMALL (1 << 15) /* pairs times channels below which one thread does it all */

pl_message_args pl_message_args_forward(const pl_args_pair_message *a)
{
    return (pl_message_args){.sink_s = &a->Ys,
                             .sink_v = &a->Yv,
                             .source_s = &a->S,
                             .source_v = &a->V,
                             .D = &a->D,
                             .w0 = &a->w0,
                             .b0 = &a->b0,
                             .W2 = &a->W2,
                             .b2 = &a->b2,
                             .points = a->points,
                             .alpha = a->alpha};
}

pl_message_args pl_message_args_back(const pl_args_pair_message_back *a)
{
    return (pl_message_args){.sink_s = &a->dS,
                             .sink_v = &a->dV,
                             .source_s = &a->dYs,
                             .source_v = &a->dYv,
                             .D = &a->D,
                             .w0 = &a->w0,
                             .b0 = &a->b0,
                             .W2 = &a->W2,
                             .b2 = &a->b2,
                             .S = &a->S,
                             .V = &a->V,
                             .dw0 = &a->dw0,
                             .db0 = &a->db0,
                             .dW2 = &a->dW2,
                             .db2 = &a->db2,
                             .points = a->points,
                             .alpha = a->alpha};
}

/* Of a member's clouds. */
static int64_t parts_of(int64_t clouds)
{
    int64_t each = (clouds + PL_MESSAGE_PARTS - 1) / PL_MESSAGE_PARTS; /* clouds of a part */
    return each ? (clouds + each - 1) / each : 0;
}

pl_message_plan pl_message_plan_make(const pl_message_args *a, int f64, int threads)
{
    int64_t members = a->w0->batch, clouds = a->D->batch / members, h = a->source_s->cols, pairs = a->D->rows;
    pl_message_plan p = {.members = members,
                         .clouds = clouds,
                         .points = a->points,
                         .pairs = pairs,
                         .h = h,
                         .hp = (h + 15) / 16 * 16,
                         .f64 = f64,
                         .back = a->dW2 != NULL};
    p.parts = parts_of(clouds);
    p.strip = p.points > STRIP ? p.points : STRIP;
    p.threads = (double)clouds * (double)pairs * (double)h < SMALL ? 1 : threads;
    p.real = f64 ? sizeof(double) : sizeof(float);
    return p;
}

/* The next piece of a block, whole cache lines. */
static void *take(char *base, size_t *used, size_t bytes)
{
    void *at = base ? base + *used : NULL;
    *used += (bytes + LINE - 1) / LINE * LINE;
    return at;
}

size_t pl_message_member_point(pl_message_member *m, char *base, const pl_message_plan *p)
{
    size_t used = 0, f = sizeof(double), hp = (size_t)p->hp,
           nodes = p->f64 ? 0 : PL_MESSAGE_ROWS * PL_MESSAGE_TERMS, parts = p->back ? (size_t)p->parts : 0;
    m->w0 = take(base, &used, f * hp);
    m->b0 = take(base, &used, f * hp);
    m->b2 = take(base, &used, f * 2 * hp);
    m->Wt = take(base, &used, f * 2 * hp * hp);
    m->Wr = take(base, &used, f * 2 * hp * hp);
    m->zc = take(base, &used, f * nodes * hp);
    m->slope = take(base, &used, f * nodes * hp);
    m->total = take(base, &used, p->back ? f * nodes * 2 * hp : 0);
    m->du = take(base, &used, p->back ? f * nodes * hp : 0);
    m->direct = take(base, &used, f * parts * (2 * hp * hp + 4 * hp));
    m->directs = take(base, &used, sizeof(int32_t) * parts);
    m->table = take(base, &used, p->real * nodes * 2 * hp);
    m->moments = take(base, &used, p->real * nodes * 2 * hp * parts);
    return used;
}

size_t pl_message_work_point(pl_message_work *w, char *base, const pl_message_plan *p)
{
    size_t used = 0, f = sizeof(double), hp = (size_t)p->hp, points = (size_t)p->points,
           strip = (size_t)p->strip;
    w->source = take(base, &used, p->real * 4 * points * hp);
    w->other = take(base, &used, p->back ? p->real * 4 * points * hp : 0);
    w->sums = take(base, &used, p->real * 4 * points * hp);
    w->t = take(base, &used, p->real * strip);
    w->dw = take(base, &used, p->back ? p->real * 2 * strip * hp : 0);
    w->w = take(base, &used, p->real * 2 * strip * hp);
    w->piece = take(base, &used, sizeof(int32_t) * strip);
    w->order = take(base, &used, sizeof(int32_t) * strip);
    w->start = take(base, &used, sizeof(int32_t) * (PL_MESSAGE_ROWS + 1));
    w->d = take(base, &used, f * PL_MESSAGE_CHUNK);
    w->z = take(base, &used, f * PL_MESSAGE_CHUNK * hp);
    w->slope = take(base, &used, f * PL_MESSAGE_CHUNK * hp);
    w->g = take(base, &used, f * PL_MESSAGE_CHUNK * 2 * hp);
    return used;
}

size_t pl_message_bytes(const pl_message_plan *p)
{
    pl_message_member m;
    pl_message_work w;
    return pl_message_member_point(&m, NULL, p) + (size_t)p->threads * pl_message_work_point(&w, NULL, p);
}

/* Whether an operand that is there is f64. */
static int any_f64(pl_op_id id, const void *args)
{
    int f64 = 0;
    const pl_mat *m = pl_op_operands(args);
    for (int i = 0; i < pl_op_operand_count(pl_op_describe(id)); i++)
        f64 |= m[i].data && m[i].dtype == POLAR_DTYPE_F64;
    return f64;
}

size_t pl_cpu_message_scratch(pl_op_id id, const void *args, int threads)
{
    pl_message_args a = id == PL_OP_pair_message ? pl_message_args_forward(args) : pl_message_args_back(args);
    pl_message_plan p = pl_message_plan_make(&a, any_f64(id, args), threads);
    return pl_message_bytes(&p);
}

/* ---- one number a pair -------------------------------------------------------------------------- */

pl_weight_args pl_weight_args_forward(const pl_args_pair_weight *a)
{
    return (pl_weight_args){.U = &a->U, .D = &a->D, .w0 = &a->w0, .b0 = &a->b0, .W2 = &a->W2};
}

pl_weight_args pl_weight_args_back(const pl_args_pair_weight_back *a)
{
    return (pl_weight_args){.U = &a->dU,
                            .D = &a->D,
                            .w0 = &a->w0,
                            .b0 = &a->b0,
                            .W2 = &a->W2,
                            .dw0 = &a->dw0,
                            .db0 = &a->db0,
                            .dW2 = &a->dW2,
                            .db2 = &a->db2};
}

pl_weight_plan pl_weight_plan_make(const pl_weight_args *a, int f64, int threads)
{
    int64_t members = a->w0->batch, clouds = a->D->batch / members, h = a->w0->rows;
    pl_weight_plan p = {.members = members,
                        .clouds = clouds,
                        .pairs = a->D->rows,
                        .h = h,
                        .hp = (h + 15) / 16 * 16,
                        .parts = parts_of(clouds),
                        .f64 = f64,
                        .back = a->dW2 != NULL};
    p.threads = (double)clouds * (double)p.pairs < SMALL ? 1 : threads;
    return p;
}

size_t pl_weight_member_point(pl_weight_member *m, char *base, const pl_weight_plan *p)
{
    size_t used = 0, f = sizeof(double), hp = (size_t)p->hp, parts = p->back ? (size_t)p->parts : 0;
    m->w0 = take(base, &used, f * hp);
    m->b0 = take(base, &used, f * hp);
    m->w2 = take(base, &used, f * hp);
    m->moments = take(base, &used, f * parts * PL_MESSAGE_ROWS * PL_MESSAGE_TERMS);
    m->direct = take(base, &used, f * parts * (3 * hp + 1));
    m->table = take(base, &used, sizeof(float) * PL_MESSAGE_ROWS * 8);
    return used;
}

size_t pl_weight_work_point(pl_weight_work *w, char *base, const pl_weight_plan *p)
{
    size_t used = 0, f = sizeof(double), hp = (size_t)p->hp;
    w->d = take(base, &used, f * PL_MESSAGE_CHUNK);
    w->g = take(base, &used, f * PL_MESSAGE_CHUNK);
    w->z = take(base, &used, f * PL_MESSAGE_CHUNK * hp);
    w->slope = take(base, &used, f * PL_MESSAGE_CHUNK * hp);
    return used;
}

size_t pl_weight_bytes(const pl_weight_plan *p)
{
    pl_weight_member m;
    pl_weight_work w;
    return pl_weight_member_point(&m, NULL, p) + (size_t)p->threads * pl_weight_work_point(&w, NULL, p);
}

size_t pl_cpu_pair_weight_scratch(pl_op_id id, const void *args, int threads)
{
    pl_weight_args a = id == PL_OP_pair_weight ? pl_weight_args_forward(args) : pl_weight_args_back(args);
    pl_weight_plan p = pl_weight_plan_make(&a, any_f64(id, args), threads);
    return pl_weight_bytes(&p);
}
