/* queue.c -- queues: errors, scratch, dry runs, copies. Invariants in queue.h. */
#include "device/queue.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/sized.h"
#include "device/backend.h"

#define SCRATCH_ALIGN ((size_t)256)
#define SCRATCH_MIN   ((size_t)1 << 20)
#define DRY_ADDRESS   ((uintptr_t)4096) /* where a dry run's scratch seems to lie */

static _Atomic uint64_t last_serial; /* so that a queue at a dead one's address is not taken for it */

void pl_queue_fail(pl_queue *q, polar_status code, const char *file, int line, const char *fmt, ...)
{
    if (q->error != POLAR_OK) return;
    va_list ap;
    va_start(ap, fmt);
    pl_queue_keep(q, pl_fail_v(code, file, line, fmt, ap));
    va_end(ap);
}

void pl_queue_keep(pl_queue *q, polar_status code)
{
    if (q->error != POLAR_OK) return;
    q->error = code;
    snprintf(q->message, sizeof q->message, "%s", polar_error_message());
}

/* One lock for the lists of queues of all devices: a fork takes it first, so that a child never finds it
 * locked by a thread that it does not have. */
static pthread_mutex_t queues_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t queues_once = PTHREAD_ONCE_INIT;

static void lock_queues(void)
{
    pthread_mutex_lock(&queues_lock);
}

static void unlock_queues(void)
{
    pthread_mutex_unlock(&queues_lock);
}

static void watch_forks(void)
{
    pthread_atfork(lock_queues, unlock_queues, unlock_queues);
}

polar_status polar_queue_create(polar_queue **out, polar_device *dev, void *stream)
{
    PL_NEED_ARG(out);
    *out = NULL;
    PL_NEED(dev, POLAR_E_ARG, "a queue without a device (did polar_device_open fail?)");
    PL_NEED(!atomic_load(&dev->closed), POLAR_E_STATE, "a queue on device '%s', which was closed", dev->name);
    pl_queue *q = pl_calloc(1, sizeof *q);
    PL_NEED(q, POLAR_E_NOMEM, "a queue");
    q->dev = dev;
    q->serial = atomic_fetch_add(&last_serial, 1) + 1;
    polar_status st = dev->backend->queue_open ? dev->backend->queue_open(q, stream) : POLAR_OK;
    if (st != POLAR_OK) {
        pl_free(q);
        return st;
    }
    pl_device_hold(dev);
    pthread_once(&queues_once, watch_forks);
    lock_queues();
    q->next = dev->queues;
    dev->queues = q;
    unlock_queues();
    *out = q;
    return POLAR_OK;
}

polar_status polar_queue_set_stream(polar_queue *q, void *stream)
{
    PL_NEED_ARG(q);
    PL_NEED(!q->capturing && !q->overlap, POLAR_E_STATE,
            "a queue cannot change its stream in the middle of its work");
    return q->dev->backend->queue_set_stream ? q->dev->backend->queue_set_stream(q, stream) : POLAR_OK;
}

static void leave(pl_queue *q)
{
    pl_queue **at = &q->dev->queues;
    lock_queues();
    while (*at != q) at = &(*at)->next;
    *at = q->next;
    unlock_queues();
}

void pl_device_wait(pl_device *dev, uint64_t serial)
{
    if (!dev->backend->queue_sync) return; /* its ops have run */
    lock_queues();                         /* so long nobody destroys the queue */
    pl_queue *q = dev->queues;
    while (q && q->serial != serial) q = q->next;
    polar_status st = q && !pl_queue_in_capture(q) ? dev->backend->queue_sync(q) : POLAR_OK;
    if (st != POLAR_OK) pl_queue_keep(q, st);
    unlock_queues();
}

void polar_queue_destroy(polar_queue *q)
{
    if (!q) return;
    pl_device *dev = q->dev;
    leave(q);
    if (q->dev->backend->queue_sync) q->dev->backend->queue_sync(q);
    for (int i = 0; i < q->scratch.count; i++) polar_device_free(q->dev, q->scratch.base[i]);
    if (q->dev->backend->queue_close) q->dev->backend->queue_close(q);
    pl_free(q);
    pl_device_release(dev);
}

polar_status polar_queue_sync(polar_queue *q)
{
    PL_NEED_ARG(q);
    PL_NEED(!pl_queue_in_capture(q), POLAR_E_STATE,
            "a queue cannot be synchronised while a graph is captured");
    polar_status st = q->dev->backend->queue_sync ? q->dev->backend->queue_sync(q) : POLAR_OK;
    if (q->error == POLAR_OK) return st;
    st = pl_fail_again(q->error, q->message);
    q->error = POLAR_OK;
    q->message[0] = 0;
    return st;
}

int pl_queue_in_capture(pl_queue *q)
{
    return q->capturing || (q->dev->backend->queue_captured && q->dev->backend->queue_captured(q));
}

static int copy_wanted(pl_queue *q, const char *what, const void *dst, const void *src, size_t bytes)
{
    if (!q) {
        /* there is nobody to keep it but the thread */
        PL_FAIL(POLAR_E_ARG, "%s without a queue: q is NULL", what);
        return 0;
    }
    if (bytes && (!dst || !src))
        PL_QUEUE_FAIL(q, POLAR_E_ARG, "%s of %zu bytes: %s is NULL", what, bytes, dst ? "src" : "dst");
    if (pl_queue_in_capture(q))
        PL_QUEUE_FAIL(
            q, POLAR_E_STATE,
            "%s inside a graph would freeze today's value into it: make it a live value and set it outside",
            what);
    return q->error == POLAR_OK && !q->dry && bytes;
}

void polar_queue_upload(polar_queue *q, void *dst, const void *src, size_t bytes)
{
    if (copy_wanted(q, "an upload", dst, src, bytes))
        q->dev->backend->copy(q, dst, src, bytes, PL_COPY_UPLOAD);
}

void polar_queue_download(polar_queue *q, void *dst, const void *src, size_t bytes)
{
    if (copy_wanted(q, "a download", dst, src, bytes))
        q->dev->backend->copy(q, dst, src, bytes, PL_COPY_DOWNLOAD);
}

polar_status polar_queue_dry_begin(polar_queue *q)
{
    PL_NEED_ARG(q);
    PL_NEED(!q->dry && !q->capturing, POLAR_E_STATE,
            "a dry run is already under way, or a graph is being captured");
    q->dry = 1;
    q->cost = (polar_cost){0};
    return POLAR_OK;
}

polar_status polar_queue_dry_end_sized(polar_queue *q, polar_cost *out, size_t size)
{
    PL_NEED_ARG(q);
    PL_NEED_ARG(out);
    PL_NEED(q->dry, POLAR_E_STATE, "no dry run is under way");
    PL_TRY(pl_sized_give("polar_cost", out, size, &q->cost, sizeof q->cost,
                         PL_SIZE_UP_TO(polar_cost, scratch_bytes)));
    q->dry = 0;
    return q->error == POLAR_OK ? POLAR_OK : polar_queue_sync(q);
}

/* One more chunk of device memory; old ones stay where they are (invariant 3). */
static polar_status scratch_grow(pl_queue *q, size_t bytes)
{
    int n = q->scratch.count;
    PL_NEED(!pl_queue_in_capture(q), POLAR_E_STATE,
            "%zu bytes of scratch are wanted while a graph is captured: run the work once before, or "
            "polar_queue_reserve",
            bytes);
    PL_NEED(n < PL_MAX_SCRATCH_CHUNKS, POLAR_E_NOMEM,
            "scratch memory grew %d times; reserve it once with polar_queue_reserve", n);
    size_t size = bytes;
    if (n && size < 2 * q->scratch.size[n - 1]) size = 2 * q->scratch.size[n - 1];
    if (size < SCRATCH_MIN) size = SCRATCH_MIN;
    void *base = NULL;
    if (polar_device_alloc(q->dev, &base, size) != POLAR_OK)
        PL_TRY(polar_device_alloc(q->dev, &base, size = bytes));
    q->scratch.base[n] = base;
    q->scratch.size[n] = size;
    q->scratch.count = n + 1;
    return POLAR_OK;
}

polar_status polar_queue_reserve(polar_queue *q, size_t scratch_bytes)
{
    PL_NEED_ARG(q);
    for (int i = 0; i < q->scratch.count; i++)
        if (q->scratch.size[i] >= scratch_bytes) return POLAR_OK;
    return scratch_grow(q, scratch_bytes);
}

pl_scratch_mark pl_scratch_begin(pl_queue *q)
{
    return q->top;
}

void pl_scratch_end(pl_queue *q, pl_scratch_mark mark)
{
    q->top = mark;
}

size_t pl_scratch_bytes(size_t bytes)
{
    return (bytes + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
}

void *pl_scratch_take(pl_queue *q, size_t bytes)
{
    if (q->error != POLAR_OK) return NULL;
    bytes = pl_scratch_bytes(bytes);
    if (q->dry) {
        void *p = (void *)(DRY_ADDRESS + q->top.total);
        q->top.total += bytes;
        if (q->top.total > q->cost.scratch_bytes) q->cost.scratch_bytes = q->top.total;
        return p;
    }
    while (q->top.chunk < q->scratch.count && q->scratch.size[q->top.chunk] - q->top.used < bytes) {
        q->top.chunk++;
        q->top.used = 0;
    }
    if (q->top.chunk >= q->scratch.count) {
        polar_status st = scratch_grow(q, bytes);
        if (st != POLAR_OK) {
            pl_queue_keep(q, st);
            return NULL;
        }
        q->top.chunk = q->scratch.count - 1;
        q->top.used = 0;
    }
    void *p = q->scratch.base[q->top.chunk] + q->top.used;
    q->top.used += bytes;
    q->top.total += bytes;
    return p;
}

pl_mat pl_scratch_mat(pl_queue *q, polar_dtype dtype, int64_t batch, int64_t rows, int64_t cols)
{
    pl_mat m = pl_mat_dense(NULL, dtype, batch, rows, cols);
    m.data = pl_scratch_take(q, pl_mat_bytes(&m));
    return m;
}

void pl_queue_after(pl_queue *q, pl_queue *other)
{
    const pl_backend *b = q->dev->backend;
    if (q->error != POLAR_OK || q->dry || q == other) return;
    if (pl_queue_in_capture(q) || pl_queue_in_capture(other)) {
        PL_QUEUE_FAIL(q, POLAR_E_STATE, "a queue cannot wait for another one while a graph is captured");
        return;
    }
    int waits = !b->queue_after || other->error != POLAR_OK;
    polar_status st = waits ? polar_queue_sync(other) : b->queue_after(q, other);
    if (st != POLAR_OK) pl_queue_keep(q, st);
}

void pl_queue_overlap_begin(pl_queue *q)
{
    q->overlap = 1;
    q->put_off = 0;
}

void pl_queue_overlap_end(pl_queue *q)
{
    q->overlap = 0;
    if (q->dry) {
        pl_scratch_mark mark = pl_scratch_begin(q);
        pl_scratch_take(q, q->put_off);
        pl_scratch_end(q, mark);
    } else if (q->dev->backend->overlap_end) q->dev->backend->overlap_end(q);
}

int pl_queue_has(const pl_queue *q, pl_op_id id)
{
    return pl_op_present(&q->dev->ops, id);
}

int pl_queue_serves(pl_queue *q, pl_op_id id, const void *args)
{
    const pl_backend *b = q->dev->backend;
    return pl_queue_has(q, id) && (!b->op_serves || b->op_serves(q, id, args));
}
