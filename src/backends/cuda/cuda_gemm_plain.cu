/* cuda_gemm_plain.cu -- C = alpha op(A) op(B) + beta D for any formats and strides, one thread per element.
 *
 * Serves what cuBLASLt refuses (mixed formats, odd strides) and what must have the bits of the `cpu` backend:
 * k ascending, one accumulator, one fma each. Shared tiles of 16 x 16; no attempt at the machine's peak.
 */
#include "cuda_access.cuh"
#include "cuda_kernels.h"
#include "math/formulas_elem.h"
#include "math/tf32_elem.h"

#define TILE 16

static __device__ __forceinline__ float fma_of(float a, float b, float c)
{
    return fmaf(a, b, c);
}

static __device__ __forceinline__ double fma_of(double a, double b, double c)
{
    return fma(a, b, c);
}

static __device__ __forceinline__ float epilogue(float acc, float alpha, float beta, float d)
{
    return pl_gemm_epilogue_f32(acc, alpha, beta, d);
}

static __device__ __forceinline__ double epilogue(double acc, double alpha, double beta, double d)
{
    return pl_gemm_epilogue_f64(acc, alpha, beta, d);
}

template <typename REAL> static __device__ __forceinline__ REAL factor(pl_mat m, int64_t at, int64_t tf32)
{
    REAL x = pl_cuda_get<REAL>(m, at);
    return tf32 ? (REAL)pl_tf32_round((float)x) : x;
}

template <typename REAL> __global__ void gemm_kernel(pl_args_gemm a)
{
    __shared__ REAL As[TILE][TILE + 1], Bs[TILE][TILE + 1]; /* As[row][k], Bs[k][col] */
    int tx = threadIdx.x, ty = threadIdx.y;
    int64_t K = a.ta ? a.A.rows : a.A.cols;
    for (int64_t b = blockIdx.z; b < a.C.batch; b += gridDim.z)
        for (int64_t i0 = (int64_t)blockIdx.y * TILE; i0 < a.C.rows; i0 += (int64_t)gridDim.y * TILE)
            for (int64_t j0 = (int64_t)blockIdx.x * TILE; j0 < a.C.cols; j0 += (int64_t)gridDim.x * TILE) {
                REAL acc = 0;
                int64_t ab = pl_cuda_base(a.A, b), bb = pl_cuda_base(a.B, b), i = i0 + ty, j = j0 + tx;
                for (int64_t k0 = 0; k0 < K; k0 += TILE) {
                    int64_t kt = k0 + tx, ku = k0 + ty;
                    if (a.ta)
                        As[tx][ty] = ku < K && i0 + tx < a.C.rows
                                         ? factor<REAL>(a.A, ab + ku * a.A.rs + i0 + tx, a.tf32)
                                         : (REAL)0;
                    else
                        As[ty][tx] = kt < K && i < a.C.rows ? factor<REAL>(a.A, ab + i * a.A.rs + kt, a.tf32)
                                                            : (REAL)0;
                    if (a.tb)
                        Bs[tx][ty] = kt < K && j0 + ty < a.C.cols
                                         ? factor<REAL>(a.B, bb + (j0 + ty) * a.B.rs + kt, a.tf32)
                                         : (REAL)0;
                    else
                        Bs[ty][tx] = ku < K && j < a.C.cols ? factor<REAL>(a.B, bb + ku * a.B.rs + j, a.tf32)
                                                            : (REAL)0;
                    __syncthreads();
                    int top = K - k0 < TILE ? (int)(K - k0) : TILE;
                    for (int k = 0; k < top; k++) acc = fma_of(As[ty][k], Bs[k][tx], acc);
                    __syncthreads();
                }
                if (i < a.C.rows && j < a.C.cols) {
                    REAL d =
                        a.D.data ? pl_cuda_get<REAL>(a.D, pl_cuda_base(a.D, b) + i * a.D.rs + j) : (REAL)0;
                    pl_cuda_put<REAL>(a.C, pl_cuda_base(a.C, b) + i * a.C.rs + j,
                                      epilogue(acc, (REAL)a.alpha, (REAL)a.beta, d));
                }
            }
}

void pl_cuda_launch_gemm(cudaStream_t stream, const pl_args_gemm *a)
{
    int64_t x = (a->C.cols + TILE - 1) / TILE, y = (a->C.rows + TILE - 1) / TILE, z = a->C.batch;
    dim3 grid((unsigned)(x < 65535 ? x : 65535), (unsigned)(y < 65535 ? y : 65535),
              (unsigned)(z < 65535 ? z : 65535));
    bool f64 = a->A.dtype == POLAR_DTYPE_F64 || a->C.dtype == POLAR_DTYPE_F64 ||
               (a->D.data && a->D.dtype == POLAR_DTYPE_F64);
    if (f64) gemm_kernel<double><<<grid, dim3(TILE, TILE), 0, stream>>>(*a);
    else gemm_kernel<float><<<grid, dim3(TILE, TILE), 0, stream>>>(*a);
}
