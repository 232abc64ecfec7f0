/* op_check_pictures.c -- pictures made and mixed on the device: what the ops demand of their operands, and
 * their nominal FLOPs. */
#include "math/augment_elem.h"
#include "op_check.h"

static polar_status need_pictures(const char *op, const char *name, const pl_mat *m)
{
    int packed = m->rs == m->cols && (m->batch <= 1 || m->bs == m->rows * m->cols);
    PL_NEED(m->dtype == POLAR_DTYPE_F32, POLAR_E_DTYPE, "%s wants %s in f32", op, name);
    PL_NEED(m->rows == 3 * m->cols && packed, POLAR_E_SHAPE,
            "%s wants %s to be packed pictures (n, 3 side, side), got " SHAPE_FMT, op, name, SHAPE(*m));
    return POLAR_OK;
}

polar_status pl_check_augment(const pl_args_augment *a)
{
    PL_TRY(need_pictures("augment", "Y", &a->Y));
    PL_TRY(need_shape("augment", "T", &a->T, 1, a->Y.batch, PL_AUG_COLS));
    PL_TRY(need_shape("augment", "N", &a->N, 1, 3, 256));
    PL_TRY(need_shape("augment", "P", &a->P, 1, 1, a->P.cols));
    PL_NEED(a->T.dtype == POLAR_DTYPE_F64 && a->N.dtype == POLAR_DTYPE_F32 && a->P.dtype == POLAR_DTYPE_F32,
            POLAR_E_DTYPE, "augment wants T in f64, N and P in f32");
    PL_NEED(a->N.rs == 256 && a->height > 0 && a->height < PL_AUG_SIDE_MOST && a->taps > 0 &&
                a->taps < PL_AUG_SIDE_MOST,
            POLAR_E_ARG, "augment: boxes of %lld rows, %lld weights", (long long)a->height,
            (long long)a->taps);
    NEED_DISJOINT("augment", 1, &a->Y, &a->P, &a->T, &a->N);
    return POLAR_OK;
}

/* Two passes of three weights at least. */
double pl_flops_augment(const pl_args_augment *a)
{
    return 12 * elements(&a->Y);
}

polar_status pl_check_mix(const pl_args_mix *a)
{
    PL_TRY(need_pictures("mix", "X", &a->X));
    PL_NEED(a->X.batch % 2 == 0, POLAR_E_SHAPE, "mix pairs pictures: %lld is an odd number",
            (long long)a->X.batch);
    int64_t side = a->X.cols;
    int inside = a->x >= 0 && a->y >= 0 && a->width >= 0 && a->height >= 0 && a->x <= side - a->width &&
                 a->y <= side - a->height;
    PL_NEED(a->mixup || inside, POLAR_E_ARG, "mix: the rectangle does not lie in pictures of %lld x %lld",
            (long long)side, (long long)side);
    return POLAR_OK;
}

double pl_flops_mix(const pl_args_mix *a)
{
    return a->mixup ? 3 * elements(&a->X) : 0;
}
