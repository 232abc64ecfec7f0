/* op_model_impl.h -- what the models have in common (op_model.c, op_model_nn.c). */
#ifndef PL_VERIFY_OP_MODEL_IMPL_H
#define PL_VERIFY_OP_MODEL_IMPL_H

#include <math.h>

#include "op_model.h"

static inline pl_iv at(const pl_op_run *r, int o, int64_t b, int64_t i, int64_t j)
{
    return pl_iv_point(pl_op_run_before(r, o, b, i, j));
}

/* A scalar or live value: as given, or rounded to the compute format. */
static inline pl_iv scalar(double x, polar_dtype ct)
{
    return pl_iv_in(pl_iv_point(x), ct);
}

/* fma(a, x, y), rounded */
static inline pl_iv fused(pl_iv a, pl_iv x, pl_iv y, polar_dtype ct)
{
    return pl_iv_in(pl_iv_add(pl_iv_mul(a, x), y), ct);
}

static inline pl_iv product(pl_iv a, pl_iv b, polar_dtype ct)
{
    return pl_iv_in(pl_iv_mul(a, b), ct);
}

static inline pl_iv sum(pl_iv a, pl_iv b, polar_dtype ct)
{
    return pl_iv_in(pl_iv_add(a, b), ct);
}

static inline pl_iv negative(pl_iv x)
{
    return (pl_iv){-x.hi, -x.lo, x.any};
}

static inline int is_small_whole(double x)
{
    return fabs(x) < 1048576 && x == (double)(int)x;
}

/* pl_op_model of the layers' ops */
pl_iv pl_nn_model(const pl_op_run *r, int operand, int64_t b, int64_t i, int64_t j, polar_dtype ct);
/* and of the transformer's */
pl_iv pl_vit_model(const pl_op_run *r, int operand, int64_t b, int64_t i, int64_t j, polar_dtype ct);

#endif
