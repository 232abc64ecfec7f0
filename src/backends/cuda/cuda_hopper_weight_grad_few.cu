/* cuda_hopper_weight_grad_few.cu -- dW = dY^T X and db where the rows are few and the members many: nothing
 * but dW and db is written.
 *
 * The rows are PIECES pieces. A cluster has a tile of dW: a block of it takes a piece, the blocks exchange
 * quarters of their sums through each other's shared memory, and each adds the pieces of its quarter in their
 * order.
 *
 * A block's tile is 64 GROUPS x N. Rows come 64 at a time through a ring of stages; one thread loads, a
 * warpgroup has 64 rows of the tile. Both factors are read along their rows, as they lie, in panels of 64
 * columns. db is one more product, with a matrix of ones.
 *
 * The blocks stay: a cluster takes one tile after the other, and the next one's rows are loaded while sums
 * are exchanged. Invariants:
 *  1. Which tile a block has, how wide it is and how many blocks there are moves no bit: an entry is summed
 *     along the rows of a piece 16 at a time, then over the pieces.
 *  2. A block's inbox is written by the others when all their warps have read theirs of the time before
 *     (`clear`), and read when all of theirs have written (`came`).
 *  3. No block leaves before the others of its cluster: they arrive at its barriers.
 */
#include "cuda_weight_grad.h"
#include "cuda_tiles.cuh"

#include "cuda_ns_shared.cuh"

#define PIECES 4    /* blocks of a cluster */
#define MOST   30   /* clusters that a GPU of 132 multiprocessors has at once */
#define PANEL  8192 /* 64 rows of 64 columns */

typedef struct {
    CUtensorMap dY, X;
    float *dW, *db; /* db may be NULL */
    int64_t ldw, bsw, bsb, items;
    int out, in, tiles, across, chunks, dy_many, x_many;
} grad_params;

template <int GROUPS_, int N_, int STAGES_, int PART_> struct shape {
    static constexpr int GROUPS = GROUPS_, N = N_, STAGES = STAGES_;
    static constexpr int PART = PART_;       /* columns that are exchanged at a time */
    static constexpr int ROWS = 64 * GROUPS; /* of the tile */
    static constexpr int WARPS = 4 * GROUPS; /* that multiply */
    static constexpr bool MANY = N > 96;     /* registers: the loading warps leave theirs to the others */
    static constexpr int THREADS = 32 * WARPS + (MANY ? 128 : 32);
    static constexpr int PANELS = (N + 63) / 64; /* of X */
    static constexpr int STAGE = (GROUPS + PANELS) * PANEL;
    static constexpr int FOURS = PART / (8 * PIECES);    /* a thread's of a block's share */
    static constexpr int SLOT = FOURS * 32 * WARPS * 16; /* bytes from one block */
    static constexpr int ONES = STAGES * STAGE, INBOX = ONES + 1024, SUMS = INBOX + (PIECES - 1) * SLOT,
                         BARRIERS = SUMS + (PIECES - 1) * ROWS * 4,
                         BYTES = 1024 + BARRIERS + 16 * STAGES + 16;
    static_assert(BYTES <= SMEM_LIMIT && N % PART == 0 && PART % (8 * PIECES) == 0, "");
};

/* Where things are in a block's shared memory, and the block in its cluster. */
struct place {
    pl_ring ring;
    uint32_t ones, inbox, sums, came, clear;
    int piece; /* and rank in the cluster */
};

/* A block's part of an item. */
struct part {
    int row, column, first, end, member;
};

template <class S>
__device__ __forceinline__ part part_of(const grad_params &p, const place &at, int64_t item)
{
    part w;
    const int tile = (int)(item % p.tiles);
    w.member = (int)(item / p.tiles);
    w.row = tile / p.across * S::ROWS, w.column = tile % p.across * S::N;
    w.first = p.chunks * at.piece / PIECES, w.end = p.chunks * (at.piece + 1) / PIECES;
    return w;
}

#define FOR_ITEMS(item) for (int64_t item = blockIdx.x / PIECES; item < p.items; item += gridDim.x / PIECES)

template <class S> __device__ __forceinline__ void produce(const grad_params &p, const place &at)
{
    int s = 0;
    uint32_t parity = 1; /* of fresh barriers the phase before the first counts as over */
    pl_tma_prefetch(&p.dY);
    pl_tma_prefetch(&p.X);
    FOR_ITEMS(item)
    {
        const part w = part_of<S>(p, at, item);
        const int zy = p.dy_many ? w.member : 0, zx = p.x_many ? w.member : 0;
        for (int c = w.first; c < w.end; c++) {
            const uint32_t to = at.ring.stages + (uint32_t)(s * S::STAGE), bar = at.ring.full + 8 * s;
            pl_mbar_wait(at.ring.empty + 8 * s, parity);
            pl_mbar_expect(bar, S::STAGE);
            for (int k = 0; k < S::GROUPS; k++)
                pl_tma_load(to + (uint32_t)(k * PANEL), &p.dY, bar, w.row + 64 * k, c * TILE, zy);
            for (int k = 0; k < S::PANELS; k++)
                pl_tma_load(to + (uint32_t)((S::GROUPS + k) * PANEL), &p.X, bar, w.column + 64 * k, c * TILE,
                            zx);
            if (++s == S::STAGES) s = 0, parity ^= 1;
        }
    }
}

/* The stage may be loaded again, as far as this warpgroup is concerned. */
__device__ __forceinline__ void release(const place &at, int s)
{
    if (threadIdx.x % 128 == 0) pl_mbar_arrive(at.ring.empty + 8 * s);
}

struct turn {
    int stage;
    uint32_t parity;
};

template <class S, bool BIAS>
__device__ __forceinline__ void multiply(float (&acc)[S::N / 2], float (&total)[4], const place &at,
                                         const part &w, turn &t)
{
    const int group = (int)threadIdx.x / 128;
    int before = 0;
#pragma unroll
    for (int i = 0; i < S::N / 2; i++) acc[i] = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) total[i] = 0;
    for (int c = w.first; c < w.end; c++) {
        const uint32_t y = at.ring.stages + (uint32_t)(t.stage * S::STAGE + group * PANEL),
                       x = at.ring.stages + (uint32_t)(t.stage * S::STAGE + S::GROUPS * PANEL);
        pl_mbar_wait(at.ring.full + 8 * t.stage, t.parity);
        pl_wgmma_fence();
#pragma unroll
        for (int i = 0; i < TILE / 16; i++)
            pl_wgmma<S::N>::template product<1, 1>(acc, pl_wgmma_desc(y + (uint32_t)i * 2048, PANEL),
                                                   pl_wgmma_desc(x + (uint32_t)i * 2048, PANEL), 1);
        if (BIAS) {
#pragma unroll
            for (int i = 0; i < TILE / 16; i++)
                pl_wgmma<8>::template product<1, 0>(total, pl_wgmma_desc(y + (uint32_t)i * 2048, PANEL),
                                                    pl_wgmma_desc(at.ones), 1);
        }
        pl_wgmma_commit();
        pl_wgmma_wait<1>();
        if (c > w.first) release(at, before);
        before = t.stage;
        if (++t.stage == S::STAGES) t.stage = 0, t.parity ^= 1;
    }
    pl_wgmma_wait<0>();
    if (w.end > w.first) release(at, before);
}

__device__ __forceinline__ float4 sum_of(float4 a, float4 b)
{
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

/* Every warp of the other pieces arrives once at each block's barrier `bar`. */
template <class S> __device__ __forceinline__ void tell_others(const place &at, uint32_t bar)
{
    __syncwarp();
    if (threadIdx.x % 32) return;
#pragma unroll
    for (int q = 0; q < PIECES; q++)
        if (q != at.piece) pl_mbar_arrive_remote(remote(bar, q));
}

/* Quarter q of a part's columns is block q's: 8 j .. 8 j + 7 for j from q FOURS on. */
template <class S>
__device__ __forceinline__ void exchange(const float (&acc)[S::N / 2], const float (&total)[4],
                                         const grad_params &p, const place &at, const part &w, bool bias,
                                         uint32_t &parity)
{
    const int thread = (int)threadIdx.x, lane = thread % 32, above = thread / 32 * 16 + lane / 4;
    float *dW = p.dW + w.member * p.bsw, *db = p.db + w.member * p.bsb;
#pragma unroll
    for (int k = 0; k < S::N / S::PART; k++) {
        pl_mbar_wait_cluster(at.clear, parity ^ 1);
#pragma unroll
        for (int q = 0; q < PIECES; q++) {
            if (q == at.piece) continue;
            const int slot = at.piece < q ? at.piece : at.piece - 1;
            const uint32_t box = remote(at.inbox + (uint32_t)(slot * S::SLOT + thread * 16), q);
#pragma unroll
            for (int i = 0; i < S::FOURS; i++) {
                const float *v = acc + k * (S::PART / 2) + 4 * (q * S::FOURS + i);
                pl_sts4_remote(box + (uint32_t)(i * S::WARPS * 512), v[0], v[1], v[2], v[3]);
            }
        }
        if (k == 0 && bias && at.piece > 0 && lane % 4 == 0) {
            const uint32_t box = remote(at.sums + (uint32_t)((at.piece - 1) * S::ROWS + above) * 4, 0);
            pl_sts_remote(box, total[0]);
            pl_sts_remote(box + 32, total[2]);
        }
        tell_others<S>(at, at.came);
        pl_mbar_wait_cluster(at.came, parity);
#pragma unroll
        for (int q = 0; q < PIECES; q++) {
            if (q != at.piece) continue;
#pragma unroll
            for (int i = 0; i < S::FOURS; i++) {
                const int j = q * S::FOURS + i;
                const float *own = acc + k * (S::PART / 2) + 4 * j;
                float4 s = make_float4(0, 0, 0, 0);
#pragma unroll
                for (int from = 0; from < PIECES; from++) {
                    const int slot = from < q ? from : from - 1;
                    const float4 v =
                        from == q ? make_float4(own[0], own[1], own[2], own[3])
                                  : pl_lds4(at.inbox +
                                            (uint32_t)(slot * S::SLOT + i * S::WARPS * 512 + thread * 16));
                    s = from ? sum_of(s, v) : v;
                }
                const int row = w.row + above, col = w.column + k * S::PART + 8 * j + 2 * (lane % 4);
                if (col >= p.in) continue;
                float *line = dW + row * p.ldw + col;
                if (row < p.out) *reinterpret_cast<float2 *>(line) = make_float2(s.x, s.y);
                if (row + 8 < p.out) *reinterpret_cast<float2 *>(line + 8 * p.ldw) = make_float2(s.z, s.w);
            }
        }
        if (k == 0 && bias && at.piece == 0 && lane % 4 == 0) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float s = total[2 * h];
#pragma unroll
                for (int from = 0; from < PIECES - 1; from++)
                    s += __uint_as_float(pl_lds(at.sums + (uint32_t)(from * S::ROWS + above + 8 * h) * 4));
                if (w.row + above + 8 * h < p.out) db[w.row + above + 8 * h] = s;
            }
        }
        tell_others<S>(at, at.clear);
        parity ^= 1;
    }
}

template <class S> __device__ __forceinline__ void consume(const grad_params &p, const place &at)
{
    float acc[S::N / 2], total[4];
    turn t = {0, 0};
    uint32_t parity = 0;
    FOR_ITEMS(item)
    {
        const part w = part_of<S>(p, at, item);
        const bool bias = p.db && w.column == 0;
        if (bias) multiply<S, true>(acc, total, at, w, t);
        else multiply<S, false>(acc, total, at, w, t);
        exchange<S>(acc, total, p, at, w, bias, parity);
    }
}

template <class S>
static __global__ void __launch_bounds__(S::THREADS, 1)
    weight_grad_kernel(const __grid_constant__ grad_params p)
{
    extern __shared__ uint8_t memory[];
    const uint32_t base = (pl_smem(memory) + 1023) & ~1023u, bars = base + S::BARRIERS;
    place at;
    at.ring = {base, bars, bars + 8 * S::STAGES};
    at.ones = base + S::ONES, at.inbox = base + S::INBOX, at.sums = base + S::SUMS;
    at.came = bars + 16 * S::STAGES, at.clear = at.came + 8;
    at.piece = (int)blockIdx.x % PIECES;
    if (threadIdx.x == 0) {
        for (int s = 0; s < S::STAGES; s++) {
            pl_mbar_init(at.ring.full + 8 * s, 1);
            pl_mbar_init(at.ring.empty + 8 * s, S::GROUPS);
        }
        pl_mbar_init(at.came, (PIECES - 1) * S::WARPS);
        pl_mbar_init(at.clear, (PIECES - 1) * S::WARPS);
        pl_mbar_init_done();
    }
    for (int i = (int)threadIdx.x; i < 256; i += S::THREADS) pl_sts(at.ones + 4 * i, 0x3f803f80u);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); /* tensor cores read them */
    cluster_sync();
    pl_kernel_begin();
    if (threadIdx.x >= 32 * S::WARPS) {
        if (S::MANY) pl_registers_fewer<40>();
        if (threadIdx.x == 32 * S::WARPS) produce<S>(p, at);
    } else {
        if (S::MANY) pl_registers_more<152>();
        consume<S>(p, at);
    }
    __syncwarp();
    cluster_sync();
}

/* ---- host --------------------------------------------------------------------------------------- */

static int64_t over(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Tiles of all members. */
template <class S> static int64_t items_of(const pl_args_weight_grad *a)
{
    return over(a->dW.rows, S::ROWS) * over(a->dW.cols, S::N) * a->dW.batch;
}

#define LOADED   84e3  /* bytes a microsecond that the copy engine brings to a multiprocessor */
#define COPIED   4.2e6 /* that the memory gives to all */
#define CLOCKS   1755. /* a microsecond */
#define EXCHANGE 2.    /* microseconds */

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Microseconds: rounds of items, each as long as a block's loads, its products, or the memory's share. */
template <class S> static double cost_of(const pl_args_weight_grad *a)
{
    const int64_t items = items_of<S>(a), chunks = over(a->X.rows, TILE);
    const int both = S::GROUPS == 1 ? 2 : 1; /* blocks that a multiprocessor has room for */
    const double load = S::STAGE / LOADED, products = 4 * S::GROUPS * (S::N / 2 + 16) / CLOCKS,
                 piece = larger(load, products) * (double)chunks / PIECES,
                 factors = 2. * (double)(a->dW.batch * a->X.rows * (a->dW.rows + a->dW.cols)) / COPIED;
    const int64_t at_once = MOST * both, full = items / at_once, rest = items % at_once;
    const double memory = factors / (double)items, last = rest > MOST ? both * piece : piece;
    return (double)full * (EXCHANGE + larger(both * piece, memory * (double)at_once)) +
           (rest ? EXCHANGE + larger(last, memory * (double)rest) : 0);
}

template <class S>
static cudaError_t launch(const pl_hopper_device *dev, cudaStream_t stream, const pl_args_weight_grad *a)
{
    grad_params p = {};
    p.dW = (float *)a->dW.data, p.ldw = a->dW.rs, p.bsw = a->dW.bs;
    p.db = (float *)a->db.data, p.bsb = a->db.bs;
    p.out = (int)a->dW.rows, p.in = (int)a->dW.cols, p.chunks = (int)over(a->X.rows, TILE);
    p.dy_many = a->dY.batch > 1 && a->dY.bs > 0, p.x_many = a->X.batch > 1 && a->X.bs > 0;
    p.across = (int)over(p.in, S::N), p.tiles = (int)over(p.out, S::ROWS) * p.across;
    p.items = items_of<S>(a);
    if (!map_matrix(&p.dY, dev, a->dY, 64, TILE) || !map_matrix(&p.X, dev, a->X, 64, TILE))
        return cudaErrorInvalidValue;
    cudaError_t st = allow_all_shared((const void *)weight_grad_kernel<S>);
    if (st != cudaSuccess) return st;
    int at_once = 0;
    cudaLaunchAttribute attribute[2] = {};
    cudaLaunchConfig_t config = {};
    attribute[0].id = cudaLaunchAttributeClusterDimension;
    attribute[0].val.clusterDim.x = PIECES;
    attribute[0].val.clusterDim.y = attribute[0].val.clusterDim.z = 1;
    attribute[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[1].val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3(PIECES), config.blockDim = dim3(S::THREADS), config.dynamicSmemBytes = S::BYTES;
    config.stream = stream, config.attrs = attribute, config.numAttrs = 1;
    st = cudaOccupancyMaxActiveClusters(&at_once, weight_grad_kernel<S>, &config);
    if (st != cudaSuccess) return st;
    if (at_once < 1) return cudaErrorInvalidConfiguration;
    config.gridDim.x = (unsigned)(PIECES * (p.items < at_once ? p.items : at_once)), config.numAttrs = 2;
    return cudaLaunchKernelEx(&config, weight_grad_kernel<S>, p);
}

typedef shape<3, 192, 3, 96> square;
typedef shape<3, 96, 4, 96> wide;
typedef shape<1, 64, 6, 64> small;

cudaError_t pl_hopper_weight_grad_few(const pl_hopper_device *dev, cudaStream_t stream,
                                      const pl_args_weight_grad *a)
{
    const double by_square = cost_of<square>(a), by_wide = cost_of<wide>(a), by_small = cost_of<small>(a);
    if (by_small <= by_wide && by_small <= by_square) return launch<small>(dev, stream, a);
    return by_wide <= by_square ? launch<wide>(dev, stream, a) : launch<square>(dev, stream, a);
}
