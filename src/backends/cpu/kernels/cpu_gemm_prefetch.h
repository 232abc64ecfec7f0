/* cpu_gemm_prefetch.h -- what the next rows of a product will meet, prefetched while these are multiplied:
 * row after row, line after line, as it lies in memory. A core reads twice as fast so as by columns of lines
 * (SPEED.md, 26). Into the second cache: the first has no room for it.
 */
#ifndef PL_CPU_GEMM_PREFETCH_H
#define PL_CPU_GEMM_PREFETCH_H

#include "cpu_convert.h"
#include "cpu_tiles.h"

#ifdef PL_TILE_UNIT

/* Rows of lines to be prefetched, so many at a time. */
typedef struct {
    const char *line;
    int64_t in_row, lines; /* lines left in this row; of a row */
    int64_t skip;          /* bytes from the end of a row to the next one's begin */
    int64_t left, each;    /* lines left of all; prefetched at a time */
} prefetch;

/* Rows [i, i + rows) and columns [j, j + cols) of matrix b of x, those inside it, in `times` portions. */
static prefetch prefetch_of(const pl_mat *x, int64_t b, int64_t i, int64_t rows, int64_t j, int64_t cols,
                            int64_t times)
{
    const int64_t size = x->dtype == POLAR_DTYPE_BF16 ? 2 : 4;
    if (rows > x->rows - i) rows = x->rows - i;
    if (cols > x->cols - j) cols = x->cols - j;
    if (!x->data || rows <= 0 || cols <= 0) return (prefetch){0};
    int64_t lines = (cols * size + 63) / 64;
    return (prefetch){.line = (const char *)x->data + (b * x->bs + i * x->rs + j) * size,
                      .in_row = lines,
                      .lines = lines,
                      .skip = x->rs * size - 64 * lines,
                      .left = rows * lines,
                      .each = (rows * lines + times - 1) / times};
}

PL_INLINE void prefetch_some(prefetch *a)
{
    for (int64_t n = a->left < a->each ? a->left : a->each; n > 0; n--, a->left--) {
        __builtin_prefetch(a->line, 0, 2);
        a->line += 64;
        if (--a->in_row == 0) a->line += a->skip, a->in_row = a->lines;
    }
}

#endif
#endif
