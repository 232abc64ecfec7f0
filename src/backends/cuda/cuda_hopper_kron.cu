/* cuda_hopper_kron.cu -- kron_sweep of all but small sides on Hopper (cuda_kron_cholesky.cuh): a cluster of
 * four blocks a matrix, from sides of 257 on of eight; two blocks to a multiprocessor. */
#include "cuda_hopper_kron.h"

#include "cuda_kron_cholesky.cuh"
#include "cuda_shared_limit.cuh"

int pl_hopper_sweeps(int64_t n)
{
    return n > 64;
}

size_t pl_hopper_sweep_scratch(const pl_args_kron_sweep *a)
{
    return (size_t)(a->Q.batch * quick_room(a)) * sizeof(double);
}

template <int NT, int RANKS>
static void launch(cudaStream_t stream, const pl_args_kron_sweep *a, double *scratch)
{
    cudaLaunchAttribute cluster = {};
    cudaLaunchConfig_t config = {};
    if (allow_all_shared((const void *)quick_sweep_kernel<NT, RANKS>) != cudaSuccess)
        return; /* the caller asks */
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = RANKS, cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    config.gridDim = dim3((unsigned)(RANKS * a->Q.batch)), config.blockDim = dim3(CREW);
    config.dynamicSmemBytes = 8 * (size_t)quick_shared<NT>();
    config.stream = stream, config.attrs = &cluster, config.numAttrs = 1;
    cudaLaunchKernelEx(&config, quick_sweep_kernel<NT, RANKS>, *a, scratch);
}

void pl_hopper_sweep(cudaStream_t stream, const pl_args_kron_sweep *a, double *scratch)
{
    if (a->Q.rows > 256) launch<3, 8>(stream, a, scratch);
    else launch<2, 4>(stream, a, scratch);
}
