/* cuda_norm.cuh -- what the kernels of Frobenius norms share (cuda_norm.cu, cuda_multi_norm.cu): sums of
 * rows, a matrix's fold of them, entries over its norm.
 */
#ifndef PL_CUDA_NORM_CUH
#define PL_CUDA_NORM_CUH

#include "cuda_launch.cuh"
#include "cuda_quotient.cuh"
#include "math/lane_sum_elem.h"
#include "math/norm_elem.h"

#define WARPS (THREADS / PL_LANES)
#define FULL  0xffffffffu

#define OWN_THREADS 512 /* of a block that divides */

/* pl_lanes_fold with one lane per thread; the sum arrives in lane 0. */
static __device__ double warp_fold(double x)
{
    for (int half = PL_LANES / 2; half > 0; half /= 2) x += __shfl_down_sync(FULL, x, half);
    return x;
}

/* A square of what is in f32 or less is exact in double, so the fused multiply-add has the bits of both
 * apart. Zeros beyond a line's end change neither. */
template <int N>
static __device__ __forceinline__ void add_squares(double &sum, float &top, const float (&x)[N])
{
#pragma unroll
    for (int k = 0; k < N; k++) {
        sum = fma((double)x[k], (double)x[k], sum);
        top = fmaxf(top, fabsf(x[k])); /* passes over a NaN */
    }
}

/* The largest of all threads' magnitudes. */
static __device__ void put_top(double *to, float top)
{
    __shared__ float group_top[WARPS];
    for (int half = PL_LANES / 2; half > 0; half /= 2) top = fmaxf(top, __shfl_down_sync(FULL, top, half));
    if (threadIdx.x % PL_LANES == 0) group_top[threadIdx.x / PL_LANES] = top;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < WARPS; w++) top = fmaxf(top, group_top[w]);
        *to = top;
    }
    __syncthreads();
}

#define AHEAD 32 /* elements that a lane has under way */

/* Rows of matrix b, those of block `block` of so many: sums of squares, unscaled; the largest magnitude. */
template <polar_dtype DTYPE>
static __device__ __forceinline__ void rows_of_block(pl_mat X, int64_t b, int64_t block, int64_t blocks,
                                                     double *sums, double *top_of_block)
{
    const int lane = threadIdx.x % PL_LANES, warp = threadIdx.x / PL_LANES;
    float top = 0;
    X.dtype = DTYPE; /* known when this is compiled */
    for (int64_t i = block * WARPS + warp; i < X.rows; i += blocks * WARPS) {
        int64_t row = b * X.bs + i * X.rs;
        double sum = 0;
        for (int64_t j = lane; j < X.cols; j += AHEAD * PL_LANES) {
            float x[AHEAD];
            if (j - lane + AHEAD * PL_LANES <= X.cols) { /* no branch between the loads */
#pragma unroll
                for (int k = 0; k < AHEAD; k++) x[k] = pl_cuda_get<float>(X, row + j + k * PL_LANES);
            } else {
#pragma unroll
                for (int k = 0; k < AHEAD; k++)
                    x[k] = j + k * PL_LANES < X.cols ? pl_cuda_get<float>(X, row + j + k * PL_LANES) : 0;
            }
            add_squares(sum, top, x);
        }
        let_next_begin(); /* X has come; what follows hides how long a kernel takes to begin */
        sum = warp_fold(sum);
        if (lane == 0) sums[b * X.rows + i] = sum;
    }
    put_top(top_of_block, top);
}

/* What the norms of a batch are made of: for each matrix `rows` sums and n_tops magnitudes; unscaled: the
 * sums are of x x, else of (s x) (s x). */
typedef struct {
    const double *sums, *tops;
    int64_t rows, n_tops;
    double weight;
    int limit, unscaled;
} norm_parts;

#define STAGED     2048 /* row sums, all threads' loads: then the first warp adds them up in its order */
#define WARPS_MOST 16

struct fold_room {
    double staged[STAGED], group_top[WARPS_MOST], s, n;
};

/* (s, n) of matrix b, by all threads of a block, to all of them. */
static __device__ void fold(fold_room &room, const norm_parts &p, int64_t b)
{
    const int lane = threadIdx.x % PL_LANES, warp = threadIdx.x / PL_LANES;
    double sum = 0, top = 0;
#pragma unroll 2
    for (int64_t i = threadIdx.x; i < p.n_tops; i += blockDim.x) top = fmax(top, p.tops[b * p.n_tops + i]);
    for (int64_t first = 0; first < p.rows; first += STAGED) {
        int here = (int)(p.rows - first < STAGED ? p.rows - first : STAGED);
        __syncthreads();
#pragma unroll 8
        for (int k = threadIdx.x; k < here; k += blockDim.x) room.staged[k] = p.sums[b * p.rows + first + k];
        __syncthreads();
        if (warp == 0) {
#pragma unroll 8
            for (int k = lane; k < here; k += PL_LANES) sum += room.staged[k];
        }
    }
    for (int half = PL_LANES / 2; half > 0; half /= 2) top = fmax(top, __shfl_down_sync(FULL, top, half));
    if (lane == 0) room.group_top[warp] = top;
    __syncthreads();
    if (warp == 0) sum = warp_fold(sum);
    if (threadIdx.x == 0) {
        for (int w = 1; w < (int)blockDim.x / PL_LANES; w++) top = fmax(top, room.group_top[w]);
        double s = pl_norm_scale(top, p.limit);
        room.s = s;
        room.n = sqrt(p.weight * (p.unscaled ? sum * (s * s) : sum));
    }
    __syncthreads();
}

/* Four neighbours past the first cache, which may hold what was there before. */
template <polar_dtype DTYPE>
__device__ __forceinline__ void get_fresh4(float (&x)[4], const pl_mat &m, int64_t at)
{
    if (DTYPE == POLAR_DTYPE_F32) {
        float4 v = __ldcg((const float4 *)((const float *)m.data + at));
        x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
        return;
    }
    ushort4 v = __ldcg((const ushort4 *)((const uint16_t *)m.data + at));
    uint16_t half[4] = {v.x, v.y, v.z, v.w};
    for (int k = 0; k < 4; k++)
        x[k] = DTYPE == POLAR_DTYPE_F16 ? pl_f16_to_f32(half[k]) : pl_bf16_to_f32(half[k]);
}

/* Four quotients to Y. */
__device__ __forceinline__ void put_quotients(const pl_mat &Y, int64_t at, const float (&x)[4],
                                              const divisor &by)
{
    float q[4];
    if (quotients<2>(q, x, by) && Y.dtype == POLAR_DTYPE_BF16)
        *(uint2 *)((pl_bf16 *)Y.data + at) = make_uint2(pack2(q[0], q[1]), pack2(q[2], q[3]));
    else pl_cuda_put4(Y, at, q);
}

#endif
