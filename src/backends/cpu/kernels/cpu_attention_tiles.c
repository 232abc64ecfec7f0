/* cpu_attention_tiles.c -- attention and attention_back of bf16 on the tile unit: heads of images over the
 * threads, 32 queries at a time (forms of blocks: cpu_tiles.h).
 *
 *     S = Q K^T, P = e^(scale S - m), O = P V / sum P        left: rows of Q, P; right: K^T (K transposed), V
 *     dP = dO V^T, dS = scale P (dP - D), dQ = dS K          right: V^T (V transposed), K
 *     dV^T = dO^T P, dK^T = Q^T dS                           left: dO^T, Q^T (transposed);
 *                                                            right: P and dS, as the sums leave them
 *
 * P and dS are rounded to bf16, the scores, their sums and all products are float. Every entry is a chain
 * over ascending steps of 32 as in cpu_gemm_tiles.c, so the bits of a head depend on itself alone.
 *
 * While block i is weighed, the scores of block i + 1 and what the weights of block i - 1 multiply are
 * multiplied beside it (cpu_attention_overlap.h); while the last products of a head are, the keys of the next
 * are packed.
 */
#include "base/work_share.h"
#include "cpu_attention_blocks.h"
#include "cpu_convert.h"
#include "math/log_elem.h"

#ifdef PL_TILES

/* The buffer of block i, of two of so many blocks. */
#define TURN(buffer, i, blocks) ((buffer) + (i) % 2 * (blocks)*SIZE)

/* ---- forward ---- */

/* The largest score of row r; a NaN is passed over. */
static float most_of_row(const head_of *h, const float *s, int64_t r)
{
    __m512 even = _mm512_set1_ps(-INFINITY), odd = even;
    int64_t j = 0;
    for (; j + 1 < h->tb; j++) {
        even = _mm512_max_ps(even_of(s + j * SIZE, r), even);
        odd = _mm512_max_ps(odd_of(s + j * SIZE, r), odd);
    }
    even = _mm512_mask_max_ps(even, h->last[0], even_of(s + j * SIZE, r), even);
    odd = _mm512_mask_max_ps(odd, h->last[1], odd_of(s + j * SIZE, r), odd);
    return _mm512_reduce_max_ps(_mm512_max_ps(even, odd));
}

PL_INLINE void weigh_32(pl_bf16 *p, const float *s, int64_t r, __mmask16 even_keys, __mmask16 odd_keys,
                        __m512 scale, __m512 shift, __m512 *even, __m512 *odd)
{
    __m512 x = power_of_two(even_keys, _mm512_fmsub_ps(even_of(s, r), scale, shift)),
           y = power_of_two(odd_keys, _mm512_fmsub_ps(odd_of(s, r), scale, shift));
    *even = _mm512_add_ps(*even, x);
    *odd = _mm512_add_ps(*odd, y);
    put_pairs(p + r * PL_BLOCK, x, y);
}

/* Row r of the scores, m the largest of them, becomes weights; their sum. */
static float weigh_row(const head_of *h, pl_bf16 *p, const float *s, int64_t r, float m)
{
    const float c = h->scale * LOG2_E;
    const __m512 scale = _mm512_set1_ps(c), shift = _mm512_set1_ps(m * c);
    __m512 even = _mm512_setzero_ps(), odd = even;
    int64_t j = 0;
    for (; j + 1 < h->tb; j++)
        weigh_32(p + j * SIZE, s + j * SIZE, r, 0xFFFF, 0xFFFF, scale, shift, &even, &odd);
    weigh_32(p + j * SIZE, s + j * SIZE, r, h->last[0], h->last[1], scale, shift, &even, &odd);
    return fold_lanes(_mm512_add_ps(even, odd));
}

/* The weights of block i, n rows; what its rows of O are divided by, inverted; their lse. */
static void weigh_rows(overlap *b, const head_of *h, int64_t i, int64_t n, float *part, float *lse)
{
    const float *s = TURN(h->w->s, i, h->tb);
    float most[PL_BLOCK], total[PL_BLOCK], m = most_of_row(h, s, 0);
    for (int64_t r = 0; r < PL_BLOCK; r++) most[r] = 0, total[r] = 1;
    for (int64_t r = 0; r < n; r++) {
        most[r] = m;
        if (r + 1 < n) m = most_of_row(h, s, r + 1);
        total[r] = weigh_row(h, TURN(h->w->p, i, h->tb), s, r, most[r]);
        overlap_some(b);
    }
    for (int64_t r = 0; r < PL_BLOCK; r++) {
        part[r] = 1.0f / total[r];
        lse[r] = (float)((double)h->scale * (double)most[r] + pl_log_f64((double)total[r]));
    }
}

/* `next` follows on this thread, or is NULL; K of the first one is to be packed. */
static void forward_head(overlap *b, const pl_args_attention *a, const head_of *h, const head_of *next,
                         int first)
{
    const pl_attention_tiles *w = h->w;
    int64_t C = a->O.cols, last = h->tb - 1;
    float part[2][PL_BLOCK], lse[PL_BLOCK];
    overlap_next(b, h->p->d);
    if (next) {
        for (int64_t k = 0; k < 3; k++) prefetch_head(b, next, &a->QKV, k * C + next->col, 0);
        prefetch_head(b, next, &a->O, next->col, 1);
    }
    if (first) pack_right_transposed(b, w->kt, h, &a->QKV, C + h->col);
    pack_rows(w->q, h, &a->QKV, h->col, 0);
    overlap_begin(b, h->tb * h->db, 0);
    overlap_multiply(b, score_rows(h, w->s, w->q, w->kt, 0));
    pack_right(b, w->v, h, &a->QKV, 2 * C + h->col);
    overlap_end(b);
    for (int64_t i = 0; i <= last; i++) {
        int64_t n = tokens_of(h, i);
        overlap_begin(b, n, n);
        if (i > 0) overlap_multiply(b, sum_rows(h, w->sum, TURN(w->p, i - 1, h->tb), w->v, i - 1));
        if (i < last) {
            pack_rows(w->q, h, &a->QKV, h->col, i + 1);
            overlap_multiply(b, score_rows(h, TURN(w->s, i + 1, h->tb), w->q, w->kt, i + 1));
        }
        weigh_rows(b, h, i, n, part[i % 2], lse);
        overlap_end(b);
        if (i > 0) store_rows(h, &a->O, h->col, i - 1, w->sum, part[(i - 1) % 2]);
        if (a->lse.data)
            pl_row_store_f32(a->lse.data, POLAR_DTYPE_F32,
                             h->image * a->lse.bs + h->head * a->lse.rs + i * PL_BLOCK, lse, n);
    }
    overlap_begin(b, h->tb * h->db, 0);
    overlap_multiply(b, sum_rows(h, w->sum, TURN(w->p, last, h->tb), w->v, last));
    if (next) pack_right_transposed(b, w->kt, next, &a->QKV, C + next->col);
    overlap_end(b);
    store_rows(h, &a->O, h->col, last, w->sum, part[last % 2]);
}

/* ---- backward ---- */

/* D of the queries of block i, and their lse for a power of two; of one beyond the last, infinity: P is 0. */
static void row_values(overlap *b, const pl_args_attention_back *a, const head_of *h, int64_t i, int64_t n,
                       float *along, float *lse)
{
    const pl_bf16 *g = part_at(h, &a->dO, h->col, i, 0).at, *o = part_at(h, &a->O, h->col, i, 0).at;
    const float *from =
        (const float *)a->lse.data + h->image * a->lse.bs + h->head * a->lse.rs + i * PL_BLOCK;
    for (int64_t r = 0; r < n; r++) {
        along[r] = dot_row(g + r * a->dO.rs, o + r * a->O.rs, h->p->d);
        lse[r] = from[r] * LOG2_E;
        overlap_some(b);
    }
    if (n < PL_BLOCK) along[n] = 0, lse[n] = INFINITY;
}

/* P and dS of a row with the keys of a block, even columns or odd ones, of the scores and dP at s, dp. */
PL_INLINE __m512 weigh_back(__mmask16 keys, const float *s, const float *dp, float scale, float along,
                            float lse, __m512 *ds)
{
    __m512 p = power_of_two(
        keys, _mm512_fmsub_ps(_mm512_loadu_ps(s), _mm512_set1_ps(scale * LOG2_E), _mm512_set1_ps(lse)));
    *ds = _mm512_mul_ps(_mm512_mul_ps(_mm512_set1_ps(scale), p),
                        _mm512_sub_ps(_mm512_loadu_ps(dp), _mm512_set1_ps(along)));
    return p;
}

/* P and dS of block i of the queries with block j of the keys, n rows: the right forms of both, and dS's left
 * form. */
PL_INLINE void weigh_block_back(overlap *b, const head_of *h, int64_t i, int64_t j, int64_t n, __mmask16 even,
                                __mmask16 odd, const float *along, const float *lse)
{
    const float *s = TURN(h->w->s, i, h->tb) + j * SIZE, *dp = TURN(h->w->ds, i, h->tb) + j * SIZE;
    pl_bf16 *p = h->w->all_p + (j * h->tb + i) * SIZE, *ds = h->w->all_ds + (j * h->tb + i) * SIZE,
            *left = TURN(h->w->p, i, h->tb) + j * SIZE;
    for (int64_t r = 0; r < n; r += 2, p += PL_BLOCK, ds += PL_BLOCK, left += 2 * PL_BLOCK) {
        __m512 x[2][2], y[2][2]; /* row, even or odd columns */
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) {
            int64_t row = r + k / 2;
            x[k / 2][k % 2] = weigh_back(k % 2 ? odd : even, PL_SUMS_ROW(s, row) + k % 2 * 256,
                                         PL_SUMS_ROW(dp, row) + k % 2 * 256, h->scale, along[row], lse[row],
                                         &y[k / 2][k % 2]);
        }
        put_pairs(p, x[0][0], x[1][0]);
        put_pairs(p + PL_TILE_SIZE, x[0][1], x[1][1]);
        __m512i evens = pl_normal_pairs16(y[0][0], y[1][0]), odds = pl_normal_pairs16(y[0][1], y[1][1]);
        _mm512_storeu_si512(ds, evens);
        _mm512_storeu_si512(ds + PL_TILE_SIZE, odds);
        _mm512_storeu_si512(left, pl_low_pairs(evens, odds));
        _mm512_storeu_si512(left + PL_BLOCK, pl_high_pairs(evens, odds));
        overlap_some(b);
    }
}

static void weigh_rows_back(overlap *b, const head_of *h, int64_t i, int64_t n, const float *along,
                            const float *lse)
{
    int64_t j = 0;
    for (; j + 1 < h->tb; j++) weigh_block_back(b, h, i, j, n, 0xFFFF, 0xFFFF, along, lse);
    weigh_block_back(b, h, i, j, n, h->last[0], h->last[1], along, lse);
}

/* Scores and dP of block i, to be multiplied. */
static void score_block(overlap *b, const pl_args_attention_back *a, const head_of *h, int64_t i)
{
    const pl_attention_tiles *w = h->w;
    pl_bf16 *g = w->q + h->db * SIZE;
    pack_rows(w->q, h, &a->QKV, h->col, i);
    pack_rows(g, h, &a->dO, h->col, i);
    overlap_multiply(b, score_rows(h, TURN(w->s, i, h->tb), w->q, w->kt, i));
    overlap_multiply(b, score_rows(h, TURN(w->ds, i, h->tb), g, w->vt, i));
}

/* The right forms of K^T and V^T. */
static void pack_keys(overlap *b, const pl_args_attention_back *a, const head_of *h)
{
    int64_t C = a->O.cols;
    pack_right_transposed(b, h->w->kt, h, &a->QKV, C + h->col);
    pack_right_transposed(b, h->w->vt, h, &a->QKV, 2 * C + h->col);
}

/* dK and dV, one block after the other, each stored beside the next one; and before them dQ of the last
 * block. */
static void turned_sums(overlap *b, const pl_args_attention_back *a, const head_of *h, const head_of *next)
{
    const pl_attention_tiles *w = h->w;
    int64_t C = a->O.cols, last = h->tb - 1;
    overlap_begin(b, 2 * h->tb * h->db, 0);
    overlap_multiply(b, sum_rows(h, TURN(w->sum, 1, h->db), TURN(w->p, last, h->tb), w->k, last));
    overlap_multiply(b, sum_turned(h, w->sum, w->qt, w->all_ds, 0));
    if (next) pack_keys(b, a, next);
    overlap_end(b);
    store_rows(h, &a->dQKV, h->col, last, TURN(w->sum, 1, h->db), NULL);
    for (int64_t k = 1; k <= 2 * h->tb; k++) {
        int64_t done = k - 1;
        overlap_begin(b, h->db, 0);
        if (k < h->tb) overlap_multiply(b, sum_turned(h, TURN(w->sum, k, h->db), w->qt, w->all_ds, k));
        else if (k < 2 * h->tb)
            overlap_multiply(b, sum_turned(h, TURN(w->sum, k, h->db), w->gt, w->all_p, k - h->tb));
        store_turned(b, h, &a->dQKV, (done < h->tb ? C : 2 * C) + h->col, done % h->tb,
                     TURN(w->sum, done, h->db));
        overlap_end(b);
    }
}

static void backward_head(overlap *b, const pl_args_attention_back *a, const head_of *h, const head_of *next,
                          int first)
{
    const pl_attention_tiles *w = h->w;
    int64_t C = a->O.cols;
    overlap_next(b, h->p->d);
    if (next) {
        for (int64_t k = 0; k < 3; k++)
            prefetch_head(b, next, &a->QKV, k * C + next->col, 0),
                prefetch_head(b, next, &a->dQKV, k * C + next->col, 1);
        prefetch_head(b, next, &a->O, next->col, 0);
        prefetch_head(b, next, &a->dO, next->col, 0);
    }
    if (first) pack_keys(b, a, h);
    overlap_begin(b, 3 * h->tb * h->db, 0);
    score_block(b, a, h, 0);
    pack_right(b, w->k, h, &a->QKV, C + h->col);
    pack_left_transposed(b, w->qt, h, &a->QKV, h->col);
    pack_left_transposed(b, w->gt, h, &a->dO, h->col);
    overlap_end(b);
    for (int64_t i = 0; i < h->tb; i++) {
        float along[PL_BLOCK], lse[PL_BLOCK];
        int64_t n = tokens_of(h, i);
        overlap_begin(b, n + h->tb * ((n + 1) / 2), n);
        if (i > 0) overlap_multiply(b, sum_rows(h, w->sum, TURN(w->p, i - 1, h->tb), w->k, i - 1));
        if (i + 1 < h->tb) score_block(b, a, h, i + 1);
        row_values(b, a, h, i, n, along, lse);
        weigh_rows_back(b, h, i, n, along, lse);
        overlap_end(b);
        if (i > 0) store_rows(h, &a->dQKV, h->col, i - 1, w->sum, NULL);
    }
    turned_sums(b, a, h, next);
}

/* ---- heads over the threads ---- */

/* P and dS of queries beyond the last one are factors of nothing: zeros, written by no head. */
static void clear_beyond(const pl_attention_tiles *w, int64_t tb)
{
    for (int64_t j = 0; j < tb; j++) {
        memset(w->all_p + (j * tb + tb - 1) * SIZE, 0, SIZE * sizeof(pl_bf16));
        memset(w->all_ds + (j * tb + tb - 1) * SIZE, 0, SIZE * sizeof(pl_bf16));
    }
}

/* A thread's heads; it takes the next one while it begins with this one, to prefetch its rows and pack its
 * keys beside. */
static void some_heads(const void *args, const pl_attention_plan *p, const pl_attention_tiles *w, pl_share *s,
                       int me)
{
    pl_tiles t;
    overlap b = {.tiles = &t};
    pl_share_place place = {0, 0};
    int first = 1;
    overlap_begin(&b, 1, 0);
    pl_tiles_begin(&t);
    if (p->back) clear_beyond(w, p->tp / PL_BLOCK);
    for (int64_t k = pl_share_next(s, &place, me), then; k >= 0; k = then, first = 0) {
        then = pl_share_next(s, &place, me);
        head_of h = head_at(p, w, k / p->heads, k % p->heads),
                next = head_at(p, w, then / p->heads, then % p->heads);
        if (p->back) backward_head(&b, args, &h, then >= 0 ? &next : NULL, first);
        else forward_head(&b, args, &h, then >= 0 ? &next : NULL, first);
    }
    pl_tiles_end(&t);
}

typedef struct {
    const void *args;
    const pl_attention_plan *p;
    char *base;     /* work memory of every thread, */
    size_t each;    /* so much */
    pl_share share; /* of the heads */
} heads_of;

static void heads_share(void *arg, int me)
{
    heads_of *o = arg;
    pl_attention_tiles w;
    pl_attention_tiles_point(&w, o->base + (size_t)me * o->each, o->p);
    some_heads(o->args, o->p, &w, &o->share, me);
}

static void for_tiles(pl_queue *q, const void *args, const pl_attention_plan *p)
{
    pl_attention_tiles none;
    pl_scratch_mark mark = pl_scratch_begin(q);
    size_t each = pl_attention_tiles_point(&none, NULL, p);
    char *base = pl_scratch_take(q, each * (size_t)p->threads);
    if (base) {
        heads_of o = {.args = args, .p = p, .base = base, .each = each};
        pl_share_begin(&o.share, p->images * p->heads, 1, p->threads);
        pl_pool_run(q->dev->pool, p->threads, heads_share, &o);
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
