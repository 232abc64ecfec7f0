/* cpu_softmax.c -- softmax, softmax_back: rows over the threads; the loops are in cpu_softmax.inc.
 *
 * Every sum has the order of its row in ops.def (columns in 32 lanes), every formula is
 * written with its roundings: the bits depend on neither threads nor instruction set. A row is held in
 * buffers of MOST numbers; longer ones are the oracle's.
 */
#include "../cpu_parallel.h"
#include "cpu_convert.h"
#include "cpu_scalars.h"
#include "cpu_vec.h"
#include "math/exp_elem.h"
#include "math/lane_sum_elem.h"

#define MOST 4096 /* columns of a row that is worked on here */

#include "cpu_as_f32.inc"
#include "cpu_softmax.inc"
#include "cpu_as_f64.inc"
#include "cpu_softmax.inc"

void PL_ISA_NAME(pl_cpu_softmax)(pl_queue *q, const pl_args_softmax *a)
{
    if (a->X.cols > MOST) pl_ref_ops.softmax(q, a);
    else
        pl_parallel_rows(q, pl_any_f64(pl_op_operands(a), 2) ? softmax_rows_f64 : softmax_rows_f32, a,
                         a->X.batch, a->X.rows, a->X.cols);
}

void PL_ISA_NAME(pl_cpu_softmax_back)(pl_queue *q, const pl_args_softmax_back *a)
{
    if (a->Y.cols > MOST) pl_ref_ops.softmax_back(q, a);
    else
        pl_parallel_rows(q, pl_any_f64(pl_op_operands(a), 3) ? softmax_back_rows_f64 : softmax_back_rows_f32,
                         a, a->Y.batch, a->Y.rows, a->Y.cols);
}
