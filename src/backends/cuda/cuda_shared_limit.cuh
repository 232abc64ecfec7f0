/* cuda_shared_limit.cuh -- kernels that take more shared memory than a launch may without asking. */
#ifndef PL_CUDA_SHARED_LIMIT_CUH
#define PL_CUDA_SHARED_LIMIT_CUH

#include <cuda_runtime.h>

/* A kernel may take all the shared memory there is. The limit belongs to the kernel, not to a launch: one
 * that went down with a smaller shape would spoil a graph that another thread captures meanwhile. */
static inline cudaError_t allow_all_shared(const void *kernel)
{
    int device = 0, most = 0;
    cudaFuncAttributes f;
    cudaError_t st = cudaFuncGetAttributes(&f, kernel);
    if (st == cudaSuccess) st = cudaGetDevice(&device);
    if (st == cudaSuccess)
        st = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (st != cudaSuccess || f.maxDynamicSharedSizeBytes >= most - (int)f.sharedSizeBytes) return st;
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                most - (int)f.sharedSizeBytes);
}

#endif
