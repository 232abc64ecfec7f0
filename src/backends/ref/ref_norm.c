/* ref_norm.c -- Frobenius norms that neither under- nor overflow, summed in the order of lane_sum_elem.h. */
#include "math/bf16_elem.h"
#include "math/lane_sum_elem.h"
#include "math/norm_elem.h"
#include "ref_ops.h"

static double largest(const pl_mat *x, int64_t b)
{
    double amax = 0;
    for (int64_t i = 0; i < x->rows; i++)
        for (int64_t j = 0; j < x->cols; j++) amax = fmax(amax, fabs(pl_get(x, b, i, j)));
    return amax;
}

/* N[b] = (s, sqrt(weight) ||s X_b||) */
void pl_ref_frob(pl_queue *q, const pl_args_frob *a)
{
    (void)q;
    int limit = a->X.dtype == POLAR_DTYPE_F64 ? PL_SCALE_EXP_F64 : PL_SCALE_EXP_F32;
    for (int64_t b = 0; b < a->X.batch; b++) {
        double s = pl_norm_scale(largest(&a->X, b), limit), rows[PL_LANES] = {0};
        int64_t m = a->trans ? a->X.cols : a->X.rows, n = a->trans ? a->X.rows : a->X.cols;
        for (int64_t i = 0; i < m; i++) {
            double lane[PL_LANES] = {0};
            for (int64_t j = 0; j < n; j++) {
                double x = (a->trans ? pl_get(&a->X, b, j, i) : pl_get(&a->X, b, i, j)) * s;
                if (a->rounded) x = pl_bf16_round_f64(x);
                lane[j % PL_LANES] += x * x;
            }
            rows[i % PL_LANES] += pl_lanes_fold(lane);
        }
        pl_put(&a->N, b, 0, 0, s);
        pl_put(&a->N, b, 0, 1, sqrt(a->weight * pl_lanes_fold(rows)));
    }
}

/* N = the norm of the direct sum: in units of the smallest s, the one that belongs to the largest part. */
void pl_ref_frob_join(pl_queue *q, const pl_args_frob_join *a)
{
    (void)q;
    double s = 0, lane[PL_LANES] = {0};
    for (int64_t b = 0; b < a->M.batch; b++)
        if (pl_get(&a->M, b, 0, 1) != 0)
            s = s == 0 ? pl_get(&a->M, b, 0, 0) : fmin(s, pl_get(&a->M, b, 0, 0));
    for (int64_t b = 0; b < a->M.batch; b++) {
        double n = pl_get(&a->M, b, 0, 1);
        if (n != 0) n *= s / pl_get(&a->M, b, 0, 0);
        lane[b % PL_LANES] += n * n;
    }
    pl_put(&a->N, 0, 0, 0, s == 0 ? 1 : s);
    pl_put(&a->N, 0, 0, 1, sqrt(pl_lanes_fold(lane)));
}
