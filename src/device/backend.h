/* backend.h -- what a backend supplies: memory, copies, queues, graphs, and its own rows of ops.def. */
#ifndef PL_DEVICE_BACKEND_H
#define PL_DEVICE_BACKEND_H

#include <pthread.h>

#include "base/thread_pool.h"
#include "device/queue.h"

typedef enum pl_copy_kind {
    PL_COPY_UPLOAD,  /* host to device */
    PL_COPY_DOWNLOAD /* device to host */
} pl_copy_kind;

typedef struct pl_backend {
    const char *name;
    const char *summary;
    const pl_ops *ops; /* its own rows */
    /* for the empty ones, or NULL */
    const pl_ops *fallback;
    /* options: what follows ':' in the name, or "" */
    polar_status (*device_open)(pl_device *dev, const char *options);
    void (*device_close)(pl_device *dev);
    /* or NULL: it has none of its own */
    polar_status (*set_threads)(pl_device *dev, int threads, int spin_us);
    polar_status (*mem_alloc)(pl_device *dev, void **out, size_t bytes);
    void (*mem_free)(pl_device *dev, void *data);
    polar_status (*queue_open)(pl_queue *q, void *stream);       /* or NULL */
    polar_status (*queue_set_stream)(pl_queue *q, void *stream); /* or NULL: it has no streams */
    void *(*queue_stream)(pl_queue *q);                          /* its stream; or NULL, as above */
    void (*queue_close)(pl_queue *q);                            /* or NULL */
    /* waits for the work; or NULL where ops run at once */
    polar_status (*queue_sync)(pl_queue *q);
    /* q's later work begins after other's so far; or NULL: the host waits for it */
    polar_status (*queue_after)(pl_queue *q, pl_queue *other);
    /* inside a capture that is not ours; or NULL */
    int (*queue_captured)(pl_queue *q);
    /* does what was put off since pl_queue_overlap_begin; or NULL where nothing is */
    void (*overlap_end)(pl_queue *q);
    /* scratch an op takes for itself, for dry runs; or NULL */
    size_t (*op_scratch)(pl_queue *q, pl_op_id id, const void *args);
    /* scratch that overlap_end takes for this op, put off; all of them together; or NULL */
    size_t (*put_off_scratch)(pl_queue *q, pl_op_id id, const void *args);
    /* a fused op it has takes these operands; or NULL: any */
    int (*op_serves)(pl_queue *q, pl_op_id id, const void *args);
    /* FLOPs per second of a loop in registers, for benchmarks; or NULL */
    double (*peak_flops)(pl_device *dev, polar_dtype dtype);
    /* for benchmarks: the device's own clock around an op, and the seconds since with nothing left to do; or
     * both NULL: the host's */
    void (*time_begin)(pl_queue *q);
    double (*time_end)(pl_queue *q);
    void (*copy)(pl_queue *q, void *dst, const void *src, size_t bytes, pl_copy_kind kind);
    /* graphs; all NULL where a graph is a plain call */
    /* ops are captured from here ... */
    polar_status (*graph_begin)(pl_queue *q);
    polar_status (*graph_end)(pl_queue *q, void **graph); /* ... to here */
    polar_status (*graph_launch)(pl_queue *q, void *graph, pl_graph_fn fn, void *arg);
    /* later launches read these gradients elsewhere, in every call the same ones in the same order; 0: it
     * cannot, or some op of the graph names one as it is. Or NULL: it never can */
    int (*graph_move)(pl_queue *q, void *graph, const pl_moved *grad, int64_t n);
    /* its queue may be gone */
    void (*graph_free)(pl_device *dev, void *graph);
} pl_backend;

struct polar_device {
    const pl_backend *backend;
    pl_ops ops;          /* own rows and fallbacks */
    char name[96];       /* in full, as polar_device_name returns it */
    int threads;         /* CPU backends */
    pl_pool *pool;       /* of so many threads, of a device that works on the host's; or NULL */
    int flushes;         /* products of bf16 take subnormal factors and sums for zero */
    int cuts_tf32;       /* factors in tf32 may be cut instead of rounded, or keep more bits */
    _Atomic size_t live; /* bytes given out, where memory is the host's */
    void *impl;
    /* the caller until it closes the device, then queues, optimisers, graphs and buffers that outlive that */
    _Atomic int64_t holders;
    _Atomic int64_t buffers; /* given out and not yet freed */
    _Atomic int closed;      /* by the caller */
    pl_queue *queues;        /* all that are open */
    /* the ranks that share the laboratory's training on it, borrowed; or NULL */
    struct polar_comm *comm;
};

void pl_device_hold(pl_device *dev); /* the device stays until as many releases */
void pl_device_release(pl_device *dev);
/* for the work of the queue of that number, if it is still there; its errors stay with it */
void pl_device_wait(pl_device *dev, uint64_t serial);

const pl_backend *pl_backend_at(int i); /* NULL past the end */
/* "own", the fallback's word ("ref"), or "-" */
const char *pl_backend_op_origin(const pl_backend *b, pl_op_id id);

/* "isa=avx2,threads=4": calls set(key, value) for each pair; wrong syntax is an error that names the device.
 */
polar_status pl_device_options(const char *device, const char *options,
                               polar_status (*set)(void *ctx, const char *key, const char *value), void *ctx);
/* a whole number in [min, max] */
polar_status pl_option_int(int *out, const char *key, const char *value, int min, int max);

/* Memory and copies of a device whose memory is the host's. */
polar_status pl_host_mem_alloc(pl_device *dev, void **out, size_t bytes);
void pl_host_mem_free(pl_device *dev, void *data);
void pl_host_copy(pl_queue *q, void *dst, const void *src, size_t bytes, pl_copy_kind kind);

extern const pl_backend pl_backend_ref, pl_backend_guard, pl_backend_cpu;
extern const pl_ops pl_ref_ops;
#ifdef POLAR_HAVE_CUDA
extern const pl_backend pl_backend_cuda;
#endif

#endif
