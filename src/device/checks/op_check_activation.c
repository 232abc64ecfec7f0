/* op_check_activation.c -- activations with their bias: what the ops demand of their operands, and their
 * nominal FLOPs. */
#include "op_check.h"

polar_status pl_check_bias_act(const pl_args_bias_act *a)
{
    PL_TRY(need_act("bias_act", a->act));
    PL_TRY(need_same_shape("bias_act", "X", &a->Y, &a->X));
    PL_TRY(need_apart("bias_act", "X", &a->Y, &a->X));
    if (!a->b.data) return POLAR_OK;
    PL_TRY(need_row("bias_act", "b", &a->b, a->Y.batch, a->Y.cols));
    NEED_DISJOINT("bias_act", 1, &a->Y, &a->b);
    return POLAR_OK;
}

double pl_flops_bias_act(const pl_args_bias_act *a)
{
    static const double act[PL_ACT_COUNT] = {
        [PL_ACT_NONE] = 0, [PL_ACT_SILU] = 4, [PL_ACT_SIGMOID] = 3, [PL_ACT_GELU] = 4};
    return a->act < 0 || a->act >= PL_ACT_COUNT ? 0 : (act[a->act] + (a->b.data ? 1 : 0)) * elements(&a->Y);
}

polar_status pl_check_bias_act_back(const pl_args_bias_act_back *a)
{
    PL_TRY(need_act("bias_act_back", a->act));
    PL_TRY(need_same_shape("bias_act_back", "X", &a->dX, &a->X));
    PL_TRY(need_same_shape("bias_act_back", "dY", &a->dX, &a->dY));
    PL_TRY(need_apart("bias_act_back", "X", &a->dX, &a->X));
    PL_TRY(need_apart("bias_act_back", "dY", &a->dX, &a->dY));
    if (!a->b.data) return POLAR_OK;
    PL_TRY(need_row("bias_act_back", "b", &a->b, a->dX.batch, a->dX.cols));
    NEED_DISJOINT("bias_act_back", 1, &a->dX, &a->b);
    return POLAR_OK;
}

double pl_flops_bias_act_back(const pl_args_bias_act_back *a)
{
    static const double slope[PL_ACT_COUNT] = {
        [PL_ACT_NONE] = 0, [PL_ACT_SILU] = 8, [PL_ACT_SIGMOID] = 6, [PL_ACT_GELU] = 8};
    return a->act < 0 || a->act >= PL_ACT_COUNT ? 0
                                                : (slope[a->act] + (a->b.data ? 1 : 0)) * elements(&a->dX);
}
