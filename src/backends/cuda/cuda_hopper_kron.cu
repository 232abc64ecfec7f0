/* cuda_hopper_kron.cu -- kron_sweep (cuda_kron_sweep.cuh) of large sides on Hopper: a cluster of eight blocks
 * a matrix. */
#include "cuda_hopper_kron.h"

#include "cuda_kron_sweep.cuh"
#include "cuda_shared_limit.cuh"

int pl_hopper_sweeps(int64_t n)
{
    return n > 256;
}

void pl_hopper_sweep(cudaStream_t stream, const pl_args_kron_sweep *a, double *scratch)
{
    cudaLaunchAttribute cluster = {};
    cudaLaunchConfig_t config = {};
    if (allow_all_shared((const void *)sweep_kernel<16, MOST_RANKS>) != cudaSuccess)
        return; /* the caller asks */
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = MOST_RANKS, cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    config.gridDim = dim3((unsigned)(MOST_RANKS * a->Q.batch)), config.blockDim = dim3(32 * 16);
    config.dynamicSmemBytes = 8 * (size_t)sweep_shared<16, MOST_RANKS>(a->Q.rows);
    config.stream = stream, config.attrs = &cluster, config.numAttrs = 1;
    cudaLaunchKernelEx(&config, sweep_kernel<16, MOST_RANKS>, *a, scratch);
}
