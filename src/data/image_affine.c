/* image_affine.c -- a picture through an affine map: bilinear or bicubic without antialiasing, in double, as Pillow's transform.
 *
 * A point (u, v) of the source, pixel centres at halves, outside of [0, width) x [0, height) is fill. Otherwise with i = floor(u - 1/2), d = u - 1/2 - i:
 *
 *     bilinear   p_i + (p_{i+1} - p_i) d
 *     bicubic    p_i + d ((p_{i+1} - p_{i-1}) + d ((2 (p_{i-1} - p_i) + p_{i+1} - p_{i+2}) + d (p_i - p_{i-1} - p_{i+1} + p_{i+2})))        (a = -1)
 *
 * along the rows and then across them, indices held inside the picture, the result cut to a byte (not rounded). With d = 0 both are p_i exactly, so the
 * shears and translations, which keep one coordinate, are done in one direction. The three channels of a pixel are one vector, from a copy of the picture
 * in four ints a pixel.
 *     ctest -R test_image_ops
 */
#include <math.h>
#include <string.h>

#include "data/image_ops.h"

#define INLINE static inline __attribute__((always_inline))

typedef double  quad __attribute__((vector_size(32)));
typedef int32_t whole_quad __attribute__((vector_size(16)));

/* Where one coordinate falls: the last pixel whose centre is not beyond it, and how far beyond that centre it is. */
typedef struct place {
    int64_t i;
    double  d;
} place;

INLINE place place_of(double u)    /* u >= 0 */
{
    double at = u - 0.5;
    int64_t i = (int64_t)(at + 1) - 1;    /* toward zero of what is at least 1/2 */
    i -= (double)i > at;                  /* where the sum was rounded up to the next whole number */
    return (place){i, at - (double)i};
}

INLINE int64_t held(int64_t i, int64_t n)
{
    return i < 0 ? 0 : i >= n ? n - 1 : i;
}

#define NAME(f) f##_any
#include "data/image_affine.inc"
#undef NAME

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HAVE_AVX2
#pragma GCC push_options
#pragma GCC target("avx2")
#define NAME(f) f##_avx2
#include "data/image_affine.inc"
#undef NAME
#pragma GCC pop_options
#endif

void pl_image_affine(pl_image *im, const double m[6], pl_filter filter, const uint8_t fill[3], uint8_t *work)
{
    whole_quad *wide = (void *)work;
    const uint8_t *p = im->data;
    for (int64_t i = 0; i < im->width * im->height; i++, p += 3) wide[i] = (whole_quad){p[0], p[1], p[2], 0};
#ifdef HAVE_AVX2
    if (__builtin_cpu_supports("avx2")) {
        affine_rows_avx2(im->data, wide, im->width, im->height, m, filter == PL_FILTER_BICUBIC, fill);
        return;
    }
#endif
    affine_rows_any(im->data, wide, im->width, im->height, m, filter == PL_FILTER_BICUBIC, fill);
}

/* x to 15 decimals, to nearest (even in a tie) from the exact value of the double, as Python's round(x, 15); |x| <= 1. */
static double round_15(double x)
{
    double scaled = x * 1e15, rest = fma(x, 1e15, -scaled), below = floor(scaled), part = scaled - below;
    int up = part > 0.5 || (part == 0.5 && (rest > 0 || (rest == 0 && fmod(below, 2) != 0)));
    return (below + up) / 1e15;
}

void pl_image_rotation(double m[6], int64_t width, int64_t height, double degrees)
{
    double turn = fmod(degrees, 360), cx = (double)width / 2, cy = (double)height / 2;
    if (turn < 0) turn += 360;
    double angle = -(turn * (3.141592653589793 / 180));
    m[0] = round_15(cos(angle)), m[1] = round_15(sin(angle)), m[3] = round_15(-sin(angle)), m[4] = m[0];
    m[2] = m[0] * -cx + m[1] * -cy + cx;
    m[5] = m[3] * -cx + m[4] * -cy + cy;
}
