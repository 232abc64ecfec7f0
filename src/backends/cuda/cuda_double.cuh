/* cuda_double.cuh -- sums over lanes and products of tensor cores, in double. */
#ifndef PL_CUDA_DOUBLE_CUH
#define PL_CUDA_DOUBLE_CUH

#define PL_LANES 0xffffffffu

/* The sum over the warp, for every lane. */
__device__ __forceinline__ double lanes_sum(double x)
{
    for (int half = 16; half > 0; half /= 2) x += __shfl_xor_sync(PL_LANES, x, half);
    return x;
}

/* C += A B, 8 x 8 from 8 x 4 and 4 x 8: A's row and B's column lane / 4, depth lane % 4; of C row lane / 4,
 * columns 2 (lane % 4) and the next. */
__device__ __forceinline__ void product_8x8x4(double c[2], double a, double b)
{
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                 : "+d"(c[0]), "+d"(c[1])
                 : "d"(a), "d"(b));
}

#endif
