/* mlp.c -- Y = Z + s fc2(A), A = act(U + b1), U = X W1^T, and back. */
#include "nn/mlp.h"

void pl_mlp_forward(pl_queue *q, const pl_mlp *l, pl_mat Y, const pl_mlp_kept *kept, pl_mat X, pl_mat Z,
                    pl_mat s)
{
    const pl_linear *f = &l->fc1;
    if (kept->A.data != kept->U.data && pl_queue_has(q, PL_OP_gemm_act))
        PL_CALL(gemm_act, q, .Y = kept->A, .S = kept->U, .A = X, .B = pl_param_factor(f->weight), .tb = 1,
                .b = f->bias->W, .act = f->act);
    else pl_linear_forward(q, f, kept->A, kept->U, X);
    pl_residual_forward(q, &l->fc2, Y, kept->A, Z, s);
}

void pl_mlp_backward(pl_queue *q, const pl_mlp *l, pl_mat dX, pl_mat dY, const pl_mlp_kept *kept, pl_mat X,
                     pl_mat s, int64_t groups)
{
    pl_scratch_mark mark = pl_scratch_begin(q);
    pl_linear plain = l->fc1;
    pl_mat none = {0}, dA = pl_scratch_mat(q, X.dtype, kept->A.batch, kept->A.rows, kept->A.cols);
    int fused = pl_queue_has(q, PL_OP_gemm_act);
    pl_residual_backward(q, &l->fc2, dA, fused ? kept->U : none, dY, kept->A, s, groups);
    if (!fused) /* in place: these are the largest arrays of a block */
        PL_CALL(bias_act_back, q, .dX = dA, .X = kept->U, .b = l->fc1.bias->W, .dY = dA, .act = l->fc1.act);
    plain.act = PL_ACT_NONE;
    pl_linear_backward(q, &plain, dX, none, dA, none, X, groups);
    pl_scratch_end(q, mark);
}
