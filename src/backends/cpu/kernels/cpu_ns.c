/* cpu_ns.c -- X <- a X + (b A + c A A) X, A = X X^T, in bf16 on the tile unit, one packed matrix in the second cache of one core (cpu_ns.h).
 *
 *     A = R(X X^T)          lower half of the blocks, mirrored
 *     P = R(b A + c A A)    the same
 *     X = R(a X + P X)
 *
 * What ends a product writes the forms that the next one reads, and is done between the tile instructions of the blocks after it. An entry is one chain over
 * ascending k, that of cpu_gemm_tiles.c; a product and its mirror image have the same bits, so the result is that of three gemms a step.
 *
 * Entries beyond the matrix are zero and stay zero. Rounding needs no case for NaN: every NaN here comes from bf16 or from an instruction, its lower half is
 * zero and its quiet bit set, and so it rounds to itself.
 */
#include "cpu_ns.h"

#ifdef PL_TILES

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
    for (int i = 0; i <= PL_NS_SUMS; i++) TAKE(sums[i], PL_BLOCK_SIZE * sizeof(float));
    TAKE(unused, block);
    TAKE(left, x);
    TAKE(turned, x);
    TAKE(right, x + (size_t)w->mb * block);
    TAKE(gram_left, a);
    TAKE(gram_right, a);
    TAKE(poly, a);
#undef TAKE
    return used;
}

/* ---- the end of a product ------------------------------------------------------------------------------------------------ */

#define PAIRS (PL_BLOCK / 2)    /* of rows of a block */

typedef struct {
    unsigned  rows;         /* of the block, inside the matrix */
    __mmask16 even, odd;    /* columns inside the matrix */
} extent;

/* A block whose sums are made and wait to become R(sums) or R(alpha sums + beta D). */
typedef struct {
    int            waits;
    int            full;            /* all of it lies inside the matrix */
    pl_bf16       *left, *right;    /* the forms to write */
    const float   *sums;
    float          alpha, beta;
    const pl_bf16 *D;               /* in the right form, or NULL */
    pl_bf16       *turned_right;    /* of left turned, or NULL */
    pl_bf16       *turned_left;     /* of right turned, or NULL */
    extent         e;
} ending;

/* alpha sum + beta d, rounded to bf16 in the upper halves. Without d: the sum; minus zero becomes zero, as in the long form. */
PL_INLINE __m512i ended(const float *sum, __m512 alpha, __m512 beta, __m512i d, int has_d)
{
    __m512 x = _mm512_load_ps(sum);
    if (has_d) x = _mm512_fmadd_ps(alpha, x, _mm512_mul_ps(beta, _mm512_castsi512_ps(d)));
    else x = _mm512_add_ps(x, _mm512_setzero_ps());
    __m512i u = _mm512_castps_si512(x);
    __mmask16 odd = _mm512_test_epi32_mask(u, _mm512_set1_epi32(0x10000));
    return _mm512_mask_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd, u, _mm512_set1_epi32(0x8000));
}

/* Pair k of a block's rows. */
PL_INLINE void end_pair(const ending *p, int has_d, int full, unsigned k)
{
    const __m512 alpha = _mm512_set1_ps(p->alpha), beta = _mm512_set1_ps(p->beta);
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000u);
    const float *s = p->sums + k / 8 * 512 + k % 8 * 32;
    __m512i d0 = has_d ? _mm512_load_si512(p->D + 32 * k) : _mm512_setzero_si512(), d1 = has_d ? _mm512_load_si512(p->D + PL_TILE_SIZE + 32 * k) : d0;
    __m512i even0 = ended(s, alpha, beta, _mm512_slli_epi32(d0, 16), has_d);
    __m512i odd0 = ended(s + 256, alpha, beta, _mm512_slli_epi32(d1, 16), has_d);
    __m512i even1 = ended(s + 16, alpha, beta, _mm512_and_si512(d0, upper), has_d);
    __m512i odd1 = ended(s + 272, alpha, beta, _mm512_and_si512(d1, upper), has_d);
    if (!full) {
        __mmask16 in0 = 2 * k < p->e.rows ? 0xffff : 0, in1 = 2 * k + 1 < p->e.rows ? 0xffff : 0;
        even0 = _mm512_maskz_mov_epi32(p->e.even & in0, even0), odd0 = _mm512_maskz_mov_epi32(p->e.odd & in0, odd0);
        even1 = _mm512_maskz_mov_epi32(p->e.even & in1, even1), odd1 = _mm512_maskz_mov_epi32(p->e.odd & in1, odd1);
    }
    _mm512_store_si512(p->left + 64 * k, pl_high_pairs(even0, odd0));
    _mm512_store_si512(p->left + 64 * k + 32, pl_high_pairs(even1, odd1));
    _mm512_store_si512(p->right + 32 * k, pl_high_pairs(even0, even1));
    _mm512_store_si512(p->right + PL_TILE_SIZE + 32 * k, pl_high_pairs(odd0, odd1));
}

static int turns_of(const ending *p)
{
    return 4 * ((p->turned_right != NULL) + (p->turned_left != NULL));
}

/* A quarter of turning a block; n counts to turns_of. */
static __attribute__((noinline)) void end_turn(const ending *p, int n)
{
    int tile = n / 2 % 2, half = n % 2;
    if (p->turned_right && n < 4) pl_turn8(p->turned_right + tile * PL_TILE_SIZE, 32, p->left + tile * 32, 64, half);    /* as pl_turn_left */
    else pl_turn8(p->turned_left + tile * 32, 64, p->right + tile * PL_TILE_SIZE, 32, half);                             /* as pl_turn_right */
}

/* ---- a product's blocks, one after the other --------------------------------------------------------------------------------- */

/* While a block is multiplied, the sums of the one before are stored from the tiles, and the one before that is ended: the vector units never wait for sums that are
 * being made, which would keep the tile unit's next instructions out of the machine's window. */
typedef struct {
    pl_tiles *tiles;
    float    *held;       /* where the tiles' sums belong */
    ending    slot[2];
    int       old;        /* the slot of the block before the last one; the other is the last one's */
    const pl_bf16 *from;  /* a left panel to be turned to `to` on the side, in quarters of blocks */
    pl_bf16       *to;
    int64_t        turned, turns;
} line;

static void line_begin(line *l, pl_ns *w)
{
    l->tiles = &w->tiles;
    l->held = w->sums[PL_NS_SUMS];
    l->slot[0].waits = l->slot[1].waits = 0;
    l->old = 0;
    l->turned = l->turns = 0;
}

static __attribute__((noinline)) void line_turn(line *l)
{
    int64_t n = l->turned++, at = n / 4 * PL_BLOCK_SIZE, tile = n / 2 % 2;
    pl_turn8(l->to + at + tile * PL_TILE_SIZE, 32, l->from + at + tile * 32, 64, n % 2);    /* as pl_turn_left */
}

/* Room for the ending of the block multiplied last. */
static ending *line_ending(line *l)
{
    return &l->slot[!l->old];
}

/* One step: the tiles of a block each, some work after each product. */
#define STEP(work)                                      \
    do {                                                \
        pl_tile_load(t, 4, left);                       \
        pl_tile_load(t, 6, right);                      \
        pl_tile_dot(t, 0, 4, 6);                        \
        work;                                           \
        pl_tile_load(t, 7, right + PL_TILE_SIZE);       \
        pl_tile_dot(t, 1, 4, 7);                        \
        work;                                           \
        pl_tile_load(t, 5, left + PL_TILE_SIZE);        \
        pl_tile_dot(t, 2, 5, 6);                        \
        work;                                           \
        pl_tile_dot(t, 3, 5, 7);                        \
        work;                                           \
        left += PL_BLOCK_SIZE, right += PL_BLOCK_SIZE;  \
    } while (0)

/* The first step, the tiles' old sums to their place before. */
#define FIRST_STEP()                                    \
    do {                                                \
        pl_tile_load(t, 4, left);                       \
        pl_tile_load(t, 6, right);                      \
        pl_tile_store(t, 0, held);                      \
        pl_tile_zero(t, 0);                             \
        pl_tile_dot(t, 0, 4, 6);                        \
        pl_tile_load(t, 7, right + PL_TILE_SIZE);       \
        pl_tile_store(t, 1, held + 256);                \
        pl_tile_zero(t, 1);                             \
        pl_tile_dot(t, 1, 4, 7);                        \
        pl_tile_load(t, 5, left + PL_TILE_SIZE);        \
        pl_tile_store(t, 2, held + 512);                \
        pl_tile_zero(t, 2);                             \
        pl_tile_dot(t, 2, 5, 6);                        \
        pl_tile_store(t, 3, held + 768);                \
        pl_tile_zero(t, 3);                             \
        pl_tile_dot(t, 3, 5, 7);                        \
        left += PL_BLOCK_SIZE, right += PL_BLOCK_SIZE;  \
    } while (0)

#define SOME_PAIRS                                                                                     \
    do {                                                                                               \
        unsigned to = pair + pairs < PAIRS ? pair + pairs : PAIRS;                                     \
        for (; pair < to; pair++) end_pair(p, has_d, full, pair);                                      \
    } while (0)
#define SOME_TURNS                                      \
    do {                                                \
        if (turn < turns) end_turn(p, turn++);          \
    } while (0)
#define SOME_PANEL                                      \
    do {                                                \
        if (l->turned < l->turns) line_turn(l);         \
    } while (0)

PL_INLINE void multiply_as(line *l, pl_tiles *t, float *held, const ending *p, const pl_bf16 *left, const pl_bf16 *right, int64_t steps, int has_d, int full)
{
    int64_t first = steps > 5 ? 5 : steps - 1 > 1 ? steps - 1 : 1, k = 1;    /* steps until the pairs are done */
    unsigned pair = 0, pairs = first > 1 ? (unsigned)(PAIRS / 4 + first - 2) / (unsigned)(first - 1) : 0;
    int turn = 0, turns = turns_of(p);
    (void)t;
    FIRST_STEP();
    for (; k < first; k++) STEP(SOME_PAIRS);
    for (; pair < PAIRS; pair++) end_pair(p, has_d, full, pair);
    for (; k < steps && turn < turns; k++) STEP(SOME_TURNS);
    for (; k < steps; k++) STEP(SOME_PANEL);
    while (turn < turns) end_turn(p, turn++);
}

/* sums = a left panel times a right one, as pl_tiles_multiply, but still in the tiles. */
static void multiply(line *l, float *sums, const pl_bf16 *left, const pl_bf16 *right, int64_t steps)
{
    pl_tiles *t = l->tiles;
    ending *p = &l->slot[l->old];
    float *held = l->held;
    (void)t;
    PL_TILES_BARRIER();
    if (!p->waits) {
        FIRST_STEP();
        for (int64_t k = 1; k < steps; k++) STEP(SOME_PANEL);
    } else if (p->full) p->D ? multiply_as(l, t, held, p, left, right, steps, 1, 1) : multiply_as(l, t, held, p, left, right, steps, 0, 1);
    else p->D ? multiply_as(l, t, held, p, left, right, steps, 1, 0) : multiply_as(l, t, held, p, left, right, steps, 0, 0);
    PL_TILES_BARRIER();
    p->waits = 0;
    l->held = sums;
    l->old = !l->old;
}

static void end_block(const ending *p)
{
    if (!p->waits) return;
    for (unsigned k = 0; k < PAIRS; k++) p->D ? end_pair(p, 1, 0, k) : end_pair(p, 0, 0, k);
    for (int n = 0, turns = turns_of(p); n < turns; n++) end_turn(p, n);
}

static void line_end(line *l)
{
    PL_TILES_BARRIER();
    pl_tile_store(l->tiles, 0, l->held);
    pl_tile_store(l->tiles, 1, l->held + 256);
    pl_tile_store(l->tiles, 2, l->held + 512);
    pl_tile_store(l->tiles, 3, l->held + 768);
    PL_TILES_BARRIER();
    end_block(&l->slot[l->old]);
    end_block(&l->slot[!l->old]);
}

/* How much of a block lies inside the matrix. */
static void ending_set(ending *p, int64_t rows, int64_t cols)
{
    uint32_t c = cols >= PL_BLOCK ? 32 : (uint32_t)cols;
    p->e = (extent){rows >= PL_BLOCK ? 32 : (unsigned)rows, (__mmask16)((1u << (c + 1) / 2) - 1), (__mmask16)((1u << c / 2) - 1)};
    p->full = rows >= PL_BLOCK && cols >= PL_BLOCK;
    p->waits = 1;
}

/* ---- the products ---------------------------------------------------------------------------------------------------------- */

/* C = R(left right) or R(alpha left right + beta D), symmetric: block (i, j) with i >= j, and its mirror image. Right panels after the first may have to be made
 * from the left ones: panel i is wanted at (i, i), and is turned while the blocks before it in its row are multiplied. */
typedef struct {
    pl_bf16 *left, *right;             /* panels of K blocks */
    int      turn;                     /* all right panels but the first are to be made */
    int64_t  K;
    pl_bf16 *out_left, *out_right;     /* block (i, j) at i mb + j; in panel j, row block i, or NULL */
    pl_bf16 *D;                        /* like out_right, or NULL */
    float    alpha, beta;
} symmetric;

static void multiply_symmetric(pl_ns *w, const symmetric *c)
{
    line l;
    unsigned now = 0;
    line_begin(&l, w);
    for (int64_t i = 0; i < w->mb; i++) {
        if (c->turn && i) l.from = pl_ns_at(c->left, i * c->K), l.to = pl_ns_at(c->right, i * c->K), l.turned = 0, l.turns = 4 * c->K;
        for (int64_t j = 0; j <= i; j++) {
            while (j == i && l.turned < l.turns) line_turn(&l);
            float *sums = w->sums[now = now == 2 ? 0 : now + 1];
            int64_t at = i * w->mb + j, mirror = j * w->mb + i;
            multiply(&l, sums, pl_ns_at(c->left, i * c->K), pl_ns_at(c->right, j * c->K), c->K);
            ending *p = line_ending(&l);
            p->left = pl_ns_at(c->out_left, at);
            p->right = c->out_right ? pl_ns_at(c->out_right, mirror) : w->unused;
            p->sums = sums;
            p->alpha = c->alpha;
            p->beta = c->beta;
            p->D = c->D ? pl_ns_at(c->D, mirror) : NULL;
            p->turned_left = i != j ? pl_ns_at(c->out_left, mirror) : NULL;
            p->turned_right = i != j && c->out_right ? pl_ns_at(c->out_right, at) : NULL;
            ending_set(p, w->m - PL_BLOCK * i, w->m - PL_BLOCK * j);
        }
    }
    line_end(&l);
}

static void gram(pl_ns *w)
{
    multiply_symmetric(w, &(symmetric){.left = w->left, .right = w->turned, .turn = !w->turned_all, .K = w->nb, .out_left = w->gram_left, .out_right = w->gram_right});
}

static void polynomial(pl_ns *w, float b, float c)
{
    multiply_symmetric(w, &(symmetric){.left = w->gram_left, .right = w->gram_right, .K = w->mb, .out_left = w->poly, .D = w->gram_right, .alpha = c, .beta = b});
}

/* The next X; of the last one only the form is wanted that the caller's is made of: the left one, for a tall matrix the right one. */
static void iterate(pl_ns *w, float a, int last)
{
    line l;
    unsigned now = 0;
    line_begin(&l, w);
    for (int64_t j = 0; j < w->nb; j++) {
        pl_bf16 *right = pl_ns_right(w, j, 0), *next = pl_ns_right(w, j, 1);
        for (int64_t i = 0; i < w->mb; i++) {
            float *sums = w->sums[now = now == 2 ? 0 : now + 1];
            multiply(&l, sums, pl_ns_at(w->poly, i * w->mb), right, w->mb);
            ending *p = line_ending(&l);
            p->left = pl_ns_at(w->left, i * w->nb + j);
            p->right = last && !w->tall ? w->unused : pl_ns_at(next, i);
            p->sums = sums;
            p->alpha = 1;
            p->beta = a;
            p->D = pl_ns_at(right, i);
            p->turned_right = last || i ? NULL : pl_ns_at(w->turned, j);
            p->turned_left = NULL;
            ending_set(p, w->m - PL_BLOCK * i, w->n - PL_BLOCK * j);
        }
    }
    line_end(&l);
    w->first = (w->first + w->nb) % (w->nb + 1);
    w->turned_all = 0;
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
