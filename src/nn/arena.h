/* arena.h -- one piece of device memory with matrices laid over it: measured, committed once, then pointed at
 * by the same function (docs/STYLE.md, rule 9).
 *
 *     static void net_point(net *n, pl_arena *a) { n->W = pl_arena_mat(a, dtype, E, rows, cols);  ... }
 *
 *     pl_arena a = {0};                 net_point(n, &a);       // a.used: the bytes to commit
 *     a = (pl_arena){.base = memory};   net_point(n, &a);       // now the matrices have addresses
 */
#ifndef PL_NN_ARENA_H
#define PL_NN_ARENA_H

#include "device/mat.h"

#define PL_ARENA_ALIGN ((size_t)256)

typedef struct pl_arena {
    char *base;  /* NULL while measuring */
    size_t used; /* bytes so far */
} pl_arena;

/* The next packed matrix of the arena; without data while measuring. */
static inline pl_mat pl_arena_mat(pl_arena *a, polar_dtype dtype, int64_t batch, int64_t rows, int64_t cols)
{
    pl_mat m = pl_mat_dense(a->base ? a->base + a->used : NULL, dtype, batch, rows, cols);
    a->used += (pl_mat_bytes(&m) + PL_ARENA_ALIGN - 1) / PL_ARENA_ALIGN * PL_ARENA_ALIGN;
    return m;
}

#endif
