/* cpu_tiles.h -- the tile unit (AMX), in four words, and the blocks it is fed with. Only where PL_TILES is
 * set: on amx and on avx512bf16, which has the blocks and pl_tiles_multiply (cpu_dots.h) but no tiles;
 * PL_TILE_UNIT where there are tiles too.
 *
 * A tile is 16 rows of 64 bytes. pl_tile_dot adds to a tile of 16 x 16 floats the product of 16 x 32 bf16 and
 * 32 x 16 bf16: even and odd k each in a chain of fused multiply-adds from zero, the two added, their sum
 * added to the tile; round to nearest even, subnormal numbers taken and left as zero. With PL_AMX_EMULATE the
 * same in plain C on a struct, bit for bit, so that a machine without the unit can test what is built on it.
 */
#ifndef PL_CPU_TILES_H
#define PL_CPU_TILES_H

#include <stdint.h>
#include <string.h>

#include "cpu_blocks.h"
#include "math/formulas_elem.h"

#if defined(__AMX_BF16__) || defined(__AMXBF16__) || defined(PL_AMX_EMULATE)
#define PL_TILE_UNIT 1
#endif

#if defined(PL_TILE_UNIT) || defined(__AVX512BF16__)
#define PL_TILES 1

#ifndef PL_TILE_UNIT

#include "cpu_dots.h"

#elif defined(PL_AMX_EMULATE)

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
    memset(t, 0x5A, sizeof *t); /* nothing may count on what a register held */
    t->ready = 1;
}

static inline void pl_tiles_end(pl_tiles *t)
{
    t->ready = 0;
}

static inline void pl_tile_check(const pl_tiles *t)
{
    if (t->ready != 1) __builtin_trap(); /* as the unit does without a configuration */
}

static inline void pl_tile_zero_(pl_tiles *t, int i)
{
    pl_tile_check(t);
    memset(t->tile[i], 0, 1024);
}

static inline void pl_tile_load_(pl_tiles *t, int i, const void *p, int64_t stride)
{
    pl_tile_check(t);
    for (int r = 0; r < 16; r++) memcpy(t->tile[i] + 64 * r, (const char *)p + r * stride, 64);
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
        for (int j = 0; j < 16; j++)
            b0[k][j] = pl_flush(pl_bf16_to_f32(B[k][2 * j])),
            b1[k][j] = pl_flush(pl_bf16_to_f32(B[k][2 * j + 1]));
    for (int i = 0; i < 16; i++) {
        float even[16] = {0}, odd[16] = {0};
        for (int k = 0; k < 16; k++) {
            float a0 = pl_flush(pl_bf16_to_f32(A[i][2 * k])), a1 = pl_flush(pl_bf16_to_f32(A[i][2 * k + 1]));
            for (int j = 0; j < 16; j++)
                even[j] = pl_flush(fmaf(a0, b0[k][j], even[j])),
                odd[j] = pl_flush(fmaf(a1, b1[k][j], odd[j]));
        }
        for (int j = 0; j < 16; j++) C[i][j] = pl_flush(pl_flush(C[i][j]) + pl_flush(even[j] + odd[j]));
    }
    memcpy(t->tile[c], C, sizeof C);
}

#define pl_tile_zero(t, i)                 pl_tile_zero_(t, i)
#define pl_tile_store(t, i, p)             pl_tile_store_(t, i, p)
#define pl_tile_dot(t, c, a, b)            pl_tile_dot_(t, c, a, b)
#define PL_TILES_BARRIER()                 ((void)0)
#define pl_tile_load_rows(t, i, p, stride) pl_tile_load_(t, i, p, stride)

#else

typedef struct {
    int unused;
} pl_tiles;

/* gcc says of the tile instructions neither that they read memory nor, of the configuration, that it has 64
 * bytes. */
#define PL_TILES_BARRIER() __asm__ volatile("" ::: "memory")

/* Every tile 16 rows of 64 bytes; a thread does this before its first tile. */
static inline void pl_tiles_begin(pl_tiles *t)
{
    (void)t;
    volatile unsigned char c[64];
    for (int i = 0; i < 64; i++) c[i] = 0;
    c[0] = 1; /* the palette */
    for (int i = 0; i < 8; i++) {
        c[16 + 2 * i] = 64; /* bytes in a row */
        c[48 + i] = 16;     /* rows */
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

#define pl_tile_zero(t, i)                 _tile_zero(i)
#define pl_tile_store(t, i, p)             _tile_stored(i, p, 64)
#define pl_tile_dot(t, c, a, b)            _tile_dpbf16ps(c, a, b)
#define pl_tile_load_rows(t, i, p, stride) _tile_loadd(i, p, stride)

#endif

#ifdef PL_TILE_UNIT
#define pl_tile_load(t, i, p) pl_tile_load_rows(t, i, p, 64)

/* Tiles 0 to 3 += one block of a left panel, rows `row` elements apart, times one of a right panel; `work`,
 * vector instructions, after each of the four products. */
#define PL_TILES_ADD(t, left, row, right, work)                                         \
    do {                                                                                \
        pl_tile_load_rows(t, 4, left, (row) * (int64_t)sizeof(pl_bf16));                \
        pl_tile_load(t, 6, right);                                                      \
        pl_tile_dot(t, 0, 4, 6);                                                        \
        work;                                                                           \
        pl_tile_load(t, 7, (right) + PL_TILE_SIZE);                                     \
        pl_tile_dot(t, 1, 4, 7);                                                        \
        work;                                                                           \
        pl_tile_load_rows(t, 5, (left) + 16 * (row), (row) * (int64_t)sizeof(pl_bf16)); \
        pl_tile_dot(t, 2, 5, 6);                                                        \
        work;                                                                           \
        pl_tile_dot(t, 3, 5, 7);                                                        \
        work;                                                                           \
    } while (0)

/* Tiles 0 to 3 = zero, or sums of a block; a block of sums = tiles 0 to 3. */
PL_INLINE void pl_tiles_start(pl_tiles *t, const float *sums)
{
    (void)t;
    if (sums) {
        pl_tile_load(t, 0, sums);
        pl_tile_load(t, 1, sums + 256);
        pl_tile_load(t, 2, sums + 512);
        pl_tile_load(t, 3, sums + 768);
    } else {
        pl_tile_zero(t, 0);
        pl_tile_zero(t, 1);
        pl_tile_zero(t, 2);
        pl_tile_zero(t, 3);
    }
}

PL_INLINE void pl_tiles_store(pl_tiles *t, float *sums)
{
    (void)t;
    pl_tile_store(t, 0, sums);
    pl_tile_store(t, 1, sums + 256);
    pl_tile_store(t, 2, sums + 512);
    pl_tile_store(t, 3, sums + 768);
}
#endif

/* acc = four tiles of sums, rows 0-15 even and odd columns, rows 16-31 even and odd columns; over `steps`
 * blocks of a left and of a right panel, added to what acc holds if `more`. */
PL_INLINE void pl_tiles_multiply_left(pl_tiles *t, float *acc, pl_left left, const pl_bf16 *right,
                                      int64_t steps, int more)
{
    (void)t;
#ifndef PL_TILE_UNIT
    pl_dots_multiply(acc, left, right, PL_BLOCK, 16 * steps, more);
#else
    PL_TILES_BARRIER();
    pl_tiles_start(t, more ? acc : NULL);
    for (int64_t k = 0; k < steps; k++, left.at += left.step, right += PL_BLOCK_SIZE)
        PL_TILES_ADD(t, left.at, left.row, right, (void)0);
    pl_tiles_store(t, acc);
    PL_TILES_BARRIER();
#endif
}

/* The same of a packed left panel. */
static inline void pl_tiles_multiply(pl_tiles *t, float *acc, const pl_bf16 *left, const pl_bf16 *right,
                                     int64_t steps, int more)
{
    pl_tiles_multiply_left(t, acc, pl_left_packed(left), right, steps, more);
}

#endif
#endif
