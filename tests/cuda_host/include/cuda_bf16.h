/* cuda_bf16.h -- stands in for CUDA's header where kernels run on the host (cuda_host.h): bf16 and pairs. */
#ifndef CUDA_HOST_BF16_H
#define CUDA_HOST_BF16_H

#include "cuda_runtime.h"

struct __nv_bfloat16 {
    uint16_t bits;
};
struct __nv_bfloat162 {
    __nv_bfloat16 x, y;
};

inline __nv_bfloat16 __float2bfloat16_rn(float v)
{
    return {cuda_host::bf16_of(v)};
}

inline float __bfloat162float(__nv_bfloat16 v)
{
    return cuda_host::from_bf16(v.bits);
}

inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
}

#endif
