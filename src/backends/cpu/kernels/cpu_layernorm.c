/* cpu_layernorm.c -- layernorm, layernorm_back: rows over the threads; the loops are in cpu_layernorm.inc.
 *
 * Every sum has the order of its row in ops.def (columns in 32 lanes, rows of gradients in chunks of 64),
 * every formula is written with its roundings: the bits depend on neither threads nor instruction set. A row
 * is held in buffers of MOST numbers; longer ones are the oracle's.
 */
#include "../cpu_lane_sums.h"
#include "../cpu_parallel.h"
#include "cpu_convert.h"
#include "cpu_scalars.h"
#include "cpu_vec.h"
#include "math/lane_sum_elem.h"

#define MOST  4096 /* columns of a row that is worked on here */
#define GROUP 4    /* rows of a layernorm at a time */

#include "cpu_as_f32.inc"
#include "cpu_layernorm.inc"
#include "cpu_as_f64.inc"
#include "cpu_layernorm.inc"

void PL_ISA_NAME(pl_cpu_layernorm)(pl_queue *q, const pl_args_layernorm *a)
{
    if (a->X.cols > MOST) pl_ref_ops.layernorm(q, a);
    else
        pl_parallel_rows(q, pl_any_f64(pl_op_operands(a), 5) ? layernorm_rows_f64 : layernorm_rows_f32, a,
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
        norm_back o = {a, lanes, pl_sum_lanes(a->X.rows), pl_any_f64(pl_op_operands(a), 10)};
        int threads = a->X.batch * a->X.rows * a->X.cols > PL_PARALLEL_LEAST ? q->dev->threads : 1;
        pl_pool_items(q->dev->pool, threads, a->X.batch * o.each, 1, norm_lane, &o);
        pl_pool_items(q->dev->pool, threads, a->X.batch, 1, norm_fold, &o);
    }
    pl_scratch_end(q, mark);
}
