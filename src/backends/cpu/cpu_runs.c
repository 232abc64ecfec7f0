/* cpu_runs.c -- rows of many matrices, some at a time, over the device's threads. */
#include "cpu_runs.h"

#include "cpu_meet.h"
#include "cpu_share.h"

#define RUN_ROWS 16    /* rows of a task */

void pl_for_runs(pl_queue *q, pl_run_fn fn, const void *args, int64_t batch, int64_t rows, int64_t numbers)
{
    int64_t runs = (rows + RUN_ROWS - 1) / RUN_ROWS, all = batch * runs;
    _Atomic int met = 0;
    pl_share s;
    pl_share_begin(&s, all, 1, q->dev->threads);
#pragma omp parallel num_threads(q->dev->threads) if (batch * rows * numbers > PL_RUN_SMALL)
    {
        PL_SHARE(t, &s) {
            int64_t from = t % runs * RUN_ROWS;
            fn(args, t / runs, from, from + RUN_ROWS < rows ? from + RUN_ROWS : rows);
        }
        pl_meet(&met);
    }
}
