/* message.c -- messages by the fused ops pair_message and pair_message_back (those of scalars alone with zero
 * weights for vectors, message_scalars.c), or composed of plain ops.
 *
 * The composition, with the pairs of a member's clouds as rows (E, B P, .):
 *
 *     U = D w0^T   Z = silu(U + b0)   W = Z W2^T + b2   Ys = S + alpha W[:h] * S   Yv = V + alpha W[h:]
 *         * V     (* over pairs, channel by channel)
 *
 *     dS = dYs + alpha W[:h] * dYs    dV = dYv + alpha W[h:] * dYv            w_ij = w_ji: the
 *         transpose of a message is the message
 *     dW = pair_grad(dYs, S), pair_grad(dYv, V)    dW2 = dW^T Z    db2 = sum dW
 *     dU = (dW W2) silu'(U + b0)                   dw0 = dU^T D    db0 = sum dU
 *
 * The backward makes U, Z and W again: they are the largest arrays of a layer (3 h P numbers per cloud),
 * and cheap. Members are worked on a few at a time, so that these arrays stay below a slab's bytes; a
 * member's bits do not depend on how many.
 */
#include "compose/message.h"

#include "compose/message_kernel.h"
#include "compose/message_scalars.h"
#include "compose/message_shared.h"
#include "compose/view.h"
#include "compose/weight_grad.h"

#define SLAB_BYTES ((int64_t)1 << 30)

typedef struct {
    int64_t B, h;
    pl_mat U, Z, W; /* (E, B P, h), (E, B P, h), (E, B P, 2h or h) */
} mlp_work;

/* The MLP of some members: U only where the backward will want it, else Z stands in its place. */
static mlp_work mlp_forward(pl_queue *q, const pl_message *m, int keep)
{
    int64_t E = m->w0.batch, B = m->D.batch / E, rows = B * m->D.rows, h = m->w0.rows;
    mlp_work k = {.B = B, .h = h};
    k.U = pl_scratch_mat(q, m->w0.dtype, E, rows, h);
    k.Z = keep ? pl_scratch_mat(q, m->w0.dtype, E, rows, h) : k.U;
    k.W = pl_scratch_mat(q, m->w0.dtype, E, rows, m->W2.rows);
    PL_CALL(gemm, q, .C = k.U, .A = pl_view_join(m->D, B), .B = m->w0, .tb = 1, .alpha = 1);
    PL_CALL(bias_act, q, .Y = k.Z, .X = k.U, .b = m->b0, .act = PL_ACT_SILU);
    PL_CALL(gemm, q, .C = k.W, .A = k.Z, .B = m->W2, .tb = 1, .alpha = 1);
    PL_CALL(bias_act, q, .Y = k.W, .X = k.W, .b = m->b2, .act = PL_ACT_NONE);
    return k;
}

/* The clouds' weights for scalars (part 0) or vectors (part 1): (E B, P, h). */
static pl_mat pair_part(const mlp_work *k, int64_t part)
{
    return pl_view_split(pl_view_cols(k->W, part * k->h, k->h), k->B);
}

static int is_shared(const pl_message *m)
{
    return m->kind == PL_MESSAGE_SHARED || m->kind == PL_MESSAGE_SHARED_BOUNDED;
}

static void forward_slab(pl_queue *q, pl_mat Ys, pl_mat Yv, pl_mat S, pl_mat V, const pl_message *m)
{
    if (m->kind == PL_MESSAGE_KERNEL) {
        pl_message_kernel_forward(q, Ys, Yv, S, V, m);
        return;
    }
    if (is_shared(m)) {
        pl_message_shared_forward(q, Ys, Yv, S, V, m);
        return;
    }
    pl_scratch_mark mark = pl_scratch_begin(q);
    mlp_work k = mlp_forward(q, m, 0);
    PL_CALL(pair_sum, q, .Y = Ys, .X = S, .W = pair_part(&k, 0), .Z = S, .points = m->points,
            .alpha = m->alpha);
    if (m->kind == PL_MESSAGE_SCALARS) PL_CALL(copy, q, .Y = Yv, .X = V);
    else
        PL_CALL(pair_sum, q, .Y = Yv, .X = V, .W = pair_part(&k, 1), .Z = V, .points = m->points,
                .alpha = m->alpha);
    pl_scratch_end(q, mark);
}

static void backward_slab(pl_queue *q, pl_mat dS, pl_mat dV, const pl_message_grads *g, pl_mat dYs,
                          pl_mat dYv, pl_mat S, pl_mat V, const pl_message *m)
{
    if (m->kind == PL_MESSAGE_KERNEL) {
        pl_message_kernel_backward(q, dS, dV, g, dYs, dYv, S, V, m);
        return;
    }
    if (is_shared(m)) {
        pl_message_shared_backward(q, dS, dV, g, dYs, dYv, S, V, m);
        return;
    }
    pl_scratch_mark mark = pl_scratch_begin(q);
    mlp_work k = mlp_forward(q, m, 1);
    /* where W has done its work, its gradient takes its place */
    pl_mat Ws = pair_part(&k, 0);
    PL_CALL(pair_sum, q, .Y = dS, .X = dYs, .W = Ws, .Z = dYs, .points = m->points, .alpha = m->alpha);
    PL_CALL(pair_grad, q, .dW = Ws, .dY = dYs, .X = S, .points = m->points, .alpha = m->alpha);
    if (m->kind == PL_MESSAGE_SCALARS) PL_CALL(copy, q, .Y = dV, .X = dYv);
    else {
        pl_mat Wv = pair_part(&k, 1);
        PL_CALL(pair_sum, q, .Y = dV, .X = dYv, .W = Wv, .Z = dYv, .points = m->points, .alpha = m->alpha);
        PL_CALL(pair_grad, q, .dW = Wv, .dY = dYv, .X = V, .points = m->points, .alpha = m->alpha);
    }
    pl_weight_grad(q, g->W2, g->b2, k.W, k.Z, k.B);
    /* dZ, in the place of Z */
    PL_CALL(gemm, q, .C = k.Z, .A = k.W, .B = m->W2, .alpha = 1);
    PL_CALL(bias_act_back, q, .dX = k.Z, .X = k.U, .b = m->b0, .dY = k.Z, .act = PL_ACT_SILU);
    pl_weight_grad(q, g->w0, g->b0, k.Z, pl_view_join(m->D, k.B), k.B);
    pl_scratch_end(q, mark);
}

/* Numbers that the backward takes for a cloud: by pairs U, Z and the weights, or one weight as it is, before
 * its bias, and as a square; by points what a kernel's scalars go through. */
static int64_t cloud_numbers(pl_queue *q, const pl_message *m)
{
    int64_t pairs = m->D.rows, h = m->w0.rows;
    if (m->kind == PL_MESSAGE_KERNEL) return 3 * pairs + 3 * h * m->points;
    if (is_shared(m)) return (pl_message_shared_fused(q, m) ? 4 : 4 + 2 * h) * pairs;
    return (2 * h + m->W2.rows) * pairs;
}

/* Members worked on at a time. */
static int64_t slab_members(pl_queue *q, const pl_message *m)
{
    int64_t E = m->w0.batch,
            one = m->D.batch / E * cloud_numbers(q, m) * (int64_t)polar_dtype_size(m->w0.dtype);
    int64_t slab = (m->slab ? m->slab : SLAB_BYTES) / (one > 0 ? one : 1);
    return slab < 1 ? 1 : slab > E ? E : slab;
}

/* Members [e, e + n) of what has clouds as its batch, and of the MLP. */
static pl_mat clouds_of(pl_mat m, const pl_message *all, int64_t e, int64_t n)
{
    int64_t B = all->D.batch / all->w0.batch;
    return pl_mat_at(m, e * B, n * B);
}

static pl_message members_of(const pl_message *m, int64_t e, int64_t n)
{
    return (pl_message){clouds_of(m->D, m, e, n),
                        pl_mat_at(m->w0, e, n),
                        pl_mat_at(m->b0, e, n),
                        pl_mat_at(m->W2, e, n),
                        pl_mat_at(m->b2, e, n),
                        m->points,
                        m->alpha,
                        m->slab,
                        m->kind};
}

void pl_message_forward_composed(pl_queue *q, pl_mat Ys, pl_mat Yv, pl_mat S, pl_mat V, const pl_message *m)
{
    int64_t E = m->w0.batch, slab = slab_members(q, m);
    for (int64_t e = 0; e < E; e += slab) {
        int64_t n = e + slab > E ? E - e : slab;
        pl_message part = members_of(m, e, n);
        forward_slab(q, clouds_of(Ys, m, e, n), clouds_of(Yv, m, e, n), clouds_of(S, m, e, n),
                     clouds_of(V, m, e, n), &part);
    }
}

void pl_message_backward_composed(pl_queue *q, pl_mat dS, pl_mat dV, const pl_message_grads *g, pl_mat dYs,
                                  pl_mat dYv, pl_mat S, pl_mat V, const pl_message *m)
{
    int64_t E = m->w0.batch, slab = slab_members(q, m);
    for (int64_t e = 0; e < E; e += slab) {
        int64_t n = e + slab > E ? E - e : slab;
        pl_message part = members_of(m, e, n);
        pl_message_grads grads = {pl_mat_at(g->w0, e, n), pl_mat_at(g->b0, e, n), pl_mat_at(g->W2, e, n),
                                  pl_mat_at(g->b2, e, n)};
        backward_slab(q, clouds_of(dS, m, e, n), clouds_of(dV, m, e, n), &grads, clouds_of(dYs, m, e, n),
                      clouds_of(dYv, m, e, n), clouds_of(S, m, e, n), clouds_of(V, m, e, n), &part);
    }
}

/* Whether the ops of messages by channel may serve: of scalars alone in f32, where they go by the table. */
static int by_channel(pl_queue *q, const pl_message *m)
{
    if (m->kind == PL_MESSAGE_SCALARS)
        return m->w0.dtype == POLAR_DTYPE_F32 && pl_queue_has(q, PL_OP_pair_message) &&
               pl_queue_has(q, PL_OP_pair_message_back);
    return m->kind == PL_MESSAGE_CHANNEL;
}

/* 0: no such op here. */
static int forward_fused(pl_queue *q, pl_mat Ys, pl_mat Yv, pl_mat S, pl_mat V, const pl_message *m)
{
    const int scalars = m->kind == PL_MESSAGE_SCALARS;
    const pl_message k = scalars ? pl_message_scalars_wide(q, m) : *m;
    const pl_args_pair_message fused = {.Ys = Ys,
                                        .Yv = Yv,
                                        .S = S,
                                        .V = V,
                                        .D = k.D,
                                        .w0 = k.w0,
                                        .b0 = k.b0,
                                        .W2 = k.W2,
                                        .b2 = k.b2,
                                        .points = k.points,
                                        .alpha = k.alpha};
    if (!pl_queue_serves(q, PL_OP_pair_message, &fused)) return 0;
    if (scalars) pl_message_scalars_fill(q, &k, m);
    pl_call_pair_message(q, &fused);
    return 1;
}

static int backward_fused(pl_queue *q, pl_mat dS, pl_mat dV, const pl_message_grads *g, pl_mat dYs,
                          pl_mat dYv, pl_mat S, pl_mat V, const pl_message *m)
{
    const int scalars = m->kind == PL_MESSAGE_SCALARS;
    const pl_message k = scalars ? pl_message_scalars_wide(q, m) : *m;
    const pl_message_grads to = scalars ? pl_message_scalars_grads(q, g) : *g;
    const pl_args_pair_message_back fused = {.dS = dS,
                                             .dV = dV,
                                             .dw0 = to.w0,
                                             .db0 = to.b0,
                                             .dW2 = to.W2,
                                             .db2 = to.b2,
                                             .dYs = dYs,
                                             .dYv = dYv,
                                             .S = S,
                                             .V = V,
                                             .D = k.D,
                                             .w0 = k.w0,
                                             .b0 = k.b0,
                                             .W2 = k.W2,
                                             .b2 = k.b2,
                                             .points = k.points,
                                             .alpha = k.alpha};
    if (!pl_queue_serves(q, PL_OP_pair_message_back, &fused)) return 0;
    if (scalars) pl_message_scalars_fill(q, &k, m);
    pl_call_pair_message_back(q, &fused);
    if (scalars) pl_message_scalars_keep(q, g, &to);
    return 1;
}

void pl_message_forward(pl_queue *q, pl_mat Ys, pl_mat Yv, pl_mat S, pl_mat V, const pl_message *m)
{
    pl_scratch_mark mark = pl_scratch_begin(q);
    if (!by_channel(q, m) || !forward_fused(q, Ys, Yv, S, V, m))
        pl_message_forward_composed(q, Ys, Yv, S, V, m);
    pl_scratch_end(q, mark);
}

void pl_message_backward(pl_queue *q, pl_mat dS, pl_mat dV, const pl_message_grads *g, pl_mat dYs, pl_mat dYv,
                         pl_mat S, pl_mat V, const pl_message *m)
{
    pl_scratch_mark mark = pl_scratch_begin(q);
    if (!by_channel(q, m) || !backward_fused(q, dS, dV, g, dYs, dYv, S, V, m))
        pl_message_backward_composed(q, dS, dV, g, dYs, dYv, S, V, m);
    pl_scratch_end(q, mark);
}
