/* cpu_lane_sums.c -- see cpu_lane_sums.h. */
#include "cpu_lane_sums.h"

size_t pl_cpu_layernorm_bytes(const pl_args_layernorm_back *a)
{
    int64_t lanes = pl_sum_lanes(a->X.rows);
    /* double serves float too */
    return (size_t)(a->X.batch * (lanes ? lanes : 1) * 2 * a->X.cols) * sizeof(double);
}

int pl_row_sum_by_lanes(const pl_args_row_sum *a)
{
    return a->Y.rows > 0 && a->X.rows / a->Y.rows > 4 * PL_SUM_CHUNK;
}

size_t pl_cpu_row_sum_bytes(const pl_args_row_sum *a)
{
    return pl_row_sum_by_lanes(a)
               ? (size_t)(a->Y.batch * a->Y.rows * pl_sum_lanes(a->X.rows / a->Y.rows) * a->Y.cols) *
                     sizeof(double)
               : 0;
}
