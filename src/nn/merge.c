/* merge.c -- Y = act(W [s, dots] + b);   dv_a += sum_b (1 + [a = b]) d(dots)_ab v_b. */
#include "nn/merge.h"

#include "compose/view.h"

void pl_merge_forward(pl_queue *q, const pl_linear *l, pl_mat Y, pl_mat U, pl_mat cat, pl_mat v)
{
    PL_CALL(vec_dots, q, .Q = pl_view_cols(cat, v.cols, cat.cols - v.cols), .V = v);
    pl_linear_forward(q, l, Y, U, cat);
}

void pl_merge_backward(pl_queue *q, const pl_linear *l, pl_mat dcat, pl_mat dv, pl_mat dY, pl_mat U,
                       pl_mat cat, pl_mat v, int64_t groups)
{
    pl_linear_backward(q, l, dcat, (pl_mat){0}, dY, U, cat, groups);
    PL_CALL(vec_dots_back, q, .dV = dv, .V = v, .dQ = pl_view_cols(dcat, v.cols, dcat.cols - v.cols));
}
