/* cuda_loss.cu -- losses and their gradients, computed in double: mean squared error, cross entropy. */
#include "cuda_kernels.h"
#include "cuda_warp_rows.cuh"
#include "math/exp_elem.h"
#include "math/log_elem.h"

/* A warp for each member; its lanes are those of the sum. */
static __global__ void mse_kernel(pl_args_mse a)
{
    int lane = (int)threadIdx.x;
    double rows = (double)a.P.rows;
    FOR_MATRICES(a.P, b)
    {
        double s = 0;
        for (int64_t i = lane; i < a.P.rows; i += PL_LANES) {
            double d = pl_cuda_at<double>(a.P, b, i, 0) - pl_cuda_at<double>(a.Y, b, i, 0);
            s += d * d;
            if (a.dP.data) pl_cuda_set<double>(a.dP, b, i, 0, 2 / rows * d);
        }
        /* lanes from `half` on hold what nobody reads */
        for (int half = PL_LANES / 2; half > 0; half /= 2) s += __shfl_down_sync(0xffffffffu, s, half);
        if (lane == 0) pl_cuda_set<double>(a.L, b, 0, 0, s / rows);
    }
}

void pl_cuda_launch_mse(cudaStream_t stream, const pl_args_mse *a)
{
    mse_kernel<<<dim3(1, 1, pl_cuda_grid(a->P.batch, 1, MAX_GRID)), PL_LANES, 0, stream>>>(*a);
}

/* A warp for each row: its share of dZ, and its loss to losses[b][row]. */
static __global__ void cross_entropy_kernel(pl_args_cross_entropy a, double *losses)
{
    const double rows = (double)a.Z.rows;
    FOR_MATRICES(a.Z, b)
    FOR_ROWS(a.Z.rows, i)
    {
        const double m = row_max<double>(a.Z, b, i);
        double sum = 0, weight = 0, loss = 0;
        FOR_LANE(a.Z.cols, j)
        {
            sum += pl_exp_f64(pl_cuda_at<double>(a.Z, b, i, j) - m);
            weight += pl_cuda_at<double>(a.T, b, i, j);
        }
        const double s = warp_sum(sum), part = warp_sum(weight) / s, log_s = pl_log_f64(s);
        FOR_LANE(a.Z.cols, j)
        {
            const double d = pl_cuda_at<double>(a.Z, b, i, j) - m, target = pl_cuda_at<double>(a.T, b, i, j);
            loss = fma(target, log_s - d, loss);
            if (a.dZ.data) pl_cuda_set<double>(a.dZ, b, i, j, fma(pl_exp_f64(d), part, -target) / rows);
        }
        loss = warp_sum(loss);
        if (threadIdx.x == 0) losses[b * a.Z.rows + i] = loss;
    }
}

/* A warp for each matrix: row i in lane i mod 32. */
static __global__ void mean_kernel(pl_args_cross_entropy a, const double *losses)
{
    FOR_MATRICES(a.Z, b)
    {
        double total = 0;
        for (int64_t i = threadIdx.x; i < a.Z.rows; i += PL_LANES) total += losses[b * a.Z.rows + i];
        total = warp_sum(total);
        if (threadIdx.x == 0) pl_cuda_set<double>(a.L, b, 0, 0, total / (double)a.Z.rows);
    }
}

size_t pl_cuda_cross_entropy_scratch(const pl_args_cross_entropy *a)
{
    return (size_t)(a->Z.batch * a->Z.rows) * sizeof(double);
}

void pl_cuda_launch_cross_entropy(cudaStream_t stream, const pl_args_cross_entropy *a, void *scratch)
{
    const unsigned batch = pl_cuda_grid(a->Z.batch, 1, MAX_GRID);
    const dim3 grid(1, pl_cuda_grid(a->Z.rows, WARPS, MAX_GRID), batch);
    cross_entropy_kernel<<<grid, dim3(PL_LANES, WARPS), 0, stream>>>(*a, (double *)scratch);
    mean_kernel<<<dim3(1, 1, batch), PL_LANES, 0, stream>>>(*a, (const double *)scratch);
}
