/* cpu_rows.h -- pieces of rows into float or double, and back with one rounding; the switch from float to double and back.
 *
 * A file with loops for both includes its .inc twice:
 *
 *     #include "cpu_as_f32.inc"
 *     #include "cpu_gemm.inc"
 *     #include "cpu_as_f64.inc"
 *     #include "cpu_gemm.inc"
 *
 * With a constant dtype and a constant n these inline to a few vector instructions.
 */
#ifndef PL_CPU_ROWS_H
#define PL_CPU_ROWS_H

#include <stdint.h>
#include <string.h>

#include "../cpu_kernels.h"
#include "math/formulas_elem.h"

/* dst[0, n) = element `at` and those after it; float never meets f64 data (pl_any_f64). */
PL_INLINE void pl_row_load_f32(float *dst, const void *src, polar_dtype dtype, int64_t at, int64_t n)
{
    if (dtype == POLAR_DTYPE_BF16)
        for (int64_t j = 0; j < n; j++) dst[j] = pl_bf16_to_f32(((const pl_bf16 *)src)[at + j]);
    else memcpy(dst, (const float *)src + at, (size_t)n * sizeof(float));
}

/* Element `at` and those after it = x[0, n), rounded to dtype. */
PL_INLINE void pl_row_store_f32(void *dst, polar_dtype dtype, int64_t at, const float *x, int64_t n)
{
    if (dtype == POLAR_DTYPE_BF16)
        for (int64_t j = 0; j < n; j++) ((pl_bf16 *)dst)[at + j] = pl_bf16_from_f32(x[j]);
    else memcpy((float *)dst + at, x, (size_t)n * sizeof(float));
}

/* The same in double, from and to every format. */
PL_INLINE void pl_row_load_f64(double *dst, const void *src, polar_dtype dtype, int64_t at, int64_t n)
{
    if (dtype == POLAR_DTYPE_BF16)
        for (int64_t j = 0; j < n; j++) dst[j] = (double)pl_bf16_to_f32(((const pl_bf16 *)src)[at + j]);
    else if (dtype == POLAR_DTYPE_F32)
        for (int64_t j = 0; j < n; j++) dst[j] = (double)((const float *)src)[at + j];
    else memcpy(dst, (const double *)src + at, (size_t)n * sizeof(double));
}

PL_INLINE void pl_row_store_f64(void *dst, polar_dtype dtype, int64_t at, const double *x, int64_t n)
{
    if (dtype == POLAR_DTYPE_BF16)
        for (int64_t j = 0; j < n; j++) ((pl_bf16 *)dst)[at + j] = pl_bf16_from_f64(x[j]);
    else if (dtype == POLAR_DTYPE_F32)
        for (int64_t j = 0; j < n; j++) ((float *)dst)[at + j] = (float)x[j];
    else memcpy((double *)dst + at, x, (size_t)n * sizeof(double));
}

/* Some operand of the first n is f64: the op computes in double. */
static inline int pl_any_f64(const pl_mat *m, int n)
{
    int any = 0;
    for (int i = 0; i < n; i++) any |= m[i].data && m[i].dtype == POLAR_DTYPE_F64;
    return any;
}

#endif
