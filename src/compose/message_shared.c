/* message_shared.c -- messages with one weight a pair: the MLP of distances by the fused ops pair_weight and
 * pair_weight_back where the device has them, else composed; the messages by plain ops.
 *
 *     U = D w0^T   Z = silu(U + b0)   u = Z w2^T   w = u + b2, or sigmoid(u + b2)       (E, B P, 1)
 *     W_ij = W_ji = w_ij              (E B, N, N): one weight for all channels makes the messages products
 *     Ys = S + alpha W S              Yv = V + alpha W V, each of the three components
 *
 *     dS = dYs + alpha W dYs          dV = dYv + alpha W dYv                            W = W^T
 *     G = alpha (dYs S^T + dYv V^T)   dw_ij = G_ij + G_ji, for i = j G_ii
 *     du = dw, or dw sigmoid'(u + b2)    dw2 = du^T Z    dZ = du w2    the rest as in message.c
 */
#include "compose/message_shared.h"

#include "compose/view.h"
#include "compose/weight_grad.h"

typedef struct {
    int64_t B;
    int fused;   /* the MLP is: no U and Z */
    pl_mat U, Z; /* (E, B P, h) */
    pl_mat u, w; /* (E, B P, 1): before b2, and the weights */
    pl_mat W;    /* (E B, N, N): the weights */
} shared_work;

pl_mat pl_message_square(pl_queue *q, pl_mat w, int64_t clouds, int64_t points)
{
    pl_mat W = pl_scratch_mat(q, w.dtype, w.batch * clouds, points, points);
    PL_CALL(pair_square, q, .Y = W, .W = pl_view_split(w, clouds));
    return W;
}

void pl_message_products(pl_queue *q, pl_mat Y, pl_mat W, pl_mat X, pl_mat Z, double alpha)
{
    for (int64_t k = 0, each = X.rows / W.rows; k < each; k++)
        PL_CALL(gemm, q, .C = pl_view_every(Y, k, each), .A = W, .B = pl_view_every(X, k, each),
                .alpha = alpha, .D = Z.data ? pl_view_every(Z, k, each) : Z, .beta = Z.data != NULL);
}

static int64_t act_of(const pl_message *m)
{
    return m->kind == PL_MESSAGE_SHARED_BOUNDED ? PL_ACT_SIGMOID : PL_ACT_NONE;
}

int pl_message_shared_fused(pl_queue *q, const pl_message *m)
{
    const pl_args_pair_weight fused = {.U = m->D, .D = m->D, .w0 = m->w0, .b0 = m->b0, .W2 = m->W2};
    return pl_queue_serves(q, PL_OP_pair_weight, &fused); /* U is as D is */
}

/* u of the MLP, in one or with the hidden values kept for the backward. */
static void mlp_forward(pl_queue *q, shared_work *k, const pl_message *m)
{
    int64_t E = m->w0.batch, rows = k->B * m->D.rows, h = m->w0.rows;
    k->fused = pl_message_shared_fused(q, m);
    if (k->fused) {
        PL_CALL(pair_weight, q, .U = pl_view_split(k->u, k->B), .D = m->D, .w0 = m->w0, .b0 = m->b0,
                .W2 = m->W2);
        return;
    }
    k->U = pl_scratch_mat(q, m->w0.dtype, E, rows, h);
    k->Z = pl_scratch_mat(q, m->w0.dtype, E, rows, h);
    PL_CALL(gemm, q, .C = k->U, .A = pl_view_join(m->D, k->B), .B = m->w0, .tb = 1, .alpha = 1);
    PL_CALL(bias_act, q, .Y = k->Z, .X = k->U, .b = m->b0, .act = PL_ACT_SILU);
    PL_CALL(gemm, q, .C = k->u, .A = k->Z, .B = m->W2, .tb = 1, .alpha = 1);
}

/* Its gradients from du. */
static void mlp_backward(pl_queue *q, const pl_message_grads *g, pl_mat du, const shared_work *k,
                         const pl_message *m)
{
    if (k->fused) {
        PL_CALL(pair_weight_back, q, .dw0 = g->w0, .db0 = g->b0, .dW2 = g->W2, .db2 = g->b2,
                .dU = pl_view_split(du, k->B), .D = m->D, .w0 = m->w0, .b0 = m->b0, .W2 = m->W2);
        return;
    }
    pl_weight_grad(q, g->W2, g->b2, du, k->Z, k->B);
    PL_CALL(gemm, q, .C = k->Z, .A = du, .B = m->W2, .alpha = 1); /* dZ, in the place of Z */
    PL_CALL(bias_act_back, q, .dX = k->Z, .X = k->U, .b = m->b0, .dY = k->Z, .act = PL_ACT_SILU);
    pl_weight_grad(q, g->w0, g->b0, k->Z, pl_view_join(m->D, k->B), k->B);
}

static shared_work weights_make(pl_queue *q, const pl_message *m)
{
    int64_t E = m->w0.batch, B = m->D.batch / E, rows = B * m->D.rows;
    shared_work k = {.B = B};
    k.u = pl_scratch_mat(q, m->w0.dtype, E, rows, 1);
    k.w = pl_scratch_mat(q, m->w0.dtype, E, rows, 1);
    mlp_forward(q, &k, m);
    PL_CALL(bias_act, q, .Y = k.w, .X = k.u, .b = m->b2, .act = act_of(m));
    k.W = pl_message_square(q, k.w, B, m->points);
    return k;
}

void pl_message_shared_forward(pl_queue *q, pl_mat Ys, pl_mat Yv, pl_mat S, pl_mat V, const pl_message *m)
{
    pl_scratch_mark mark = pl_scratch_begin(q);
    shared_work k = weights_make(q, m);
    pl_message_products(q, Ys, k.W, S, S, m->alpha);
    pl_message_products(q, Yv, k.W, V, V, m->alpha);
    pl_scratch_end(q, mark);
}

/* G += alpha dY X^T, over the components of a point; the first where `begin` is set */
static void slopes(pl_queue *q, pl_mat G, pl_mat dY, pl_mat X, double alpha, int begin)
{
    for (int64_t k = 0, each = X.rows / G.rows; k < each; k++) {
        int more = k > 0 || !begin;
        PL_CALL(gemm, q, .C = G, .A = pl_view_every(dY, k, each), .B = pl_view_every(X, k, each), .tb = 1,
                .alpha = alpha, .D = more ? G : (pl_mat){0}, .beta = more);
    }
}

void pl_message_shared_backward(pl_queue *q, pl_mat dS, pl_mat dV, const pl_message_grads *g, pl_mat dYs,
                                pl_mat dYv, pl_mat S, pl_mat V, const pl_message *m)
{
    pl_scratch_mark mark = pl_scratch_begin(q);
    shared_work k = weights_make(q, m);
    pl_message_products(q, dS, k.W, dYs, dYs, m->alpha);
    pl_message_products(q, dV, k.W, dYv, dYv, m->alpha);
    slopes(q, k.W, dYs, S, m->alpha, 1); /* W and w have done their work: G and dw take their places */
    slopes(q, k.W, dYv, V, m->alpha, 0);
    PL_CALL(pair_fold, q, .W = pl_view_split(k.w, k.B), .Y = k.W);
    PL_CALL(bias_act_back, q, .dX = k.w, .X = k.u, .b = m->b2, .dY = k.w, .act = act_of(m));
    mlp_backward(q, g, k.w, &k, m);
    pl_scratch_end(q, mark);
}
