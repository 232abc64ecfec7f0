/* bench_fill.cuh -- numbers for the benches of products, the same in every run, by plain kernels. */
#ifndef BENCH_FILL_CUH
#define BENCH_FILL_CUH

#include <stdint.h>

#define GRID 1024, 256
#define FOR_ALL(n)                                                          \
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; \
         i += (int64_t)gridDim.x * blockDim.x)

__device__ static uint32_t mixed(uint64_t x)
{
    x ^= x >> 33, x *= 0xff51afd7ed558ccdull, x ^= x >> 33, x *= 0xc4ceb9fe1a85ec53ull, x ^= x >> 33;
    return (uint32_t)x;
}

/* Sum of four uniforms, about normal; symmetric: (i, j) as (j, i). */
template <class T>
__global__ void fill(T *x, int64_t rows, int64_t cols, int64_t n, float scale, uint64_t seed, int symmetric)
{
    FOR_ALL(n)
    {
        int64_t b = i / (rows * cols), r = i % (rows * cols) / cols, c = i % cols,
                first = symmetric ? min(r, c) : r;
        uint64_t at = (uint64_t)((b * rows + first) * cols + (symmetric ? max(r, c) : c));
        float v = 0;
        for (int k = 0; k < 4; k++)
            v += (float)mixed(seed * 1000003 + at * 4 + (uint64_t)k) * 2.3283064e-10f - 0.5f;
        x[i] = (T)(v * 1.7320508f * scale);
    }
}

#endif
