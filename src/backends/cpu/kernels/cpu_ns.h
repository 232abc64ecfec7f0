/* cpu_ns.h -- one matrix of a bf16 Newton-Schulz iteration on the tile unit, packed: how it gets in, how it gets out. Only where PL_TILES is set.
 *
 *     size = pl_ns_point(&w, NULL, rows, cols), then with memory;  pl_ns_begin(&w);
 *     pl_ns_put for every block of the matrix;  pl_ns_steps(&w, coef, steps);  pl_ns_get for every block;  pl_ns_end(&w)
 *
 * X is the matrix or, where that is tall, its transpose; m <= n. It is kept in three forms (cpu_tiles.h): left and, turned, right for X X^T, right for P X.
 * Blocks are named as the caller sees them: (i, j) holds his rows from 32 i and columns from 32 j.
 */
#ifndef PL_CPU_NS_H
#define PL_CPU_NS_H

#include "cpu_tiles.h"

#ifdef PL_TILES

#define PL_NS_SUMS  5            /* blocks of sums: a square of four, and the one before, being ended */
#define PL_NS_AHEAD 2            /* panels of the next X that may be written before the same ones of X are done with */
#define PL_NS_CACHE (3 << 19)    /* bytes of work memory that count as in the second cache */

typedef struct pl_ns {
    int      tall;
    int64_t  m, n, mb, nb;                      /* of X, in elements and in blocks */
    pl_bf16 *left, *turned, *right;             /* X: block (i, j) of left and turned at i nb + j; of right in panel j, row block i */
    pl_bf16 *gram_left, *gram_right, *poly;     /* A: block (i, j) at i mb + j, and in panel j, row block i; P: at i mb + j */
    int64_t  first;                             /* right has nb + PL_NS_AHEAD panels in a ring; panel 0 is at `first` */
    float   *sums[PL_NS_SUMS];
    pl_bf16 *unused;                            /* a block that nobody reads */
    pl_tiles tiles;
} pl_ns;

size_t PL_ISA_NAME(pl_ns_point)(pl_ns *w, char *base, int64_t rows, int64_t cols);          /* lays w over `base`; returns the bytes, also for NULL */
void   PL_ISA_NAME(pl_ns_steps)(pl_ns *w, const double *coef, int64_t steps);               /* coef: a, b, c of each step */

static inline pl_bf16 *pl_ns_at(pl_bf16 *base, int64_t block)
{
    return base + block * PL_BLOCK_SIZE;
}

/* Panel j of X's right form, or of the next X's: that one lies where panel j - PL_NS_AHEAD was. */
static inline pl_bf16 *pl_ns_right(const pl_ns *w, int64_t j, int next)
{
    int64_t slot = (w->first + j + (next ? w->nb : 0)) % (w->nb + PL_NS_AHEAD);
    return pl_ns_at(w->right, slot * w->mb);
}

/* The thread's tiles, and panel 0 in its place: before the first block of a matrix. */
static inline void pl_ns_begin(pl_ns *w)
{
    w->first = 0;
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

/* Block (i, j), in the left form (its rows), zero beyond the matrix. */
static inline void pl_ns_put(pl_ns *w, int64_t i, int64_t j, const pl_bf16 *block)
{
    if (w->tall) {
        pl_bf16 *turned = pl_ns_at(w->turned, j * w->nb + i);
        pl_ns_pair(turned, block);
        pl_turn_right(pl_ns_at(w->left, j * w->nb + i), turned);
        pl_turn_left(pl_ns_at(pl_ns_right(w, i, 0), j), block);
    } else {
        memcpy(pl_ns_at(w->left, i * w->nb + j), block, PL_BLOCK_SIZE * sizeof *block);
        pl_turn_left(pl_ns_at(w->turned, i * w->nb + j), block);
        pl_ns_pair(pl_ns_at(pl_ns_right(w, j, 0), i), block);
    }
}

/* Block (i, j) in the left form: where it lies, or in `room`. */
static inline const pl_bf16 *pl_ns_get(const pl_ns *w, int64_t i, int64_t j, pl_bf16 room[PL_BLOCK_SIZE])
{
    if (!w->tall) return pl_ns_at(w->left, i * w->nb + j);
    pl_turn_right(room, pl_ns_at(pl_ns_right(w, i, 0), j));
    return room;
}

#endif
#endif
