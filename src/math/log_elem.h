/* log_elem.h -- the natural logarithm in double: the same bits from every compiler and device, without libm
 * and without a branch.
 *
 *     x = 2^n m,  sqrt(1/2) <= m < sqrt 2,   f = m - 1,  s = f / (2 + f):
 *     log m = 2 atanh(s) = f - (f^2 / 2 - s (f^2 / 2 + R)),   R = s^2 p(s^2)
 *
 * p interpolates at Chebyshev's points (7 terms, 2^-57.5). ln 2 is split so that n times the first part is
 * exact. For x from the smallest normal double on; NaN for NaN and infinity. Below 1 ulp where measured
 * (test_elem_gelu).
 */
#ifndef PL_MATH_LOG_ELEM_H
#define PL_MATH_LOG_ELEM_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "math/hd.h"

PL_HD double pl_log_f64(double x)
{
    uint64_t bits, up;
    memcpy(&bits, &x, sizeof bits);
    /* the exponent goes up where m would pass sqrt 2 */
    up = bits + (0x3ff0000000000000ull - 0x3fe6a09e667f3bcdull);
    double n = (double)((int64_t)(up >> 52) - 1023), m;
    bits = (up & 0x000fffffffffffffull) + 0x3fe6a09e667f3bcdull;
    memcpy(&m, &bits, sizeof m);
    double f = m - 1.0, s = f / (2.0 + f), z = s * s, half = 0.5 * f * f;
    double p = 0x1.2b5f68a50d903p-3;
    p = fma(p, z, 0x1.39fdcceb4bb45p-3);
    p = fma(p, z, 0x1.7462b91b8df65p-3);
    p = fma(p, z, 0x1.c71c62d5e53ep-3);
    p = fma(p, z, 0x1.2492492dfd86cp-2);
    p = fma(p, z, 0x1.9999999995273p-2);
    p = fma(p, z, 0x1.5555555555558p-1);
    double small = fma(n, 0x1.ef35793c7673p-45, s * fma(p, z, half));
    return fma(n, 0x1.62e42fefa38p-1, f - (half - small)) + (x - x);
}

#endif
