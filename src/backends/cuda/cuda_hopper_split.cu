/* cuda_hopper_split.cu -- see cuda_split.h.
 *
 * One factor, S, streams through shared memory as it is: a warpgroup loads its 64 rows of 16 k into the
 * fragment of A and cuts it there. The other, P, is cut beforehand into scratch: (3, k, n) of bf16 a matrix,
 * n contiguous. With part i of S times part j of P written ij, a step of 16 k is 20, 02, 11, 10, 01, 00.
 *
 *     A B^T, A B    S = A, k along its rows (ALONG)     P = B^T or B     results as they come
 *     A^T B         S = B, k across its rows            P = A            the transposed result is made
 *
 * ALONG, a thread takes 4 neighbours in k at once, 4 t .. 4 t + 3 of 16, where the fragment wants 2 t, 2 t +
 * 1, 2 t + 8, 2 t + 9: a sum does not mind, as long as P's rows stand in the same order (slot_of). Across, it
 * takes the k that the fragment names, and P's rows stand as they are.
 *
 * A block is a producer (one thread loads) and two warpgroups of 64 x N results; as many blocks as there are
 * multiprocessors walk over the tiles, S's rows fastest, so that neighbours share their P in L2.
 */
#include "cuda_split.h"

#include "cuda_bf16_parts.cuh"
#include "cuda_tiles.cuh"

#define ROWS    128 /* of S in a tile */
#define DEPTH   32  /* k of a stage: 128 bytes of f32 */
#define CHUNK   8   /* stages between two sums: 256 k */
#define S_BYTES (ROWS * DEPTH * 4)
#define PANEL   (DEPTH * ROW) /* 64 columns of one part of P */
#define BOX     (DEPTH * ROW) /* 32 columns of S, across */
#define THREADS 384

typedef struct {
    CUtensorMap S, P;
    float *C;
    const float *D;
    int64_t ldc, ldd, bsc, bsd;
    int m, n; /* of S's rows and P's columns */
    int m_tiles, n_tiles, tiles, k_blocks, s_many, p_many;
    float alpha, beta;
} split_params;

template <int N> struct shape {
    static constexpr int PANELS = N / 64, STAGE = S_BYTES + PARTS * PANELS * PANEL;
    static constexpr int STAGES = (SMEM_LIMIT - 1024 - 256) / STAGE, BYTES = 1024 + STAGES * STAGE + 256;
    static_assert(STAGES >= 3 && 2 * STAGES * 8 <= 256);
};

typedef struct {
    int matrix, row, column; /* in S's rows and P's columns */
} place;

template <int N> __device__ __forceinline__ place place_of(const split_params &p, int tile)
{
    const int above = tile / p.m_tiles;
    return place{above / p.n_tiles, tile % p.m_tiles * ROWS, above % p.n_tiles * N};
}

template <int N, bool ALONG> __device__ __forceinline__ void produce(const split_params &p, pl_ring ring)
{
    using T = shape<N>;
    int s = 0;
    uint32_t parity = 1; /* of fresh barriers the phase before the first counts as over */
    pl_tma_prefetch(&p.S);
    pl_tma_prefetch(&p.P);
    for (int t = (int)blockIdx.x; t < p.tiles; t += (int)gridDim.x) {
        const place at = place_of<N>(p, t);
        const int zs = p.s_many ? at.matrix : 0, zp = p.p_many ? PARTS * at.matrix : 0;
        for (int kb = 0; kb < p.k_blocks; kb++) {
            const uint32_t bar = ring.full + 8 * s, to = ring.stages + (uint32_t)(s * T::STAGE);
            pl_mbar_wait(ring.empty + 8 * s, parity);
            pl_mbar_expect(bar, T::STAGE);
            if (ALONG) pl_tma_load(to, &p.S, bar, kb * DEPTH, at.row, zs);
            else
                for (int i = 0; i < ROWS / 32; i++)
                    pl_tma_load(to + (uint32_t)(i * BOX), &p.S, bar, at.row + 32 * i, kb * DEPTH, zs);
            for (int part = 0; part < PARTS; part++)
                for (int c = 0; c < T::PANELS; c++)
                    pl_tma_load(to + (uint32_t)(S_BYTES + (part * T::PANELS + c) * PANEL), &p.P, bar,
                                at.column + 64 * c, kb * DEPTH, zp + part);
            if (++s == T::STAGES) s = 0, parity ^= 1;
        }
    }
}

/* Two neighbours in k, and their three parts. */
__device__ __forceinline__ void cut_into(uint32_t (&part)[PARTS][4], int i, float x, float y)
{
#pragma unroll
    for (int k = 0; k < PARTS; k++) part[k][i] = cut(x, y);
}

/* 16 k of a warpgroup's rows, from k = 16 j of the stage on, as fragments of A. */
template <bool ALONG>
__device__ __forceinline__ void fragment(uint32_t (&part)[PARTS][4], uint32_t from, int group, int thread,
                                         int j)
{
    const int warp = thread / 32, lane = thread % 32, g = lane / 4, t = lane % 4;
    if (ALONG) {
        const uint32_t at = from + (uint32_t)((64 * group + 16 * warp + g) * ROW + ((4 * j + t) ^ g) * 16);
        const uint4 low = pl_lds16(at), high = pl_lds16(at + 8 * ROW);
        cut_into(part, 0, __uint_as_float(low.x), __uint_as_float(low.y));
        cut_into(part, 1, __uint_as_float(high.x), __uint_as_float(high.y));
        cut_into(part, 2, __uint_as_float(low.z), __uint_as_float(low.w));
        cut_into(part, 3, __uint_as_float(high.z), __uint_as_float(high.w));
    } else {
        const uint32_t box = from + (uint32_t)((2 * group + warp / 2) * BOX);
#pragma unroll
        for (int i = 0; i < 4; i++) { /* rows g and g + 8, k from 2 t and 2 t + 8 on */
            const int column = 16 * (warp % 2) + g + 8 * (i % 2), k = 2 * t + 8 * (i / 2);
            const uint32_t row = box + (uint32_t)((16 * j + k) * ROW + column % 4 * 4);
            const int unit = column / 4;
            cut_into(part, i, __uint_as_float(pl_lds(row + (uint32_t)((unit ^ (k & 7)) * 16))),
                     __uint_as_float(pl_lds(row + ROW + (uint32_t)((unit ^ ((k + 1) & 7)) * 16))));
        }
    }
}

/* What the tensor cores write is not read, or written anew, before the wait that stands above. */
template <int COUNT> __device__ __forceinline__ void settle(float (&v)[COUNT])
{
#pragma unroll
    for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(v[i])::"memory");
}

template <int N>
__device__ __forceinline__ void store(const split_params &p, const float (&sum)[N / 2], place at, int group,
                                      int thread)
{
    const int lane = thread % 32;
    float *C = p.C + at.matrix * p.bsc;
    const float *D = p.D ? p.D + at.matrix * p.bsd : nullptr;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int r = at.row + 64 * group + thread / 32 * 16 + lane / 4 + 8 * h;
        if (r >= p.m) continue;
#pragma unroll
        for (int j = 0; j < N / 8; j++) {
            const int c = at.column + 8 * j + 2 * (lane % 4);
            if (c >= p.n) continue;
            float2 v = make_float2(p.alpha * sum[4 * j + 2 * h], p.alpha * sum[4 * j + 2 * h + 1]);
            if (D) {
                const float2 d = *reinterpret_cast<const float2 *>(D + r * p.ldd + c);
                v.x = fmaf(p.beta, d.x, v.x), v.y = fmaf(p.beta, d.y, v.y);
            }
            *reinterpret_cast<float2 *>(C + r * p.ldc + c) = v;
        }
    }
}

/* The same of the transposed result: S's rows are C's columns. */
template <int N>
__device__ __forceinline__ void store_across(const split_params &p, const float (&sum)[N / 2], place at,
                                             int group, int thread)
{
    const int lane = thread % 32;
    float *C = p.C + at.matrix * p.bsc;
    const float *D = p.D ? p.D + at.matrix * p.bsd : nullptr;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int c = at.row + 64 * group + thread / 32 * 16 + lane / 4 + 8 * h;
        if (c >= p.m) continue;
#pragma unroll
        for (int j = 0; j < N / 8; j++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int r = at.column + 8 * j + 2 * (lane % 4) + i;
                if (r >= p.n) continue;
                float v = p.alpha * sum[4 * j + 2 * h + i];
                if (D) v = fmaf(p.beta, D[r * p.ldd + c], v);
                C[r * p.ldc + c] = v;
            }
    }
}

template <int N, bool ALONG> __device__ __forceinline__ void consume(const split_params &p, pl_ring ring)
{
    using T = shape<N>;
    const int group = (int)threadIdx.x / 128 - 1, thread = (int)threadIdx.x % 128;
    int s = 0;
    uint32_t parity = 0;
    for (int t = (int)blockIdx.x; t < p.tiles; t += (int)gridDim.x) {
        const place at = place_of<N>(p, t);
        float acc[N / 2], sum[N / 2];
        int before = -1; /* a stage whose products may still be under way */
#pragma unroll
        for (int i = 0; i < N / 2; i++) sum[i] = 0;
        for (int kb = 0; kb < p.k_blocks; kb++) {
            const uint32_t from = ring.stages + (uint32_t)(s * T::STAGE);
            uint32_t part[2][PARTS][4];
            pl_mbar_wait(ring.full + 8 * s, parity);
#pragma unroll
            for (int j = 0; j < DEPTH / 16; j++) {
                fragment<ALONG>(part[j], from, group, thread, j);
                pl_wgmma_fence();
#pragma unroll
                for (int k = 0; k < PRODUCTS; k++)
                    pl_wgmma<N>::template mixed<1>(
                        acc, part[j][first_part(k)],
                        pl_wgmma_desc(
                            from + (uint32_t)(S_BYTES + second_part(k) * T::PANELS * PANEL + j * 16 * ROW),
                            PANEL),
                        k > 0 || j > 0 || kb % CHUNK != 0);
                pl_wgmma_commit();
                pl_wgmma_wait<1>();
                if (j == 0 && before >= 0 && thread == 0) pl_mbar_arrive(ring.empty + 8 * before);
            }
            before = s;
            if (++s == T::STAGES) s = 0, parity ^= 1;
            if (kb % CHUNK == CHUNK - 1 || kb == p.k_blocks - 1) {
                pl_wgmma_wait<0>();
                settle(acc);
                if (thread == 0) pl_mbar_arrive(ring.empty + 8 * before);
                before = -1;
#pragma unroll
                for (int i = 0; i < N / 2; i++) sum[i] += acc[i];
            }
        }
        if (ALONG) store<N>(p, sum, at, group, thread);
        else store_across<N>(p, sum, at, group, thread);
    }
}

template <int N, bool ALONG>
static __global__ void __launch_bounds__(THREADS, 1) split_kernel(const __grid_constant__ split_params p)
{
    using T = shape<N>;
    extern __shared__ uint8_t memory[];
    const uint32_t stages = (pl_smem(memory) + 1023) & ~1023u, full = stages + T::STAGES * T::STAGE,
                   empty = full + 8 * T::STAGES;
    if (threadIdx.x == 0) {
        for (int s = 0; s < T::STAGES; s++) {
            pl_mbar_init(full + 8 * s, 1);
            pl_mbar_init(empty + 8 * s, 2);
        }
        pl_mbar_init_done();
    }
    __syncthreads();
    const pl_ring ring = {stages, full, empty};
    pl_kernel_begin();
    if (threadIdx.x < 128) {
        pl_registers_fewer<40>();
        if (threadIdx.x == 0) produce<N, ALONG>(p, ring);
    } else {
        pl_registers_more<232>();
        consume<N, ALONG>(p, ring);
    }
}

/* ---- the parts of P ----------------------------------------------------------------------------- */

typedef struct {
    const float *from;
    __nv_bfloat16 *to;
    int64_t rs, bs;
    int k, n, k_all, n_all, trans, reorder;
} parts_params;

/* Where the row k of P stands among its 16 (see above): of 4 t + 2 h + i, 2 t + 8 h + i. */
__device__ __forceinline__ int slot_of(int k)
{
    return (k & ~15) | (k >> 2 & 3) << 1 | (k >> 1 & 1) << 3 | (k & 1);
}

#define SQUARE 64

static __global__ void __launch_bounds__(256) parts_kernel(const parts_params p)
{
    __shared__ float square[SQUARE][SQUARE + 1]; /* (k, n) */
    const int k0 = (int)blockIdx.x * SQUARE, n0 = (int)blockIdx.y * SQUARE, x = (int)threadIdx.x % 64;
    const float *from = p.from + blockIdx.z * p.bs;
    pl_kernel_begin();
    for (int y = (int)threadIdx.x / 64; y < SQUARE; y += 4) { /* x along the source's rows */
        const int k = k0 + (p.trans ? x : y), n = n0 + (p.trans ? y : x);
        const bool in = k < p.k && n < p.n;
        square[k - k0][n - n0] = in ? from[p.trans ? n * p.rs + k : k * p.rs + n] : 0;
    }
    __syncthreads();
    const int pair = (int)threadIdx.x % 32, n = n0 + 2 * pair;
    const int64_t size = (int64_t)p.k_all * p.n_all;
    __nv_bfloat16 *to = p.to + PARTS * size * blockIdx.z;
    for (int k = (int)threadIdx.x / 32; k < SQUARE; k += 8) {
        if (k0 + k >= p.k_all || n >= p.n_all) continue;
        uint32_t part[PARTS][4];
        cut_into(part, 0, square[k][2 * pair], square[k][2 * pair + 1]);
        const int64_t at = (int64_t)(p.reorder ? slot_of(k0 + k) : k0 + k) * p.n_all + n;
#pragma unroll
        for (int i = 0; i < PARTS; i++) *reinterpret_cast<uint32_t *>(to + i * size + at) = part[i][0];
    }
}

/* ---- host --------------------------------------------------------------------------------------- */

/* A product as the kernel sees it. */
typedef struct {
    const pl_mat *S, *P;
    int64_t m, n, k; /* of S's rows, P's columns */
    int along, trans;
} roles;

static roles roles_of(const pl_args_gemm *a)
{
    roles r = {.S = a->ta ? &a->B : &a->A, .P = a->ta ? &a->A : &a->B};
    r.k = a->ta ? a->A.rows : a->A.cols;
    r.m = a->ta ? a->C.cols : a->C.rows, r.n = a->ta ? a->C.rows : a->C.cols;
    r.along = !a->ta, r.trans = a->tb != 0;
    return r;
}

static int64_t up(int64_t x, int64_t unit)
{
    return (x + unit - 1) / unit * unit;
}

static int aligned(const pl_mat &m, int64_t unit)
{
    return (uintptr_t)m.data % (size_t)(4 * unit) == 0 && (m.rows <= 1 || m.rs % unit == 0) &&
           (m.batch <= 1 || m.bs % unit == 0);
}

#define LEAST_WORK  (1ll << 27) /* multiplications: below it cuBLASLt's own f32 is as fast */
#define LEAST_SIDE  64
#define MOST_SIDE   (1ll << 24)
#define MOST_RESULT (1ll << 28) /* so that an int counts the tiles of 65,535 matrices */

int pl_hopper_split_suits(const pl_args_gemm *a)
{
    const pl_mat *all[] = {&a->C, &a->A, &a->B, &a->D};
    const roles r = roles_of(a);
    for (int i = 0; i < 4; i++)
        if (all[i]->data && all[i]->dtype != POLAR_DTYPE_F32) return 0;
    if (a->tf32 || a->sym || (a->ta && a->tb))
        return 0; /* of a symmetric one (i, j) and (j, i) would differ */
    if (r.m < ROWS || r.n < LEAST_SIDE || r.k < LEAST_SIDE || r.k > MOST_SIDE) return 0;
    if (r.m > MOST_SIDE || r.n > MOST_RESULT / r.m || r.m * r.n * r.k < LEAST_WORK) return 0;
    if (!aligned(*r.S, 4)) return 0;
    return !r.along || (r.n % 2 == 0 && aligned(a->C, 2) && (!a->D.data || aligned(a->D, 2)));
}

static int64_t many(const pl_mat *m)
{
    return m->batch > 1 && m->bs > 0 ? m->batch : 1;
}

size_t pl_hopper_split_scratch(const pl_args_gemm *a)
{
    const roles r = roles_of(a);
    return (size_t)(many(r.P) * PARTS * up(r.k, DEPTH) * up(r.n, 8)) * 2;
}

template <int N, bool ALONG>
static cudaError_t launch(const pl_hopper_device *dev, cudaStream_t stream, const split_params &p)
{
    const unsigned blocks = (unsigned)(p.tiles < dev->multiprocessors ? p.tiles : dev->multiprocessors);
    return launch_early(split_kernel<N, ALONG>, dim3(blocks), dim3(THREADS), shape<N>::BYTES, stream, p);
}

cudaError_t pl_hopper_split(const pl_hopper_device *dev, cudaStream_t stream, const pl_args_gemm *a,
                            void *scratch)
{
    const roles r = roles_of(a);
    const int wide = r.n > 64, columns = wide ? 128 : 64;
    const int64_t k_all = up(r.k, DEPTH), n_all = up(r.n, 8), count = many(r.P);
    pl_mat parts = {.data = scratch,
                    .dtype = POLAR_DTYPE_BF16,
                    .batch = PARTS * count,
                    .rows = k_all,
                    .cols = n_all,
                    .bs = k_all * n_all,
                    .rs = n_all};
    parts_params cutting = {};
    split_params p = {};
    cutting.from = (const float *)r.P->data, cutting.to = (__nv_bfloat16 *)scratch;
    cutting.rs = r.P->rs, cutting.bs = r.P->bs, cutting.k = (int)r.k, cutting.n = (int)r.n;
    cutting.k_all = (int)k_all, cutting.n_all = (int)n_all;
    cutting.trans = r.trans, cutting.reorder = r.along;
    cudaError_t st = launch_early(
        parts_kernel,
        dim3((unsigned)(up(k_all, SQUARE) / SQUARE), (unsigned)(up(n_all, SQUARE) / SQUARE), (unsigned)count),
        dim3(256), 0, stream, cutting);
    if (st != cudaSuccess) return st;
    if (!map_matrix(&p.P, dev, parts, 64, DEPTH)) return cudaErrorInvalidValue;
    if (!map_matrix(&p.S, dev, *r.S, 32, r.along ? ROWS : DEPTH)) return cudaErrorInvalidValue;
    p.C = (float *)a->C.data, p.D = (const float *)a->D.data;
    p.ldc = a->C.rs, p.bsc = a->C.bs, p.ldd = a->D.rs, p.bsd = a->D.batch > 1 ? a->D.bs : 0;
    p.m = (int)r.m, p.n = (int)r.n, p.k_blocks = (int)(k_all / DEPTH);
    p.m_tiles = (int)(up(r.m, ROWS) / ROWS), p.n_tiles = (int)(up(r.n, columns) / columns);
    p.tiles = (int)(p.m_tiles * p.n_tiles * a->C.batch);
    p.s_many = many(r.S) > 1, p.p_many = count > 1;
    p.alpha = (float)a->alpha, p.beta = (float)a->beta;
    if (r.along) return wide ? launch<128, true>(dev, stream, p) : launch<64, true>(dev, stream, p);
    return wide ? launch<128, false>(dev, stream, p) : launch<64, false>(dev, stream, p);
}
