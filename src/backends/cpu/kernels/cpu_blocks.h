/* cpu_blocks.h -- blocks of bf16, as the tile unit and dot products take them (cpu_tiles.h, cpu_dots.h):
 * forms, transposing, packing. Only with AVX-512.
 *
 * A block is 32 x 32 bf16, 2 KB, two tiles one after the other, in one of two forms:
 *     left     row r at 64 r: rows 0-15, rows 16-31                               (k along a row)
 *     right    row k2 of the first tile: (x[2 k2][c], x[2 k2 + 1][c]) for the even columns c,
 *              of the second: for the odd ones                                    (k down a column)
 *
 * With columns parted into even and odd, sums become rows of bf16 and pairs of rows by shifts and blends; and
 * the right form of X^T is the left form of X, its even and its odd rows each transposed as a 16 x 16 matrix
 * of pairs (pl_transpose16). A panel is the blocks along k of 32 rows or columns.
 */
#ifndef PL_CPU_BLOCKS_H
#define PL_CPU_BLOCKS_H

#include <stdint.h>

#include "../cpu_kernels.h"
#include "math/bf16_elem.h"

#if defined(__AVX512F__) && defined(__AVX512BW__)
#include <immintrin.h>

#define PL_BLOCK      32        /* side of a block */
#define PL_BLOCK_SIZE (32 * 32) /* its elements */
#define PL_TILE_SIZE  (16 * 32) /* bf16 in a tile */

/* A left panel: its rows `row` elements apart, its blocks `step`. Packed blocks have 32 and 1024; a matrix
 * that has whole blocks can be one as it lies. */
typedef struct {
    const pl_bf16 *at;
    int64_t row, step;
} pl_left;

/* Row r of a block of sums, four tiles: its even columns; the odd ones are 256 behind. */
#define PL_SUMS_ROW(sums, r) ((sums) + (r) / 16 * 512 + (r) % 16 * 16)

PL_INLINE pl_left pl_left_packed(const pl_bf16 *at)
{
    return (pl_left){at, PL_BLOCK, PL_BLOCK_SIZE};
}

/* ---- vectors of 16 pairs ------------------------------------------------------------------------ */

/* (low halves of a, low halves of b) and (high halves of a, high halves of b), lane by lane */
PL_INLINE __m512i pl_low_pairs(__m512i a, __m512i b)
{
    return _mm512_mask_blend_epi16(0xAAAAAAAAu, a, _mm512_slli_epi32(b, 16));
}

PL_INLINE __m512i pl_high_pairs(__m512i a, __m512i b)
{
    return _mm512_mask_blend_epi16(0xAAAAAAAAu, _mm512_srli_epi32(a, 16), b);
}

/* 16 pairs of floats. */
typedef struct {
    __m512 low, high;
} pl_pairs_f32;

/* Those of 16 pairs of bf16. */
PL_INLINE pl_pairs_f32 pl_widened16(__m512i pairs)
{
    return (pl_pairs_f32){_mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)),
                          _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32((int)0xffff0000u)))};
}

/* 32 floats by twos: the even ones low, the odd ones high. */
PL_INLINE pl_pairs_f32 pl_by_twos(__m512 first, __m512 second)
{
    const __m512i evens = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0),
                  odds = _mm512_add_epi32(evens, _mm512_set1_epi32(1));
    return (pl_pairs_f32){_mm512_permutex2var_ps(first, evens, second),
                          _mm512_permutex2var_ps(first, odds, second)};
}

/* pl_bf16_from_f32, 16 at once, in the high halves. */
PL_INLINE __m512i pl_rounded16(__m512 v)
{
    __m512i u = _mm512_castps_si512(v);
    __m512i r = _mm512_mask_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)),
                                      _mm512_test_epi32_mask(u, _mm512_set1_epi32(0x10000)), u,
                                      _mm512_set1_epi32(0x8000));
    return _mm512_mask_or_epi32(r, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), u, _mm512_set1_epi32(0x400000));
}

/* Lanes that are subnormal. */
PL_INLINE __mmask16 pl_subnormal16(__m512 x)
{
    return _mm512_fpclass_ps_mask(x, 0x20);
}

/* 16 pairs (low, high) of bf16 from floats, rounded to nearest even, subnormal ones to zero: AVX512-BF16 has
 * an instruction that does so. */
PL_INLINE __m512i pl_normal_pairs16(__m512 low, __m512 high)
{
#ifdef __AVX512BF16__
    const __m512i by_turns = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8,
                                              23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_permutexvar_epi16(by_turns, (__m512i)_mm512_cvtne2ps_pbh(high, low));
#else
    const __m512i sign = _mm512_set1_epi32(INT32_MIN);
    __m512i l = pl_rounded16(low), h = pl_rounded16(high);
    return pl_high_pairs(_mm512_mask_and_epi32(l, pl_subnormal16(low), l, sign),
                         _mm512_mask_and_epi32(h, pl_subnormal16(high), h, sign));
#endif
}

#ifdef __AVX512BF16__
static __attribute__((noinline, cold, unused)) __m512i pl_subnormal_pairs16(__m512 low, __m512 high)
{
    return pl_high_pairs(pl_rounded16(low), pl_rounded16(high));
}
#endif

/* The same, subnormal ones kept: they are among those that become zero. */
PL_INLINE __m512i pl_pairs16(__m512 low, __m512 high)
{
#ifdef __AVX512BF16__
    __m512i x = pl_normal_pairs16(low, high);
    if (__builtin_expect(_mm512_testn_epi16_mask(x, _mm512_set1_epi16(0x7fff)) != 0, 0) &&
        (pl_subnormal16(low) | pl_subnormal16(high)))
        x = pl_subnormal_pairs16(low, high);
    return x;
#else
    return pl_high_pairs(pl_rounded16(low), pl_rounded16(high));
#endif
}

/* dst row j = column j of the 16 rows of 16 pairs at src, for the eight columns from 8 `half`; strides in
 * elements (32: a tile's rows). */
PL_INLINE void pl_transpose8(pl_bf16 *dst, int64_t ds, const pl_bf16 *src, int64_t ss, int half)
{
    const __m512i low = _mm512_set_epi64(13, 12, 5, 4, 9, 8, 1, 0),
                  high = _mm512_set_epi64(15, 14, 7, 6, 11, 10, 3, 2);
    __m512i r[8], s[8];
    src += 16 * half, dst += 8 * half * ds;
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) /* row i, then row i + 8: columns 0-3, 4-7 */
        r[i] = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256((const void *)(src + i * ss))),
                                  _mm256_loadu_si256((const void *)(src + (i + 8) * ss)), 1);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        s[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
        s[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
    }
#pragma GCC unroll 2
    /* r[4 i + c]: columns c, 4 + c of rows 4 i to 4 i + 3, then of rows 8 + 4 i to ... */
    for (int i = 0; i < 2; i++) {
        r[4 * i] = _mm512_unpacklo_epi64(s[4 * i], s[4 * i + 2]);
        r[4 * i + 1] = _mm512_unpackhi_epi64(s[4 * i], s[4 * i + 2]);
        r[4 * i + 2] = _mm512_unpacklo_epi64(s[4 * i + 1], s[4 * i + 3]);
        r[4 * i + 3] = _mm512_unpackhi_epi64(s[4 * i + 1], s[4 * i + 3]);
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        _mm512_storeu_si512(dst + c * ds, _mm512_permutex2var_epi64(r[c], low, r[4 + c]));
        _mm512_storeu_si512(dst + (4 + c) * ds, _mm512_permutex2var_epi64(r[c], high, r[4 + c]));
    }
}

PL_INLINE void pl_transpose16(pl_bf16 *dst, int64_t ds, const pl_bf16 *src, int64_t ss)
{
    pl_transpose8(dst, ds, src, ss, 0);
    pl_transpose8(dst, ds, src, ss, 1);
}

/* The right form of X^T from the left form of X. */
PL_INLINE void pl_transpose_left(pl_bf16 *right, const pl_bf16 *left)
{
    pl_transpose16(right, 32, left, 64);
    pl_transpose16(right + PL_TILE_SIZE, 32, left + 32, 64);
}

/* The left form of X^T from the right form of X. */
PL_INLINE void pl_transpose_right(pl_bf16 *left, const pl_bf16 *right)
{
    pl_transpose16(left, 64, right, 32);
    pl_transpose16(left + 32, 64, right + PL_TILE_SIZE, 32);
}

/* ---- packing ------------------------------------------------------------------------------------ */

/* 32 elements, the first n of them from p, the others zero. */
PL_INLINE __m512i pl_load32(const pl_bf16 *p, int64_t n)
{
    if (n >= 32) return _mm512_loadu_si512(p);
    return n <= 0 ? _mm512_setzero_si512() : _mm512_maskz_loadu_epi16(0xFFFFFFFFu >> (32 - n), p);
}

/* One block of the rows x cols matrix at x, row stride rs, whatever lies beyond it taken as zero. */
PL_INLINE void pl_block_left(pl_bf16 *dst, const pl_bf16 *x, int64_t rs, int64_t rows, int64_t cols)
{
    if (rows >= 32 && cols >= 32)
#pragma GCC unroll 4
        for (int64_t i = 0; i < 32; i++) _mm512_storeu_si512(dst + 32 * i, _mm512_loadu_si512(x + i * rs));
    else
        for (int64_t i = 0; i < 32; i++)
            _mm512_storeu_si512(dst + 32 * i,
                                i < rows ? pl_load32(x + i * rs, cols) : _mm512_setzero_si512());
}

PL_INLINE void pl_put_right(pl_bf16 *dst, int64_t i, __m512i a, __m512i b)
{
    _mm512_storeu_si512(dst + 32 * i, pl_low_pairs(a, b));
    _mm512_storeu_si512(dst + PL_TILE_SIZE + 32 * i, pl_high_pairs(a, b));
}

PL_INLINE void pl_block_right(pl_bf16 *dst, const pl_bf16 *x, int64_t rs, int64_t rows, int64_t cols)
{
    if (rows >= 32 && cols >= 32)
#pragma GCC unroll 4
        for (int64_t i = 0; i < 16; i++)
            pl_put_right(dst, i, _mm512_loadu_si512(x + 2 * i * rs),
                         _mm512_loadu_si512(x + (2 * i + 1) * rs));
    else
        for (int64_t i = 0; i < 16; i++) {
            __m512i a = 2 * i < rows ? pl_load32(x + 2 * i * rs, cols) : _mm512_setzero_si512();
            __m512i b = 2 * i + 1 < rows ? pl_load32(x + (2 * i + 1) * rs, cols) : _mm512_setzero_si512();
            pl_put_right(dst, i, a, b);
        }
}

#endif
#endif
