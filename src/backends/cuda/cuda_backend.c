/* cuda_backend.c -- `cuda:N`: device memory, streams, copies through pinned memory.
 *
 * The CUDA runtime is linked statically and finds the driver at run time; cuBLASLt and cuSOLVER are loaded
 * when a device opens or when they are first wanted. So one binary serves machines with and without a GPU:
 * without one, opening "cuda:0" fails with a sentence.
 */
#include <cublasLt.h>
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cuda_products.h"
#include "cuda_kernels.h"
#include "cuda_multi.h"
#include "cuda_hopper_kron.h"
#include "cuda_hopper_parts.h"
#include "cuda_multi_lines.h"
#include "cuda_multi_moment.h"
#include "cuda_multi_norm.h"
#include "cuda_multi_stage.h"
#include "cuda_ns.h"
#include "cuda_state.h"

polar_status pl_cuda_fail(cudaError_t e, const char *what, const pl_device *dev)
{
    if (e == cudaSuccess) return POLAR_OK;
    cudaGetLastError(); /* an error that is not sticky must not be met again by the next call */
    return PL_FAIL(e == cudaErrorMemoryAllocation ? POLAR_E_NOMEM : POLAR_E_DEVICE, "%s: %s: %s", dev->name,
                   what, cudaGetErrorString(e));
}

void pl_cuda_check_op(pl_queue *q, pl_op_id id, const void *args)
{
    char line[400];
    cudaError_t e = cudaGetLastError();
    if (e == cudaSuccess && pl_cuda_dev(q->dev)->sync_each && !pl_queue_in_capture(q))
        e = cudaStreamSynchronize(pl_cuda_q(q)->stream);
    if (e != cudaSuccess)
        PL_QUEUE_FAIL(q, POLAR_E_DEVICE, "%s: %s: %s", q->dev->name, pl_op_print(line, sizeof line, id, args),
                      cudaGetErrorString(e));
}

/* The folder of a library that is loaded, with its last "/". */
static int folder_of(char *out, size_t bytes, void *library)
{
    struct link_map *map = NULL;
    const char *slash;
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || !(slash = strrchr(map->l_name, '/'))) return 0;
    return snprintf(out, bytes, "%.*s", (int)(slash + 1 - map->l_name), map->l_name) < (int)bytes;
}

/* A library of the toolkit that the process has taken its cuBLASLt from: in the same folder, or, where every
 * library has one of its own, in ../../NAME/lib. That toolkit's torch may load it later. */
static void *library_beside(const char *stem, int version)
{
    char folder[4096], path[4352];
    void *lib = NULL, *held = NULL;
    for (int v = CUBLAS_VER_MAJOR; v >= 12 && !held; v--) {
        snprintf(path, sizeof path, "libcublasLt.so.%d", v);
        held = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    }
    if (held && folder_of(folder, sizeof folder, held)) {
        snprintf(path, sizeof path, "%s%s.so.%d", folder, stem, version);
        lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        snprintf(path, sizeof path, "%s../../%s/lib/%s.so.%d", folder, stem + strlen("lib"), stem, version);
        if (!lib) lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    if (held) dlclose(held);
    return lib;
}

void *pl_cuda_library(const char *stem, int first_version, int last_version)
{
    char name[64];
    void *lib = NULL;
    for (int way = 0; way < 3 && !lib; way++)
        for (int v = last_version; v >= first_version && !lib; v--) {
            snprintf(name, sizeof name, "%s.so.%d", stem, v);
            lib = way == 1 ? library_beside(stem, v)
                           : dlopen(name, RTLD_NOW | RTLD_LOCAL | (way == 0 ? RTLD_NOLOAD : 0));
        }
    return lib;
}

/* ---- devices ------------------------------------------------------------------------------------ */

static polar_status choose_device(pl_device *dev, const char *options, int *ordinal)
{
    int count = 0;
    *ordinal = 0;
    if (*options) PL_TRY(pl_option_int(ordinal, "cuda:N", options, 0, 1023));
    snprintf(dev->name, sizeof dev->name, "cuda:%d", *ordinal);
    cudaError_t e = cudaGetDeviceCount(&count);
    PL_NEED(e != cudaErrorInsufficientDriver, POLAR_E_DEVICE,
            "%s: no NVIDIA driver, or one too old for CUDA %d.%d (use --device cpu)", dev->name,
            CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    PL_NEED(e == cudaSuccess && count > 0, POLAR_E_DEVICE,
            "%s: this machine has no usable GPU: %s (use --device cpu)", dev->name,
            cudaGetErrorString(e == cudaSuccess ? cudaErrorNoDevice : e));
    PL_NEED(*ordinal<count, POLAR_E_DEVICE, "%s: this machine has %d GPU%s, numbered from 0", dev->name,
                     count, count> 1
                ? "s"
                : "");
    return POLAR_OK;
}

static void cuda_device_close(pl_device *dev)
{
    pl_cuda_device *d = dev->impl;
    if (!d) return;
    cudaSetDevice(d->ordinal);
    pl_cuda_solver_close(d->solver);
    pl_cuda_lt_close(d->lt);
    pthread_mutex_destroy(&d->solver_lock);
    pl_free(d);
    dev->impl = NULL;
}

static polar_status cuda_device_open(pl_device *dev, const char *options)
{
    int ordinal, major = 0;
    PL_TRY(choose_device(dev, options, &ordinal));
    PL_TRY(pl_cuda_fail(cudaSetDevice(ordinal), "choosing the device", dev));
    PL_TRY(pl_cuda_fail(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal),
                        "asking for its compute capability", dev));
    PL_NEED(major >= 8, POLAR_E_UNSUPPORTED,
            "%s: compute capability %d.x is older than this build serves (8.0 and newer)", dev->name, major);
    pl_cuda_device *d = pl_calloc(1, sizeof *d);
    PL_NEED(d, POLAR_E_NOMEM, "a device's data");
    const char *sync = getenv("POLAR_CUDA_SYNC");
    pthread_mutex_init(&d->solver_lock, NULL);
    dev->impl = d;
    dev->threads = 1;
    dev->cuts_tf32 = 1;
    d->ordinal = ordinal;
    if (!pl_cuda_ns_usable(ordinal))
        dev->ops.newton_schulz = NULL, dev->ops.polar_map = NULL, dev->ops.polar_step = NULL;
    d->sync_each = sync && *sync && *sync != '0';
    polar_status st = pl_cuda_lt_open(&d->lt, dev);
    if (st != POLAR_OK) cuda_device_close(dev);
    else if (!pl_cuda_hopper(dev)->multiprocessors)
        dev->ops.attention = NULL, dev->ops.attention_back = NULL, dev->ops.weight_grad = NULL;
    return st;
}

static polar_status cuda_mem_alloc(pl_device *dev, void **out, size_t bytes)
{
    size_t free_bytes = 0, total = 0;
    PL_TRY(pl_cuda_fail(cudaSetDevice(pl_cuda_dev(dev)->ordinal), "choosing the device", dev));
    cudaError_t e = cudaMalloc(out, bytes);
    if (e != cudaErrorMemoryAllocation) return pl_cuda_fail(e, "taking memory", dev);
    cudaGetLastError();
    *out = NULL;
    cudaMemGetInfo(&free_bytes, &total);
    return PL_FAIL(POLAR_E_NOMEM, "%s: %.1f MiB wanted, %.1f of %.1f MiB are free", dev->name,
                   (double)bytes / 1048576, (double)free_bytes / 1048576, (double)total / 1048576);
}

static void cuda_mem_free(pl_device *dev, void *data)
{
    cudaSetDevice(pl_cuda_dev(dev)->ordinal);
    cudaFree(data);
}

/* ---- queues ------------------------------------------------------------------------------------- */

static void cuda_queue_close(pl_queue *q)
{
    pl_cuda_queue *c = q->impl;
    if (!c) return;
    for (int i = 0; i < PL_CUDA_RING; i++)
        if (c->slot_free[i]) cudaEventDestroy(c->slot_free[i]);
    for (int i = 0; i < PL_CUDA_STAGES; i++)
        if (c->stage_free[i]) cudaEventDestroy(c->stage_free[i]);
    for (int i = 0; i < 2; i++)
        if (c->timer[i]) cudaEventDestroy(c->timer[i]);
    if (c->reached) cudaEventDestroy(c->reached);
    cudaFree(c->workspace);
    cudaFree(c->counters);
    cudaFreeHost(c->pinned);
    cudaFreeHost(c->stages);
    pl_free(c->multi);
    pl_free(c->small);
    pl_free(c->lines);
    pl_free(c->moments);
    pl_free(c->ns);
    pl_free(c->sweeps);
    pl_free(c->parts);
    pl_free(c->norms);
    if (c->owns_stream) cudaStreamDestroy(c->stream);
    if (c->side) cudaStreamDestroy(c->side);
    pl_free(c);
    q->impl = NULL;
}

static polar_status queue_resources(pl_queue *q, pl_cuda_queue *c, void *stream)
{
    c->stream = stream;
    if (!stream) {
        PL_TRY(pl_cuda_fail(cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking), "making a stream",
                            q->dev));
        c->owns_stream = 1;
    }
    c->multi = pl_calloc(1, sizeof *c->multi);
    c->small = pl_calloc(1, sizeof *c->small);
    c->lines = pl_calloc(1, sizeof *c->lines);
    c->moments = pl_calloc(1, sizeof *c->moments);
    c->ns = pl_calloc(1, sizeof *c->ns);
    c->sweeps = pl_calloc(1, sizeof *c->sweeps);
    c->parts = pl_calloc(1, sizeof *c->parts);
    c->norms = pl_calloc(1, sizeof *c->norms);
    const int all =
        c->multi && c->small && c->lines && c->moments && c->ns && c->sweeps && c->parts && c->norms;
    PL_NEED(all, POLAR_E_NOMEM, "a queue's table of ops");
    PL_TRY(cuda_mem_alloc(q->dev, &c->workspace, PL_CUDA_WORKSPACE));
    PL_TRY(cuda_mem_alloc(q->dev, (void **)&c->counters, PL_CUDA_PRODUCTS_COUNTERS * sizeof *c->counters));
    PL_TRY(pl_cuda_fail(cudaMemset(c->counters, 0, PL_CUDA_PRODUCTS_COUNTERS * sizeof *c->counters),
                        "setting counters", q->dev));
    PL_TRY(pl_cuda_fail(cudaStreamSynchronize(NULL), "setting counters", q->dev));
    PL_TRY(pl_cuda_fail(cudaMallocHost((void **)&c->pinned, PL_CUDA_RING * PL_CUDA_SLOT),
                        "taking pinned memory", q->dev));
    for (int i = 0; i < PL_CUDA_RING; i++)
        PL_TRY(pl_cuda_fail(cudaEventCreateWithFlags(&c->slot_free[i], cudaEventDisableTiming),
                            "making an event", q->dev));
    return POLAR_OK;
}

static polar_status cuda_queue_open(pl_queue *q, void *stream)
{
    PL_TRY(pl_cuda_fail(cudaSetDevice(pl_cuda_dev(q->dev)->ordinal), "choosing the device", q->dev));
    pl_cuda_queue *c = pl_calloc(1, sizeof *c);
    PL_NEED(c, POLAR_E_NOMEM, "a queue's data");
    q->impl = c;
    polar_status st = queue_resources(q, c, stream);
    if (st != POLAR_OK) cuda_queue_close(q);
    return st;
}

static polar_status cuda_queue_set_stream(pl_queue *q, void *stream)
{
    pl_cuda_queue *c = pl_cuda_q(q);
    PL_NEED_ARG(stream);
    PL_NEED(!c->owns_stream, POLAR_E_STATE,
            "%s: the queue was made with a stream of its own (NULL) and keeps it", q->dev->name);
    c->stream = stream;
    return POLAR_OK;
}

static void *cuda_queue_stream(pl_queue *q)
{
    return pl_cuda_q(q)->stream;
}

static polar_status cuda_queue_sync(pl_queue *q)
{
    cudaError_t e = cudaStreamSynchronize(pl_cuda_q(q)->stream);
    if (e == cudaSuccess) return POLAR_OK;
    return PL_FAIL(POLAR_E_DEVICE, "%s: an operation failed while it ran: %s (POLAR_CUDA_SYNC=1 tells which)",
                   q->dev->name, cudaGetErrorString(e));
}

static polar_status cuda_queue_after(pl_queue *q, pl_queue *other)
{
    pl_cuda_queue *c = pl_cuda_q(other);
    cudaError_t e = c->reached ? cudaSuccess : cudaEventCreateWithFlags(&c->reached, cudaEventDisableTiming);
    if (e == cudaSuccess) e = cudaEventRecord(c->reached, c->stream);
    if (e == cudaSuccess) e = cudaStreamWaitEvent(pl_cuda_q(q)->stream, c->reached, 0);
    return pl_cuda_fail(e, "waiting for another queue", q->dev);
}

/* True inside a capture that is not ours (torch's, say): there we may launch kernels but not allocate, upload
 * or wait. */
static int cuda_queue_captured(pl_queue *q)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    return cudaStreamIsCapturing(pl_cuda_q(q)->stream, &status) == cudaSuccess &&
           status != cudaStreamCaptureStatusNone;
}

/* Memory that the driver reads behind our back: the caller's own pinned, managed or device memory. */
static int is_known_to_driver(const void *src)
{
    struct cudaPointerAttributes at;
    if (cudaPointerGetAttributes(&at, src) == cudaSuccess) return at.type != cudaMemoryTypeUnregistered;
    cudaGetLastError();
    return 0;
}

/* A piece into pinned memory that is free again after `event`, and on its way. */
static cudaError_t send(pl_cuda_queue *c, void *dst, const void *src, size_t bytes, char *pinned,
                        cudaEvent_t event)
{
    cudaError_t e = cudaEventSynchronize(event);
    if (e != cudaSuccess) return e;
    memcpy(pinned, src, bytes);
    e = cudaMemcpyAsync(dst, pinned, bytes, cudaMemcpyHostToDevice, c->stream);
    return e == cudaSuccess ? cudaEventRecord(event, c->stream) : e;
}

static cudaError_t make_stages(pl_cuda_queue *c)
{
    for (int i = 0; i < PL_CUDA_STAGES; i++) {
        cudaError_t e = c->stage_free[i]
                            ? cudaSuccess
                            : cudaEventCreateWithFlags(&c->stage_free[i], cudaEventDisableTiming);
        if (e != cudaSuccess) return e;
    }
    return c->stages ? cudaSuccess : cudaMallocHost((void **)&c->stages, PL_CUDA_STAGES * PL_CUDA_STAGE);
}

static cudaError_t upload_large(pl_cuda_queue *c, char *dst, const char *src, size_t bytes)
{
    cudaError_t e = make_stages(c);
    for (size_t at = 0; at < bytes && e == cudaSuccess; at += PL_CUDA_STAGE) {
        int stage = c->next_stage;
        size_t n = bytes - at < PL_CUDA_STAGE ? bytes - at : PL_CUDA_STAGE;
        c->next_stage = (stage + 1) % PL_CUDA_STAGES;
        e = send(c, dst + at, src + at, n, c->stages + (size_t)stage * PL_CUDA_STAGE, c->stage_free[stage]);
    }
    return e;
}

/* Uploads go through rings of pinned memory, small ones (live values) through one of their own, and wait only
 * where the ring is full; the source may be used again at once. */
static cudaError_t upload(pl_cuda_queue *c, void *dst, const void *src, size_t bytes)
{
    if (bytes > PL_CUDA_SLOT && is_known_to_driver(src)) {
        cudaError_t sent = cudaMemcpyAsync(dst, src, bytes, cudaMemcpyHostToDevice, c->stream);
        return sent == cudaSuccess ? cudaStreamSynchronize(c->stream) : sent;
    }
    if (bytes > PL_CUDA_SLOT) return upload_large(c, dst, src, bytes);
    int slot = c->next_slot;
    c->next_slot = (slot + 1) % PL_CUDA_RING;
    return send(c, dst, src, bytes, c->pinned + (size_t)slot * PL_CUDA_SLOT, c->slot_free[slot]);
}

static void cuda_copy(pl_queue *q, void *dst, const void *src, size_t bytes, pl_copy_kind kind)
{
    pl_cuda_queue *c = pl_cuda_q(q);
    cudaError_t e = kind == PL_COPY_UPLOAD
                        ? upload(c, dst, src, bytes)
                        : cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToHost, c->stream);
    if (e != cudaSuccess)
        pl_queue_keep(q, pl_cuda_fail(e, kind == PL_COPY_UPLOAD ? "an upload" : "a download", q->dev));
}

/* ---- time --------------------------------------------------------------------------------------- */

#define DELAY_US 40 /* the host enqueues an op meanwhile, so that launching it is not in its time */

static cudaError_t timer_begin(pl_cuda_queue *c)
{
    for (int i = 0; i < 2; i++) {
        cudaError_t e = c->timer[i] ? cudaSuccess : cudaEventCreate(&c->timer[i]);
        if (e != cudaSuccess) return e;
    }
    pl_cuda_launch_delay(c->stream, DELAY_US);
    return cudaEventRecord(c->timer[0], c->stream);
}

static void cuda_time_begin(pl_queue *q)
{
    cudaError_t e = timer_begin(pl_cuda_q(q));
    if (e != cudaSuccess) pl_queue_keep(q, pl_cuda_fail(e, "timing an op", q->dev));
}

static double cuda_time_end(pl_queue *q)
{
    pl_cuda_queue *c = pl_cuda_q(q);
    float ms = 0;
    cudaError_t e = cudaEventRecord(c->timer[1], c->stream);
    if (e == cudaSuccess) e = cudaEventSynchronize(c->timer[1]);
    if (e == cudaSuccess) e = cudaEventElapsedTime(&ms, c->timer[0], c->timer[1]);
    if (e != cudaSuccess) pl_queue_keep(q, pl_cuda_fail(e, "timing an op", q->dev));
    return (double)ms / 1000;
}

/* ---- ops ---------------------------------------------------------------------------------------- */

/* Kernels on the queue's stream; their launch errors. */
#define CUDA_LAUNCHED(op)                                     \
    static void cuda_##op(pl_queue *q, const pl_args_##op *a) \
    {                                                         \
        pl_cuda_launch_##op(pl_cuda_q(q)->stream, a);         \
        pl_cuda_check_op(q, PL_OP_##op, a);                   \
    }
#define CUDA_WITH_SCRATCH(op)                                               \
    static void cuda_##op(pl_queue *q, const pl_args_##op *a)               \
    {                                                                       \
        pl_scratch_mark mark = pl_scratch_begin(q);                         \
        void *scratch = pl_scratch_take(q, pl_cuda_##op##_scratch(a));      \
        if (scratch) pl_cuda_launch_##op(pl_cuda_q(q)->stream, a, scratch); \
        pl_scratch_end(q, mark);                                            \
        pl_cuda_check_op(q, PL_OP_##op, a);                                 \
    }
#include "device/ops.def"

static size_t cuda_op_scratch(pl_queue *q, pl_op_id id, const void *args)
{
#define CUDA_WITH_SCRATCH(op) \
    if (id == PL_OP_##op) return pl_cuda_##op##_scratch(args);
#include "device/ops.def"
    if (id == PL_OP_frob_normalise) return pl_cuda_frob_normalise_scratch(args);
    if (id == PL_OP_inner) return pl_cuda_inner_scratch(args);
    if (id == PL_OP_kron_sweep) return pl_cuda_kron_sweep_scratch(args);
    if (id == PL_OP_newton_schulz) return pl_cuda_newton_schulz_scratch(q, args);
    return pl_cuda_layer_scratch(id, args);
}

static const pl_ops cuda_ops = {
#define CUDA_LAUNCHED(op)     .op = cuda_##op,
#define CUDA_WITH_SCRATCH(op) .op = cuda_##op,
#define CUDA_OWN(op)          .op = pl_cuda_##op,
#include "device/ops.def"
};

const pl_backend pl_backend_cuda = {
    .name = "cuda",
    .summary = "NVIDIA GPUs of compute capability 8.0 and newer: own kernels, products by cuBLASLt, graphs",
    .ops = &cuda_ops,
    .device_open = cuda_device_open,
    .device_close = cuda_device_close,
    .mem_alloc = cuda_mem_alloc,
    .mem_free = cuda_mem_free,
    .queue_open = cuda_queue_open,
    .queue_set_stream = cuda_queue_set_stream,
    .queue_stream = cuda_queue_stream,
    .queue_close = cuda_queue_close,
    .queue_sync = cuda_queue_sync,
    .queue_after = cuda_queue_after,
    .queue_captured = cuda_queue_captured,
    .overlap_end = pl_cuda_overlap_end,
    .op_scratch = cuda_op_scratch,
    .put_off_scratch = pl_cuda_put_off_scratch,
    .op_serves = pl_cuda_op_serves,
    .time_begin = cuda_time_begin,
    .time_end = cuda_time_end,
    .copy = cuda_copy,
    .graph_begin = pl_cuda_graph_begin,
    .graph_end = pl_cuda_graph_end,
    .graph_launch = pl_cuda_graph_launch,
    .graph_move = pl_cuda_graph_move,
    .graph_free = pl_cuda_graph_free,
};
