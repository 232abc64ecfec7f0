/* device.h -- where work happens: devices by name, their memory, and queues of work.
 *
 * A device is a string: "ref" (the oracle), "guard" (a CPU with a GPU's manners, for tests), "cpu",
 * "cpu:isa=avx2,threads=4,spin=50", "cuda:0". Calls that take a queue only enqueue; results are there, and
 * errors of the work are reported, after polar_queue_sync.
 *
 *     polar_device *dev;  polar_queue *q;
 *     polar_device_open(&dev, "cpu");
 *     polar_queue_create(&q, dev, NULL);
 *     ...
 *     polar_queue_sync(q);
 *     polar_queue_destroy(q);  polar_device_close(dev);
 *
 * Threads: a queue is driven by one thread at a time; different queues, also of one device, by different
 * threads (of one device their parallel work takes turns). Error sentences are per thread. A device has
 * threads of its own, which close with it. After fork the child may go on with the parent's host devices and
 * their queues, and open its own. Lifetimes: queues, optimisers and buffers keep their device: it may be
 * closed before them and goes with the last. A buffer is freed when the work that uses it is done. NULL where
 * an object is wanted: a status and a sentence; from calls that return no status, the answer in their
 * comment. Streams: NULL gives the queue a stream of its own, which does not wait for the legacy default
 * stream; to work in order with it, pass cudaStreamLegacy (and with torch, the stream that
 * torch.cuda.current_stream() names). Host devices take no stream and ignore one.
 */
#ifndef POLAR_DEVICE_H
#define POLAR_DEVICE_H

#include "polar/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct polar_device polar_device;
typedef struct polar_queue polar_queue;

/* What a piece of work costs, summed by a dry run: no memory is touched and nothing is computed. */
typedef struct polar_cost {
    int64_t ops;          /* calls of device operations */
    double flops;         /* nominal: 2 M N K for a product */
    double bytes;         /* every operand read or written once per operation */
    size_t scratch_bytes; /* the most scratch memory in use at one time */
} polar_cost;

POLAR_API polar_status polar_device_open(polar_device **out, const char *name); /* the caller closes it */
/* gone when its queues, optimisers and buffers are; NULL is fine */
POLAR_API void polar_device_close(polar_device *dev);
/* the full name, e.g. "cpu:isa=avx512,threads=2"; borrowed; "" of NULL */
POLAR_API const char *polar_device_name(const polar_device *dev);
/* device memory, 64-byte aligned or better */
POLAR_API polar_status polar_device_alloc(polar_device *dev, void **out, size_t bytes);
/* also after polar_device_close; NULL is fine, of both */
POLAR_API void polar_device_free(polar_device *dev, void *data);
/* backends in this build */
POLAR_API int polar_backend_count(void);
/* "ref", "guard", "cpu", ...; NULL past the end */
POLAR_API const char *polar_backend_name(int i);
POLAR_API const char *polar_backend_summary(int i); /* one line for people */

/* stream: the caller's CUDA stream, or NULL for one of its own */
POLAR_API polar_status polar_queue_create(polar_queue **out, polar_device *dev, void *stream);
/* work goes on in another stream of the caller's, who orders the two; of a queue that was made with one */
POLAR_API polar_status polar_queue_set_stream(polar_queue *q, void *stream);
/* waits for its work; NULL is fine */
POLAR_API void polar_queue_destroy(polar_queue *q);
/* waits; returns and clears the first error of the work */
POLAR_API polar_status polar_queue_sync(polar_queue *q);
/* src may be reused at once; q NULL: only a sentence is left */
POLAR_API void polar_queue_upload(polar_queue *q, void *dst, const void *src, size_t bytes);
/* dst is filled after the next sync; q NULL: only a sentence is left */
POLAR_API void polar_queue_download(polar_queue *q, void *dst, const void *src, size_t bytes);
/* from here on calls only count */
POLAR_API polar_status polar_queue_dry_begin(polar_queue *q);
/* ... until here; size: sizeof *out */
POLAR_API polar_status polar_queue_dry_end_sized(polar_queue *q, polar_cost *out, size_t size);
/* so that later work allocates nothing */
POLAR_API polar_status polar_queue_reserve(polar_queue *q, size_t scratch_bytes);

/* Threads of a device, and how many microseconds one without work waits awake before it sleeps:
 * "cpu:threads=4,spin=50" by its name, or by this call, while none of its queues is at work. They are the
 * device's own, start with its first work and end with it; no other device, library or program sees them.
 * "cpu:threads=4,team=openmp": they are the threads of the OpenMP runtime that the process has loaded, which
 * then do not look for work beside the device's; give it as many as the program's own regions have. 0
 * threads: as many as there are cores; a spin of -1: the library's choice. Devices without threads of their
 * own have one, and cannot be given more. */
POLAR_API polar_status polar_device_set_threads(polar_device *dev, int threads, int spin_us);
/* the calling thread among them */
POLAR_API int polar_device_get_threads(const polar_device *dev);
POLAR_API int polar_device_get_spin(const polar_device *dev); /* microseconds */

/* Functions that are given a struct without a struct_size are told its size by the caller's headers
 * (docs/abi.md). */
#ifndef POLAR_ENTRIES_OF_0_1
static inline polar_status polar_queue_dry_end(polar_queue *q, polar_cost *out)
{
    return polar_queue_dry_end_sized(q, out, sizeof *out);
}
#else /* within the library: what programs compiled against 0.1 call */
POLAR_API polar_status polar_queue_dry_end(polar_queue *q, polar_cost *out); /* as of 0.1 */
#endif

#ifdef __cplusplus
}
#endif
#endif
