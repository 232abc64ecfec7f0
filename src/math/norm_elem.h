/* norm_elem.h -- the power of two that keeps a sum of squares from under- and overflowing.
 *
 * amax is a matrix's largest magnitude. s = 2^-e with 2^e <= amax < 2^(e+1), clamped so that s itself, and x
 * s, stay finite and exact in the format computed in: every x s is then at most 4, its square sums safely in
 * double, and scaling the input by a power of two changes s by the inverse and nothing else.
 */
#ifndef PL_MATH_NORM_ELEM_H
#define PL_MATH_NORM_ELEM_H

#include <math.h>

#include "math/hd.h"

#define PL_SCALE_EXP_F32 126
#define PL_SCALE_EXP_F64 1022

PL_HD double pl_norm_scale(double amax, int exp_limit)
{
    if (!(amax > 0) || amax - amax != 0) return 1.0; /* zero, NaN or infinite: the norm will tell */
    int e = ilogb(amax);
    if (e > exp_limit) e = exp_limit;
    if (e < -exp_limit) e = -exp_limit;
    return ldexp(1.0, -e);
}

#endif
