/* planted_races.cu -- races that give the right result in every order of threads that is tried, or that only
 * a GPU's memory would show, and beside each a twin that is right: the detector (host_race.h) must find the
 * one and say nothing of the other.
 *
 * A kernel's parameter `right` chooses the twin. Each runs in a child process; what it says is compared.
 */
#include <cuda.h>
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

#define THREADS 128 /* of a block: a warpgroup */
#define NUMBERS (8 * THREADS)

/* ---- shared memory of a block ------------------------------------------------------------------- */

/* All write the same number: right in every order, if a write is never torn. */
__global__ void same_number(float *out, int right)
{
    __shared__ int flag;
    if (!right || threadIdx.x == 0) flag = 1;
    __syncthreads();
    out[threadIdx.x] = (float)flag;
}

/* A buffer is filled again before all have read it; the number is the same both times. */
__global__ void filled_again(float *out, int right)
{
    __shared__ float x[THREADS];
    float sum = 0;
    for (int round = 0; round < 2; round++) {
        x[threadIdx.x] = 1;
        __syncthreads();
        sum += x[(threadIdx.x + 40) % THREADS];
        if (right) __syncthreads();
    }
    out[threadIdx.x] = sum;
}

/* Lanes meet in an exchange after they wrote: that orders no memory, __syncwarp does. */
__global__ void exchange_for_syncwarp(float *out, int right)
{
    __shared__ float x[THREADS];
    x[threadIdx.x] = 1;
    float v = __shfl_xor_sync(0xffffffffu, 1.0f, 1);
    if (right) __syncwarp();
    out[threadIdx.x] = v + x[threadIdx.x ^ 1];
}

/* Two halves of a block have a barrier each, and read each other's numbers. */
__global__ void own_barriers(float *out, int right)
{
    __shared__ float x[THREADS];
    int t = (int)threadIdx.x, half = t / 32 % 2;
    if (t >= 64) return;
    x[t] = 1;
    if (right) asm volatile("bar.sync %0, %1;" ::"r"(1), "r"(64) : "memory");
    else asm volatile("bar.sync %0, %1;" ::"r"(1 + half), "r"(32) : "memory");
    out[t] = x[t ^ 32];
}

/* Two bytes of a word are two places; one byte is one. */
__global__ void neighbours(float *out, int right)
{
    __shared__ unsigned short x[THREADS];
    __shared__ unsigned char y[THREADS];
    int t = (int)threadIdx.x;
    x[t] = 1;
    y[right ? t : t / 2] = 1;
    __syncthreads();
    out[t] = x[THREADS - 1 - t] + (float)y[t / 2];
}

/* A counter by atomicAdd, read with no barrier after the last. */
__global__ void counted_by_all(float *out, int right)
{
    __shared__ int count;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    atomicAdd(&count, 1);
    if (right) __syncthreads();
    out[threadIdx.x] = (float)count;
}

/* ---- mbarriers, copies, tensor cores ------------------------------------------------------------ */

__device__ uint32_t at(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

__device__ void mbar_init(const uint64_t *bar, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at(bar)), "r"(arrivals) : "memory");
}

__device__ void mbar_arrive(const uint64_t *bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at(bar)) : "memory");
}

__device__ void mbar_expect(const uint64_t *bar, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at(bar)), "r"(bytes)
                 : "memory");
}

__device__ void mbar_wait(const uint64_t *bar, int parity)
{
    uint32_t done;
    do
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n}\n"
                     : "=r"(done)
                     : "r"(at(bar)), "r"(parity)
                     : "memory");
    while (!done);
}

__device__ void fence_async(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* The rows of a 3d map of 32 numbers a row behind the results, from `row` on. */
__device__ void load_box(const void *to, const void *map, int row, const uint64_t *bar)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
                 "{%3, %4, %5}], [%2];" ::"r"(at(to)),
                 "l"(map), "r"(at(bar)), "r"(0), "r"(row), "r"(0)
                 : "memory");
}

__device__ void store_box(const void *map, const void *from)
{
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
                 "r"(at(from)), "r"(0), "r"(0), "r"(0)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* One warp fills a buffer, another reads it, twice; filled again without waiting for `empty`. */
__global__ void pipeline(float *out, int right)
{
    __shared__ float x[32];
    __shared__ uint64_t full[2], empty;
    int t = (int)threadIdx.x;
    if (t == 0) mbar_init(&full[0], 32), mbar_init(&full[1], 32), mbar_init(&empty, 32);
    __syncthreads();
    for (int round = 0; round < 2 && t < 64; round++)
        if (t < 32) {
            if (right) mbar_wait(&empty, round + 1);
            x[t] = 1;
            mbar_arrive(&full[round]);
        } else {
            mbar_wait(&full[round], 0);
            out[t] += x[t - 32];
            mbar_arrive(&empty);
        }
}

/* An mbarrier is used before all know that it is made. */
__global__ void mbarrier_made_late(float *out, int right)
{
    __shared__ uint64_t bar;
    if (threadIdx.x == 0) mbar_init(&bar, 1);
    if (right) __syncthreads();
    if (threadIdx.x == 0) mbar_arrive(&bar);
    mbar_wait(&bar, 0);
    out[threadIdx.x] = 1;
}

/* Two copies with an mbarrier each; the second is read after a wait for the first. */
__global__ void wrong_mbarrier(float *out, int right)
{
    extern __shared__ __align__(128) float buffer[];
    __shared__ uint64_t bars[2];
    const void *map = out + 4 * THREADS;
    if (threadIdx.x == 0) {
        mbar_init(&bars[0], 1), mbar_init(&bars[1], 1);
        for (int i = 0; i < 2; i++) mbar_expect(&bars[i], 128), load_box(buffer + 32 * i, map, i, &bars[i]);
    }
    __syncthreads();
    mbar_wait(&bars[0], 0);
    if (right) mbar_wait(&bars[1], 0);
    out[threadIdx.x] = buffer[32 + threadIdx.x % 32];
}

/* A buffer of a copy is loaded again while a thread that has not arrived may read it. */
__global__ void loaded_again(float *out, int right)
{
    extern __shared__ __align__(128) float buffer[];
    __shared__ uint64_t full, empty;
    const void *map = out + 4 * THREADS;
    if (threadIdx.x == 0) mbar_init(&full, 1), mbar_init(&empty, right ? THREADS : 1);
    __syncthreads();
    for (int round = 0; round < 2; round++) {
        if (threadIdx.x == 0) {
            if (round) mbar_wait(&empty, 0);
            mbar_expect(&full, 128), load_box(buffer, map, round, &full);
        }
        mbar_wait(&full, round);
        out[threadIdx.x] += buffer[threadIdx.x % 32];
        if (right || threadIdx.x == 5) mbar_arrive(&empty);
    }
}

/* What threads wrote is stored by the copy engine, which sees it only after a fence. */
__global__ void without_proxy_fence(float *out, int right)
{
    extern __shared__ __align__(128) float buffer[];
    if (threadIdx.x < 32) buffer[threadIdx.x] = 1;
    if (right) fence_async();
    __syncthreads();
    if (threadIdx.x) return;
    store_box(out + 4 * THREADS, buffer);
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/* A buffer is written again before the copy engine has read it. */
__global__ void store_not_read(float *out, int right)
{
    extern __shared__ __align__(128) float buffer[];
    if (threadIdx.x) return;
    for (int i = 0; i < 32; i++) buffer[i] = 1;
    fence_async();
    store_box(out + 4 * THREADS, buffer);
    if (right) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    buffer[0] = 1;
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/* cp.async: a wait is for the thread's own copies alone. */
__global__ void waited_by_each(float *out, int right)
{
    extern __shared__ float4 z[];
    const float *from = out + THREADS + 4 * threadIdx.x;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at(&z[threadIdx.x])), "l"(from)
                 : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    if (right) __syncthreads();
    out[threadIdx.x] = z[threadIdx.x ^ 1].x;
}

/* 64 x 8 sums of 16 products; `fault` 1: no proxy fence, 2: no barrier, 3: an operand written too soon. */
__device__ void product(float *out, int fault)
{
    extern __shared__ __align__(128) unsigned short tiles[]; /* A: 64 x 16, B: 8 x 16, rows of 32 bytes */
    float d[4] = {0, 0, 0, 0};
    for (int i = (int)threadIdx.x; i < 72 * 16; i += THREADS) tiles[i] = 0x3f80;
    if (fault != 1) fence_async();
    if (fault != 2) __syncthreads();
    uint64_t layout = (uint64_t)3 << 62 | (uint64_t)(256 >> 4) << 32; /* rows of 32 bytes, 8 of them */
    uint64_t a = layout | at(tiles) >> 4, b = layout | at(tiles + 64 * 16) >> 4;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %6, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, p, 1, 1, 0, 0;\n}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "l"(a), "l"(b), "r"(0));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    if (fault == 3) tiles[threadIdx.x] = 0x3f80;
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    __syncthreads();
    tiles[threadIdx.x] = 0;
    out[threadIdx.x] = d[0];
}

__global__ void product_without_fence(float *out, int right)
{
    product(out, right ? 0 : 1);
}

__global__ void product_without_barrier(float *out, int right)
{
    product(out, right ? 0 : 2);
}

__global__ void product_overwritten(float *out, int right)
{
    product(out, right ? 0 : 3);
}

/* ---- clusters ----------------------------------------------------------------------------------- */

__device__ uint32_t elsewhere(const void *p)
{
    uint32_t there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at(p)), "r"(1 - blockIdx.x % 2));
    return there;
}

__device__ void cluster_sync(void)
{
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* Reads the other block's number after a barrier of its own block. */
__global__ void other_block(float *out, int right)
{
    __shared__ float x[THREADS];
    float v;
    x[threadIdx.x] = 1;
    if (right) cluster_sync();
    else __syncthreads();
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(elsewhere(&x[threadIdx.x])) : "memory");
    out[THREADS * blockIdx.x + threadIdx.x] = v;
    cluster_sync();
}

/* Numbers that the other block sends, and an mbarrier counts, are read without a wait for it. */
__global__ void sent(float *out, int right)
{
    __shared__ float x[THREADS];
    __shared__ uint64_t bar;
    if (threadIdx.x == 0) mbar_init(&bar, 1), mbar_expect(&bar, 4 * THREADS);
    cluster_sync();
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(
                     elsewhere(&x[threadIdx.x])),
                 "f"(1.0f), "r"(elsewhere(&bar))
                 : "memory");
    if (!right) cluster_sync(); /* the stores have been issued, not done */
    else mbar_wait(&bar, 0);
    out[THREADS * blockIdx.x + threadIdx.x] = x[threadIdx.x ^ 1];
    cluster_sync();
}

/* ---- device memory ------------------------------------------------------------------------------ */

/* The last block adds up what the others wrote: a ticket says who is last, a fence that all is there. */
__global__ void last_block(float *out, int right)
{
    __shared__ int last;
    unsigned *ticket = (unsigned *)out + 2 * THREADS;
    if (threadIdx.x) return;
    out[blockIdx.x] = 1;
    if (right) __threadfence();
    last = atomicAdd(ticket, 1u) == gridDim.x - 1;
    if (right) __threadfence();
    if (!last) return;
    float sum = 0;
    for (unsigned i = 0; i < gridDim.x; i++) sum += out[i];
    out[THREADS] = sum;
}

/* A block waits for the one before it, and reads what all its threads wrote; wrong: they did not meet first.
 */
__global__ void chain(float *out, int right)
{
    unsigned *counter = (unsigned *)out + 6 * THREADS, v;
    if (threadIdx.x == 0) {
        do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(counter) : "memory");
        while (v != blockIdx.x);
    }
    __syncthreads();
    out[threadIdx.x] += 1;
    if (right) __syncthreads();
    if (threadIdx.x == 0) asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}

/* Two blocks write the same number to the same place. */
__global__ void two_blocks(float *out, int right)
{
    if (right && blockIdx.x) return;
    out[threadIdx.x] = 1;
}

/* ---- kernels that begin early ------------------------------------------------------------------- */

__device__ void those_before(void)
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

__device__ void let_next(void)
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

__global__ void first(float *out, int)
{
    let_next();
    out[threadIdx.x] = out[THREADS + threadIdx.x];
}

/* Does nothing with memory, and waits for nobody. */
__global__ void between(float *, int)
{
    let_next();
}

__global__ void reads_early(float *out, int right)
{
    float x = 0;
    if (!right) x = out[threadIdx.x];
    those_before();
    if (right) x = out[threadIdx.x];
    out[2 * THREADS + threadIdx.x] = x;
}

/* Overwrites what `first` may still read. */
__global__ void writes_early(float *out, int right)
{
    if (right) those_before();
    out[THREADS + threadIdx.x] = 1;
}

/* One thread waits, all go on: those that it meets afterwards are after it, too. */
__global__ void one_waits(float *out, int right)
{
    if (threadIdx.x == 0) those_before();
    if (right) __syncthreads();
    out[threadIdx.x] = 1;
}

/* Waits for `between`, which did not wait for `first`. */
__global__ void waits_for_one(float *out, int)
{
    those_before();
    out[threadIdx.x] = 1;
}

/* ---- runs --------------------------------------------------------------------------------------- */

typedef void plant(float *out, int right);

/* A launch: clusters of `cluster` blocks; `before`: kernels in front of it, all in one stream. */
struct scene {
    const char *what;
    plant *kernel;
    const char *sentence;
    size_t shared;
    unsigned blocks, cluster;
    plant *before[2];
};

static void start(plant *kernel, const scene &s, unsigned blocks, int early, float *out, int right)
{
    cudaLaunchAttribute attribute[2] = {};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks), config.blockDim = dim3(THREADS), config.dynamicSmemBytes = s.shared;
    attribute[0].id = cudaLaunchAttributeClusterDimension;
    attribute[0].val.clusterDim.x = s.cluster ? s.cluster : 1;
    attribute[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[1].val.programmaticStreamSerializationAllowed = early;
    config.attrs = attribute, config.numAttrs = 2;
    if (cudaLaunchKernelEx(&config, kernel, out, right) != cudaSuccess) _exit(4);
}

/* A map of rows of 32 numbers, into device memory. */
static void map_make(void *to, float *base)
{
    typedef CUresult encode(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                            const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                            CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
    void *f = nullptr;
    cudaDriverEntryPointQueryResult how;
    cuuint64_t size[3] = {32, 4, 1}, stride[2] = {128, 512};
    cuuint32_t box[3] = {32, 1, 1}, step[3] = {1, 1, 1};
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault, &how);
    if (((encode *)f)((CUtensorMap *)to, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 3, base, size, stride, box, step,
                      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                      CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
        _exit(5);
}

/* What a child says of a race, or of anything else, into `said`. */
static void child(const scene &s, int right, char *said, size_t room)
{
    int ends[2], status;
    size_t have = 0;
    if (pipe(ends) != 0) exit(3);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        void *p;
        dup2(ends[1], 2);
        if (cudaMalloc(&p, sizeof(float) * NUMBERS) != cudaSuccess) _exit(3);
        float *out = (float *)p;
        memset(out, 0, sizeof(float) * NUMBERS);
        map_make(out + 4 * THREADS, out + THREADS);
        for (int i = 0; i < 2; i++)
            if (s.before[i]) start(s.before[i], s, 1, 1, out, right);
        start(s.kernel, s, s.blocks ? s.blocks : 1, 1, out, right);
        exit(0);
    }
    close(ends[1]);
    for (ssize_t n; have < room - 1 && (n = read(ends[0], said + have, room - 1 - have)) > 0;)
        have += (size_t)n;
    said[have] = 0;
    close(ends[0]);
    waitpid(pid, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) != (*said ? 9 : 0))
        snprintf(said, room, "status %d", WEXITSTATUS(status));
    if (!WIFEXITED(status) && have + 32 < room) strcat(said, "(ended by a signal)");
}

static void both(const scene &s)
{
    char said[4096];
    static const char *const orders[] = {"forward", "backward", "7"};
    for (int i = 0; i < 3; i++) {
        setenv("CUDA_HOST_ORDER", orders[i], 1);
        for (int right = 0; right < 2; right++) {
            child(s, right, said, sizeof said);
            bool good = right ? !*said : strstr(said, "race in") && strstr(said, s.sentence);
            if (char *end = good ? strchr(said, '\n') : nullptr) *end = 0;
            test_true(s.what, good, "order %s: %s", orders[i], *said ? said : "right, nothing said");
        }
    }
}

static const scene scenes[] = {
    {"all write the same number", same_number, "writes 4 bytes of static shared memory"},
    {"a buffer filled again before all have read it", filled_again, "no barrier lies between"},
    {"an exchange instead of __syncwarp", exchange_for_syncwarp, "no __syncwarp"},
    {"a barrier of the wrong threads", own_barriers, "no barrier lies between"},
    {"neighbours in a word", neighbours, "1 bytes"},
    {"a counter that is read with no barrier", counted_by_all, "barrier lies between"},
    {"a pipeline without `empty`", pipeline, "no barrier lies between"},
    {"an mbarrier that is used before it is made", mbarrier_made_late, "barrier lies between"},
    {"a wait for the wrong mbarrier", wrong_mbarrier, "it was not waited for", 256},
    {"a buffer loaded again while it is read", loaded_again, "a copy that an mbarrier counts", 128},
    {"a store of what no fence has shown", without_proxy_fence, "no fence.proxy.async lies between", 128},
    {"a buffer written before its store has read it", store_not_read, "it was not waited for", 128},
    {"a copy that only its thread waited for", waited_by_each, "it was not waited for", 16 * THREADS},
    {"a product of what no fence has shown", product_without_fence, "no fence.proxy.async", 4096},
    {"a product of what another warp writes", product_without_barrier, "a wgmma of warpgroup 0", 4096},
    {"a product whose operand is overwritten", product_overwritten, "it was not waited for", 4096},
    {"another block's memory", other_block, "no barrier of the cluster", 0, 2, 2},
    {"numbers that were sent", sent, "it was not waited for", 0, 2, 2},
    {"the last block adds up", last_block, "blocks run side by side", 0, 6},
    {"a chain of blocks", chain, "blocks run side by side", 0, 4},
    {"two blocks write the same number", two_blocks, "blocks run side by side", 0, 2},
    {"reads before griddepcontrol.wait", reads_early, "no griddepcontrol.wait", 0, 1, 1, {first}},
    {"overwrites before griddepcontrol.wait", writes_early, "no griddepcontrol.wait", 0, 1, 1, {first}},
    {"one thread waits for all", one_waits, "no griddepcontrol.wait", 0, 1, 1, {first}},
};

extern "C" int planted_races(void)
{
    for (const scene &s : scenes) both(s);
    char said[4096];
    scene s = {"waits for one that did not wait", waits_for_one, "", 0, 1, 1, {first, between}};
    child(s, 0, said, sizeof said);
    test_true(s.what, strstr(said, "no griddepcontrol.wait") != nullptr, "%.300s", said);
    s.before[0] = between, s.before[1] = first;
    child(s, 0, said, sizeof said);
    test_true("the other way round: right", !*said, "%.300s", said);
    return test_end();
}
