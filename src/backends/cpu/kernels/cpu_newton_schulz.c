/* cpu_newton_schulz.c -- X <- a X + (b A + c A A) X, A = X X^T, in bf16 on the tile unit: one matrix to a thread, all steps in its second cache.
 *
 *     A = R(X X^T)          lower half of the blocks, mirrored
 *     P = R(b A + c A A)    the same
 *     X = R(a X + P X)
 *
 * X is kept in three forms (cpu_tiles.h): left and, turned, right for the first product, right for the third; A in two, P in one. What ends a product writes
 * the forms that the next one reads, and runs between the tile instructions of the next block. Sums are those of cpu_gemm_tiles.c, and a product
 * and its mirror image have the same bits, so the result is that of three gemms a step; matrices too large for the cache take that way.
 *
 * Entries beyond the matrix are zero and stay zero. Rounding needs no case for NaN: every NaN here comes from bf16 or from an instruction, its lower half is
 * zero and its quiet bit set, and so it rounds to itself.
 */
#include <omp.h>

#include "cpu_tiles.h"

#ifdef PL_TILES

#define CACHE_BYTES (3 << 19)    /* of work memory that counts as in the cache */

typedef struct {
    int      tall;                              /* X^T is what the caller has */
    int64_t  m, n, mb, nb;                      /* of X, in elements and in blocks, m <= n */
    pl_bf16 *left, *turned, *right;             /* X: block (i, j) of left and turned at i nb + j; of right in panel j, row block i */
    pl_bf16 *gram_left, *gram_right, *poly;     /* A: block (i, j) at i mb + j, and in panel j, row block i; P: at i mb + j */
    int64_t  first;                             /* right has nb + 1 panels in a ring; panel 0 is at `first` */
    float   *acc[2];                            /* a block of sums being ended while the other is made */
    pl_bf16 *zero, *unused;                     /* a block of zeros, one that nobody reads */
    pl_tiles tiles;
} ns_work;

static int64_t blocks_of(int64_t n)
{
    return (n + PL_BLOCK - 1) / PL_BLOCK;
}

static pl_bf16 *at(pl_bf16 *base, int64_t block)
{
    return base + block * PL_BLOCK_SIZE;
}

static pl_bf16 *right_panel(const ns_work *w, int64_t j, int next)
{
    int64_t slot = (w->first + j + (next ? w->nb : 0)) % (w->nb + 1);    /* the next X's panel j lies where panel j - 1 was */
    return at(w->right, slot * w->mb);
}

/* Pointers into `base`; returns the bytes, also for base NULL. */
static size_t ns_point(ns_work *w, char *base, const pl_mat *X)
{
    int tall = X->rows > X->cols;
    *w = (ns_work){.tall = tall, .m = tall ? X->cols : X->rows, .n = tall ? X->rows : X->cols};
    w->mb = blocks_of(w->m), w->nb = blocks_of(w->n);
    size_t block = PL_BLOCK_SIZE * sizeof(pl_bf16), x = (size_t)(w->mb * w->nb) * block, a = (size_t)(w->mb * w->mb) * block, used = 0;
#define TAKE(field, bytes) (w->field = base ? (void *)(base + used) : NULL, used += (bytes))
    TAKE(acc[0], PL_BLOCK_SIZE * sizeof(float));
    TAKE(acc[1], PL_BLOCK_SIZE * sizeof(float));
    TAKE(zero, block);
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

typedef struct {
    unsigned  rows;         /* of the block, inside the matrix */
    __mmask16 even, odd;    /* columns inside the matrix */
} extent;

/* A block whose sums are made and wait to become R(alpha sums + beta D): left may be D. */
typedef struct {
    int            waits;
    pl_bf16       *left, *right;    /* the forms to write */
    const float   *acc;
    float          alpha, beta;
    const pl_bf16 *D;               /* in the left form */
    extent         e;
    pl_bf16       *turned_left;     /* of right turned, or NULL */
    pl_bf16       *turned_right;    /* of left turned, or NULL */
} ending;

static extent block_extent(int64_t rows, int64_t cols)
{
    uint32_t c = cols >= PL_BLOCK ? 32 : (uint32_t)cols;
    return (extent){rows >= PL_BLOCK ? 32 : (unsigned)rows, (__mmask16)((1u << (c + 1) / 2) - 1), (__mmask16)((1u << c / 2) - 1)};
}

/* alpha sum + beta d, rounded to bf16 in the upper halves; zero where the mask is not set. */
PL_INLINE __m512i ended(const float *sum, __m512 alpha, __m512 beta, __m512i d, __mmask16 inside)
{
    __m512i u = _mm512_castps_si512(_mm512_fmadd_ps(alpha, _mm512_load_ps(sum), _mm512_mul_ps(beta, _mm512_castsi512_ps(d))));
    __m512i half = _mm512_add_epi32(_mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1)), _mm512_set1_epi32(0x7fff));
    return _mm512_maskz_add_epi32(inside, u, half);
}

/* Rows [from, to) of a block, both even. */
PL_INLINE void end_rows(const ending *p, extent e, unsigned from, unsigned to)
{
    const __m512 alpha = _mm512_set1_ps(p->alpha), beta = _mm512_set1_ps(p->beta);
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000u);
    const float *acc = p->acc;
    const pl_bf16 *D = p->D;
    pl_bf16 *left = p->left, *right = p->right;
    for (unsigned r = from; r < to; r += 2) {
        const float *s = acc + r / 16 * 512 + r % 16 * 16;
        __m512i d0 = _mm512_load_si512(D + 32 * r), d1 = _mm512_load_si512(D + 32 * r + 32);
        __mmask16 all0 = r < e.rows ? 0xffff : 0, all1 = r + 1 < e.rows ? 0xffff : 0;
        __m512i even0 = ended(s, alpha, beta, _mm512_slli_epi32(d0, 16), e.even & all0);
        __m512i odd0 = ended(s + 256, alpha, beta, _mm512_and_si512(d0, upper), e.odd & all0);
        __m512i even1 = ended(s + 16, alpha, beta, _mm512_slli_epi32(d1, 16), e.even & all1);
        __m512i odd1 = ended(s + 272, alpha, beta, _mm512_and_si512(d1, upper), e.odd & all1);
        _mm512_store_si512(left + 32 * r, pl_high_pairs(even0, odd0));
        _mm512_store_si512(left + 32 * r + 32, pl_high_pairs(even1, odd1));
        _mm512_store_si512(right + 16 * r, pl_high_pairs(even0, even1));
        _mm512_store_si512(right + PL_TILE_SIZE + 16 * r, pl_high_pairs(odd0, odd1));
    }
}

PL_INLINE void end_some(const ending *p, unsigned from, unsigned to)
{
    if (p->e.rows == PL_BLOCK && p->e.odd == 0xffff) end_rows(p, (extent){PL_BLOCK, 0xffff, 0xffff}, from, to);
    else end_rows(p, p->e, from, to);
}

static void end_turns(ending *p)
{
    if (p->turned_left) pl_turn_right(p->turned_left, p->right);
    if (p->turned_right) pl_turn_left(p->turned_right, p->left);
    p->waits = 0;
}

static void end_block(ending *p)
{
    if (!p->waits) return;
    end_some(p, 0, PL_BLOCK);
    end_turns(p);
}

/* acc = a left panel times a right one, as pl_tiles_multiply; the vector units meanwhile end the block that waits, a few rows after each step. */
static void multiply(ns_work *w, float *acc, const pl_bf16 *left, const pl_bf16 *right, int64_t steps, ending *p)
{
    pl_tiles *t = &w->tiles;
    unsigned share = p->waits ? 2 * (unsigned)((16 + steps - 1) / steps) : 0, done = 0;
    (void)t;
    PL_TILES_BARRIER();
    pl_tile_zero(t, 0);
    pl_tile_zero(t, 1);
    pl_tile_zero(t, 2);
    pl_tile_zero(t, 3);
    for (int64_t k = 0; k < steps; k++, left += PL_BLOCK_SIZE, right += PL_BLOCK_SIZE) {
        pl_tiles_add(t, left, right);
        unsigned next = done + share < PL_BLOCK ? done + share : PL_BLOCK;
        if (done < next) end_some(p, done, next);
        done = next;
    }
    PL_TILES_BARRIER();
    pl_tile_store(t, 0, acc);
    pl_tile_store(t, 1, acc + 256);
    pl_tile_store(t, 2, acc + 512);
    pl_tile_store(t, 3, acc + 768);
    PL_TILES_BARRIER();
    if (p->waits) end_turns(p);
}

/* ---- the products ---------------------------------------------------------------------------------------------------------- */

/* A, block (i, j) with i >= j and its mirror image. */
static void gram(ns_work *w)
{
    ending p = {.waits = 0};
    int now = 0;
    for (int64_t i = 0; i < w->mb; i++)
        for (int64_t j = 0; j <= i; j++, now = !now) {
            multiply(w, w->acc[now], at(w->left, i * w->nb), at(w->turned, j * w->nb), w->nb, &p);
            p = (ending){.waits = 1, .left = at(w->gram_left, i * w->mb + j), .right = at(w->gram_right, j * w->mb + i), .acc = w->acc[now], .alpha = 1, .D = w->zero,
                         .e = block_extent(w->m - PL_BLOCK * i, w->m - PL_BLOCK * j)};
            if (i != j) p.turned_left = at(w->gram_left, j * w->mb + i), p.turned_right = at(w->gram_right, i * w->mb + j);
        }
    end_block(&p);
}

/* P, block (i, j) with i >= j and its mirror image. */
static void polynomial(ns_work *w, float b, float c)
{
    ending p = {.waits = 0};
    int now = 0;
    for (int64_t i = 0; i < w->mb; i++)
        for (int64_t j = 0; j <= i; j++, now = !now) {
            multiply(w, w->acc[now], at(w->gram_left, i * w->mb), at(w->gram_right, j * w->mb), w->mb, &p);
            p = (ending){.waits = 1, .left = at(w->poly, i * w->mb + j), .right = w->unused, .acc = w->acc[now], .alpha = c, .beta = b,
                         .D = at(w->gram_left, i * w->mb + j), .e = block_extent(w->m - PL_BLOCK * i, w->m - PL_BLOCK * j)};
            if (i != j) p.turned_left = at(w->poly, j * w->mb + i);
        }
    end_block(&p);
}

/* The next X; of the last one only the form is wanted that the caller's is made of: the left one, for a tall matrix the right one. */
static void iterate(ns_work *w, float a, int last)
{
    ending p = {.waits = 0};
    int now = 0;
    for (int64_t j = 0; j < w->nb; j++)
        for (int64_t i = 0; i < w->mb; i++, now = !now) {
            multiply(w, w->acc[now], at(w->poly, i * w->mb), right_panel(w, j, 0), w->mb, &p);
            pl_bf16 *left = at(w->left, i * w->nb + j);
            p = (ending){.waits = 1, .left = left, .right = last && !w->tall ? w->unused : at(right_panel(w, j, 1), i), .acc = w->acc[now], .alpha = 1, .beta = a,
                         .D = left, .e = block_extent(w->m - PL_BLOCK * i, w->n - PL_BLOCK * j)};
            if (!last) p.turned_right = at(w->turned, i * w->nb + j);
        }
    end_block(&p);
    w->first = (w->first + w->nb) % (w->nb + 1);
}

/* ---- a matrix in, a matrix out --------------------------------------------------------------------------------------------- */

/* From the matrix at x, X itself or, if tall, its transpose. */
static void pack_matrix(ns_work *w, const pl_bf16 *x, int64_t rs)
{
    _Alignas(64) pl_bf16 block[PL_BLOCK_SIZE];
    w->first = 0;
    for (int64_t i = 0; i < w->mb; i++)
        for (int64_t j = 0; j < w->nb; j++) {
            pl_bf16 *left = at(w->left, i * w->nb + j), *turned = at(w->turned, i * w->nb + j), *right = at(right_panel(w, j, 0), i);
            int64_t rows = w->m - PL_BLOCK * i, cols = w->n - PL_BLOCK * j;
            if (w->tall) {
                const pl_bf16 *from = x + PL_BLOCK * (j * rs + i);
                pl_block_right(turned, from, rs, cols, rows);
                pl_turn_right(left, turned);
                pl_block_left(block, from, rs, cols, rows);
                pl_turn_left(right, block);
            } else {
                const pl_bf16 *from = x + PL_BLOCK * (i * rs + j);
                pl_block_left(left, from, rs, rows, cols);
                pl_turn_left(turned, left);
                pl_block_right(right, from, rs, rows, cols);
            }
        }
}

/* The rows and columns of a block, in the left form, that lie inside. */
static void unpack_block(pl_bf16 *x, int64_t rs, const pl_bf16 *left, int64_t rows, int64_t cols)
{
    __mmask32 inside = cols >= PL_BLOCK ? 0xFFFFFFFFu : 0xFFFFFFFFu >> (PL_BLOCK - cols);
    for (int64_t i = 0; i < PL_BLOCK && i < rows; i++) _mm512_mask_storeu_epi16(x + i * rs, inside, _mm512_load_si512(left + PL_BLOCK * i));
}

static void unpack_matrix(const ns_work *w, pl_bf16 *x, int64_t rs)
{
    _Alignas(64) pl_bf16 block[PL_BLOCK_SIZE];
    for (int64_t i = 0; i < w->mb; i++)
        for (int64_t j = 0; j < w->nb; j++) {
            int64_t rows = w->m - PL_BLOCK * i, cols = w->n - PL_BLOCK * j;
            if (w->tall) {
                pl_turn_right(block, at(right_panel(w, j, 0), i));
                unpack_block(x + PL_BLOCK * (j * rs + i), rs, block, cols, rows);
            } else unpack_block(x + PL_BLOCK * (i * rs + j), rs, at(w->left, i * w->nb + j), rows, cols);
        }
}

static void in_cache(ns_work *w, const pl_args_newton_schulz *a, int64_t b)
{
    pl_bf16 *x = (pl_bf16 *)a->X.data + b * a->X.bs;
    pack_matrix(w, x, a->X.rs);
    for (int64_t s = 0; s < a->steps; s++) {
        const double *k = a->coef + 3 * s;
        gram(w);
        polynomial(w, (float)k[1], (float)k[2]);
        iterate(w, (float)k[0], s + 1 == a->steps);
    }
    unpack_matrix(w, x, a->X.rs);
}

static void share(const pl_args_newton_schulz *a, char *work, int threads)
{
    ns_work w;
    ns_point(&w, work, &a->X);
    memset(w.zero, 0, PL_BLOCK_SIZE * sizeof(pl_bf16));
    pl_tiles_begin(&w.tiles);
    if (threads == 1)
        for (int64_t b = 0; b < a->X.batch; b++) in_cache(&w, a, b);
    else
#pragma omp for schedule(dynamic) nowait
        for (int64_t b = 0; b < a->X.batch; b++) in_cache(&w, a, b);
    pl_tiles_end(&w.tiles);
}

/* Three gemms a step, each over all threads, matrix after matrix; work holds the next X, A and P. Of a tall matrix T = X^T: A = T^T T, T = a T + T P. */
static void by_gemm(pl_queue *q, const pl_args_newton_schulz *a, pl_bf16 *work)
{
    int tall = a->X.rows > a->X.cols;
    int64_t m = tall ? a->X.cols : a->X.rows, size = a->X.rows * a->X.cols;
    for (int64_t b = 0; b < a->X.batch; b++) {
        pl_mat home = pl_mat_at(a->X, b, 1), X = home, Y = pl_mat_dense(work, POLAR_DTYPE_BF16, 1, X.rows, X.cols);
        pl_mat A = pl_mat_dense(work + size, POLAR_DTYPE_BF16, 1, m, m), P = pl_mat_dense(work + size + m * m, POLAR_DTYPE_BF16, 1, m, m);
        for (int64_t s = 0; s < a->steps && q->error == POLAR_OK; s++) {
            const double *k = a->coef + 3 * s;
            PL_ISA_NAME(pl_cpu_gemm)(q, &(pl_args_gemm){.C = A, .A = X, .B = X, .ta = tall, .tb = !tall, .alpha = 1});
            PL_ISA_NAME(pl_cpu_gemm)(q, &(pl_args_gemm){.C = P, .A = A, .B = A, .alpha = k[2], .D = A, .beta = k[1]});
            PL_ISA_NAME(pl_cpu_gemm)(q, &(pl_args_gemm){.C = Y, .A = tall ? X : P, .B = tall ? P : X, .alpha = 1, .D = X, .beta = k[0]});
            pl_mat t = X;
            X = Y, Y = t;
        }
        if (a->steps % 2) PL_ISA_NAME(pl_cpu_copy)(q, &(pl_args_copy){.Y = home, .X = X});
    }
}

static int team(const pl_args_newton_schulz *a, int threads)
{
    return a->X.batch < threads ? (int)a->X.batch : threads;
}

size_t PL_ISA_NAME(pl_cpu_newton_schulz_bytes)(const pl_args_newton_schulz *a, int threads)
{
    ns_work size;
    size_t bytes = ns_point(&size, NULL, &a->X);
    return bytes <= CACHE_BYTES ? bytes * (size_t)team(a, threads) : (size_t)(size.m * size.n + 2 * size.m * size.m) * sizeof(pl_bf16);
}

void PL_ISA_NAME(pl_cpu_newton_schulz)(pl_queue *q, const pl_args_newton_schulz *a)
{
    ns_work size;
    int threads = team(a, q->dev->threads);
    size_t bytes = ns_point(&size, NULL, &a->X);
    pl_scratch_mark mark = pl_scratch_begin(q);
    char *work = pl_scratch_take(q, PL_ISA_NAME(pl_cpu_newton_schulz_bytes)(a, q->dev->threads));
    if (!work) return;    /* the queue knows why */
    if (bytes > CACHE_BYTES) by_gemm(q, a, (pl_bf16 *)work);
    else if (threads == 1) share(a, work, 1);
    else
#pragma omp parallel num_threads(threads)
        share(a, work + (size_t)omp_get_thread_num() * bytes, threads);
    pl_scratch_end(q, mark);
}

#endif
