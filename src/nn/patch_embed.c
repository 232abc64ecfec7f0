/* patch_embed.c -- token 0 of every image is cls + pos_0, token 1 + k is W patch_k + b + pos_(1 + k).
 *
 * What does not depend on the image, cls + pos_0 and b + pos_(1 + k), is made once per member and added to
 * all of its images.
 *
 *     dpos_t = sum over images of dX_t     dcls = dpos_0     db = sum of dpos_t over t > 0     dW = sum
 *         of dX_t patch_(t - 1)^T over images and t > 0
 */
#include "nn/patch_embed.h"

#include "compose/view.h"
#include "compose/weight_grad.h"

void pl_patch_embed_forward(pl_queue *q, const pl_patch_embed *l, pl_mat X, pl_mat P, pl_mat images,
                            int64_t B)
{
    pl_scratch_mark mark = pl_scratch_begin(q);
    int64_t E = X.batch, T = X.rows / B, C = X.cols;
    pl_mat U = pl_scratch_mat(q, X.dtype, E, B * (T - 1), C), base = pl_scratch_mat(q, X.dtype, E, T, C);
    PL_CALL(patches, q, .Y = pl_view_split(P, B), .X = images, .height = images.rows / 3,
            .width = images.cols, .patch = l->patch);
    PL_CALL(gemm, q, .C = U, .A = P, .B = pl_param_factor(l->proj.weight), .tb = 1, .alpha = 1);
    PL_CALL(axpby, q, .Y = pl_view_rows(base, 0, 1), .X = pl_view_rows(l->pos->W, 0, 1), .alpha = 1,
            .Z = l->cls->W, .beta = 1);
    PL_CALL(bias_act, q, .Y = pl_view_rows(base, 1, T - 1), .X = pl_view_rows(l->pos->W, 1, T - 1),
            .b = l->proj.bias->W, .act = PL_ACT_NONE);
    for (int64_t e = 0; e < E; e++) {
        pl_mat tokens = pl_view_split(pl_mat_at(X, e, 1), B),
               of_all = pl_view_repeat(pl_mat_at(base, e, 1), B);
        PL_CALL(copy, q, .Y = pl_view_rows(tokens, 0, 1), .X = pl_view_rows(of_all, 0, 1));
        PL_CALL(axpby, q, .Y = pl_view_rows(tokens, 1, T - 1), .X = pl_view_split(pl_mat_at(U, e, 1), B),
                .alpha = 1, .Z = pl_view_rows(of_all, 1, T - 1), .beta = 1);
    }
    pl_scratch_end(q, mark);
}

void pl_patch_embed_backward(pl_queue *q, const pl_patch_embed *l, pl_mat dX, pl_mat P, int64_t B)
{
    pl_scratch_mark mark = pl_scratch_begin(q);
    int64_t T = dX.rows / B;
    pl_mat dU = pl_scratch_mat(q, P.dtype, dX.batch, B * (T - 1), dX.cols);
    /* (E, B, T C) */
    pl_mat image_rows = pl_view_join(pl_view_row(pl_view_split(dX, B)), B);
    PL_CALL(row_sum, q, .Y = pl_view_row(l->pos->G), .X = image_rows, .alpha = 1);
    PL_CALL(copy, q, .Y = l->cls->G, .X = pl_view_rows(l->pos->G, 0, 1));
    PL_CALL(row_sum, q, .Y = l->proj.bias->G, .X = pl_view_rows(l->pos->G, 1, T - 1), .alpha = 1);
    /* without the class tokens, in the format products want */
    PL_CALL(copy, q, .Y = pl_view_split(dU, B), .X = pl_view_rows(pl_view_split(dX, B), 1, T - 1));
    pl_weight_grad(q, l->proj.weight->G, dU, P, B);
    pl_scratch_end(q, mark);
}
