/* cpu_activation.c -- bias_act, bias_act_back: pieces of rows over the threads; the loops are in
 * cpu_activation.inc.
 *
 * Element by element (activation_elem.h): the bits depend on neither threads nor instruction set.
 */
#include "../cpu_parallel.h"
#include "cpu_convert.h"
#include "math/activation_elem.h"

#define CHUNK 512 /* elements of a row at a time */
#define RUN   64  /* rows of a task; those of a column are joined to a piece of a row */
_Static_assert(RUN <= CHUNK, "room for a task's column");

#include "cpu_as_f32.inc"
#include "cpu_activation.inc"
#include "cpu_as_f64.inc"
#include "cpu_activation.inc"

void PL_ISA_NAME(pl_cpu_bias_act)(pl_queue *q, const pl_args_bias_act *a)
{
    pl_parallel_pieces(q, pl_any_f64(pl_op_operands(a), 3) ? bias_act_rows_f64 : bias_act_rows_f32, a,
                       a->Y.batch, a->Y.rows, a->Y.cols, RUN, CHUNK);
}

void PL_ISA_NAME(pl_cpu_bias_act_back)(pl_queue *q, const pl_args_bias_act_back *a)
{
    pl_parallel_pieces(q, pl_any_f64(pl_op_operands(a), 4) ? bias_act_back_rows_f64 : bias_act_back_rows_f32,
                       a, a->dX.batch, a->dX.rows, a->dX.cols, RUN, CHUNK);
}
