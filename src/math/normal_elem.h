/* normal_elem.h -- the tail of the normal distribution, Phi(-t) = erfc(t / sqrt 2) / 2 for t >= 0: the same
 * bits from every compiler and device, without a branch.
 *
 *     Phi(-t) = e^(-t^2 / 2) h(t),   h(t) = w p(q),   w = K / (t + K),  q = 1 - 2 w
 *                                                     (h(0) = 1/2, h(t) ~ 1 / (t sqrt(2 pi)))
 *
 * p: a polynomial in q, interpolated at Chebyshev's points for t <= 15 (K = 4, 10 terms, relative error
 * 2^-23.8 with its coefficients rounded) and t <= 39 (K = 6, 23 terms, 2^-53.4). The square is split, t^2 = s
 * + rest, so that the exponential has its own error only. erf(x) = 1 - 2 Phi(-x sqrt 2); gelu and its slope
 * want Phi and e^(-t^2 / 2) and nothing else (activation.inc). Relative error below 17u and 22u, u half an
 * ulp of 1, or so many denormals (derived in test_elem_gelu, where 7u and 8u are measured): most of it is
 * w's, which counts 4 or 6 times in t.
 */
#ifndef PL_MATH_NORMAL_ELEM_H
#define PL_MATH_NORMAL_ELEM_H

#include "math/exp_elem.h"

/* Phi(-t), and in *bell e^(-t^2 / 2); t >= 0, from 15 on both are 0. */
PL_HD float pl_normal_tail_f32(float t, float *bell)
{
    t = t > 15.0f ? 15.0f : t; /* a NaN passes */
    float s = t * t, rest = fmaf(t, t, -s), e = pl_exp_f32(-0.5f * s);
    e = fmaf(-0.5f * rest, e, e);
    float w = 4.0f / (t + 4.0f), q = fmaf(-2.0f, w, 1.0f), p = -0x1.0750a6p-15f;
    p = fmaf(p, q, 0x1.8c5abcp-15f);
    p = fmaf(p, q, 0x1.9abfa6p-12f);
    p = fmaf(p, q, -0x1.cd803ep-11f);
    p = fmaf(p, q, -0x1.ed2f4ep-10f);
    p = fmaf(p, q, 0x1.eed8f4p-7f);
    p = fmaf(p, q, -0x1.7dffeep-5f);
    p = fmaf(p, q, 0x1.8c6d9p-4f);
    p = fmaf(p, q, -0x1.373e38p-3f);
    p = fmaf(p, q, 0x1.82b4bcp-3f);
    *bell = e;
    return e * (w * p);
}

/* The same in double; from 39 on both are 0. */
PL_HD double pl_normal_tail_f64(double t, double *bell)
{
    t = t > 39.0 ? 39.0 : t; /* a NaN passes */
    double s = t * t, rest = fma(t, t, -s), e = pl_exp_f64(-0.5 * s);
    e = fma(-0.5 * rest, e, e);
    double w = 6.0 / (t + 6.0), q = fma(-2.0, w, 1.0), p = 0x1.4556f3b1eee6bp-33;
    p = fma(p, q, 0x1.dfe74db0837cep-31);
    p = fma(p, q, -0x1.8a3acb8794699p-36);
    p = fma(p, q, -0x1.fbe677d83a65bp-28);
    p = fma(p, q, 0x1.b131f01b0eb33p-30);
    p = fma(p, q, 0x1.be7e763125b46p-25);
    p = fma(p, q, -0x1.34066902d1dbap-24);
    p = fma(p, q, -0x1.423ecd9d0a2e3p-22);
    p = fma(p, q, 0x1.3010f326474f8p-20);
    p = fma(p, q, 0x1.811b75619fc9p-23);
    p = fma(p, q, -0x1.6a1e738fe2a22p-17);
    p = fma(p, q, 0x1.fb1ec701172f4p-16);
    p = fma(p, q, 0x1.6fa4fe9974589p-18);
    p = fma(p, q, -0x1.748666f166be4p-12);
    p = fma(p, q, 0x1.b635a51ce9f2p-10);
    p = fma(p, q, -0x1.527138cb6978cp-8);
    p = fma(p, q, 0x1.9a89f49d466bp-7);
    p = fma(p, q, -0x1.a0eb37cf9924bp-6);
    p = fma(p, q, 0x1.6ddfc9a05266fp-5);
    p = fma(p, q, -0x1.1a8ee4f6f13p-4);
    p = fma(p, q, 0x1.846a8552187a1p-4);
    p = fma(p, q, -0x1.de8e35161dabdp-4);
    p = fma(p, q, 0x1.095608c7b15f1p-3);
    *bell = e;
    return e * (w * p);
}

#endif
