/* cuda_vectors.cu -- ops on vectors: row r's vector of channel c is V[3r + d, c]. A thread for each row and
 * channel, but for vec_dots. */
#include "cuda_kernels.h"
#include "cuda_launch.cuh"
#include "cuda_formulas.cuh"

template <typename REAL>
static __device__ __forceinline__ void get3(REAL v[3], const pl_mat &V, int64_t b, int64_t r, int64_t c)
{
    for (int d = 0; d < 3; d++) v[d] = pl_cuda_at<REAL>(V, b, 3 * r + d, c);
}

/* ---- dot products: a block for each row, threads over a and b >= a ------------------------------ */

template <typename REAL> __global__ void vec_dots_kernel(pl_args_vec_dots args)
{
    int64_t h = args.V.cols;
    FOR_MATRICES(args.Q, m)
    for (int64_t r = blockIdx.y; r < args.Q.rows; r += gridDim.y)
        for (int64_t a = threadIdx.y; a < h; a += blockDim.y) {
            REAL v[3], w[3];
            get3(v, args.V, m, r, a);
            for (int64_t b = threadIdx.x; b < h; b += blockDim.x) {
                if (b < a) continue;
                get3(w, args.V, m, r, b);
                pl_cuda_set<REAL>(args.Q, m, r, a * h - a * (a - 1) / 2 + b - a,
                                  FORMULA(pl_dot3)(v[0], v[1], v[2], w[0], w[1], w[2]));
            }
        }
}

void pl_cuda_launch_vec_dots(cudaStream_t stream, const pl_args_vec_dots *args)
{
    pl_args_vec_dots a = *args;
    pl_mat *mats[] = {&a.Q, &a.V};
    dim3 block(pl_cuda_row_block(a.V.cols, 32).x);
    block.y = THREADS / block.x < block.x ? THREADS / block.x : block.x;
    dim3 grid(1, pl_cuda_grid(a.Q.rows, 1, MAX_GRID), pl_cuda_grid(a.Q.batch, 1, MAX_GRID));
    if (pl_cuda_any_f64(mats, 2)) vec_dots_kernel<double><<<grid, block, 0, stream>>>(a);
    else vec_dots_kernel<float><<<grid, block, 0, stream>>>(a);
}

template <typename REAL> __global__ void vec_dots_back_kernel(pl_args_vec_dots_back args)
{
    int64_t h = args.V.cols;
    FOR_MATRICES(args.dV, m)
    FOR_ROWS(args.dQ.rows, r) FOR_COLS(h, a)
    {
        REAL s[3] = {0, 0, 0}, v[3];
        int64_t ab = a; /* the pair (0, a) */
        for (int64_t b = 0; b < h; b++) {
            REAL dq = pl_cuda_at<REAL>(args.dQ, m, r, ab);
            if (a == b) dq *= 2;
            get3(v, args.V, m, r, b);
            for (int d = 0; d < 3; d++) s[d] = fused(dq, v[d], s[d]);
            ab += b < a ? h - 1 - b : 1;
        }
        for (int d = 0; d < 3; d++)
            pl_cuda_set<REAL>(args.dV, m, 3 * r + d, a, pl_cuda_at<REAL>(args.dV, m, 3 * r + d, a) + s[d]);
    }
}

void pl_cuda_launch_vec_dots_back(cudaStream_t stream, const pl_args_vec_dots_back *args)
{
    pl_args_vec_dots_back a = *args;
    pl_mat *mats[] = {&a.dV, &a.V, &a.dQ};
    LAUNCH_ROWS(vec_dots_back_kernel, mats, 3, a.dV.batch, a.dQ.rows, a.V.cols, a);
}

/* ---- lengths ------------------------------------------------------------------------------------ */

template <typename REAL> __global__ void vec_norm_kernel(pl_args_vec_norm a)
{
    FOR_MATRICES(a.R, b)
    FOR_ROWS(a.R.rows, r) FOR_COLS(a.R.cols, c)
    {
        REAL v[3];
        get3(v, a.V, b, r, c);
        pl_cuda_set<REAL>(a.R, b, r, c, FORMULA(pl_norm3)(v[0], v[1], v[2], (REAL)a.eps));
    }
}

void pl_cuda_launch_vec_norm(cudaStream_t stream, const pl_args_vec_norm *args)
{
    pl_args_vec_norm a = *args;
    pl_mat *mats[] = {&a.R, &a.V};
    LAUNCH_ROWS(vec_norm_kernel, mats, 2, a.R.batch, a.R.rows, a.R.cols, a);
}

template <typename REAL> __global__ void vec_norm_back_kernel(pl_args_vec_norm_back a)
{
    FOR_MATRICES(a.dR, b)
    FOR_ROWS(a.dR.rows, r) FOR_COLS(a.dR.cols, c)
    {
        REAL v[3];
        get3(v, a.V, b, r, c);
        REAL along = pl_cuda_at<REAL>(a.dR, b, r, c) / FORMULA(pl_norm3)(v[0], v[1], v[2], (REAL)a.eps);
        for (int d = 0; d < 3; d++)
            pl_cuda_set<REAL>(a.dV, b, 3 * r + d, c,
                              fused(along, v[d], pl_cuda_at<REAL>(a.dV, b, 3 * r + d, c)));
    }
}

void pl_cuda_launch_vec_norm_back(cudaStream_t stream, const pl_args_vec_norm_back *args)
{
    pl_args_vec_norm_back a = *args;
    pl_mat *mats[] = {&a.dV, &a.V, &a.dR};
    LAUNCH_ROWS(vec_norm_back_kernel, mats, 3, a.dR.batch, a.dR.rows, a.dR.cols, a);
}

/* ---- gates -------------------------------------------------------------------------------------- */

template <typename REAL> __global__ void vec_gate_kernel(pl_args_vec_gate a)
{
    FOR_MATRICES(a.V, b)
    FOR_ROWS(a.V.rows / 3, r) FOR_COLS(a.V.cols, c)
    {
        REAL v[3], z[3] = {0, 0, 0};
        get3(v, a.V, b, r, c);
        if (a.Z.data) get3(z, a.Z, b, r, c);
        REAL u = fused(pl_cuda_at<REAL>(a.g, b, 0, c), FORMULA(pl_norm3)(v[0], v[1], v[2], (REAL)a.eps),
                       pl_cuda_at<REAL>(a.b, b, 0, c));
        REAL s = FORMULA(pl_sigmoid)(u);
        for (int d = 0; d < 3; d++) pl_cuda_set<REAL>(a.Y, b, 3 * r + d, c, fused(v[d], s, z[d]));
    }
}

void pl_cuda_launch_vec_gate(cudaStream_t stream, const pl_args_vec_gate *args)
{
    pl_args_vec_gate a = *args;
    pl_mat *mats[] = {&a.Y, &a.V, &a.g, &a.b, &a.Z};
    LAUNCH_ROWS(vec_gate_kernel, mats, 5, a.V.batch, a.V.rows / 3, a.V.cols, a);
}

template <typename REAL> __global__ void vec_gate_back_kernel(pl_args_vec_gate_back a)
{
    FOR_MATRICES(a.T, b)
    FOR_ROWS(a.T.rows, r) FOR_COLS(a.T.cols, c)
    {
        REAL v[3], dy[3], s, along, tr;
        get3(v, a.V, b, r, c);
        get3(dy, a.dY, b, r, c);
        REAL t = FORMULA(pl_gate_back)(v, dy, pl_cuda_at<REAL>(a.g, b, 0, c), pl_cuda_at<REAL>(a.b, b, 0, c),
                                       (REAL)a.eps, &s, &along, &tr);
        pl_cuda_set<REAL>(a.T, b, r, c, t);
        pl_cuda_set<REAL>(a.TR, b, r, c, tr);
        for (int d = 0; d < 3; d++) pl_cuda_set<REAL>(a.dV, b, 3 * r + d, c, fused(along, v[d], dy[d] * s));
    }
}

void pl_cuda_launch_vec_gate_back(cudaStream_t stream, const pl_args_vec_gate_back *args)
{
    pl_args_vec_gate_back a = *args;
    pl_mat *mats[] = {&a.dV, &a.T, &a.TR, &a.V, &a.g, &a.b, &a.dY};
    LAUNCH_ROWS(vec_gate_back_kernel, mats, 7, a.T.batch, a.T.rows, a.T.cols, a);
}
