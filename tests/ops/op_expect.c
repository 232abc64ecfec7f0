/* op_expect.c -- what is expected of every op, by its number: its model (op_model.h), its wrong ops and calls
 * (op_calls.h). They stand in op_expect_<noun>.c, letters as in ops.def.
 */
#include "op_calls.h"
#include "op_model_impl.h"

typedef pl_iv (*model_fn)(const pl_op_run *r, int o, int64_t b, int64_t i, int64_t j, polar_dtype ct);

static const struct {
    model_fn model;
    const op_calls *calls;
} expected[PL_OP_COUNT] = {
#define PL_OP(name, out, inout, in, ...)    [PL_OP_##name] = {pl_model_##name, &pl_calls_##name},
#define PL_FUSED(name, out, inout, in, ...) /* held against its composition elsewhere */
#include "device/ops.def"
};

pl_iv pl_op_model(const pl_op_run *r, int operand, int64_t b, int64_t i, int64_t j)
{
    if (pl_op_run_left_out(r, b)) { /* factors, the first result of their ops, are 1; all else is as it was */
        const int factors = r->c.op == PL_OP_line_factors || r->c.op == PL_OP_norm_moment;
        return factors && operand == 0 ? pl_iv_point(1) : at(r, operand, b, i, j);
    }
    return expected[r->c.op].model(r, operand, b, i, j, pl_op_case_compute(&r->c));
}

const op_calls *pl_op_calls(pl_op_id op)
{
    return expected[op].calls;
}
