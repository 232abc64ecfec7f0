/* cpu_runs.c -- rows of many matrices, some at a time, over the device's threads. */
#include "cpu_runs.h"

#include "cpu_meet.h"
#include "cpu_share.h"

#define RUN_ROWS 16    /* rows of a task */

void pl_for_runs(pl_queue *q, pl_run_fn fn, const void *args, int64_t batch, int64_t rows, int64_t numbers)
{
    int64_t runs = (rows + RUN_ROWS - 1) / RUN_ROWS, all = batch * runs;
    _Atomic int met = 0;
    int threads = batch * rows * numbers > PL_RUN_SMALL ? q->dev->threads : 1;
    pl_share s;
    pl_share_begin(&s, all, 1, threads);
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        PL_SHARE(t, &s) {
            int64_t from = t % runs * RUN_ROWS;
            fn(args, t / runs, from, from + RUN_ROWS < rows ? from + RUN_ROWS : rows);
        }
        pl_meet(&met);
    }
}
