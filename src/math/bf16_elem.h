/* bf16_elem.h -- bfloat16: the upper half of a float, rounded to nearest even.
 *
 * R() in docs/architecture.md is pl_bf16_round. NaN stays NaN (quiet), overflow rounds to infinity as IEEE
 * demands.
 */
#ifndef PL_MATH_BF16_ELEM_H
#define PL_MATH_BF16_ELEM_H

#include <stdint.h>
#include <string.h>

#include "math/hd.h"

typedef uint16_t pl_bf16; /* the bits */

PL_HD float pl_bf16_to_f32(pl_bf16 h)
{
    uint32_t u = (uint32_t)h << 16;
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* A float's bits, of which the upper half is x rounded. */
PL_HD uint32_t pl_bf16_above(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    uint32_t nan = (u & 0x7fffffffu) > 0x7f800000u;
    return nan ? u | 0x400000u : u + 0x7fffu + ((u >> 16) & 1u);
}

PL_HD pl_bf16 pl_bf16_from_f32(float x)
{
    return (pl_bf16)(pl_bf16_above(x) >> 16);
}

/* A double goes first to a float by "round to odd" (truncate, then set the last bit if anything was lost), so
 * that the second rounding sees that something was there: the result is that of one rounding. */
PL_HD float pl_f32_odd(double x)
{
    float f = (float)x;
    double back = (double)f;
    if (back != x && back - back == 0) { /* inexact and finite: move f toward zero, then make it odd */
        uint32_t u;
        memcpy(&u, &f, sizeof u);
        if ((x > 0 && back > x) || (x < 0 && back < x)) u -= 1;
        u |= 1u;
        memcpy(&f, &u, sizeof f);
    }
    return f;
}

PL_HD pl_bf16 pl_bf16_from_f64(double x)
{
    return pl_bf16_from_f32(pl_f32_odd(x));
}

/* Without a number of 16 bits on the way: loops of it stay in whole vectors. */
PL_HD float pl_bf16_round(float x)
{
    uint32_t u = pl_bf16_above(x) & 0xffff0000u;
    float y;
    memcpy(&y, &u, sizeof y);
    return y;
}

PL_HD double pl_bf16_round_f64(double x)
{
    return (double)pl_bf16_to_f32(pl_bf16_from_f64(x));
}

#endif
