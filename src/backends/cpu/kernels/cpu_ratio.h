/* cpu_ratio.h -- pl_ratio_f32 of 16 numbers by multiply-adds: the bits of the square root and the division,
 * which take three times as long on the CPUs that have the tile unit; on others, whose units for both are
 * better, they are used.
 *
 *     sqrt x:   y ~ 1 / sqrt x to 14 bits;   g = x y, h = y / 2;   r = 1/2 - g h, g = g + g r, h = h +
 *         h r;   g + (x - g g) h
 *     u / b:    r ~ 1 / b to 14 bits;   twice r = r + r (1 - b r);   q = u r;   twice q = q + r (u - b
 *         q)         (fused multiply-adds)
 *
 * The last q is the nearest number to u / b where r is the nearest to 1 / b (Markstein). test_amx goes
 * through all mantissas of x and of b: the root is always the nearest number, r always but for the mantissa
 * of ones, which is divided here, as is whatever is near to under- or overflow: zeros, too, and NaN.
 */
#ifndef PL_CPU_RATIO_H
#define PL_CPU_RATIO_H

#include "math/formulas_elem.h"

#if defined(__AMX_BF16__) || defined(__AMXBF16__) || defined(PL_AMX_EMULATE)
#define PL_RATIO_BY_FMA 1
#include <immintrin.h>

/* x from 2^-100 to 2^100. */
static inline __m512 pl_root16(__m512 x)
{
    const __m512 half = _mm512_set1_ps(0.5f), y = _mm512_rsqrt14_ps(x);
    __m512 g = _mm512_mul_ps(x, y), h = _mm512_mul_ps(y, half), r = _mm512_fnmadd_ps(g, h, half);
    g = _mm512_fmadd_ps(g, r, g);
    h = _mm512_fmadd_ps(h, r, h);
    return _mm512_fmadd_ps(_mm512_fnmadd_ps(g, g, x), h, g);
}

/* 1 / b, b from 2^-100 to 2^100. */
static inline __m512 pl_inverse16(__m512 b)
{
    const __m512 one = _mm512_set1_ps(1);
    __m512 r = _mm512_rcp14_ps(b);
    r = _mm512_fmadd_ps(_mm512_fnmadd_ps(b, r, one), r, r);
    return _mm512_fmadd_ps(_mm512_fnmadd_ps(b, r, one), r, r);
}

/* Lanes of numbers, given by their bits, that are not from 2^-n to 2^n. */
static inline __mmask16 pl_beyond16(__m512i x, const int n)
{
    return _mm512_cmpgt_epu32_mask(_mm512_sub_epi32(x, _mm512_set1_epi32((127 - n) << 23)),
                                   _mm512_set1_epi32(2 * n << 23));
}

#define PL_RATIO_EPS 0x1p20f /* the largest eps: with x as it must be, b is from 2^-50 to 2^51 */

/* eps from 0 to PL_RATIO_EPS. */
static inline __m512 pl_ratio16(__m512 u, __m512 x, __m512 eps)
{
    const __m512i ones = _mm512_set1_epi32(0x7fffff);
    const __m512 b = _mm512_add_ps(pl_root16(x), eps), r = pl_inverse16(b);
    __m512 q = _mm512_mul_ps(u, r);
    q = _mm512_fmadd_ps(_mm512_fnmadd_ps(b, q, u), r, q);
    q = _mm512_fmadd_ps(_mm512_fnmadd_ps(b, q, u), r, q);
    const __m512i size = _mm512_and_si512(_mm512_castps_si512(u), _mm512_set1_epi32(INT32_MAX));
    const __mmask16 beyond = pl_beyond16(_mm512_castps_si512(x), 100) | pl_beyond16(size, 60) |
                             _mm512_cmpeq_epi32_mask(_mm512_and_si512(_mm512_castps_si512(b), ones), ones);
    return __builtin_expect(beyond, 0) ? _mm512_div_ps(u, _mm512_add_ps(_mm512_sqrt_ps(x), eps)) : q;
}
#endif

#endif
