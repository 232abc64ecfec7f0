/* transformer.c -- see transformer.h. */
#include "nn/transformer.h"

#include "compose/attention.h"
#include "compose/view.h"
#include "compose/weight_grad.h"

/* ---- patches to tokens --------------------------------------------------------------------------- */

/* Token 0 of every image is cls + pos_0, token 1 + k is W patch_k + b + pos_(1 + k).
 *
 * What does not depend on the image, cls + pos_0 and b + pos_(1 + k), is made once per member and added to
 * all of its images.
 *
 *     dpos_t = sum over images of dX_t     dcls = dpos_0     db = sum of dpos_t over t > 0     dW = sum
 *         of dX_t patch_(t - 1)^T over images and t > 0 */

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
    pl_weight_grad(q, l->proj.weight->G, (pl_mat){0}, dU, P, B);
    pl_scratch_end(q, mark);
}

/* ---- layer norm ---------------------------------------------------------------------------------- */

/* Y = g (X - mean) / sd + b, row by row;   with xhat = (X - mean) / sd and t = g dY:
 *
 *     dX = Z + (t - mean(t) - xhat mean(t xhat)) / sd     dL = s dX     dg = sum dY xhat     db = sum dY */

void pl_layer_norm_forward(pl_queue *q, const pl_layer_norm *l, pl_mat Y, pl_mat S, pl_mat X)
{
    PL_CALL(layernorm, q, .Y = Y, .S = S, .X = X, .g = l->weight->W, .b = l->bias->W, .eps = l->eps);
}

void pl_layer_norm_backward(pl_queue *q, const pl_layer_norm *l, pl_mat dX, pl_mat dL, pl_mat s, pl_mat Z,
                            pl_mat X, pl_mat S, pl_mat dY)
{
    PL_CALL(layernorm_back, q, .dX = dX, .dg = l->weight->G, .db = l->bias->G, .dL = dL, .X = X, .S = S,
            .g = l->weight->W, .dY = dY, .Z = Z, .s = s);
}

/* ---- attention ----------------------------------------------------------------------------------- */

/* Y = Z + s proj(attention(qkv(X))), and back. The attention itself:
 * compose/attention.c. */

void pl_attention_layer_forward(pl_queue *q, const pl_attention_layer *l, pl_mat Y,
                                const pl_attention_kept *kept, pl_mat X, pl_mat Z, pl_mat s, int64_t B)
{
    pl_linear_forward(q, &l->qkv, kept->QKV, kept->QKV, X);
    pl_attention_forward(q, pl_view_split(kept->O, B), kept->lse, pl_view_split(kept->QKV, B), l->heads);
    pl_residual_forward(q, &l->proj, Y, kept->O, Z, s);
}

void pl_attention_layer_backward(pl_queue *q, const pl_attention_layer *l, pl_mat dX, pl_mat dU,
                                 const pl_attention_kept *kept, pl_mat X, int64_t B)
{
    pl_scratch_mark mark = pl_scratch_begin(q);
    pl_mat none = {0}, dO = pl_scratch_mat(q, X.dtype, X.batch, X.rows, X.cols),
           dQKV = pl_scratch_mat(q, X.dtype, X.batch, X.rows, 3 * X.cols);
    pl_residual_backward(q, &l->proj, dO, NULL, dU, kept->O, B);
    pl_attention_backward(q, pl_view_split(dQKV, B), pl_view_split(kept->QKV, B), pl_view_split(kept->O, B),
                          kept->lse, pl_view_split(dO, B), l->heads);
    pl_linear_backward(q, &l->qkv, dX, none, dQKV, none, X, B);
    pl_scratch_end(q, mark);
}

/* ---- MLP ----------------------------------------------------------------------------------------- */

/* Y = Z + s fc2(A), A = act(U + b1), U = X W1^T, and back. */

static pl_activation activation_of(const pl_mlp *l, const pl_mlp_kept *kept)
{
    return (pl_activation){.kept = kept->U, .b = l->fc1.bias->W, .act = l->fc1.act};
}

void pl_mlp_forward(pl_queue *q, const pl_mlp *l, pl_mat Y, const pl_mlp_kept *kept, pl_mat X, pl_mat Z,
                    pl_mat s)
{
    const pl_activation gelu = activation_of(l, kept);
    if (kept->A.data == kept->U.data) pl_linear_forward(q, &l->fc1, kept->A, kept->U, X);
    else pl_product_activate(q, kept->A, &gelu, X, pl_param_factor(l->fc1.weight));
    pl_residual_forward(q, &l->fc2, Y, kept->A, Z, s);
}

void pl_mlp_backward(pl_queue *q, const pl_mlp *l, pl_mat dX, pl_mat dU, const pl_mlp_kept *kept, pl_mat X,
                     int64_t groups)
{
    pl_scratch_mark mark = pl_scratch_begin(q);
    pl_linear plain = l->fc1;
    pl_mat none = {0}, dA = pl_scratch_mat(q, X.dtype, kept->A.batch, kept->A.rows, kept->A.cols);
    const pl_activation gelu = activation_of(l, kept);
    pl_residual_backward(q, &l->fc2, dA, &gelu, dU, kept->A, groups);
    plain.act = PL_ACT_NONE;
    pl_linear_backward(q, &plain, dX, none, dA, none, X, groups);
    pl_scratch_end(q, mark);
}
