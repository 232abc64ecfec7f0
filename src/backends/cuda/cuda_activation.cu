/* cuda_activation.cu -- activations with their bias, and their gradients. */
#include "cuda_formulas.cuh"
#include "cuda_kernels.h"
#include "cuda_launch.cuh"

/* X + b where there is a b. */
template <typename REAL>
static __device__ __forceinline__ REAL biased(const pl_mat &X, const pl_mat &bias, int64_t b, int64_t i,
                                              int64_t j)
{
    REAL x = pl_cuda_at<REAL>(X, b, i, j);
    return bias.data ? x + pl_cuda_at<REAL>(bias, b, 0, j) : x;
}

template <typename REAL> __global__ void bias_act_kernel(pl_args_bias_act a)
{
    FOR_MATRICES(a.Y, b)
    FOR_ROWS(a.Y.rows, i)
    FOR_COLS(a.Y.cols, j)
    pl_cuda_set<REAL>(a.Y, b, i, j, FORMULA(pl_activate)(biased<REAL>(a.X, a.b, b, i, j), a.act));
}

void pl_cuda_launch_bias_act(cudaStream_t stream, const pl_args_bias_act *args)
{
    pl_args_bias_act a = *args;
    pl_mat *mats[] = {&a.Y, &a.X, &a.b};
    LAUNCH_ROWS(bias_act_kernel, mats, 3, a.Y.batch, a.Y.rows, a.Y.cols, a);
}

template <typename REAL> __global__ void bias_act_back_kernel(pl_args_bias_act_back a)
{
    FOR_MATRICES(a.dX, b)
    FOR_ROWS(a.dX.rows, i)
    FOR_COLS(a.dX.cols, j)
    pl_cuda_set<REAL>(
        a.dX, b, i, j,
        FORMULA(pl_activate_back)(pl_cuda_at<REAL>(a.dY, b, i, j), biased<REAL>(a.X, a.b, b, i, j), a.act));
}

void pl_cuda_launch_bias_act_back(cudaStream_t stream, const pl_args_bias_act_back *args)
{
    pl_args_bias_act_back a = *args;
    pl_mat *mats[] = {&a.dX, &a.X, &a.b, &a.dY};
    LAUNCH_ROWS(bias_act_back_kernel, mats, 4, a.dX.batch, a.dX.rows, a.dX.cols, a);
}
