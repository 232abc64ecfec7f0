/* cpu_message_mlp.c -- see cpu_message_mlp.h. Every entry is one chain, so bits do not depend on how rows are
 * grouped. */
#include "cpu_message_mlp.h"

#include <math.h>

#include "cpu_message_pieces.h"
#include "cpu_convert.h"
#include "cpu_vec.h"
#include "math/activation_elem.h"

#define LANES ((int)(PL_VEC_BYTES / sizeof(double)))
#define MR    6

double PL_ISA_NAME(pl_message_mlp_load)(pl_message_member *m, const pl_message_args *a,
                                        const pl_message_plan *p, int64_t e, int *usable)
{
    int64_t h = p->h, hp = p->hp;
    memset(m->w0, 0, (size_t)hp * sizeof(double));
    memset(m->b0, 0, (size_t)hp * sizeof(double));
    memset(m->b2, 0, (size_t)(2 * hp) * sizeof(double));
    memset(m->Wt, 0, (size_t)(2 * hp * hp) * sizeof(double));
    memset(m->Wr, 0, (size_t)(2 * hp * hp) * sizeof(double));
    for (int64_t k = 0; k < h; k++)
        m->w0[k] = pl_load_f64(a->w0->data, a->w0->dtype, e * a->w0->bs + k * a->w0->rs);
    pl_row_load_f64(m->b0, a->b0->data, a->b0->dtype, e * a->b0->bs, h);
    for (int64_t half = 0; half < 2; half++) {
        pl_row_load_f64(m->b2 + half * hp, a->b2->data, a->b2->dtype, e * a->b2->bs + half * h, h);
        for (int64_t c = 0; c < h; c++) {
            double *row = m->Wr + (half * hp + c) * hp;
            pl_row_load_f64(row, a->W2->data, a->W2->dtype, e * a->W2->bs + (half * h + c) * a->W2->rs, h);
            for (int64_t k = 0; k < h; k++) m->Wt[k * 2 * hp + half * hp + c] = row[k];
        }
    }
    *usable = largest(m->w0, hp) < PL_MESSAGE_LARGE && largest(m->b0, hp) < PL_MESSAGE_LARGE &&
              largest(m->b2, 2 * hp) < PL_MESSAGE_LARGE && largest(m->Wr, 2 * hp * hp) < PL_MESSAGE_LARGE;
    return largest(m->w0, hp);
}

void PL_ISA_NAME(pl_message_mlp_hidden)(const double *w0, const double *b0, int64_t hp, const double *d,
                                        int64_t n, double *z, double *slope)
{
    for (int64_t i = 0; i < n; i++) {
        const double x = d[i];
#pragma omp simd
        for (int64_t k = 0; k < hp; k++) z[i * hp + k] = pl_silu_f64(fma(w0[k], x, b0[k]));
        if (slope)
#pragma omp simd
            for (int64_t k = 0; k < hp; k++) slope[i * hp + k] = pl_silu_slope_f64(fma(w0[k], x, b0[k]));
    }
}

/* A tile of `rows` x two vectors in registers. */
PL_INLINE void tile(const int rows, double *C, int64_t ldc, const double *A, int64_t ar, int64_t ac,
                    const double *B, int64_t ldb, int64_t inner)
{
    pl_vec_f64 c[MR][2];
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++) {
        memcpy(&c[i][0], C + i * ldc, sizeof c[i][0]);
        memcpy(&c[i][1], C + i * ldc + LANES, sizeof c[i][1]);
    }
    for (int64_t k = 0; k < inner; k++) {
        pl_vec_f64 b[2];
        memcpy(&b[0], B + k * ldb, sizeof b[0]);
        memcpy(&b[1], B + k * ldb + LANES, sizeof b[1]);
#pragma GCC unroll 6
        for (int i = 0; i < rows; i++) {
            pl_vec_f64 x = A[i * ar + k * ac] - (pl_vec_f64){0};
            c[i][0] = pl_vec_fma_f64(x, b[0], c[i][0]);
            c[i][1] = pl_vec_fma_f64(x, b[1], c[i][1]);
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++) {
        memcpy(C + i * ldc, &c[i][0], sizeof c[i][0]);
        memcpy(C + i * ldc + LANES, &c[i][1], sizeof c[i][1]);
    }
}

void PL_ISA_NAME(pl_message_mlp_multiply)(double *C, int64_t ldc, const double *A, int64_t ar, int64_t ac,
                                          const double *B, int64_t ldb, int64_t rows, int64_t inner,
                                          int64_t cols)
{
    int64_t i = 0;
    for (; i + MR <= rows; i += MR)
        for (int64_t j = 0; j < cols; j += 2 * LANES)
            tile(MR, C + i * ldc + j, ldc, A + i * ar, ar, ac, B + j, ldb, inner);
    for (; i < rows; i++)
        for (int64_t j = 0; j < cols; j += 2 * LANES)
            tile(1, C + i * ldc + j, ldc, A + i * ar, ar, ac, B + j, ldb, inner);
}
