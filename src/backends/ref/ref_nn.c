/* ref_nn.c -- the layers' elementwise ops, sums over rows and the loss: activation_elem.h, in double. */
#include "math/lane_sum_elem.h"
#include "math/activation_elem.h"
#include "ref_ops.h"

#define FOR_EACH(m)                            \
    for (int64_t b = 0; b < (m).batch; b++)    \
        for (int64_t i = 0; i < (m).rows; i++) \
            for (int64_t j = 0; j < (m).cols; j++)

/* x + bias[j]: one row of biases for all matrices, one per matrix, or none */
static double biased(const pl_mat *X, const pl_mat *bias, int64_t b, int64_t i, int64_t j)
{
    double x = pl_get(X, b, i, j);
    return bias->data ? x + pl_get(bias, bias->batch == 1 ? 0 : b, 0, j) : x;
}

/* Y = act(X + b) */
void pl_ref_bias_act(pl_queue *q, const pl_args_bias_act *a)
{
    (void)q;
    FOR_EACH(a->Y) pl_put(&a->Y, b, i, j, pl_activate_f64(biased(&a->X, &a->b, b, i, j), a->act));
}

/* dX = dY act'(X + b) */
void pl_ref_bias_act_back(pl_queue *q, const pl_args_bias_act_back *a)
{
    (void)q;
    FOR_EACH(a->dX)
    pl_put(&a->dX, b, i, j,
           pl_activate_back_f64(pl_get(&a->dY, b, i, j), biased(&a->X, &a->b, b, i, j), a->act));
}

/* Y[g] = alpha sum of group g's rows: 64 at a time, ascending; the 64s over lanes. */
void pl_ref_row_sum(pl_queue *q, const pl_args_row_sum *a)
{
    (void)q;
    int64_t n = a->Y.rows ? a->X.rows / a->Y.rows : 0;
    FOR_EACH(a->Y)
    {
        double lane[PL_LANES] = {0};
        for (int64_t first = 0; first < n; first += PL_SUM_CHUNK) {
            double s = 0;
            for (int64_t r = first; r < n && r < first + PL_SUM_CHUNK; r++)
                s += pl_get(&a->X, b, i * n + r, j);
            lane[first / PL_SUM_CHUNK % PL_LANES] += s;
        }
        pl_put(&a->Y, b, i, j, a->alpha * pl_lanes_fold(lane));
    }
}

/* Y[r] = alpha X[r / n] */
void pl_ref_row_spread(pl_queue *q, const pl_args_row_spread *a)
{
    (void)q;
    int64_t n = a->X.rows ? a->Y.rows / a->X.rows : 1;
    FOR_EACH(a->Y) pl_put(&a->Y, b, i, j, a->alpha * pl_get(&a->X, b, i / n, j));
}

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
