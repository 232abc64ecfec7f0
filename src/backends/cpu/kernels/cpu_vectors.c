/* cpu_vectors.c -- vec_dots, vec_norm, vec_gate and their backwards: rows over the threads; the loops are in
 * cpu_vectors.inc.
 *
 * All but vec_dots_back are element by element (vectors_elem.h), and its sum ascends over b, every term
 * by fma: the same bits from every instruction set.
 */
#include "../cpu_parallel.h"
#include "cpu_convert.h"
#include "cpu_vec.h"
#include "math/vectors_elem.h"

#define CHUNK 256 /* channels at a time where they do not meet */
#define MOST  256 /* channels whose products are made here; more are the oracle's */

#include "cpu_as_f32.inc"
#include "cpu_vectors.inc"
#include "cpu_as_f64.inc"
#include "cpu_vectors.inc"

void PL_ISA_NAME(pl_cpu_vec_dots)(pl_queue *q, const pl_args_vec_dots *a)
{
    if (a->V.cols > MOST) pl_ref_ops.vec_dots(q, a);
    else
        pl_parallel_rows(q, pl_any_f64(pl_op_operands(a), 2) ? vec_dots_rows_f64 : vec_dots_rows_f32, a,
                         a->Q.batch, a->Q.rows, a->Q.cols);
}

void PL_ISA_NAME(pl_cpu_vec_dots_back)(pl_queue *q, const pl_args_vec_dots_back *a)
{
    if (a->V.cols > MOST) pl_ref_ops.vec_dots_back(q, a);
    else
        pl_parallel_rows(q,
                         pl_any_f64(pl_op_operands(a), 3) ? vec_dots_back_rows_f64 : vec_dots_back_rows_f32,
                         a, a->dQ.batch, a->dQ.rows, a->dQ.cols);
}

void PL_ISA_NAME(pl_cpu_vec_norm)(pl_queue *q, const pl_args_vec_norm *a)
{
    pl_parallel_rows(q, pl_any_f64(pl_op_operands(a), 2) ? vec_norm_rows_f64 : vec_norm_rows_f32, a,
                     a->R.batch, a->R.rows, 3 * a->R.cols);
}

void PL_ISA_NAME(pl_cpu_vec_norm_back)(pl_queue *q, const pl_args_vec_norm_back *a)
{
    pl_parallel_rows(q, pl_any_f64(pl_op_operands(a), 3) ? vec_norm_back_rows_f64 : vec_norm_back_rows_f32, a,
                     a->dR.batch, a->dR.rows, 3 * a->dR.cols);
}

void PL_ISA_NAME(pl_cpu_vec_gate)(pl_queue *q, const pl_args_vec_gate *a)
{
    pl_parallel_rows(q, pl_any_f64(pl_op_operands(a), 5) ? vec_gate_rows_f64 : vec_gate_rows_f32, a,
                     a->V.batch, a->V.rows / 3, 3 * a->V.cols);
}

void PL_ISA_NAME(pl_cpu_vec_gate_back)(pl_queue *q, const pl_args_vec_gate_back *a)
{
    pl_parallel_rows(q, pl_any_f64(pl_op_operands(a), 7) ? vec_gate_back_rows_f64 : vec_gate_back_rows_f32, a,
                     a->T.batch, a->T.rows, 3 * a->T.cols);
}
