/* cpu_gemm_ahead.h -- what the next rows of a product will meet, asked for while these are multiplied: row
 * after row, line after line, as it lies in memory. A core reads twice as fast so as by columns of lines
 * (SPEED.md, 26). Into the second cache: the first has no room for it.
 */
#ifndef PL_CPU_GEMM_AHEAD_H
#define PL_CPU_GEMM_AHEAD_H

#include "cpu_rows.h"
#include "cpu_tiles.h"

#ifdef PL_TILE_UNIT

/* Rows of lines to be asked for, so many at a time. */
typedef struct {
    const char *line;
    int64_t in_row, lines; /* lines left in this row; of a row */
    int64_t skip;          /* bytes from the end of a row to the next one's begin */
    int64_t left, each;    /* lines left of all; asked for at a time */
} ahead;

/* Rows [i, i + rows) and columns [j, j + cols) of matrix b of x, those inside it, in `times` portions. */
static ahead ahead_of(const pl_mat *x, int64_t b, int64_t i, int64_t rows, int64_t j, int64_t cols,
                      int64_t times)
{
    const int64_t size = x->dtype == POLAR_DTYPE_BF16 ? 2 : 4;
    if (rows > x->rows - i) rows = x->rows - i;
    if (cols > x->cols - j) cols = x->cols - j;
    if (!x->data || rows <= 0 || cols <= 0) return (ahead){0};
    int64_t lines = (cols * size + 63) / 64;
    return (ahead){.line = (const char *)x->data + (b * x->bs + i * x->rs + j) * size,
                   .in_row = lines,
                   .lines = lines,
                   .skip = x->rs * size - 64 * lines,
                   .left = rows * lines,
                   .each = (rows * lines + times - 1) / times};
}

PL_INLINE void ahead_ask(ahead *a)
{
    for (int64_t n = a->left < a->each ? a->left : a->each; n > 0; n--, a->left--) {
        __builtin_prefetch(a->line, 0, 2);
        a->line += 64;
        if (--a->in_row == 0) a->line += a->skip, a->in_row = a->lines;
    }
}

#endif
#endif
