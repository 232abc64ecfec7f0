/* cuda_quotient.cuh -- entries over their matrix's norm, by one reciprocal for all of them: the bits of
 * pl_normalise_f32, with fewer instructions than a division. */
#ifndef PL_CUDA_QUOTIENT_CUH
#define PL_CUDA_QUOTIENT_CUH

#include <stdint.h>

#include "math/formulas_elem.h"

/* Two neighbours rounded to bf16; a NaN becomes the instruction's own, not pl_bf16_from_f32's. */
__device__ __forceinline__ uint32_t pack2(float lo, float hi)
{
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}

/* What all entries of a matrix are normalised by. */
struct divisor {
    float s, n, r; /* r = 1 / n */
    bool near_1;   /* n and r are far from under- and overflow */
};

__device__ __forceinline__ divisor divisor_of(float s, float n)
{
    return {s, n, 1 / n, n >= 0x1p-60f && n <= 0x1p60f};
}

/* pl_normalise_f32 of N entries; true where all of them went by the reciprocal, so that none is a NaN. The
 * quotient y / n is q = y r corrected by its remainder, where nothing under- or overflows on the way. q is
 * within 1.5 units of it, a corrected q within 0.5 and 2^-23 of a unit; of a q within one unit, r the rounded
 * reciprocal, a correction makes the rounded quotient (Markstein). So two are always right, and one will do
 * where the quotient is rounded to bf16 next. */
template <int CORRECTIONS, int N>
__device__ __forceinline__ bool quotients(float (&q)[N], const float (&d)[N], const divisor &by)
{
    bool near_1 = by.near_1;
#pragma unroll
    for (int k = 0; k < N; k++) {
        float y = d[k] * by.s, size = fabsf(y);
        q[k] = __fmul_rn(y, by.r);
#pragma unroll
        for (int c = 0; c < CORRECTIONS; c++) q[k] = __fmaf_rn(__fmaf_rn(-q[k], by.n, y), by.r, q[k]);
        if (y == 0) q[k] = y; /* with its sign */
        near_1 = near_1 && size <= 0x1p60f && (size >= 0x1p-60f || y == 0);
    }
    if (!near_1) {
#pragma unroll
        for (int k = 0; k < N; k++) q[k] = pl_normalise_f32(d[k], by.s, by.n);
    }
    return near_1;
}

#endif
