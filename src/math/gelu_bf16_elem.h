/* gelu_bf16_elem.h -- gelu and its slope together, as exact as a result in bf16 deserves: without a branch,
 * without a quotient, the same bits from every compiler.
 *
 *     Phi(-t) = e^(-t^2 / 2) h(t),   gelu(x) = x Phi(x),   gelu'(x) = Phi(x) + x e^(-x^2 / 2) / sqrt(2 pi)
 *
 * h is a polynomial of degree 8 on [0, 5] (relative error 2^-13.06 below 3, 2^-12.87 near 5, where its
 * coefficients' rounding counts), constant beyond; e^(-t^2 / 2) = 2^(n + f) with a polynomial of degree 3 for
 * 2^f, |f| <= 1/2 (2^-13.7). The sums' own rounding comes to 2^-15 near 5. Together: Phi(-t), hence gelu,
 * below 2^-12 of itself where |x| <= 5 (2^-12.05 is the most of all floats there) and below 2^-25 beyond,
 * where Phi(-5) = 2^-21.7 is the most there is; the slope below 2^-13 (test_gemm_act measures these, every
 * bf16 among its places). normal_elem.h has the exact ones, at twice the price.
 */
#ifndef PL_MATH_GELU_BF16_ELEM_H
#define PL_MATH_GELU_BF16_ELEM_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "math/hd.h"

/* Of two numbers of one sign the nearer to zero, of two signs the positive one, compared as whole numbers,
 * which is one instruction of a vector; not for NaN. */
PL_HD float pl_nearer_zero(float x, float y)
{
    uint32_t a, b;
    memcpy(&a, &x, sizeof a);
    memcpy(&b, &y, sizeof b);
    a = a < b ? a : b;
    memcpy(&x, &a, sizeof x);
    return x;
}

/* The tail over the bell, Phi(-u) e^(u^2 / 2), for 0 <= u <= 5. */
PL_HD float pl_gelu_bf16_tail(float u)
{
    float p = 0x1.8496d6p-18f;
    p = fmaf(p, u, -0x1.30bf9ap-13f);
    p = fmaf(p, u, 0x1.9f006cp-10f);
    p = fmaf(p, u, -0x1.451c1ap-7f);
    p = fmaf(p, u, 0x1.49ccf8p-5f);
    p = fmaf(p, u, -0x1.d3a23cp-4f);
    p = fmaf(p, u, 0x1.ee2a78p-3f);
    p = fmaf(p, u, -0x1.96cc82p-2f);
    p = fmaf(p, u, 0x1.fff0b4p-2f);
    return p;
}

/* x Phi(x), and its slope in *slope; about 0 (below 2^-100) at -infinity, NaN for NaN. Nothing on the way is
 * subnormal where x^2 is not: e^(-t^2 / 2) ends at 2^-110, since a product that underflows costs some CPUs
 * 150 cycles. */
PL_HD float pl_gelu_bf16(float x, float *slope)
{
    const float whole = 0x1.8p23f;
    /* a NaN passes: as u, whatever y and z are */
    float t = fabsf(x), e = pl_nearer_zero(t * t * -0x1.715476p-1f, -110.0f), u = t > 5.0f ? 5.0f : t;
    float k = e + whole, f = e - (k - whole), q = 0x1.c3f75ep-5f;
    q = fmaf(q, f, 0x1.f0de1ap-3f);
    q = fmaf(q, f, 0x1.62f31ap-1f);
    q = fmaf(q, f, 0x1.fff692p-1f);
    uint32_t n, bits;
    memcpy(&n, &k, sizeof n);
    memcpy(&bits, &q, sizeof bits);
    bits += n << 23;
    float bell, p = pl_gelu_bf16_tail(u);
    memcpy(&bell, &bits, sizeof bell);
    /* fmaf: gcc can mask it */
    float tail = bell * p, other = fmaf(-1.0f, tail, 1.0f), phi = x < 0 ? tail : other,
          y = pl_nearer_zero(x, -16.0f), z = -pl_nearer_zero(-y, -16.0f);
    *slope = fmaf(z * 0x1.988454p-2f, bell, phi);
    return y * phi;
}

#endif
