/* cpu_vit.c -- layernorm, softmax, their backwards, cross_entropy, scale_rows, patches: rows over the
 * threads; the loops are in cpu_vit.inc.
 *
 * Every sum has the order of its row in ops.def (columns and rows in 32 lanes, rows of gradients in chunks of
 * 64), every formula is written with its roundings: the bits depend on neither threads nor instruction set. A
 * row is held in buffers of MOST numbers; longer ones are the oracle's.
 */
#include "../cpu_runs.h"
#include "../cpu_vit.h"
#include "cpu_rows.h"
#include "cpu_scalars.h"
#include "cpu_vec.h"
#include "math/exp_elem.h"
#include "math/lane_sum_elem.h"
#include "math/log_elem.h"

#define MOST  4096 /* columns of a row that is worked on here */
#define CHUNK 512  /* elements of a row at a time where columns do not meet */
#define GROUP 4    /* rows of a layernorm at a time */

#include "cpu_as_f32.inc"
#include "cpu_vit.inc"
#include "cpu_as_f64.inc"
#include "cpu_vit.inc"

void PL_ISA_NAME(pl_cpu_layernorm)(pl_queue *q, const pl_args_layernorm *a)
{
    if (a->X.cols > MOST) pl_ref_ops.layernorm(q, a);
    else
        pl_for_runs(q, pl_any_f64(pl_op_operands(a), 5) ? layernorm_rows_f64 : layernorm_rows_f32, a,
                    a->X.batch, a->X.rows, a->X.cols);
}

typedef struct {
    const pl_args_layernorm_back *a;
    void *lanes;
    int64_t each; /* lanes of a matrix */
    int f64;
} norm_back;

static void norm_lane(void *arg, int me, int64_t t)
{
    const norm_back *o = arg;
    int64_t at = t * 2 * o->a->X.cols;
    (void)me;
    if (o->f64) layernorm_lane_f64(o->a, t / o->each, t % o->each, (double *)o->lanes + at);
    else layernorm_lane_f32(o->a, t / o->each, t % o->each, (float *)o->lanes + at);
}

static void norm_fold(void *arg, int me, int64_t b)
{
    const norm_back *o = arg;
    int64_t at = b * o->each * 2 * o->a->X.cols;
    (void)me;
    if (o->f64) layernorm_fold_f64(o->a, b, o->each, (double *)o->lanes + at);
    else layernorm_fold_f32(o->a, b, o->each, (float *)o->lanes + at);
}

void PL_ISA_NAME(pl_cpu_layernorm_back)(pl_queue *q, const pl_args_layernorm_back *a)
{
    if (a->X.cols > MOST) {
        pl_ref_ops.layernorm_back(q, a);
        return;
    }
    pl_scratch_mark mark = pl_scratch_begin(q);
    void *lanes = pl_scratch_take(q, pl_cpu_layernorm_bytes(a));
    if (lanes) {
        norm_back o = {a, lanes, pl_layernorm_lanes(a->X.rows), pl_any_f64(pl_op_operands(a), 9)};
        int threads = a->X.batch * a->X.rows * a->X.cols > PL_RUN_SMALL ? q->dev->threads : 1;
        pl_pool_items(q->dev->pool, threads, a->X.batch * o.each, 1, norm_lane, &o);
        pl_pool_items(q->dev->pool, threads, a->X.batch, 1, norm_fold, &o);
    }
    pl_scratch_end(q, mark);
}

void PL_ISA_NAME(pl_cpu_softmax)(pl_queue *q, const pl_args_softmax *a)
{
    if (a->X.cols > MOST) pl_ref_ops.softmax(q, a);
    else
        pl_for_runs(q, pl_any_f64(pl_op_operands(a), 2) ? softmax_rows_f64 : softmax_rows_f32, a, a->X.batch,
                    a->X.rows, a->X.cols);
}

void PL_ISA_NAME(pl_cpu_softmax_back)(pl_queue *q, const pl_args_softmax_back *a)
{
    if (a->Y.cols > MOST) pl_ref_ops.softmax_back(q, a);
    else
        pl_for_runs(q, pl_any_f64(pl_op_operands(a), 3) ? softmax_back_rows_f64 : softmax_back_rows_f32, a,
                    a->Y.batch, a->Y.rows, a->Y.cols);
}

void PL_ISA_NAME(pl_cpu_scale_rows)(pl_queue *q, const pl_args_scale_rows *a)
{
    pl_for_runs(q, pl_any_f64(pl_op_operands(a), 4) ? scale_rows_rows_f64 : scale_rows_rows_f32, a,
                a->Y.batch, a->Y.rows, a->Y.cols);
}

void PL_ISA_NAME(pl_cpu_patches)(pl_queue *q, const pl_args_patches *a)
{
    if (a->patch > CHUNK) pl_ref_ops.patches(q, a);
    else
        pl_for_runs(q, pl_any_f64(pl_op_operands(a), 2) ? patches_rows_f64 : patches_rows_f32, a, a->Y.batch,
                    a->Y.rows, a->Y.cols);
}

/* ---- the loss: in double ---- */

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
        int threads = a->Z.rows * a->Z.cols > PL_RUN_SMALL / 4 ? q->dev->threads : 1;
        pl_pool_items(q->dev->pool, threads, PL_LANES, 1, loss_lane, &(loss_of){a, b, lane});
        ((double *)a->L.data)[b * a->L.bs] = pl_lanes_fold(lane) / (double)a->Z.rows;
    }
}
