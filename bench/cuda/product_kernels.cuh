/* product_kernels.cuh -- for tile_products.cu: plain kernels that judge products, beside what is timed. */
#ifndef PRODUCT_KERNELS_CUH
#define PRODUCT_KERNELS_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include <type_traits>

#include "bench_fill.cuh"

typedef __nv_bfloat16 bf16;

template <class T> __global__ void transpose(T *y, const T *x, int64_t rows, int64_t cols, int64_t n)
{
    FOR_ALL(n)
    {
        int64_t b = i / (rows * cols), r = i % (rows * cols) / cols, c = i % cols;
        y[b * rows * cols + c * rows + r] = x[i];
    }
}

struct verdict {
    unsigned long long bad, differ;
    unsigned worst; /* error over tolerance in thousandths */
};

/* Some elements of C = alpha A op(B)^T + beta D against fp64. A value before its rounding is off by at most
 * e: k / 16 roundings of 2^-22 of the sum of sizes (the tensor cores cut), two in the end; the rounding moves
 * it by 2^-8 (bf16) or 2^-11 (f16) of itself. A K-major; tb: B is (k, n). */
template <class T>
__global__ void compare(verdict *v, const T *C, const T *A, const T *B, const T *D, const float *F, int m,
                        int n, int k, int tb, float alpha, float beta, int step)
{
    int p = std::is_same<T, __half>::value ? 11 : 8;
    FOR_ALL((int64_t)m * n)
    {
        if (i % step) continue;
        int64_t r = i / n, c = i % n;
        double sum = 0, size = 0;
        for (int64_t q = 0; q < k; q++) {
            double t = (double)(float)A[r * k + q] * (double)(float)(tb ? B[q * n + c] : B[c * k + q]);
            sum += t, size += fabs(t);
        }
        double d = D ? (double)(float)D[i] : F ? (double)F[i] : 0, R = alpha * sum + beta * d;
        double S = fabs((double)alpha) * size + fabs(beta * d), e = (k / 16 + 2) * ldexp(S, -22),
               tol = e + ldexp(fabs(R) + e, -p) + (p == 11 ? ldexp(1.0, -25) : 0);
        double ratio = fabs((double)(float)C[i] - R) / (tol + 1e-300);
        if (!(ratio <= 1)) atomicAdd(&v->bad, 1ull);
        atomicMax(&v->worst, ratio < 1e6 ? (unsigned)(ratio * 1000) : 1000000000u);
    }
}

__global__ void differ(verdict *v, const uint16_t *a, const uint16_t *b, int64_t n)
{
    FOR_ALL(n) if (a[i] != b[i]) atomicAdd(&v->differ, 1ull);
}

__global__ void asymmetric(verdict *v, const uint16_t *a, int64_t m, int64_t n)
{
    FOR_ALL(n)
    {
        int64_t b = i / (m * m), r = i % (m * m) / m, c = i % m;
        if (a[i] != a[b * m * m + c * m + r]) atomicAdd(&v->differ, 1ull);
    }
}

/* Four neighbours a thread: what a copy behind the last product is. */
__global__ void widen(float4 *y, const uint2 *x, int64_t fours)
{
    FOR_ALL(fours)
    {
        uint2 v = x[i];
        y[i] = make_float4(__uint_as_float(v.x << 16), __uint_as_float(v.x & 0xffff0000u),
                           __uint_as_float(v.y << 16), __uint_as_float(v.y & 0xffff0000u));
    }
}

#endif
