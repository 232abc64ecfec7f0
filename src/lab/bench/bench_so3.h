/* bench_so3.h -- training of the SO(3) testbed's network, timed; bench/torch/so3_train.py is its twin. */
#ifndef PL_LAB_BENCH_SO3_H
#define PL_LAB_BENCH_SO3_H

#include "lab/bench/bench_training.h"

typedef struct pl_bench_so3_shape {
    int64_t width, points, batch, members;
    int message; /* of pl_so3_messages */
} pl_bench_so3_shape;

/* 3 layers, f32, Gaussian clouds, the same for every member; fills in the rows' names too. FLOPs are nominal,
 * those of the definition: the fused messages do fewer. */
polar_status pl_bench_so3(pl_bench_training_rows *out, pl_queue *q, const pl_bench_so3_shape *s,
                          const char *rule, const pl_bench_peak_rates *peak);
/* the table of ops of forward, loss and backward */
polar_status pl_bench_so3_ops(pl_bench_row *rows, int most, int *count, pl_queue *q,
                              const pl_bench_so3_shape *s, const pl_bench_peak_rates *peak);

#endif
