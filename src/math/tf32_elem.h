/* tf32_elem.h -- tf32: a float with 10 bits of mantissa, as tensor cores read the factors of a product.
 *
 * Rounded to nearest, ties away from zero, as cvt.rna.tf32.f32 does it; overflow rounds to infinity, NaN
 * stays NaN. A product of two has at most 22 bits and is exact in a float, so a product of matrices in tf32
 * is that of the rounded factors in f32, summed in whatever order.
 */
#ifndef PL_MATH_TF32_ELEM_H
#define PL_MATH_TF32_ELEM_H

#include <stdint.h>
#include <string.h>

#include "math/hd.h"

PL_HD float pl_tf32_round(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    uint32_t nan = (u & 0x7fffffffu) > 0x7f800000u;
    u = nan ? u | 0x00400000u : (u + 0x1000u) & ~0x1fffu; /* half of the last place that stays, then cut */
    memcpy(&x, &u, sizeof x);
    return x;
}

#endif
