/* op_check_loss.c -- losses: what the ops demand of their operands, and their nominal FLOPs. */
#include "op_check.h"

polar_status pl_check_mse(const pl_args_mse *a)
{
    PL_TRY(need_values("mse", "L", &a->L, 1));
    PL_NEED(a->P.cols == 1 && a->P.rows > 0, POLAR_E_SHAPE,
            "mse wants a column of predictions, got " SHAPE_FMT, SHAPE(a->P));
    PL_NEED(a->L.batch == a->P.batch, POLAR_E_SHAPE, "mse: %lld losses for %lld columns",
            (long long)a->L.batch, (long long)a->P.batch);
    PL_TRY(need_shape("mse", "Y", &a->Y, a->P.batch, a->P.rows, 1));
    if (a->dP.data) PL_TRY(need_shape("mse", "dP", &a->dP, a->P.batch, a->P.rows, 1));
    NEED_DISJOINT("mse", 2, &a->L, &a->dP, &a->P, &a->Y);
    return POLAR_OK;
}

double pl_flops_mse(const pl_args_mse *a)
{
    return (a->dP.data ? 4 : 3) * elements(&a->P);
}

polar_status pl_check_cross_entropy(const pl_args_cross_entropy *a)
{
    PL_TRY(need_values("cross_entropy", "L", &a->L, 1));
    PL_NEED(a->Z.rows > 0 && a->Z.cols > 0, POLAR_E_SHAPE,
            "cross_entropy wants rows of logits, got " SHAPE_FMT, SHAPE(a->Z));
    PL_NEED(a->L.batch == a->Z.batch, POLAR_E_SHAPE, "cross_entropy: %lld losses for %lld matrices of logits",
            (long long)a->L.batch, (long long)a->Z.batch);
    PL_TRY(need_shape("cross_entropy", "T", &a->T, a->Z.batch, a->Z.rows, a->Z.cols));
    if (a->dZ.data) PL_TRY(need_shape("cross_entropy", "dZ", &a->dZ, a->Z.batch, a->Z.rows, a->Z.cols));
    NEED_DISJOINT("cross_entropy", 2, &a->L, &a->dZ, &a->Z, &a->T);
    return POLAR_OK;
}

double pl_flops_cross_entropy(const pl_args_cross_entropy *a)
{
    return (a->dZ.data ? 9 : 6) * elements(&a->Z);
}
