/* ref_rows.c -- groups of rows: summed, spread, scaled. */
#include "math/lane_sum_elem.h"
#include "ref_loops.h"

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

/* y = z + s x */
void pl_ref_scale_rows(pl_queue *q, const pl_args_scale_rows *a)
{
    (void)q;
    int64_t n = a->s.rows ? a->Y.rows / a->s.rows : 1;
    FOR_EACH(a->Y)
    {
        double s = pl_get(&a->s, b, i / n, 0), x = pl_get(&a->X, b, i, j);
        pl_put(&a->Y, b, i, j, a->Z.data ? fma(s, x, pl_get(&a->Z, b, i, j)) : s * x);
    }
}
