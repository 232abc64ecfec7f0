/* linear.c -- Y = act(U + b), U = X W^T;   dU = dY act'(U + b), dW = dU^T X, db = sum of dU's rows, dX = dU
 * W. */
#include "nn/linear.h"

#include "compose/weight_grad.h"

void pl_linear_forward(pl_queue *q, const pl_linear *l, pl_mat Y, pl_mat U, pl_mat X)
{
    if (l->bias && Y.data == U.data && pl_queue_has(q, PL_OP_gemm_act)) {
        PL_CALL(gemm_act, q, .Y = Y, .A = X, .B = pl_param_factor(l->weight), .tb = 1, .b = l->bias->W,
                .act = l->act);
        return;
    }
    PL_CALL(gemm, q, .C = U, .A = X, .B = pl_param_factor(l->weight), .tb = 1, .alpha = 1);
    if (l->bias) PL_CALL(bias_act, q, .Y = Y, .X = U, .b = l->bias->W, .act = l->act);
    else if (l->act != PL_ACT_NONE) PL_CALL(bias_act, q, .Y = Y, .X = U, .act = l->act);
}

void pl_linear_backward(pl_queue *q, const pl_linear *l, pl_mat dX, pl_mat add, pl_mat dY, pl_mat U, pl_mat X,
                        int64_t groups)
{
    pl_scratch_mark mark = pl_scratch_begin(q);
    pl_mat dU = dY;
    if (l->act != PL_ACT_NONE) {
        dU = pl_scratch_mat(q, dY.dtype, dY.batch, dY.rows, dY.cols);
        PL_CALL(bias_act_back, q, .dX = dU, .X = U, .b = l->bias ? l->bias->W : (pl_mat){0}, .dY = dY,
                .act = l->act);
    }
    pl_weight_grad(q, l->weight->G, dU, X, groups);
    if (l->bias) PL_CALL(row_sum, q, .Y = l->bias->G, .X = dU, .alpha = 1);
    if (dX.data)
        PL_CALL(gemm, q, .C = dX, .A = dU, .B = pl_param_factor(l->weight), .alpha = 1, .D = add,
                .beta = add.data ? 1 : 0);
    pl_scratch_end(q, mark);
}
