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

/* n <= PL_ROUNDED elements of a row: computed in floats, rounded. */
PL_INLINE void gelu_some(pl_bf16 *restrict y, pl_bf16 *restrict s, const float *restrict bias, const int n, const int slopes)
{
    float v[PL_ROUNDED], slope[PL_ROUNDED];
#pragma omp simd
    for (int p = 0; p < n; p++) v[p] = pl_gelu_bf16(pl_bf16_to_f32(y[p]) + bias[p], &slope[p]);
    pl_row_store_f32(y, POLAR_DTYPE_BF16, 0, v, n);
    if (slopes) pl_row_store_f32(s, POLAR_DTYPE_BF16, 0, slope, n);
}

PL_INLINE void bias_some(pl_bf16 *restrict y, const float *restrict bias, const int n)
{
    float v[PL_ROUNDED];
#pragma omp simd
    for (int p = 0; p < n; p++) v[p] = pl_bf16_to_f32(y[p]) + bias[p];
    pl_row_store_f32(y, POLAR_DTYPE_BF16, 0, v, n);
}

PL_INLINE void factor_some(pl_bf16 *restrict y, const pl_bf16 *restrict f, const int n)
{
    float v[PL_ROUNDED];
#pragma omp simd
    for (int p = 0; p < n; p++) v[p] = pl_bf16_to_f32(y[p]) * pl_bf16_to_f32(f[p]);
    pl_row_store_f32(y, POLAR_DTYPE_BF16, 0, v, n);
}

typedef enum { FACTOR, BIAS, GELU, GELU_ONLY } plain_kind;

/* n <= PL_ROUNDED elements of a row, and what lies beside them: factors, or room for slopes. */
PL_INLINE void plain_some(const plain_kind kind, pl_bf16 *y, pl_bf16 *beside, const float *bias, const int n)
{
    if (kind == FACTOR) factor_some(y, beside, n);
    else if (kind == BIAS) bias_some(y, bias, n);
    else gelu_some(y, beside, bias, n, kind == GELU);
}

/* What the layers of a transformer do. */
PL_INLINE void plain_rows(const pl_args_gemm_act *a, const plain_kind kind, int64_t b, int64_t i, int64_t j, int64_t rows, int64_t cols)
{
    const int two = kind == FACTOR || kind == GELU;
    const pl_mat *m = kind == FACTOR ? &a->F : &a->S;
    const int64_t ys = a->Y.rs, ms = two ? m->rs : 0;
    const float *bias = kind == FACTOR ? NULL : (const float *)a->b.data + (a->b.batch == 1 ? 0 : b * a->b.bs) + j;
    pl_bf16 *y = (pl_bf16 *)a->Y.data + b * a->Y.bs + i * ys + j, *beside = two ? (pl_bf16 *)m->data + b * m->bs + i * ms + j : NULL;
    int64_t c = 0;
    for (; c + PL_ROUNDED <= cols; c += PL_ROUNDED)
        for (int64_t r = 0; r < rows; r++) plain_some(kind, y + r * ys + c, two ? beside + r * ms + c : NULL, bias ? bias + c : NULL, PL_ROUNDED);
    for (int64_t r = 0; c < cols && r < rows; r++) plain_some(kind, y + r * ys + c, two ? beside + r * ms + c : NULL, bias ? bias + c : NULL, (int)(cols - c));
}

static void bias_f32_tail(const void *args, int64_t b, int64_t i, int64_t j, int64_t rows, int64_t cols)
{
    const pl_args_gemm_act *a = args;
    const float *bias = (const float *)a->b.data + (a->b.batch == 1 ? 0 : b * a->b.bs) + j;
    for (int64_t r = i; r < i + rows; r++) {
        float *restrict y = (float *)a->Y.data + b * a->Y.bs + r * a->Y.rs + j;
#pragma omp simd
        for (int64_t p = 0; p < cols; p++) y[p] += bias[p];
    }
}

#define PLAIN_TAIL(name, kind)                                                                          \
    static void name(const void *args, int64_t b, int64_t i, int64_t j, int64_t rows, int64_t cols)     \
    {                                                                                                   \
        plain_rows(args, kind, b, i, j, rows, cols);                                                    \
    }
PLAIN_TAIL(factor_tail, FACTOR)
PLAIN_TAIL(bias_tail, BIAS)
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
    const pl_mat *beside = a->F.data ? &a->F : a->S.data ? &a->S : NULL;
    const pl_gemm_tail tail = {tail_of(a), a, beside, !a->F.data};
    PL_ISA_NAME(pl_cpu_gemm_then)(q, &g, &tail);
}
