/* op_check_pairs.c -- pairs of points: what the ops demand of their operands, and their nominal FLOPs. */
#include "op_check.h"

polar_status pl_check_pair_dist(const pl_args_pair_dist *a)
{
    PL_TRY(need_eps("pair_dist", a->eps, 0));
    PL_NEED(a->X.cols == 3, POLAR_E_SHAPE, "pair_dist wants points in three dimensions, got " SHAPE_FMT,
            SHAPE(a->X));
    PL_TRY(need_shape("pair_dist", "D", &a->D, a->X.batch, pairs_of(a->X.rows), 1));
    NEED_DISJOINT("pair_dist", 1, &a->D, &a->X);
    return POLAR_OK;
}

double pl_flops_pair_dist(const pl_args_pair_dist *a)
{
    return 10 * elements(&a->D);
}

/* X is a value of h channels per component and point of a cloud, W one per channel and pair. */
static polar_status need_pairs(const char *op, const pl_mat *X, const pl_mat *W, const char *name,
                               int64_t points)
{
    PL_NEED(points > 0 && X->rows % points == 0, POLAR_E_SHAPE,
            "%s: %lld rows are no whole number for each of %lld points", op, (long long)X->rows,
            (long long)points);
    return need_shape(op, name, W, X->batch, pairs_of(points), X->cols);
}

polar_status pl_check_pair_sum(const pl_args_pair_sum *a)
{
    PL_TRY(need_same_shape("pair_sum", "X", &a->Y, &a->X));
    PL_TRY(need_pairs("pair_sum", &a->X, &a->W, "W", a->points));
    NEED_DISJOINT("pair_sum", 1, &a->Y, &a->X, &a->W);
    if (!a->Z.data) return POLAR_OK;
    PL_TRY(need_same_shape("pair_sum", "Z", &a->Y, &a->Z));
    return need_apart("pair_sum", "Z", &a->Y, &a->Z);
}

double pl_flops_pair_sum(const pl_args_pair_sum *a)
{
    return (2 * (double)a->points + (a->Z.data ? 2 : 1)) * elements(&a->Y);
}

polar_status pl_check_pair_grad(const pl_args_pair_grad *a)
{
    PL_TRY(need_shape("pair_grad", "dY", &a->dY, a->X.batch, a->X.rows, a->X.cols));
    PL_TRY(need_pairs("pair_grad", &a->X, &a->dW, "dW", a->points));
    NEED_DISJOINT("pair_grad", 1, &a->dW, &a->dY, &a->X);
    return POLAR_OK;
}

double pl_flops_pair_grad(const pl_args_pair_grad *a)
{
    /* as many products as the sum has, each with its own pair */
    return 2 * (double)a->points * elements(&a->X) + elements(&a->dW);
}

/* Y a square of points, W a number for each pair of them. */
static polar_status need_square(const char *op, const pl_mat *Y, const pl_mat *W)
{
    PL_NEED(Y->rows == Y->cols, POLAR_E_SHAPE, "%s wants a square for each cloud, got " SHAPE_FMT, op,
            SHAPE(*Y));
    return need_shape(op, "W", W, Y->batch, pairs_of(Y->rows), 1);
}

polar_status pl_check_pair_square(const pl_args_pair_square *a)
{
    PL_TRY(need_square("pair_square", &a->Y, &a->W));
    NEED_DISJOINT("pair_square", 1, &a->Y, &a->W);
    return POLAR_OK;
}

double pl_flops_pair_square(const pl_args_pair_square *a)
{
    (void)a;
    return 0;
}

polar_status pl_check_pair_fold(const pl_args_pair_fold *a)
{
    PL_TRY(need_square("pair_fold", &a->Y, &a->W));
    NEED_DISJOINT("pair_fold", 1, &a->W, &a->Y);
    return POLAR_OK;
}

double pl_flops_pair_fold(const pl_args_pair_fold *a)
{
    return elements(&a->W);
}
