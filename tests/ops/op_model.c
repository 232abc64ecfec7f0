/* op_model.c -- see op_model.h. The models, letters as in ops.def: op_model_<noun>.c. */
#include "op_model_impl.h"

typedef pl_iv (*model_fn)(const pl_op_run *r, int o, int64_t b, int64_t i, int64_t j, polar_dtype ct);

static const model_fn models[PL_OP_COUNT] = {
#define PL_OP(name, out, inout, in, ...)    [PL_OP_##name] = pl_model_##name,
#define PL_FUSED(name, out, inout, in, ...) /* held against its composition elsewhere */
#include "device/ops.def"
#undef PL_OP
};

pl_iv pl_op_model(const pl_op_run *r, int operand, int64_t b, int64_t i, int64_t j)
{
    if (pl_op_run_left_out(r, b)) return at(r, operand, b, i, j);
    return models[r->c.op](r, operand, b, i, j, pl_op_case_compute(&r->c));
}
