/* ref_loss.c -- losses and their gradients: mean squared error, cross entropy. */
#include "math/exp_elem.h"
#include "math/lane_sum_elem.h"
#include "math/log_elem.h"
#include "ref_loops.h"

/* L = mean (P - Y)^2, dP = (2 / rows) (P - Y) */
void pl_ref_mse(pl_queue *q, const pl_args_mse *a)
{
    (void)q;
    for (int64_t b = 0; b < a->P.batch; b++) {
        double lane[PL_LANES] = {0}, rows = (double)a->P.rows;
        for (int64_t i = 0; i < a->P.rows; i++) {
            double d = pl_get(&a->P, b, i, 0) - pl_get(&a->Y, b, i, 0);
            lane[i % PL_LANES] += d * d;
            if (a->dP.data) pl_put(&a->dP, b, i, 0, 2 / rows * d);
        }
        pl_put(&a->L, b, 0, 0, pl_lanes_fold(lane) / rows);
    }
}

/* With d = z - max and s = sum e^d:  L = mean over the rows of sum_j t_j (log s - d_j),  dz_j = (sum t
 * e^(d_j) / s - t_j) / rows */
void pl_ref_cross_entropy(pl_queue *q, const pl_args_cross_entropy *a)
{
    (void)q;
    for (int64_t b = 0; b < a->Z.batch; b++) {
        double total[PL_LANES] = {0}, rows = (double)a->Z.rows;
        for (int64_t i = 0; i < a->Z.rows; i++) {
            double lane[PL_LANES] = {0}, weight[PL_LANES] = {0}, loss[PL_LANES] = {0},
                   m = row_max(&a->Z, b, i);
            for (int64_t j = 0; j < a->Z.cols; j++) {
                lane[j % PL_LANES] += pl_exp_f64(pl_get(&a->Z, b, i, j) - m);
                weight[j % PL_LANES] += pl_get(&a->T, b, i, j);
            }
            double s = pl_lanes_fold(lane), t = pl_lanes_fold(weight), log_s = pl_log_f64(s);
            for (int64_t j = 0; j < a->Z.cols; j++) {
                double d = pl_get(&a->Z, b, i, j) - m, target = pl_get(&a->T, b, i, j);
                loss[j % PL_LANES] = fma(target, log_s - d, loss[j % PL_LANES]);
                if (a->dZ.data) pl_put(&a->dZ, b, i, j, fma(pl_exp_f64(d), t / s, -target) / rows);
            }
            total[i % PL_LANES] += pl_lanes_fold(loss);
        }
        pl_put(&a->L, b, 0, 0, pl_lanes_fold(total) / rows);
    }
}
