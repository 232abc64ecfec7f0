/* cuda_fp16.h -- stands in for CUDA's header where kernels run on the host (cuda_host.h): f16 and pairs. */
#ifndef CUDA_HOST_FP16_H
#define CUDA_HOST_FP16_H

#include "cuda_runtime.h"

struct __half {
    uint16_t bits;
};
struct __half2 {
    __half x, y;
};

inline __half2 __floats2half2_rn(float x, float y)
{
    return {{cuda_host::f16_of(x)}, {cuda_host::f16_of(y)}};
}

inline float2 __half22float2(__half2 v)
{
    return {cuda_host::from_f16(v.x.bits), cuda_host::from_f16(v.y.bits)};
}

#endif
