/* f16_elem.h -- IEEE half precision: 11 bits, exponents -14 to 15, subnormals down to 2^-24; rounded to
 * nearest even.
 *
 * As iterates of Newton-Schulz, whose entries are at most about 1, it has three bits more than bf16. NaN
 * stays NaN (quiet), what rounds to 65520 or more becomes infinity.
 */
#ifndef PL_MATH_F16_ELEM_H
#define PL_MATH_F16_ELEM_H

#include "math/bf16_elem.h"

typedef uint16_t pl_f16; /* the bits */

PL_HD float pl_f16_to_f32(pl_f16 h)
{
    uint32_t u = (uint32_t)(h & 0x7fffu) << 13, special = (h & 0x7c00u) == 0x7c00u;
    float x;
    memcpy(&x, &u, sizeof x);
    x *= 0x1p112f; /* exact: the exponent's bias goes from 15 to 127 */
    memcpy(&u, &x, sizeof u);
    u = (special ? (uint32_t)(h & 0x7fffu) << 13 | 0x7f800000u : u) | (uint32_t)(h & 0x8000u) << 16;
    memcpy(&x, &u, sizeof x);
    return x;
}

PL_HD pl_f16 pl_f16_from_f32(float x)
{
    uint32_t u, sign, s;
    memcpy(&u, &x, sizeof u);
    sign = u >> 16 & 0x8000u;
    u &= 0x7fffffffu;
    float a;
    memcpy(&a, &u, sizeof a);
    float small = a + 0.5f; /* the last place of 0.5 is 2^-24, the unit of a subnormal half */
    memcpy(&s, &small, sizeof s);
    uint32_t normal = (u - 0x38000000u + 0xfffu + (u >> 13 & 1u)) >> 13;
    uint32_t h = u < 0x38800000u ? s - 0x3f000000u : normal;
    h = u >= 0x477ff000u ? 0x7c00u : h;                     /* from 65520 on */
    h = u > 0x7f800000u ? 0x7e00u | (u >> 13 & 0x3ffu) : h; /* NaN */
    return (pl_f16)(h | sign);
}

/* One rounding: by way of the float that is odd where something was lost. */
PL_HD pl_f16 pl_f16_from_f64(double x)
{
    return pl_f16_from_f32(pl_f32_odd(x));
}

#endif
