/* cpu_gemm_act.c -- gemm_act: a product by cpu_gemm.c or cpu_gemm_tiles.c, and bias, activation, slope or factor on every part of it while it is in the cache.
 *
 * Element by element from the product's stored value, so the bits are those of the ops one after the other, gelu in bf16 apart (gelu_bf16_elem.h).
 */
#include "cpu_rows.h"
#include "cpu_vec.h"
#include "math/gelu_bf16_elem.h"
#include "math/nn_formulas_elem.h"

#define CHUNK 512            /* elements of a row at a time */

#include "cpu_as_f32.inc"
#include "cpu_gemm_act.inc"
#include "cpu_as_f64.inc"
#include "cpu_gemm_act.inc"

/* gelu of n elements in bf16, and its slopes. */
PL_INLINE void gelu_row(pl_bf16 *restrict y, pl_bf16 *restrict s, const float *restrict bias, int64_t n)
{
#pragma omp simd
    for (int64_t p = 0; p < n; p++) {
        float slope, v = pl_gelu_bf16(pl_bf16_to_f32(y[p]) + bias[p], &slope);
        y[p] = pl_bf16_from_f32(v);
        s[p] = pl_bf16_from_f32(slope);
    }
}

/* ... without them. */
PL_INLINE void gelu_only_row(pl_bf16 *restrict y, const float *restrict bias, int64_t n)
{
#pragma omp simd
    for (int64_t p = 0; p < n; p++) {
        float slope;
        y[p] = pl_bf16_from_f32(pl_gelu_bf16(pl_bf16_to_f32(y[p]) + bias[p], &slope));
    }
}

PL_INLINE void bias_row(pl_bf16 *restrict y, const float *restrict bias, int64_t n)
{
#pragma omp simd
    for (int64_t p = 0; p < n; p++) y[p] = pl_bf16_from_f32(pl_bf16_to_f32(y[p]) + bias[p]);
}

PL_INLINE void bias_row_f32(float *restrict y, const float *restrict bias, int64_t n)
{
#pragma omp simd
    for (int64_t p = 0; p < n; p++) y[p] += bias[p];
}

PL_INLINE void factor_row(pl_bf16 *restrict y, const pl_bf16 *restrict f, int64_t n)
{
#pragma omp simd
    for (int64_t p = 0; p < n; p++) y[p] = pl_bf16_from_f32(pl_bf16_to_f32(y[p]) * pl_bf16_to_f32(f[p]));
}

typedef enum { FACTOR, BIAS, BIAS_F32, GELU, GELU_ONLY } plain_kind;

/* What the layers of a transformer do, without a way through buffers. */
PL_INLINE void plain_rows(const pl_args_gemm_act *a, const plain_kind kind, int64_t b, int64_t i, int64_t j, int64_t rows, int64_t cols)
{
    const float *bias = a->b.data ? (const float *)a->b.data + (a->b.batch == 1 ? 0 : b * a->b.bs) + j : NULL;
    for (int64_t r = i; r < i + rows; r++) {
        int64_t at = b * a->Y.bs + r * a->Y.rs + j;
        pl_bf16 *y = (pl_bf16 *)a->Y.data + at;
        if (kind == FACTOR) factor_row(y, (const pl_bf16 *)a->F.data + b * a->F.bs + r * a->F.rs + j, cols);
        else if (kind == BIAS) bias_row(y, bias, cols);
        else if (kind == BIAS_F32) bias_row_f32((float *)a->Y.data + at, bias, cols);
        else if (kind == GELU) gelu_row(y, (pl_bf16 *)a->S.data + b * a->S.bs + r * a->S.rs + j, bias, cols);
        else gelu_only_row(y, bias, cols);
    }
}

#define PLAIN_TAIL(name, kind)                                                                          \
    static void name(const void *args, int64_t b, int64_t i, int64_t j, int64_t rows, int64_t cols)     \
    {                                                                                                   \
        plain_rows(args, kind, b, i, j, rows, cols);                                                    \
    }
PLAIN_TAIL(factor_tail, FACTOR)
PLAIN_TAIL(bias_tail, BIAS)
PLAIN_TAIL(bias_f32_tail, BIAS_F32)
PLAIN_TAIL(gelu_tail, GELU)
PLAIN_TAIL(gelu_only_tail, GELU_ONLY)

static int is(const pl_mat *m, polar_dtype dtype)
{
    return m->data && m->dtype == dtype;
}

/* What follows the product of these operands. */
static void (*tail_of(const pl_args_gemm_act *a))(const void *, int64_t, int64_t, int64_t, int64_t, int64_t)
{
    int narrow = is(&a->Y, POLAR_DTYPE_BF16), bias = is(&a->b, POLAR_DTYPE_F32);
    if (narrow && is(&a->F, POLAR_DTYPE_BF16)) return factor_tail;
    if (bias && !a->S.data && a->act == PL_ACT_NONE && narrow) return bias_tail;
    if (bias && !a->S.data && a->act == PL_ACT_NONE && is(&a->Y, POLAR_DTYPE_F32)) return bias_f32_tail;
    if (bias && narrow && a->act == PL_ACT_GELU && !a->S.data) return gelu_only_tail;
    if (bias && narrow && a->act == PL_ACT_GELU && is(&a->S, POLAR_DTYPE_BF16)) return gelu_tail;
    return pl_any_f64(pl_op_operands(a), 7) ? act_tail_f64 : act_tail_f32;
}

void PL_ISA_NAME(pl_cpu_gemm_act)(pl_queue *q, const pl_args_gemm_act *a)
{
    const pl_args_gemm g = {.C = a->Y, .A = a->A, .B = a->B, .D = a->D, .tb = a->tb, .alpha = 1, .beta = a->D.data ? 1 : 0};
    const pl_gemm_tail tail = {tail_of(a), a};
    PL_ISA_NAME(pl_cpu_gemm_then)(q, &g, &tail);
}
