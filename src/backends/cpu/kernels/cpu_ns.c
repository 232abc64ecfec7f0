/* cpu_ns.c -- X <- a X + (b A + c A A) X, A = X X^T, in bf16 on the tile unit, one packed matrix in the second cache of one core (cpu_ns.h).
 *
 *     A = R(X X^T)          lower half of the blocks, mirrored
 *     P = R(b A + c A A)    the same
 *     X = R(a X + P X)
 *
 * What ends a product writes the forms that the next one reads, and runs between the tile instructions of the next block. The second cache gives
 * about as many bytes a cycle as the tile unit takes, so blocks are taken in an order that finds half of them or more in the first one: squares of two by two blocks and
 * slices of k in the symmetric products, two columns of X at a time in the third. Sums wait in memory between slices and lose nothing there: an entry is one chain
 * over ascending k, that of cpu_gemm_tiles.c; a product and its mirror image have the same bits, so the result is that of three gemms a step.
 *
 * Entries beyond the matrix are zero and stay zero. Rounding needs no case for NaN: every NaN here comes from bf16 or from an instruction, its lower half is
 * zero and its quiet bit set, and so it rounds to itself.
 */
#include "cpu_ns.h"

#ifdef PL_TILES

#ifndef SLICE
#define SLICE 6    /* blocks of k */
#endif
#ifndef SIDE
#define SIDE 2     /* blocks, of a square of a symmetric product */
#endif
#ifndef COLUMNS
#define COLUMNS 2  /* blocks, at most PL_NS_AHEAD */
#endif
#ifndef DELAY
#define DELAY 0
#endif

static int64_t blocks_of(int64_t n)
{
    return (n + PL_BLOCK - 1) / PL_BLOCK;
}

size_t PL_ISA_NAME(pl_ns_point)(pl_ns *w, char *base, int64_t rows, int64_t cols)
{
    int tall = rows > cols;
    *w = (pl_ns){.tall = tall, .m = tall ? cols : rows, .n = tall ? rows : cols};
    w->mb = blocks_of(w->m), w->nb = blocks_of(w->n);
    size_t block = PL_BLOCK_SIZE * sizeof(pl_bf16), x = (size_t)(w->mb * w->nb) * block, a = (size_t)(w->mb * w->mb) * block, used = 0;
#define TAKE(field, bytes) (w->field = base ? (void *)(base + used) : NULL, used += (bytes))
    for (int i = 0; i < PL_NS_SUMS; i++) TAKE(sums[i], PL_BLOCK_SIZE * sizeof(float));
    TAKE(unused, block);
    TAKE(left, x);
    TAKE(turned, x);
    TAKE(right, x + (size_t)(w->mb * PL_NS_AHEAD) * block);
    TAKE(gram_left, a);
    TAKE(gram_right, a);
    TAKE(poly, a);
#undef TAKE
    return used;
}

/* ---- the end of a product ------------------------------------------------------------------------------------------------ */

#define PAIRS      (PL_BLOCK / 2)    /* of rows of a block */
#define TURN_SHARE 4                 /* half a block turned takes as long as so many pairs of rows */

typedef struct {
    unsigned  rows;         /* of the block, inside the matrix */
    __mmask16 even, odd;    /* columns inside the matrix */
} extent;

/* A block whose sums are made and wait to become R(sums) or R(alpha sums + beta D). */
typedef struct {
    int            waits;
    int            done, all;       /* of its work, in pairs of rows */
    pl_bf16       *left, *right;    /* the forms to write */
    const float   *sums;
    float          alpha, beta;
    const pl_bf16 *D;               /* in the right form, or NULL */
    extent         e;
    pl_bf16       *turned_right;    /* of left turned, or NULL */
    pl_bf16       *turned_left;     /* of right turned, or NULL */
} ending;

static extent block_extent(int64_t rows, int64_t cols)
{
    uint32_t c = cols >= PL_BLOCK ? 32 : (uint32_t)cols;
    return (extent){rows >= PL_BLOCK ? 32 : (unsigned)rows, (__mmask16)((1u << (c + 1) / 2) - 1), (__mmask16)((1u << c / 2) - 1)};
}

/* alpha sum + beta d, rounded to bf16 in the upper halves; zero where the mask is not set. Without d: the sum; minus zero becomes zero, as in the long form. */
PL_INLINE __m512i ended(const float *sum, __m512 alpha, __m512 beta, __m512i d, int has_d, __mmask16 inside)
{
    __m512 x = _mm512_load_ps(sum);
    if (has_d) x = _mm512_fmadd_ps(alpha, x, _mm512_mul_ps(beta, _mm512_castsi512_ps(d)));
    else x = _mm512_add_ps(x, _mm512_setzero_ps());
    __m512i u = _mm512_castps_si512(x);
    __m512i half = _mm512_add_epi32(_mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1)), _mm512_set1_epi32(0x7fff));
    return _mm512_maskz_add_epi32(inside, u, half);
}

/* Pairs [from, to) of a block's rows. */
PL_INLINE void end_pairs(const ending *p, extent e, int has_d, unsigned from, unsigned to)
{
    const __m512 alpha = _mm512_set1_ps(p->alpha), beta = _mm512_set1_ps(p->beta);
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000u);
    const float *sums = p->sums;
    const pl_bf16 *D = p->D;
    pl_bf16 *left = p->left, *right = p->right;
    for (unsigned k = from; k < to; k++) {
        const float *s = sums + k / 8 * 512 + k % 8 * 32;
        __m512i d0 = has_d ? _mm512_load_si512(D + 32 * k) : _mm512_setzero_si512(), d1 = has_d ? _mm512_load_si512(D + PL_TILE_SIZE + 32 * k) : d0;
        __mmask16 all0 = 2 * k < e.rows ? 0xffff : 0, all1 = 2 * k + 1 < e.rows ? 0xffff : 0;
        __m512i even0 = ended(s, alpha, beta, _mm512_slli_epi32(d0, 16), has_d, e.even & all0);
        __m512i odd0 = ended(s + 256, alpha, beta, _mm512_slli_epi32(d1, 16), has_d, e.odd & all0);
        __m512i even1 = ended(s + 16, alpha, beta, _mm512_and_si512(d0, upper), has_d, e.even & all1);
        __m512i odd1 = ended(s + 272, alpha, beta, _mm512_and_si512(d1, upper), has_d, e.odd & all1);
        _mm512_store_si512(left + 64 * k, pl_high_pairs(even0, odd0));
        _mm512_store_si512(left + 64 * k + 32, pl_high_pairs(even1, odd1));
        _mm512_store_si512(right + 32 * k, pl_high_pairs(even0, even1));
        _mm512_store_si512(right + PL_TILE_SIZE + 32 * k, pl_high_pairs(odd0, odd1));
    }
}

static void end_some(const ending *p, unsigned from, unsigned to)
{
    const extent full = {PL_BLOCK, 0xffff, 0xffff};
    if (p->e.rows < PL_BLOCK || p->e.odd != 0xffff) p->D ? end_pairs(p, p->e, 1, from, to) : end_pairs(p, p->e, 0, from, to);
    else if (p->D) end_pairs(p, full, 1, from, to);
    else end_pairs(p, full, 0, from, to);
}

/* Works on until `target`: first the pairs of rows, then the halves to be turned. */
static void end_until(ending *p, int target)
{
    if (p->done < PAIRS && p->done < target) {
        int to = target < PAIRS ? target : PAIRS;
        end_some(p, (unsigned)p->done, (unsigned)to);
        p->done = to;
    }
    while (p->done < target && p->done < p->all) {
        int half = (p->done - PAIRS) / TURN_SHARE;
        if (p->turned_right && half < 2) pl_turn16(p->turned_right + half * PL_TILE_SIZE, 32, p->left + half * 32, 64);    /* as pl_turn_left */
        else {
            half &= 1;
            pl_turn16(p->turned_left + half * 32, 64, p->right + half * PL_TILE_SIZE, 32);    /* as pl_turn_right */
        }
        p->done += TURN_SHARE;
    }
}

static void end_block(ending *p)
{
    if (p->waits) end_until(p, p->all);
    p->waits = 0;
}

static ending ending_of(ending p)
{
    p.waits = 1;
    p.done = 0;
    p.all = PAIRS + 2 * TURN_SHARE * ((p.turned_right != NULL) + (p.turned_left != NULL));
    return p;
}

/* sums = a left panel times a right one, added to what they hold if `more`, as pl_tiles_multiply; the vector units meanwhile end the block that waits, a part after each step. */
static void multiply(pl_ns *w, float *sums, const pl_bf16 *left, const pl_bf16 *right, int64_t steps, int more, ending *p)
{
    pl_tiles *t = &w->tiles;
    int64_t shares = steps > DELAY ? steps - DELAY : 1;
    int share = p->waits ? (int)((p->all + shares - 1) / shares) : 0, target = -DELAY * share;
    (void)t;
    PL_TILES_BARRIER();
    if (more) {
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
    for (int64_t k = 0; k < steps; k++, left += PL_BLOCK_SIZE, right += PL_BLOCK_SIZE) {
        pl_tiles_add(t, left, right);
        target += share;
        if (share && target > 0) end_until(p, target);
    }
    PL_TILES_BARRIER();
    pl_tile_store(t, 0, sums);
    pl_tile_store(t, 1, sums + 256);
    pl_tile_store(t, 2, sums + 512);
    pl_tile_store(t, 3, sums + 768);
    PL_TILES_BARRIER();
    end_block(p);
}

/* ---- the products ---------------------------------------------------------------------------------------------------------- */

/* C = R(left right) or R(alpha left right + beta D), symmetric: block (i, j) with i >= j, and its mirror image. */
typedef struct {
    pl_bf16 *left, *right;             /* panels of K blocks */
    int64_t  K;
    pl_bf16 *out_left, *out_right;     /* block (i, j) at i mb + j; in panel j, row block i, or NULL */
    pl_bf16 *D;                        /* like out_right, or NULL */
    float    alpha, beta;
} symmetric;

static ending symmetric_ending(const pl_ns *w, const symmetric *c, int64_t i, int64_t j, const float *sums)
{
    int64_t at = i * w->mb + j, mirror = j * w->mb + i;
    ending p = {.left = pl_ns_at(c->out_left, at), .right = c->out_right ? pl_ns_at(c->out_right, mirror) : w->unused, .sums = sums, .alpha = c->alpha, .beta = c->beta,
                .D = c->D ? pl_ns_at(c->D, mirror) : NULL, .e = block_extent(w->m - PL_BLOCK * i, w->m - PL_BLOCK * j)};
    if (i != j) p.turned_left = pl_ns_at(c->out_left, mirror);
    if (i != j && c->out_right) p.turned_right = pl_ns_at(c->out_right, at);
    return ending_of(p);
}

static void multiply_symmetric(pl_ns *w, const symmetric *c)
{
    ending p = {.waits = 0};
    int base = 0, count = 0;
    for (int64_t i0 = 0; i0 < w->mb; i0 += SIDE)
        for (int64_t j0 = 0; j0 <= i0; j0 += SIDE, base += count)
            for (int64_t k0 = 0; k0 < c->K; k0 += SLICE) {
                int64_t steps = c->K - k0 < SLICE ? c->K - k0 : SLICE;
                count = 0;
                for (int64_t i = i0; i < i0 + SIDE && i < w->mb; i++)
                    for (int64_t j = j0; j < j0 + SIDE && j <= i; j++) {
                        float *sums = w->sums[(base + count++) % PL_NS_SUMS];
                        multiply(w, sums, pl_ns_at(c->left, i * c->K + k0), pl_ns_at(c->right, j * c->K + k0), steps, k0 > 0, &p);
                        if (k0 + steps == c->K) p = symmetric_ending(w, c, i, j, sums);
                    }
            }
    end_block(&p);
}

static void gram(pl_ns *w)
{
    multiply_symmetric(w, &(symmetric){.left = w->left, .right = w->turned, .K = w->nb, .out_left = w->gram_left, .out_right = w->gram_right});
}

static void polynomial(pl_ns *w, float b, float c)
{
    multiply_symmetric(w, &(symmetric){.left = w->gram_left, .right = w->gram_right, .K = w->mb, .out_left = w->poly, .D = w->gram_right, .alpha = c, .beta = b});
}

/* The next X; of the last one only the form is wanted that the caller's is made of: the left one, for a tall matrix the right one. */
static void iterate(pl_ns *w, float a, int last)
{
    ending p = {.waits = 0};
    int now = 0;
    for (int64_t j0 = 0; j0 < w->nb; j0 += COLUMNS)
        for (int64_t i = 0; i < w->mb; i++)
            for (int64_t j = j0; j < j0 + COLUMNS && j < w->nb; j++, now = !now) {
                multiply(w, w->sums[now], pl_ns_at(w->poly, i * w->mb), pl_ns_right(w, j, 0), w->mb, 0, &p);
                p = ending_of((ending){.left = pl_ns_at(w->left, i * w->nb + j), .right = last && !w->tall ? w->unused : pl_ns_at(pl_ns_right(w, j, 1), i), .sums = w->sums[now],
                                       .alpha = 1, .beta = a, .D = pl_ns_at(pl_ns_right(w, j, 0), i), .e = block_extent(w->m - PL_BLOCK * i, w->n - PL_BLOCK * j),
                                       .turned_right = last ? NULL : pl_ns_at(w->turned, i * w->nb + j)});
            }
    end_block(&p);
    w->first = (w->first + w->nb) % (w->nb + PL_NS_AHEAD);
}

void PL_ISA_NAME(pl_ns_steps)(pl_ns *w, const double *coef, int64_t steps)
{
    for (int64_t s = 0; s < steps; s++, coef += 3) {
        gram(w);
        polynomial(w, (float)coef[1], (float)coef[2]);
        iterate(w, (float)coef[0], s + 1 == steps);
    }
}

#endif
