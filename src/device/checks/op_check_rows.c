/* op_check_rows.c -- groups of rows: what the ops demand of their operands, and their nominal FLOPs. */
#include "op_check.h"

polar_status pl_check_row_sum(const pl_args_row_sum *a)
{
    PL_NEED(a->Y.batch == a->X.batch && a->Y.cols == a->X.cols &&
                (a->Y.rows ? a->X.rows % a->Y.rows == 0 : a->X.rows == 0),
            POLAR_E_SHAPE, "row_sum: the rows of " SHAPE_FMT " do not fall into the groups of " SHAPE_FMT,
            SHAPE(a->X), SHAPE(a->Y));
    NEED_DISJOINT("row_sum", 1, &a->Y, &a->X);
    return POLAR_OK;
}

double pl_flops_row_sum(const pl_args_row_sum *a)
{
    return elements(&a->X) + elements(&a->Y);
}

polar_status pl_check_row_spread(const pl_args_row_spread *a)
{
    PL_NEED(a->Y.batch == a->X.batch && a->Y.cols == a->X.cols &&
                (a->X.rows ? a->Y.rows % a->X.rows == 0 : a->Y.rows == 0),
            POLAR_E_SHAPE,
            "row_spread: " SHAPE_FMT " does not repeat the rows of " SHAPE_FMT " equally often", SHAPE(a->Y),
            SHAPE(a->X));
    NEED_DISJOINT("row_spread", 1, &a->Y, &a->X);
    return POLAR_OK;
}

double pl_flops_row_spread(const pl_args_row_spread *a)
{
    return elements(&a->Y);
}

polar_status pl_check_scale_rows(const pl_args_scale_rows *a)
{
    PL_TRY(need_same_shape("scale_rows", "X", &a->Y, &a->X));
    PL_TRY(need_row_factors("scale_rows", &a->Y, &a->s));
    PL_TRY(need_apart("scale_rows", "X", &a->Y, &a->X));
    PL_TRY(need_addend("scale_rows", &a->Y, &a->Z));
    NEED_DISJOINT("scale_rows", 1, &a->Y, &a->s);
    return POLAR_OK;
}

double pl_flops_scale_rows(const pl_args_scale_rows *a)
{
    return (a->Z.data ? 2 : 1) * elements(&a->Y);
}
