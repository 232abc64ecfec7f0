/* cuda_hopper.cu -- C = alpha A B^T + beta D, symmetric, with Hopper's copy engine and tensor cores: half is
 * computed.
 *
 * A block is one producer warpgroup (one thread of it loads) and two consumer warpgroups of 64 x WIDTH
 * results each; a grid of as many blocks as fit walks over the tiles. A tile's factors come 64 k at a time
 * through a ring of stages: full[s] completes when both tiles have come, empty[s] when both consumers are
 * through with them.
 *
 * A D of C's format is copied to the consumers' staging buffer while the factors are multiplied; results
 * replace it there and leave from there, 16 bytes a thread. A D in f32 is read where it is added. Tiles are
 * counted from the right edge, so that all rows of tiles have one grid of columns. Direct stores: from the
 * diagonal square of its row of tiles on; mirrored ones: beyond that square. So every element is stored once.
 * Of A A^T (i, j) and (j, i) of the square are equal because they are the same sum of the same products; of
 * other products they are what was computed.
 *
 * Kernels start while the one before them ends (programmatic dependent launch), and wait for it before they
 * read.
 */
#include "cuda_hopper.h"

#include "cuda_hopper.cuh"

#define ROWS         128 /* of a block's tile */
#define DEPTH        64  /* k of a stage: 128 bytes a row */
#define THREADS      384
#define SMEM_LIMIT   232448
#define STAGES_MAX   8
#define MIRROR_PITCH (2 * 64 + 16)

typedef struct {
    CUtensorMap A, B;
    void *C;
    const void *D;
    int64_t ldc, ldd, bsc, bsd;
    int m, tiles, rows, batch, k_blocks, group; /* tiles and rows of tiles of one matrix */
    int d_f32;
    float alpha, beta;
} product_params;

template <int WIDTH> struct shape {
    static constexpr int A_BYTES = ROWS * DEPTH * 2, B_BYTES = WIDTH * DEPTH * 2, STAGE = A_BYTES + B_BYTES;
    /* an odd number of 16 bytes: no two of 8 rows share a bank */
    static constexpr int PITCH = WIDTH * 2 + 16;
    static constexpr int DIRECT = 64 * PITCH, MIRROR = WIDTH * MIRROR_PITCH;
    static constexpr int STAGING = DIRECT > MIRROR ? DIRECT : MIRROR; /* of one warpgroup */
    static constexpr int FIT = (SMEM_LIMIT - 1024 - 2 * STAGES_MAX * 8 - 2 * STAGING) / STAGE;
    static constexpr int STAGES = FIT > STAGES_MAX ? STAGES_MAX : FIT;
    static constexpr int BYTES = 1024 + STAGES * STAGE + 2 * STAGING + 2 * STAGES_MAX * 8;
    static_assert(WIDTH % 16 == 0 && STAGES >= 3);
};

/* ---- tiles -------------------------------------------------------------------------------------- */

typedef struct {
    int matrix, row, column; /* the tile's first row and column; the column may be negative */
} tile;

/* Tiles that row i of tiles needs, counted from the right edge. */
template <int WIDTH> __device__ __forceinline__ int columns_of(const product_params &p, int i)
{
    return (p.m - i * ROWS + WIDTH - 1) / WIDTH;
}

/* Tile t: groups of rows of tiles one after the other, each column by column as far as all its rows go, for
 * L2's sake. */
template <int WIDTH> __device__ __forceinline__ tile tile_at(const product_params &p, int t)
{
    tile r;
    int i = 0, j;
    r.matrix = t / p.tiles;
    t -= r.matrix * p.tiles;
    for (;; i += p.group) {
        int last = min(i + p.group, p.rows), all = 0;
        for (int s = i; s < last; s++) all += columns_of<WIDTH>(p, s);
        if (t >= all) {
            t -= all;
            continue;
        }
        int common = columns_of<WIDTH>(p, last - 1), height = last - i;
        if (t < common * height) {
            j = t / height;
            i += t - j * height;
        } else {
            t -= common * height;
            for (;; i++) {
                int more = columns_of<WIDTH>(p, i) - common;
                if (t < more) break;
                t -= more;
            }
            j = common + t;
        }
        break;
    }
    r.row = i * ROWS;
    r.column = p.m - (j + 1) * WIDTH;
    return r;
}

/* ---- producer ----------------------------------------------------------------------------------- */

template <int WIDTH>
__device__ __forceinline__ void produce(const product_params &p, uint32_t stages, uint32_t full,
                                        uint32_t empty)
{
    using S = shape<WIDTH>;
    int s = 0;
    uint32_t parity = 1; /* of fresh barriers the phase before the first counts as over */
    for (int t = blockIdx.x; t < p.tiles * p.batch; t += gridDim.x) {
        tile at = tile_at<WIDTH>(p, t);
        for (int kb = 0; kb < p.k_blocks; kb++) {
            uint32_t bar = full + 8 * s, a = stages + s * S::STAGE;
            pl_mbar_wait(empty + 8 * s, parity);
            pl_mbar_expect(bar, S::STAGE);
            pl_tma_load(a, &p.A, bar, kb * DEPTH, at.row, at.matrix);
            pl_tma_load(a + S::A_BYTES, &p.B, bar, kb * DEPTH, at.column, at.matrix);
            if (++s == S::STAGES) s = 0, parity ^= 1;
        }
    }
}

/* ---- consumers ---------------------------------------------------------------------------------- */

/* D of the elements (r, c), (r, c + 1), or zeros where they are none of this tile's. */
__device__ __forceinline__ float2 addend_f32(const product_params &p, const float *D, int r, int c,
                                             int direct_from)
{
    if (r >= p.m || c < direct_from || c >= p.m) return make_float2(0, 0);
    return *reinterpret_cast<const float2 *>(D + r * p.ldd + c);
}

/* From the sums of a warpgroup, whose rows of the tile `at` begin at `row`, to C. */
template <class T, int WIDTH>
__device__ __forceinline__ void finish(const product_params &p, float (&acc)[WIDTH / 2], uint32_t staging,
                                       int thread, int bar, tile at, int row)
{
    const int matrix = at.matrix, column = at.column, direct_from = at.row, mirror_from = at.row + ROWS;
    using S = shape<WIDTH>;
    using pair = pl_pair_of<T>;
    constexpr int CHUNKS = WIDTH / 8; /* of 16 bytes */
    T *C = (T *)p.C + matrix * p.bsc;
    const float *wide_d = p.D && p.d_f32 ? (const float *)p.D + matrix * p.bsd : nullptr;
    int warp = thread / 32, lane = thread % 32, staged_d = p.D && !p.d_f32;
    uint32_t own = staging + (uint32_t)((16 * warp + lane / 4) * S::PITCH + 4 * (lane % 4));
    uint32_t packed[WIDTH / 4];
    pl_copy_wait();
    pl_group_sync(bar);
#pragma unroll
    for (int j = 0; j < CHUNKS; j++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t at = own + (uint32_t)(h * 8 * S::PITCH + j * 16);
            int r = row + 16 * warp + lane / 4 + 8 * h, c = column + 8 * j + 2 * (lane % 4);
            float2 d = staged_d ? pair::wide(pl_lds(at)) : make_float2(0, 0);
            if (wide_d) d = addend_f32(p, wide_d, r, c, direct_from);
            packed[2 * j + h] = pair::narrow(fmaf(p.alpha, acc[4 * j + 2 * h], p.beta * d.x),
                                             fmaf(p.alpha, acc[4 * j + 2 * h + 1], p.beta * d.y));
            pl_sts(at, packed[2 * j + h]);
        }
    pl_group_sync(bar);
#pragma unroll 4
    for (int i = thread; i < 64 * CHUNKS; i += 128) {
        int r = i / CHUNKS, c = column + i % CHUNKS * 8;
        uint32_t from = staging + (uint32_t)(r * S::PITCH + i % CHUNKS * 16);
        if (row + r < p.m && c >= direct_from && c < p.m)
            *reinterpret_cast<uint4 *>(C + (row + r) * p.ldc + c) = pl_lds16(from);
    }
    if (column + WIDTH > mirror_from) {
        uint32_t to =
            staging + (uint32_t)((lane / 16 * 8 + lane % 8) * MIRROR_PITCH + 32 * warp + lane / 8 % 2 * 16);
        pl_group_sync(bar);
#pragma unroll
        for (int j = 0; j < CHUNKS; j += 2)
            pl_stm4_trans(to + j * 8 * MIRROR_PITCH, packed[2 * j], packed[2 * j + 1], packed[2 * j + 2],
                          packed[2 * j + 3]);
        pl_group_sync(bar);
#pragma unroll 4
        for (int i = thread; i < WIDTH * 8; i += 128) {
            int c = column + i / 8, r = row + i % 8 * 8;
            uint32_t from = staging + (uint32_t)(i / 8 * MIRROR_PITCH + i % 8 * 16);
            if (c >= mirror_from && c < p.m && r < p.m)
                *reinterpret_cast<uint4 *>(C + c * p.ldc + r) = pl_lds16(from);
        }
    }
    pl_group_sync(bar);
}

/* Begins to copy D's part of the warpgroup's tile to the staging buffer. */
template <class T, int WIDTH>
__device__ __forceinline__ void ask_for_addend(const product_params &p, uint32_t staging, int thread, tile at,
                                               int row)
{
    constexpr int CHUNKS = WIDTH / 8;
    const T *D = (const T *)p.D + at.matrix * p.bsd;
    for (int i = thread; i < 64 * CHUNKS; i += 128) {
        int r = i / CHUNKS, j = i % CHUNKS, c = at.column + 8 * j;
        if (row + r < p.m && c >= at.row && c < p.m)
            pl_copy16(staging + (uint32_t)(r * shape<WIDTH>::PITCH + j * 16), D + (row + r) * p.ldd + c);
    }
}

template <class T, int WIDTH>
__device__ __forceinline__ void consume(const product_params &p, uint32_t stages, uint32_t staging,
                                        uint32_t full, uint32_t empty)
{
    using S = shape<WIDTH>;
    int group = (int)threadIdx.x / 128 - 1, thread = (int)threadIdx.x % 128, bar = group + 1, s = 0;
    uint32_t parity = 0;
    float acc[WIDTH / 2];
    staging += (uint32_t)(group * S::STAGING);
    for (int t = blockIdx.x; t < p.tiles * p.batch; t += gridDim.x) {
        tile at = tile_at<WIDTH>(p, t);
        int row = at.row + group * 64, before = 0;
        if (p.D && !p.d_f32) ask_for_addend<T, WIDTH>(p, staging, thread, at, row);
        for (int kb = 0; kb < p.k_blocks; kb++) {
            uint32_t a = stages + (uint32_t)(s * S::STAGE);
            uint64_t da = pl_wgmma_desc(a + (uint32_t)(group * 64 * 128)), db = pl_wgmma_desc(a + S::A_BYTES);
            pl_mbar_wait(full + 8 * s, parity);
            pl_wgmma_fence();
#pragma unroll
            for (int k = 0; k < DEPTH / 16; k++)
                pl_wgmma<WIDTH>::template product<0, 0, T>(acc, da + 2 * k, db + 2 * k, (kb | k) != 0);
            pl_wgmma_commit();
            pl_wgmma_wait<1>();
            if (kb && thread == 0) pl_mbar_arrive(empty + 8 * before);
            before = s;
            if (++s == S::STAGES) s = 0, parity ^= 1;
        }
        pl_wgmma_wait<0>();
        if (thread == 0) pl_mbar_arrive(empty + 8 * before);
        finish<T, WIDTH>(p, acc, staging, thread, bar, at, row);
    }
}

template <class T, int WIDTH>
__global__ void __launch_bounds__(THREADS, 1) product(const __grid_constant__ product_params p)
{
    using S = shape<WIDTH>;
    extern __shared__ uint8_t memory[];
    uint32_t stages = (pl_smem(memory) + 1023) & ~1023u, staging = stages + S::STAGES * S::STAGE;
    uint32_t full = staging + 2 * S::STAGING, empty = full + 8 * STAGES_MAX;
    if (threadIdx.x == 0) {
        pl_tma_prefetch(&p.A), pl_tma_prefetch(&p.B); /* while the kernel before this one ends */
        for (int s = 0; s < S::STAGES; s++) {
            pl_mbar_init(full + 8 * s, 1);
            pl_mbar_init(empty + 8 * s, 2);
        }
        pl_mbar_init_done();
    }
    __syncthreads();
    pl_kernel_begin();
    if (threadIdx.x < 128) {
        pl_registers_fewer<40>();
        if (threadIdx.x == 0) produce<WIDTH>(p, stages, full, empty);
    } else {
        pl_registers_more<232>();
        consume<T, WIDTH>(p, stages, staging, full, empty);
    }
}

/* ---- host --------------------------------------------------------------------------------------- */

typedef CUresult (*encode_function)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                                    const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                                    const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                                    CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static encode_function encoder_find(void)
{
    void *f = nullptr;
    cudaDriverEntryPointQueryResult how;
#if CUDART_VERSION >= 12050
    cudaError_t st =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault, &how);
#else
    cudaError_t st = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &f, cudaEnableDefault, &how);
#endif
    return st == cudaSuccess && how == cudaDriverEntryPointSuccess ? (encode_function)f : nullptr;
}

static int attribute(cudaDeviceAttr which, int device)
{
    int v;
    return cudaDeviceGetAttribute(&v, which, device) == cudaSuccess ? v : 0;
}

pl_hopper_device pl_hopper_open(void)
{
    pl_hopper_device none = {}, dev = {};
    int device;
    if (cudaGetDevice(&device) != cudaSuccess) return none;
    if (attribute(cudaDevAttrComputeCapabilityMajor, device) != 9) return none;
    if (attribute(cudaDevAttrComputeCapabilityMinor, device) != 0) return none;
    dev.multiprocessors = attribute(cudaDevAttrMultiProcessorCount, device);
    dev.encode = (void *)encoder_find();
    return dev.encode ? dev : none;
}

static int aligned(const void *data, int64_t rows, int64_t ld, int64_t bs, int64_t batch, int64_t unit)
{
    return (uintptr_t)data % 16 == 0 && ld % unit == 0 && (batch == 1 || (bs % unit == 0 && bs >= rows * ld));
}

int pl_hopper_suits(const pl_hopper_product *p)
{
    int64_t most = INT32_MAX / 4;
    if (p->m <= 0 || p->k <= 0 || p->batch <= 0 || p->m % 8 || p->k % 8 || p->m > most || p->k > most)
        return 0;
    if (p->batch * (p->m / 64 + 1) * (p->m / 64 + 1) > most) return 0; /* tiles are counted by an int */
    if (p->D && (p->D == p->C || !aligned(p->D, p->m, p->ldd, p->bsd, p->batch, p->d_f32 ? 4 : 8))) return 0;
    return aligned(p->C, p->m, p->ldc, p->bsc, p->batch, 8) &&
           aligned(p->A, p->m, p->lda, p->bsa, p->batch, 8) &&
           aligned(p->B, p->m, p->ldb, p->bsb, p->batch, 8);
}

/* A factor, (batch, m, k) row-major, in boxes of 64 columns by `box` rows, swizzled. */
static int map_make(CUtensorMap *map, const pl_hopper_device *dev, const pl_hopper_product *p,
                    const void *data, int64_t ld, int64_t bs, int box)
{
    encode_function encode = (encode_function)dev->encode;
    CUtensorMapDataType type = p->half ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    cuuint64_t size[3] = {(cuuint64_t)p->k, (cuuint64_t)p->m, (cuuint64_t)p->batch};
    cuuint64_t stride[2] = {(cuuint64_t)ld * 2, (cuuint64_t)(p->batch > 1 ? bs : p->m * ld) * 2};
    cuuint32_t extent[3] = {DEPTH, (cuuint32_t)box, 1}, step[3] = {1, 1, 1};
    return encode(map, type, 3, (void *)data, size, stride, extent, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
                  CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

static int64_t over(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Tiles of one matrix. */
static int64_t tile_count(int64_t m, int width)
{
    int64_t sum = 0;
    for (int64_t i = 0; i * ROWS < m; i++) sum += over(m - i * ROWS, width);
    return sum;
}

template <class T, int WIDTH>
static cudaError_t launch(const pl_hopper_device *dev, cudaStream_t stream, const pl_hopper_product *q,
                          int group)
{
    using S = shape<WIDTH>;
    product_params p = {};
    if (!map_make(&p.A, dev, q, q->A, q->lda, q->bsa, ROWS)) return cudaErrorInvalidValue;
    if (!map_make(&p.B, dev, q, q->B, q->ldb, q->bsb, WIDTH)) return cudaErrorInvalidValue;
    p.C = q->C, p.D = q->D;
    p.ldc = q->ldc, p.ldd = q->ldd, p.bsc = q->bsc, p.bsd = q->bsd;
    p.m = (int)q->m, p.batch = (int)q->batch, p.k_blocks = (int)over(q->k, DEPTH);
    p.rows = (int)over(q->m, ROWS), p.tiles = (int)tile_count(q->m, WIDTH);
    p.group = group, p.d_f32 = q->d_f32;
    p.alpha = q->alpha, p.beta = q->D ? q->beta : 0;

    auto *kernel = product<T, WIDTH>;
    cudaError_t st = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::BYTES);
    if (st != cudaSuccess) return st;
    int64_t wanted = (int64_t)p.tiles * p.batch, most = dev->multiprocessors;
    cudaLaunchAttribute early = {};
    cudaLaunchConfig_t config = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3((unsigned)(wanted < most ? wanted : most));
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = S::BYTES;
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, kernel, p);
}

typedef cudaError_t (*launch_function)(const pl_hopper_device *, cudaStream_t, const pl_hopper_product *,
                                       int);

static const struct {
    int width;
    launch_function launch[2]; /* bf16, f16 */
} kernels[] = {
#define KERNEL(width)                                           \
    {                                                           \
        width,                                                  \
        {                                                       \
            launch<__nv_bfloat16, width>, launch<__half, width> \
        }                                                       \
    }
    KERNEL(64),
    KERNEL(128),
    KERNEL(160),
#undef KERNEL
};

#define KERNEL_COUNT ((int)(sizeof kernels / sizeof kernels[0]))

/* Of a measured H200 (SPEED.md): whole products of smaller matrices are as fast or faster. */
int pl_hopper_pays(int64_t m, int64_t k)
{
    return m >= 2048 || (m >= 1024 && k <= 2 * m);
}

/* Estimated microseconds on an H200: a round of tiles takes its stages, bound by what an SM takes in or by
 * its tensor cores, and its end. Of all products measured it takes the fastest of the three widths. */
static double estimate(const pl_hopper_product *p, int width, int multiprocessors)
{
    int64_t rounds = over(tile_count(p->m, width) * p->batch, multiprocessors);
    double taken_in = 0.29, multiplied = 0.00293 * width,
           stage = taken_in > multiplied ? taken_in : multiplied;
    return (double)rounds * ((double)over(p->k, DEPTH) * stage + 0.02 * width);
}

double pl_hopper_estimate(const pl_hopper_device *dev, const pl_hopper_product *p)
{
    return 1 + estimate(p, pl_hopper_plan_for(dev, p).width, dev->multiprocessors);
}

pl_hopper_plan pl_hopper_plan_for(const pl_hopper_device *dev, const pl_hopper_product *p)
{
    pl_hopper_plan best = {0, 8};
    double least = 0;
    for (int i = 0; i < KERNEL_COUNT; i++) {
        double t = estimate(p, kernels[i].width, dev->multiprocessors);
        if (!best.width || t < least) best.width = kernels[i].width, least = t;
    }
    return best;
}

cudaError_t pl_hopper_multiply(const pl_hopper_device *dev, cudaStream_t stream, const pl_hopper_product *p,
                               pl_hopper_plan plan)
{
    for (int i = 0; i < KERNEL_COUNT; i++)
        if (kernels[i].width == plan.width)
            return kernels[i].launch[p->half != 0](dev, stream, p, plan.group);
    return cudaErrorInvalidValue;
}
