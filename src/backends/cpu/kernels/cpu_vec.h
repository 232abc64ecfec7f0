/* cpu_vec.h -- the vectors of this instruction set, and the one thing plain C cannot say about them: a fused multiply-add.
 *
 * The baseline has no such instruction and takes a product and a sum, in the products only; formulas_elem.h keeps its fma everywhere.
 */
#ifndef PL_CPU_VEC_H
#define PL_CPU_VEC_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "../cpu_kernels.h"

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

/* The tile of a product that lives in registers: TILE_ROWS x 2 vectors, beside two vectors of B and one entry of A. */
#if defined(__AVX512F__)
#define PL_VEC_BYTES 64
#define PL_TILE_ROWS 12
#elif defined(__AVX2__)
#define PL_VEC_BYTES 32
#define PL_TILE_ROWS 6
#else
#define PL_VEC_BYTES 16
#define PL_TILE_ROWS 4
#endif
#define PL_TILE_VECS 2

typedef float  pl_vec_f32 __attribute__((vector_size(PL_VEC_BYTES)));
typedef double pl_vec_f64 __attribute__((vector_size(PL_VEC_BYTES)));

/* a b + c */
PL_INLINE pl_vec_f32 pl_vec_fma_f32(pl_vec_f32 a, pl_vec_f32 b, pl_vec_f32 c)
{
#if defined(__AVX512F__)
    return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__)
    return _mm256_fmadd_ps(a, b, c);
#else
    return a * b + c;
#endif
}

/* a b + c */
PL_INLINE pl_vec_f64 pl_vec_fma_f64(pl_vec_f64 a, pl_vec_f64 b, pl_vec_f64 c)
{
#if defined(__AVX512F__)
    return _mm512_fmadd_pd(a, b, c);
#elif defined(__AVX2__)
    return _mm256_fmadd_pd(a, b, c);
#else
    return a * b + c;
#endif
}

/* a b + c with one rounding on every instruction set: the baseline calls fma, and is slow. For sums whose bits every build shares. */
PL_INLINE pl_vec_f32 pl_vec_fused_f32(pl_vec_f32 a, pl_vec_f32 b, pl_vec_f32 c)
{
#if !defined(__AVX2__)
    for (int l = 0; l < (int)(PL_VEC_BYTES / sizeof(float)); l++) c[l] = fmaf(a[l], b[l], c[l]);
    return c;
#else
    return pl_vec_fma_f32(a, b, c);
#endif
}

PL_INLINE pl_vec_f64 pl_vec_fused_f64(pl_vec_f64 a, pl_vec_f64 b, pl_vec_f64 c)
{
#if !defined(__AVX2__)
    for (int l = 0; l < (int)(PL_VEC_BYTES / sizeof(double)); l++) c[l] = fma(a[l], b[l], c[l]);
    return c;
#else
    return pl_vec_fma_f64(a, b, c);
#endif
}

/* Chosen elements of two vectors laid end to end: gcc has the builtin clang knows from its version 12 on. */
#if __has_builtin(__builtin_shufflevector)
#define PL_PICK(a, b, whole, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define PL_PICK(a, b, whole, ...) __builtin_shuffle(a, b, (whole){__VA_ARGS__})
#endif

/* Four or two short rows turned into columns, `stride` apart: 16 bytes each. */
typedef float   pl_quad_f32 __attribute__((vector_size(16)));
typedef double  pl_quad_f64 __attribute__((vector_size(16)));
typedef int32_t pl_quad_i32 __attribute__((vector_size(16)));
typedef int64_t pl_quad_i64 __attribute__((vector_size(16)));

PL_INLINE void pl_turn_f32(float *dst, int64_t stride, const pl_quad_f32 r[4])
{
    pl_quad_f32 lo01 = PL_PICK(r[0], r[1], pl_quad_i32, 0, 4, 1, 5);
    pl_quad_f32 hi01 = PL_PICK(r[0], r[1], pl_quad_i32, 2, 6, 3, 7);
    pl_quad_f32 lo23 = PL_PICK(r[2], r[3], pl_quad_i32, 0, 4, 1, 5);
    pl_quad_f32 hi23 = PL_PICK(r[2], r[3], pl_quad_i32, 2, 6, 3, 7);
    pl_quad_f32 c[4] = {
        PL_PICK(lo01, lo23, pl_quad_i32, 0, 1, 4, 5),
        PL_PICK(lo01, lo23, pl_quad_i32, 2, 3, 6, 7),
        PL_PICK(hi01, hi23, pl_quad_i32, 0, 1, 4, 5),
        PL_PICK(hi01, hi23, pl_quad_i32, 2, 3, 6, 7),
    };
    for (int i = 0; i < 4; i++) memcpy(dst + i * stride, &c[i], sizeof c[i]);
}

PL_INLINE void pl_turn_f64(double *dst, int64_t stride, const pl_quad_f64 r[2])
{
    pl_quad_f64 c[2] = {PL_PICK(r[0], r[1], pl_quad_i64, 0, 2), PL_PICK(r[0], r[1], pl_quad_i64, 1, 3)};
    for (int i = 0; i < 2; i++) memcpy(dst + i * stride, &c[i], sizeof c[i]);
}

#endif
