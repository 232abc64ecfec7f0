/* cuda_hopper.cu -- C = alpha A B + beta D with Hopper's copy engine and tensor cores; symmetric results by half.
 *
 * A block is one producer warpgroup (one thread of it loads) and two consumer warpgroups of 64 x WIDTH results each; a grid of as many
 * blocks as fit walks over the tiles. A tile's factors come 64 k at a time through a ring of stages: full[s] completes when both tiles
 * have come, empty[s] when all consumers are through with them. In a cluster of two blocks, one above the other, each loads its own A
 * and half of the common B, which is sent to both; empty[s] then waits for the consumers of both.
 *
 * D is copied to the consumers' staging buffer while the factors are multiplied; results replace it there and leave from there,
 * 16 bytes a thread. A symmetric product's tiles are counted from the right edge, so that all rows of tiles have one grid of
 * columns. Direct stores: from the diagonal square of its row of tiles on; mirrored ones: beyond that square. So every element is
 * stored once, and (i, j) and (j, i) of the square are equal because they are the same sum of the same products.
 */
#include "cuda_hopper.h"

#include <cuda_bf16.h>

#include "cuda_hopper.cuh"

#define ROWS       128    /* of a block's tile */
#define DEPTH      64     /* k of a stage: 128 bytes a row */
#define THREADS    384
#define ROW_GROUP  8      /* rows of tiles walked together, for L2's sake */
#define SMEM_LIMIT 232448
#define STAGES_MAX 8
#define MIRROR_PITCH (2 * 64 + 16)

typedef struct {
    CUtensorMap A, B[2];                 /* B[r]: what block r of a cluster loads of it */
    __nv_bfloat16 *C;
    const __nv_bfloat16 *D;
    int64_t ldc, ldd, bsc, bsd;
    int     m, n, tiles, rows, columns, batch, k_blocks;    /* tiles, rows and columns of tiles of one matrix */
    float   alpha, beta;
    int     symmetric;
} product_params;

template <int WIDTH> struct shape {
    static constexpr int A_BYTES = ROWS * DEPTH * 2, B_BYTES = WIDTH * DEPTH * 2, STAGE = A_BYTES + B_BYTES;
    static constexpr int PITCH = WIDTH * 2 + (WIDTH / 8 % 2 ? 0 : 16);    /* an odd number of 16 bytes: no two of 8 rows share a bank */
    static constexpr int DIRECT = 64 * PITCH, MIRROR = WIDTH * MIRROR_PITCH;
    static constexpr int STAGING = DIRECT > MIRROR ? DIRECT : MIRROR;     /* of one warpgroup */
    static constexpr int FIT = (SMEM_LIMIT - 1024 - 2 * STAGES_MAX * 8 - 2 * STAGING) / STAGE;
    static constexpr int STAGES = FIT > STAGES_MAX ? STAGES_MAX : FIT;
    static constexpr int BYTES = 1024 + STAGES * STAGE + 2 * STAGING + 2 * STAGES_MAX * 8;
    static constexpr int HALF = WIDTH / 8 / 2 * 8;                        /* B's rows that the second block of a cluster loads */
};

/* ---- tiles ----------------------------------------------------------------------------------------- */

typedef struct {
    int matrix, row, column;    /* first row of the cluster's tile, first column; the column may be negative */
} tile;

/* Tiles that row i of tiles needs, counted from the right edge. */
template <int WIDTH, int HEIGHT> __device__ __forceinline__ int columns_of(const product_params &p, int i)
{
    return p.symmetric ? (p.n - i * HEIGHT + WIDTH - 1) / WIDTH : p.columns;
}

template <int WIDTH, int HEIGHT> __device__ __forceinline__ tile tile_at(const product_params &p, int t)
{
    tile r;
    int i = 0, j;
    r.matrix = t / p.tiles;
    t -= r.matrix * p.tiles;
    for (;; i += ROW_GROUP) {    /* the group of rows */
        int last = min(i + ROW_GROUP, p.rows), all = 0;
        for (int s = i; s < last; s++) all += columns_of<WIDTH, HEIGHT>(p, s);
        if (t >= all) {
            t -= all;
            continue;
        }
        int common = columns_of<WIDTH, HEIGHT>(p, last - 1), height = last - i;
        if (t < common * height) {
            j = t / height;
            i += t - j * height;
        } else {
            t -= common * height;
            for (;; i++) {
                int more = columns_of<WIDTH, HEIGHT>(p, i) - common;
                if (t < more) break;
                t -= more;
            }
            j = common + t;
        }
        break;
    }
    r.row = i * HEIGHT;
    r.column = p.symmetric ? p.n - (j + 1) * WIDTH : j * WIDTH;
    return r;
}

/* ---- producer -------------------------------------------------------------------------------------- */

template <int WIDTH, int CLUSTER, bool PLAIN>
__device__ __forceinline__ void produce(const product_params &p, uint32_t stages, uint32_t full, uint32_t empty, uint32_t rank)
{
    using S = shape<WIDTH>;
    int s = 0;
    uint32_t parity = 1;    /* of fresh barriers the phase before the first counts as over */
    pl_tma_prefetch(&p.A);
    pl_tma_prefetch(&p.B[rank]);
    for (int t = blockIdx.x / CLUSTER; t < p.tiles * p.batch; t += gridDim.x / CLUSTER) {
        tile at = tile_at<WIDTH, ROWS * CLUSTER>(p, t);
        int row = at.row + (int)rank * ROWS;
        for (int kb = 0; kb < p.k_blocks; kb++) {
            uint32_t bar = full + 8 * s, a = stages + s * S::STAGE, b = a + S::A_BYTES;
            pl_mbar_wait(empty + 8 * s, parity);
            pl_mbar_expect(bar, S::STAGE);
            pl_tma_load(a, &p.A, bar, kb * DEPTH, row, at.matrix);
            if (PLAIN) {    /* boxes of 64 columns by 64 k */
                constexpr int MINE = WIDTH / 64 / CLUSTER;
#pragma unroll
                for (int i = 0; i < MINE; i++) {
                    int box = (int)rank * MINE + i;
                    if (CLUSTER == 1) pl_tma_load(b + box * 8192, &p.B[0], bar, at.column + box * 64, kb * DEPTH, at.matrix);
                    else pl_tma_load_all(b + box * 8192, &p.B[0], bar, at.column + box * 64, kb * DEPTH, at.matrix, 3);
                }
            } else {
                if (CLUSTER == 1) pl_tma_load(b, &p.B[0], bar, kb * DEPTH, at.column, at.matrix);
                else {
                    int first = rank ? WIDTH - S::HALF : 0;
                    pl_tma_load_all(b + first * 128, &p.B[rank], bar, kb * DEPTH, at.column + first, at.matrix, 3);
                }
            }
            if (++s == S::STAGES) s = 0, parity ^= 1;
        }
    }
}

/* ---- consumers ------------------------------------------------------------------------------------- */

template <int CLUSTER> __device__ __forceinline__ void release(uint32_t bar, int lane)
{
    if (CLUSTER == 1) {
        if (lane == 0) pl_mbar_arrive(bar);
    } else {
        if (lane < CLUSTER) pl_mbar_arrive_at(bar, (uint32_t)lane);
    }
}

__device__ __forceinline__ uint32_t combine(float x, float y, float alpha, float beta, uint32_t d)
{
    __nv_bfloat162 r;
    r.x = __float2bfloat16_rn(fmaf(alpha, x, beta * __uint_as_float(d << 16)));
    r.y = __float2bfloat16_rn(fmaf(alpha, y, beta * __uint_as_float(d & 0xFFFF0000u)));
    return *reinterpret_cast<uint32_t *>(&r);
}

/* From the sums of a warpgroup to C: column j of chunks is 8 elements. */
template <int WIDTH>
__device__ __forceinline__ void finish(const product_params &p, float (&acc)[WIDTH / 2], uint32_t staging, int thread, int bar,
                                       __nv_bfloat16 *C, int row, int column, int direct_from, int mirror_from)
{
    using S = shape<WIDTH>;
    constexpr int CHUNKS = WIDTH / 8;
    int warp = thread / 32, lane = thread % 32, has_d = p.D != nullptr;
    uint32_t own = staging + (uint32_t)((16 * warp + lane / 4) * S::PITCH + 4 * (lane % 4));
    uint32_t packed[WIDTH / 4];
    pl_copy_wait();
    pl_group_sync(bar);
#pragma unroll
    for (int j = 0; j < CHUNKS; j++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t at = own + (uint32_t)(h * 8 * S::PITCH + j * 16);
            uint32_t d = has_d ? pl_lds(at) : 0;
            packed[2 * j + h] = combine(acc[4 * j + 2 * h], acc[4 * j + 2 * h + 1], p.alpha, p.beta, d);
            pl_sts(at, packed[2 * j + h]);
        }
    pl_group_sync(bar);
#pragma unroll 4
    for (int i = thread; i < 64 * CHUNKS; i += 128) {
        int r = i / CHUNKS, c = column + i % CHUNKS * 8;
        if (row + r < p.m && c >= direct_from && c < p.n)
            *reinterpret_cast<uint4 *>(C + (row + r) * p.ldc + c) = pl_lds16(staging + (uint32_t)(r * S::PITCH + i % CHUNKS * 16));
    }
    if (p.symmetric && column + WIDTH > mirror_from) {
        pl_group_sync(bar);
        uint32_t to = staging + (uint32_t)((lane / 16 * 8 + lane % 8) * MIRROR_PITCH + (16 * warp + lane / 8 % 2 * 8) * 2);
#pragma unroll
        for (int j = 0; j + 1 < CHUNKS; j += 2)
            pl_stm4_trans(to + j * 8 * MIRROR_PITCH, packed[2 * j], packed[2 * j + 1], packed[2 * j + 2], packed[2 * j + 3]);
        if (CHUNKS % 2)    /* the addresses of lanes 0 to 15 count */
            pl_stm2_trans(staging + (uint32_t)((8 * (CHUNKS - 1) + lane % 8) * MIRROR_PITCH + (16 * warp + lane / 8 % 2 * 8) * 2),
                          packed[2 * CHUNKS - 2], packed[2 * CHUNKS - 1]);
        pl_group_sync(bar);
#pragma unroll 4
        for (int i = thread; i < WIDTH * 8; i += 128) {
            int c = column + i / 8, r = row + i % 8 * 8;
            if (c >= mirror_from && c < p.n && r < p.m)
                *reinterpret_cast<uint4 *>(C + c * p.ldc + r) = pl_lds16(staging + (uint32_t)(i / 8 * MIRROR_PITCH + i % 8 * 16));
        }
    }
    pl_group_sync(bar);
}

template <int WIDTH, int CLUSTER, bool PLAIN>
__device__ __forceinline__ void consume(const product_params &p, uint32_t stages, uint32_t staging, uint32_t full, uint32_t empty,
                                        uint32_t rank)
{
    using S = shape<WIDTH>;
    int group = (int)threadIdx.x / 128 - 1, thread = (int)threadIdx.x % 128, bar = group + 1, s = 0;
    uint32_t parity = 0;
    float acc[WIDTH / 2];
    staging += (uint32_t)(group * S::STAGING);
    for (int t = blockIdx.x / CLUSTER; t < p.tiles * p.batch; t += gridDim.x / CLUSTER) {
        tile at = tile_at<WIDTH, ROWS * CLUSTER>(p, t);
        int row = at.row + (int)rank * ROWS + group * 64, direct_from = p.symmetric ? at.row : 0;
        if (p.D) {
            const __nv_bfloat16 *D = p.D + at.matrix * p.bsd;
            for (int i = thread; i < 64 * (WIDTH / 8); i += 128) {
                int r = i / (WIDTH / 8), j = i % (WIDTH / 8), c = at.column + 8 * j;
                if (row + r < p.m && c >= direct_from && c < p.n)
                    pl_copy16(staging + (uint32_t)(r * S::PITCH + j * 16), D + (row + r) * p.ldd + c);
            }
        }
        int before = 0;
        for (int kb = 0; kb < p.k_blocks; kb++) {
            uint32_t a = stages + (uint32_t)(s * S::STAGE + group * 64 * 128), b = stages + (uint32_t)(s * S::STAGE + S::A_BYTES);
            uint64_t da = pl_wgmma_desc(a, 16, 1024), db = PLAIN ? pl_wgmma_desc(b, 8192, 1024) : pl_wgmma_desc(b, 16, 1024);
            pl_mbar_wait(full + 8 * s, parity);
            pl_wgmma_fence();
#pragma unroll
            for (int k = 0; k < DEPTH / 16; k++)
                pl_wgmma<WIDTH>::template mma<PLAIN>(acc, da + 2 * k, db + (PLAIN ? 128 : 2) * k, (kb | k) != 0);
            pl_wgmma_commit();
            pl_wgmma_wait<1>();
            if (kb) release<CLUSTER>(empty + 8 * before, thread);
            before = s;
            if (++s == S::STAGES) s = 0, parity ^= 1;
        }
        pl_wgmma_wait<0>();
        release<CLUSTER>(empty + 8 * before, thread);
        finish<WIDTH>(p, acc, staging, thread, bar, p.C + at.matrix * p.bsc, row, at.column, direct_from, at.row + ROWS * CLUSTER);
    }
}

template <int WIDTH, int CLUSTER, bool PLAIN>
__global__ void __launch_bounds__(THREADS, 1) product(const __grid_constant__ product_params p)
{
    using S = shape<WIDTH>;
    extern __shared__ uint8_t memory[];
    uint32_t stages = (pl_smem(memory) + 1023) & ~1023u, staging = stages + S::STAGES * S::STAGE;
    uint32_t full = staging + 2 * S::STAGING, empty = full + 8 * STAGES_MAX, rank = CLUSTER > 1 ? pl_cluster_rank() : 0;
    if (threadIdx.x == 0) {
        for (int s = 0; s < S::STAGES; s++) {
            pl_mbar_init(full + 8 * s, 1);
            pl_mbar_init(empty + 8 * s, 2 * CLUSTER);
        }
        pl_mbar_init_done();
    }
    if (CLUSTER > 1) pl_cluster_sync();
    else __syncthreads();
    pl_kernel_begin();
    if (threadIdx.x < 128) {
        pl_registers_fewer<40>();
        if (threadIdx.x == 0) produce<WIDTH, CLUSTER, PLAIN>(p, stages, full, empty, rank);
    } else {
        pl_registers_more<232>();
        consume<WIDTH, CLUSTER, PLAIN>(p, stages, staging, full, empty, rank);
    }
    if (CLUSTER > 1) pl_cluster_sync();    /* nobody leaves while the other may still write to it */
}

/* ---- host ------------------------------------------------------------------------------------------ */

typedef CUresult (*encode_function)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *, const cuuint64_t *,
                                    const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                                    CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static encode_function encoder(void)
{
    static encode_function found;
    void *f = nullptr;
    cudaDriverEntryPointQueryResult how;
    if (found) return found;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault, &how) != cudaSuccess) return nullptr;
    if (how != cudaDriverEntryPointSuccess) return nullptr;
    return found = (encode_function)f;
}

int pl_hopper_open(void)
{
    int device, major, count;
    if (cudaGetDevice(&device) != cudaSuccess) return 0;
    if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess || major != 9) return 0;
    if (cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) != cudaSuccess) return 0;
    return encoder() ? count : 0;
}

static int aligned(const void *data, int64_t ld, int64_t bs, int64_t batch)
{
    return (uintptr_t)data % 16 == 0 && ld % 8 == 0 && (batch == 1 || bs % 8 == 0);
}

int pl_hopper_suits(const pl_hopper_product *p)
{
    int64_t most = INT32_MAX / 2;
    return p->m % 8 == 0 && p->n % 8 == 0 && p->k % 8 == 0 && p->m > 0 && p->n > 0 && p->k > 0 && p->m < most && p->n < most &&
           p->k < most && (!p->symmetric || p->m == p->n) && aligned(p->C, p->ldc, p->bsc, p->batch) &&
           aligned(p->A, p->lda, p->bsa, p->batch) && aligned(p->B, p->ldb, p->bsb, p->batch) &&
           (!p->D || (p->D != p->C && aligned(p->D, p->ldd, p->bsd, p->batch)));
}

/* (batch, rows, cols) row-major, boxes of 64 columns by `box` rows, swizzled. */
static int map_make(CUtensorMap *map, const void *data, int64_t rows, int64_t cols, int64_t ld, int64_t bs, int64_t batch, int box)
{
    cuuint64_t size[3] = {(cuuint64_t)cols, (cuuint64_t)rows, (cuuint64_t)batch};
    cuuint64_t stride[2] = {(cuuint64_t)ld * 2, (cuuint64_t)(batch > 1 ? bs : rows * ld) * 2};
    cuuint32_t extent[3] = {DEPTH, (cuuint32_t)box, 1}, step[3] = {1, 1, 1};
    return encoder()(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, (void *)data, size, stride, extent, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
                     CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

static int64_t over(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Tiles of one matrix, in clusters of `height` rows. */
static int64_t tile_count(const pl_hopper_product *p, int width, int height)
{
    int64_t sum = 0;
    if (!p->symmetric) return over(p->m, height) * over(p->n, width);
    for (int64_t i = 0; i * height < p->m; i++) sum += over(p->n - i * height, width);
    return sum;
}

template <int WIDTH, int CLUSTER, bool PLAIN>
static cudaError_t launch(cudaStream_t stream, const pl_hopper_product *q, int early, int multiprocessors)
{
    using S = shape<WIDTH>;
    product_params p = {};
    int height = ROWS * CLUSTER, ok;
    ok = map_make(&p.A, q->A, q->m, q->k, q->lda, q->bsa, q->batch, ROWS);
    if (PLAIN) ok = ok && map_make(&p.B[0], q->B, q->k, q->n, q->ldb, q->bsb, q->batch, DEPTH);
    else ok = ok && map_make(&p.B[0], q->B, q->n, q->k, q->ldb, q->bsb, q->batch, CLUSTER > 1 ? WIDTH - S::HALF : WIDTH);
    p.B[1] = p.B[0];
    if (!PLAIN && CLUSTER > 1) ok = ok && map_make(&p.B[1], q->B, q->n, q->k, q->ldb, q->bsb, q->batch, S::HALF);
    if (!ok) return cudaErrorInvalidValue;
    p.C = (__nv_bfloat16 *)q->C, p.D = (const __nv_bfloat16 *)q->D;
    p.ldc = q->ldc, p.ldd = q->ldd, p.bsc = q->bsc, p.bsd = q->bsd;
    p.m = (int)q->m, p.n = (int)q->n, p.batch = (int)q->batch, p.k_blocks = (int)over(q->k, DEPTH);
    p.rows = (int)over(q->m, height), p.columns = (int)over(q->n, WIDTH), p.tiles = (int)tile_count(q, WIDTH, height);
    p.alpha = q->alpha, p.beta = q->D ? q->beta : 0, p.symmetric = q->symmetric;

    auto *kernel = product<WIDTH, CLUSTER, PLAIN>;
    cudaError_t st = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::BYTES);
    if (st != cudaSuccess) return st;
    int64_t clusters = multiprocessors / CLUSTER, wanted = (int64_t)p.tiles * p.batch;
    cudaLaunchAttribute attr[2] = {};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)((wanted < clusters ? wanted : clusters) * CLUSTER));
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = S::BYTES;
    config.stream = stream;
    config.attrs = attr;
    attr[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
    attr[config.numAttrs++].val.clusterDim = {CLUSTER, 1, 1};
    if (early) {
        attr[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attr[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
    }
    return cudaLaunchKernelEx(&config, kernel, p);
}

#define KERNELS(X)                                                                                                       \
    X(64, 1, false) X(96, 1, false) X(128, 1, false) X(160, 1, false) X(192, 1, false) X(256, 1, false)                  \
    X(128, 2, false) X(152, 2, false) X(184, 2, false) X(256, 2, false)                                                  \
    X(64, 1, true) X(128, 1, true) X(192, 1, true) X(256, 1, true) X(128, 2, true) X(256, 2, true)

typedef cudaError_t (*launch_function)(cudaStream_t, const pl_hopper_product *, int, int);

static const struct {
    int width, cluster, plain;
    launch_function launch;
} kernels[] = {
#define X(width, cluster, plain) {width, cluster, plain, launch<width, cluster, plain>},
    KERNELS(X)
#undef X
};

#define KERNEL_COUNT ((int)(sizeof kernels / sizeof kernels[0]))

/* Estimated clocks: a wave of tiles takes what its products take on the tensor cores or its factors from L2 (64 bytes a clock for one
 * multiprocessor, 44 for each when all ask), and an end. */
static double clocks(const pl_hopper_product *p, int width, int cluster, int multiprocessors)
{
    int64_t all = tile_count(p, width, ROWS * cluster) * p->batch, slots = multiprocessors / cluster, active = all < slots ? all : slots;
    double rate = 44.0 * (double)slots / (double)active, bytes = 128.0 * (ROWS + (double)width / cluster);
    double products = 4.0 * width, from_l2 = bytes / (rate < 64 ? rate : 64), stage = products > from_l2 ? products : from_l2;
    return (double)over(all, slots) * ((double)over(p->k, DEPTH) * stage + 1000 + (p->symmetric ? 16 : 10) * width);
}

pl_hopper_plan pl_hopper_plan_for(const pl_hopper_product *p, int multiprocessors)
{
    pl_hopper_plan best = {0, 0, 1};
    double least = 0;
    for (int i = 0; i < KERNEL_COUNT; i++) {
        if (kernels[i].plain == p->symmetric) continue;
        double c = clocks(p, kernels[i].width, kernels[i].cluster, multiprocessors);
        if (!best.width || c < least) best.width = kernels[i].width, best.cluster = kernels[i].cluster, least = c;
    }
    return best;
}

cudaError_t pl_hopper_multiply(cudaStream_t stream, const pl_hopper_product *p, pl_hopper_plan plan, int multiprocessors)
{
    for (int i = 0; i < KERNEL_COUNT; i++)
        if (kernels[i].width == plan.width && kernels[i].cluster == plan.cluster && kernels[i].plain == !p->symmetric)
            return kernels[i].launch(stream, p, plan.early, multiprocessors);
    return cudaErrorInvalidValue;
}
