/* image_affine.c -- a picture through an affine map: bilinear or bicubic without antialiasing, in double,
 * as Pillow's transform.
 *
 * A point (u, v) of the source, pixel centres at halves, outside of [0, width) x [0, height) is fill.
 * Otherwise with i = floor(u - 1/2), d = u - 1/2 - i:
 *
 *     bilinear   p_i + (p_{i+1} - p_i) d
 *     bicubic    p_i + d ((p_{i+1} - p_{i-1}) + d ((2 (p_{i-1} - p_i) + p_{i+1} - p_{i+2}) + d (p_i -
 *                p_{i-1} - p_{i+1} + p_{i+2})))        (a = -1)
 *
 * along the rows and then across them, indices held inside the picture, the result cut to a byte (not
 * rounded). With d = 0 both are p_i exactly, so the shears and translations, which keep one coordinate, are
 * done in one direction. The three channels of a pixel are one vector, from a copy of the picture in four
 * ints a pixel, which is wider by PAD pixels on each side: no index has to be held.
 *     ctest -R test_image_ops
 */
#include <math.h>
#include <string.h>

#include "data/augment/image_ops.h"

#define INLINE static inline __attribute__((always_inline))

typedef double quad __attribute__((vector_size(32)));
typedef int32_t whole_quad __attribute__((vector_size(16)));

/* a cubic looks two pixels beyond the last centre, and the last centre may be one outside */
#define PAD   2
#define CHUNK 64 /* pixels at a time */

/* Where pixels come from: the last pixel whose centre is not beyond the point, in the padded copy (-1:
 * outside), and how far beyond that centre it is. */
typedef struct places {
    double dx[CHUNK], dy[CHUNK];
    int32_t at[CHUNK];
} places;

/* ---- anywhere ----------------------------------------------------------------------------------- */

INLINE void take_any(quad *out, const whole_quad *p)
{
    *out = __builtin_convertvector(*p, quad);
}

/* Cut to a byte each, toward zero. */
INLINE uint32_t bytes_of_any(const quad *s)
{
    whole_quad w = __builtin_convertvector(*s, whole_quad);
    w &= ~(w >> 31);
    w |= w > 255; /* all ones; the last eight of them count */
    w &= 255;
    return (uint32_t)w[0] | (uint32_t)w[1] << 8 | (uint32_t)w[2] << 16;
}

/* Where the pixels [x, x + n) of row y come from. */
static void places_of_any(places *p, int64_t x, int64_t y, int64_t n, int64_t width, int64_t height,
                          const double m[6])
{
    double py = (double)y + 0.5;
    int32_t pitch = (int32_t)width + 2 * PAD;
    for (int64_t k = 0; k < n; k++) {
        double px = (double)(x + k) + 0.5, u = m[0] * px + m[1] * py + m[2], v = m[3] * px + m[4] * py + m[5];
        int inside = u >= 0 && u < (double)width && v >= 0 && v < (double)height;
        double a = (inside ? u : 0.5) - 0.5, b = (inside ? v : 0.5) - 0.5;
        /* toward zero of what is at least 1/2 */
        int32_t i = (int32_t)(a + 1) - 1, j = (int32_t)(b + 1) - 1;
        /* where the sum was rounded up to the next whole number */
        i -= (double)i > a, j -= (double)j > b;
        p->dx[k] = a - (double)i, p->dy[k] = b - (double)j;
        p->at[k] = inside ? (j + PAD) * pitch + i + PAD : -1;
    }
}

#define NAME(f) f##_any
#include "data/augment/image_affine.inc"
#undef NAME

/* ---- with AVX2 ---------------------------------------------------------------------------------- */

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HAVE_AVX2
#include <immintrin.h>
#pragma GCC push_options
#pragma GCC target("avx2")

INLINE void take_avx2(quad *out, const whole_quad *p)
{
    *out = (quad)_mm256_cvtepi32_pd((__m128i)*p);
}

INLINE uint32_t bytes_of_avx2(const quad *s)
{
    __m128i w = _mm256_cvttpd_epi32((__m256d)*s);
    w = _mm_packs_epi32(w, w);
    return (uint32_t)_mm_cvtsi128_si32(_mm_packus_epi16(w, w));
}

/* The last whole number not beyond a >= -1/2, as places_of_any finds it. */
INLINE __m256d floor_avx2(__m256d a)
{
    __m256d one = _mm256_set1_pd(1),
            i = _mm256_sub_pd(_mm256_round_pd(_mm256_add_pd(a, one), _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC),
                              one);
    return _mm256_sub_pd(i, _mm256_and_pd(_mm256_cmp_pd(i, a, _CMP_GT_OQ), one));
}

static void places_of_avx2(places *p, int64_t x, int64_t y, int64_t n, int64_t width, int64_t height,
                           const double m[6])
{
    const __m256d zero = _mm256_setzero_pd(), half = _mm256_set1_pd(0.5),
                  py = _mm256_set1_pd((double)y + 0.5), w = _mm256_set1_pd((double)width),
                  h = _mm256_set1_pd((double)height);
    const __m256d mu = _mm256_mul_pd(_mm256_set1_pd(m[1]), py), mv = _mm256_mul_pd(_mm256_set1_pd(m[4]), py);
    const __m256i first = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
    const __m128i pad = _mm_set1_epi32(PAD), pitch = _mm_set1_epi32((int)width + 2 * PAD);
    for (int64_t k = 0; k < n; k += 4) { /* CHUNK is a multiple of it */
        __m256d px =
            _mm256_add_pd(_mm256_add_pd(_mm256_set1_pd((double)(x + k)), _mm256_setr_pd(0, 1, 2, 3)), half);
        __m256d u =
            _mm256_add_pd(_mm256_add_pd(_mm256_mul_pd(_mm256_set1_pd(m[0]), px), mu), _mm256_set1_pd(m[2]));
        __m256d v =
            _mm256_add_pd(_mm256_add_pd(_mm256_mul_pd(_mm256_set1_pd(m[3]), px), mv), _mm256_set1_pd(m[5]));
        __m256d inside =
            _mm256_and_pd(_mm256_and_pd(_mm256_cmp_pd(u, zero, _CMP_GE_OQ), _mm256_cmp_pd(u, w, _CMP_LT_OQ)),
                          _mm256_and_pd(_mm256_cmp_pd(v, zero, _CMP_GE_OQ), _mm256_cmp_pd(v, h, _CMP_LT_OQ)));
        __m256d a = _mm256_sub_pd(_mm256_blendv_pd(half, u, inside), half),
                b = _mm256_sub_pd(_mm256_blendv_pd(half, v, inside), half), i = floor_avx2(a),
                j = floor_avx2(b);
        _mm256_storeu_pd(p->dx + k, _mm256_sub_pd(a, i));
        _mm256_storeu_pd(p->dy + k, _mm256_sub_pd(b, j));
        __m128i at = _mm_add_epi32(_mm_mullo_epi32(_mm_add_epi32(_mm256_cvttpd_epi32(j), pad), pitch),
                                   _mm_add_epi32(_mm256_cvttpd_epi32(i), pad));
        __m128i in = _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(_mm256_castpd_si256(inside), first));
        _mm_storeu_si128((__m128i *)(p->at + k), _mm_or_si128(at, _mm_xor_si128(in, _mm_set1_epi32(-1))));
    }
}

#define NAME(f) f##_avx2
#include "data/augment/image_affine.inc"
#undef NAME
#pragma GCC pop_options
#endif

/* ---- both --------------------------------------------------------------------------------------- */

size_t pl_image_affine_work(int64_t width, int64_t height)
{
    return (size_t)(width + 2 * PAD) * (size_t)(height + 2 * PAD) * sizeof(whole_quad);
}

void pl_image_affine(pl_image *im, const double m[6], pl_filter filter, const uint8_t fill[3], uint8_t *work)
{
    whole_quad *wide = (void *)work;
#ifdef HAVE_AVX2
    if (__builtin_cpu_supports("avx2")) {
        widen_avx2(wide, im->data, im->width, im->height);
        affine_rows_avx2(im->data, wide, im->width, im->height, m, filter == PL_FILTER_BICUBIC, fill);
        return;
    }
#endif
    widen_any(wide, im->data, im->width, im->height);
    affine_rows_any(im->data, wide, im->width, im->height, m, filter == PL_FILTER_BICUBIC, fill);
}

/* x to 15 decimals, to nearest (even in a tie) from the exact value of the double, as Python's round(x, 15);
 * |x| <= 1. */
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
