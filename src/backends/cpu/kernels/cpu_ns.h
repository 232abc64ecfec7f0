/* cpu_ns.h -- one matrix of a bf16 Newton-Schulz iteration on the tile unit, packed: how it gets in, how it
 * gets out. Only where PL_TILES is set.
 *
 *     size = pl_ns_point(&w, NULL, rows, cols, chain), then with memory
 *     for every 32 rows: fill pl_ns_rows, then pl_ns_put
 *     pl_ns_begin(&w);  pl_ns_steps(&w, coef, steps, chain);  pl_ns_end(&w)
 *     for every 32 rows: pl_ns_get
 *
 * X is the matrix or, where that is tall, its transpose; m <= n. It is kept in three forms (cpu_tiles.h):
 * left and, transposed, right for X X^T, right for P X.
 */
#ifndef PL_CPU_NS_H
#define PL_CPU_NS_H

#include "cpu_tiles.h"

#ifdef PL_TILES

#define PL_NS_SUMS  3         /* blocks of sums: one being made, two waiting to be ended */
#define PL_NS_CACHE (3 << 19) /* bytes of work memory that count as in the second cache */

#define PL_NS_POLYS 3 /* polynomials of A: the joined one, the last step's, one being made */

/* A symmetric (m, m) matrix in both forms: block (i, j) at i mb + j, and in panel j, row block i. */
typedef struct {
    pl_bf16 *left, *right;
} pl_ns_square;

typedef struct pl_ns {
    int tall;
    int transposed_all;   /* transposed is there in full, otherwise its first panel */
    int64_t m, n, mb, nb; /* of X, in elements and in blocks */
    /* X: block (i, j) of left and transposed at i nb + j; of right in panel j, row block i */
    pl_bf16 *left, *transposed, *right;
    pl_ns_square gram, poly[PL_NS_POLYS]; /* A and P; without a chain one P, its left form */
    int64_t first;                        /* right has nb + 1 panels in a ring; panel 0 is at `first` */
    float *sums[PL_NS_SUMS + 1];          /* the last one nobody reads */
    pl_bf16 *unused;                      /* a block that nobody reads */
    pl_tiles tiles;
} pl_ns;

/* lays w over `base`; returns the bytes, also for NULL */
size_t PL_ISA_NAME(pl_ns_point)(pl_ns *w, char *base, int64_t rows, int64_t cols, int64_t chain);
/* coef: a, b, c of each step */
void PL_ISA_NAME(pl_ns_steps)(pl_ns *w, const double *coef, int64_t steps, int64_t chain);

static inline pl_bf16 *pl_ns_at(pl_bf16 *base, int64_t block)
{
    return base + block * PL_BLOCK_SIZE;
}

/* Panel j of X's right form, or of the next X's: that one lies where panel j - 1 was. */
static inline pl_bf16 *pl_ns_right(const pl_ns *w, int64_t j, int next)
{
    int64_t slot = (w->first + j + (next ? w->nb : 0)) % (w->nb + 1);
    return pl_ns_at(w->right, slot * w->mb);
}

static inline void pl_ns_begin(pl_ns *w)
{
    pl_tiles_begin(&w->tiles);
}

static inline void pl_ns_end(pl_ns *w)
{
    pl_tiles_end(&w->tiles);
}

/* The right form of a block from its left form. */
PL_INLINE void pl_ns_pair(pl_bf16 *right, const pl_bf16 *left)
{
    pl_block_right(right, left, PL_BLOCK, PL_BLOCK, PL_BLOCK);
}

/* Where the caller puts, and finds, 32 of his rows from 32 i on: blocks in the left form side by side, zero
 * beyond the matrix. Of a tall matrix one room for all. */
static inline pl_bf16 *pl_ns_rows(const pl_ns *w, int64_t i)
{
    return w->tall ? w->gram.left : pl_ns_at(w->left, i * w->nb);
}

/* The rows at pl_ns_rows(w, i) become part of X. */
static inline void pl_ns_put(pl_ns *w, int64_t i)
{
    const pl_bf16 *rows = pl_ns_rows(w, i);
    w->first = 0;
    w->transposed_all = w->tall;
    if (w->tall)
        for (int64_t j = 0; j < w->mb; j++, rows += PL_BLOCK_SIZE) {
            pl_bf16 *transposed = pl_ns_at(w->transposed, j * w->nb + i);
            pl_ns_pair(transposed, rows);
            pl_transpose_right(pl_ns_at(w->left, j * w->nb + i), transposed);
            pl_transpose_left(pl_ns_at(pl_ns_right(w, i, 0), j), rows);
        }
    else
        for (int64_t j = 0; j < w->nb; j++, rows += PL_BLOCK_SIZE) {
            if (i == 0) pl_transpose_left(pl_ns_at(w->transposed, j), rows);
            pl_ns_pair(pl_ns_at(pl_ns_right(w, j, 0), i), rows);
        }
}

/* The other way. */
static inline const pl_bf16 *pl_ns_get(const pl_ns *w, int64_t i)
{
    pl_bf16 *rows = pl_ns_rows(w, i);
    for (int64_t j = 0; j < w->mb && w->tall; j++)
        pl_transpose_right(pl_ns_at(rows, j), pl_ns_at(pl_ns_right(w, i, 0), j));
    return rows;
}

#endif
#endif
