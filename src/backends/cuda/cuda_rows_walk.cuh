/* cuda_rows_walk.cuh -- Y = A op(B) and what follows, A of many rows, op(B) small: the kernel and its launch,
 * by plans; which plan serves which shape is cuda_hopper_gemm_act.cu's.
 *
 * One block a multiprocessor. Blocks form teams, a block of a team for each slice of WIDTH columns; a team
 * has a run of the tiles of 64 rows of all matrices, as long as any other's up to one, so that its blocks
 * read the same rows of A at about the same time. A block keeps its columns of op(B) in shared memory until
 * the run comes to the next matrix; A comes 64 k at a time through a ring of stages. One thread loads those,
 * another what is added or multiplied; two to four warpgroups take the tiles by turns, so that one multiplies
 * while the others finish (cuda_rows_finish.cuh).
 *
 * A plan: WIDTH; TB, B's rows run along k; KIND and F32, what follows; PADS, results leave by bulk stores;
 * GROUPS, warpgroups that multiply. No bit depends on it.
 */
#ifndef PL_CUDA_ROWS_WALK_CUH
#define PL_CUDA_ROWS_WALK_CUH

#include "cuda_rows_finish.cuh"
#include "device/ops.h"

#define DEPTH      64 /* k of a stage */
#define STAGE      (TILE * DEPTH * 2)
#define STAGES_MAX 16
#define HEAD       4096          /* barriers, then a bias for each warpgroup */
#define REST       (1024 + HEAD) /* alignment */
#define GROUPS_MAX 4

/* Registers of a thread that multiplies; one that loads has LOADER. Together they are no more than the block
 * had at its launch, 168, 128 or 96 a thread: who asks for more waits for ever. */
#define LOADER 40
__host__ __device__ constexpr int registers_of(int groups)
{
    return groups == 2 ? 216 : groups == 3 ? 152 : 104;
}

/* ---- the walk -------------------------------------------------------------------------------------- */

/* Barriers, 8 bytes each: of the ring; op(B) is here; a group's turn; its pad has been loaded, is free. */
struct barriers {
    uint32_t full, empty, here, turns, loaded, freed;
};

struct work { /* of a block: the slice of columns, the run of tiles */
    int slice, first, count;
};

/* ---- roles ----------------------------------------------------------------------------------------- */

/* op(B)'s columns of a matrix. TB: B's rows run along k (gemm's tb 0): panels of 64 columns, or of 32. */
template <int WIDTH, int TB>
__device__ __forceinline__ void load_factor(const rows_params &p, uint32_t factor, uint32_t here, int slice,
                                            int z)
{
    constexpr int PANEL = panel_of(WIDTH);
    pl_mbar_expect(here, (uint32_t)(p.k_blocks * WIDTH * DEPTH * 2));
    for (int k = 0; k < p.k_blocks; k++) {
        const uint32_t to = factor + (uint32_t)(k * WIDTH * DEPTH * 2);
        if (!TB) pl_tma_load(to, &p.B, here, k * DEPTH, slice * WIDTH, z);
        else
            for (int i = 0; i < WIDTH / PANEL; i++)
                pl_tma_load(to + (uint32_t)(i * PANEL * DEPTH * 2), &p.B, here, slice * WIDTH + i * PANEL,
                            k * DEPTH, z);
    }
}

/* One thread: op(B)'s columns, then A, tile after tile. */
template <int WIDTH, int TB>
__device__ __forceinline__ void produce(const rows_params &p, uint32_t factor, uint32_t stages, barriers bar,
                                        work w)
{
    int s = 0, last = 0, held = -1;
    uint32_t parity = 1; /* of fresh barriers the phase before the first counts as over */
    pl_tma_prefetch(&p.A);
    for (int i = 0; i < w.count; i++) {
        const int matrix = (w.first + i) / p.tiles, tile = (w.first + i) % p.tiles;
        if (held < 0 || (p.b_many && matrix != held)) {
            /* the stage that was filled last is given back after all products with the matrix before */
            if (held >= 0) pl_mbar_wait(bar.empty + 8 * last, last < s ? parity ^ 1 : parity);
            load_factor<WIDTH, TB>(p, factor, bar.here, w.slice, p.b_many ? matrix : 0);
            held = matrix;
        }
        for (int k = 0; k < p.k_blocks; k++) {
            pl_mbar_wait(bar.empty + 8 * s, parity);
            pl_mbar_expect(bar.full + 8 * s, STAGE);
            pl_tma_load(stages + (uint32_t)(s * STAGE), &p.A, bar.full + 8 * s, k * DEPTH, tile * TILE,
                        p.a_many ? matrix : 0);
            last = s;
            if (++s == p.stages) s = 0, parity ^= 1;
        }
    }
}

/* One thread: what is added or multiplied, into the pads of the groups whose turn it is. */
template <int WIDTH, int GROUPS, int F32>
__device__ __forceinline__ void load_pads(const rows_params &p, uint32_t pads, barriers bar, work w)
{
    constexpr int PANEL = F32 ? 32 : panel_of(WIDTH), BYTES = TILE * WIDTH * (F32 ? 4 : 2);
    pl_tma_prefetch(&p.D);
    for (int i = 0; i < w.count; i++) {
        const int matrix = (w.first + i) / p.tiles, tile = (w.first + i) % p.tiles, group = i % GROUPS;
        const uint32_t to = pads + (uint32_t)(group * BYTES), loaded = bar.loaded + 8 * group;
        pl_mbar_wait(bar.freed + 8 * group, (i / GROUPS + 1) & 1);
        pl_mbar_expect(loaded, BYTES);
        for (int k = 0; k < WIDTH / PANEL; k++)
            pl_tma_load(to + (uint32_t)(k * (BYTES / (WIDTH / PANEL))), &p.D, loaded,
                        w.slice * WIDTH + k * PANEL, tile * TILE, p.d_many ? matrix : 0);
    }
}

/* A warpgroup's own copy of its columns' biases. */
template <int WIDTH>
__device__ __forceinline__ void load_bias(const rows_params &p, float *bias, int matrix, int slice, int group)
{
    pl_group_sync(1 + group); /* those of the matrix before are used */
    for (int i = (int)threadIdx.x % 128; i < WIDTH; i += 128) {
        const int c = slice * WIDTH + i;
        float b = 0;
        if (c < p.n)
            b = p.bias_bf16 ? __bfloat162float(((const __nv_bfloat16 *)p.bias)[matrix * p.bsb + c])
                            : ((const float *)p.bias)[matrix * p.bsb + c];
        bias[i] = b;
    }
    pl_group_sync(1 + group);
}

/* The product of a tile; its stages from number `at` of all on. */
template <int WIDTH, int TB>
__device__ __forceinline__ void multiply(const rows_params &p, float (&acc)[WIDTH / 2], uint32_t factor,
                                         uint32_t stages, barriers bar, int at)
{
    constexpr int PANEL = panel_of(WIDTH);
    const int thread = (int)threadIdx.x % 128;
    int s = at % p.stages, before = 0;
    uint32_t parity = at / p.stages & 1;
    for (int k = 0; k < p.k_blocks; k++) {
        const uint64_t a = pl_wgmma_desc(stages + (uint32_t)(s * STAGE));
        const uint32_t b = factor + (uint32_t)(k * WIDTH * DEPTH * 2);
        pl_mbar_wait(bar.full + 8 * s, parity);
        pl_wgmma_fence();
#pragma unroll
        for (int i = 0; i < DEPTH / 16; i++)
            pl_wgmma<WIDTH>::template product<0, TB>(
                acc, a + 2 * i, TB ? pl_wgmma_across<PANEL>(b, i, DEPTH) : pl_wgmma_desc(b) + 2 * i,
                (k | i) != 0);
        pl_wgmma_commit();
        pl_wgmma_wait<1>();
        if (k && thread == 0) pl_mbar_arrive(bar.empty + 8 * before);
        before = s;
        if (++s == p.stages) s = 0, parity ^= 1;
    }
    pl_wgmma_wait<0>();
    if (thread == 0) pl_mbar_arrive(bar.empty + 8 * before);
}

template <int WIDTH, int TB, int KIND, int F32, int PADS, int GROUPS>
__device__ __forceinline__ void consume(const rows_params &p, uint32_t factor, uint32_t pads, uint32_t stages,
                                        barriers bar, float *bias, work w)
{
    const int group = (int)threadIdx.x / 128, thread = (int)threadIdx.x % 128, column = w.slice * WIDTH;
    const int begin = w.first / p.tiles;
    pad_place pad = {pads + (uint32_t)(group * pad_bytes(WIDTH, KIND, F32)), bar.loaded + 8 * group,
                     bar.freed + 8 * group, group, 0};
    int held = -1;
    bias += group * WIDTH;
    for (int i = group; i < w.count; i += GROUPS, pad.turn++) {
        const int matrix = (w.first + i) / p.tiles, top = (w.first + i) % p.tiles * TILE,
                  row = top + thread / 32 * 16 + thread % 32 / 4;
        typename fetched_of<KIND, WIDTH, PADS>::type with;
        row_scales<KIND> scale;
        float acc[WIDTH / 2];
        scale.fetch(p, matrix, row);
        with.fetch(p, matrix, row, column);
        if (p.bias && matrix != held) load_bias<WIDTH>(p, bias, matrix, w.slice, group), held = matrix;
        /* a phase of a stage, or of op(B), can be waited for only when all before it are over: the turns
         * before are; the first group has its turn at once */
        pl_mbar_wait(bar.turns + 8 * group, (pad.turn ^ (group == 0)) & 1);
        pl_mbar_wait(bar.here, p.b_many ? (matrix - begin) & 1 : 0);
        multiply<WIDTH, TB>(p, acc, factor, stages, bar, i * p.k_blocks);
        if (thread == 0) pl_mbar_arrive(bar.turns + 8 * ((group + 1) % GROUPS));
        if constexpr (PADS && F32) put_f32<WIDTH, KIND>(p, acc, scale, bias, pad, matrix, top, column);
        else if constexpr (PADS) put_bf16<WIDTH, KIND>(p, acc, bias, pad, matrix, top, column);
        else if constexpr (F32) finish_f32<WIDTH, KIND>(p, acc, with, scale, bias, matrix, row, column);
        else finish_bf16<WIDTH, KIND>(p, acc, with, bias, matrix, row, column);
    }
    if (PADS && thread == 0) pl_bulk_wait_read<0>(); /* the block's memory must outlast them */
}

template <int WIDTH, int TB, int KIND, int F32, int PADS, int GROUPS>
__global__ void __launch_bounds__(128 * (GROUPS + 1), 1) rows_kernel(const __grid_constant__ rows_params p)
{
    extern __shared__ uint8_t memory[];
    const uint32_t base = (pl_smem(memory) + 1023) & ~1023u, factor = base + HEAD,
                   pads = factor + (uint32_t)(p.k_blocks * WIDTH * DEPTH * 2),
                   stages = pads + (PADS ? GROUPS * pad_bytes(WIDTH, KIND, F32) : 0);
    const uint32_t each = 8 * GROUPS_MAX;
    barriers bar = {base, base + 8 * STAGES_MAX, base + 16 * STAGES_MAX, 0, 0, 0};
    bar.turns = bar.here + 8, bar.loaded = bar.turns + each, bar.freed = bar.loaded + each;
    float *bias = reinterpret_cast<float *>(memory + (base - pl_smem(memory)) + 512);
    const int team = (int)blockIdx.x / p.slices;
    work w = {(int)blockIdx.x % p.slices, (int)((int64_t)p.total * team / p.teams), 0};
    w.count = (int)((int64_t)p.total * (team + 1) / p.teams) - w.first;
    if (threadIdx.x == 0) {
        for (int s = 0; s < p.stages; s++) {
            pl_mbar_init(bar.full + 8 * s, 1);
            pl_mbar_init(bar.empty + 8 * s, 1);
        }
        pl_mbar_init(bar.here, 1);
        for (int i = 0; i < 3 * GROUPS_MAX; i++) pl_mbar_init(bar.turns + 8 * i, 1); /* and of the pads */
        pl_mbar_init_done();
    }
    __syncthreads();
    pl_kernel_begin();
    if (threadIdx.x < 128 * GROUPS) {
        pl_registers_more<registers_of(GROUPS)>();
        consume<WIDTH, TB, KIND, F32, PADS, GROUPS>(p, factor, pads, stages, bar, bias, w);
    } else {
        pl_registers_fewer<LOADER>();
        if (threadIdx.x == 128 * GROUPS) produce<WIDTH, TB>(p, factor, stages, bar, w);
        if (PADS && (adds(KIND) || KIND == FACTOR) && threadIdx.x == 128 * GROUPS + 32)
            load_pads<WIDTH, GROUPS, F32>(p, pads, bar, w);
    }
}

/* ---- host ------------------------------------------------------------------------------------------ */

static int64_t over(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Stages beside op(B)'s part and the pads. */
static int room(int width, int64_t k, int pads_bytes)
{
    const int64_t left = SMEM_LIMIT - REST - over(k, DEPTH) * DEPTH * width * 2 - pads_bytes;
    return left < STAGE ? 0 : left / STAGE < STAGES_MAX ? (int)(left / STAGE) : STAGES_MAX;
}

template <int WIDTH, int KIND, int F32, int PADS, int GROUPS> static int stages_of(int64_t k)
{
    return room(WIDTH, k, PADS ? GROUPS * pad_bytes(WIDTH, KIND, F32) : 0);
}

/* A matrix in boxes of 64 rows, as a pad's panels hold them. */
static int map_pad(CUtensorMap *map, const pl_hopper_device *dev, const pl_mat &m, int width)
{
    return map_matrix(map, dev, m, m.dtype == POLAR_DTYPE_F32 ? 32 : panel_of(width), TILE);
}

template <int WIDTH, int TB, int KIND, int F32, int PADS, int GROUPS>
static cudaError_t launch(const pl_hopper_device *dev, cudaStream_t stream, const pl_args_gemm_act *a)
{
    rows_params p = {};
    const pl_mat &second = a->F.data ? a->F : a->D;
    p.y = a->Y.data, p.ldy = a->Y.rs, p.bsy = a->Y.bs;
    p.s = a->S.data, p.lds = a->S.rs, p.bss = a->S.bs;
    p.d = second.data, p.ldd = second.rs, p.bsd = second.batch > 1 ? second.bs : 0;
    p.bias = a->b.data, p.bsb = a->b.batch > 1 ? a->b.bs : 0, p.bias_bf16 = a->b.dtype == POLAR_DTYPE_BF16;
    if (KIND == SCALED) {
        p.scale = (const float *)a->s.data, p.each = (int)(a->Y.rows / a->s.rows);
        p.ld_scale = a->s.rs, p.bs_scale = a->s.batch > 1 ? a->s.bs : 0;
    }
    p.m = (int)a->Y.rows, p.n = (int)a->Y.cols;
    p.k_blocks = (int)over(a->A.cols, DEPTH), p.tiles = (int)over(p.m, TILE);
    p.slices = (int)over(p.n, WIDTH), p.total = (int)(p.tiles * a->Y.batch);
    p.a_many = a->A.batch > 1 && a->A.bs > 0, p.b_many = a->B.batch > 1 && a->B.bs > 0;
    p.d_many = second.batch > 1 && second.bs > 0;
    p.stages = stages_of<WIDTH, KIND, F32, PADS, GROUPS>(a->A.cols);
    p.teams = dev->multiprocessors / p.slices;
    if (p.teams < 1) p.teams = 1;
    if (p.teams > p.total) p.teams = p.total;
    if (!p.stages || !map_matrix(&p.A, dev, a->A, DEPTH, TILE) ||
        !map_matrix(&p.B, dev, a->B, TB ? panel_of(WIDTH) : DEPTH, TB ? DEPTH : WIDTH))
        return cudaErrorInvalidValue;
    if (PADS && (!map_pad(&p.Y, dev, a->Y, WIDTH) || (a->S.data && !map_pad(&p.S, dev, a->S, WIDTH)) ||
                 (second.data && !map_pad(&p.D, dev, second, WIDTH))))
        return cudaErrorInvalidValue;
    const int bytes = REST + p.k_blocks * WIDTH * DEPTH * 2 + p.stages * STAGE +
                      (PADS ? GROUPS * pad_bytes(WIDTH, KIND, F32) : 0);
    return launch_early(rows_kernel<WIDTH, TB, KIND, F32, PADS, GROUPS>, dim3((unsigned)(p.slices * p.teams)),
                        dim3(128 * (GROUPS + 1)), bytes, stream, p);
}

#endif
