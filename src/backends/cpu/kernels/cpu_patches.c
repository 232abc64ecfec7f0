/* cpu_patches.c -- patches: tokens over the threads; the loop is in cpu_patches.inc. */
#include "../cpu_parallel.h"
#include "cpu_convert.h"

#define CHUNK 512 /* elements of a row at a time */

#include "cpu_as_f32.inc"
#include "cpu_patches.inc"
#include "cpu_as_f64.inc"
#include "cpu_patches.inc"

void PL_ISA_NAME(pl_cpu_patches)(pl_queue *q, const pl_args_patches *a)
{
    if (a->patch > CHUNK) pl_ref_ops.patches(q, a);
    else
        pl_parallel_rows(q, pl_any_f64(pl_op_operands(a), 2) ? patches_rows_f64 : patches_rows_f32, a,
                         a->Y.batch, a->Y.rows, a->Y.cols);
}
