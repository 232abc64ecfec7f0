/* queue.h -- a queue of work on one device, its scratch memory, its first error; graphs; live values.
 *
 * Invariants
 *  1. After the first error nothing more is enqueued; polar_queue_sync returns it and clears it.
 *  2. In a dry run nothing touches memory: ops count, scratch gives addresses that must not be used.
 *  3. Scratch is a stack: mark, take, release. Chunks are never freed while the queue lives, so a captured
 * graph may keep addresses in them; work runs in order, so a released piece may be taken again at once.
 *  4. Inside a graph's capture nothing is allocated, uploaded or synchronised.
 */
#ifndef PL_DEVICE_QUEUE_H
#define PL_DEVICE_QUEUE_H

#include "base/status.h"
#include "device/ops.h"

#define PL_MAX_SCRATCH_CHUNKS 32

typedef struct pl_scratch_mark {
    int chunk;
    size_t used;
    size_t total; /* bytes in use over all chunks, for the high-water mark */
} pl_scratch_mark;

/* Told of every op a backend has run: its seconds, the device idle before and after it (where ops run on the
 * calling thread alone: its processor time), nominal FLOPs, bytes (each operand once, an updated one twice).
 */
typedef void (*pl_op_watch)(void *arg, pl_op_id id, const void *args, double seconds, double flops,
                            double bytes);

struct polar_queue {
    pl_device *dev;
    int dry;         /* counting only */
    int capturing;   /* inside pl_graph_run's first call */
    polar_cost cost; /* of the dry run under way */
    struct {
        char *base[PL_MAX_SCRATCH_CHUNKS];
        size_t size[PL_MAX_SCRATCH_CHUNKS];
        int count;
    } scratch;
    pl_scratch_mark top;
    polar_status error;
    char message[1024];
    uint64_t serial;   /* never given twice in a process */
    void *impl;        /* the backend's: stream, record list, ... */
    int overlap;       /* between pl_queue_overlap_begin and ..._end */
    size_t put_off;    /* in a dry run: scratch that overlap_end would take */
    pl_op_watch watch; /* of benchmarks, outside of captures; or NULL */
    void *watch_arg;
    pl_queue *next;      /* of its device */
    const char *subject; /* the parameter whose work is being enqueued, for sentences; or NULL */
};

/* keeps the first */
void pl_queue_fail(pl_queue *q, polar_status code, const char *file, int line, const char *fmt, ...)
    PL_PRINTF(5, 6);
/* inside a capture, ours or the caller's: no allocation, no upload, no waiting */
int pl_queue_in_capture(pl_queue *q);
/* keeps the thread's sentence as the queue's first error */
void pl_queue_keep(pl_queue *q, polar_status code);
#define PL_QUEUE_FAIL(q, code, ...) pl_queue_fail((q), (code), __FILE__, __LINE__, __VA_ARGS__)

/* Calls between begin and end do not depend on one another, and their operands outlive the end: a device may
 * put them off until then and do them side by side. */
void pl_queue_overlap_begin(pl_queue *q); /* not one inside another */
/* everything is enqueued after it, as if in the order of the calls */
void pl_queue_overlap_end(pl_queue *q);

/* What q is given from now on begins after everything that other, of the same device, has been given so far;
 * other's first error becomes q's. Not inside a capture. */
void pl_queue_after(pl_queue *q, pl_queue *other);

int pl_queue_has(const pl_queue *q, pl_op_id id); /* the device has this op: to be asked of fused ones */
/* and takes these operands: formats, shapes and numbers count, data need not be there */
int pl_queue_serves(pl_queue *q, pl_op_id id, const void *args);

pl_scratch_mark pl_scratch_begin(pl_queue *q); /* remembers the top of the stack */
/* device memory, 64-byte aligned; NULL after an error */
void *pl_scratch_take(pl_queue *q, size_t bytes);
size_t
pl_scratch_bytes(size_t bytes); /* what pl_scratch_take takes for so many: whole steps of its alignment */
/* packed */
pl_mat pl_scratch_mat(pl_queue *q, polar_dtype dtype, int64_t batch, int64_t rows, int64_t cols);
void pl_scratch_end(pl_queue *q, pl_scratch_mark mark); /* gives back everything since begin */

/* A graph: the work fn enqueues, captured on the first run and replayed after. Where a device has no graphs
 * fn is called every time, so it must enqueue the same calls each time; what changes between runs lives in
 * device memory. */
typedef struct pl_graph pl_graph;
typedef void (*pl_graph_fn)(pl_queue *q, void *arg);

/* empty; to be destroyed before its device */
polar_status pl_graph_create(pl_graph **out, pl_device *dev);
/* always with the same fn and arg; another queue captures anew */
polar_status pl_graph_run(pl_graph *g, pl_queue *q, pl_graph_fn fn, void *arg);
/* An operand that lies elsewhere than at the capture; NULL both: there is none. */
typedef struct pl_moved {
    const void *from, *to;
} pl_moved;
/* 1: its next run on q reads them where they are now (`from`: as the capture named them); 0: drop it */
int pl_graph_move(pl_graph *g, pl_queue *q, const pl_moved *grad, int64_t n);
int pl_graph_can_move(const pl_device *dev); /* graphs of this device may follow their operands */
void pl_graph_destroy(pl_graph *g);          /* NULL is fine */

/* Live values: doubles in device memory that change between steps (lr, decay, bias corrections). */
typedef struct pl_live pl_live;

/* device memory for count values, not set */
polar_status pl_live_create(pl_live **out, pl_device *dev, int64_t count);
/* in order with the queue's work; not inside a graph */
void pl_live_set(pl_live *live, pl_queue *q, int64_t first, int64_t count, const double *values);
/* 1 x count, f64, as ops want it */
pl_mat pl_live_view(const pl_live *live, int64_t first, int64_t count);
void pl_live_destroy(pl_live *live); /* NULL is fine */

#endif
