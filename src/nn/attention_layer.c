/* attention_layer.c -- Y = Z + s proj(attention(qkv(X))), and back. The attention itself:
 * compose/attention.c. */
#include "nn/attention_layer.h"

#include "compose/attention.h"
#include "compose/view.h"

void pl_attention_layer_forward(pl_queue *q, const pl_attention_layer *l, pl_mat Y,
                                const pl_attention_kept *kept, pl_mat X, pl_mat Z, pl_mat s, int64_t B)
{
    pl_linear_forward(q, &l->qkv, kept->QKV, kept->QKV, X);
    pl_attention_forward(q, pl_view_split(kept->O, B), kept->lse, pl_view_split(kept->QKV, B), l->heads);
    pl_residual_forward(q, &l->proj, Y, kept->O, Z, s);
}

void pl_attention_layer_backward(pl_queue *q, const pl_attention_layer *l, pl_mat dX, pl_mat dY,
                                 const pl_attention_kept *kept, pl_mat X, pl_mat s, int64_t B)
{
    pl_scratch_mark mark = pl_scratch_begin(q);
    pl_mat none = {0}, dO = pl_scratch_mat(q, X.dtype, X.batch, X.rows, X.cols),
           dQKV = pl_scratch_mat(q, X.dtype, X.batch, X.rows, 3 * X.cols);
    pl_residual_backward(q, &l->proj, dO, none, dY, kept->O, s, B);
    pl_attention_backward(q, pl_view_split(dQKV, B), pl_view_split(kept->QKV, B), pl_view_split(kept->O, B),
                          kept->lse, pl_view_split(dO, B), l->heads);
    pl_linear_backward(q, &l->qkv, dX, none, dQKV, none, X, B);
    pl_scratch_end(q, mark);
}
