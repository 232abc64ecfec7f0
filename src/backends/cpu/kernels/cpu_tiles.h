/* cpu_tiles.h -- the tile unit (AMX), in four words, and the blocks it is fed with. Only where PL_TILES is set.
 *
 * A tile is 16 rows of 64 bytes. pl_tile_dot adds to a tile of 16 x 16 floats the product of 16 x 32 bf16 and 32 x 16 bf16: even and odd k each in a chain of
 * fused multiply-adds from zero, the two added, their sum added to the tile; round to nearest even, subnormal numbers taken and left as zero.
 * With PL_AMX_EMULATE the same in plain C on a struct, bit for bit, so that a machine without the unit can test what is built on it.
 *
 * A block is 32 x 32 bf16, 2 KB, two tiles one after the other, in one of two forms:
 *     left     row r at 64 r: rows 0-15, rows 16-31                               (k along a row)
 *     right    row k2 of the first tile: (x[2 k2][c], x[2 k2 + 1][c]) for the even columns c, of the second: for the odd ones     (k down a column)
 * With columns parted into even and odd, sums become rows of bf16 and pairs of rows by shifts and blends; and the right form of X^T is the left form of X,
 * its even and its odd rows each turned as a 16 x 16 matrix of pairs (pl_turn16). A panel is the blocks along k of 32 rows or columns.
 */
#ifndef PL_CPU_TILES_H
#define PL_CPU_TILES_H

#include <stdint.h>
#include <string.h>

#include "../cpu_kernels.h"
#include "math/formulas_elem.h"

#if defined(__AMX_BF16__) || defined(PL_AMX_EMULATE)
#define PL_TILES 1
#include <immintrin.h>

#define PL_BLOCK      32             /* side of a block */
#define PL_BLOCK_SIZE (32 * 32)      /* its elements */
#define PL_TILE_SIZE  (16 * 32)      /* bf16 in a tile */

#ifdef PL_AMX_EMULATE

typedef struct {
    _Alignas(64) unsigned char tile[8][1024];
    int ready;
} pl_tiles;

static inline float pl_flush(float x)
{
    return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}

static inline void pl_tiles_begin(pl_tiles *t)
{
    memset(t, 0x5A, sizeof *t);    /* nothing may count on what a register held */
    t->ready = 1;
}

static inline void pl_tiles_end(pl_tiles *t)
{
    t->ready = 0;
}

static inline void pl_tile_check(const pl_tiles *t)
{
    if (t->ready != 1) __builtin_trap();    /* as the unit does without a configuration */
}

static inline void pl_tile_zero_(pl_tiles *t, int i)
{
    pl_tile_check(t);
    memset(t->tile[i], 0, 1024);
}

static inline void pl_tile_load_(pl_tiles *t, int i, const void *p)
{
    pl_tile_check(t);
    memcpy(t->tile[i], p, 1024);
}

static inline void pl_tile_store_(pl_tiles *t, int i, void *p)
{
    pl_tile_check(t);
    memcpy(p, t->tile[i], 1024);
}

static inline void pl_tile_dot_(pl_tiles *t, int c, int a, int b)
{
    pl_tile_check(t);
    pl_bf16 A[16][32], B[16][32];
    float C[16][16], b0[16][16], b1[16][16];
    memcpy(A, t->tile[a], sizeof A), memcpy(B, t->tile[b], sizeof B), memcpy(C, t->tile[c], sizeof C);
    for (int k = 0; k < 16; k++)
        for (int j = 0; j < 16; j++) b0[k][j] = pl_flush(pl_bf16_to_f32(B[k][2 * j])), b1[k][j] = pl_flush(pl_bf16_to_f32(B[k][2 * j + 1]));
    for (int i = 0; i < 16; i++) {
        float even[16] = {0}, odd[16] = {0};
        for (int k = 0; k < 16; k++) {
            float a0 = pl_flush(pl_bf16_to_f32(A[i][2 * k])), a1 = pl_flush(pl_bf16_to_f32(A[i][2 * k + 1]));
            for (int j = 0; j < 16; j++) even[j] = pl_flush(fmaf(a0, b0[k][j], even[j])), odd[j] = pl_flush(fmaf(a1, b1[k][j], odd[j]));
        }
        for (int j = 0; j < 16; j++) C[i][j] = pl_flush(pl_flush(C[i][j]) + pl_flush(even[j] + odd[j]));
    }
    memcpy(t->tile[c], C, sizeof C);
}

#define pl_tile_zero(t, i)      pl_tile_zero_(t, i)
#define pl_tile_load(t, i, p)   pl_tile_load_(t, i, p)
#define pl_tile_store(t, i, p)  pl_tile_store_(t, i, p)
#define pl_tile_dot(t, c, a, b) pl_tile_dot_(t, c, a, b)
#define PL_TILES_BARRIER()      ((void)0)

#else

typedef struct {
    int unused;
} pl_tiles;

/* gcc says of the tile instructions neither that they read memory nor, of the configuration, that it has 64 bytes. */
#define PL_TILES_BARRIER() __asm__ volatile("" ::: "memory")

/* Every tile 16 rows of 64 bytes; a thread does this before its first tile. */
static inline void pl_tiles_begin(pl_tiles *t)
{
    (void)t;
    volatile unsigned char c[64];
    for (int i = 0; i < 64; i++) c[i] = 0;
    c[0] = 1;    /* the palette */
    for (int i = 0; i < 8; i++) {
        c[16 + 2 * i] = 64;    /* bytes in a row */
        c[48 + i] = 16;        /* rows */
    }
    PL_TILES_BARRIER();
    _tile_loadconfig((const void *)c);
    PL_TILES_BARRIER();
}

/* A thread that keeps tiles in use is slower to switch and to wake. */
static inline void pl_tiles_end(pl_tiles *t)
{
    (void)t;
    _tile_release();
}

#define pl_tile_zero(t, i)      _tile_zero(i)
#define pl_tile_load(t, i, p)   _tile_loadd(i, p, 64)
#define pl_tile_store(t, i, p)  _tile_stored(i, p, 64)
#define pl_tile_dot(t, c, a, b) _tile_dpbf16ps(c, a, b)

#endif

/* Tiles 0 to 3 += one block of a left panel times one of a right panel. */
static inline __attribute__((always_inline)) void pl_tiles_add(pl_tiles *t, const pl_bf16 *left, const pl_bf16 *right)
{
    (void)t;
    pl_tile_load(t, 4, left);
    pl_tile_load(t, 6, right);
    pl_tile_dot(t, 0, 4, 6);
    pl_tile_load(t, 7, right + PL_TILE_SIZE);
    pl_tile_dot(t, 1, 4, 7);
    pl_tile_load(t, 5, left + PL_TILE_SIZE);
    pl_tile_dot(t, 2, 5, 6);
    pl_tile_dot(t, 3, 5, 7);
}

/* acc = four tiles of sums, rows 0-15 even and odd columns, rows 16-31 even and odd columns; over `steps` blocks of a left and of a right panel,
 * added to what acc holds if `more`. */
static inline void pl_tiles_multiply(pl_tiles *t, float *acc, const pl_bf16 *left, const pl_bf16 *right, int64_t steps, int more)
{
    (void)t;
    PL_TILES_BARRIER();
    if (more) {
        pl_tile_load(t, 0, acc);
        pl_tile_load(t, 1, acc + 256);
        pl_tile_load(t, 2, acc + 512);
        pl_tile_load(t, 3, acc + 768);
    } else {
        pl_tile_zero(t, 0);
        pl_tile_zero(t, 1);
        pl_tile_zero(t, 2);
        pl_tile_zero(t, 3);
    }
    for (int64_t k = 0; k < steps; k++, left += PL_BLOCK_SIZE, right += PL_BLOCK_SIZE) pl_tiles_add(t, left, right);
    pl_tile_store(t, 0, acc);
    pl_tile_store(t, 1, acc + 256);
    pl_tile_store(t, 2, acc + 512);
    pl_tile_store(t, 3, acc + 768);
    PL_TILES_BARRIER();
}

/* ---- vectors of 16 pairs ------------------------------------------------------------------------------------------------ */

/* (low halves of a, low halves of b) and (high halves of a, high halves of b), lane by lane */
PL_INLINE __m512i pl_low_pairs(__m512i a, __m512i b)
{
    return _mm512_mask_blend_epi16(0xAAAAAAAAu, a, _mm512_slli_epi32(b, 16));
}

PL_INLINE __m512i pl_high_pairs(__m512i a, __m512i b)
{
    return _mm512_mask_blend_epi16(0xAAAAAAAAu, _mm512_srli_epi32(a, 16), b);
}

/* dst row j = column j of the 16 rows of 16 pairs at src, for the eight columns from 8 `half`; strides in elements (32: a tile's rows). */
PL_INLINE void pl_turn8(pl_bf16 *dst, int64_t ds, const pl_bf16 *src, int64_t ss, int half)
{
    const __m512i low = _mm512_set_epi64(13, 12, 5, 4, 9, 8, 1, 0), high = _mm512_set_epi64(15, 14, 7, 6, 11, 10, 3, 2);
    __m512i r[8], s[8];
    src += 16 * half, dst += 8 * half * ds;
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) /* row i, then row i + 8: columns 0-3, 4-7 */
        r[i] = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256((const void *)(src + i * ss))), _mm256_loadu_si256((const void *)(src + (i + 8) * ss)), 1);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        s[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
        s[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) { /* r[4 i + c]: columns c, 4 + c of rows 4 i to 4 i + 3, then of rows 8 + 4 i to ... */
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

PL_INLINE void pl_turn16(pl_bf16 *dst, int64_t ds, const pl_bf16 *src, int64_t ss)
{
    pl_turn8(dst, ds, src, ss, 0);
    pl_turn8(dst, ds, src, ss, 1);
}

/* The right form of X^T from the left form of X. */
PL_INLINE void pl_turn_left(pl_bf16 *right, const pl_bf16 *left)
{
    pl_turn16(right, 32, left, 64);
    pl_turn16(right + PL_TILE_SIZE, 32, left + 32, 64);
}

/* The left form of X^T from the right form of X. */
PL_INLINE void pl_turn_right(pl_bf16 *left, const pl_bf16 *right)
{
    pl_turn16(left, 64, right, 32);
    pl_turn16(left + 32, 64, right + PL_TILE_SIZE, 32);
}

/* ---- packing ------------------------------------------------------------------------------------------------------------ */

/* 32 elements, the first n of them from p, the others zero. */
PL_INLINE __m512i pl_load32(const pl_bf16 *p, int64_t n)
{
    if (n >= 32) return _mm512_loadu_si512(p);
    return n <= 0 ? _mm512_setzero_si512() : _mm512_maskz_loadu_epi16(0xFFFFFFFFu >> (32 - n), p);
}

/* One block of the rows x cols matrix at x, row stride rs, whatever lies beyond it taken as zero. */
PL_INLINE void pl_block_left(pl_bf16 *dst, const pl_bf16 *x, int64_t rs, int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < 32; i++) _mm512_storeu_si512(dst + 32 * i, i < rows ? pl_load32(x + i * rs, cols) : _mm512_setzero_si512());
}

PL_INLINE void pl_block_right(pl_bf16 *dst, const pl_bf16 *x, int64_t rs, int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < 16; i++) {
        __m512i a = 2 * i < rows ? pl_load32(x + 2 * i * rs, cols) : _mm512_setzero_si512();
        __m512i b = 2 * i + 1 < rows ? pl_load32(x + (2 * i + 1) * rs, cols) : _mm512_setzero_si512();
        _mm512_storeu_si512(dst + 32 * i, pl_low_pairs(a, b));
        _mm512_storeu_si512(dst + PL_TILE_SIZE + 32 * i, pl_high_pairs(a, b));
    }
}

#endif
#endif
