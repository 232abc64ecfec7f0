/* cpu_rows.c -- row_sum, row_spread, scale_rows: pieces of rows over the threads; the loops are in
 * cpu_rows.inc.
 *
 * A sum over rows has the order of its row in ops.def, the others are element by element: the bits depend on
 * neither threads nor instruction set.
 */
#include "../cpu_lane_sums.h"
#include "../cpu_parallel.h"
#include "cpu_convert.h"
#include "cpu_scalars.h"
#include "cpu_vec.h"
#include "math/lane_sum_elem.h"

#define CHUNK 512  /* elements of a row at a time */
#define RUN   64   /* rows of a task */
#define WIDE  64   /* columns summed at a time, in registers */
#define LONG  1024 /* the same in a buffer */

#include "cpu_as_f32.inc"
#include "cpu_rows.inc"
#include "cpu_as_f64.inc"
#include "cpu_rows.inc"

void PL_ISA_NAME(pl_cpu_row_spread)(pl_queue *q, const pl_args_row_spread *a)
{
    pl_parallel_pieces(q, pl_any_f64(pl_op_operands(a), 2) ? row_spread_rows_f64 : row_spread_rows_f32, a,
                       a->Y.batch, a->Y.rows, a->Y.cols, RUN, CHUNK);
}

void PL_ISA_NAME(pl_cpu_scale_rows)(pl_queue *q, const pl_args_scale_rows *a)
{
    pl_parallel_rows(q, pl_any_f64(pl_op_operands(a), 4) ? scale_rows_rows_f64 : scale_rows_rows_f32, a,
                     a->Y.batch, a->Y.rows, a->Y.cols);
}

typedef struct {
    const pl_args_row_sum *a;
    void *sums;    /* of every lane */
    int64_t each;  /* rows of a sum */
    int64_t lanes; /* of a long one */
    int f64;
} sums_of;

static void lane_item(void *arg, int me, int64_t t)
{
    const sums_of *o = arg;
    int64_t groups = o->a->Y.rows, b = t / o->lanes / groups, i = t / o->lanes % groups,
            at = t * o->a->Y.cols;
    (void)me;
    if (o->f64) row_sum_lane_f64(o->a, b, i, t % o->lanes, o->each, (double *)o->sums + at);
    else row_sum_lane_f32(o->a, b, i, t % o->lanes, o->each, (float *)o->sums + at);
}

/* Columns j to j + n of sum i of matrix b. */
typedef struct {
    int64_t b, i, j, n;
} piece;

static piece piece_at(const pl_args_row_sum *a, int64_t t)
{
    int64_t pieces = (a->Y.cols + WIDE - 1) / WIDE, j = t % pieces * WIDE;
    return (piece){t / pieces / a->Y.rows, t / pieces % a->Y.rows, j,
                   a->Y.cols - j < WIDE ? a->Y.cols - j : WIDE};
}

static void fold_item(void *arg, int me, int64_t t)
{
    const sums_of *o = arg;
    piece p = piece_at(o->a, t);
    int64_t at = (p.b * o->a->Y.rows + p.i) * o->lanes * o->a->Y.cols;
    (void)me;
    if (o->f64) row_sum_fold_f64(o->a, p.b, p.i, p.j, p.n, o->lanes, (double *)o->sums + at);
    else row_sum_fold_f32(o->a, p.b, p.i, p.j, p.n, o->lanes, (float *)o->sums + at);
}

static void sum_item(void *arg, int me, int64_t t)
{
    const sums_of *o = arg;
    piece p = piece_at(o->a, t);
    (void)me;
    if (o->f64) row_sum_piece_f64(o->a, p.b, p.i, p.j, p.n, o->each);
    else row_sum_piece_f32(o->a, p.b, p.i, p.j, p.n, o->each);
}

/* A long sum: the lanes over the threads, which read whole rows, then the columns. */
static void sum_by_lanes(pl_queue *q, sums_of *o, int threads, int64_t pieces)
{
    pl_scratch_mark mark = pl_scratch_begin(q);
    o->sums = pl_scratch_take(q, pl_cpu_row_sum_bytes(o->a));
    o->lanes = pl_sum_lanes(o->each);
    if (o->sums) {
        pl_pool_items(q->dev->pool, threads, o->a->Y.batch * o->a->Y.rows * o->lanes, 1, lane_item, o);
        pl_pool_items(q->dev->pool, threads, pieces, 0, fold_item, o);
    }
    pl_scratch_end(q, mark);
}

void PL_ISA_NAME(pl_cpu_row_sum)(pl_queue *q, const pl_args_row_sum *a)
{
    sums_of o = {
        .a = a, .each = a->Y.rows ? a->X.rows / a->Y.rows : 0, .f64 = pl_any_f64(pl_op_operands(a), 2)};
    int64_t pieces = a->Y.batch * a->Y.rows * ((a->Y.cols + WIDE - 1) / WIDE);
    int threads = a->X.batch * a->X.rows * a->X.cols > PL_PARALLEL_LEAST ? q->dev->threads : 1;
    if (pl_row_sum_by_lanes(a)) sum_by_lanes(q, &o, threads, pieces);
    else pl_pool_items(q->dev->pool, threads, pieces, 0, sum_item, &o);
}
