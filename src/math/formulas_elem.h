/* formulas_elem.h -- the element tier: formulas.inc in float (_f32) and in double (_f64), host and device. */
#ifndef PL_MATH_FORMULAS_ELEM_H
#define PL_MATH_FORMULAS_ELEM_H

#include <math.h>

#include "math/bf16_elem.h"
#include "math/hd.h"
#include "polar/optim.h" /* polar_momentum */

#define REAL          float
#define FMA           fmaf
#define SQRT          sqrtf
#define ROUND_BF16(x) pl_bf16_round(x)
#define NAME(f)       f##_f32
#include "math/formulas.inc"
#undef REAL
#undef FMA
#undef SQRT
#undef ROUND_BF16
#undef NAME

#define REAL          double
#define FMA           fma
#define SQRT          sqrt
#define ROUND_BF16(x) pl_bf16_round_f64(x)
#define NAME(f)       f##_f64
#include "math/formulas.inc"
#undef REAL
#undef FMA
#undef SQRT
#undef ROUND_BF16
#undef NAME

#endif
