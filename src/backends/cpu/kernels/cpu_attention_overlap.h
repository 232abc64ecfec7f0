/* cpu_attention_overlap.h -- what overlaps an attention's vector work: products of other blocks, and
 * prefetching the next head's rows (cpu_attention_tiles.c).
 *
 * The tile unit multiplies while vectors are weighed, if its instructions come a few at a time among theirs.
 * So products are put down, and every piece of vector work ends with its share of them; without the unit a
 * product is done where it is put down. The sums are there after overlap_end.
 *
 *     overlap_begin(&b, pieces, rows);
 *     overlap_multiply(&b, (products){...});
 *     for (...) {
 *         a piece of vector work
 *         overlap_some(&b);
 *     }
 *     overlap_end(&b);
 */
#ifndef PL_CPU_ATTENTION_OVERLAP_H
#define PL_CPU_ATTENTION_OVERLAP_H

#include "cpu_tiles.h"

#ifdef PL_TILES

/* Products from zero, one block of sums each: the first `rows` rows of a left panel times a right panel, of
 * whose k the first `depth` are not zero. */
typedef struct {
    float *acc;                    /* blocks one after the other */
    const pl_bf16 *left, *right;   /* the first product's panels */
    int64_t next_left, next_right; /* blocks from there to those of the next product */
    int64_t count, depth, rows;
} products;

/* Where the rows of a head lie: `bytes` of each, in some matrices. */
typedef struct {
    struct {
        const char *at;
        int64_t rs; /* bytes */
        int write;
    } part[8];
    int parts;
    int64_t bytes;
} head_rows;

typedef struct {
    pl_tiles *tiles;
    products todo[3];
    int put, at, held; /* of those; tiles hold the left panel of those at hand */
    /* done of the product at hand, as many as it has blocks of k; not yet done of all */
    int64_t step, steps;
    int64_t pieces, share, due;
    head_rows next; /* of the next head; prefetched: so many, of so many in these pieces */
    int64_t prefetched, rows, rows_due;
} overlap;

static inline void overlap_begin(overlap *b, int64_t pieces, int64_t rows)
{
    b->put = b->at = b->held = 0, b->step = b->steps = 0;
    b->pieces = pieces, b->share = b->due = 0;
    b->rows = rows, b->rows_due = 0;
}

/* One more head to prefetch, rows of no matrix yet. */
static inline void overlap_next(overlap *b, int64_t columns)
{
    b->next.parts = 0, b->next.bytes = columns * (int64_t)sizeof(pl_bf16), b->prefetched = 0;
}

static inline void overlap_next_rows(overlap *b, const pl_bf16 *at, int64_t rs, int write)
{
    int i = b->next.parts++;
    b->next.part[i].at = (const char *)at, b->next.part[i].rs = rs * (int64_t)sizeof *at,
    b->next.part[i].write = write;
}

static __attribute__((noinline)) void overlap_prefetch(overlap *b)
{
    for (int i = 0; i < b->next.parts; i++) {
        const char *row = b->next.part[i].at + b->prefetched * b->next.part[i].rs;
        for (int64_t k = 0; k < b->next.bytes; k += 64)
            if (b->next.part[i].write) __builtin_prefetch(row + k, 1, 3);
            else __builtin_prefetch(row + k, 0, 2); /* into the second cache */
    }
    b->prefetched++;
}

#ifdef PL_TILE_UNIT

static inline void overlap_multiply(overlap *b, products x)
{
    b->todo[b->put++] = x;
    b->steps += x.count * ((x.depth + PL_BLOCK - 1) / PL_BLOCK);
    b->share = b->steps;
}

/* One block of k; the sums stay in the tiles until the product is finished. */
static inline void step_of_k(pl_tiles *t, const products *x, int64_t k, int last)
{
    const pl_bf16 *left = x->left + k * PL_BLOCK_SIZE, *right = x->right + k * PL_BLOCK_SIZE;
    (void)t;
    if (!k) pl_tiles_start(t, NULL);
    if (x->rows > 16) {
        PL_TILES_ADD(t, left, PL_BLOCK, right, (void)0);
    } else {
        pl_tile_load(t, 4, left);
        pl_tile_load(t, 6, right);
        pl_tile_dot(t, 0, 4, 6);
        pl_tile_load(t, 7, right + PL_TILE_SIZE);
        pl_tile_dot(t, 1, 4, 7);
    }
    if (!last) return;
    pl_tile_store(t, 0, x->acc);
    pl_tile_store(t, 1, x->acc + 256);
    if (x->rows > 16) {
        pl_tile_store(t, 2, x->acc + 512);
        pl_tile_store(t, 3, x->acc + 768);
    }
}

/* The even or the odd columns over two blocks of k, of a left panel that stays in tiles 4 to 7: half as many
 * tiles to load. */
static inline void step_of_columns(pl_tiles *t, const products *x, int64_t odd, int load)
{
    const pl_bf16 *right = x->right + odd * PL_TILE_SIZE;
    float *acc = x->acc + odd * 256;
    (void)t;
    if (load) {
        pl_tile_load(t, 4, x->left);
        pl_tile_load(t, 5, x->left + PL_TILE_SIZE);
        pl_tile_load(t, 6, x->left + PL_BLOCK_SIZE);
        pl_tile_load(t, 7, x->left + PL_BLOCK_SIZE + PL_TILE_SIZE);
    }
    pl_tile_zero(t, 0);
    pl_tile_zero(t, 1);
    pl_tile_load(t, 2, right);
    pl_tile_dot(t, 0, 4, 2);
    if (x->rows > 16) pl_tile_dot(t, 1, 5, 2);
    pl_tile_load(t, 3, right + PL_BLOCK_SIZE);
    pl_tile_dot(t, 0, 6, 3);
    if (x->rows > 16) pl_tile_dot(t, 1, 7, 3);
    pl_tile_store(t, 0, acc);
    if (x->rows > 16) pl_tile_store(t, 1, acc + 512);
}

static __attribute__((noinline)) void overlap_step(overlap *b)
{
    products *x = &b->todo[b->at];
    int64_t k = b->step++, last = b->step * PL_BLOCK >= x->depth;
    PL_TILES_BARRIER();
    if (!x->next_left && x->depth > PL_BLOCK && x->depth <= 2 * PL_BLOCK)
        step_of_columns(b->tiles, x, k, !b->held);
    else step_of_k(b->tiles, x, k, (int)last);
    PL_TILES_BARRIER();
    b->steps--, b->held = 1;
    if (!last) return;
    b->step = 0;
    x->acc += PL_BLOCK_SIZE, x->left += x->next_left * PL_BLOCK_SIZE,
        x->right += x->next_right * PL_BLOCK_SIZE;
    if (--x->count == 0) b->at++, b->held = 0;
}

#else

static inline void overlap_multiply(overlap *b, products x)
{
    (void)b;
    for (; x.count > 0; x.count--, x.acc += PL_BLOCK_SIZE, x.left += x.next_left * PL_BLOCK_SIZE,
                        x.right += x.next_right * PL_BLOCK_SIZE)
        pl_dots_multiply(x.acc, pl_left_packed(x.left), x.right, x.rows, (x.depth + 1) / 2, 0);
}

static inline void overlap_step(overlap *b)
{
    (void)b;
}

#endif

/* After a piece of vector work: its share of the products and of the prefetches. */
PL_INLINE void overlap_some(overlap *b)
{
    for (b->due += b->share; b->due >= b->pieces; b->due -= b->pieces) overlap_step(b);
    for (b->rows_due += b->rows; b->rows_due >= b->pieces; b->rows_due -= b->pieces) overlap_prefetch(b);
}

static inline void overlap_end(overlap *b)
{
    while (b->steps > 0) overlap_step(b);
}

#endif
#endif
