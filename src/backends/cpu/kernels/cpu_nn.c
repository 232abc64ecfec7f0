/* cpu_nn.c -- bias_act, bias_act_back, row_sum, row_spread: pieces of rows over the threads; the loops are in cpu_nn.inc.
 *
 * bias_act and its backward are element by element (nn_formulas_elem.h), a sum over rows has the order of its row in ops.def: the bits depend on neither
 * threads nor instruction set.
 */
#include <omp.h>

#include "../cpu_meet.h"
#include "../cpu_share.h"
#include "../cpu_vit.h"
#include "cpu_rows.h"
#include "cpu_vec.h"
#include "math/lane_sum_elem.h"
#include "math/nn_formulas_elem.h"

#define CHUNK 512            /* elements of a row at a time */
#define RUN   64             /* rows of a task */
#define WIDE  64             /* columns summed at a time, in registers */
#define LONG  1024           /* the same in a buffer */
#define SMALL (1 << 14)      /* elements below which one thread does it all */

#include "cpu_as_f32.inc"
#include "cpu_nn.inc"
#include "cpu_as_f64.inc"
#include "cpu_nn.inc"

typedef void (*rows_fn)(const void *args, int64_t b, int64_t from, int64_t to, int64_t j, int64_t n);

/* Calls fn for rows [from, to) and columns [j, j + n) of every matrix, n <= `wide`. */
static void for_rows(pl_queue *q, rows_fn fn, const void *args, int64_t batch, int64_t rows, int64_t cols, int64_t run, int64_t wide)
{
    int64_t pieces = (cols + wide - 1) / wide, runs = (rows + run - 1) / run, all = batch * runs * pieces;
    _Atomic int met = 0;
    int threads = batch * rows * cols > SMALL ? q->dev->threads : 1;
    pl_share s;
    pl_share_begin(&s, all, 1, threads);
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        PL_SHARE(t, &s) {
            int64_t j = t % pieces * wide, from = t / pieces % runs * run, to = from + run < rows ? from + run : rows;
            fn(args, t / pieces / runs, from, to, j, cols - j < wide ? cols - j : wide);
        }
        pl_meet(&met);
    }
}

void PL_ISA_NAME(pl_cpu_bias_act)(pl_queue *q, const pl_args_bias_act *a)
{
    for_rows(q, pl_any_f64(pl_op_operands(a), 3) ? bias_act_rows_f64 : bias_act_rows_f32, a, a->Y.batch, a->Y.rows, a->Y.cols, RUN, CHUNK);
}

void PL_ISA_NAME(pl_cpu_bias_act_back)(pl_queue *q, const pl_args_bias_act_back *a)
{
    for_rows(q, pl_any_f64(pl_op_operands(a), 4) ? bias_act_back_rows_f64 : bias_act_back_rows_f32, a, a->dX.batch, a->dX.rows, a->dX.cols, RUN, CHUNK);
}

void PL_ISA_NAME(pl_cpu_row_spread)(pl_queue *q, const pl_args_row_spread *a)
{
    for_rows(q, pl_any_f64(pl_op_operands(a), 2) ? row_spread_rows_f64 : row_spread_rows_f32, a, a->Y.batch, a->Y.rows, a->Y.cols, RUN, CHUNK);
}

/* A long sum: the lanes over the threads, which read whole rows, then the columns. */
static void sum_by_lanes(pl_queue *q, const pl_args_row_sum *a, int f64)
{
    pl_scratch_mark mark = pl_scratch_begin(q);
    _Atomic int met = 0;
    char *sums = pl_scratch_take(q, pl_cpu_row_sum_bytes(a));
    int64_t groups = a->Y.rows, each = a->X.rows / groups, lanes = pl_layernorm_lanes(each), pieces = (a->Y.cols + WIDE - 1) / WIDE, row = lanes * a->Y.cols;
    if (sums) {
        int threads = a->X.batch * a->X.rows * a->X.cols > SMALL ? q->dev->threads : 1;
        pl_share s;
        pl_share_begin(&s, a->Y.batch * groups * lanes, 1, threads);
#pragma omp parallel num_threads(threads) if (threads > 1)
        {
            PL_SHARE(t, &s) {
                int64_t b = t / lanes / groups, i = t / lanes % groups;
                if (f64) row_sum_lane_f64(a, b, i, t % lanes, each, (double *)(void *)sums + t * a->Y.cols);
                else row_sum_lane_f32(a, b, i, t % lanes, each, (float *)(void *)sums + t * a->Y.cols);
            }
            pl_meet(&met);
#pragma omp barrier
#pragma omp for schedule(static)
            for (int64_t t = 0; t < a->Y.batch * groups * pieces; t++) {
                int64_t b = t / pieces / groups, i = t / pieces % groups, j = t % pieces * WIDE, n = a->Y.cols - j < WIDE ? a->Y.cols - j : WIDE;
                if (f64) row_sum_fold_f64(a, b, i, j, n, lanes, (double *)(void *)sums + t / pieces * row);
                else row_sum_fold_f32(a, b, i, j, n, lanes, (float *)(void *)sums + t / pieces * row);
            }
        }
    }
    pl_scratch_end(q, mark);
}

void PL_ISA_NAME(pl_cpu_row_sum)(pl_queue *q, const pl_args_row_sum *a)
{
    int64_t each = a->Y.rows ? a->X.rows / a->Y.rows : 0, pieces = (a->Y.cols + WIDE - 1) / WIDE, all = a->Y.batch * a->Y.rows * pieces;
    int f64 = pl_any_f64(pl_op_operands(a), 2);
    if (pl_row_sum_by_lanes(a)) {
        sum_by_lanes(q, a, f64);
        return;
    }
    _Atomic int met = 0;
#pragma omp parallel num_threads(q->dev->threads) if (a->X.batch * a->X.rows * a->X.cols > SMALL)
    {
#pragma omp for schedule(static) nowait
        for (int64_t t = 0; t < all; t++) {
            int64_t j = t % pieces * WIDE, i = t / pieces % a->Y.rows, b = t / pieces / a->Y.rows, n = a->Y.cols - j < WIDE ? a->Y.cols - j : WIDE;
            if (f64) row_sum_piece_f64(a, b, i, j, n, each);
            else row_sum_piece_f32(a, b, i, j, n, each);
        }
        pl_meet(&met);
    }
}
