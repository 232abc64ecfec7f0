/* bench_ops.h -- the test's op cases, timed: the same list, made larger. */
#ifndef PL_LAB_BENCH_OPS_H
#define PL_LAB_BENCH_OPS_H

#include "lab/bench/bench.h"
#include "verify/ops/op_case.h"

/* Times case c with rows, columns and inner dimension multiplied by scale, normal numbers as operands. */
polar_status pl_bench_op(pl_bench_row *out, const pl_op_case *c, int64_t scale, pl_device *dev,
                         const pl_bench_peak_rates *peak);

#endif
