/* cpu_eight.h -- eight doubles in the vectors of this instruction set: an order of sums that AVX2 and AVX-512
 * share, the multiply-add fused where there is an instruction for it (cpu_vec.h). */
#ifndef PL_CPU_EIGHT_H
#define PL_CPU_EIGHT_H

#include "cpu_vec.h"

#define PL_EIGHT_VECS ((int)(64 / PL_VEC_BYTES))
#define PL_EIGHT_LANE ((int)(PL_VEC_BYTES / sizeof(double)))

typedef struct {
    pl_vec_f64 v[64 / PL_VEC_BYTES];
} pl_eight;

#define PL_EACH_VEC(k) _Pragma("GCC unroll 4") for (int k = 0; k < PL_EIGHT_VECS; k++)

PL_INLINE pl_eight pl_eight_load(const double *p)
{
    pl_eight x;
    PL_EACH_VEC(k) memcpy(&x.v[k], p + k * PL_EIGHT_LANE, sizeof x.v[k]);
    return x;
}

PL_INLINE void pl_eight_store(double *p, pl_eight x)
{
    PL_EACH_VEC(k) memcpy(p + k * PL_EIGHT_LANE, &x.v[k], sizeof x.v[k]);
}

/* a in every lane */
PL_INLINE pl_eight pl_eight_all(double a)
{
    pl_eight x;
    PL_EACH_VEC(k) x.v[k] = a - (pl_vec_f64){0};
    return x;
}

/* a b + c */
PL_INLINE pl_eight pl_eight_fma(pl_eight a, pl_eight b, pl_eight c)
{
    PL_EACH_VEC(k) c.v[k] = pl_vec_fma_f64(a.v[k], b.v[k], c.v[k]);
    return c;
}

PL_INLINE pl_eight pl_eight_mul(pl_eight a, pl_eight b)
{
    PL_EACH_VEC(k) a.v[k] *= b.v[k];
    return a;
}

PL_INLINE pl_eight pl_eight_sub(pl_eight a, pl_eight b)
{
    PL_EACH_VEC(k) a.v[k] -= b.v[k];
    return a;
}

PL_INLINE pl_eight pl_eight_div(pl_eight a, pl_eight b)
{
    PL_EACH_VEC(k) a.v[k] /= b.v[k];
    return a;
}

/* y[i] = a[i] / b[i] of four, by one division: it takes as long as thirty products. Three roundings more; the
 * product of the four b must be a number, and not be subnormal. */
PL_INLINE void pl_eight_div_four(pl_eight y[4], const pl_eight a[4], const pl_eight b[4])
{
    const pl_eight low = pl_eight_mul(b[0], b[1]), high = pl_eight_mul(b[2], b[3]),
                   one = pl_eight_div(pl_eight_all(1), pl_eight_mul(low, high)),
                   by_low = pl_eight_mul(one, high), by_high = pl_eight_mul(one, low);
    y[0] = pl_eight_mul(a[0], pl_eight_mul(b[1], by_low));
    y[1] = pl_eight_mul(a[1], pl_eight_mul(b[0], by_low));
    y[2] = pl_eight_mul(a[2], pl_eight_mul(b[3], by_high));
    y[3] = pl_eight_mul(a[3], pl_eight_mul(b[2], by_high));
}

/* ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)) */
PL_INLINE double pl_eight_sum(pl_eight a)
{
#if defined(__AVX512F__)
    const __m256d four = _mm512_castpd512_pd256(a.v[0]) + _mm512_extractf64x4_pd(a.v[0], 1);
#elif defined(__AVX2__)
    const __m256d four = a.v[0] + a.v[1];
#endif
#if defined(__AVX2__)
    const __m128d two = _mm256_castpd256_pd128(four) + _mm256_extractf128_pd(four, 1);
    return two[0] + two[1];
#else
    double x[8];
    pl_eight_store(x, a);
    return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
#endif
}

#endif
