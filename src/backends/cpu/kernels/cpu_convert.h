/* cpu_convert.h -- pieces of rows into float or double, and back with one rounding; the switch from float to
 * double and back.
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
#ifndef PL_CPU_CONVERT_H
#define PL_CPU_CONVERT_H

#include <stdint.h>
#include <string.h>

#include "../cpu_kernels.h"
#include "cpu_blocks.h"
#include "cpu_vec.h"
#include "math/f16_elem.h"
#include "math/formulas_elem.h"

#define PL_ROUNDED           32        /* floats that are rounded at a time */
#define PL_NONTEMPORAL_BYTES (8 << 20) /* bytes of an array from which on it is stored non-temporally */

#ifdef __AVX512BF16__
/* Some of them are subnormal. */
static __attribute__((noinline, cold, unused)) void pl_round_subnormal(pl_bf16 *dst, __m512 low, __m512 high)
{
    float x[PL_ROUNDED];
    _mm512_storeu_ps(x, low), _mm512_storeu_ps(x + 16, high);
    for (int j = 0; j < PL_ROUNDED; j++) dst[j] = pl_bf16_from_f32(x[j]);
}
#endif

/* Non-temporal stores. A core that writes an array which is not in its caches reads every line first: 7
 * GB/s where non-temporal stores make 16 (SPEED.md, 26). For whole aligned lines of large arrays, which will
 * mostly have left the caches before they are read again. A thread that has done so ends its share with
 * pl_nontemporal_end. */
static inline int pl_nontemporal(const pl_mat *m)
{
    const int64_t size = (int64_t)polar_dtype_size(m->dtype);
    return m->data && m->batch * m->rows * m->cols * size >= PL_NONTEMPORAL_BYTES &&
           m->cols * size % 64 == 0 &&
           ((uintptr_t)m->data | (uintptr_t)(m->rs * size) | (uintptr_t)(m->bs * size)) % 64 == 0;
}

/* A product's result C, unless it stands on its addend, whose lines are in the cache. */
static inline int pl_nontemporal_result(const pl_mat *C, const pl_mat *D)
{
    return pl_nontemporal(C) && C->data != D->data;
}

#ifdef __AVX512F__
PL_INLINE void pl_store_nontemporal(void *p, __m512i x, const int nontemporal)
{
    if (nontemporal) _mm512_stream_si512(p, x);
    else _mm512_storeu_si512(p, x);
}

PL_INLINE void pl_store_nontemporal_ps(void *p, __m512 x, const int nontemporal)
{
    pl_store_nontemporal(p, _mm512_castps_si512(x), nontemporal);
}

static inline void pl_nontemporal_end(void)
{
    _mm_sfence();
}
#endif

#define PL_LANES_F32 ((int)(PL_VEC_BYTES / sizeof(float)))

/* dst[0, 2 PL_LANES_F32) = x, rounded; or the first half of it. */
PL_INLINE void pl_round_vecs(pl_bf16 *dst, const float *x, const int two)
{
    pl_vec_f32 a, b;
    memcpy(&a, x, sizeof a);
    if (two) memcpy(&b, x + PL_LANES_F32, sizeof b);
    pl_vec_round_f32(dst, a, two ? b : a, two);
}

/* dst[0, PL_ROUNDED) = x[0, PL_ROUNDED), rounded: by the instruction of AVX512-BF16, non-temporally or not,
 * but where a number is subnormal, which it takes for zero. */
PL_INLINE void pl_round_some(pl_bf16 *dst, const float *x, const int nontemporal)
{
#ifdef __AVX512BF16__
    const __m512 low = _mm512_loadu_ps(x), high = _mm512_loadu_ps(x + 16);
    if (__builtin_expect(_kortestz_mask16_u8(pl_subnormal16(low), pl_subnormal16(high)), 1))
        pl_store_nontemporal(dst, (__m512i)_mm512_cvtne2ps_pbh(high, low), nontemporal);
    else pl_round_subnormal(dst, low, high);
#else
    (void)nontemporal;
    for (int j = 0; j < PL_ROUNDED; j += 2 * PL_LANES_F32) pl_round_vecs(dst + j, x + j, 1);
#endif
}

/* The same, rounded to dtype, bf16 or f32. */
PL_INLINE void pl_store_some(void *dst, polar_dtype dtype, const float *x, const int nontemporal)
{
    if (dtype == POLAR_DTYPE_BF16) pl_round_some(dst, x, nontemporal);
#ifdef __AVX512F__
    else
        pl_store_nontemporal_ps(dst, _mm512_loadu_ps(x), nontemporal),
            pl_store_nontemporal_ps((float *)dst + 16, _mm512_loadu_ps(x + 16), nontemporal);
#else
    else memcpy(dst, x, PL_ROUNDED * sizeof(float));
#endif
}

#define PL_PREFETCH_AHEAD 2048 /* bytes, where rows are read one after the other: some 30 lines under way */

/* Prefetches the lines of `bytes` bytes at p, to be read or to be written; they may lie beyond an array. */
PL_INLINE void pl_prefetch(const void *p, const int64_t bytes, const int write)
{
#pragma GCC unroll 8
    for (int64_t at = 0; at < bytes; at += 64) {
        if (write) __builtin_prefetch((const char *)p + at, 1);
        else __builtin_prefetch((const char *)p + at);
    }
}

/* Prefetches the lines of PL_ROUNDED columns of n rows at p, `step` bytes apart. */
PL_INLINE void pl_prefetch_rows(const char *p, int64_t step, polar_dtype dtype, const int n, const int write)
{
#pragma GCC unroll 8
    for (int i = 0; i < n; i++) pl_prefetch(p + i * step, 64, write);
    if (dtype == POLAR_DTYPE_F32)
#pragma GCC unroll 8
        for (int i = 0; i < n; i++) pl_prefetch(p + i * step + 64, 64, write);
}

/* Prefetches what an epilogue meets beside rows [i, i + rows) of the PL_ROUNDED columns from j. */
PL_INLINE void pl_prefetch_operand(const pl_epilogue *t, int64_t b, int64_t i, int64_t j, const int rows)
{
    const pl_mat *m = t->operand;
    const int64_t size = m->dtype == POLAR_DTYPE_BF16 ? 2 : 4;
    const char *p = (const char *)m->data + (b * m->bs + i * m->rs + j) * size;
    if (t->operand_written) pl_prefetch_rows(p, m->rs * size, m->dtype, rows, 1);
    else pl_prefetch_rows(p, m->rs * size, m->dtype, rows, 0);
}

/* dst[0, n) = element `at` and those after it; float never meets f64 data (pl_any_f64). */
PL_INLINE void pl_row_load_f32(float *dst, const void *src, polar_dtype dtype, int64_t at, int64_t n)
{
    if (dtype == POLAR_DTYPE_F16) {
        for (int64_t j = 0; j < n; j++) dst[j] = pl_f16_to_f32(((const pl_f16 *)src)[at + j]);
        return;
    }
    if (dtype != POLAR_DTYPE_BF16) {
        memcpy(dst, (const float *)src + at, (size_t)n * sizeof(float));
        return;
    }
    const pl_bf16 *x = (const pl_bf16 *)src + at;
    int64_t j = 0;
    for (; j + PL_LANES_F32 <= n; j += PL_LANES_F32) {
        pl_vec_f32 wide = pl_vec_widened(x + j);
        memcpy(dst + j, &wide, sizeof wide);
    }
    for (; j + 4 <= n; j += 4) {
        pl_quad_f32 wide = pl_quad_widened(x + j);
        memcpy(dst + j, &wide, sizeof wide);
    }
    for (; j < n; j++) dst[j] = pl_bf16_to_f32(x[j]);
}

/* A vector of them, bf16 or f32. */
PL_INLINE pl_vec_f32 pl_vec_load_f32(const void *src, polar_dtype dtype, int64_t at)
{
    if (dtype == POLAR_DTYPE_BF16) return pl_vec_widened((const pl_bf16 *)src + at);
    pl_vec_f32 x;
    memcpy(&x, (const float *)src + at, sizeof x);
    return x;
}

/* Element `at` and those after it = x[0, n), rounded to dtype. */
PL_INLINE void pl_row_store_f32(void *dst, polar_dtype dtype, int64_t at, const float *x, int64_t n)
{
    if (dtype == POLAR_DTYPE_BF16) {
        int64_t j = 0;
        for (; j + PL_ROUNDED <= n; j += PL_ROUNDED) pl_round_some((pl_bf16 *)dst + at + j, x + j, 0);
        for (; j + 2 * PL_LANES_F32 <= n; j += 2 * PL_LANES_F32)
            pl_round_vecs((pl_bf16 *)dst + at + j, x + j, 1);
        if (j + PL_LANES_F32 <= n) pl_round_vecs((pl_bf16 *)dst + at + j, x + j, 0), j += PL_LANES_F32;
        for (; j < n; j++) ((pl_bf16 *)dst)[at + j] = pl_bf16_from_f32(x[j]);
    } else if (dtype == POLAR_DTYPE_F16) {
        for (int64_t j = 0; j < n; j++) ((pl_f16 *)dst)[at + j] = pl_f16_from_f32(x[j]);
    } else memcpy((float *)dst + at, x, (size_t)n * sizeof(float));
}

/* The same in double, from and to every format. */
PL_INLINE void pl_row_load_f64(double *dst, const void *src, polar_dtype dtype, int64_t at, int64_t n)
{
    if (dtype == POLAR_DTYPE_BF16)
        for (int64_t j = 0; j < n; j++) dst[j] = (double)pl_bf16_to_f32(((const pl_bf16 *)src)[at + j]);
    else if (dtype == POLAR_DTYPE_F16)
        for (int64_t j = 0; j < n; j++) dst[j] = (double)pl_f16_to_f32(((const pl_f16 *)src)[at + j]);
    else if (dtype == POLAR_DTYPE_F32)
        for (int64_t j = 0; j < n; j++) dst[j] = (double)((const float *)src)[at + j];
    else memcpy(dst, (const double *)src + at, (size_t)n * sizeof(double));
}

PL_INLINE pl_vec_f64 pl_vec_load_f64(const void *src, polar_dtype dtype, int64_t at)
{
    pl_vec_f64 x;
    pl_row_load_f64((double *)&x, src, dtype, at, (int64_t)(sizeof x / sizeof(double)));
    return x;
}

PL_INLINE void pl_row_store_f64(void *dst, polar_dtype dtype, int64_t at, const double *x, int64_t n)
{
    if (dtype == POLAR_DTYPE_BF16)
        for (int64_t j = 0; j < n; j++) ((pl_bf16 *)dst)[at + j] = pl_bf16_from_f64(x[j]);
    else if (dtype == POLAR_DTYPE_F16)
        for (int64_t j = 0; j < n; j++) ((pl_f16 *)dst)[at + j] = pl_f16_from_f64(x[j]);
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
