/* bench_deit.h -- training of the DeiT testbed's network, timed; bench/torch/deit.py is its twin. */
#ifndef PL_LAB_BENCH_DEIT_H
#define PL_LAB_BENCH_DEIT_H

#include "lab/bench/bench_training.h"
#include "models/deit.h"

#define PL_BENCH_MEMBERS 64 /* at most */

/* Noise for pictures, smoothed targets; everything is drawn where drop_path > 0. Fills in the rows' names
 * too.
 */
polar_status pl_bench_deit(pl_bench_training_rows *out, pl_queue *q, const pl_deit_shape *shape,
                           const char *rule, const pl_bench_peak_rates *peak);
/* the table of ops of forward, loss and backward */
polar_status pl_bench_deit_ops(pl_bench_row *rows, int most, int *count, pl_queue *q,
                               const pl_deit_shape *shape, const pl_bench_peak_rates *peak);

#endif
