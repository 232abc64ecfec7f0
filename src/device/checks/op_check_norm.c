/* op_check_norm.c -- Frobenius norms: what the ops demand of their operands, and their nominal FLOPs. */
#include "op_check.h"

polar_status pl_check_frob(const pl_args_frob *a)
{
    PL_TRY(need_values("frob", "N", &a->N, 2));
    PL_NEED(a->N.batch == a->X.batch, POLAR_E_SHAPE, "frob: %lld norms for %lld matrices",
            (long long)a->N.batch, (long long)a->X.batch);
    PL_NEED(a->weight > 0, POLAR_E_ARG, "frob wants a positive weight, got %g", a->weight);
    return POLAR_OK;
}

double pl_flops_frob(const pl_args_frob *a)
{
    return 3 * elements(&a->X);
}

polar_status pl_check_frob_join(const pl_args_frob_join *a)
{
    PL_TRY(need_values("frob_join", "N", &a->N, 2));
    PL_TRY(need_values("frob_join", "M", &a->M, 2));
    PL_NEED(a->N.batch == 1, POLAR_E_SHAPE, "frob_join joins into one norm, got room for %lld",
            (long long)a->N.batch);
    return POLAR_OK;
}

double pl_flops_frob_join(const pl_args_frob_join *a)
{
    return 3 * (double)a->M.batch;
}
