/* cpu_gemm_epilogue.h -- the end of a product of cpu_gemm_tiles.c: rows of C = alpha sums + beta D from the
 * sums of even and odd columns, pl_gemm_epilogue_f32 as vectors and one rounding. */
#ifndef PL_CPU_GEMM_EPILOGUE_H
#define PL_CPU_GEMM_EPILOGUE_H

#include "cpu_convert.h"
#include "cpu_tiles.h"

#ifdef PL_TILES

#define EPILOGUE_ROWS 8 /* rows that are ended at a time */

/* Where a block of C goes. D is bf16 or f32 or not there. */
typedef struct {
    char *c;
    const char *d;
    int64_t c_step, d_step; /* bytes from row to row */
    float alpha, beta;
    int64_t b, i, j;     /* its first element in C */
    unsigned rows, cols; /* of the block, inside C */
    int nontemporal;     /* C is stored non-temporally (cpu_convert.h) */
} c_block;

typedef enum { ADD_NONE, ADD_BF16, ADD_F32 } add_kind;

static c_block c_block_at(const pl_args_gemm *g, int64_t b, int64_t i, int64_t j, int nontemporal)
{
    size_t c = g->C.dtype == POLAR_DTYPE_BF16 ? 2 : 4, d = g->D.dtype == POLAR_DTYPE_BF16 ? 2 : 4;
    int64_t rows = g->C.rows - i, cols = g->C.cols - j;
    return (c_block){.c = (char *)g->C.data + (b * g->C.bs + i * g->C.rs + j) * (int64_t)c,
                     .d = g->D.data ? (const char *)g->D.data + (b * g->D.bs + i * g->D.rs + j) * (int64_t)d
                                    : NULL,
                     .c_step = g->C.rs * (int64_t)c,
                     .d_step = g->D.rs * (int64_t)d,
                     .alpha = (float)g->alpha,
                     .beta = (float)g->beta,
                     .b = b,
                     .i = i,
                     .j = j,
                     .rows = rows < PL_BLOCK ? (unsigned)rows : PL_BLOCK,
                     .cols = cols < PL_BLOCK ? (unsigned)cols : PL_BLOCK,
                     .nontemporal = nontemporal};
}

/* Prefetches what the end of rows r to r + n - 1 will meet. */
PL_INLINE void prefetch_c(const pl_args_gemm *g, const c_block *e, unsigned r, const int n)
{
    if (!e->nontemporal) pl_prefetch_rows(e->c + r * e->c_step, e->c_step, g->C.dtype, n, 1);
    if (e->d) pl_prefetch_rows(e->d + r * e->d_step, e->d_step, g->D.dtype, n, 0);
}

/* The first n <= 32 columns, as masks for 32 elements, the first 16, the last 16. */
PL_INLINE __mmask32 first_of(unsigned n)
{
    return (__mmask32)((1ull << n) - 1);
}

/* Row r, to c. */
PL_INLINE void epilogue_row(const c_block *e, unsigned r, char *c, const int nontemporal, __m512 even,
                            __m512 odd, const int narrow, const add_kind add, const int full)
{
    const __m512i low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0),
                  high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    const __m512 alpha = _mm512_set1_ps(e->alpha), beta = _mm512_set1_ps(e->beta);
    const __mmask32 in = first_of(e->cols);
    pl_pairs_f32 addend = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    const char *d = e->d + r * e->d_step;
    if (add == ADD_BF16)
        addend = pl_widened16(full ? _mm512_loadu_si512(d) : _mm512_maskz_loadu_epi16(in, d));
    if (add == ADD_F32) {
        __m512 x = full ? _mm512_loadu_ps(d) : _mm512_maskz_loadu_ps((__mmask16)in, d),
               y = full ? _mm512_loadu_ps(d + 64) : _mm512_maskz_loadu_ps((__mmask16)(in >> 16), d + 64);
        addend = pl_by_twos(x, y);
    }
    even = _mm512_fmadd_ps(alpha, even, _mm512_mul_ps(beta, addend.low));
    odd = _mm512_fmadd_ps(alpha, odd, _mm512_mul_ps(beta, addend.high));
    if (narrow) {
        __m512i x = pl_pairs16(even, odd);
        if (full) pl_store_nontemporal(c, x, nontemporal);
        else _mm512_mask_storeu_epi16(c, in, x);
    } else {
        __m512 x = _mm512_permutex2var_ps(even, low, odd), y = _mm512_permutex2var_ps(even, high, odd);
        if (full) pl_store_nontemporal_ps(c, x, nontemporal), pl_store_nontemporal_ps(c + 64, y, nontemporal);
        else
            _mm512_mask_storeu_ps(c, (__mmask16)in, x),
                _mm512_mask_storeu_ps(c + 64, (__mmask16)(in >> 16), y);
    }
}

/* Rows r to r + n - 1 of a block: to C or, where `staged` is set, there, one packed row of PL_BLOCK after the
 * other. */
PL_INLINE void epilogue_some(const c_block *e, unsigned r, const int n, char *staged, const __m512 *even,
                             const __m512 *odd, const int narrow, const add_kind add)
{
    const int64_t step = staged ? PL_BLOCK * (narrow ? 2 : 4) : e->c_step;
    const int nontemporal = !staged && e->nontemporal;
    char *c = staged ? staged : e->c + r * e->c_step;
    if (e->cols == PL_BLOCK && r + (unsigned)n <= e->rows)
#pragma GCC unroll 8
        for (int i = 0; i < n; i++)
            epilogue_row(e, r + (unsigned)i, c + i * step, nontemporal, even[i], odd[i], narrow, add, 1);
    else
#pragma GCC unroll 8
        for (int i = 0; i < n; i++)
            if (r + (unsigned)i < e->rows)
                epilogue_row(e, r + (unsigned)i, c + i * step, nontemporal, even[i], odd[i], narrow, add, 0);
}

PL_INLINE void epilogue_rows_to(const pl_args_gemm *g, const c_block *e, unsigned r, const int n,
                                char *staged, const __m512 *even, const __m512 *odd)
{
    int narrow = g->C.dtype == POLAR_DTYPE_BF16;
    if (!g->D.data)
        narrow ? epilogue_some(e, r, n, staged, even, odd, 1, ADD_NONE)
               : epilogue_some(e, r, n, staged, even, odd, 0, ADD_NONE);
    else if (g->D.dtype == POLAR_DTYPE_BF16)
        narrow ? epilogue_some(e, r, n, staged, even, odd, 1, ADD_BF16)
               : epilogue_some(e, r, n, staged, even, odd, 0, ADD_BF16);
    else
        narrow ? epilogue_some(e, r, n, staged, even, odd, 1, ADD_F32)
               : epilogue_some(e, r, n, staged, even, odd, 0, ADD_F32);
}

/* The same, and what follows the product, from rows that wait for it in the first cache: C is written once.
 */
PL_INLINE void epilogue_rows(const pl_args_gemm *g, const pl_epilogue *epilogue, const c_block *e, unsigned r,
                             const int n, const __m512 *even, const __m512 *odd)
{
    _Alignas(64) char staged[EPILOGUE_ROWS * PL_BLOCK * sizeof(float)];
    const unsigned rows = e->rows - r < (unsigned)n ? e->rows - r : (unsigned)n;
    epilogue_rows_to(g, e, r, n, epilogue ? staged : NULL, even, odd);
    if (epilogue)
        epilogue->fn(epilogue, &(pl_gemm_rows){.b = e->b,
                                               .i = e->i + r,
                                               .j = e->j,
                                               .rows = rows,
                                               .cols = e->cols,
                                               .staged = staged,
                                               .step = PL_BLOCK});
}

#endif
#endif
