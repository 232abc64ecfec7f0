/* cpu_parallel.h -- rows of many matrices, some at a time, over the device's threads. */
#ifndef PL_CPU_PARALLEL_H
#define PL_CPU_PARALLEL_H

#include <stdint.h>

#include "device/backend.h"

#define PL_PARALLEL_LEAST (1 << 14) /* numbers below which one thread does it all */

typedef void (*pl_rows_fn)(const void *args, int64_t b, int64_t from, int64_t to);

/* fn for rows [from, to) of every matrix, `numbers` in each */
void pl_parallel_rows(pl_queue *q, pl_rows_fn fn, const void *args, int64_t batch, int64_t rows,
                      int64_t numbers);

typedef void (*pl_pieces_fn)(const void *args, int64_t b, int64_t from, int64_t to, int64_t j, int64_t n);

/* fn for rows [from, to), at most `run` of them, and columns [j, j + n), n <= `wide`, of every matrix */
void pl_parallel_pieces(pl_queue *q, pl_pieces_fn fn, const void *args, int64_t batch, int64_t rows,
                        int64_t cols, int64_t run, int64_t wide);

#endif
