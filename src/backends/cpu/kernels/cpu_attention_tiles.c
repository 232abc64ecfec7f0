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

#include "cpu_attention_blocks.h"
#include "cpu_rows.h"
#include "cpu_scalars.h"
#include "cpu_vec.h"
#include "math/lane_sum_elem.h"
#include "math/log_elem.h"

#ifdef PL_TILES

#include "cpu_as_f32.inc"
#include "cpu_row_sums.inc"

/* ---- forward ---- */

/* Row r of the scores becomes weights, in w->p; their sum, and the scores' maximum in *most (a NaN is passed over). */
static float weigh_row(const head_of *h, int64_t r, float *most)
{
    __m512 even = _mm512_set1_ps(-INFINITY), odd = even;
    const float *s = h->w->s, c = h->scale * LOG2_E;
    float lane[PL_LANES];
    for (int64_t j = 0; j < h->tb; j++) {
        even = _mm512_max_ps(scores(h, s, j, r, 0), even);
        odd = _mm512_max_ps(scores(h, s, j, r, 1), odd);
    }
    const float m = _mm512_reduce_max_ps(_mm512_max_ps(even, odd));
    const __m512 scale = _mm512_set1_ps(c), shift = _mm512_set1_ps(m * c);
    even = odd = _mm512_setzero_ps();
    for (int64_t j = 0; j < h->tb; j++) {
        __m512 x = power_of_two(_mm512_fmsub_ps(scores(h, s, j, r, 0), scale, shift)), y = power_of_two(_mm512_fmsub_ps(scores(h, s, j, r, 1), scale, shift));
        even = _mm512_add_ps(even, x);
        odd = _mm512_add_ps(odd, y);
        put_pairs(h->w->p + j * SIZE + r * PL_BLOCK, x, y);
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
        int64_t rows = rows_of(h, i), n = h->T - i * PL_BLOCK < PL_BLOCK ? h->T - i * PL_BLOCK : PL_BLOCK;
        for (int64_t c = 0; c < h->db; c++) left_block(w->q + c * SIZE, part_at(h, &a->QKV, h->col, i, c));
        score_rows(t, h, w->s, w->q, w->kt, rows);
        for (int64_t r = 0; r < rows; r++) {
            total = weigh_row(h, r, &m);
            part[r] = 1.0f / total;
            if (a->lse.data && r < n) lse[r] = (float)((double)h->scale * (double)m + pl_log_f64((double)total));
        }
        store_rows(t, h, &a->O, h->col, i, w->v, part);
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

/* P and dS of row r with the keys of block j, even columns or odd ones. */
PL_INLINE __m512 weigh_back(const head_of *h, int64_t j, int64_t r, int odd, float along, float lse, __m512 *ds)
{
    __m512 p = power_of_two(_mm512_fmsub_ps(scores(h, h->w->s, j, r, odd), _mm512_set1_ps(h->scale * LOG2_E), _mm512_set1_ps(lse * LOG2_E)));
    __m512 dp = odd ? odd_of(h->w->ds + j * SIZE, r) : even_of(h->w->ds + j * SIZE, r);
    *ds = _mm512_mul_ps(_mm512_mul_ps(_mm512_set1_ps(h->scale), p), _mm512_sub_ps(dp, _mm512_set1_ps(along)));
    return p;
}

/* P and dS of block i of the queries: the right forms of both, and dS's left form in w->p. */
static void weigh_rows_back(const head_of *h, int64_t i, int64_t rows, const float *along, const float *lse)
{
    for (int64_t j = 0; j < h->tb; j++) {
        pl_bf16 *p = h->w->all_p + (j * h->tb + i) * SIZE, *ds = h->w->all_ds + (j * h->tb + i) * SIZE, *left = h->w->p + j * SIZE;
        for (int64_t r = 0; r < rows; r += 2, p += PL_BLOCK, ds += PL_BLOCK, left += 2 * PL_BLOCK) {
            __m512 x[2][2], y[2][2];    /* row, even or odd columns */
#pragma GCC unroll 4
            for (int k = 0; k < 4; k++) x[k / 2][k % 2] = weigh_back(h, j, r + k / 2, k % 2, along[r + k / 2], lse[r + k / 2], &y[k / 2][k % 2]);
            put_pairs(p, x[0][0], x[1][0]);
            put_pairs(p + PL_TILE_SIZE, x[0][1], x[1][1]);
            put_pairs(ds, y[0][0], y[1][0]);
            put_pairs(ds + PL_TILE_SIZE, y[0][1], y[1][1]);
            put_pairs(left, y[0][0], y[0][1]);
            put_pairs(left + PL_BLOCK, y[1][0], y[1][1]);
        }
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
        int64_t rows = rows_of(h, i);
        for (int64_t c = 0; c < h->db; c++) left_block(w->q + c * SIZE, part_at(h, &a->QKV, h->col, i, c));
        score_rows(t, h, w->s, w->q, w->kt, rows);
        for (int64_t c = 0; c < h->db; c++) left_block(w->q + c * SIZE, part_at(h, &a->dO, h->col, i, c));
        score_rows(t, h, w->ds, w->q, w->vt, rows);
        row_values(a, h, i, along, lse);
        weigh_rows_back(h, i, rows, along, lse);
        store_rows(t, h, &a->dQKV, h->col, i, w->k, NULL);
    }
    store_turned(t, h, &a->dQKV, C + h->col, w->qt, w->all_ds);
    store_turned(t, h, &a->dQKV, 2 * C + h->col, w->gt, w->all_p);
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
