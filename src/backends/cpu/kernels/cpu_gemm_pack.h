/* cpu_gemm_pack.h -- the factors of a product of cpu_gemm_tiles.c as blocks: whole panels at once; or, of A^T
 * B, both factors' slice of k block by block, overlapped with other work.
 *
 * A slice: k runs down the rows of A, so that a panel of A^T is a narrow column of a wide matrix, which
 * memory gives at half its speed. So of 32 rows all columns that belong to a part of C are packed before the
 * next 32 rows, and before that their lines are prefetched, row after row, into the second cache, where
 * blocks are then read in any order.
 */
#ifndef PL_CPU_GEMM_PACK_H
#define PL_CPU_GEMM_PACK_H

#include "cpu_tiles.h"

#ifdef PL_TILES

/* ---- panels ------------------------------------------------------------------------------------- */

/* `panels` panels of op(X) from row or column 32 `first`, over `steps` blocks of k from block k0. along: k
 * runs along X's rows; as: the form wanted. */
typedef enum { LEFT, RIGHT } form;

/* The right form where k runs down the columns: whole rows at a time, as memory likes it. */
static void pack_down(pl_bf16 *dst, const pl_mat *x, int64_t b, int64_t first, int64_t panels, int64_t k0,
                      int64_t steps)
{
    const pl_bf16 *at = (const pl_bf16 *)x->data + b * x->bs + PL_BLOCK * (k0 * x->rs + first);
    int64_t left = x->rows - PL_BLOCK * k0, cols = x->cols - PL_BLOCK * first;
    for (int64_t i = 0; i < 16 * steps; i++, at += 2 * x->rs, left -= 2)
        for (int64_t p = 0; p < panels; p++) {
            __m512i even =
                left > 0 ? pl_load32(at + PL_BLOCK * p, cols - PL_BLOCK * p) : _mm512_setzero_si512();
            __m512i odd =
                left > 1 ? pl_load32(at + x->rs + PL_BLOCK * p, cols - PL_BLOCK * p) : _mm512_setzero_si512();
            pl_put_right(dst + (p * steps + i / 16) * PL_BLOCK_SIZE, i % 16, even, odd);
        }
}

/* The block of op(X) at row or column 32 `first` and block k of k. */
PL_INLINE void pack_block(form as, pl_bf16 *dst, const pl_mat *x, int along, int64_t b, int64_t first,
                          int64_t k)
{
    int64_t i = PL_BLOCK * (along ? first : k), j = PL_BLOCK * (along ? k : first);
    const pl_bf16 *at = (const pl_bf16 *)x->data + b * x->bs + i * x->rs + j;
    _Alignas(64) pl_bf16 transposed[PL_BLOCK_SIZE];
    if (along) pl_block_left(as == LEFT ? dst : transposed, at, x->rs, x->rows - i, x->cols - j);
    else pl_block_right(as == RIGHT ? dst : transposed, at, x->rs, x->rows - i, x->cols - j);
    if (along && as == RIGHT) pl_transpose_left(dst, transposed);
    if (!along && as == LEFT) pl_transpose_right(dst, transposed);
}

static void pack(form as, pl_bf16 *dst, const pl_mat *x, int along, int64_t b, int64_t first, int64_t panels,
                 int64_t k0, int64_t steps)
{
    if (!along && as == RIGHT) {
        pack_down(dst, x, b, first, panels, k0, steps);
        return;
    }
    for (int64_t n = 0; n < panels * steps; n++) { /* along the rows of X */
        int64_t p = along ? n / steps : n % panels, k = along ? n % steps : n / panels;
        pack_block(as, dst + (p * steps + k) * PL_BLOCK_SIZE, x, along, b, first + p, k0 + k);
    }
}

/* Block k of panel `first` of A^T, the `at`th of `steps` of the panel packed at `panel`, in the form it is
 * multiplied in. */
PL_INLINE void pack_transposed(pl_bf16 *panel, const pl_mat *A, int64_t b, int64_t first, int64_t k,
                               int64_t at, int64_t steps)
{
#ifdef PL_TILE_UNIT
    (void)steps;
    pack_block(LEFT, panel + at * PL_BLOCK_SIZE, A, 0, b, first, k);
#else
    int64_t row = PL_BLOCK * k, col = PL_BLOCK * first;
    pl_dot_pack_transposed(panel, at, steps, (const pl_bf16 *)A->data + b * A->bs + row * A->rs + col, A->rs,
                           A->rows - row, A->cols - col);
#endif
}

static pl_left left_transposed(const pl_bf16 *panel)
{
#ifdef PL_TILE_UNIT
    return pl_left_packed(panel);
#else
    return (pl_left){panel, 0, PL_BLOCK_SIZE / 4};
#endif
}

/* ---- a slice ------------------------------------------------------------------------------------ */

#define FETCH_AHEAD 1 /* blocks of k that are prefetched before they are packed */

/* The slice of k that is being packed, for m x n blocks of C = A^T op(B) from block (i0, j0). */
typedef struct {
    const pl_args_gemm *g;
    int64_t b, i0, j0, m, n;
    int64_t k0, steps;     /* in blocks */
    pl_bf16 *left, *right; /* its panels, one after the other */
    /* packed, of all of them: 32 of k after 32 of k, first A's, then B's */
    int64_t done, blocks;
    /* of the overlap: how often it will be called for; how far ahead of a steady pace it is */
    int64_t slots, early;
    const pl_bf16 *fetch_a, *fetch_b; /* the rows to be prefetched next */
    int64_t fetch_rows, fetch_at;     /* how many are left; which line of the rows is next */
    /* lines in a row of both; those still to be prefetched while this slice is packed, */
    int64_t fetch_wide, fetch_lines;
    int64_t fetch_some; /* and how many of them at a time, overlapped with other work */
} slice;

/* Prefetches so many lines, row after row of both factors. */
PL_INLINE void slice_prefetch(slice *s, int64_t lines)
{
    if (lines > s->fetch_lines) lines = s->fetch_lines;
    s->fetch_lines -= lines;
    for (; lines > 0 && s->fetch_rows > 0; lines--) {
        __builtin_prefetch(s->fetch_at < s->m ? s->fetch_a + PL_BLOCK * s->fetch_at
                                              : s->fetch_b + PL_BLOCK * (s->fetch_at - s->m),
                           0, 2);
        if (++s->fetch_at == s->fetch_wide)
            s->fetch_at = 0, s->fetch_rows--, s->fetch_a += s->g->A.rs, s->fetch_b += s->g->B.rs;
    }
}

static slice slice_begin(const pl_args_gemm *g, int64_t b, int64_t i0, int64_t m, int64_t j0, int64_t n)
{
    slice s = {.g = g, .b = b, .i0 = i0, .m = m, .j0 = j0, .n = n, .fetch_rows = g->A.rows};
    s.fetch_a = (const pl_bf16 *)g->A.data + b * g->A.bs + PL_BLOCK * i0;
    s.fetch_b = (const pl_bf16 *)g->B.data + b * g->B.bs + PL_BLOCK * j0;
    s.fetch_wide = g->tb ? m : m + n; /* rows of B^T are not rows of k: they are not prefetched */
    s.fetch_lines = FETCH_AHEAD * PL_BLOCK * s.fetch_wide;
    slice_prefetch(&s, s.fetch_lines);
    return s;
}

/* The next slice, to be packed at left and right; overlapped with other work in so many portions. */
static void slice_next(slice *s, pl_bf16 *left, pl_bf16 *right, int64_t k0, int64_t steps, int64_t slots)
{
    s->left = left, s->right = right, s->k0 = k0, s->steps = steps;
    s->done = 0, s->blocks = (s->m + s->n) * steps;
    s->slots = slots, s->early = 0;
    s->fetch_lines = PL_BLOCK * s->fetch_wide * steps,
    s->fetch_some = slots ? (s->fetch_lines + slots - 1) / slots : 0;
}

/* Packs one block. */
static __attribute__((noinline)) void slice_block(slice *s)
{
    int64_t k = s->done / (s->m + s->n), c = s->done % (s->m + s->n);
    const pl_mat *A = &s->g->A, *B = &s->g->B;
    s->done++;
    if (c >= s->m) {
        pl_bf16 *to = s->right + ((c - s->m) * s->steps + k) * PL_BLOCK_SIZE;
        if (s->g->tb) pack_block(RIGHT, to, B, 1, s->b, s->j0 + c - s->m, s->k0 + k);
        else pack_block(RIGHT, to, B, 0, s->b, s->j0 + c - s->m, s->k0 + k);
        return;
    }
    pack_transposed(s->left + c * s->steps * PL_BLOCK_SIZE, A, s->b, s->i0 + c, s->k0 + k, k, s->steps);
}

/* Packs what is left of it. */
static void slice_rest(slice *s)
{
    while (s->done < s->blocks) {
        slice_prefetch(s, PL_BLOCK);
        slice_block(s);
    }
}

/* A portion of it, overlapped with other work: after `slots` of them it is packed. */
static __attribute__((noinline, unused)) void slice_overlap(slice *s)
{
    slice_prefetch(s, s->fetch_some);
    s->early -= s->blocks;
    if (s->early < 0) {
        s->early += s->slots;
        slice_block(s);
    }
}

#endif
#endif
