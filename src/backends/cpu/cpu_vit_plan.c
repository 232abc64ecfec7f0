/* cpu_vit_plan.c -- see cpu_vit.h. */
#include "cpu_attention.h"
#include "cpu_vit.h"

size_t pl_cpu_layernorm_bytes(const pl_args_layernorm_back *a)
{
    int64_t lanes = pl_layernorm_lanes(a->X.rows);
    return (size_t)(a->X.batch * (lanes ? lanes : 1) * 2 * a->X.cols) * sizeof(double);    /* double serves float too */
}

size_t pl_cpu_vit_scratch(pl_op_id id, const void *args, int threads)
{
    if (id == PL_OP_attention || id == PL_OP_attention_back) return pl_cpu_attention_scratch(id, args, threads);
    return id == PL_OP_layernorm_back ? pl_cpu_layernorm_bytes(args) : 0;
}
