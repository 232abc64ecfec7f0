/* bench_maps.h -- polar maps timed on lists of shapes. */
#ifndef PL_LAB_BENCH_MAPS_H
#define PL_LAB_BENCH_MAPS_H

#include "lab/bench/bench.h"
#include "polar/map.h"

typedef struct pl_bench_shape {
    int64_t batch, rows, cols;
} pl_bench_shape;

typedef struct pl_bench_set {
    const char *name; /* "deit" */
    const char *summary;
    pl_bench_shape shape[8]; /* one tensor each; batch 0 ends the list */
    int apart;               /* one tensor, a call for each matrix of its batch */
} pl_bench_set;

const pl_bench_set *pl_bench_set_at(int i); /* NULL past the end */

/* One call of the map over all tensors of the set (apart: all calls), f32 in and out. FLOPs are nominal:
 * steps (4 m^2 n + 2 m^3) a matrix, m the short side. */
polar_status pl_bench_map(pl_bench_row *out, pl_queue *q, const pl_bench_set *set, const polar_map_opts *o,
                          const pl_bench_peak_rates *peak);

/* Its ops, a row each, the longest first: as pl_bench_training_ops. */
polar_status pl_bench_map_ops(pl_bench_row *rows, int most, int *count, pl_queue *q, const pl_bench_set *set,
                              const polar_map_opts *o, const pl_bench_peak_rates *peak);

#endif
