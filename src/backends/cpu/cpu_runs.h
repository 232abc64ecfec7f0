/* cpu_runs.h -- rows of many matrices, some at a time, over the device's threads. */
#ifndef PL_CPU_RUNS_H
#define PL_CPU_RUNS_H

#include <stdint.h>

#include "device/backend.h"

#define PL_RUN_SMALL (1 << 14) /* numbers below which one thread does it all */

typedef void (*pl_run_fn)(const void *args, int64_t b, int64_t from, int64_t to);

/* fn for rows [from, to) of every matrix, `numbers` in each */
void pl_for_runs(pl_queue *q, pl_run_fn fn, const void *args, int64_t batch, int64_t rows, int64_t numbers);

#endif
