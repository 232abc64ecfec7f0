/* cuda_hopper_parts.cuh -- the kernel of cuda_hopper_parts.h, and its launch.
 *
 * A block makes 64 G x 96 results. Its first warpgroup brings slabs of 32 k of both factors through
 * registers, the next one while it cuts this into its parts on their way into shared memory;
 * the G others multiply, 64 rows each, parts by wgmma. In a stage a part of a factor lies as the factor does:
 *
 *     ALONG   k along its rows: rows of 32 k, 64 bytes (pl_wgmma_along)
 *     ACROSS  k across them: panels of 64 columns of A, a warpgroup's own, or of 32 of B (pl_wgmma_across)
 *
 * A thread's fours of 32 k, 128 fours apart from one to the next, stand 1024 bytes apart whichever it is, and
 * eight threads that follow each other bring 128 bytes of a row.
 *
 * As many blocks as there is room for walk over the tiles of all calls: the next one is whoever's asks first,
 * while a block's last one ends. Calls are in the order of falling k, so that short tiles fill what long ones
 * leave; those of one k and as many tiles take turns by matrices, for what they share (a gradient and its
 * direction have one basis) to be in L2 still.
 */
#ifndef PL_CUDA_HOPPER_PARTS_CUH
#define PL_CUDA_HOPPER_PARTS_CUH

#include <algorithm>

#include "cuda_bf16_parts.cuh"
#include "cuda_hopper_parts.h"
#include "cuda_tiles.cuh"

#define COLS    96   /* of a tile */
#define DEPTH   32   /* k of a slab */
#define CHUNK   128  /* k after which sums are begun anew */
#define MAKERS  128  /* threads that bring factors */
#define FURTHER 1024 /* bytes from a thread's four to its next */

typedef struct {
    const float *A, *B, *D;
    float *C;
    int64_t bsa, bsb, bsc, bsd;
    int lda, ldb, ldc, ldd;
    int m, n, k, n_tiles;
    int tiles; /* of a matrix */
    float alpha, beta;
    uint8_t layout, sym;
} product;

enum { ALONG_ALONG, ALONG_ACROSS, ACROSS_ACROSS }; /* A's and B's */

typedef struct {
    product call[PL_HOPPER_PARTS_CALLS];
    uint32_t first[PL_HOPPER_PARTS_CALLS + 1]; /* tile of a group */
    uint8_t
        leader[PL_HOPPER_PARTS_CALLS + 1]; /* a group's first call: those up to the next one's take turns */
    int groups;
    uint32_t tiles;
    uint32_t *asked; /* how many tiles have been asked for: zero before and after */
} product_table;

template <int G> struct shape {
    static constexpr int ROWS = 64 * G, A_PART = ROWS * DEPTH * 2, B_PART = COLS * DEPTH * 2,
                         STAGE = PARTS * (A_PART + B_PART), STAGES = G == 1 ? 3 : 4,
                         THREADS = MAKERS + 128 * G, BLOCKS = G == 1 ? 2 : 1,
                         BYTES = 1024 + STAGES * STAGE + 16 * STAGES + 48;
    static_assert(BLOCKS * (BYTES + 1024) <= SMEM_LIMIT + 1024);
};

/* ---- which tile --------------------------------------------------------------------------------- */

/* Stages in shared memory, their barriers, and which one is next. */
struct slab_ring {
    uint32_t stages, full, empty;
    int stage;
    uint32_t parity;
};

struct place {
    int call, row, column; /* of the tile's first result */
    int64_t matrix;
};

/* Tiles of columns that row tile i of a symmetric product has on and below the diagonal. */
__host__ __device__ __forceinline__ int below(int i, int rows, int n_tiles)
{
    const int some = ((i + 1) * rows + COLS - 1) / COLS;
    return some < n_tiles ? some : n_tiles;
}

/* i, where first[i] <= tile < first[i + 1] */
__device__ __forceinline__ int group_of(const product_table &t, uint32_t tile)
{
    int i = 0;
    while (t.first[i + 1] <= tile) i++;
    return i;
}

__device__ __forceinline__ place place_of(const product_table &t, uint32_t tile_of_list, int rows)
{
    const int group = group_of(t, tile_of_list), leader = t.leader[group];
    const product &first = t.call[leader];
    const int mates = t.leader[group + 1] - leader;
    const int64_t at = tile_of_list - t.first[group], matrix_of_call = at / first.tiles;
    int tile = (int)(at % first.tiles), i = 0;
    if (first.sym)
        for (int some; tile >= (some = below(i, rows, first.n_tiles)); i++) tile -= some;
    else i = tile / first.n_tiles, tile %= first.n_tiles;
    return {leader + (int)(matrix_of_call % mates), i * rows, tile * COLS, matrix_of_call / mates};
}

/* ---- who does which tile ------------------------------------------------------------------------ */

/* A block's tiles: two numbers in shared memory by turns, written by its first thread (told), read by a warp
 * of the makers or of the others each (heard). */
struct turns {
    uint32_t number, told, heard;
};

/* What comes after tile `turn` of this block, from 0 on. */
__device__ __forceinline__ uint32_t next_tile(const turns &w, int turn)
{
    const uint32_t at = turn & 1;
    pl_mbar_wait(w.told + 8 * at, turn >> 1 & 1);
    const uint32_t tile = pl_lds(w.number + 4 * at);
    __syncwarp();
    if (threadIdx.x % 32 == 0) pl_mbar_arrive(w.heard + 8 * at);
    return tile;
}

/* By the block's first thread. Each block asks once a tile, so the last to ask is the one told so. */
__device__ __forceinline__ void tell(const turns &w, int turn, uint32_t before, const product_table &t)
{
    const uint32_t at = turn & 1;
    if (before == t.tiles - 1) atomicAdd(t.asked, 0u - t.tiles);
    pl_mbar_wait(w.heard + 8 * at, (turn >> 1 & 1) ^ 1);
    pl_sts(w.number + 4 * at, before + gridDim.x);
    pl_mbar_arrive(w.told + 8 * at);
}

/* ---- into shared memory ------------------------------------------------------------------------- */

/* A factor on its way: a thread's first four of the next slab; which of its fours belong to lines that are
 * there. */
struct source {
    const float *from;
    int64_t ld, slab;
    uint32_t lines;
    int at, k; /* of the first four, and where they end */
};

/* Of four s, in lines or k from the first one. */
template <bool ALONG, int PANEL> struct apart {
    static constexpr int ROWS = ALONG ? 16 : 512 / PANEL, /* between fours below each other */
        TURNS = ALONG ? 1 << 20 : DEPTH / ROWS;           /* of which a panel has so many */
    static __device__ __forceinline__ int line(int s)
    {
        return ALONG ? s * ROWS : s / TURNS * PANEL;
    }
    static __device__ __forceinline__ int k(int s)
    {
        return ALONG ? 0 : s % TURNS * ROWS;
    }
};

template <bool ALONG, int PANEL, int FOURS>
__device__ __forceinline__ source source_of(const float *from, int64_t ld, int first, int lines, int k,
                                            uint32_t *byte)
{
    const int t = (int)threadIdx.x, four = t % (PANEL / 4), row = t / (PANEL / 4);
    const int line = first + (ALONG ? t / 8 : 4 * four), at = ALONG ? t % 8 * 4 : row;
    source w = {from + (ALONG ? line * ld + at : at * ld + line), ld, ALONG ? DEPTH : DEPTH * ld, 0, at, k};
#pragma unroll
    for (int s = 0; s < FOURS; s++) w.lines |= (uint32_t)(line + apart<ALONG, PANEL>::line(s) < lines) << s;
    if (ALONG || PANEL == 32) { /* eight fours a row either way */
        const int own = t / 8, half = t % 8;
        *byte = (uint32_t)(own * 64 + ((half / 2 ^ (own >> 1 & 3)) << 4) + half % 2 * 8);
    } else *byte = (uint32_t)(row * 128 + ((four / 2 ^ (row & 7)) << 4) + four % 2 * 8);
    return w;
}

/* Four s of the next slab, zeros beyond the factor's ends. */
template <bool ALONG, int PANEL> __device__ __forceinline__ float4 four_of(const source &w, int s)
{
    using far = apart<ALONG, PANEL>;
    const bool there = (w.lines >> s & 1) && w.at + far::k(s) < w.k;
    const float *p = w.from + (ALONG ? far::line(s) * w.ld : far::k(s) * w.ld + far::line(s));
    return there ? *(const float4 *)p : make_float4(0, 0, 0, 0);
}

__device__ __forceinline__ void step(source &w)
{
    w.from += w.slab, w.at += DEPTH;
}

/* The parts of four neighbours. */
__device__ __forceinline__ void put(uint8_t *to, int part_bytes, float4 v)
{
#pragma unroll
    for (int part = 0; part < PARTS; part++) {
        const uint32_t low = cut(v.x, v.y), high = cut(v.z, v.w);
        *(uint2 *)(to + part * part_bytes) = make_uint2(low, high);
    }
}

template <int G, bool A_ALONG, bool B_ALONG>
__device__ __forceinline__ void produce(const product_table &table, const place &at, slab_ring &ring,
                                        uint8_t *stages, const turns &w, int turn)
{
    const product &p = table.call[at.call];
    using S = shape<G>;
    constexpr int OF_A = 4 * G, OF_B = COLS / 16;
    float4 a[OF_A], b[OF_B];
    uint32_t a_byte, b_byte, before = 0;
    source A = source_of<A_ALONG, 64, OF_A>(p.A + at.matrix * p.bsa, p.lda, at.row, p.m, p.k, &a_byte),
           B = source_of<B_ALONG, 32, OF_B>(p.B + at.matrix * p.bsb, p.ldb, at.column, p.n, p.k, &b_byte);
#pragma unroll
    for (int s = 0; s < OF_A; s++) a[s] = four_of<A_ALONG, 64>(A, s);
#pragma unroll
    for (int s = 0; s < OF_B; s++) b[s] = four_of<B_ALONG, 32>(B, s);
    if (threadIdx.x == 0) before = atomicAdd(table.asked, 1);
    for (int k0 = 0; k0 < p.k; k0 += DEPTH) {
        uint8_t *here = stages + ring.stage * S::STAGE, *to_a = here + a_byte,
                *to_b = here + PARTS * S::A_PART + b_byte;
        step(A); /* beyond the last slab nothing is there */
        step(B);
        pl_mbar_wait(ring.empty + 8 * ring.stage, ring.parity ^ 1);
#pragma unroll
        for (int s = 0; s < OF_A; s++) {
            put(to_a + s * FURTHER, S::A_PART, a[s]);
            a[s] = four_of<A_ALONG, 64>(A, s);
        }
#pragma unroll
        for (int s = 0; s < OF_B; s++) {
            put(to_b + s * FURTHER, S::B_PART, b[s]);
            b[s] = four_of<B_ALONG, 32>(B, s);
        }
        pl_async_fence();
        __syncwarp();
        if (threadIdx.x % 32 == 0) pl_mbar_arrive(ring.full + 8 * ring.stage);
        if (++ring.stage == S::STAGES) ring.stage = 0, ring.parity ^= 1;
        if (k0 == 0 && threadIdx.x == 0) tell(w, turn, before, table);
    }
}

/* ---- products ----------------------------------------------------------------------------------- */

/* What the tensor cores write is not read before the wait that stands above. */
__device__ __forceinline__ void settle(float (&v)[COLS / 2])
{
#pragma unroll
    for (int i = 0; i < COLS / 2; i++) asm volatile("" : "+f"(v[i])::"memory");
}

/* Results (r, c) and (r, c + 1) of a symmetric product, on and below the diagonal, here and there. */
__device__ __forceinline__ void store_twice(const product &p, float *C, int r, int c, float2 v)
{
    if (c > r) return;
    if (c < r) *(float2 *)(C + (int64_t)r * p.ldc + c) = v; /* c and r are even or c + 1 is r: all below */
    else C[(int64_t)r * p.ldc + c] = v.x;
    if (c < r) C[(int64_t)c * p.ldc + r] = v.x;
    if (c + 1 < r) C[(int64_t)(c + 1) * p.ldc + r] = v.y;
}

/* A thread's results: of row `row` and the one 8 below, two of each eight columns from `column` on. */
template <bool ADDEND, bool SYM>
__device__ __forceinline__ void store(const product &p, const place &at, const float (&sum)[COLS / 2],
                                      int row, int column)
{
    float *C = p.C + at.matrix * p.bsc;
    const float *D = ADDEND ? p.D + at.matrix * p.bsd : NULL;
    const int cols = p.n - column;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int r = row + 8 * h;
        if (r >= p.m) return;
        float *to = C + (int64_t)r * p.ldc + column;
        const float *from = ADDEND ? D + (int64_t)r * p.ldd + column : NULL;
#pragma unroll
        for (int j = 0; j < COLS / 8; j++) {
            if (8 * j >= cols) break;
            float2 v = make_float2(p.alpha * sum[4 * j + 2 * h], p.alpha * sum[4 * j + 2 * h + 1]);
            if (ADDEND) {
                const float2 d = *(const float2 *)(from + 8 * j);
                v.x = fmaf(p.beta, d.x, v.x), v.y = fmaf(p.beta, d.y, v.y);
            }
            if (SYM) store_twice(p, C, r, column + 8 * j, v);
            else *(float2 *)(to + 8 * j) = v;
        }
    }
}

__device__ __forceinline__ void store_all(const product &p, const place &at, const float (&sum)[COLS / 2],
                                          int row, int column)
{
    if (p.sym && p.D) store<true, true>(p, at, sum, row, column);
    else if (p.sym) store<false, true>(p, at, sum, row, column);
    else if (p.D) store<true, false>(p, at, sum, row, column);
    else store<false, false>(p, at, sum, row, column);
}

template <int G, bool A_ALONG, bool B_ALONG>
__device__ __forceinline__ void consume(const product &p, const place &at, slab_ring &ring)
{
    using S = shape<G>;
    const int group = (int)threadIdx.x / 128 - 1, thread = (int)threadIdx.x % 128, lane = thread % 32;
    float d[COLS / 2] = {}, sum[COLS / 2] = {};
    for (int k0 = 0; k0 < p.k;) {
        const int from = k0, left = p.k - k0, end = left > CHUNK ? k0 + CHUNK : p.k;
        int before = 0; /* a stage whose products may still be under way */
        for (; k0 < end; k0 += DEPTH) {
            const uint32_t A = ring.stages + (uint32_t)(ring.stage * S::STAGE + group * 4096),
                           B = ring.stages + (uint32_t)(ring.stage * S::STAGE + PARTS * S::A_PART);
            pl_mbar_wait(ring.full + 8 * ring.stage, ring.parity);
            pl_wgmma_fence();
#pragma unroll
            for (int j = 0; j < DEPTH / 16; j++)
#pragma unroll
                for (int i = 0; i < PRODUCTS; i++) {
                    const uint32_t x = A + (uint32_t)(first_part(i) * S::A_PART),
                                   y = B + (uint32_t)(second_part(i) * S::B_PART);
                    pl_wgmma<COLS>::template product<!A_ALONG, !B_ALONG>(
                        d, A_ALONG ? pl_wgmma_along(x, j) : pl_wgmma_across<64>(x, j, DEPTH),
                        B_ALONG ? pl_wgmma_along(y, j) : pl_wgmma_across<32>(y, j, DEPTH),
                        i > 0 || j > 0 || k0 > from);
                }
            pl_wgmma_commit();
            pl_wgmma_wait<1>();
            if (thread == 0 && k0 > from) pl_mbar_arrive(ring.empty + 8 * before);
            before = ring.stage;
            if (++ring.stage == S::STAGES) ring.stage = 0, ring.parity ^= 1;
        }
        pl_wgmma_wait<0>();
        settle(d);
        if (thread == 0) pl_mbar_arrive(ring.empty + 8 * before);
#pragma unroll
        for (int i = 0; i < COLS / 2; i++) sum[i] += d[i];
    }
    const int row = at.row + 64 * group + thread / 32 * 16 + lane / 4, column = at.column + 2 * (lane % 4);
    store_all(p, at, sum, row, column);
}

template <int G>
__device__ __forceinline__ void make_all(const product_table &t, slab_ring ring, const turns &w,
                                         uint8_t *stages)
{
    uint32_t tile = blockIdx.x;
    for (int turn = 0; tile < t.tiles; tile = next_tile(w, turn++)) {
        const place at = place_of(t, tile, shape<G>::ROWS);
        const int layout = t.call[at.call].layout;
        if (layout == ALONG_ALONG) produce<G, true, true>(t, at, ring, stages, w, turn);
        else if (layout == ALONG_ACROSS) produce<G, true, false>(t, at, ring, stages, w, turn);
        else produce<G, false, false>(t, at, ring, stages, w, turn);
    }
}

template <int G>
__device__ __forceinline__ void multiply_all(const product_table &t, slab_ring ring, const turns &w)
{
    uint32_t tile = blockIdx.x;
    for (int turn = 0; tile < t.tiles; tile = next_tile(w, turn++)) {
        const place at = place_of(t, tile, shape<G>::ROWS);
        const product &p = t.call[at.call];
        if (p.layout == ALONG_ALONG) consume<G, true, true>(p, at, ring);
        else if (p.layout == ALONG_ACROSS) consume<G, true, false>(p, at, ring);
        else consume<G, false, false>(p, at, ring);
    }
}

template <int G>
static __global__ void __launch_bounds__(shape<G>::THREADS, shape<G>::BLOCKS)
    products_kernel(const __grid_constant__ product_table table)
{
    using S = shape<G>;
    extern __shared__ uint8_t memory[];
    uint8_t *begin = memory + (-pl_smem(memory) & 1023);
    const uint32_t stages = pl_smem(begin), full = stages + S::STAGES * S::STAGE,
                   empty = full + 8 * S::STAGES;
    const turns w = {empty + 8 * S::STAGES, empty + 8 * S::STAGES + 8, empty + 8 * S::STAGES + 24};
    if (threadIdx.x == 0) {
        for (int s = 0; s < S::STAGES; s++) {
            pl_mbar_init(full + 8 * s, MAKERS / 32);
            pl_mbar_init(empty + 8 * s, G);
        }
        for (int i = 0; i < 2; i++) {
            pl_mbar_init(w.told + 8 * i, 1);
            pl_mbar_init(w.heard + 8 * i, S::THREADS / 32);
        }
        pl_mbar_init_done();
    }
    __syncthreads();
    const slab_ring ring = {stages, full, empty, 0, 0};
    pl_kernel_begin();
    if (threadIdx.x < MAKERS) {
        if (G == 3) pl_registers_more<152>();
        make_all<G>(table, ring, w, begin);
    } else {
        if (G == 3) pl_registers_fewer<120>();
        multiply_all<G>(table, ring, w);
    }
}

/* ---- host --------------------------------------------------------------------------------------- */

/* From matrix to matrix; one may serve all. */
static int64_t stride_of(const pl_mat &m)
{
    return m.batch > 1 ? m.bs : 0;
}

static product product_of(const pl_args_gemm *a, int rows)
{
    product p = {};
    p.A = (const float *)a->A.data, p.B = (const float *)a->B.data, p.D = (const float *)a->D.data;
    p.C = (float *)a->C.data;
    p.lda = (int)a->A.rs, p.ldb = (int)a->B.rs, p.ldc = (int)a->C.rs, p.ldd = (int)a->D.rs;
    p.bsa = stride_of(a->A), p.bsb = stride_of(a->B), p.bsc = stride_of(a->C), p.bsd = stride_of(a->D);
    p.m = (int)a->C.rows, p.n = (int)a->C.cols, p.k = (int)(a->ta ? a->A.rows : a->A.cols);
    p.alpha = (float)a->alpha, p.beta = (float)a->beta;
    p.layout = a->ta ? ACROSS_ACROSS : a->tb ? ALONG_ALONG : ALONG_ACROSS, p.sym = a->sym != 0;
    const int m_tiles = (p.m + rows - 1) / rows;
    p.n_tiles = (p.n + COLS - 1) / COLS, p.tiles = m_tiles * p.n_tiles;
    if (p.sym) {
        p.tiles = 0;
        for (int i = 0; i < m_tiles; i++) p.tiles += below(i, rows, p.n_tiles);
    }
    return p;
}

/* They may take turns. */
static bool alike(const product &a, const product &b, int64_t a_batch, int64_t b_batch)
{
    return a.k == b.k && a.tiles == b.tiles && a.n_tiles == b.n_tiles && a.sym == b.sym && a_batch == b_batch;
}

/* The list as tiles of so many rows; how many there are. */
static int64_t fill(product_table *table, const pl_hopper_parts_list *list, int rows)
{
    product all[PL_HOPPER_PARTS_CALLS];
    int order[PL_HOPPER_PARTS_CALLS], many = 0;
    int64_t tiles = 0;
    for (int i = 0; i < list->calls; i++) {
        if (!list->call[i].C.batch) continue;
        all[i] = product_of(&list->call[i], rows);
        order[many++] = i;
    }
    std::stable_sort(order, order + many, [&](int a, int b) { return all[a].k > all[b].k; });
    table->groups = 0;
    for (int i = 0; i < many; i++) {
        const int64_t batch = list->call[order[i]].C.batch;
        table->call[i] = all[order[i]];
        if (!i || !alike(all[order[i - 1]], all[order[i]], list->call[order[i - 1]].C.batch, batch)) {
            table->first[table->groups] = (uint32_t)tiles;
            table->leader[table->groups++] = (uint8_t)i;
        }
        tiles += batch * all[order[i]].tiles;
    }
    table->first[table->groups] = table->tiles = (uint32_t)tiles;
    table->leader[table->groups] = (uint8_t)many;
    return tiles;
}

template <int G>
static cudaError_t launch(const pl_hopper_device *dev, cudaStream_t stream, const product_table &table)
{
    const uint32_t most = (uint32_t)(dev->multiprocessors * shape<G>::BLOCKS);
    return launch_early(products_kernel<G>, dim3(table.tiles < most ? table.tiles : most),
                        dim3(shape<G>::THREADS), shape<G>::BYTES, stream, table);
}

#endif
