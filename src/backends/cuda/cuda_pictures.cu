/* cuda_pictures.cu -- pictures made and mixed on the device: a block to a picture, whose passes meet at the
 * block's barrier; histograms and tables in shared memory, everything else in scratch. */
#include "cuda_kernels.h"
#include "cuda_launch.cuh"
#include "math/augment_elem.h"

#define LANES 1024

static __global__ void __launch_bounds__(LANES) augment_kernel(pl_args_augment a, uint8_t *scratch)
{
    __shared__ uint32_t counters[PL_AUG_COUNTERS];
    __shared__ uint8_t table[3 * 256];
    __shared__ float scale[3 * 256];
    __shared__ double row[PL_AUG_COLS];
    const int lane = (int)threadIdx.x;
    for (int i = lane; i < 3 * 256; i += LANES) scale[i] = ((const float *)a.N.data)[i];
    for (int64_t i = blockIdx.x; i < a.Y.batch; i += gridDim.x) {
        pl_augment_place p = {};
        __syncthreads();
        for (int k = lane; k < PL_AUG_COLS; k += LANES) row[k] = ((const double *)a.T.data)[i * a.T.rs + k];
        __syncthreads();
        p.pixels = (const uint8_t *)a.P.data, p.bytes = 4 * a.P.cols, p.row = row, p.scale = scale;
        p.side = a.Y.cols, p.height = a.height, p.taps = a.taps, p.counters = counters, p.table = table;
        p.out = (float *)a.Y.data + i * a.Y.bs;
        pl_augment_point(&p, scratch + i * pl_augment_room(p.side, p.height, p.taps));
        pl_augment_make(&p, lane, LANES);
    }
}

size_t pl_cuda_augment_scratch(const pl_args_augment *a)
{
    return (size_t)(a->Y.batch * pl_augment_room(a->Y.cols, a->height, a->taps));
}

void pl_cuda_launch_augment(cudaStream_t stream, const pl_args_augment *a, void *scratch)
{
    augment_kernel<<<pl_cuda_grid(a->Y.batch, 1, MAX_GRID), LANES, 0, stream>>>(*a, (uint8_t *)scratch);
}

static __global__ void mix_kernel(pl_args_mix a)
{
    const int64_t each = a.X.rows * a.X.cols, pairs = a.X.batch / 2, cut[4] = {a.x, a.y, a.width, a.height};
    float *x = (float *)a.X.data;
    for (int64_t k = blockIdx.y; k < pairs; k += gridDim.y)
        for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < each;
             i += (int64_t)gridDim.x * blockDim.x)
            pl_mix_entry(x + k * each, x + (a.X.batch - 1 - k) * each, i, a.X.cols, cut, a.mixup != 0,
                         (float)a.lam, (float)a.rest);
}

void pl_cuda_launch_mix(cudaStream_t stream, const pl_args_mix *a)
{
    const dim3 grid(pl_cuda_grid(a->X.rows * a->X.cols, THREADS, 4096),
                    pl_cuda_grid(a->X.batch / 2, 1, MAX_GRID));
    mix_kernel<<<grid, THREADS, 0, stream>>>(*a);
}
