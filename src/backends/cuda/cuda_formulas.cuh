/* cuda_formulas.cuh -- the scalar formulas of math/ in kernels that are templates of REAL, float or double:
 * FORMULA(pl_axpby)(a, x, b, z) is pl_axpby_f32 or pl_axpby_f64. */
#ifndef PL_CUDA_FORMULAS_CUH
#define PL_CUDA_FORMULAS_CUH

#include "math/activation_elem.h"
#include "math/exp_elem.h"
#include "math/formulas_elem.h"
#include "math/vectors_elem.h"

#include <type_traits>

template <typename REAL, typename F32, typename F64>
__device__ __forceinline__ constexpr auto pl_cuda_formula(F32 f32, F64 f64)
{
    if constexpr (std::is_same<REAL, float>::value) return f32;
    else return f64;
}

#define FORMULA(f) pl_cuda_formula<REAL>(f##_f32, f##_f64)

__device__ __forceinline__ float fused(float a, float x, float y)
{
    return fmaf(a, x, y);
}

__device__ __forceinline__ double fused(double a, double x, double y)
{
    return fma(a, x, y);
}

#endif
