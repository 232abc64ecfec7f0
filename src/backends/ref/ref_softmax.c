/* ref_softmax.c -- softmax of rows, and its gradient. */
#include "math/exp_elem.h"
#include "math/lane_sum_elem.h"
#include "ref_loops.h"

/* y = e^(scale (x - max)) / sum */
void pl_ref_softmax(pl_queue *q, const pl_args_softmax *a)
{
    (void)q;
    for (int64_t b = 0; b < a->X.batch; b++)
        for (int64_t i = 0; i < a->X.rows; i++) {
            double lane[PL_LANES] = {0}, m = row_max(&a->X, b, i);
            for (int64_t j = 0; j < a->X.cols; j++)
                lane[j % PL_LANES] += pl_exp_f64(a->scale * (pl_get(&a->X, b, i, j) - m));
            double part = 1 / pl_lanes_fold(lane);
            for (int64_t j = 0; j < a->X.cols; j++)
                pl_put(&a->Y, b, i, j, pl_exp_f64(a->scale * (pl_get(&a->X, b, i, j) - m)) * part);
        }
}

/* dx = scale y (dy - sum dy y) */
void pl_ref_softmax_back(pl_queue *q, const pl_args_softmax_back *a)
{
    (void)q;
    for (int64_t b = 0; b < a->Y.batch; b++)
        for (int64_t i = 0; i < a->Y.rows; i++) {
            double lane[PL_LANES] = {0};
            for (int64_t j = 0; j < a->Y.cols; j++)
                lane[j % PL_LANES] = fma(pl_get(&a->dY, b, i, j), pl_get(&a->Y, b, i, j), lane[j % PL_LANES]);
            double s = pl_lanes_fold(lane);
            for (int64_t j = 0; j < a->Y.cols; j++)
                pl_put(&a->dX, b, i, j, a->scale * pl_get(&a->Y, b, i, j) * (pl_get(&a->dY, b, i, j) - s));
        }
}
