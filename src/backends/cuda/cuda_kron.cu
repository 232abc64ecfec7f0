/* cuda_kron.cu -- Kronecker factors: their averages, and one sweep of the QR iteration, a block a matrix
 * (cuda_kron_sweep.cuh; large sides on Hopper: cuda_hopper_kron.cu). Nothing comes back to the host, so a
 * graph can hold them. kron_eigen: cuda_kron_eigen.cu.
 */
#include "cuda_hopper_kron.h"
#include "cuda_kernels.h"
#include "cuda_kron_sweep.cuh"
#include "cuda_ns.h"
#include "cuda_shared_limit.cuh"

static __global__ void kron_moment_kernel(pl_args_kron_moment a)
{
    FOR_MATRICES(a.K, b)
    {
        const double *live = pl_cuda_live(a.live, b), *N = (const double *)a.N.data + b * a.N.bs,
                     beta2 = live[PL_LIVE_BETA2], part = pl_kron_part(beta2, live[PL_LIVE_GRAD], N[0], N[1]);
        if (!pl_kron_moves(live)) continue;
        FOR_ROWS(a.K.rows, i)
        FOR_COLS(a.K.cols, j)
        {
            const double t = pl_cuda_at<double>(a.T, b, i, j),
                         k = pl_kron_moment(pl_cuda_at<double>(a.K, b, i, j), t, beta2, part);
            pl_cuda_set<double>(a.K, b, i, j, k);
            if (a.A.data) pl_cuda_set<double>(a.A, b, i, j, pl_kron_moment(k, t, beta2, part));
        }
    }
}

void pl_cuda_launch_kron_moment(cudaStream_t stream, const pl_args_kron_moment *a)
{
    dim3 block = pl_cuda_row_block(a->K.cols, THREADS);
    kron_moment_kernel<<<pl_cuda_row_grid(a->K.batch, a->K.rows, a->K.cols, block), block, 0, stream>>>(*a);
}

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
