/* cuda_formulas.cuh -- the scalar formulas of math/ by type: formula<float> and formula<double>. */
#ifndef PL_CUDA_FORMULAS_CUH
#define PL_CUDA_FORMULAS_CUH

#include "math/activation_elem.h"
#include "math/exp_elem.h"
#include "math/formulas_elem.h"
#include "math/vectors_elem.h"

template <typename REAL> struct formula;

#define REAL    float
#define FMA     fmaf
#define SQRT    sqrtf
#define NAME(f) f##_f32
#include "cuda_formulas.inc"
#undef REAL
#undef FMA
#undef SQRT
#undef NAME

#define REAL    double
#define FMA     fma
#define SQRT    sqrt
#define NAME(f) f##_f64
#include "cuda_formulas.inc"
#undef REAL
#undef FMA
#undef SQRT
#undef NAME

#endif
