/* message_kernel.c -- messages by a fixed kernel of the distance, composed of plain ops.
 *
 *     w = 2 sigmoid(-d)               in (0, 1]; nothing of it is learned; W_ij = W_ji = w_ij
 *     U = S w0^T   Z = silu(U + b0)   M = Z W2^T + b2       (E, B N, h): what a point sends
 *     Ys = S + alpha W M              Yv = V + alpha W V
 *
 *     dM = alpha W dYs      dW2 = dM^T Z    db2 = sum dM    dU = (dM W2) silu'(U + b0)    dw0 = dU^T S
 *     dS = dYs + dU w0      dV = dYv + alpha W dYv          W = W^T
 */
#include "compose/message_kernel.h"

#include "compose/message_shared.h"
#include "compose/view.h"
#include "compose/weight_grad.h"

/* The halves of the weights, sigmoid(-d): (E B, N, N). */
static pl_mat halves_make(pl_queue *q, const pl_message *m)
{
    int64_t E = m->w0.batch, B = m->D.batch / E;
    pl_mat w = pl_scratch_mat(q, m->D.dtype, E, B * m->D.rows, 1);
    PL_CALL(axpby, q, .Y = w, .X = pl_view_join(m->D, B), .alpha = -1);
    PL_CALL(bias_act, q, .Y = w, .X = w, .act = PL_ACT_SIGMOID);
    return pl_message_square(q, w, B, m->points);
}

typedef struct {
    int64_t B;
    pl_mat S, U, Z, M; /* (E, B N, h) */
} sent_work;

static sent_work sent_make(pl_queue *q, pl_mat S, const pl_message *m)
{
    int64_t E = m->w0.batch, B = m->D.batch / E, h = m->w0.rows;
    polar_dtype t = m->w0.dtype;
    sent_work k = {.B = B, .S = pl_view_join(S, B)};
    k.U = pl_scratch_mat(q, t, E, k.S.rows, h);
    k.Z = pl_scratch_mat(q, t, E, k.S.rows, h);
    k.M = pl_scratch_mat(q, t, E, k.S.rows, h);
    PL_CALL(gemm, q, .C = k.U, .A = k.S, .B = m->w0, .tb = 1, .alpha = 1);
    PL_CALL(bias_act, q, .Y = k.Z, .X = k.U, .b = m->b0, .act = PL_ACT_SILU);
    return k;
}

void pl_message_kernel_forward(pl_queue *q, pl_mat Ys, pl_mat Yv, pl_mat S, pl_mat V, const pl_message *m)
{
    pl_scratch_mark mark = pl_scratch_begin(q);
    pl_mat half = halves_make(q, m);
    sent_work k = sent_make(q, S, m);
    PL_CALL(gemm, q, .C = k.M, .A = k.Z, .B = m->W2, .tb = 1, .alpha = 1);
    PL_CALL(bias_act, q, .Y = k.M, .X = k.M, .b = m->b2, .act = PL_ACT_NONE);
    pl_message_products(q, Ys, half, pl_view_split(k.M, k.B), S, 2 * m->alpha);
    pl_message_products(q, Yv, half, V, V, 2 * m->alpha);
    pl_scratch_end(q, mark);
}

void pl_message_kernel_backward(pl_queue *q, pl_mat dS, pl_mat dV, const pl_message_grads *g, pl_mat dYs,
                                pl_mat dYv, pl_mat S, pl_mat V, const pl_message *m)
{
    pl_scratch_mark mark = pl_scratch_begin(q);
    pl_mat half = halves_make(q, m);
    sent_work k = sent_make(q, S, m);
    (void)V; /* the kernel learns nothing of it */
    pl_message_products(q, pl_view_split(k.M, k.B), half, dYs, (pl_mat){0}, 2 * m->alpha); /* dM */
    pl_message_products(q, dV, half, dYv, dYv, 2 * m->alpha);
    pl_weight_grad(q, g->W2, g->b2, k.M, k.Z, k.B);
    PL_CALL(gemm, q, .C = k.Z, .A = k.M, .B = m->W2, .alpha = 1); /* dZ, in the place of Z */
    PL_CALL(bias_act_back, q, .dX = k.U, .X = k.U, .b = m->b0, .dY = k.Z, .act = PL_ACT_SILU);
    pl_weight_grad(q, g->w0, g->b0, k.U, k.S, k.B);
    PL_CALL(gemm, q, .C = pl_view_join(dS, k.B), .A = k.U, .B = m->w0, .alpha = 1,
            .D = pl_view_join(dYs, k.B), .beta = 1);
    pl_scratch_end(q, mark);
}
