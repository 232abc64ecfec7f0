/* host_runtime.cpp -- the runtime's calls (include/cuda_runtime.h): memory, streams, captures, graphs,
 * launches.
 *
 * Invariants
 *  1. A stream has done its work when a call returns, unless it captures: then the work is kept, and the
 *     memory it names is neither read nor written.
 *  2. Memory of the device begins as NaN (its first megabyte) and ends at a page that nobody may touch. Maps
 *     are kept for the next who wants as much.
 *  3. A graph owns its works and the copies of their arguments; an executable graph is the captured one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <vector>

#include "host_race.h"

using namespace cuda_host;

struct cuda_host_event {
    struct timespec at;
};

/* A launch, a copy or a memset. */
struct cuda_host_work {
    cudaGraphNodeType type;
    launch kernel;
    std::vector<std::vector<uint64_t>> values; /* of the arguments, in units that keep their alignment */
    std::vector<void *> args;
    void *to;
    const void *from;
    int value;
    size_t bytes;
};

struct cuda_host_graph {
    std::vector<cuda_host_work *> works;
    int owners;
};

struct cuda_host_stream {
    cuda_host_graph *captured; /* or null: not capturing */
};

static thread_local cudaError_t last = cudaSuccess;

static cudaError_t fail(cudaError_t e)
{
    if (e != cudaSuccess) last = e;
    return e;
}

/* ---- the device --------------------------------------------------------------------------------- */

const char *cudaGetErrorString(cudaError_t e)
{
    switch (e) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorStreamCaptureUnsupported: return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated: return "operation failed due to a previous error during capture";
    default: return "invalid argument";
    }
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t e = last;
    last = cudaSuccess;
    return e;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    *count = !(visible && !*visible);
    return *count ? cudaSuccess : fail(cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    return device == 0 ? cudaSuccess : fail(cudaErrorInvalidDevice);
}

/* A Hopper GPU, or, CUDA_HOST_CAPABILITY=8, one that is older. */
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr which, int device)
{
    const char *capability = getenv("CUDA_HOST_CAPABILITY");
    if (device != 0) return fail(cudaErrorInvalidDevice);
    switch (which) {
    case cudaDevAttrMultiProcessorCount: *value = WORKERS; break;
    case cudaDevAttrComputeCapabilityMajor: *value = capability ? atoi(capability) : 9; break;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = (int)SHARED_MOST; break;
    default: return fail(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **out, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult *how)
{
    *out = strcmp(name, "cuTensorMapEncodeTiled") == 0 ? tensor_map_encoder() : nullptr;
    *how = *out ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}

/* ---- memory ------------------------------------------------------------------------------------- */

struct piece {
    char *map;
    size_t bytes, mapped;
    bool device;
};

static std::mutex lock; /* of what follows */
static std::map<char *, piece> pieces;
static std::map<const void *, signature> kernels;
static std::map<const void *, int> shared_limit;

constexpr size_t POISONED = 1 << 20;       /* bytes of a piece that begin as NaN */
static std::multimap<size_t, char *> kept; /* maps that were given back, by their bytes */

/* `mapped` bytes and a page behind them that nobody may touch. */
static char *map_take(size_t mapped, size_t page)
{
    auto old = kept.find(mapped);
    if (old != kept.end()) {
        char *map = old->second;
        kept.erase(old);
        return map;
    }
    void *map = mmap(nullptr, mapped + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) return nullptr;
    if (mprotect(map, mapped, PROT_READ | PROT_WRITE) == 0) return (char *)map;
    munmap(map, mapped + page);
    return nullptr;
}

static cudaError_t allocate(void **out, size_t bytes, bool device)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), unit = 512, room = (bytes + unit - 1) / unit * unit;
    size_t mapped = (room + page - 1) / page * page;
    *out = nullptr;
    if (!bytes) return cudaSuccess;
    if (bytes > (size_t)1 << 40) return fail(cudaErrorMemoryAllocation);
    std::lock_guard<std::mutex> hold(lock);
    char *map = map_take(mapped, page);
    if (!map) return fail(cudaErrorMemoryAllocation);
    char *at = map + mapped - room;
    if (device) memset(at, 0xff, bytes < POISONED ? bytes : POISONED);
    race::memory_is_new(at, bytes);
    pieces[at] = {map, bytes, mapped, device};
    *out = at;
    return cudaSuccess;
}

static cudaError_t give_back(void *data)
{
    if (!data) return cudaSuccess;
    std::lock_guard<std::mutex> hold(lock);
    auto p = pieces.find((char *)data);
    if (p == pieces.end()) return fail(cudaErrorInvalidValue);
    kept.insert({p->second.mapped, p->second.map});
    pieces.erase(p);
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    return allocate(out, bytes, true);
}

cudaError_t cudaFree(void *data)
{
    return give_back(data);
}

cudaError_t cudaMallocHost(void **out, size_t bytes)
{
    return allocate(out, bytes, false);
}

cudaError_t cudaFreeHost(void *data)
{
    return give_back(data);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    *free_bytes = *total = (size_t)1 << 40;
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *data)
{
    std::lock_guard<std::mutex> hold(lock);
    auto p = pieces.upper_bound((char *)data);
    out->type = cudaMemoryTypeUnregistered;
    if (p == pieces.begin()) return cudaSuccess;
    --p;
    if ((char *)data < p->first + p->second.bytes)
        out->type = p->second.device ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
    return cudaSuccess;
}

/* ---- work --------------------------------------------------------------------------------------- */

static void perform(cuda_host_work *w, cudaStream_t stream)
{
    w->kernel.stream = stream;
    if (w->type == cudaGraphNodeTypeKernel) return run(w->kernel);
    race::stream_idle(stream); /* neither begins early, nor does what comes after them */
    if (w->type == cudaGraphNodeTypeMemset) memset(w->to, w->value, w->bytes);
    else memmove(w->to, w->from, w->bytes);
}

/* Null: the legacy stream, by either of its names. */
static cuda_host_stream *object(cudaStream_t s)
{
    static thread_local cuda_host_stream per_thread;
    if (s == cudaStreamPerThread) return &per_thread;
    return s == cudaStreamLegacy ? nullptr : s;
}

static bool capturing(cudaStream_t s)
{
    return object(s) && object(s)->captured;
}

/* Done, or kept by a capture. */
static cudaError_t submit(cudaStream_t s, cuda_host_work *w)
{
    if (capturing(s)) object(s)->captured->works.push_back(w);
    else {
        perform(w, s);
        delete w;
    }
    return cudaSuccess;
}

static void set_args(cuda_host_work *w, void **args)
{
    const signature &s = w->kernel.signature;
    w->values.clear();
    w->args.clear();
    for (int i = 0; i < s.args; i++) {
        /* 64 bytes more, for tensor maps, which are aligned so */
        std::vector<uint64_t> v(s.sizes[i] / 8 + 10);
        w->values.push_back(std::move(v));
        uintptr_t at = ((uintptr_t)w->values.back().data() + 63) & ~(uintptr_t)63;
        memcpy((void *)at, args[i], s.sizes[i]);
        w->args.push_back((void *)at);
    }
    w->kernel.args = w->args.data();
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    auto *w = new cuda_host_work{};
    w->type = cudaGraphNodeTypeMemset, w->to = to, w->value = value, w->bytes = bytes;
    return submit(stream, w);
}

cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    return cudaMemsetAsync(to, value, bytes, nullptr);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind, cudaStream_t stream)
{
    auto *w = new cuda_host_work{};
    w->type = cudaGraphNodeTypeMemcpy, w->to = to, w->from = from, w->bytes = bytes;
    return submit(stream, w);
}

namespace cuda_host
{

void enrol(const void *kernel, signature s)
{
    std::lock_guard<std::mutex> hold(lock);
    kernels[kernel] = s;
}

} // namespace cuda_host

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *out, const void *kernel)
{
    std::lock_guard<std::mutex> hold(lock);
    *out = cudaFuncAttributes{};
    out->maxDynamicSharedSizeBytes = shared_limit.count(kernel) ? shared_limit[kernel] : 49152;
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute, int value)
{
    if (value < 0 || value > (int)SHARED_MOST) return fail(cudaErrorInvalidValue);
    std::lock_guard<std::mutex> hold(lock);
    shared_limit[kernel] = value;
    return cudaSuccess;
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *kernel, void **args)
{
    auto *w = new cuda_host_work{};
    int limit, most_blocks = 65535;
    uint64_t threads = (uint64_t)c->blockDim.x * c->blockDim.y * c->blockDim.z;
    w->type = cudaGraphNodeTypeKernel;
    w->kernel.kernel = kernel, w->kernel.grid = c->gridDim, w->kernel.block = c->blockDim;
    w->kernel.shared = c->dynamicSmemBytes, w->kernel.cluster = 1;
    for (unsigned i = 0; i < c->numAttrs; i++)
        if (c->attrs[i].id == cudaLaunchAttributeClusterDimension)
            w->kernel.cluster = (int)c->attrs[i].val.clusterDim.x;
        else if (c->attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization)
            w->kernel.early = c->attrs[i].val.programmaticStreamSerializationAllowed != 0;
    {
        std::lock_guard<std::mutex> hold(lock);
        limit = shared_limit.count(kernel) ? shared_limit[kernel] : 49152;
        if (!kernels.count(kernel)) stop("a kernel whose address was never taken");
        w->kernel.signature = kernels[kernel];
    }
    if (!threads || threads > 1024 || (int64_t)c->dynamicSmemBytes > limit || !c->gridDim.x ||
        !c->gridDim.y || !c->gridDim.z || c->gridDim.x > INT32_MAX || (int)c->gridDim.y > most_blocks ||
        (int)c->gridDim.z > most_blocks || w->kernel.cluster > WORKERS ||
        c->gridDim.x % (unsigned)w->kernel.cluster) {
        delete w;
        return fail(cudaErrorInvalidConfiguration);
    }
    set_args(w, args);
    return submit(c->stream, w);
}

cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **args, size_t shared,
                             cudaStream_t stream)
{
    cudaLaunchConfig_t c = {grid, block, shared, stream, nullptr, 0};
    return cudaLaunchKernelExC(&c, kernel, args);
}

/* ---- streams, events ---------------------------------------------------------------------------- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned)
{
    *out = new cuda_host_stream{};
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *out)
{
    return cudaStreamCreateWithFlags(out, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    delete s;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    if (capturing(s)) return fail(cudaErrorStreamCaptureUnsupported);
    race::stream_idle(s);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned)
{
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned)
{
    *out = new cuda_host_event{};
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    return cudaEventCreateWithFlags(out, 0);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t)
{
    clock_gettime(CLOCK_MONOTONIC, &event->at);
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t)
{
    race::stream_idle(nullptr);
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end)
{
    *ms = (float)(1e3 * (double)(end->at.tv_sec - begin->at.tv_sec) +
                  1e-6 * (double)(end->at.tv_nsec - begin->at.tv_nsec));
    return cudaSuccess;
}

/* ---- graphs ------------------------------------------------------------------------------------- */

cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode)
{
    if (!object(s) || capturing(s)) return fail(cudaErrorStreamCaptureUnsupported);
    object(s)->captured = new cuda_host_graph{{}, 1};
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *out)
{
    *out = nullptr;
    if (!capturing(s)) return fail(cudaErrorInvalidValue);
    *out = object(s)->captured;
    object(s)->captured = nullptr;
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *out)
{
    *out = capturing(s) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long)
{
    graph->owners++;
    *out = graph;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t s)
{
    if (capturing(s)) return fail(cudaErrorStreamCaptureUnsupported);
    race::stream_idle(s); /* a graph begins after all that was in its stream */
    for (cuda_host_work *w : graph->works) perform(w, s);
    race::stream_idle(s);
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    if (--graph->owners) return cudaSuccess;
    for (cuda_host_work *w : graph->works) delete w;
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph)
{
    return cudaGraphDestroy(graph);
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
    size_t n = graph->works.size();
    for (size_t i = 0; nodes && i < n && i < *count; i++) nodes[i] = graph->works[i];
    *count = n;
    return cudaSuccess;
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType *type)
{
    *type = node->type;
    return cudaSuccess;
}

cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node, struct cudaKernelNodeParams *out)
{
    *out = {(void *)node->kernel.kernel,   node->kernel.grid, node->kernel.block,
            (unsigned)node->kernel.shared, node->kernel.args, nullptr};
    return cudaSuccess;
}

cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t, cudaGraphNode_t node,
                                             const struct cudaKernelNodeParams *p)
{
    if (p->func != node->kernel.kernel) return fail(cudaErrorInvalidValue);
    set_args(node, p->kernelParams);
    return cudaSuccess;
}
