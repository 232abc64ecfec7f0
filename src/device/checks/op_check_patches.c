/* op_check_patches.c -- pictures cut into squares: what the ops demand of their operands, and their nominal
 * FLOPs. */
#include "op_check.h"

polar_status pl_check_patches(const pl_args_patches *a)
{
    int64_t p = a->patch;
    PL_NEED(p > 0 && a->height > 0 && a->width > 0 && a->height % p == 0 && a->width % p == 0, POLAR_E_SHAPE,
            "patches: a picture of %lldx%lld does not fall into patches of %lldx%lld", (long long)a->height,
            (long long)a->width, (long long)p, (long long)p);
    PL_NEED(a->X.cols == a->width && a->X.rows % a->height == 0, POLAR_E_SHAPE,
            "patches: " SHAPE_FMT " holds no channels of %lldx%lld", SHAPE(a->X), (long long)a->height,
            (long long)a->width);
    PL_TRY(need_shape("patches", "Y", &a->Y, a->X.batch, a->height / p * (a->width / p),
                      a->X.rows / a->height * p * p));
    NEED_DISJOINT("patches", 1, &a->Y, &a->X);
    return POLAR_OK;
}

double pl_flops_patches(const pl_args_patches *a)
{
    (void)a;
    return 0;
}
