/* cuda_access.cuh -- elements of a pl_mat on the device, in the format computed in (float, or double where an operand is f64). */
#ifndef PL_CUDA_ACCESS_CUH
#define PL_CUDA_ACCESS_CUH

#include "device/mat.h"
#include "math/f16_elem.h"

template <typename REAL> __device__ __forceinline__ REAL pl_cuda_get(const pl_mat &m, int64_t at)
{
    switch (m.dtype) {    /* the same branch for every thread */
    case POLAR_DTYPE_F64: return (REAL)((const double *)m.data)[at];
    case POLAR_DTYPE_F32: return (REAL)((const float *)m.data)[at];
    case POLAR_DTYPE_F16: return (REAL)pl_f16_to_f32(((const pl_f16 *)m.data)[at]);
    default: return (REAL)pl_bf16_to_f32(((const pl_bf16 *)m.data)[at]);
    }
}

__device__ __forceinline__ pl_bf16 pl_cuda_bf16(float x)
{
    return pl_bf16_from_f32(x);
}

__device__ __forceinline__ pl_bf16 pl_cuda_bf16(double x)
{
    return pl_bf16_from_f64(x);
}

__device__ __forceinline__ pl_f16 pl_cuda_f16(float x)
{
    return pl_f16_from_f32(x);
}

__device__ __forceinline__ pl_f16 pl_cuda_f16(double x)
{
    return pl_f16_from_f64(x);
}

template <typename REAL> __device__ __forceinline__ void pl_cuda_put(const pl_mat &m, int64_t at, REAL x)
{
    switch (m.dtype) {
    case POLAR_DTYPE_F64: ((double *)m.data)[at] = (double)x; break;
    case POLAR_DTYPE_F32: ((float *)m.data)[at] = (float)x; break;
    case POLAR_DTYPE_F16: ((pl_f16 *)m.data)[at] = pl_cuda_f16(x); break;
    default: ((pl_bf16 *)m.data)[at] = pl_cuda_bf16(x); break;
    }
}

/* Where matrix b begins: a batch of one, or a batch stride of zero, serves all. */
__device__ __forceinline__ int64_t pl_cuda_base(const pl_mat &m, int64_t b)
{
    return m.batch == 1 ? 0 : b * m.bs;
}

#endif
