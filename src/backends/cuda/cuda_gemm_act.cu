/* cuda_gemm_act.cu -- what follows a product, in one pass over it, where the product's own kernel does not do
 * it. */
#include "cuda_gemm_act.h"
#include "cuda_launch.cuh"
#include "cuda_formulas.cuh"
#include "math/gelu_bf16_elem.h"

template <typename REAL> __global__ void finish_kernel(pl_args_gemm_act a)
{
    const bool narrow_gelu = a.act == PL_ACT_GELU && a.Y.dtype == POLAR_DTYPE_BF16;
    FOR_MATRICES(a.Y, b)
    FOR_ROWS(a.Y.rows, i)
    FOR_COLS(a.Y.cols, j)
    {
        REAL x = pl_cuda_at<REAL>(a.Y, b, i, j), y, slope;
        if (a.F.data) {
            pl_cuda_set<REAL>(a.Y, b, i, j, x * pl_cuda_at<REAL>(a.F, b, i, j));
            continue;
        }
        if (a.b.data) x += pl_cuda_at<REAL>(a.b, b, 0, j);
        if (narrow_gelu) {
            float s;
            y = (REAL)pl_gelu_bf16((float)x, &s), slope = (REAL)s;
        } else {
            y = FORMULA(pl_activate)(x, a.act);
            slope = a.S.data ? FORMULA(pl_activate_back)((REAL)1, x, a.act) : (REAL)0;
        }
        if (a.S.data) pl_cuda_set<REAL>(a.S, b, i, j, slope);
        pl_cuda_set<REAL>(a.Y, b, i, j, y);
    }
}

void pl_cuda_launch_finish(cudaStream_t stream, const pl_args_gemm_act *args)
{
    pl_args_gemm_act a = *args;
    pl_mat *mats[] = {&a.Y, &a.S, &a.b, &a.F};
    LAUNCH_ROWS(finish_kernel, mats, 4, a.Y.batch, a.Y.rows, a.Y.cols, a);
}
