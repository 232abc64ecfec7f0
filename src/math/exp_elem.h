/* exp_elem.h -- e^x in float and in double: the same bits from every compiler and device, without libm and
 * without a branch.
 *
 *     x = n ln 2 + r,  |r| <= ln 2 / 2,     e^x = 2^n (1 + (r + r^2 q(r)))
 *
 * n comes from adding 1.5 2^23 (1.5 2^52): the sum's last bits are the nearest whole number. ln 2 is split in
 * two so that n times the first part is exact, and so is x less that product. q is the minimax polynomial of
 * the relative error on |r| <= 0.347 (Remez; 2^-28.2 with 5 terms, 2^-57.9 with 10). 2^n is multiplied on as
 * two powers, so that only the last product rounds, overflows or underflows. Error below 1.57 ulp (derived
 * and measured in test_elem_sigmoid: 0.95 and 1.01). e^x is infinite from the overflow threshold on, 0 below
 * half of the smallest denormal, and NaN for NaN.
 */
#ifndef PL_MATH_EXP_ELEM_H
#define PL_MATH_EXP_ELEM_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "math/hd.h"

PL_HD float pl_exp_f32(float x)
{
    const float whole = 0x1.8p23f;
    x = x > 89.0f ? 89.0f : x; /* a NaN passes both */
    x = x < -104.0f ? -104.0f : x;
    float t = fmaf(x, 0x1.715476p0f, whole), n = t - whole;
    float r = fmaf(n, -0x1.7f7d1cp-20f, fmaf(n, -0x1.62e4p-1f, x));
    float q = 0x1.6a2352p-10f;
    q = fmaf(q, r, 0x1.123a6cp-7f);
    q = fmaf(q, r, 0x1.5558f4p-5f);
    q = fmaf(q, r, 0x1.55549p-3f);
    q = fmaf(q, r, 0x1.fffffcp-2f);
    q = fmaf(r * r, q, r) + 1.0f;
    uint32_t bits, half;
    memcpy(&bits, &t, sizeof bits);
    bits = bits - 0x4b400000u + 256u; /* n + 256 */
    half = bits >> 1;
    bits = (bits - half - 1u) << 23;
    half = (half - 1u) << 23;
    float a, b;
    memcpy(&a, &half, sizeof a);
    memcpy(&b, &bits, sizeof b);
    return q * a * b;
}

PL_HD double pl_exp_f64(double x)
{
    const double whole = 0x1.8p52;
    x = x > 710.0 ? 710.0 : x; /* a NaN passes both */
    x = x < -746.0 ? -746.0 : x;
    double t = fma(x, 0x1.71547652b82fep0, whole), n = t - whole;
    double r = fma(n, -0x1.3de6af278ece6p-42, fma(n, -0x1.62e42fefa3p-1, x));
    double q = 0x1.ad7f02a6aa9ap-26;
    q = fma(q, r, 0x1.28adce726e39p-22);
    q = fma(q, r, 0x1.71df262c47695p-19);
    q = fma(q, r, 0x1.a01999adcc22fp-16);
    q = fma(q, r, 0x1.a01a0129b4608p-13);
    q = fma(q, r, 0x1.6c16c1844b015p-10);
    q = fma(q, r, 0x1.1111111127e83p-7);
    q = fma(q, r, 0x1.55555555507f1p-5);
    q = fma(q, r, 0x1.55555555554f9p-3);
    q = fma(q, r, 0x1.000000000000ap-1);
    q = fma(r * r, q, r) + 1.0;
    uint64_t bits, half;
    memcpy(&bits, &t, sizeof bits);
    bits = bits - 0x4338000000000000ull + 2048u; /* n + 2048 */
    half = bits >> 1;
    bits = (bits - half - 1u) << 52;
    half = (half - 1u) << 52;
    double a, b;
    memcpy(&a, &half, sizeof a);
    memcpy(&b, &bits, sizeof b);
    return q * a * b;
}

#endif
