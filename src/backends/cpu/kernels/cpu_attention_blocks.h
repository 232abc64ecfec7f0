/* cpu_attention_blocks.h -- what both directions of attention do with blocks of a head: packing, products,
 * the way out, weights (cpu_attention_tiles.c; forms: cpu_tiles.h).
 *
 * Packing and the way out are pieces of vector work, products go on beside them (cpu_attention_overlap.h).
 */
#ifndef PL_CPU_ATTENTION_BLOCKS_H
#define PL_CPU_ATTENTION_BLOCKS_H

#include <math.h>

#include "../cpu_attention.h"
#include "cpu_attention_overlap.h"

#ifdef PL_TILES

#define SIZE   PL_BLOCK_SIZE
#define LOG2_E 0x1.715476p0f

/* A head of an image: where its columns lie, and the sizes in blocks. */
typedef struct {
    const pl_attention_plan *p;
    const pl_attention_tiles *w;
    int64_t image, head, col, T, tb, db;
    float scale;
    __mmask16 last[2]; /* even and odd columns of the last block that are keys */
} head_of;

static inline head_of head_at(const pl_attention_plan *p, const pl_attention_tiles *w, int64_t image,
                              int64_t head)
{
    int64_t tb = p->tp / PL_BLOCK, used = p->tokens - (tb - 1) * PL_BLOCK;
    head_of h = {
        p, w, image, head, head * p->d, p->tokens, tb, p->dp / PL_BLOCK, 1.0f / sqrtf((float)p->d), {0, 0}};
    for (int odd = 0; odd < 2; odd++) h.last[odd] = (__mmask16)(0xFFFFu >> (16 - (used + !odd) / 2));
    return h;
}

/* Tokens in block i. */
static inline int64_t tokens_of(const head_of *h, int64_t i)
{
    int64_t n = h->T - i * PL_BLOCK;
    return n < PL_BLOCK ? n : PL_BLOCK;
}

/* The rows of the head's columns of m from `col` on are to be prefetched. */
static inline void prefetch_head(overlap *b, const head_of *h, const pl_mat *m, int64_t col, int write)
{
    overlap_next_rows(b, (const pl_bf16 *)m->data + h->image * m->bs + col, m->rs, write);
}

/* Block (i, c) of the head's columns of m from `col` on: where it begins, and what is left of it. */
typedef struct {
    const pl_bf16 *at;
    int64_t rs, rows, cols;
} part_of;

static inline part_of part_at(const head_of *h, const pl_mat *m, int64_t col, int64_t i, int64_t c)
{
    return (part_of){(const pl_bf16 *)m->data + h->image * m->bs + i * PL_BLOCK * m->rs + col + c * PL_BLOCK,
                     m->rs, h->T - i * PL_BLOCK, h->p->d - c * PL_BLOCK};
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
static inline void pack_right_transposed(overlap *b, pl_bf16 *dst, const head_of *h, const pl_mat *m,
                                         int64_t col)
{
    _Alignas(64) pl_bf16 left[SIZE];
    for (int64_t j = 0; j < h->tb; j++)
        for (int64_t c = 0; c < h->db; c++, dst += SIZE) {
            left_block(left, part_at(h, m, col, j, c));
            pl_transpose_left(dst, left);
            overlap_some(b);
        }
}

/* The right form of X: dst[column block][row block]. */
static inline void pack_right(overlap *b, pl_bf16 *dst, const head_of *h, const pl_mat *m, int64_t col)
{
    for (int64_t c = 0; c < h->db; c++)
        for (int64_t j = 0; j < h->tb; j++, dst += SIZE) {
            right_block(dst, part_at(h, m, col, j, c));
            overlap_some(b);
        }
}

/* The left form of X^T: dst[column block][row block]. */
static inline void pack_left_transposed(overlap *b, pl_bf16 *dst, const head_of *h, const pl_mat *m,
                                        int64_t col)
{
    _Alignas(64) pl_bf16 right[SIZE];
    for (int64_t c = 0; c < h->db; c++)
        for (int64_t j = 0; j < h->tb; j++, dst += SIZE) {
            right_block(right, part_at(h, m, col, j, c));
            pl_transpose_right(dst, right);
            overlap_some(b);
        }
}

/* The left form of 32 rows of X, block i. */
static inline void pack_rows(pl_bf16 *dst, const head_of *h, const pl_mat *m, int64_t col, int64_t i)
{
    for (int64_t c = 0; c < h->db; c++) left_block(dst + c * SIZE, part_at(h, m, col, i, c));
}

/* ---- 32 numbers of a row as bf16, from the sums' even and odd columns ---- */

/* Subnormal numbers may become zero, as whatever multiplies them takes them. */
PL_INLINE void put_pairs(pl_bf16 *dst, __m512 low, __m512 high)
{
    _mm512_storeu_si512(dst, pl_normal_pairs16(low, high));
}

PL_INLINE __m512 even_of(const float *acc, int64_t r)
{
    return _mm512_loadu_ps(PL_SUMS_ROW(acc, r));
}

PL_INLINE __m512 odd_of(const float *acc, int64_t r)
{
    return _mm512_loadu_ps(PL_SUMS_ROW(acc, r) + 256);
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

#ifdef PL_TILE_UNIT
#define ROWS_AT_ONCE 16
#else
#define ROWS_AT_ONCE PL_DOT_ROWS
#endif

/* Rows of block i that are multiplied: its tokens, as many as come at a time. */
static inline int64_t rows_of(const head_of *h, int64_t i)
{
    return (tokens_of(h, i) + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE * ROWS_AT_ONCE;
}

/* Rows of block i times every 32 columns of a transposed factor. */
static inline products score_rows(const head_of *h, float *acc, const pl_bf16 *left,
                                  const pl_bf16 *transposed, int64_t i)
{
    return (products){acc, left, transposed, 0, h->db, h->tb, h->p->d, rows_of(h, i)};
}

/* Rows of block i, P's or dS's, times a right factor. */
static inline products sum_rows(const head_of *h, float *acc, const pl_bf16 *left, const pl_bf16 *right,
                                int64_t i)
{
    return (products){acc, left, right, 0, h->tb, h->db, h->T, rows_of(h, i)};
}

/* The transposed product of all queries, 32 keys: columns of a left factor times panel j of a right one. */
static inline products sum_turned(const head_of *h, float *acc, const pl_bf16 *left, const pl_bf16 *right,
                                  int64_t j)
{
    return (products){acc, left, right + j * h->tb * SIZE, h->tb, 0, h->db, h->T, PL_BLOCK};
}

/* Sums into the rows of block i of the head's columns from `col`, times a factor per row or none. */
static inline void store_rows(const head_of *h, const pl_mat *m, int64_t col, int64_t i, const float *acc,
                              const float *factor)
{
    for (int64_t c = 0; c < h->db; c++, acc += SIZE) {
        part_of to = part_at(h, m, col, i, c);
        for (int64_t r = 0; r < PL_BLOCK && r < to.rows; r++) {
            __m512 f = _mm512_set1_ps(factor ? factor[r] : 1.0f);
            __m512i x =
                pl_normal_pairs16(_mm512_mul_ps(even_of(acc, r), f), _mm512_mul_ps(odd_of(acc, r), f));
            _mm512_mask_storeu_epi16((pl_bf16 *)to.at + r * to.rs, columns(&to), x);
        }
    }
}

/* Transposed sums into the rows of block j. */
static inline void store_turned(overlap *b, const head_of *h, const pl_mat *m, int64_t col, int64_t j,
                                const float *acc)
{
    _Alignas(64) pl_bf16 transposed[SIZE], block[SIZE];
    for (int64_t c = 0; c < h->db; c++, acc += SIZE) {
        part_of to = part_at(h, m, col, j, c);
        sums_right(transposed, acc);
        pl_transpose_right(block, transposed);
        for (int64_t r = 0; r < PL_BLOCK && r < to.rows; r++)
            _mm512_mask_storeu_epi16((pl_bf16 *)to.at + r * to.rs, columns(&to),
                                     _mm512_load_si512(block + r * PL_BLOCK));
        overlap_some(b);
    }
}

/* ---- weights ---- */

/* 2^y: 2^n times a polynomial in y - n, |y - n| <= 1/2, minimax of the relative error (2^-23.7); NaN for NaN,
 * 0 where it would be subnormal (an instruction that makes such a number takes some hundred times as long on
 * some CPUs) and in lanes that are not wanted. */
PL_INLINE __m512 power_of_two(__mmask16 wanted, __m512 y)
{
    const __m512 least = _mm512_set1_ps(-126.0f);
    const __mmask16 normal = _mm512_mask_cmp_ps_mask(wanted, y, least, _CMP_NLT_UQ);
    y = _mm512_max_ps(least, y);
    __m512 n = _mm512_roundscale_ps(y, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
           f = _mm512_sub_ps(y, n), q = _mm512_set1_ps(0x1.5c08e4p-10f);
    q = _mm512_fmadd_ps(q, f, _mm512_set1_ps(0x1.3d0c52p-7f));
    q = _mm512_fmadd_ps(q, f, _mm512_set1_ps(0x1.c6b6e4p-5f));
    q = _mm512_fmadd_ps(q, f, _mm512_set1_ps(0x1.ebf918p-3f));
    q = _mm512_fmadd_ps(q, f, _mm512_set1_ps(0x1.62e428p-1f));
    q = _mm512_fmadd_ps(q, f, _mm512_set1_ps(0x1.000002p+0f));
    return _mm512_maskz_scalef_ps(normal, q, n);
}

/* The sum of 16 lanes, folded by halves as pl_lanes_fold. */
PL_INLINE float fold_lanes(__m512 x)
{
    __m256 y = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 z = _mm_add_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
    z = _mm_add_ps(z, _mm_movehl_ps(z, z));
    return _mm_cvtss_f32(_mm_add_ss(z, _mm_movehdup_ps(z)));
}

/* 16 bf16 as floats. */
PL_INLINE __m512 wide16(__m256i x)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

/* The sum of x[j] y[j], each by fma, in the order of lane_sum_elem.h. */
PL_INLINE float dot_row(const pl_bf16 *x, const pl_bf16 *y, int64_t n)
{
    __m512 low = _mm512_setzero_ps(), high = low;
    for (int64_t j = 0; j < n; j += PL_BLOCK) {
        __m512i a = pl_load32(x + j, n - j), b = pl_load32(y + j, n - j);
        low = _mm512_fmadd_ps(wide16(_mm512_castsi512_si256(a)), wide16(_mm512_castsi512_si256(b)), low);
        high = _mm512_fmadd_ps(wide16(_mm512_extracti64x4_epi64(a, 1)),
                               wide16(_mm512_extracti64x4_epi64(b, 1)), high);
    }
    return fold_lanes(_mm512_add_ps(low, high));
}

#endif
#endif
