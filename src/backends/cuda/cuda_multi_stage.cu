/* cuda_multi_stage.cu -- inner, line_factors and scale_lines of many small matrices in one launch: a block
 * finds its item in the table and does one matrix of it.
 *
 * Sums are those of cuda_stage.cu, in the same order: a warp a row, or a column, its lanes those of
 * math/lane_sum_elem.h.
 */
#include "cuda_multi_stage.h"

#include "cuda_table.cuh"
#include "device/ops.h"
#include "math/formulas_elem.h"
#include "math/lane_sum_elem.h"
#include "math/line_elem.h"

#define THREADS 256
#define WARPS   (THREADS / PL_LANES)
#define FULL    0xffffffffu
#define FEW     8 /* items of the small table */

template <int CAPACITY> struct stage_table {
    int count;
    uint32_t first[CAPACITY + 1]; /* block of each item's first matrix */
    pl_cuda_stage_item item[CAPACITY];
};

static_assert(sizeof(stage_table<PL_CUDA_STAGE_ITEMS>) <= 32764, "kernel parameters end there");

/* pl_lanes_fold with one lane per thread; the sum arrives in lane 0. */
static __device__ double warp_fold(double x)
{
    for (int half = PL_LANES / 2; half > 0; half /= 2) x += __shfl_down_sync(FULL, x, half);
    return x;
}

/* N of one matrix: each row's three sums, then theirs, row i in lane i mod 32. */
static __device__ void inner_of(const pl_cuda_stage_item &it, const float *x, const float *y, double *N)
{
    __shared__ double sums[3][PL_CUDA_STAGE_LINES];
    const int lane = threadIdx.x % PL_LANES, warp = threadIdx.x / PL_LANES;
    for (int i = warp; i < it.rows; i += WARPS) {
        double sum[3] = {0, 0, 0};
        for (int j = lane; j < it.cols; j += PL_LANES) {
            const double a = x[i * it.cols + j], b = y[i * it.cols + j];
            sum[0] += a * b, sum[1] += a * a, sum[2] += b * b;
        }
        for (int k = 0; k < 3; k++) {
            const double s = warp_fold(sum[k]);
            if (lane == 0) sums[k][i] = s;
        }
    }
    __syncthreads();
    if (warp >= 3) return;
    double sum = 0;
    for (int i = lane; i < it.rows; i += PL_LANES) sum += sums[warp][i];
    sum = warp_fold(sum);
    if (lane == 0) N[warp ? warp + 1 : 0] = sum;
    if (threadIdx.x == 0) N[1] = 1;
}

/* F of one matrix: squares of its lines, a warp each; then one warp for what sums over lines. */
static __device__ void line_factors_of(const pl_cuda_stage_item &it, const float *x, float *V, double *F,
                                       const double *live)
{
    __shared__ double squares[PL_CUDA_STAGE_LINES];
    const int lane = threadIdx.x % PL_LANES, warp = threadIdx.x / PL_LANES;
    const int lines = it.columns ? it.cols : it.rows, n = it.columns ? it.rows : it.cols;
    const double eps = live[PL_LIVE_EPS], beta2 = live[PL_LIVE_BETA2];
    if (live[PL_LIVE_SKIP] != 0) {
        for (int l = threadIdx.x; l < lines; l += THREADS) F[l] = 1;
        return;
    }
    for (int l = warp; l < lines; l += WARPS) {
        double sum = 0;
        for (int k = lane; k < n; k += PL_LANES) {
            const double a = it.columns ? x[k * it.cols + l] : x[l * it.cols + k];
            sum += a * a;
        }
        sum = warp_fold(sum);
        if (lane == 0) squares[l] = sum;
    }
    __syncthreads();
    if (warp > 0) return;
    double before = 0, after = 0;
    for (int l = lane; l < lines; l += PL_LANES) {
        const double square = squares[l];
        double f;
        if (it.kind == PL_LINE_EQUILIBRATE) f = pl_line_equilibrate(square, eps);
        else {
            double v = V[l];
            f = pl_line_moment(&v, square / n, beta2, eps, it.kind == PL_LINE_CLAMPED);
            V[l] = (float)v;
            before += square;
            after += square * f * f;
        }
        F[l] = f;
    }
    if (it.kind == PL_LINE_EQUILIBRATE) return;
    double kept = pl_line_kept(warp_fold(before), warp_fold(after));
    kept = __shfl_sync(FULL, kept, 0);
    for (int l = lane; l < lines; l += PL_LANES) F[l] = kept * F[l];
}

static __device__ void scale_lines_of(const pl_cuda_stage_item &it, const float *x, float *to,
                                      const double *R, const double *C)
{
    for (int at = threadIdx.x; at < it.rows * it.cols; at += THREADS) {
        const double r = R ? R[at / it.cols] : 1, c = C ? C[at % it.cols] : 1;
        to[at] = (float)pl_scale_entry_f64((double)x[at], r, c);
    }
}

template <int CAPACITY>
__global__ void __launch_bounds__(THREADS)
    multi_stage_kernel(const __grid_constant__ stage_table<CAPACITY> table)
{
    const int low = call_of_block(table.first, table.count);
    const pl_cuda_stage_item &it = table.item[low];
    const int64_t b = blockIdx.x - table.first[low], base = b * it.rows * it.cols, lines = b * it.f_stride;
    const float *x = it.x + base;
    if (it.op == PL_STAGE_INNER) inner_of(it, x, it.y + base, it.f + lines);
    else if (it.op == PL_STAGE_LINE_FACTORS)
        line_factors_of(it, x, it.v ? it.v + b * it.v_stride : NULL, it.f + lines,
                        it.live + b * it.live_stride);
    else
        scale_lines_of(it, x, it.to + base, it.f ? it.f + lines : NULL, it.c ? it.c + b * it.c_stride : NULL);
}

template <int CAPACITY> static void launch(cudaStream_t stream, const pl_cuda_stage_item *item, int count)
{
    stage_table<CAPACITY> table;
    uint32_t blocks = 0;
    table.count = count;
    for (int i = 0; i < count; i++) {
        table.item[i] = item[i];
        table.first[i] = blocks;
        blocks += (uint32_t)item[i].matrices;
    }
    table.first[count] = blocks;
    if (blocks) multi_stage_kernel<CAPACITY><<<blocks, THREADS, 0, stream>>>(table);
}

void pl_cuda_launch_multi_stage(cudaStream_t stream, const pl_cuda_multi_stage *list)
{
    if (list->count <= FEW) launch<FEW>(stream, list->item, list->count);
    else launch<PL_CUDA_STAGE_ITEMS>(stream, list->item, list->count);
}
