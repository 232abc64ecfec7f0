/* cpu_attention_tiles.c -- attention and attention_back of bf16 on the tile unit: heads of images over the threads, 32 queries at a time (forms of blocks: cpu_tiles.h).
 *
 *     S = Q K^T, P = e^(scale S - m), O = P V / sum P        left: rows of Q, P; right: K^T (K turned), V
 *     dP = dO V^T, dS = scale P (dP - D), dQ = dS K          right: V^T (V turned), K
 *     dV^T = dO^T P, dK^T = Q^T dS                           left: dO^T, Q^T (turned); right: P and dS of all queries, as the sums leave them
 *
 * P and dS are rounded to bf16, the scores, their sums and all products are float. Every entry is a chain over ascending steps of 32 as in cpu_gemm_tiles.c, so the bits
 * of a head depend on itself alone.
 */
#include <omp.h>

#include "../cpu_attention.h"
#include "cpu_rows.h"
#include "cpu_scalars.h"
#include "cpu_tiles.h"
#include "cpu_vec.h"
#include "math/exp_elem.h"
#include "math/lane_sum_elem.h"
#include "math/log_elem.h"

#ifdef PL_TILES

#include "cpu_as_f32.inc"
#include "cpu_row_sums.inc"

#define SIZE PL_BLOCK_SIZE

/* Row r of a block of sums: its even columns; the odd ones are 256 behind. */
#define ROW(acc, r) ((acc) + (r) / 16 * 512 + (r) % 16 * 16)

/* A head of an image: where its columns lie, and the sizes in blocks. */
typedef struct {
    const pl_attention_plan *p;
    const pl_attention_tiles *w;
    int64_t image, head, col, T, tb, db;
    float   scale;
} head_of;

static head_of head_at(const pl_attention_plan *p, const pl_attention_tiles *w, int64_t image, int64_t head)
{
    return (head_of){p, w, image, head, head * p->d, p->tokens, p->tp / PL_BLOCK, p->dp / PL_BLOCK, 1.0f / sqrtf((float)p->d)};
}

/* Block (i, c) of the head's columns of m from `col` on: where it begins, and what is left of it. */
typedef struct {
    const pl_bf16 *at;
    int64_t rs, rows, cols;
} part_of;

static part_of part_at(const head_of *h, const pl_mat *m, int64_t col, int64_t i, int64_t c)
{
    return (part_of){(const pl_bf16 *)m->data + h->image * m->bs + i * PL_BLOCK * m->rs + col + c * PL_BLOCK, m->rs, h->T - i * PL_BLOCK, h->p->d - c * PL_BLOCK};
}

static void left_block(pl_bf16 *dst, part_of x)
{
    pl_block_left(dst, x.at, x.rs, x.rows, x.cols);
}

static void right_block(pl_bf16 *dst, part_of x)
{
    pl_block_right(dst, x.at, x.rs, x.rows, x.cols);
}

/* The right form of X^T, a panel for 32 rows of X: dst[row block][column block]. */
static void pack_turned(pl_bf16 *dst, const head_of *h, const pl_mat *m, int64_t col)
{
    _Alignas(64) pl_bf16 left[SIZE];
    for (int64_t j = 0; j < h->tb; j++)
        for (int64_t c = 0; c < h->db; c++, dst += SIZE) {
            left_block(left, part_at(h, m, col, j, c));
            pl_turn_left(dst, left);
        }
}

/* The right form of X: dst[column block][row block]. */
static void pack_right(pl_bf16 *dst, const head_of *h, const pl_mat *m, int64_t col)
{
    for (int64_t c = 0; c < h->db; c++)
        for (int64_t j = 0; j < h->tb; j++, dst += SIZE) right_block(dst, part_at(h, m, col, j, c));
}

/* The left form of X^T: dst[column block][row block]. */
static void pack_transposed(pl_bf16 *dst, const head_of *h, const pl_mat *m, int64_t col)
{
    _Alignas(64) pl_bf16 right[SIZE];
    for (int64_t c = 0; c < h->db; c++)
        for (int64_t j = 0; j < h->tb; j++, dst += SIZE) {
            right_block(right, part_at(h, m, col, j, c));
            pl_turn_right(dst, right);
        }
}

/* pl_bf16_from_f32, 16 at once, in the high halves. */
PL_INLINE __m512i rounded(const float *x)
{
    __m512 v = _mm512_loadu_ps(x);
    __m512i u = _mm512_castps_si512(v), odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i r = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
    return _mm512_mask_or_epi32(r, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), u, _mm512_set1_epi32(0x400000));
}

/* 16 pairs of bf16 from two vectors of float. */
PL_INLINE void put_pairs(pl_bf16 *dst, const float *low, const float *high)
{
    _mm512_storeu_si512(dst, pl_high_pairs(rounded(low), rounded(high)));
}

static void sums_left(pl_bf16 *dst, const float *acc)
{
    for (int r = 0; r < PL_BLOCK; r++) put_pairs(dst + r * PL_BLOCK, ROW(acc, r), ROW(acc, r) + 256);
}

static void sums_right(pl_bf16 *dst, const float *acc)
{
    for (int k = 0; k < 16; k++) {
        put_pairs(dst + k * PL_BLOCK, ROW(acc, 2 * k), ROW(acc, 2 * k + 1));
        put_pairs(dst + PL_TILE_SIZE + k * PL_BLOCK, ROW(acc, 2 * k) + 256, ROW(acc, 2 * k + 1) + 256);
    }
}

/* A block in left form into block (i, c) of the head's columns. */
static void store_block(const head_of *h, const pl_mat *m, int64_t col, int64_t i, int64_t c, const pl_bf16 *left)
{
    part_of to = part_at(h, m, col, i, c);
    int64_t cols = to.cols < PL_BLOCK ? to.cols : PL_BLOCK;
    for (int64_t r = 0; r < PL_BLOCK && r < to.rows; r++) memcpy((pl_bf16 *)to.at + r * to.rs, left + r * PL_BLOCK, (size_t)cols * sizeof(pl_bf16));
}

/* 32 rows of products with every 32 columns of a turned factor, sums after sums. */
static void score_rows(pl_tiles *t, const head_of *h, float *acc, const pl_bf16 *left, const pl_bf16 *turned)
{
    for (int64_t j = 0; j < h->tb; j++) pl_tiles_multiply(t, acc + j * SIZE, left, turned + j * h->db * SIZE, h->db, 0);
}

/* Columns beyond the last token become minus infinity. */
static void mask_end(const head_of *h, float *s)
{
    float *last = s + (h->tb - 1) * SIZE;
    int64_t used = h->T - (h->tb - 1) * PL_BLOCK;
    for (int r = 0; r < PL_BLOCK; r++)
        for (int64_t c = used; c < PL_BLOCK; c++) ROW(last, r)[c / 2 + c % 2 * 256] = -INFINITY;
}

/* ---- forward ---- */

/* e^(scale (x - m)) in the place of 16 scores. */
PL_INLINE __m512 weigh16(float *x, const float scale, const float m)
{
#pragma omp simd
    for (int l = 0; l < 16; l++) x[l] = pl_exp_f32(scale * (x[l] - m));
    return _mm512_loadu_ps(x);
}

/* Row r of the scores becomes weights; their sum, and the scores' maximum in *most (a NaN is passed over). */
static float weigh_row(const head_of *h, float *s, int r, float *most)
{
    __m512 even = _mm512_set1_ps(-INFINITY), odd = even;
    float lane[PL_LANES];
    for (int64_t j = 0; j < h->tb; j++) {
        const float *x = ROW(s + j * SIZE, r);
        even = _mm512_max_ps(_mm512_loadu_ps(x), even);
        odd = _mm512_max_ps(_mm512_loadu_ps(x + 256), odd);
    }
    const float m = _mm512_reduce_max_ps(_mm512_max_ps(even, odd));
    even = odd = _mm512_setzero_ps();
    for (int64_t j = 0; j < h->tb; j++) {
        even = _mm512_add_ps(even, weigh16(ROW(s + j * SIZE, r), h->scale, m));
        odd = _mm512_add_ps(odd, weigh16(ROW(s + j * SIZE, r) + 256, h->scale, m));
    }
    _mm512_storeu_ps(lane, even);
    _mm512_storeu_ps(lane + 16, odd);
    *most = m;
    return fold_f32(lane);
}

static void forward_head(pl_tiles *t, const pl_args_attention *a, const head_of *h)
{
    const pl_attention_tiles *w = h->w;
    int64_t C = a->O.cols;
    pack_turned(w->kt, h, &a->QKV, C + h->col);
    pack_right(w->v, h, &a->QKV, 2 * C + h->col);
    for (int64_t i = 0; i < h->tb; i++) {
        float part[PL_BLOCK], lse[PL_BLOCK], m, total;
        int64_t n = h->T - i * PL_BLOCK < PL_BLOCK ? h->T - i * PL_BLOCK : PL_BLOCK;
        for (int64_t c = 0; c < h->db; c++) left_block(w->q + c * SIZE, part_at(h, &a->QKV, h->col, i, c));
        score_rows(t, h, w->s, w->q, w->kt);
        mask_end(h, w->s);
        for (int r = 0; r < PL_BLOCK; r++) {
            total = weigh_row(h, w->s, r, &m);
            part[r] = 1.0f / total;
            lse[r] = (float)((double)h->scale * (double)m + pl_log_f64((double)total));
        }
        for (int64_t j = 0; j < h->tb; j++) sums_left(w->p + j * SIZE, w->s + j * SIZE);
        for (int64_t c = 0; c < h->db; c++) {
            pl_tiles_multiply(t, w->sum, w->p, w->v + c * h->tb * SIZE, h->tb, 0);
            for (int r = 0; r < PL_BLOCK; r++)
                for (int l = 0; l < 16; l++) ROW(w->sum, r)[l] *= part[r], ROW(w->sum, r)[l + 256] *= part[r];
            sums_left(w->block, w->sum);
            store_block(h, &a->O, h->col, i, c, w->block);
        }
        if (a->lse.data) pl_row_store_f32(a->lse.data, a->lse.dtype, h->image * a->lse.bs + h->head * a->lse.rs + i * PL_BLOCK, lse, n);
    }
}

/* ---- backward ---- */

/* D of the queries of block i, and their lse; beyond the last one the lse is infinite, and P is 0. */
static void row_values(const pl_args_attention_back *a, const head_of *h, int64_t i, float *along, float *lse)
{
    float *g = h->w->rows, *o = g + h->p->dp;
    for (int64_t r = 0; r < PL_BLOCK; r++) {
        int64_t row = i * PL_BLOCK + r;
        along[r] = 0, lse[r] = INFINITY;
        if (row >= h->T) continue;
        pl_row_load_f32(g, a->dO.data, a->dO.dtype, h->image * a->dO.bs + row * a->dO.rs + h->col, h->p->d);
        pl_row_load_f32(o, a->O.data, a->O.dtype, h->image * a->O.bs + row * a->O.rs + h->col, h->p->d);
        along[r] = row_dot_f32(g, o, h->p->d);
        pl_row_load_f32(&lse[r], a->lse.data, a->lse.dtype, h->image * a->lse.bs + h->head * a->lse.rs + row, 1);
    }
}

/* P in the place of S, dS in the place of dP. */
static void weigh_back(const head_of *h, float *s, float *ds, const float *along, const float *lse)
{
    const float scale = h->scale;
    for (int64_t j = 0; j < h->tb; j++)
        for (int r = 0; r < PL_BLOCK; r++) {
            float *x = ROW(s + j * SIZE, r), *y = ROW(ds + j * SIZE, r);
            const float d = along[r], e = lse[r];
            for (int half = 0; half < 2; half++, x += 256, y += 256)
#pragma omp simd
                for (int l = 0; l < 16; l++) {
                    x[l] = pl_exp_f32(fmaf(scale, x[l], -e));
                    y[l] = scale * x[l] * (y[l] - d);
                }
        }
}

/* The transposed product of all queries, 32 keys and 32 columns at a time, into the head's columns from `col`. */
static void store_turned(pl_tiles *t, const pl_args_attention_back *a, const head_of *h, int64_t col, const pl_bf16 *left, const pl_bf16 *right)
{
    _Alignas(64) pl_bf16 turned[SIZE];
    for (int64_t j = 0; j < h->tb; j++)
        for (int64_t c = 0; c < h->db; c++) {
            pl_tiles_multiply(t, h->w->sum, left + c * h->tb * SIZE, right + j * h->tb * SIZE, h->tb, 0);
            sums_right(turned, h->w->sum);
            pl_turn_right(h->w->block, turned);
            store_block(h, &a->dQKV, col, j, c, h->w->block);
        }
}

static void backward_head(pl_tiles *t, const pl_args_attention_back *a, const head_of *h)
{
    const pl_attention_tiles *w = h->w;
    int64_t C = a->O.cols;
    pack_turned(w->kt, h, &a->QKV, C + h->col);
    pack_turned(w->vt, h, &a->QKV, 2 * C + h->col);
    pack_right(w->k, h, &a->QKV, C + h->col);
    pack_transposed(w->qt, h, &a->QKV, h->col);
    pack_transposed(w->gt, h, &a->dO, h->col);
    for (int64_t i = 0; i < h->tb; i++) {
        float along[PL_BLOCK], lse[PL_BLOCK];
        for (int64_t c = 0; c < h->db; c++) left_block(w->q + c * SIZE, part_at(h, &a->QKV, h->col, i, c));
        score_rows(t, h, w->s, w->q, w->kt);
        mask_end(h, w->s);
        for (int64_t c = 0; c < h->db; c++) left_block(w->q + c * SIZE, part_at(h, &a->dO, h->col, i, c));
        score_rows(t, h, w->ds, w->q, w->vt);
        row_values(a, h, i, along, lse);
        weigh_back(h, w->s, w->ds, along, lse);
        for (int64_t j = 0; j < h->tb; j++) {
            sums_right(w->all_p + (j * h->tb + i) * SIZE, w->s + j * SIZE);
            sums_right(w->all_ds + (j * h->tb + i) * SIZE, w->ds + j * SIZE);
            sums_left(w->p + j * SIZE, w->ds + j * SIZE);
        }
        for (int64_t c = 0; c < h->db; c++) {
            pl_tiles_multiply(t, w->sum, w->p, w->k + c * h->tb * SIZE, h->tb, 0);
            sums_left(w->block, w->sum);
            store_block(h, &a->dQKV, h->col, i, c, w->block);
        }
    }
    store_turned(t, a, h, C + h->col, w->qt, w->all_ds);
    store_turned(t, a, h, 2 * C + h->col, w->gt, w->all_p);
}

/* ---- heads over the threads ---- */

static void for_tiles(pl_queue *q, const void *args, const pl_attention_plan *p)
{
    pl_attention_tiles none;
    pl_scratch_mark mark = pl_scratch_begin(q);
    size_t each = pl_attention_tiles_point(&none, NULL, p);
    char *base = pl_scratch_take(q, each * (size_t)p->threads);
    if (base) {
#pragma omp parallel num_threads(p->threads) if (p->threads > 1)
        {
            pl_attention_tiles w;
            pl_tiles t;
            pl_attention_tiles_point(&w, base + (size_t)omp_get_thread_num() * each, p);
            pl_tiles_begin(&t);
#pragma omp for schedule(static)
            for (int64_t k = 0; k < p->images * p->heads; k++) {
                head_of h = head_at(p, &w, k / p->heads, k % p->heads);
                if (p->back) backward_head(&t, args, &h);
                else forward_head(&t, args, &h);
            }
            pl_tiles_end(&t);
        }
    }
    pl_scratch_end(q, mark);
}

void PL_ISA_NAME(pl_cpu_attention_tiles)(pl_queue *q, const pl_args_attention *a)
{
    pl_attention_plan p = pl_attention_plan_make(&a->QKV, a->heads, 0, 0, q->dev->threads);
    for_tiles(q, a, &p);
}

void PL_ISA_NAME(pl_cpu_attention_back_tiles)(pl_queue *q, const pl_args_attention_back *a)
{
    pl_attention_plan p = pl_attention_plan_make(&a->QKV, a->heads, 0, 1, q->dev->threads);
    for_tiles(q, a, &p);
}

#endif
