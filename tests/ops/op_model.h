/* op_model.h -- what a right implementation may return: an enclosure of every element of an op's results,
 * from the op's definition.
 *
 * Written from ops.def and the formulas in their comments, in long double, independently of every backend,
 * the oracle included. Every operation of the formula may or may not be rounded to the compute format
 * (pl_op_case_compute); sums may be taken in any order. The bounds:
 *
 *     gemm         |s^ - s| <= gamma_K S + K eta,  S = sum |a b|,  gamma_K = K u / (1 - K u)
 *                  (Higham, Accuracy and Stability, section 3.1: any order, with or without fused
 *                  multiply-adds; eta for products that underflow); 0 where whole numbers keep every partial
 *                  sum below 1/u. Where S passes the format's largest number the sum may overflow on the way
 *                  and anything goes.
 *     frob         sums of squares in double, all terms positive: gamma_d relative,
 *                  d = ceil(rows/32) + ceil(cols/32) + 11 roundings on one path (lane_sum_elem.h)
 *     elementwise  the formula, operation by operation, over intervals
 *     polar_exact  not elementwise: pl_polar_defect
 *     kron_eigen, kron_sweep: likewise, pl_kron_defect
 *     the others   op_expect_<noun>.c
 */
#ifndef PL_VERIFY_OP_MODEL_H
#define PL_VERIFY_OP_MODEL_H

#include "interval.h"
#include "verify/ops/op_run.h"

/* The values that entry (b, i, j) of result `operand` may have before it is rounded to its format. Not for
 * polar_exact. */
pl_iv pl_op_model(const pl_op_run *r, int operand, int64_t b, int64_t i, int64_t j);

/* nothing of it is wrong */
static inline int pl_op_result_good(const pl_op_result *r)
{
    return !r->outside && !r->nan_mismatch && !r->unwritten && !r->padding_touched && !r->const_changed &&
           r->err <= r->tol;
}

/* How far matrix b of Y (after) is from the polar factor of X (before), by the definition: err and tol of the
 * worst of five measures. */
polar_status pl_polar_defect(double *err, double *tol, const pl_op_run *r, int64_t b);

/* How far matrix b of kron_eigen or kron_sweep is from what it is by definition (op_expect_kron.c). */
polar_status pl_kron_defect(double *err, double *tol, const pl_op_run *r, int64_t b);

#endif
