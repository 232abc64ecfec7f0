/* pool.c -- Y = [mean_i s_i, mean_i sqrt(|v_i|^2 + eps)];   ds_i = dY[:h] / N,   dv_i = dY[h:] / N v_i /
 * sqrt(|v_i|^2 + eps). */
#include "nn/pool.h"

#include "compose/view.h"

void pl_pool_forward(pl_queue *q, pl_mat Y, pl_mat s, pl_mat v, double eps)
{
    pl_scratch_mark mark = pl_scratch_begin(q);
    int64_t h = s.cols;
    double alpha = (double)Y.rows / (double)s.rows;
    pl_mat R = pl_scratch_mat(q, s.dtype, s.batch, s.rows, h); /* lengths */
    PL_CALL(vec_norm, q, .R = R, .V = v, .eps = eps);
    PL_CALL(row_sum, q, .Y = pl_view_cols(Y, 0, h), .X = s, .alpha = alpha);
    PL_CALL(row_sum, q, .Y = pl_view_cols(Y, h, h), .X = R, .alpha = alpha);
    pl_scratch_end(q, mark);
}

void pl_pool_backward(pl_queue *q, pl_mat ds, pl_mat dv, pl_mat v, pl_mat dY, double eps)
{
    pl_scratch_mark mark = pl_scratch_begin(q);
    int64_t h = ds.cols;
    double alpha = (double)dY.rows / (double)ds.rows;
    pl_mat dR = pl_scratch_mat(q, ds.dtype, ds.batch, ds.rows, h);
    PL_CALL(row_spread, q, .Y = ds, .X = pl_view_cols(dY, 0, h), .alpha = alpha);
    PL_CALL(row_spread, q, .Y = dR, .X = pl_view_cols(dY, h, h), .alpha = alpha);
    /* zero, or NaN where v is not finite any more */
    PL_CALL(axpby, q, .Y = dv, .X = v, .alpha = 0);
    PL_CALL(vec_norm_back, q, .dV = dv, .V = v, .dR = dR, .eps = eps);
    pl_scratch_end(q, mark);
}
