/* cpu_attention_blocks.h -- what both directions of attention do with blocks of a head: packing, products, the way out, weights (cpu_attention_tiles.c; forms of blocks: cpu_tiles.h). */
#ifndef PL_CPU_ATTENTION_BLOCKS_H
#define PL_CPU_ATTENTION_BLOCKS_H

#include <math.h>

#include "../cpu_attention.h"
#include "cpu_tiles.h"

#ifdef PL_TILES

#define SIZE   PL_BLOCK_SIZE
#define LOG2_E 0x1.715476p0f

/* Row r of a block of sums: its even columns; the odd ones are 256 behind. */
#define ROW(acc, r) ((acc) + (r) / 16 * 512 + (r) % 16 * 16)

/* A head of an image: where its columns lie, and the sizes in blocks. */
typedef struct {
    const pl_attention_plan *p;
    const pl_attention_tiles *w;
    int64_t image, head, col, T, tb, db;
    float   scale;
} head_of;

static inline head_of head_at(const pl_attention_plan *p, const pl_attention_tiles *w, int64_t image, int64_t head)
{
    return (head_of){p, w, image, head, head * p->d, p->tokens, p->tp / PL_BLOCK, p->dp / PL_BLOCK, 1.0f / sqrtf((float)p->d)};
}

/* Block (i, c) of the head's columns of m from `col` on: where it begins, and what is left of it. */
typedef struct {
    const pl_bf16 *at;
    int64_t rs, rows, cols;
} part_of;

static inline part_of part_at(const head_of *h, const pl_mat *m, int64_t col, int64_t i, int64_t c)
{
    return (part_of){(const pl_bf16 *)m->data + h->image * m->bs + i * PL_BLOCK * m->rs + col + c * PL_BLOCK, m->rs, h->T - i * PL_BLOCK, h->p->d - c * PL_BLOCK};
}

static inline void left_block(pl_bf16 *dst, part_of x)
{
    pl_block_left(dst, x.at, x.rs, x.rows, x.cols);
}

static inline void right_block(pl_bf16 *dst, part_of x)
{
    pl_block_right(dst, x.at, x.rs, x.rows, x.cols);
}

/* The right form of X^T, a panel for 32 rows of X: dst[row block][column block]. */
static inline void pack_turned(pl_bf16 *dst, const head_of *h, const pl_mat *m, int64_t col)
{
    _Alignas(64) pl_bf16 left[SIZE];
    for (int64_t j = 0; j < h->tb; j++)
        for (int64_t c = 0; c < h->db; c++, dst += SIZE) {
            left_block(left, part_at(h, m, col, j, c));
            pl_turn_left(dst, left);
        }
}

/* The right form of X: dst[column block][row block]. */
static inline void pack_right(pl_bf16 *dst, const head_of *h, const pl_mat *m, int64_t col)
{
    for (int64_t c = 0; c < h->db; c++)
        for (int64_t j = 0; j < h->tb; j++, dst += SIZE) right_block(dst, part_at(h, m, col, j, c));
}

/* The left form of X^T: dst[column block][row block]. */
static inline void pack_transposed(pl_bf16 *dst, const head_of *h, const pl_mat *m, int64_t col)
{
    _Alignas(64) pl_bf16 right[SIZE];
    for (int64_t c = 0; c < h->db; c++)
        for (int64_t j = 0; j < h->tb; j++, dst += SIZE) {
            right_block(right, part_at(h, m, col, j, c));
            pl_turn_right(dst, right);
        }
}

/* ---- 32 numbers of a row as bf16, from the sums' even and odd columns ---- */

/* Subnormal numbers may become zero, as whatever multiplies them takes them. */
PL_INLINE void put_pairs(pl_bf16 *dst, __m512 low, __m512 high)
{
    _mm512_storeu_si512(dst, pl_normal_pairs16(low, high));
}

PL_INLINE __m512 even_of(const float *acc, int64_t r)
{
    return _mm512_loadu_ps(ROW(acc, r));
}

PL_INLINE __m512 odd_of(const float *acc, int64_t r)
{
    return _mm512_loadu_ps(ROW(acc, r) + 256);
}

static inline void sums_right(pl_bf16 *dst, const float *acc)
{
    for (int k = 0; k < 16; k++) {
        put_pairs(dst + k * PL_BLOCK, even_of(acc, 2 * k), even_of(acc, 2 * k + 1));
        put_pairs(dst + PL_TILE_SIZE + k * PL_BLOCK, odd_of(acc, 2 * k), odd_of(acc, 2 * k + 1));
    }
}

/* The columns of a part as a mask. */
PL_INLINE __mmask32 columns(const part_of *to)
{
    return to->cols >= PL_BLOCK ? 0xFFFFFFFFu : 0xFFFFFFFFu >> (PL_BLOCK - to->cols);
}

/* ---- products ---- */

/* Rows of block i that are computed: its tokens, as many as come at a time. */
static inline int64_t rows_of(const head_of *h, int64_t i)
{
    int64_t n = h->T - i * PL_BLOCK;
#ifdef PL_TILE_UNIT
    return n > 0 ? PL_BLOCK : 0;
#else
    return n > PL_BLOCK ? PL_BLOCK : (n + PL_DOT_ROWS - 1) / PL_DOT_ROWS * PL_DOT_ROWS;
#endif
}

/* pl_tiles_multiply from zero, of the first `rows` rows; of k the first `depth` are not zero. Where it costs nothing to leave out the others they are left out: the bits are
 * the same. */
static inline void multiply(pl_tiles *t, float *acc, const pl_bf16 *left, const pl_bf16 *right, int64_t depth, int64_t rows)
{
#ifdef PL_TILE_UNIT
    (void)rows;
    pl_tiles_multiply(t, acc, left, right, (depth + PL_BLOCK - 1) / PL_BLOCK, 0);
#else
    (void)t;
    pl_dots_multiply(acc, pl_left_packed(left), right, rows, (depth + 1) / 2, 0);
#endif
}

/* Rows of products with every 32 columns of a turned factor, sums after sums. */
static inline void score_rows(pl_tiles *t, const head_of *h, float *acc, const pl_bf16 *left, const pl_bf16 *turned, int64_t rows)
{
    for (int64_t j = 0; j < h->tb; j++) multiply(t, acc + j * SIZE, left, turned + j * h->db * SIZE, h->p->d, rows);
}

/* Rows of block i of the head's columns from `col`: 32 rows of w->p times a right factor, times a factor per row or none. */
static inline void store_rows(pl_tiles *t, const head_of *h, const pl_mat *m, int64_t col, int64_t i, const pl_bf16 *right, const float *factor)
{
    for (int64_t c = 0; c < h->db; c++) {
        part_of to = part_at(h, m, col, i, c);
        multiply(t, h->w->sum, h->w->p, right + c * h->tb * SIZE, h->T, rows_of(h, i));
        for (int64_t r = 0; r < PL_BLOCK && r < to.rows; r++) {
            __m512 f = _mm512_set1_ps(factor ? factor[r] : 1.0f);
            __m512i x = pl_normal_pairs16(_mm512_mul_ps(even_of(h->w->sum, r), f), _mm512_mul_ps(odd_of(h->w->sum, r), f));
            _mm512_mask_storeu_epi16((pl_bf16 *)to.at + r * to.rs, columns(&to), x);
        }
    }
}

/* The transposed product of all queries, 32 keys and 32 columns at a time, into the head's columns from `col`. */
static inline void store_turned(pl_tiles *t, const head_of *h, const pl_mat *m, int64_t col, const pl_bf16 *left, const pl_bf16 *right)
{
    _Alignas(64) pl_bf16 turned[SIZE], block[SIZE];
    for (int64_t j = 0; j < h->tb; j++)
        for (int64_t c = 0; c < h->db; c++) {
            part_of to = part_at(h, m, col, j, c);
            multiply(t, h->w->sum, left + c * h->tb * SIZE, right + j * h->tb * SIZE, h->T, PL_BLOCK);
            sums_right(turned, h->w->sum);
            pl_turn_right(block, turned);
            for (int64_t r = 0; r < PL_BLOCK && r < to.rows; r++)
                _mm512_mask_storeu_epi16((pl_bf16 *)to.at + r * to.rs, columns(&to), _mm512_load_si512(block + r * PL_BLOCK));
        }
}

/* ---- weights ---- */

/* 2^y: 2^n times a polynomial in y - n, |y - n| <= 1/2, minimax of the relative error (2^-23.7); 0 below -150, NaN for NaN. */
PL_INLINE __m512 power_of_two(__m512 y)
{
    y = _mm512_max_ps(_mm512_set1_ps(-160.0f), y);    /* minus infinity less minus infinity would be NaN */
    __m512 n = _mm512_roundscale_ps(y, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), f = _mm512_sub_ps(y, n), q = _mm512_set1_ps(0x1.5c08e4p-10f);
    q = _mm512_fmadd_ps(q, f, _mm512_set1_ps(0x1.3d0c52p-7f));
    q = _mm512_fmadd_ps(q, f, _mm512_set1_ps(0x1.c6b6e4p-5f));
    q = _mm512_fmadd_ps(q, f, _mm512_set1_ps(0x1.ebf918p-3f));
    q = _mm512_fmadd_ps(q, f, _mm512_set1_ps(0x1.62e428p-1f));
    q = _mm512_fmadd_ps(q, f, _mm512_set1_ps(0x1.000002p+0f));
    return _mm512_scalef_ps(q, n);
}

/* Scores of row r with the keys of block j, even columns or odd ones; beyond the last token minus infinity. */
PL_INLINE __m512 scores(const head_of *h, const float *s, int64_t j, int64_t r, int odd)
{
    __m512 x = odd ? odd_of(s + j * SIZE, r) : even_of(s + j * SIZE, r);
    if (j + 1 < h->tb) return x;
    int64_t used = h->T - j * PL_BLOCK, n = (used + !odd) / 2;
    return _mm512_mask_blend_ps((__mmask16)(0xFFFFu >> (16 - n)), _mm512_set1_ps(-INFINITY), x);
}

#endif
#endif
