/* cpu_runs.c -- rows of many matrices, some at a time, over the device's threads. */
#include "cpu_runs.h"

#define RUN_ROWS 16 /* rows of a task */

typedef struct {
    pl_run_fn fn;
    const void *args;
    int64_t rows, runs; /* of a matrix */
} runs_of;

static void one_run(void *arg, int me, int64_t t)
{
    const runs_of *o = arg;
    int64_t from = t % o->runs * RUN_ROWS;
    (void)me;
    o->fn(o->args, t / o->runs, from, from + RUN_ROWS < o->rows ? from + RUN_ROWS : o->rows);
}

void pl_for_runs(pl_queue *q, pl_run_fn fn, const void *args, int64_t batch, int64_t rows, int64_t numbers)
{
    runs_of o = {fn, args, rows, (rows + RUN_ROWS - 1) / RUN_ROWS};
    int threads = batch * rows * numbers > PL_RUN_SMALL ? q->dev->threads : 1;
    pl_pool_items(q->dev->pool, threads, batch * o.runs, 1, one_run, &o);
}
