/* cpu_dots.h -- the tile unit's blocks without the unit: 32 x 32 sums by vdpbf16ps, eight rows of them in
 * registers at a time. Included by cpu_tiles.h.
 *
 * A dot product adds to each of 16 floats two products of bf16: the odd k's, then the even k's, each a fused
 * multiply-add that rounds to nearest even and takes and leaves subnormal numbers as zero. A sum is one chain
 * over ascending pairs of k, so bits depend on the operands alone.
 */
#ifndef PL_CPU_DOTS_H
#define PL_CPU_DOTS_H

#include <string.h>

#include "cpu_blocks.h"

#ifdef __AVX512BF16__

/* with two vectors a row 16 chains; beside them two vectors of a right block and a pair of the left one */
#define PL_DOT_ROWS 8

typedef struct {
    int unused;
} pl_tiles;

static inline void pl_tiles_begin(pl_tiles *t)
{
    (void)t;
}

static inline void pl_tiles_end(pl_tiles *t)
{
    (void)t;
}

/* A pair of bf16 in every lane. */
PL_INLINE __m512i pl_dot_pair(const pl_bf16 *p)
{
    int32_t x;
    memcpy(&x, p, sizeof x);
    return _mm512_set1_epi32(x);
}

PL_INLINE __m512 pl_dot(__m512 sum, __m512i a, __m512i b)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}

PL_INLINE void pl_dot_zero(__m512 *even, __m512 *odd)
{
#pragma GCC unroll 8
    for (int r = 0; r < PL_DOT_ROWS; r++) even[r] = odd[r] = _mm512_setzero_ps();
}

/* Eight rows from and to a block of sums: odd columns 256 behind the even ones. */
PL_INLINE void pl_dot_load(__m512 *even, __m512 *odd, const float *rows)
{
#pragma GCC unroll 8
    for (int r = 0; r < PL_DOT_ROWS; r++)
        even[r] = _mm512_loadu_ps(rows + 16 * r), odd[r] = _mm512_loadu_ps(rows + 256 + 16 * r);
}

PL_INLINE void pl_dot_store(float *rows, const __m512 *even, const __m512 *odd)
{
#pragma GCC unroll 8
    for (int r = 0; r < PL_DOT_ROWS; r++)
        _mm512_storeu_ps(rows + 16 * r, even[r]), _mm512_storeu_ps(rows + 256 + 16 * r, odd[r]);
}

/* How eight rows of a left panel lie: rows in the left form, packed or not; or, of a transpose packed by
 * pl_dot_pack_transposed, the pairs of all eight side by side. */
typedef enum { PL_DOT_AS_ROWS, PL_DOT_AS_PAIRS } pl_dot_form;

/* even, odd += pair p of a step, of eight rows from row[0], three more of them from row[1], two from row[2]:
 * addresses that need few registers. */
PL_INLINE void pl_dot_step(__m512 *even, __m512 *odd, const pl_bf16 *const row[3], int64_t stride,
                           const pl_bf16 *right, int p, const pl_dot_form as)
{
    __m512i b0 = _mm512_loadu_si512(right + 32 * p), b1 = _mm512_loadu_si512(right + PL_TILE_SIZE + 32 * p);
#pragma GCC unroll 8
    for (int r = 0; r < PL_DOT_ROWS; r++) {
        __m512i a = pl_dot_pair(as == PL_DOT_AS_PAIRS ? row[0] + 16 * p + r / 2 * 2 + r % 2 * 8
                                                      : row[r / 3] + r % 3 * stride + 2 * p);
        even[r] = pl_dot(even[r], a, b0);
        odd[r] = pl_dot(odd[r], a, b1);
    }
}

/* even, odd += eight rows of a left panel times a right panel, over so many pairs of k. */
PL_INLINE void pl_dot_more(__m512 *even, __m512 *odd, pl_left left, const pl_bf16 *right, int64_t pairs,
                           const pl_dot_form as)
{
    const pl_bf16 *row[3] = {left.at, left.at + 3 * left.row, left.at + 6 * left.row};
    for (; pairs >= 16;
         pairs -= 16, row[0] += left.step, row[1] += left.step, row[2] += left.step, right += PL_BLOCK_SIZE)
#pragma GCC unroll 4
        for (int p = 0; p < 16; p++) pl_dot_step(even, odd, row, left.row, right, p, as);
    for (int p = 0; p < (int)pairs; p++) pl_dot_step(even, odd, row, left.row, right, p, as);
}

/* Pairs of k to multiply where `depth` of k are not zero, of blocks that are zero beyond: one pair of zeros
 * is as good as many, and better than none, for it makes a sum that underflowed to minus zero zero. */
PL_INLINE int64_t pl_dot_pairs(int64_t depth)
{
    return depth % PL_BLOCK == 0 || depth % PL_BLOCK > PL_BLOCK - 2 ? (depth + 1) / 2 : (depth + 1) / 2 + 1;
}

/* even, odd = eight rows of a packed left panel times a right panel. */
PL_INLINE void pl_dot_rows(__m512 *even, __m512 *odd, const pl_bf16 *left, const pl_bf16 *right,
                           int64_t pairs)
{
    pl_dot_zero(even, odd);
    pl_dot_more(even, odd, pl_left_packed(left), right, pairs, PL_DOT_AS_ROWS);
}

/* The same of the right panel's first 16 columns; the others' sums are zero. */
PL_INLINE void pl_dot_rows_half(__m512 *even, __m512 *odd, const pl_bf16 *left, const pl_bf16 *right,
                                int64_t pairs)
{
    __m256 half[2 * PL_DOT_ROWS];
#pragma GCC unroll 16
    for (int r = 0; r < 2 * PL_DOT_ROWS; r++) half[r] = _mm256_setzero_ps();
    for (; pairs > 0; pairs -= 16, left += PL_BLOCK_SIZE, right += PL_BLOCK_SIZE)
        for (int p = 0; p < (pairs < 16 ? (int)pairs : 16); p++) {
            __m256bh b0 = (__m256bh)_mm256_loadu_si256((const void *)(right + 32 * p)),
                     b1 = (__m256bh)_mm256_loadu_si256((const void *)(right + PL_TILE_SIZE + 32 * p));
#pragma GCC unroll 8
            for (int r = 0; r < PL_DOT_ROWS; r++) {
                __m256bh a = (__m256bh)_mm512_castsi512_si256(pl_dot_pair(left + 32 * r + 2 * p));
                half[2 * r] = _mm256_dpbf16_ps(half[2 * r], a, b0);
                half[2 * r + 1] = _mm256_dpbf16_ps(half[2 * r + 1], a, b1);
            }
        }
#pragma GCC unroll 8
    for (int r = 0; r < PL_DOT_ROWS; r++)
        even[r] = _mm512_zextps256_ps512(half[2 * r]), odd[r] = _mm512_zextps256_ps512(half[2 * r + 1]);
}

/* As pl_tiles_multiply_left, of the first `rows` rows, a multiple of eight, and the first `pairs` pairs of k.
 * Where all beyond them are zero the bits are the same, except that a sum that underflowed can stay minus
 * zero. */
static __attribute__((noinline, unused)) void pl_dots_multiply(float *acc, pl_left left, const pl_bf16 *right,
                                                               int64_t rows, int64_t pairs, int more)
{
    for (int64_t r = 0; r < rows; r += PL_DOT_ROWS, left.at += PL_DOT_ROWS * left.row) {
        float *to = PL_SUMS_ROW(acc, r);
        __m512 even[PL_DOT_ROWS], odd[PL_DOT_ROWS];
        if (more) pl_dot_load(even, odd, to);
        else pl_dot_zero(even, odd);
        pl_dot_more(even, odd, left, right, pairs, PL_DOT_AS_ROWS);
        pl_dot_store(to, even, odd);
    }
}

/* Block k of `steps` of the transpose of 32 columns of x, for PL_DOT_AS_PAIRS: eight rows of the transpose
 * after eight, each over all k, 256 elements a block. */
PL_INLINE void pl_dot_pack_transposed(pl_bf16 *dst, int64_t k, int64_t steps, const pl_bf16 *x, int64_t rs,
                                      int64_t rows, int64_t cols)
{
    const __m512i first = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0),
                  second = _mm512_add_epi64(first, _mm512_set1_epi64(4));
    dst += 256 * k;
    for (int64_t i = 0; i < 16; i++, dst += 16) {
        __m512i a = 2 * i < rows ? pl_load32(x + 2 * i * rs, cols) : _mm512_setzero_si512(),
                b = 2 * i + 1 < rows ? pl_load32(x + (2 * i + 1) * rs, cols) : _mm512_setzero_si512();
        __m512i even = pl_low_pairs(a, b), odd = pl_high_pairs(a, b);
        /* columns 0-7 and 8-15, 16-23 and 24-31 */
        __m512i low = _mm512_permutex2var_epi64(even, first, odd),
                high = _mm512_permutex2var_epi64(even, second, odd);
        _mm256_storeu_si256((void *)dst, _mm512_castsi512_si256(low));
        _mm256_storeu_si256((void *)(dst + 256 * steps), _mm512_extracti64x4_epi64(low, 1));
        _mm256_storeu_si256((void *)(dst + 512 * steps), _mm512_castsi512_si256(high));
        _mm256_storeu_si256((void *)(dst + 768 * steps), _mm512_extracti64x4_epi64(high, 1));
    }
}

#endif
#endif
