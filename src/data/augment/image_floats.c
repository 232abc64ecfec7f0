/* image_floats.c -- see image_floats.h. */
#include "data/augment/image_floats.h"

#include <math.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define HAVE_WIDE
#define WIDE __attribute__((target("avx512f,avx512bw,avx512vbmi")))
#endif

#define LANES 16

/* a / b by way of r = 1 / b. */
static float quotient(float a, float b, float r)
{
    float q = a * r;
    return fmaf(fmaf(-b, q, a), r, q);
}

static int wide_is_exact(const pl_floats_scale *s)
{
    const float r = 1 / 255.0f;
    for (int c = 0; c < 3; c++)
        for (int v = 0; v < 256; v++)
            if (quotient(quotient((float)v, 255, r) - s->mean[c], s->std[c], s->inverse[c]) != s->value[c][v])
                return 0;
    return 1;
}

static int wide_here(void)
{
#ifdef HAVE_WIDE
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vbmi");
#else
    return 0;
#endif
}

void pl_floats_scale_make(pl_floats_scale *s, const double mean[3], const double std[3])
{
    for (int c = 0; c < 3; c++) {
        s->mean[c] = (float)mean[c], s->std[c] = (float)std[c], s->inverse[c] = 1 / (float)std[c];
        for (int v = 0; v < 256; v++) s->value[c][v] = ((float)v / 255.0f - (float)mean[c]) / (float)std[c];
    }
    s->wide = wide_here() && wide_is_exact(s);
}

#ifdef HAVE_WIDE
static inline __attribute__((always_inline)) WIDE __m512 wide_quotient(__m512 a, __m512 b, __m512 r)
{
    __m512 q = _mm512_mul_ps(a, r);
    return _mm512_fmadd_ps(_mm512_fnmadd_ps(b, q, a), r, q);
}

/* Pixels [0, n / 16 16): how many. */
WIDE static int64_t wide_floats(float *out, const pl_floats_scale *s, const uint8_t *pixels, int64_t n)
{
    const __mmask64 bytes = ((__mmask64)1 << 3 * LANES) - 1, lowest = 0x1111111111111111u;
    const __m512 full = _mm512_set1_ps(255), r = _mm512_set1_ps(1 / 255.0f);
    uint8_t place[3][64] = {0};
    int64_t i = 0;
    for (int c = 0; c < 3; c++)
        for (int l = 0; l < LANES; l++) place[c][4 * l] = (uint8_t)(3 * l + c);
    for (; i + LANES <= n; i += LANES) {
        __m512i p = _mm512_maskz_loadu_epi8(bytes, pixels + 3 * i);
        for (int c = 0; c < 3; c++) {
            __m512 v =
                _mm512_cvtepi32_ps(_mm512_maskz_permutexvar_epi8(lowest, _mm512_loadu_si512(place[c]), p));
            v = _mm512_sub_ps(wide_quotient(v, full, r), _mm512_set1_ps(s->mean[c]));
            _mm512_storeu_ps(out + c * n + i,
                             wide_quotient(v, _mm512_set1_ps(s->std[c]), _mm512_set1_ps(s->inverse[c])));
        }
    }
    return i;
}
#endif

void pl_floats_of_bytes(float *out, const pl_floats_scale *s, const uint8_t *pixels, int64_t n)
{
    int64_t i = 0;
#ifdef HAVE_WIDE
    if (s->wide) i = wide_floats(out, s, pixels, n);
#endif
    const uint8_t *p = pixels + 3 * i;
    for (float *r = out, *g = out + n, *b = out + 2 * n; i < n; i++, p += 3)
        r[i] = s->value[0][p[0]], g[i] = s->value[1][p[1]], b[i] = s->value[2][p[2]];
}
