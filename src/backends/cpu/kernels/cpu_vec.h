/* cpu_vec.h -- the vectors of this instruction set, and the one thing plain C cannot say about them: a fused
 * multiply-add.
 *
 * The baseline has no such instruction and takes a product and a sum, in the products only; formulas_elem.h
 * keeps its fma everywhere.
 */
#ifndef PL_CPU_VEC_H
#define PL_CPU_VEC_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "../cpu_kernels.h"
#include "math/bf16_elem.h"

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#elif defined(PL_NEON)
#include <arm_neon.h>
#endif

#if defined(__AVX2__) || defined(PL_NEON)
#define PL_VEC_FMA /* there is an instruction for it */
#endif

/* The tile of a product that lives in registers: TILE_ROWS x 2 vectors, beside two vectors of B and one entry
 * of A. */
#if defined(__AVX512F__)
#define PL_VEC_BYTES 64
#define PL_TILE_ROWS 12
#elif defined(__AVX2__)
#define PL_VEC_BYTES 32
#define PL_TILE_ROWS 6
#elif defined(PL_NEON)
#define PL_VEC_BYTES 16
#define PL_TILE_ROWS 12
#else
#define PL_VEC_BYTES 16
#define PL_TILE_ROWS 4
#endif
#define PL_TILE_VECS 2

typedef float pl_vec_f32 __attribute__((vector_size(PL_VEC_BYTES)));
typedef double pl_vec_f64 __attribute__((vector_size(PL_VEC_BYTES)));
typedef uint32_t pl_vec_u32 __attribute__((vector_size(PL_VEC_BYTES)));

/* a b + c */
PL_INLINE pl_vec_f32 pl_vec_fma_f32(pl_vec_f32 a, pl_vec_f32 b, pl_vec_f32 c)
{
#if defined(__AVX512F__)
    return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__)
    return _mm256_fmadd_ps(a, b, c);
#elif defined(PL_NEON)
    return (pl_vec_f32)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;
#endif
}

/* a b + c */
PL_INLINE pl_vec_f64 pl_vec_fma_f64(pl_vec_f64 a, pl_vec_f64 b, pl_vec_f64 c)
{
#if defined(__AVX512F__)
    return _mm512_fmadd_pd(a, b, c);
#elif defined(__AVX2__)
    return _mm256_fmadd_pd(a, b, c);
#elif defined(PL_NEON)
    return (pl_vec_f64)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
#else
    return a * b + c;
#endif
}

/* a b + c with one rounding on every instruction set: the baseline calls fma, and is slow. For sums whose
 * bits every build shares. */
PL_INLINE pl_vec_f32 pl_vec_fused_f32(pl_vec_f32 a, pl_vec_f32 b, pl_vec_f32 c)
{
#ifndef PL_VEC_FMA
    for (int l = 0; l < (int)(PL_VEC_BYTES / sizeof(float)); l++) c[l] = fmaf(a[l], b[l], c[l]);
    return c;
#else
    return pl_vec_fma_f32(a, b, c);
#endif
}

PL_INLINE pl_vec_f64 pl_vec_fused_f64(pl_vec_f64 a, pl_vec_f64 b, pl_vec_f64 c)
{
#ifndef PL_VEC_FMA
    for (int l = 0; l < (int)(PL_VEC_BYTES / sizeof(double)); l++) c[l] = fma(a[l], b[l], c[l]);
    return c;
#else
    return pl_vec_fma_f64(a, b, c);
#endif
}

/* Chosen elements of two vectors laid end to end. gcc has had clang's builtin since version 12. */
#if __has_builtin(__builtin_shufflevector)
#define PL_PICK(a, b, whole, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define PL_PICK(a, b, whole, ...) __builtin_shuffle(a, b, (whole){__VA_ARGS__})
#endif

/* 16 bytes: what every instruction set has. */
typedef float pl_quad_f32 __attribute__((vector_size(16)));
typedef double pl_quad_f64 __attribute__((vector_size(16)));
typedef int32_t pl_quad_i32 __attribute__((vector_size(16)));
typedef int64_t pl_quad_i64 __attribute__((vector_size(16)));
typedef int16_t pl_quad_i16 __attribute__((vector_size(16)));

/* ---- bf16: the upper half of a float (bf16_elem.h) ---------------------------------------------- */

/* Four of them, widened. Little-endian, as the file formats want it anyway. */
PL_INLINE pl_quad_f32 pl_quad_widened(const pl_bf16 *x)
{
    int64_t four; /* by way of a register: through memory, its halves would have to wait for each other */
    memcpy(&four, x, sizeof four);
    pl_quad_i64 both = {four, 0};
    pl_quad_i16 low = {0}, upper = (pl_quad_i16)both;
    return (pl_quad_f32)PL_PICK(low, upper, pl_quad_i16, 0, 8, 1, 9, 2, 10, 3, 11);
}

/* A vector of them, widened. */
PL_INLINE pl_vec_f32 pl_vec_widened(const pl_bf16 *x)
{
#if defined(__AVX512F__)
    return (pl_vec_f32)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)x)), 16);
#elif defined(__AVX2__)
    return (pl_vec_f32)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)x)), 16);
#else
    return pl_quad_widened(x);
#endif
}

/* Some lane of a or b may be NaN: prefetched where that is cheap. */
PL_INLINE int pl_vec_nan_in(pl_vec_f32 a, pl_vec_f32 b)
{
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q) != 0;
#elif defined(__AVX2__)
    return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_UNORD_Q)) != 0;
#else
    (void)a, (void)b;
    return 1;
#endif
}

/* pl_bf16_from_f32 of every lane, in the upper halves; the lower ones are rubbish. */
PL_INLINE pl_vec_u32 pl_vec_rounded(pl_vec_f32 x, const int with_nan)
{
    pl_vec_u32 u = (pl_vec_u32)x, even = u + (0x7fffu + (u >> 16 & 1u));
    if (!with_nan) return even;
    pl_vec_u32 nan = (pl_vec_u32)(x != x);
    return (nan & (u | 0x400000u)) | (~nan & even);
}

/* dst = the upper halves of a's lanes and, where there are two, of b's. */
PL_INLINE void pl_vec_upper(pl_bf16 *dst, pl_vec_u32 a, pl_vec_u32 b, const int two)
{
#if defined(__AVX512BW__)
    /* of b */
    const __m512i odd = _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33,
                                         /* of a */
                                         31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    __m512i both = _mm512_permutex2var_epi16((__m512i)a, odd, (__m512i)b);
    if (two) _mm512_storeu_si512(dst, both);
    else _mm256_storeu_si256((void *)dst, _mm512_castsi512_si256(both));
#elif defined(__AVX2__)
    __m256i both =
        _mm256_permute4x64_epi64(_mm256_packus_epi32((__m256i)(a >> 16), (__m256i)(b >> 16)), 0xd8);
    if (two) _mm256_storeu_si256((void *)dst, both);
    else _mm_storeu_si128((void *)dst, _mm256_castsi256_si128(both));
#else
    pl_quad_i16 upper = PL_PICK((pl_quad_i16)a, (pl_quad_i16)b, pl_quad_i16, 1, 3, 5, 7, 9, 11, 13, 15);
    memcpy(dst, &upper, two ? sizeof upper : sizeof upper / 2);
#endif
}

/* dst = a, and b where there are two of them, rounded to bf16. */
PL_INLINE void pl_vec_round_f32(pl_bf16 *dst, pl_vec_f32 a, pl_vec_f32 b, const int two)
{
    if (__builtin_expect(pl_vec_nan_in(a, b), 0))
        pl_vec_upper(dst, pl_vec_rounded(a, 1), pl_vec_rounded(b, 1), two);
    else pl_vec_upper(dst, pl_vec_rounded(a, 0), pl_vec_rounded(b, 0), two);
}

PL_INLINE void pl_vec_round_f64(pl_bf16 *dst, pl_vec_f64 a, pl_vec_f64 b, const int two)
{
    const int lanes = (int)(PL_VEC_BYTES / sizeof(double));
    for (int l = 0; l < lanes; l++) dst[l] = pl_bf16_from_f64(a[l]);
    for (int l = 0; l < lanes && two; l++) dst[lanes + l] = pl_bf16_from_f64(b[l]);
}

/* ---- four or two short rows transposed into columns, `stride` apart --------------------------------- */

PL_INLINE void pl_transpose_f32(float *dst, int64_t stride, const pl_quad_f32 r[4])
{
    pl_quad_f32 lo01 = PL_PICK(r[0], r[1], pl_quad_i32, 0, 4, 1, 5);
    pl_quad_f32 hi01 = PL_PICK(r[0], r[1], pl_quad_i32, 2, 6, 3, 7);
    pl_quad_f32 lo23 = PL_PICK(r[2], r[3], pl_quad_i32, 0, 4, 1, 5);
    pl_quad_f32 hi23 = PL_PICK(r[2], r[3], pl_quad_i32, 2, 6, 3, 7);
    pl_quad_f32 c[4] = {
        PL_PICK(lo01, lo23, pl_quad_i32, 0, 1, 4, 5),
        PL_PICK(lo01, lo23, pl_quad_i32, 2, 3, 6, 7),
        PL_PICK(hi01, hi23, pl_quad_i32, 0, 1, 4, 5),
        PL_PICK(hi01, hi23, pl_quad_i32, 2, 3, 6, 7),
    };
    for (int i = 0; i < 4; i++) memcpy(dst + i * stride, &c[i], sizeof c[i]);
}

/* Two rows only. */
PL_INLINE void pl_transpose_two_f32(float *dst, int64_t stride, const pl_quad_f32 r[2])
{
    pl_quad_f32 lo = PL_PICK(r[0], r[1], pl_quad_i32, 0, 4, 1, 5);
    pl_quad_f32 hi = PL_PICK(r[0], r[1], pl_quad_i32, 2, 6, 3, 7);
    memcpy(dst, &lo, 8);
    memcpy(dst + stride, (const char *)&lo + 8, 8);
    memcpy(dst + 2 * stride, &hi, 8);
    memcpy(dst + 3 * stride, (const char *)&hi + 8, 8);
}

PL_INLINE void pl_transpose_f64(double *dst, int64_t stride, const pl_quad_f64 r[2])
{
    pl_quad_f64 c[2] = {PL_PICK(r[0], r[1], pl_quad_i64, 0, 2), PL_PICK(r[0], r[1], pl_quad_i64, 1, 3)};
    for (int i = 0; i < 2; i++) memcpy(dst + i * stride, &c[i], sizeof c[i]);
}

PL_INLINE void pl_transpose_two_f64(double *dst, int64_t stride, const pl_quad_f64 r[2])
{
    pl_transpose_f64(dst, stride, r);
}

#endif
