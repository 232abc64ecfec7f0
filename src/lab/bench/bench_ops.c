/* bench_ops.c -- see bench_ops.h. */
#include "lab/bench/bench_ops.h"

#include <stdio.h>

#include "verify/ops/op_run.h"

static void run_case(pl_queue *q, void *arg)
{
    (void)q; /* the run's own queue, which is the one timed */
    pl_op_run_enqueue(arg);
}

polar_status pl_bench_op(pl_bench_row *out, const pl_op_case *c, int64_t scale, pl_device *dev,
                         const pl_bench_peak_rates *peak)
{
    pl_op_case large = *c;
    pl_op_run *r;
    large.rows *= scale;
    large.cols *= scale;
    large.K *= scale;
    PL_TRY(pl_op_run_create(&r, &large, PL_FILL_NORMAL, dev));
    polar_status st = pl_op_run_upload(r);
    if (st == POLAR_OK) st = pl_bench_time(out, pl_op_run_queue(r), run_case, r, peak);
    pl_op_run_destroy(r);
    pl_op_case_name(out->what, sizeof out->what, &large);
    return st;
}
