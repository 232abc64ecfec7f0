/* activation_elem.h -- the element tier of the activations: activation.inc in float (_f32) and in double
 * (_f64), host and device. */
#ifndef PL_MATH_ACTIVATION_ELEM_H
#define PL_MATH_ACTIVATION_ELEM_H

#include "math/activation.h"
#include "math/exp_elem.h"
#include "math/normal_elem.h"

/* a where x's sign bit is clear, b where it is set. With ?: gcc 12 makes a branch around the product that
 * follows, and the loop stays scalar. */
PL_HD float pl_by_sign_f32(float x, float a, float b)
{
    uint32_t s, p, q;
    memcpy(&s, &x, sizeof s);
    memcpy(&p, &a, sizeof p);
    memcpy(&q, &b, sizeof q);
    s = 0u - (s >> 31);
    p = (p & ~s) | (q & s);
    memcpy(&a, &p, sizeof a);
    return a;
}

PL_HD double pl_by_sign_f64(double x, double a, double b)
{
    uint64_t s, p, q;
    memcpy(&s, &x, sizeof s);
    memcpy(&p, &a, sizeof p);
    memcpy(&q, &b, sizeof q);
    s = 0u - (s >> 63);
    p = (p & ~s) | (q & s);
    memcpy(&a, &p, sizeof a);
    return a;
}

#define REAL    float
#define FMA     fmaf
#define FABS    fabsf
#define NAME(f) f##_f32
#include "math/activation.inc"
#undef REAL
#undef FMA
#undef FABS
#undef NAME

#define REAL    double
#define FMA     fma
#define FABS    fabs
#define NAME(f) f##_f64
#include "math/activation.inc"
#undef REAL
#undef FMA
#undef FABS
#undef NAME

#endif
