/* vectors_elem.h -- the element tier of vectors: vectors.inc in float (_f32) and in double (_f64), host and
 * device. */
#ifndef PL_MATH_VECTORS_ELEM_H
#define PL_MATH_VECTORS_ELEM_H

#include "math/activation_elem.h"

#define REAL    float
#define FMA     fmaf
#define SQRT    sqrtf
#define NAME(f) f##_f32
#include "math/vectors.inc"
#undef REAL
#undef FMA
#undef SQRT
#undef NAME

#define REAL    double
#define FMA     fma
#define SQRT    sqrt
#define NAME(f) f##_f64
#include "math/vectors.inc"
#undef REAL
#undef FMA
#undef SQRT
#undef NAME

#endif
