/* cpu_vit_plan.c -- see cpu_vit.h. */
#include "cpu_attention.h"
#include "cpu_vit.h"

size_t pl_cpu_layernorm_bytes(const pl_args_layernorm_back *a)
{
    int64_t lanes = pl_layernorm_lanes(a->X.rows);
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
               ? (size_t)(a->Y.batch * a->Y.rows * pl_layernorm_lanes(a->X.rows / a->Y.rows) * a->Y.cols) *
                     sizeof(double)
               : 0;
}

size_t pl_cpu_vit_scratch(pl_op_id id, const void *args, int threads)
{
    if (id == PL_OP_attention || id == PL_OP_attention_back)
        return pl_cpu_attention_scratch(id, args, threads);
    if (id == PL_OP_row_sum) return pl_cpu_row_sum_bytes(args);
    return id == PL_OP_layernorm_back ? pl_cpu_layernorm_bytes(args) : 0;
}
