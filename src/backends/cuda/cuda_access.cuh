/* cuda_access.cuh -- elements of a pl_mat on the device, in the format computed in (float, or double where an
 * operand is f64). */
#ifndef PL_CUDA_ACCESS_CUH
#define PL_CUDA_ACCESS_CUH

#include "device/mat.h"
#include "math/f16_elem.h"

template <typename REAL> __device__ __forceinline__ REAL pl_cuda_get(const pl_mat &m, int64_t at)
{
    switch (m.dtype) { /* the same branch for every thread */
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

/* Four neighbours in a format of at most 4 bytes, `at` a multiple of 4 and the data aligned to four elements.
 */
__device__ __forceinline__ void pl_cuda_get4(float (&x)[4], const pl_mat &m, int64_t at)
{
    if (m.dtype == POLAR_DTYPE_F32) {
        float4 v = *(const float4 *)((const float *)m.data + at);
        x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
        return;
    }
    ushort4 v = *(const ushort4 *)((const uint16_t *)m.data + at);
    uint16_t half[4] = {v.x, v.y, v.z, v.w};
    for (int k = 0; k < 4; k++)
        x[k] = m.dtype == POLAR_DTYPE_F16 ? pl_f16_to_f32(half[k]) : pl_bf16_to_f32(half[k]);
}

__device__ __forceinline__ void pl_cuda_put4(const pl_mat &m, int64_t at, const float (&x)[4])
{
    if (m.dtype == POLAR_DTYPE_F32) {
        *(float4 *)((float *)m.data + at) = make_float4(x[0], x[1], x[2], x[3]);
        return;
    }
    uint16_t half[4];
    for (int k = 0; k < 4; k++) half[k] = m.dtype == POLAR_DTYPE_F16 ? pl_cuda_f16(x[k]) : pl_cuda_bf16(x[k]);
    *(ushort4 *)((uint16_t *)m.data + at) = make_ushort4(half[0], half[1], half[2], half[3]);
}

/* Where matrix b begins: a batch of one, or a batch stride of zero, serves all. */
__device__ __forceinline__ int64_t pl_cuda_base(const pl_mat &m, int64_t b)
{
    return m.batch == 1 ? 0 : b * m.bs;
}

/* pl_live_of on the device. */
__device__ __forceinline__ const double *pl_cuda_live(const pl_mat &live, int64_t b)
{
    return (const double *)live.data + pl_cuda_base(live, b);
}

#endif
