/* cuda_hopper_weight_grad.cu -- dW = dY^T X and db, the sums of dY's columns (cuda_weight_grad.h).
 *
 * A block has 192 x 192 of dW and a piece of the rows, which come 64 at a time through a ring of stages; one
 * thread loads, three warpgroups have 64 rows of the tile each. Both factors are read along their rows, as
 * they lie. db is one more product, with a matrix of ones. The pieces' sums go to scratch; a second kernel
 * adds them: lane l of eight takes the pieces l, l + 8, ..., then the lanes are folded by halves. Few rows
 * are cuda_hopper_weight_grad_few.cu's.
 */
#include "cuda_weight_grad.h"
#include "cuda_tiles.cuh"

#define SIDE   192          /* of a block's part of dW */
#define PANEL  (TILE * ROW) /* 64 rows of 64 columns */
#define PANELS (SIDE / 64)  /* of a factor in a stage */
#define STAGE  (2 * PANELS * PANEL)
#define STAGES 4
#define GROUPS (SIDE / 64)
#define BYTES  (1024 + STAGES * STAGE + 1024 + 2 * STAGES * 8)
#define LANES  8   /* that add the pieces */
#define BLOCKS 132 /* pieces are cut for so many, whatever the device has */
#define LEAST  6   /* of 64 rows in a piece, where the rows allow */
#define FEW    160 /* fewer times 64 rows are multiplied without scratch */

typedef struct {
    CUtensorMap dY, X;
    float *sums; /* (members, pieces, out in + out) */
    int64_t piece_stride;
    int out, in, tiles, across, pieces, chunks, dy_many, x_many, db;
} grad_params;

__device__ __forceinline__ int piece_begin(const grad_params &p, int piece)
{
    return (int)((int64_t)p.chunks * piece / p.pieces);
}

__device__ __forceinline__ void produce(const grad_params &p, pl_ring ring, int first, int end, int row,
                                        int column, int member)
{
    const int zy = p.dy_many ? member : 0, zx = p.x_many ? member : 0;
    int s = 0;
    uint32_t parity = 1; /* of fresh barriers the phase before the first counts as over */
    pl_tma_prefetch(&p.dY);
    pl_tma_prefetch(&p.X);
    for (int c = first; c < end; c++) {
        const uint32_t to = ring.stages + (uint32_t)(s * STAGE);
        pl_mbar_wait(ring.empty + 8 * s, parity);
        pl_mbar_expect(ring.full + 8 * s, STAGE);
        for (int k = 0; k < PANELS; k++) {
            pl_tma_load(to + (uint32_t)(k * PANEL), &p.dY, ring.full + 8 * s, row + 64 * k, c * TILE, zy);
            pl_tma_load(to + (uint32_t)((PANELS + k) * PANEL), &p.X, ring.full + 8 * s, column + 64 * k,
                        c * TILE, zx);
        }
        if (++s == STAGES) s = 0, parity ^= 1;
    }
}

__device__ __forceinline__ void consume(const grad_params &p, pl_ring ring, uint32_t ones, int first, int end,
                                        int row, int column, float *to)
{
    const int group = (int)threadIdx.x / 128 - 1, thread = (int)threadIdx.x % 128, lane = thread % 32;
    const bool bias = p.db && column == 0;
    float acc[SIDE / 2], total[4] = {0, 0, 0, 0};
    int s = 0, before = 0;
    uint32_t parity = 0;
#pragma unroll
    for (int i = 0; i < SIDE / 2; i++) acc[i] = 0;
    for (int c = first; c < end; c++) {
        const uint32_t y = ring.stages + (uint32_t)(s * STAGE + group * PANEL),
                       x = ring.stages + (uint32_t)(s * STAGE + PANELS * PANEL);
        pl_mbar_wait(ring.full + 8 * s, parity);
        pl_wgmma_fence();
#pragma unroll
        for (int i = 0; i < TILE / 16; i++)
            pl_wgmma<SIDE>::template product<1, 1>(acc, pl_wgmma_desc(y + (uint32_t)i * 2048, PANEL),
                                                   pl_wgmma_desc(x + (uint32_t)i * 2048, PANEL), 1);
        if (bias) {
#pragma unroll
            for (int i = 0; i < TILE / 16; i++)
                pl_wgmma<8>::template product<1, 0>(total, pl_wgmma_desc(y + (uint32_t)i * 2048, PANEL),
                                                    pl_wgmma_desc(ones), 1);
        }
        pl_wgmma_commit();
        pl_wgmma_wait<1>();
        if (c > first && thread == 0) pl_mbar_arrive(ring.empty + 8 * before);
        before = s;
        if (++s == STAGES) s = 0, parity ^= 1;
    }
    pl_wgmma_wait<0>();
    row += 64 * group + thread / 32 * 16 + lane / 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int r = row + 8 * h;
        if (r >= p.out) continue;
#pragma unroll
        for (int j = 0; j < SIDE / 8; j++) {
            const int col = column + 8 * j + 2 * (lane % 4);
            if (col < p.in)
                *reinterpret_cast<float2 *>(to + (int64_t)r * p.in + col) =
                    make_float2(acc[4 * j + 2 * h], acc[4 * j + 2 * h + 1]);
        }
        if (bias && lane % 4 == 0) to[(int64_t)p.out * p.in + r] = total[2 * h];
    }
}

static __global__ void __launch_bounds__(512, 1) weight_grad_kernel(const __grid_constant__ grad_params p)
{
    extern __shared__ uint8_t memory[];
    const uint32_t stages = (pl_smem(memory) + 1023) & ~1023u, ones = stages + STAGES * STAGE,
                   full = ones + 1024, empty = full + 8 * STAGES;
    const int tile = (int)blockIdx.x % p.tiles, piece = (int)blockIdx.x / p.tiles, member = (int)blockIdx.y;
    const int row = tile / p.across * SIDE, column = tile % p.across * SIDE;
    const int first = piece_begin(p, piece), end = piece_begin(p, piece + 1);
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            pl_mbar_init(full + 8 * s, 1);
            pl_mbar_init(empty + 8 * s, GROUPS);
        }
        pl_mbar_init_done();
    }
    if (threadIdx.x < 256) pl_sts(ones + 4 * threadIdx.x, 0x3f803f80u);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); /* tensor cores read them */
    __syncthreads();
    const pl_ring ring = {stages, full, empty};
    pl_kernel_begin();
    if (threadIdx.x < 128) {
        pl_registers_fewer<40>();
        if (threadIdx.x == 0) produce(p, ring, first, end, row, column, member);
    } else {
        pl_registers_more<152>();
        consume(p, ring, ones, first, end, row, column,
                p.sums + ((int64_t)member * p.pieces + piece) * p.piece_stride);
    }
}

typedef struct {
    const float *sums;
    float *dW, *db;
    int64_t piece_stride, ldw, bsw, bsb;
    int in, pieces, size, all; /* of dW; of dW and db */
} join_params;

/* Four neighbours to each threadIdx.x, a lane to each threadIdx.y. */
static __global__ void __launch_bounds__(32 * LANES) join_kernel(const join_params p)
{
    __shared__ float4 lanes[LANES][32];
    const int x = (int)threadIdx.x, lane = (int)threadIdx.y, at = 4 * ((int)blockIdx.x * 32 + x),
              member = (int)blockIdx.y;
    pl_kernel_begin();
    const float *from = p.sums + (int64_t)member * p.pieces * p.piece_stride + at;
    float4 s = make_float4(0, 0, 0, 0);
    if (at < p.all) {
#pragma unroll 4
        for (int k = lane; k < p.pieces; k += LANES) {
            const float4 v = __ldcs(reinterpret_cast<const float4 *>(from + k * p.piece_stride));
            s.x += v.x, s.y += v.y, s.z += v.z, s.w += v.w;
        }
    }
    lanes[lane][x] = s;
    __syncthreads();
#pragma unroll
    for (int half = LANES / 2; half > 0; half /= 2) {
        if (lane < half) {
            float4 &a = lanes[lane][x], b = lanes[lane + half][x];
            a.x += b.x, a.y += b.y, a.z += b.z, a.w += b.w;
        }
        __syncthreads();
    }
    if (lane || at >= p.all) return;
    float *to = at < p.size ? p.dW + member * p.bsw + at / p.in * p.ldw + at % p.in
                            : p.db + member * p.bsb + (at - p.size);
    *reinterpret_cast<float4 *>(to) = lanes[0][x];
}

/* ---- host --------------------------------------------------------------------------------------- */

static int64_t over(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t pieces_of(const pl_args_weight_grad *a)
{
    int64_t tiles = over(a->dW.rows, SIDE) * over(a->dW.cols, SIDE), chunks = over(a->X.rows, TILE);
    int64_t most = chunks / LEAST, n = BLOCKS / tiles < most ? BLOCKS / tiles : most;
    return n < 1 ? 1 : n;
}

static int64_t piece_stride(const pl_args_weight_grad *a)
{
    return a->dW.rows * (a->dW.cols + 1);
}

static int aligned(const pl_mat &m, int64_t unit)
{
    return (uintptr_t)m.data % 16 == 0 && (m.rows <= 1 || m.rs % unit == 0) &&
           (m.batch <= 1 || m.bs % unit == 0);
}

#define MANY_ROWS 1024

int pl_hopper_weight_grad_suits(const pl_args_weight_grad *a)
{
    const int64_t out = a->dW.rows, in = a->dW.cols, rows = a->X.rows, most = 1 << 15;
    if (a->dY.dtype != POLAR_DTYPE_BF16 || a->X.dtype != POLAR_DTYPE_BF16) return 0;
    if (a->dW.dtype != POLAR_DTYPE_F32 || (a->db.data && a->db.dtype != POLAR_DTYPE_F32)) return 0;
    if (out % 8 || in % 8 || out < 64 || in < 64 || out > most || in > most || out * in > INT32_MAX / 2)
        return 0;
    if (rows < MANY_ROWS || rows > INT32_MAX / 2 || a->dW.batch > 65535) return 0;
    return aligned(a->dY, 8) && aligned(a->X, 8) && aligned(a->dW, 4) && (!a->db.data || aligned(a->db, 4));
}

static int few(const pl_args_weight_grad *a)
{
    return a->X.rows < FEW * TILE;
}

size_t pl_hopper_weight_grad_scratch(const pl_args_weight_grad *a)
{
    return few(a) ? 0 : (size_t)(a->dW.batch * pieces_of(a) * piece_stride(a)) * sizeof(float);
}

cudaError_t pl_hopper_weight_grad(const pl_hopper_device *dev, cudaStream_t stream,
                                  const pl_args_weight_grad *a, void *scratch)
{
    if (few(a)) return pl_hopper_weight_grad_few(dev, stream, a);
    grad_params p = {};
    join_params j = {};
    const unsigned members = (unsigned)a->dW.batch;
    p.sums = (float *)scratch, p.piece_stride = piece_stride(a);
    p.out = (int)a->dW.rows, p.in = (int)a->dW.cols, p.db = a->db.data != NULL;
    p.across = (int)over(p.in, SIDE), p.tiles = (int)over(p.out, SIDE) * p.across;
    p.pieces = (int)pieces_of(a), p.chunks = (int)over(a->X.rows, TILE);
    p.dy_many = a->dY.batch > 1 && a->dY.bs > 0, p.x_many = a->X.batch > 1 && a->X.bs > 0;
    if (!map_matrix(&p.dY, dev, a->dY, 64, TILE) || !map_matrix(&p.X, dev, a->X, 64, TILE))
        return cudaErrorInvalidValue;
    cudaError_t st = launch_early(weight_grad_kernel, dim3((unsigned)(p.tiles * p.pieces), members),
                                  dim3(512), BYTES, stream, p);
    if (st != cudaSuccess) return st;
    j.sums = p.sums, j.piece_stride = p.piece_stride, j.pieces = p.pieces;
    j.dW = (float *)a->dW.data, j.ldw = a->dW.rs, j.bsw = a->dW.bs, j.in = p.in;
    j.db = (float *)a->db.data, j.bsb = a->db.bs;
    j.size = p.out * p.in, j.all = j.size + (p.db ? p.out : 0);
    return launch_early(join_kernel, dim3((unsigned)over(j.all, 128), members), dim3(32, LANES), 0, stream,
                        j);
}
