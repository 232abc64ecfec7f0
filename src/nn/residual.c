/* residual.c -- Y = Z + s (X W^T + b);   dU = s dY in the format products want, then as any linear layer. */
#include "nn/residual.h"

void pl_residual_forward(pl_queue *q, const pl_linear *l, pl_mat Y, pl_mat X, pl_mat Z, pl_mat s)
{
    if (!s.data && pl_queue_has(q, PL_OP_gemm_act)) {
        PL_CALL(gemm_act, q, .Y = Y, .A = X, .B = pl_param_factor(l->weight), .tb = 1, .D = Z,
                .b = l->bias->W, .act = PL_ACT_NONE);
        return;
    }
    if (!s.data) { /* the product is added as it leaves its sum */
        PL_CALL(gemm, q, .C = Y, .A = X, .B = pl_param_factor(l->weight), .tb = 1, .alpha = 1, .D = Z,
                .beta = 1);
        PL_CALL(bias_act, q, .Y = Y, .X = Y, .b = l->bias->W, .act = PL_ACT_NONE);
        return;
    }
    pl_scratch_mark mark = pl_scratch_begin(q);
    pl_mat U = pl_scratch_mat(q, X.dtype, Y.batch, Y.rows, Y.cols);
    pl_linear_forward(q, l, U, U, X);
    PL_CALL(scale_rows, q, .Y = Y, .X = U, .s = s, .Z = Z);
    pl_scratch_end(q, mark);
}

void pl_residual_backward(pl_queue *q, const pl_linear *l, pl_mat dX, pl_mat F, pl_mat dY, pl_mat X, pl_mat s,
                          int64_t groups)
{
    pl_scratch_mark mark = pl_scratch_begin(q);
    pl_mat none = {0}, dU = dY;
    if (s.data || dY.dtype != X.dtype) {
        dU = pl_scratch_mat(q, X.dtype, dY.batch, dY.rows, dY.cols);
        if (s.data) PL_CALL(scale_rows, q, .Y = dU, .X = dY, .s = s);
        else PL_CALL(copy, q, .Y = dU, .X = dY);
    }
    pl_linear_backward(q, l, F.data ? none : dX, none, dU, none, X, groups);
    if (F.data)
        PL_CALL(gemm_act, q, .Y = dX, .A = dU, .B = pl_param_factor(l->weight), .F = F, .act = PL_ACT_NONE);
    pl_scratch_end(q, mark);
}
