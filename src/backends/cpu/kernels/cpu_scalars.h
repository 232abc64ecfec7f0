/* cpu_scalars.h -- fma and the square root by the format's name, for .inc files. Fused on every instruction
 * set: the baseline calls fma, and is slow. */
#ifndef PL_CPU_SCALARS_H
#define PL_CPU_SCALARS_H

#include <math.h>

#include "../cpu_kernels.h"

PL_INLINE float pl_fused_f32(float a, float b, float c)
{
    return fmaf(a, b, c);
}

PL_INLINE double pl_fused_f64(double a, double b, double c)
{
    return fma(a, b, c);
}

PL_INLINE float pl_root_f32(float x)
{
    return sqrtf(x);
}

PL_INLINE double pl_root_f64(double x)
{
    return sqrt(x);
}

#endif
