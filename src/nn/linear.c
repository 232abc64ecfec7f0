/* linear.c -- Y = act(U + b), U = X W^T;   dU = dY act'(U + b), dW = dU^T X, db = sum of dU's rows, dX = dU
 * W. */
#include "nn/linear.h"

#include "compose/weight_grad.h"

static pl_mat bias_of(const pl_linear *l)
{
    return l->bias ? l->bias->W : (pl_mat){0};
}

void pl_linear_forward(pl_queue *q, const pl_linear *l, pl_mat Y, pl_mat U, pl_mat X)
{
    pl_product(q, Y, U, X, pl_param_factor(l->weight), bias_of(l), l->act, l->tf32);
}

void pl_linear_backward(pl_queue *q, const pl_linear *l, pl_mat dX, pl_mat add, pl_mat dY, pl_mat U, pl_mat X,
                        int64_t groups)
{
    pl_scratch_mark mark = pl_scratch_begin(q);
    pl_mat dU = dY;
    if (l->act != PL_ACT_NONE) {
        dU = pl_scratch_mat(q, dY.dtype, dY.batch, dY.rows, dY.cols);
        PL_CALL(bias_act_back, q, .dX = dU, .X = U, .b = bias_of(l), .dY = dY, .act = l->act);
    }
    (l->tf32 ? pl_weight_grad_tf32 : pl_weight_grad)(q, l->weight->G, l->bias ? l->bias->G : (pl_mat){0}, dU,
                                                     X, groups);
    if (dX.data)
        PL_CALL(gemm, q, .C = dX, .A = dU, .B = pl_param_factor(l->weight), .tf32 = l->tf32, .alpha = 1,
                .D = add, .beta = add.data ? 1 : 0);
    pl_scratch_end(q, mark);
}

/* ---- the end of a branch ------------------------------------------------------------------------- */

/* Y = Z + s U, U = X W^T + b;   from dU = s dY as any linear layer. */

void pl_residual_forward(pl_queue *q, const pl_linear *l, pl_mat Y, pl_mat X, pl_mat Z, pl_mat s)
{
    pl_product_add(q, Y, X, pl_param_factor(l->weight), l->bias->W, Z, s);
}

pl_mat pl_residual_gradient(pl_queue *q, pl_mat dU, pl_mat dY, pl_mat s)
{
    if (!s.data && dY.dtype == dU.dtype) return dY;
    if (s.data) PL_CALL(scale_rows, q, .Y = dU, .X = dY, .s = s);
    else PL_CALL(copy, q, .Y = dU, .X = dY);
    return dU;
}

void pl_residual_backward(pl_queue *q, const pl_linear *l, pl_mat dX, const pl_activation *before, pl_mat dU,
                          pl_mat X, int64_t groups)
{
    const pl_mat none = {0};
    pl_linear_backward(q, l, before ? none : dX, none, dU, none, X, groups);
    if (before) pl_product_activate_back(q, dX, before, dU, pl_param_factor(l->weight));
}
