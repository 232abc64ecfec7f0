/* cuda_kron.cu -- Kronecker factors: one sweep of the QR iteration, a block a matrix (cuda_kron_sweep.cuh;
 * large sides on Hopper: cuda_hopper_kron.cu). Nothing comes back to the host, so a graph can hold it.
 * kron_moment: cuda_multi_moment.cu; kron_eigen: cuda_kron_eigen.cu.
 */
#include "cuda_hopper_kron.h"
#include "cuda_kernels.h"
#include "cuda_kron_sweep.cuh"
#include "cuda_ns.h"
#include "cuda_shared_limit.cuh"

/* ---- one sweep ---------------------------------------------------------------------------------- */

template <int W> static void launch_sweep(cudaStream_t stream, const pl_args_kron_sweep *a, double *scratch)
{
    const size_t bytes = 8 * (size_t)sweep_shared<W, 1>(a->Q.rows);
    if (allow_all_shared((const void *)sweep_kernel<W, 1>) != cudaSuccess) return; /* the caller asks */
    sweep_kernel<W, 1><<<(unsigned)a->Q.batch, 32 * W, bytes, stream>>>(*a, scratch);
}

int pl_cuda_sweeps_by_cluster(const pl_args_kron_sweep *a)
{
    int device = 0;
    cudaGetDevice(&device);
    return pl_hopper_sweeps(a->Q.rows) && pl_cuda_ns_usable(device);
}

size_t pl_cuda_kron_sweep_scratch(const pl_args_kron_sweep *a)
{
    if (pl_cuda_sweeps_by_cluster(a)) return pl_hopper_sweep_scratch(a);
    return (size_t)(a->Q.batch * sweep_room(a)) * sizeof(double) + sizeof(double);
}

void pl_cuda_launch_kron_sweep(cudaStream_t stream, const pl_args_kron_sweep *a, void *scratch)
{
    if (pl_cuda_sweeps_by_cluster(a)) {
        pl_hopper_sweep_list one = {1, {*a}, {(double *)scratch}};
        pl_hopper_sweep(stream, &one);
    } else if (a->Q.rows <= 64) launch_sweep<4>(stream, a, (double *)scratch);
    else launch_sweep<16>(stream, a, (double *)scratch);
}
