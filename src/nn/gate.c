/* gate.c -- Y = V s, s = sigmoid(u), u = g R + b, R = sqrt(|V|^2 + eps);
 *
 *     t = <dY, V> s (1 - s)     dV = dY s + t g V / R     dg = sum t R     db = sum t
 */
#include "nn/gate.h"

void pl_gate_forward(pl_queue *q, const pl_gate *l, pl_mat Y, pl_mat V, pl_mat Z)
{
    PL_CALL(vec_gate, q, .Y = Y, .V = V, .g = l->weight->W, .b = l->bias->W, .Z = Z, .eps = l->eps);
}

void pl_gate_backward(pl_queue *q, const pl_gate *l, pl_mat dV, pl_mat V, pl_mat dY)
{
    pl_scratch_mark mark = pl_scratch_begin(q);
    pl_mat T = pl_scratch_mat(q, V.dtype, V.batch, V.rows / 3, V.cols),
           TR = pl_scratch_mat(q, V.dtype, V.batch, V.rows / 3, V.cols);
    PL_CALL(vec_gate_back, q, .dV = dV, .T = T, .TR = TR, .V = V, .g = l->weight->W, .b = l->bias->W,
            .dY = dY, .eps = l->eps);
    PL_CALL(row_sum, q, .Y = l->weight->G, .X = TR, .alpha = 1);
    PL_CALL(row_sum, q, .Y = l->bias->G, .X = T, .alpha = 1);
    pl_scratch_end(q, mark);
}
