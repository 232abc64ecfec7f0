/* cpu_ns_pipeline.h -- a product's blocks on the tile unit, one after the other (cpu_ns.c). Only where
 * PL_TILE_UNIT is set; without tiles: cpu_ns_dots.h. */
#ifndef PL_CPU_NS_PIPELINE_H
#define PL_CPU_NS_PIPELINE_H

#include "cpu_ns_epilogue.h"

#ifdef PL_TILE_UNIT

/* While a block is multiplied, the sums of the one before are stored from the tiles, and the one before that
 * is ended: the vector units never wait for sums that are being made, which would keep the tile unit's next
 * instructions out of the machine's window. */
typedef struct {
    pl_tiles *tiles;
    float *held; /* where the tiles' sums belong */
    epilogue slot[2];
    int old; /* the slot of the block before the last one; the other is the last one's */
    side_panel side;
} pipeline;

static void pipeline_begin(pipeline *l, pl_ns *w, int64_t depth)
{
    (void)depth; /* steps are whole */
    l->tiles = &w->tiles;
    l->held = w->sums[PL_NS_SUMS];
    l->slot[0].waits = l->slot[1].waits = 0;
    l->old = 0;
    l->side.transposed = l->side.transposes = 0;
}

/* Room for the epilogue of the block multiplied last. */
static epilogue *pipeline_epilogue(pipeline *l)
{
    return &l->slot[!l->old];
}

/* The first step of k, the tiles' old sums to their place before it. */
PL_INLINE void first_step(pl_tiles *t, float *held, const pl_bf16 *left, const pl_bf16 *right)
{
    (void)t;
    pl_tile_load(t, 4, left);
    pl_tile_load(t, 6, right);
    pl_tile_store(t, 0, held);
    pl_tile_zero(t, 0);
    pl_tile_dot(t, 0, 4, 6);
    pl_tile_load(t, 7, right + PL_TILE_SIZE);
    pl_tile_store(t, 1, held + 256);
    pl_tile_zero(t, 1);
    pl_tile_dot(t, 1, 4, 7);
    pl_tile_load(t, 5, left + PL_TILE_SIZE);
    pl_tile_store(t, 2, held + 512);
    pl_tile_zero(t, 2);
    pl_tile_dot(t, 2, 5, 6);
    pl_tile_store(t, 3, held + 768);
    pl_tile_zero(t, 3);
    pl_tile_dot(t, 3, 5, 7);
}

/* The epilogue of the block before the last one, a portion after each tile product: its pairs of rows, then
 * its transposes. */
typedef struct {
    const epilogue *p;
    unsigned pair, each; /* the next; how many at a time */
    int transpose, transposes;
} portions;

PL_INLINE void some_pairs(portions *w, const int addends, const int full)
{
    unsigned to = w->pair + w->each < PAIRS ? w->pair + w->each : PAIRS;
    for (; w->pair < to; w->pair++) epilogue_pair(w->p, addends, full, w->pair);
}

PL_INLINE void some_transpose(portions *w)
{
    if (w->transpose < w->transposes) epilogue_transpose(w->p, w->transpose++);
}

/* When there is nothing left of it: a quarter of a block of the panel that is being transposed. */
PL_INLINE void some_panel(side_panel *side)
{
    if (side->transposed < side->transposes) side_panel_transpose(side);
}

/* Steps of k after the first in which the pairs of rows are ended, `transposes` being left for later ones. */
static int64_t steps_for_pairs(int64_t steps, int transposes)
{
    int64_t room = steps - 1 - transposes / 4;
    return room > 4 ? 4 : room > 1 ? room : steps > 1 ? 1 : 0;
}

PL_INLINE void multiply_as(pipeline *l, pl_tiles *t, float *held, const epilogue *p, const pl_bf16 *left,
                           const pl_bf16 *right, int64_t steps, const int addends, const int full)
{
    portions w = {.p = p, .transposes = transposes_of(p)};
    const int64_t with_pairs = steps_for_pairs(steps, w.transposes);
    int64_t k = 1;
    (void)t;
    if (with_pairs) w.each = (unsigned)(PAIRS / 4 + with_pairs - 1) / (unsigned)with_pairs;
    first_step(t, held, left, right);
    left += PL_BLOCK_SIZE, right += PL_BLOCK_SIZE;
    for (; k <= with_pairs; k++, left += PL_BLOCK_SIZE, right += PL_BLOCK_SIZE)
        PL_TILES_ADD(t, left, PL_BLOCK, right, some_pairs(&w, addends, full));
    for (; w.pair < PAIRS; w.pair++) epilogue_pair(p, addends, full, w.pair);
    for (; k < steps && w.transpose < w.transposes; k++, left += PL_BLOCK_SIZE, right += PL_BLOCK_SIZE)
        PL_TILES_ADD(t, left, PL_BLOCK, right, some_transpose(&w));
    for (; k < steps; k++, left += PL_BLOCK_SIZE, right += PL_BLOCK_SIZE)
        PL_TILES_ADD(t, left, PL_BLOCK, right, some_panel(&l->side));
    while (w.transpose < w.transposes) some_transpose(&w);
}

/* sums = a left panel times a right one, as pl_tiles_multiply, but still in the tiles. */
static void multiply(pipeline *l, float *sums, const pl_bf16 *left, const pl_bf16 *right, int64_t steps)
{
    pl_tiles *t = l->tiles;
    epilogue *p = &l->slot[l->old];
    float *held = l->held;
    (void)t;
    PL_TILES_BARRIER();
    if (!p->waits) {
        first_step(t, held, left, right);
        for (int64_t k = 1; k < steps; k++)
            PL_TILES_ADD(t, left + k * PL_BLOCK_SIZE, PL_BLOCK, right + k * PL_BLOCK_SIZE,
                         some_panel(&l->side));
    } else if (p->full) switch (addends_of(p)) {
        case 0: multiply_as(l, t, held, p, left, right, steps, 0, 1); break;
        case 1: multiply_as(l, t, held, p, left, right, steps, 1, 1); break;
        default: multiply_as(l, t, held, p, left, right, steps, 2, 1);
        }
    else multiply_as(l, t, held, p, left, right, steps, addends_of(p), 0);
    PL_TILES_BARRIER();
    p->waits = 0;
    l->held = sums;
    l->old = !l->old;
}

static void epilogue_block(const epilogue *p)
{
    if (!p->waits) return;
    for (unsigned k = 0; k < PAIRS; k++) epilogue_pair(p, addends_of(p), 0, k);
    for (int n = 0, transposes = transposes_of(p); n < transposes; n++) epilogue_transpose(p, n);
}

static void pipeline_end(pipeline *l)
{
    PL_TILES_BARRIER();
    pl_tiles_store(l->tiles, l->held);
    PL_TILES_BARRIER();
    epilogue_block(&l->slot[l->old]);
    epilogue_block(&l->slot[!l->old]);
}

#endif
#endif
