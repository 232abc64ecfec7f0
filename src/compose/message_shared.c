/* message_shared.c -- messages with one weight a pair, composed of plain ops.
 *
 *     U = D w0^T   Z = silu(U + b0)   u = Z w2^T   w = u + b2, or sigmoid(u + b2)       (E, B P, 1)
 *     Ys = S + alpha w * S            Yv = V + alpha w * V        w spread over the channels
 *
 *     dw = the sum over channels of pair_grad(dYs, S) + pair_grad(dYv, V)
 *     du = dw, or dw sigmoid'(u + b2)    dw2 = du^T Z    dZ = du w2    the rest as in message.c
 */
#include "compose/message_shared.h"

#include "compose/view.h"
#include "compose/weight_grad.h"

typedef struct {
    int64_t B, h;
    pl_mat U, Z; /* (E, B P, h) */
    pl_mat u, w; /* (E, B P, 1): before b2, and the weights */
    pl_mat W;    /* (E, B P, h): the weights, for every channel */
    pl_mat halves;
} shared_work;

pl_mat pl_message_halves(pl_queue *q, pl_mat x)
{
    pl_mat y = pl_scratch_mat(q, x.dtype, x.batch, 1, x.cols);
    PL_CALL(axpby, q, .Y = y, .X = x, .alpha = 0);
    PL_CALL(bias_act, q, .Y = y, .X = y, .act = PL_ACT_SIGMOID);
    return y;
}

void pl_message_spread(pl_queue *q, pl_mat W, pl_mat w, pl_mat halves, double alpha)
{
    PL_CALL(gemm, q, .C = W, .A = w, .B = halves, .alpha = 2 * alpha);
}

void pl_message_gather(pl_queue *q, pl_mat w, pl_mat W, pl_mat halves)
{
    PL_CALL(gemm, q, .C = w, .A = W, .B = halves, .tb = 1, .alpha = 2);
}

static int64_t act_of(const pl_message *m)
{
    return m->kind == PL_MESSAGE_SHARED_BOUNDED ? PL_ACT_SIGMOID : PL_ACT_NONE;
}

static shared_work weights_make(pl_queue *q, const pl_message *m)
{
    int64_t E = m->w0.batch, B = m->D.batch / E, rows = B * m->D.rows, h = m->w0.rows;
    polar_dtype t = m->w0.dtype;
    shared_work k = {.B = B, .h = h};
    k.U = pl_scratch_mat(q, t, E, rows, h);
    k.Z = pl_scratch_mat(q, t, E, rows, h);
    k.u = pl_scratch_mat(q, t, E, rows, 1);
    k.w = pl_scratch_mat(q, t, E, rows, 1);
    k.W = pl_scratch_mat(q, t, E, rows, h);
    PL_CALL(gemm, q, .C = k.U, .A = pl_view_join(m->D, B), .B = m->w0, .tb = 1, .alpha = 1);
    PL_CALL(bias_act, q, .Y = k.Z, .X = k.U, .b = m->b0, .act = PL_ACT_SILU);
    PL_CALL(gemm, q, .C = k.u, .A = k.Z, .B = m->W2, .tb = 1, .alpha = 1);
    PL_CALL(bias_act, q, .Y = k.w, .X = k.u, .b = m->b2, .act = act_of(m));
    k.halves = pl_message_halves(q, m->b0);
    pl_message_spread(q, k.W, k.w, k.halves, 1);
    return k;
}

/* Y = X + alpha w * X */
static void messages(pl_queue *q, pl_mat Y, pl_mat X, const shared_work *k, const pl_message *m)
{
    PL_CALL(pair_sum, q, .Y = Y, .X = X, .W = pl_view_split(k->W, k->B), .Z = X, .points = m->points,
            .alpha = m->alpha);
}

void pl_message_shared_forward(pl_queue *q, pl_mat Ys, pl_mat Yv, pl_mat S, pl_mat V, const pl_message *m)
{
    pl_scratch_mark mark = pl_scratch_begin(q);
    shared_work k = weights_make(q, m);
    messages(q, Ys, S, &k, m);
    messages(q, Yv, V, &k, m);
    pl_scratch_end(q, mark);
}

/* out = the sum over channels of pair_grad(dY, X), by way of W */
static void weight_slopes(pl_queue *q, pl_mat out, pl_mat dY, pl_mat X, const shared_work *k,
                          const pl_message *m)
{
    PL_CALL(pair_grad, q, .dW = pl_view_split(k->W, k->B), .dY = dY, .X = X, .points = m->points,
            .alpha = m->alpha);
    pl_message_gather(q, out, k->W, k->halves);
}

void pl_message_shared_backward(pl_queue *q, pl_mat dS, pl_mat dV, const pl_message_grads *g, pl_mat dYs,
                                pl_mat dYv, pl_mat S, pl_mat V, const pl_message *m)
{
    pl_scratch_mark mark = pl_scratch_begin(q);
    shared_work k = weights_make(q, m);
    pl_mat more = pl_scratch_mat(q, k.w.dtype, k.w.batch, k.w.rows, 1);
    messages(q, dS, dYs, &k, m);
    messages(q, dV, dYv, &k, m);
    weight_slopes(q, k.w, dYs, S, &k, m); /* W and w have done their work */
    weight_slopes(q, more, dYv, V, &k, m);
    PL_CALL(axpby, q, .Y = k.w, .X = k.w, .alpha = 1, .Z = more, .beta = 1);
    PL_CALL(bias_act_back, q, .dX = k.w, .X = k.u, .b = m->b2, .dY = k.w, .act = act_of(m));
    pl_weight_grad(q, g->W2, g->b2, k.w, k.Z, k.B);
    PL_CALL(gemm, q, .C = k.Z, .A = k.w, .B = m->W2, .alpha = 1); /* dZ, in the place of Z */
    PL_CALL(bias_act_back, q, .dX = k.Z, .X = k.U, .b = m->b0, .dY = k.Z, .act = PL_ACT_SILU);
    pl_weight_grad(q, g->w0, g->b0, k.Z, pl_view_join(m->D, k.B), k.B);
    pl_scratch_end(q, mark);
}
