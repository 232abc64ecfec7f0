/* op_check.h -- what the checks of ops have in common. An op has pl_check_<op>, what it demands of its
 * operands, and pl_flops_<op>, its nominal FLOPs: e^x, a logarithm, a root and a quotient count as one each.
 */
#ifndef PL_DEVICE_OP_CHECK_H
#define PL_DEVICE_OP_CHECK_H

#include "base/status.h"
#include "device/ops.h"

#define SHAPE(m)  (long long)(m).batch, (long long)(m).rows, (long long)(m).cols
#define SHAPE_FMT "%lldx%lldx%lld"

static inline double elements(const pl_mat *m)
{
    return (double)m->batch * (double)m->rows * (double)m->cols;
}

static inline polar_status need_same_shape(const char *op, const char *name, const pl_mat *y, const pl_mat *x)
{
    PL_NEED(pl_mat_same_shape(y, x), POLAR_E_SHAPE,
            "%s wants %s as large as its result, got " SHAPE_FMT " for " SHAPE_FMT, op, name, SHAPE(*x),
            SHAPE(*y));
    return POLAR_OK;
}

/* A fixed row of f64 values per matrix (norms), or of live values. */
static inline polar_status need_values(const char *op, const char *name, const pl_mat *m, int64_t cols)
{
    PL_NEED(m->dtype == POLAR_DTYPE_F64, POLAR_E_DTYPE, "%s wants %s in f64", op, name);
    PL_NEED(m->rows == 1 && m->cols == cols, POLAR_E_SHAPE, "%s wants %lld values in %s, got " SHAPE_FMT, op,
            (long long)cols, name, SHAPE(*m));
    return POLAR_OK;
}

/* An elementwise result may stand where an operand stands, element on element, or elsewhere; not in between.
 */
static inline polar_status need_apart(const char *op, const char *name, const pl_mat *y, const pl_mat *x)
{
    int same = y->data == x->data && y->dtype == x->dtype && y->bs == x->bs && y->rs == x->rs;
    PL_NEED(same || !pl_mat_overlap(y, x), POLAR_E_ARG, "%s: the result overlaps %s without being it", op,
            name);
    return POLAR_OK;
}

static inline polar_status need_shape(const char *op, const char *name, const pl_mat *m, int64_t batch,
                                      int64_t rows, int64_t cols)
{
    PL_NEED(m->batch == batch && m->rows == rows && m->cols == cols, POLAR_E_SHAPE,
            "%s wants %s to be " SHAPE_FMT ", got " SHAPE_FMT, op, name, (long long)batch, (long long)rows,
            (long long)cols, SHAPE(*m));
    return POLAR_OK;
}

/* A row of values, one for all matrices or one for each. */
static inline polar_status need_row(const char *op, const char *name, const pl_mat *m, int64_t batch,
                                    int64_t cols)
{
    PL_NEED(m->rows == 1 && m->cols == cols && (m->batch == 1 || m->batch == batch), POLAR_E_SHAPE,
            "%s wants %s to be %lldx1x%lld or 1x1x%lld, got " SHAPE_FMT, op, name, (long long)batch,
            (long long)cols, (long long)cols, SHAPE(*m));
    return POLAR_OK;
}

/* None of the first `results` of n operands meets another of the n. Absent ones meet nobody. */
static inline polar_status need_disjoint(const char *op, const pl_mat *const *m, int results, int n)
{
    for (int i = 0; i < results; i++)
        for (int k = 0; k < n; k++)
            PL_NEED(k == i || !m[i]->data || !m[k]->data || !pl_mat_overlap(m[i], m[k]), POLAR_E_ARG,
                    "%s: the result overlaps another operand", op);
    return POLAR_OK;
}
#define NEED_DISJOINT(op, results, ...)                                     \
    PL_TRY(need_disjoint(op, (const pl_mat *const[]){__VA_ARGS__}, results, \
                         (int)(sizeof((const pl_mat *const[]){__VA_ARGS__}) / sizeof(pl_mat *))))

static inline polar_status need_eps(const char *op, double eps, int positive)
{
    PL_NEED(positive ? eps > 0 : eps >= 0, POLAR_E_ARG, "%s wants %s eps, got %g", op,
            positive ? "a positive" : "a non-negative", eps);
    return POLAR_OK;
}

/* Live values: one row for all matrices, or one for each. */
static inline polar_status need_live(const char *op, const pl_mat *y, const pl_mat *live)
{
    PL_TRY(need_values(op, "live", live, PL_LIVE_COLS));
    PL_NEED(live->batch == 1 || live->batch == y->batch, POLAR_E_SHAPE,
            "%s: %lld rows of live values for %lld matrices", op, (long long)live->batch,
            (long long)y->batch);
    return POLAR_OK;
}

/* The numbers of a rule, and V as they want it. */
static inline polar_status need_rule(const char *op, int64_t momentum, int64_t precondition, const pl_mat *V)
{
    PL_NEED(momentum >= 0 && momentum < PL_MOMENTUM_COUNT, POLAR_E_ARG, "%s: no momentum has the number %lld",
            op, (long long)momentum);
    PL_NEED(precondition >= POLAR_PRECONDITION_NONE && precondition <= POLAR_PRECONDITION_LAPROP, POLAR_E_ARG,
            "%s: no preconditioner has the number %lld", op, (long long)precondition);
    PL_NEED(!precondition || V->data || V->batch * V->rows * V->cols == 0, POLAR_E_ARG,
            "%s: the preconditioner keeps a second moment, and V has no data", op);
    PL_NEED(precondition || !V->data, POLAR_E_ARG,
            "%s: a second moment is given, and no preconditioner that keeps one", op);
    return POLAR_OK;
}

static inline polar_status need_act(const char *op, int64_t act)
{
    PL_NEED(act >= 0 && act < PL_ACT_COUNT, POLAR_E_ARG, "%s: no activation has the number %lld", op,
            (long long)act);
    return POLAR_OK;
}

/* Statistics of rows: f32 or f64. */
static inline polar_status need_wide(const char *op, const char *name, const pl_mat *m)
{
    PL_NEED(m->dtype != POLAR_DTYPE_BF16, POLAR_E_DTYPE, "%s wants %s in f32 or f64", op, name);
    return POLAR_OK;
}

/* Z, where there is one, is as large as the result and stands apart from it or in its place. */
static inline polar_status need_addend(const char *op, const pl_mat *Y, const pl_mat *Z)
{
    if (!Z->data) return POLAR_OK;
    PL_TRY(need_same_shape(op, "Z", Y, Z));
    return need_apart(op, "Z", Y, Z);
}

/* A factor for each group of Y's rows. */
static inline polar_status need_row_factors(const char *op, const pl_mat *Y, const pl_mat *s)
{
    PL_NEED(s->batch == Y->batch && s->cols == 1 && (s->rows ? Y->rows % s->rows == 0 : Y->rows == 0),
            POLAR_E_SHAPE,
            "%s: the rows of " SHAPE_FMT " do not fall into the groups of " SHAPE_FMT " factors", op,
            SHAPE(*Y), SHAPE(*s));
    return POLAR_OK;
}

/* i <= j */
static inline int64_t pairs_of(int64_t points)
{
    return points * (points + 1) / 2;
}

#endif
