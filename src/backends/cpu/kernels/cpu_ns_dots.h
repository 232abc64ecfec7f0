/* cpu_ns_dots.h -- a product's blocks by dot products (cpu_dots.h), one after the other, for cpu_ns.c: as
 * cpu_ns_pipeline.h. Only where PL_TILES is set without PL_TILE_UNIT.
 *
 * A block is multiplied when the one after it comes, for what becomes of it is known only then: eight rows of
 * sums at a time, ended from the registers.
 */
#ifndef PL_CPU_NS_DOTS_H
#define PL_CPU_NS_DOTS_H

#include "cpu_ns_epilogue.h"

#if defined(PL_TILES) && !defined(PL_TILE_UNIT)

typedef struct {
    const pl_bf16 *left, *right; /* panels of the block that waits */
    int64_t pairs;               /* of k */
    epilogue end;
    side_panel side;
} pipeline;

static void pipeline_begin(pipeline *l, pl_ns *w, int64_t depth)
{
    (void)w;
    l->pairs = pl_dot_pairs(depth);
    l->end.waits = 0;
    l->side.transposed = l->side.transposes = 0;
}

/* Room for the epilogue of the block multiplied last. */
static epilogue *pipeline_epilogue(pipeline *l)
{
    return &l->end;
}

/* Rows r to r + 7 of the block. */
PL_INLINE void epilogue_rows(const epilogue *p, const __m512 *even, const __m512 *odd, int r, int addends,
                             int full)
{
#pragma GCC unroll 4
    for (int k = 0; k < PL_DOT_ROWS / 2; k++)
        epilogue_sums(p, (pair_sums){even[2 * k], odd[2 * k], even[2 * k + 1], odd[2 * k + 1]}, addends, full,
                      (unsigned)(r / 2 + k));
}

/* Of a block on the diagonal rows 0-15 have only columns 0-15 made; the others are those of rows 16-31,
 * transposed. */
static void epilogue_diagonal(const epilogue *p)
{
    for (int tile = 0; tile < 2; tile++)
        pl_transpose8(p->left + tile * 32, 64, p->right + tile * PL_TILE_SIZE, 32, 0);
    for (int tile = 0; tile < 2; tile++)
        pl_transpose8(p->right + tile * PL_TILE_SIZE, 32, p->left + tile * 32, 64, 0);
}

static __attribute__((noinline)) void pipeline_multiply(const pipeline *l)
{
    const epilogue *p = &l->end;
    for (int r = 0; r < PL_BLOCK; r += PL_DOT_ROWS) {
        __m512 even[PL_DOT_ROWS], odd[PL_DOT_ROWS];
        if (r >= (int)p->e.rows) pl_dot_zero(even, odd);
        else if (p->diagonal && r < PL_BLOCK / 2)
            pl_dot_rows_half(even, odd, l->left + PL_BLOCK * r, l->right, l->pairs);
        else pl_dot_rows(even, odd, l->left + PL_BLOCK * r, l->right, l->pairs);
        if (p->full) switch (addends_of(p)) {
            case 0: epilogue_rows(p, even, odd, r, 0, 1); break;
            case 1: epilogue_rows(p, even, odd, r, 1, 1); break;
            default: epilogue_rows(p, even, odd, r, 2, 1);
            }
        else epilogue_rows(p, even, odd, r, addends_of(p), 0);
    }
    if (p->diagonal) epilogue_diagonal(p);
    for (int n = 0, transposes = transposes_of(p); n < transposes; n++) epilogue_transpose(p, n);
}

static void multiply(pipeline *l, float *sums, const pl_bf16 *left, const pl_bf16 *right, int64_t steps)
{
    (void)sums, (void)steps;
    if (l->end.waits) pipeline_multiply(l);
    l->left = left, l->right = right;
}

static void pipeline_end(pipeline *l)
{
    if (l->end.waits) pipeline_multiply(l);
}

#endif
#endif
