/* op_check.h -- what the checks of ops have in common (op_check.c, op_check_nn.c). */
#ifndef PL_DEVICE_OP_CHECK_H
#define PL_DEVICE_OP_CHECK_H

#include "base/status.h"
#include "device/ops.h"

#define SHAPE(m) (long long)(m).batch, (long long)(m).rows, (long long)(m).cols
#define SHAPE_FMT "%lldx%lldx%lld"

static inline double elements(const pl_mat *m)
{
    return (double)m->batch * (double)m->rows * (double)m->cols;
}

static inline polar_status need_same_shape(const char *op, const char *name, const pl_mat *y, const pl_mat *x)
{
    PL_NEED(pl_mat_same_shape(y, x), POLAR_E_SHAPE, "%s wants %s as large as its result, got " SHAPE_FMT " for " SHAPE_FMT, op, name, SHAPE(*x), SHAPE(*y));
    return POLAR_OK;
}

/* A fixed row of f64 values per matrix (norms), or of live values. */
static inline polar_status need_values(const char *op, const char *name, const pl_mat *m, int64_t cols)
{
    PL_NEED(m->dtype == POLAR_DTYPE_F64, POLAR_E_DTYPE, "%s wants %s in f64", op, name);
    PL_NEED(m->rows == 1 && m->cols == cols, POLAR_E_SHAPE, "%s wants %lld values in %s, got " SHAPE_FMT, op, (long long)cols, name, SHAPE(*m));
    return POLAR_OK;
}

/* An elementwise result may stand where an operand stands, element on element, or elsewhere; not in between. */
static inline polar_status need_apart(const char *op, const char *name, const pl_mat *y, const pl_mat *x)
{
    int same = y->data == x->data && y->dtype == x->dtype && y->bs == x->bs && y->rs == x->rs;
    PL_NEED(same || !pl_mat_overlap(y, x), POLAR_E_ARG, "%s: the result overlaps %s without being it", op, name);
    return POLAR_OK;
}

#endif
