/* op_model_impl.h -- what the models have in common (op_expect_<noun>.c). */
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

static const __attribute__((unused)) pl_iv anything = {-INFINITY, INFINITY, 1};

/* operand o is there */
static inline int has(const pl_op_run *r, int o)
{
    return r->buffer_of[o] >= 0;
}

typedef enum { SIGMOID, SIGMOID_SLOPE, SILU, SILU_SLOPE, GELU, GELU_SLOPE } curve;

/* f over x, activations and their slopes (op_expect_activation.c) */
pl_iv pl_model_curve(curve f, pl_iv x, polar_dtype ct);

/* What entry (b, i, j) of result o of an op may be, ct the format computed in: pl_model_<op>. */
#define MODEL(op)                                                                             \
    pl_iv pl_model_##op(const pl_op_run *r, __attribute__((unused)) int o,                    \
                        __attribute__((unused)) int64_t b, __attribute__((unused)) int64_t i, \
                        __attribute__((unused)) int64_t j, __attribute__((unused)) polar_dtype ct)
#define PL_OP(name, out, inout, in, ...) MODEL(name);
#define PL_FUSED(name, out, inout, in, ...)
#include "device/ops.def"

#endif
