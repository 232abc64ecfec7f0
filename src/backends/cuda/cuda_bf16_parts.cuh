/* cuda_bf16_parts.cuh -- a number of f32 as the sum of three of bf16, exactly (below 2^-110 its last bits may
 * be lost), and which of the nine products of two numbers' parts are summed (cuda_split.h, cuda_parts.h,
 * cuda_hopper_parts.h).
 */
#ifndef PL_CUDA_BF16_PARTS_CUH
#define PL_CUDA_BF16_PARTS_CUH

#include <stdint.h>

#define PARTS    3
#define PRODUCTS 6 /* of parts, the least first: what is left out is at most 2^-22 of |a| |b| */

/* The next part of two neighbours: the upper halves of what is left, which loses them. */
__device__ __forceinline__ uint32_t cut(float &x, float &y)
{
    const uint32_t bx = __float_as_uint(x), by = __float_as_uint(y);
    x -= __uint_as_float(bx & 0xFFFF0000u);
    y -= __uint_as_float(by & 0xFFFF0000u);
    return __byte_perm(bx, by, 0x7632);
}

/* Of the first factor and of the second, in product k. */
__device__ constexpr int first_part(int k)
{
    constexpr int of[PRODUCTS] = {2, 0, 1, 1, 0, 0};
    return of[k];
}

__device__ constexpr int second_part(int k)
{
    constexpr int of[PRODUCTS] = {0, 2, 1, 0, 1, 0};
    return of[k];
}

#endif
