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

/* A block for each matrix: rows i, i + 32, ... to warp i, whose lane of the sum over the rows they are. */
static __global__ void cross_entropy_kernel(pl_args_cross_entropy a)
{
    __shared__ double lanes[PL_LANES];
    const int warp = (int)threadIdx.y;
    const double rows = (double)a.Z.rows;
    FOR_MATRICES(a.Z, b)
    {
        double total = 0;
        for (int64_t i = warp; i < a.Z.rows; i += PL_LANES) {
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
                const double d = pl_cuda_at<double>(a.Z, b, i, j) - m,
                             target = pl_cuda_at<double>(a.T, b, i, j);
                loss = fma(target, log_s - d, loss);
                if (a.dZ.data) pl_cuda_set<double>(a.dZ, b, i, j, fma(pl_exp_f64(d), part, -target) / rows);
            }
            total += warp_sum(loss);
        }
        if (threadIdx.x == 0) lanes[warp] = total;
        __syncthreads();
        if (warp == 0) {
            const double all = warp_sum(lanes[threadIdx.x]);
            if (threadIdx.x == 0) pl_cuda_set<double>(a.L, b, 0, 0, all / rows);
        }
        __syncthreads();
    }
}

void pl_cuda_launch_cross_entropy(cudaStream_t stream, const pl_args_cross_entropy *a)
{
    cross_entropy_kernel<<<dim3(1, 1, pl_cuda_grid(a->Z.batch, 1, MAX_GRID)), dim3(PL_LANES, PL_LANES), 0,
                           stream>>>(*a);
}
