/* cpu_lane_sums.h -- scratch memory of sums over rows, lane by lane (row_sum, layernorm_back), the same for
 * every instruction set. */
#ifndef PL_CPU_LANE_SUMS_H
#define PL_CPU_LANE_SUMS_H

#include "device/backend.h"
#include "math/lane_sum_elem.h"

/* Lanes of the sums over so many rows: one for each chunk, up to all. */
static inline int64_t pl_sum_lanes(int64_t rows)
{
    int64_t chunks = (rows + PL_SUM_CHUNK - 1) / PL_SUM_CHUNK;
    return chunks < PL_LANES ? chunks : PL_LANES;
}

/* sums dg and db of every lane */
size_t pl_cpu_layernorm_bytes(const pl_args_layernorm_back *a);
/* a long sum: every lane by itself, whole rows at a time */
int pl_row_sum_by_lanes(const pl_args_row_sum *a);
/* the sums of every lane, of all columns; 0 where there is no need */
size_t pl_cpu_row_sum_bytes(const pl_args_row_sum *a);

#endif
