/* cpu_loss.c -- cross_entropy, in double: rows over the threads by the lanes of their sum. mse, a handful of
 * numbers, is the oracle's.
 *
 * Every sum has the order of its row in ops.def (columns and rows in 32 lanes), every formula is
 * written with its roundings: the bits depend on neither threads nor instruction set. A row is held in
 * buffers of MOST numbers; longer ones are the oracle's.
 */
#include "../cpu_parallel.h"
#include "cpu_convert.h"
#include "cpu_scalars.h"
#include "cpu_vec.h"
#include "math/exp_elem.h"
#include "math/lane_sum_elem.h"
#include "math/log_elem.h"

#define MOST 4096 /* columns of a row that is worked on here */

#include "cpu_as_f64.inc"
#include "cpu_access.inc"
#include "cpu_row_sums.inc"

/* The loss of row i, and its part of dZ. */
static double loss_row(const pl_args_cross_entropy *a, int64_t b, int64_t i)
{
    double zb[MOST], tb[MOST], e[MOST];
    int64_t n = a->Z.cols;
    const double *z = get_f64(zb, &a->Z, b * a->Z.bs + i * a->Z.rs, n),
                 *target = get_f64(tb, &a->T, b * a->T.bs + i * a->T.rs, n);
    double m = row_max_f64(z, n);
#pragma omp simd
    for (int64_t j = 0; j < n; j++) e[j] = pl_exp_f64(z[j] - m);
    double s = row_total_f64(e, n), t = row_total_f64(target, n), log_s = pl_log_f64(s), part = t / s,
           rows = (double)a->Z.rows, lane[PL_LANES] = {0};
    for (int64_t j = 0; j < n; j += PL_LANES)
        for (int64_t l = 0; l < PL_LANES && j + l < n; l++)
            lane[l] = fma(target[j + l], log_s - (z[j + l] - m), lane[l]);
    if (a->dZ.data) {
#pragma omp simd
        for (int64_t j = 0; j < n; j++) e[j] = fma(e[j], part, -target[j]) / rows;
        pl_row_store_f64(a->dZ.data, a->dZ.dtype, b * a->dZ.bs + i * a->dZ.rs, e, n);
    }
    return pl_lanes_fold(lane);
}

typedef struct {
    const pl_args_cross_entropy *a;
    int64_t b;
    double *lane;
} loss_of;

static void loss_lane(void *arg, int me, int64_t l)
{
    const loss_of *o = arg;
    double sum = 0;
    (void)me;
    for (int64_t i = l; i < o->a->Z.rows; i += PL_LANES) sum += loss_row(o->a, o->b, i);
    o->lane[l] = sum;
}

void PL_ISA_NAME(pl_cpu_cross_entropy)(pl_queue *q, const pl_args_cross_entropy *a)
{
    if (a->Z.cols > MOST) {
        pl_ref_ops.cross_entropy(q, a);
        return;
    }
    for (int64_t b = 0; b < a->Z.batch; b++) {
        double lane[PL_LANES];
        int threads = a->Z.rows * a->Z.cols > PL_PARALLEL_LEAST / 4 ? q->dev->threads : 1;
        pl_pool_items(q->dev->pool, threads, PL_LANES, 1, loss_lane, &(loss_of){a, b, lane});
        ((double *)a->L.data)[b * a->L.bs] = pl_lanes_fold(lane) / (double)a->Z.rows;
    }
}
