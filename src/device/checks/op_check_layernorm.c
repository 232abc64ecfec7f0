/* op_check_layernorm.c -- normalised rows: what the ops demand of their operands, and their nominal FLOPs. */
#include "op_check.h"

polar_status pl_check_layernorm(const pl_args_layernorm *a)
{
    PL_TRY(need_eps("layernorm", a->eps, 0));
    PL_TRY(need_same_shape("layernorm", "X", &a->Y, &a->X));
    PL_TRY(need_shape("layernorm", "S", &a->S, a->X.batch, a->X.rows, 2));
    PL_TRY(need_wide("layernorm", "S", &a->S));
    PL_TRY(need_row("layernorm", "g", &a->g, a->X.batch, a->X.cols));
    PL_TRY(need_row("layernorm", "b", &a->b, a->X.batch, a->X.cols));
    PL_TRY(need_apart("layernorm", "X", &a->Y, &a->X));
    NEED_DISJOINT("layernorm", 2, &a->Y, &a->S, &a->g, &a->b);
    NEED_DISJOINT("layernorm", 1, &a->S, &a->X);
    return POLAR_OK;
}

double pl_flops_layernorm(const pl_args_layernorm *a)
{
    return 8 * elements(&a->X); /* the mean 1, the variance 3, the result 4 */
}

polar_status pl_check_layernorm_back(const pl_args_layernorm_back *a)
{
    PL_TRY(need_same_shape("layernorm_back", "X", &a->dX, &a->X));
    PL_TRY(need_same_shape("layernorm_back", "dY", &a->dX, &a->dY));
    PL_TRY(need_shape("layernorm_back", "S", &a->S, a->X.batch, a->X.rows, 2));
    PL_TRY(need_wide("layernorm_back", "S", &a->S));
    PL_TRY(need_row("layernorm_back", "g", &a->g, a->X.batch, a->X.cols));
    PL_TRY(need_shape("layernorm_back", "dg", &a->dg, a->X.batch, 1, a->X.cols));
    PL_TRY(need_shape("layernorm_back", "db", &a->db, a->X.batch, 1, a->X.cols));
    PL_TRY(need_apart("layernorm_back", "dY", &a->dX, &a->dY));
    PL_TRY(need_addend("layernorm_back", &a->dX, &a->Z));
    if (a->dL.data) {
        PL_TRY(need_same_shape("layernorm_back", "dL", &a->dX, &a->dL));
        PL_TRY(need_apart("layernorm_back", "dY", &a->dL, &a->dY));
    }
    if (a->s.data) {
        PL_NEED(a->dL.data, POLAR_E_ARG, "layernorm_back: factors s are dL's, and there is no dL");
        PL_TRY(need_row_factors("layernorm_back", &a->dX, &a->s));
    }
    NEED_DISJOINT("layernorm_back", 4, &a->dX, &a->dg, &a->db, &a->dL, &a->X, &a->S, &a->g, &a->s);
    NEED_DISJOINT("layernorm_back", 2, &a->dg, &a->db, &a->dY, &a->Z);
    NEED_DISJOINT("layernorm_back", 1, &a->dL, &a->Z);
    return POLAR_OK;
}

double pl_flops_layernorm_back(const pl_args_layernorm_back *a)
{
    return (13 + (a->Z.data != NULL) + (a->s.data != NULL)) * elements(&a->X);
}
