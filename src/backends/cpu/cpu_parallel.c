/* cpu_parallel.c -- see cpu_parallel.h. */
#include "cpu_parallel.h"

#define RUN_ROWS 16 /* rows of a task */

typedef struct {
    pl_rows_fn fn;
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

void pl_parallel_rows(pl_queue *q, pl_rows_fn fn, const void *args, int64_t batch, int64_t rows,
                      int64_t numbers)
{
    runs_of o = {fn, args, rows, (rows + RUN_ROWS - 1) / RUN_ROWS};
    int threads = batch * rows * numbers > PL_PARALLEL_LEAST ? q->dev->threads : 1;
    pl_pool_items(q->dev->pool, threads, batch * o.runs, 1, one_run, &o);
}

typedef struct {
    pl_pieces_fn fn;
    const void *args;
    int64_t rows, cols, run, wide; /* of a matrix; of a task */
} pieces_of;

static void one_piece(void *arg, int me, int64_t t)
{
    const pieces_of *o = arg;
    int64_t pieces = (o->cols + o->wide - 1) / o->wide, runs = (o->rows + o->run - 1) / o->run;
    int64_t j = t % pieces * o->wide, from = t / pieces % runs * o->run,
            to = from + o->run < o->rows ? from + o->run : o->rows;
    (void)me;
    o->fn(o->args, t / pieces / runs, from, to, j, o->cols - j < o->wide ? o->cols - j : o->wide);
}

void pl_parallel_pieces(pl_queue *q, pl_pieces_fn fn, const void *args, int64_t batch, int64_t rows,
                        int64_t cols, int64_t run, int64_t wide)
{
    int64_t pieces = (cols + wide - 1) / wide, runs = (rows + run - 1) / run, all = batch * runs * pieces;
    int threads = batch * rows * cols > PL_PARALLEL_LEAST ? q->dev->threads : 1;
    pl_pool_items(q->dev->pool, threads, all, 1, one_piece, &(pieces_of){fn, args, rows, cols, run, wide});
}
