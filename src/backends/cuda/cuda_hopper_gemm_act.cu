/* cuda_hopper_gemm_act.cu -- Y = A op(B) and what follows, A of many rows, op(B) small (cuda_gemm_act.h).
 *
 * A block has WIDTH columns of op(B) in shared memory for as long as it lives and walks over tiles of 64 rows
 * of A, which come 64 k at a time through a ring of stages; one thread loads. Two or four warpgroups take
 * the tiles by turns, so that one multiplies while the others finish: what is added or multiplied has been
 * asked for before the product begins, and everything leaves from registers, 16 bytes a lane
 * (pl_quad_transpose) or, in f32, whole sectors a quad.
 */
#include "cuda_gemm_act.h"
#include "cuda_tiles.cuh"

#include "math/gelu_bf16_elem.h"

#define DEPTH      64 /* k of a stage */
#define STAGE      (TILE * DEPTH * 2)
#define STAGES_MAX 16
#define REST       (1024 + 2048) /* alignment; barriers and bias */

enum { PLAIN, ADD, GELU, FACTOR };
/* Warpgroups that take tiles by turns, beside a warp that loads: as many as have registers for their sums and
 * for what they add or multiply. */
__host__ __device__ constexpr int groups_of(int width, int kind, int f32)
{
    const int held = width / 2 + (kind == ADD ? width / 2 : kind == FACTOR ? width / 4 : 0) + (f32 ? 16 : 0);
    return width > 128 || held > 112 ? 2 : held > 64 ? 3 : 4;
}

__host__ __device__ constexpr int threads_of(int width, int kind, int f32)
{
    return 128 * groups_of(width, kind, f32) + 32;
}
/* what follows: a bias or nothing; D and a bias or none; gelu of the biased, its slopes or not; F */

typedef struct {
    CUtensorMap A, B;
    void *Y, *S;
    const void *D, *bias; /* D: or F */
    int64_t ldy, lds, ldd, bsy, bss, bsd, bsb;
    int m, n, tiles, slices, walkers, k_blocks, stages, a_many, b_many, bias_bf16;
} rows_params;

/* ---- what follows ---------------------------------------------------------------------------------- */

/* gelu_bf16_elem.h with the unit's own power of 2, which is exact to 2^-22: x Phi(x), and its slope. */
__device__ __forceinline__ float gelu_of(float x, float *slope)
{
    const float t = fabsf(x), bell = power2(t * t * -0x1.715476p-1f), u = fminf(t, 5.0f);
    const float p = pl_gelu_bf16_tail(u);
    /* beyond 16 the bell is zero in float, and infinity must not meet it; a NaN passes */
    const float tail = bell * p, phi = x < 0 ? tail : 1.0f - tail, y = x < -16.0f ? -16.0f : x,
                z = fminf(fmaxf(x, -16.0f), 16.0f);
    *slope = fmaf(z * 0x1.988454p-2f, bell, phi);
    return y * phi;
}

/* Words of a tile in the layout of the sums, fetched as units of 16 bytes and kept so until they are wanted.
 */
template <int WIDTH> struct factor_words {
    uint4 unit[2][WIDTH / 32];
    __device__ __forceinline__ void fetch(const __nv_bfloat16 *from, int64_t ld, int row, int column, int m,
                                          int n)
    {
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int u = 0; u < WIDTH / 32; u++) {
                const int r = row + 8 * h, c = column + 32 * u + 8 * ((int)threadIdx.x % 4);
                unit[h][u] = make_uint4(0, 0, 0, 0);
                if (r < m && c < n) unit[h][u] = *reinterpret_cast<const uint4 *>(from + r * ld + c);
            }
    }
};

template <int WIDTH> struct addend_floats {
    float2 pair[2][WIDTH / 8];
    __device__ __forceinline__ void fetch(const float *from, int64_t ld, int row, int column, int m, int n)
    {
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int j = 0; j < WIDTH / 8; j++) {
                const int r = row + 8 * h, c = column + 8 * j + 2 * ((int)threadIdx.x % 4);
                pair[h][j] = make_float2(0, 0);
                if (r < m && c < n) pair[h][j] = *reinterpret_cast<const float2 *>(from + r * ld + c);
            }
    }
};

struct nothing {
    template <class T> __device__ __forceinline__ void fetch(const T *, int64_t, int, int, int, int)
    {
    }
};

template <int KIND, int WIDTH> struct fetched_of {
    typedef nothing type;
};
template <int WIDTH> struct fetched_of<ADD, WIDTH> {
    typedef addend_floats<WIDTH> type;
};
template <int WIDTH> struct fetched_of<FACTOR, WIDTH> {
    typedef factor_words<WIDTH> type;
};

/* A word of four neighbouring j of a row, stored as the quad's units. */
__device__ __forceinline__ void store_units(__nv_bfloat16 *to, int64_t ld, int row, int column, int m, int n,
                                            const uint32_t (&w)[4])
{
    const uint4 unit = pl_quad_transpose(w[0], w[1], w[2], w[3]);
    const int c = column + 8 * ((int)threadIdx.x % 4);
    if (row < m && c < n) *reinterpret_cast<uint4 *>(to + row * ld + c) = unit;
}

/* row: the thread's first; column: the tile's. Results in bf16: the product is rounded before anything
 * follows, as gemm leaves it. */
template <int WIDTH, int KIND, class FETCHED>
__device__ __forceinline__ void finish_bf16(const rows_params &p, const float (&acc)[WIDTH / 2],
                                            const FETCHED &with, const float *bias, int matrix, int row,
                                            int column)
{
    __nv_bfloat16 *Y = (__nv_bfloat16 *)p.Y + matrix * p.bsy, *S = (__nv_bfloat16 *)p.S + matrix * p.bss;
    const int t = (int)threadIdx.x % 4;
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int u = 0; u < WIDTH / 32; u++) {
            uint32_t y[4], s[4];
            uint4 f = make_uint4(0, 0, 0, 0);
            if constexpr (KIND == FACTOR)
                f = pl_quad_transpose(with.unit[h][u].x, with.unit[h][u].y, with.unit[h][u].z,
                                      with.unit[h][u].w);
            const uint32_t factor[4] = {f.x, f.y, f.z, f.w};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int j = 4 * u + i;
                y[i] = pl_pack(acc[4 * j + 2 * h], acc[4 * j + 2 * h + 1]), s[i] = 0;
                if constexpr (KIND == FACTOR)
                    y[i] = pl_pack(pl_low(y[i]) * pl_low(factor[i]), pl_high(y[i]) * pl_high(factor[i]));
                else if (p.bias || KIND == GELU) {
                    const float2 b =
                        p.bias ? *reinterpret_cast<const float2 *>(bias + 8 * j + 2 * t) : make_float2(0, 0);
                    float low = pl_low(y[i]) + b.x, high = pl_high(y[i]) + b.y;
                    if constexpr (KIND == GELU) {
                        float slope[2];
                        low = gelu_of(low, &slope[0]), high = gelu_of(high, &slope[1]);
                        s[i] = pl_pack(slope[0], slope[1]);
                    }
                    y[i] = pl_pack(low, high);
                }
            }
            store_units(Y, p.ldy, row + 8 * h, column + 32 * u, p.m, p.n, y);
            if (KIND == GELU && p.S) store_units(S, p.lds, row + 8 * h, column + 32 * u, p.m, p.n, s);
        }
}

template <int WIDTH, int KIND, class FETCHED>
__device__ __forceinline__ void finish_f32(const rows_params &p, const float (&acc)[WIDTH / 2],
                                           const FETCHED &with, const float *bias, int matrix, int row,
                                           int column)
{
    float *Y = (float *)p.Y + matrix * p.bsy;
    const int t = (int)threadIdx.x % 4;
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int j = 0; j < WIDTH / 8; j++) {
            const int r = row + 8 * h, c = column + 8 * j + 2 * t;
            float2 y = make_float2(acc[4 * j + 2 * h], acc[4 * j + 2 * h + 1]);
            if constexpr (KIND == ADD) y.x += with.pair[h][j].x, y.y += with.pair[h][j].y;
            if (p.bias) {
                const float2 b = *reinterpret_cast<const float2 *>(bias + 8 * j + 2 * t);
                y.x += b.x, y.y += b.y;
            }
            if (r < p.m && c < p.n) *reinterpret_cast<float2 *>(Y + r * p.ldy + c) = y;
        }
}

/* ---- the walk -------------------------------------------------------------------------------------- */

struct work { /* of a block: the matrix, its slice of columns, and which of the walkers over the rows it is */
    int matrix, slice, walker;
};

/* One thread: op(B)'s columns, then A, tile after tile. TB: B's rows run along k (gemm's tb 0). */
template <int WIDTH, int TB>
__device__ __forceinline__ void produce(const rows_params &p, uint32_t factor, pl_ring ring, uint32_t here,
                                        work w)
{
    const int za = p.a_many ? w.matrix : 0, zb = p.b_many ? w.matrix : 0;
    int s = 0;
    uint32_t parity = 1; /* of fresh barriers the phase before the first counts as over */
    pl_tma_prefetch(&p.A);
    pl_mbar_expect(here, (uint32_t)(p.k_blocks * WIDTH * DEPTH * 2));
    for (int k = 0; k < p.k_blocks; k++) {
        const uint32_t to = factor + (uint32_t)(k * WIDTH * DEPTH * 2);
        if (!TB) pl_tma_load(to, &p.B, here, k * DEPTH, w.slice * WIDTH, zb);
        else
            for (int panel = 0; panel < WIDTH / 64; panel++)
                pl_tma_load(to + (uint32_t)panel * 8192, &p.B, here, w.slice * WIDTH + panel * 64, k * DEPTH,
                            zb);
    }
    for (int tile = w.walker; tile < p.tiles; tile += p.walkers)
        for (int k = 0; k < p.k_blocks; k++) {
            pl_mbar_wait(ring.empty + 8 * s, parity);
            pl_mbar_expect(ring.full + 8 * s, STAGE);
            pl_tma_load(ring.stages + (uint32_t)(s * STAGE), &p.A, ring.full + 8 * s, k * DEPTH, tile * TILE,
                        za);
            if (++s == p.stages) s = 0, parity ^= 1;
        }
}

template <int WIDTH, int TB, int KIND, int F32>
__device__ __forceinline__ void consume(const rows_params &p, uint32_t factor, pl_ring ring, uint32_t here,
                                        uint32_t turns, const float *bias, work w)
{
    constexpr int GROUPS = groups_of(WIDTH, KIND, F32);
    const int group = (int)threadIdx.x / 128, thread = (int)threadIdx.x % 128;
    int turn = 0, s = 0;
    uint32_t parity = 0, waited = group == 0; /* the first has its turn at once */
    pl_mbar_wait(here, 0);
    for (int tile = w.walker; tile < p.tiles; tile += p.walkers, turn = (turn + 1) % GROUPS) {
        if (turn != group) { /* another warpgroup's: its stages are passed over */
            for (s += p.k_blocks; s >= p.stages; s -= p.stages) parity ^= 1;
            continue;
        }
        const int row = tile * TILE + thread / 32 * 16 + thread % 32 / 4, column = w.slice * WIDTH;
        typename fetched_of<KIND, WIDTH>::type with;
        float acc[WIDTH / 2];
        int before = 0;
        if constexpr (KIND == ADD)
            with.fetch((const float *)p.D + w.matrix * p.bsd, p.ldd, row, column, p.m, p.n);
        if constexpr (KIND == FACTOR)
            with.fetch((const __nv_bfloat16 *)p.D + w.matrix * p.bsd, p.ldd, row, column, p.m, p.n);
        /* a phase of a stage can be waited for only when all before it are over: the turns before are */
        pl_mbar_wait(turns + 8 * group, waited);
        waited ^= 1;
        for (int k = 0; k < p.k_blocks; k++) {
            const uint64_t a = pl_wgmma_desc(ring.stages + (uint32_t)(s * STAGE));
            const uint32_t b = factor + (uint32_t)(k * WIDTH * DEPTH * 2);
            pl_mbar_wait(ring.full + 8 * s, parity);
            pl_wgmma_fence();
#pragma unroll
            for (int i = 0; i < DEPTH / 16; i++)
                pl_wgmma<WIDTH>::template product<0, TB>(acc, a + 2 * i,
                                                         TB ? pl_wgmma_desc(b + (uint32_t)i * 2048, 8192)
                                                            : pl_wgmma_desc(b) + 2 * i,
                                                         (k | i) != 0);
            pl_wgmma_commit();
            pl_wgmma_wait<1>();
            if (k && thread == 0) pl_mbar_arrive(ring.empty + 8 * before);
            before = s;
            if (++s == p.stages) s = 0, parity ^= 1;
        }
        pl_wgmma_wait<0>();
        if (thread == 0) {
            pl_mbar_arrive(ring.empty + 8 * before);
            pl_mbar_arrive(turns + 8 * ((group + 1) % GROUPS));
        }
        if constexpr (F32) finish_f32<WIDTH, KIND>(p, acc, with, bias, w.matrix, row, column);
        else finish_bf16<WIDTH, KIND>(p, acc, with, bias, w.matrix, row, column);
    }
}

template <int WIDTH, int TB, int KIND, int F32>
__global__ void __launch_bounds__(threads_of(WIDTH, KIND, F32), 1)
    rows_kernel(const __grid_constant__ rows_params p)
{
    extern __shared__ uint8_t memory[];
    const uint32_t base = (pl_smem(memory) + 1023) & ~1023u, factor = base + 2048,
                   stages = factor + (uint32_t)(p.k_blocks * WIDTH * DEPTH * 2);
    const uint32_t full = base, empty = full + 8 * STAGES_MAX, here = empty + 8 * STAGES_MAX;
    float *bias = reinterpret_cast<float *>(memory + (base - pl_smem(memory)) + 512);
    const int slice = (int)blockIdx.x % p.slices, walker = (int)blockIdx.x / p.slices,
              matrix = (int)blockIdx.y;
    if (threadIdx.x == 0) {
        for (int s = 0; s < p.stages; s++) {
            pl_mbar_init(full + 8 * s, 1);
            pl_mbar_init(empty + 8 * s, 1);
        }
        for (int i = 0; i < 1 + groups_of(WIDTH, KIND, F32); i++)
            pl_mbar_init(here + 8 * i, 1); /* and the turns */
        pl_mbar_init_done();
    }
    __syncthreads();
    pl_kernel_begin();
    if (p.bias && threadIdx.x < WIDTH) {
        const int c = slice * WIDTH + (int)threadIdx.x;
        float b = 0;
        if (c < p.n)
            b = p.bias_bf16 ? __bfloat162float(((const __nv_bfloat16 *)p.bias)[matrix * p.bsb + c])
                            : ((const float *)p.bias)[matrix * p.bsb + c];
        bias[threadIdx.x] = b;
    }
    __syncthreads();
    const pl_ring ring = {stages, full, empty};
    const work w = {matrix, slice, walker};
    if (threadIdx.x < 128 * groups_of(WIDTH, KIND, F32))
        consume<WIDTH, TB, KIND, F32>(p, factor, ring, here, here + 8, bias, w);
    else if (threadIdx.x % 32 == 0) produce<WIDTH, TB>(p, factor, ring, here, w);
}

/* ---- host ------------------------------------------------------------------------------------------ */

static int64_t over(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int fits(int width, int64_t k)
{
    return over(k, DEPTH) * DEPTH * width * 2 + 4 * STAGE + REST <= SMEM_LIMIT;
}

/* Columns of a block, whose part of op(B) fits beside four stages; 0 where none does. Narrow ones leave
 * registers for four warpgroups; B's rows along k want whole panels of 64 columns. */
static int width_for(int64_t n, int64_t k, int tb)
{
    int width = n <= 64 ? 64 : tb ? 96 : n > 128 && n <= 192 && fits(192, k) ? 192 : 128;
    if (!fits(width, k)) width = 64;
    return fits(width, k) ? width : 0;
}

static int rows_aligned(const pl_mat &m)
{
    const int64_t unit = 16 / (int64_t)polar_dtype_size(m.dtype);
    return (uintptr_t)m.data % 16 == 0 && m.rs % unit == 0 && (m.batch <= 1 || m.bs % unit == 0);
}

/* Blocks that share a slice of columns, each with its tiles of rows: as many as end soonest. A block first
 * fetches its part of op(B), which takes as long as a few tiles; one at a time is on a multiprocessor. */
static int walkers_for(int64_t tiles, int64_t slices, int64_t multiprocessors)
{
    const int64_t fetch = 3, most = over(tiles, 2);
    int64_t best = 1, least = INT64_MAX;
    for (int64_t w = 1; w <= most && w <= multiprocessors; w++) {
        const int64_t time = over(slices * w, multiprocessors) * (over(tiles, w) + fetch);
        if (time < least) least = time, best = w;
    }
    return (int)best;
}

#define MANY_ROWS 1024
#define MOST_K    1024
#define MOST_N    1024

int pl_hopper_rows_suits(const pl_args_gemm_act *a)
{
    const int64_t m = a->Y.rows, n = a->Y.cols, k = a->A.cols;
    const int f32 = a->Y.dtype == POLAR_DTYPE_F32;
    if (a->A.dtype != POLAR_DTYPE_BF16 || a->B.dtype != POLAR_DTYPE_BF16 ||
        (a->Y.dtype != POLAR_DTYPE_BF16 && !f32))
        return 0;
    if (m < MANY_ROWS || m < 4 * n || n > MOST_N || n < 32 || k > MOST_K || k < 16 || n % 8 || k % 8)
        return 0;
    if (m > INT32_MAX / 2 || a->Y.batch > 65535 || !width_for(n, k, a->tb != 0)) return 0;
    if (a->D.data && (!f32 || a->D.dtype != POLAR_DTYPE_F32 || !rows_aligned(a->D))) return 0;
    return rows_aligned(a->Y) && rows_aligned(a->A) && rows_aligned(a->B);
}

int pl_hopper_rows_whole(const pl_args_gemm_act *a)
{
    const int f32 = a->Y.dtype == POLAR_DTYPE_F32;
    if (a->F.data) return !f32 && !a->D.data && a->F.dtype == POLAR_DTYPE_BF16 && rows_aligned(a->F);
    if (a->b.data && a->b.dtype != POLAR_DTYPE_F32 && a->b.dtype != POLAR_DTYPE_BF16) return 0;
    if (a->S.data && (a->S.dtype != POLAR_DTYPE_BF16 || !rows_aligned(a->S))) return 0;
    return a->act == PL_ACT_NONE ? !a->S.data : a->act == PL_ACT_GELU && !f32;
}

template <int WIDTH, int TB, int KIND, int F32>
static cudaError_t start(dim3 grid, int bytes, cudaStream_t stream, const rows_params &p)
{
    const dim3 block(threads_of(WIDTH, KIND, F32));
    return launch_early(rows_kernel<WIDTH, TB, KIND, F32>, grid, block, bytes, stream, p);
}

template <int WIDTH, int TB>
static cudaError_t launch(const pl_hopper_device *dev, cudaStream_t stream, const pl_args_gemm_act *a)
{
    rows_params p = {};
    const pl_mat &second = a->F.data ? a->F : a->D;
    const int f32 = a->Y.dtype == POLAR_DTYPE_F32;
    const int kind = a->F.data ? FACTOR : a->act == PL_ACT_GELU ? GELU : a->D.data ? ADD : PLAIN;
    p.Y = a->Y.data, p.ldy = a->Y.rs, p.bsy = a->Y.bs;
    p.S = a->S.data, p.lds = a->S.rs, p.bss = a->S.bs;
    p.D = second.data, p.ldd = second.rs, p.bsd = second.batch > 1 ? second.bs : 0;
    p.bias = a->b.data, p.bsb = a->b.batch > 1 ? a->b.bs : 0, p.bias_bf16 = a->b.dtype == POLAR_DTYPE_BF16;
    p.m = (int)a->Y.rows, p.n = (int)a->Y.cols;
    p.k_blocks = (int)over(a->A.cols, DEPTH), p.tiles = (int)over(p.m, TILE),
    p.slices = (int)over(p.n, WIDTH);
    p.a_many = a->A.batch > 1 && a->A.bs > 0, p.b_many = a->B.batch > 1 && a->B.bs > 0;
    const int kept = p.k_blocks * WIDTH * DEPTH * 2, room = (SMEM_LIMIT - REST - kept) / STAGE;
    p.stages = room < STAGES_MAX ? room : STAGES_MAX;
    p.walkers = walkers_for(p.tiles, p.slices * a->Y.batch, dev->multiprocessors);
    if (!map_matrix(&p.A, dev, a->A, DEPTH, TILE) || !map_matrix(&p.B, dev, a->B, 64, TB ? 64 : WIDTH))
        return cudaErrorInvalidValue;
    const dim3 grid((unsigned)(p.slices * p.walkers), (unsigned)a->Y.batch);
    const int bytes = REST + kept + p.stages * STAGE;
    if (f32) {
        if (kind == ADD) return start<WIDTH, TB, ADD, 1>(grid, bytes, stream, p);
        return start<WIDTH, TB, PLAIN, 1>(grid, bytes, stream, p);
    }
    if (kind == GELU) return start<WIDTH, TB, GELU, 0>(grid, bytes, stream, p);
    if (kind == FACTOR) return start<WIDTH, TB, FACTOR, 0>(grid, bytes, stream, p);
    return start<WIDTH, TB, PLAIN, 0>(grid, bytes, stream, p);
}

cudaError_t pl_hopper_rows(const pl_hopper_device *dev, cudaStream_t stream, const pl_args_gemm_act *a)
{
    const int width = width_for(a->Y.cols, a->A.cols, a->tb != 0);
    if (a->tb) return width == 96 ? launch<96, 0>(dev, stream, a) : launch<64, 0>(dev, stream, a);
    if (width == 192) return launch<192, 1>(dev, stream, a);
    return width == 128 ? launch<128, 1>(dev, stream, a) : launch<64, 1>(dev, stream, a);
}
