/* noise_elem.h -- two independent standard normals from a draw of philox, by Box and Muller: the same bits
 * from every compiler and device, without libm but for sqrt.
 *
 *     sqrt(-2 log u) (cos 2 pi v, sin 2 pi v),   u, v in (0, 1)
 *
 * v is brought to the nearest quarter, exactly (v and the quarter are multiples of 2^-53, their difference at
 * most 1/8); there |x| = |2 pi r| <= pi / 4, and Taylor's series to x^17 and x^16 end 2^-63 and 2^-59 below
 * 1. Some ulps of double from pl_normal's, which calls libm; as floats nearly always the same number
 * (test_augment_op).
 */
#ifndef PL_MATH_NOISE_ELEM_H
#define PL_MATH_NOISE_ELEM_H

#include "base/philox.h"
#include "math/log_elem.h"

/* cos and sin of v turns, 0 < v < 1. */
PL_HD void pl_turn_f64(double *cosine, double *sine, double v)
{
    const int quarter = (int)(4 * v + 0.5);
    const double x = 6.283185307179586 * (v - 0.25 * quarter), z = x * x;
    double s = 1.0 / 355687428096000, c = 1.0 / 20922789888000;
    s = fma(s, z, -1.0 / 1307674368000);
    s = fma(s, z, 1.0 / 6227020800);
    s = fma(s, z, -1.0 / 39916800);
    s = fma(s, z, 1.0 / 362880);
    s = fma(s, z, -1.0 / 5040);
    s = fma(s, z, 1.0 / 120);
    s = fma(s, z, -1.0 / 6);
    s = fma(x * z, s, x);
    c = fma(c, z, -1.0 / 87178291200);
    c = fma(c, z, 1.0 / 479001600);
    c = fma(c, z, -1.0 / 3628800);
    c = fma(c, z, 1.0 / 40320);
    c = fma(c, z, -1.0 / 720);
    c = fma(c, z, 1.0 / 24);
    c = fma(c, z, -0.5);
    c = fma(c, z, 1.0);
    const double a = quarter & 1 ? s : c, b = quarter & 1 ? c : s;
    *cosine = quarter == 1 || quarter == 2 ? -a : a;
    *sine = quarter >= 2 && quarter < 4 ? -b : b;
}

/* The noise of an erased picture: philox(seed, PL_STREAM_ERASE, epoch << 16 | line, pair << 48 | image), two
 * normals a draw; line counts the rows of all channels, PL_NOISE_COLOUR is the colour's. */
#define PL_NOISE_COLOUR 65535

PL_HD pl_n2 pl_noise(uint64_t seed, uint64_t epoch, uint64_t image, int64_t line, int64_t pair)
{
    const pl_u4 r =
        pl_philox(seed, PL_STREAM_ERASE, epoch << 16 | (uint64_t)line, (uint64_t)pair << 48 | image);
    const double radius = sqrt(-2 * pl_log_f64(pl_uniform_f64(r.x, r.y)));
    pl_n2 z;
    pl_turn_f64(&z.a, &z.b, pl_uniform_f64(r.z, r.w));
    z.a *= radius, z.b *= radius;
    return z;
}

#endif
