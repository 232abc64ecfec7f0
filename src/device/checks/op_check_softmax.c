/* op_check_softmax.c -- softmax of rows: what the ops demand of their operands, and their nominal FLOPs. */
#include "op_check.h"

static polar_status need_scale(const char *op, double scale)
{
    PL_NEED(scale > 0, POLAR_E_ARG, "%s wants a positive scale, got %g", op, scale);
    return POLAR_OK;
}

polar_status pl_check_softmax(const pl_args_softmax *a)
{
    PL_TRY(need_scale("softmax", a->scale));
    PL_TRY(need_same_shape("softmax", "X", &a->Y, &a->X));
    return need_apart("softmax", "X", &a->Y, &a->X);
}

double pl_flops_softmax(const pl_args_softmax *a)
{
    return 6 * elements(&a->Y);
}

polar_status pl_check_softmax_back(const pl_args_softmax_back *a)
{
    PL_TRY(need_scale("softmax_back", a->scale));
    PL_TRY(need_same_shape("softmax_back", "Y", &a->dX, &a->Y));
    PL_TRY(need_same_shape("softmax_back", "dY", &a->dX, &a->dY));
    PL_TRY(need_apart("softmax_back", "dY", &a->dX, &a->dY));
    NEED_DISJOINT("softmax_back", 1, &a->dX, &a->Y);
    return POLAR_OK;
}

double pl_flops_softmax_back(const pl_args_softmax_back *a)
{
    return 5 * elements(&a->dX);
}
