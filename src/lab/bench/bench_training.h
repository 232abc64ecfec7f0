/* bench_training.h -- a training step timed part by part, whatever the network: forward, forward and
 * backward, the optimiser, everything.
 *
 *     pl_bench_training t = {.forward = run_forward, .gradients = run_gradients, .arg = b, .params = p,
 *         .param_count = n, .opts = o, .dev = q->dev};
 *     PL_TRY(pl_bench_training_time(&rows, q, &t, "h=16 adamw", &peak));
 *     // where the time of `gradients` goes, op by op
 *     PL_TRY(pl_bench_training_ops(ops, most, &count, q, &t, &peak));
 *
 * The weights move from step to step, as in training; the data stay the same.
 */
#ifndef PL_LAB_BENCH_TRAINING_H
#define PL_LAB_BENCH_TRAINING_H

#include "lab/bench/bench.h"
#include "nn/param.h"
#include "polar/optim.h"

typedef struct pl_bench_training {
    pl_graph_fn forward, gradients; /* gradients: forward, loss and backward */
    void *arg;
    const pl_param *params;
    int64_t param_count;
    polar_optim_opts opts;
    polar_device *dev;
} pl_bench_training;

typedef struct pl_bench_training_rows {
    /* gradients: forward, loss and backward; step: those and the optimiser's */
    pl_bench_row forward, gradients, optimiser, step;
} pl_bench_training_rows;

/* Fills in the rows' names too: the part, then `of`. */
polar_status pl_bench_training_time(pl_bench_training_rows *out, pl_queue *q, const pl_bench_training *t,
                                    const char *of, const pl_bench_peak_rates *peak);

/* A row per op and shapes of `gradients`, the longest first: the seconds of all its calls in one step
 * (medians over steps), the device idle before and after every call; `replays` is the number of calls. Ops
 * beyond `most` kinds are left out. */
polar_status pl_bench_training_ops(pl_bench_row *rows, int most, int *count, pl_queue *q,
                                   const pl_bench_training *t, const pl_bench_peak_rates *peak);

#endif
