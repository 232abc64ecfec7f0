/* guard_impl.h -- the inside of `guard`: a CPU device with a GPU's manners, so that CUDA's discipline is
 * tested without a GPU.
 *
 * Invariants
 *  1. Device memory is PROT_NONE but inside a synchronisation (pl_guard_open to pl_guard_close). Each
 *     buffer lies between two pages that are never opened; what is left of its own pages is a red zone,
 *     looked at after every op.
 *  2. An address is handed out once in the life of a device: a stale pointer never meets a younger buffer.
 *     So a free takes effect at once, and recorded work that still names the buffer fails at
 *     synchronisation. (cudaFree would wait for it, a stream-ordered free would not.)
 *  3. Nothing recorded runs before the queue is synchronised; then all of it runs in the order of the
 *     calls, up to the first error.
 *  4. A buffer nobody wrote holds PL_GUARD_POISON, which is a NaN in every format.
 *  5. A graph's scratch lies above the mark its capture began with; it may not be launched while more than
 *     that is held. Ops are numbered from 0: those of a queue since its last synchronisation, those of a
 *     graph from its beginning.
 */
#ifndef PL_GUARD_IMPL_H
#define PL_GUARD_IMPL_H

#include <pthread.h>

#include "device/backend.h"

#define PL_GUARD_POISON       0xff /* fresh memory, and scratch before the first of a graph's two runs */
#define PL_GUARD_OTHER_POISON 0x41 /* scratch before the second: finite in every format (f32 12.08) */
#define PL_GUARD_RED_ZONE     0xa5

typedef struct pl_guard_buffer {
    struct pl_guard_buffer *next;
    char *start; /* its pages, guard pages not counted */
    size_t span;
    char *data; /* what the caller got: start <= data, data + bytes <= start + span */
    size_t bytes;
    size_t kept;          /* while a graph runs: leading bytes that are no scratch of it, ... */
    char *before, *after; /* ... as they were before it, and after its first run */
} pl_guard_buffer;

typedef struct pl_guard_device {
    struct pl_guard_device *next; /* of the guard devices open now */
    pl_device *inner;             /* where recorded ops run: ref or cpu */
    pthread_mutex_t lock;         /* of everything below */
    char *base;                   /* reserved addresses, [0, used) handed out */
    size_t size, used, page;
    size_t memory, live;      /* bytes the device has, bytes in buffers */
    pl_guard_buffer *buffers; /* youngest first */
    /* what a call without a status did wrong, for the next synchronisation; "" if nothing */
    char misuse[200];
    const char *op;      /* running now, for the handler */
    const char *subject; /* the parameter it works for, or "" */
    int64_t op_number;
} pl_guard_device;

typedef struct pl_guard_graph pl_guard_graph;
typedef enum pl_guard_kind { PL_GUARD_OP, PL_GUARD_UPLOAD, PL_GUARD_DOWNLOAD, PL_GUARD_LAUNCH } pl_guard_kind;

typedef struct pl_guard_record {
    pl_guard_kind kind;
    pl_op_id op;
    char subject[104]; /* the parameter it works for, or "" */
    union {
        _Alignas(16) unsigned char args[PL_MAX_ARGS_BYTES]; /* of an op, a pl_args_<op> */
        struct {
            char *dst;
            const char *src; /* of an upload: a copy made at the call, owned by the record */
            size_t bytes;
        } copy;
        pl_guard_graph *graph; /* counted in its refs */
    };
} pl_guard_record;

typedef struct pl_guard_tape {
    pl_guard_record *records;
    int64_t count, room;
} pl_guard_tape;

typedef struct pl_guard_place { /* of a gradient: in which operand of which record */
    int64_t record, operand, grad;
} pl_guard_place;

struct pl_guard_graph {
    pl_guard_tape tape;  /* ops only */
    pl_scratch_mark top; /* of the scratch stack when the capture began */
    int64_t launches;
    int refs;               /* its owner and the launches not yet run */
    pl_guard_place *places; /* of gradients that may move, found at the first move; or NULL */
    int64_t place_count;
};

typedef struct pl_guard_queue {
    pl_queue *inner;         /* on the inner device: ops see its threads and leave their errors there */
    pl_guard_tape tape;      /* since the last synchronisation */
    pl_guard_graph *capture; /* ops go to its tape, or NULL */
} pl_guard_queue;

/* guard_memory.c */
/* takes the addresses */
polar_status pl_guard_reserve(pl_guard_device *d);
/* gives them back, with every buffer */
void pl_guard_release(pl_guard_device *d);
/* the backend's mem_alloc */
polar_status pl_guard_mem_alloc(pl_device *dev, void **out, size_t bytes);
/* the backend's mem_free */
void pl_guard_mem_free(pl_device *dev, void *data);
/* device memory becomes readable and writable */
polar_status pl_guard_open(pl_guard_device *d);
/* ... and is unreadable again */
polar_status pl_guard_close(pl_guard_device *d);
/* the buffer whose pages hold p, or NULL */
pl_guard_buffer *pl_guard_find(const pl_guard_device *d, const void *p);
/* p is one of the device's addresses, live or not */
int pl_guard_owns(const pl_guard_device *d, const void *p);
/* [p, p + bytes) lies in one live buffer */
polar_status pl_guard_inside(const pl_guard_device *d, const char *what, const void *p, size_t bytes);
/* offset of the first changed byte of the red zone; 0 if whole */
int64_t pl_guard_torn(const pl_guard_buffer *b);

/* guard_signal.c */
void pl_guard_watch_begin(pl_guard_device *d); /* a host access to d's memory dies with a sentence */
void pl_guard_watch_end(pl_guard_device *d);   /* forgets d, restores the signal after the last one */

/* guard_record.c */
/* every row records; fused ones where the inner device has them: */
extern const pl_ops pl_guard_ops;
void pl_guard_fused_ops(pl_ops *ops, const pl_ops *inner);
/* one more record, not set; NULL when there is no memory */
pl_guard_record *pl_guard_tape_add(pl_guard_tape *t);
/* drops the records and what they own */
void pl_guard_tape_clear(pl_guard_tape *t);
/* the backend's copy */
void pl_guard_copy(pl_queue *q, void *dst, const void *src, size_t bytes, pl_copy_kind kind);

/* guard_graph.c */
/* graphs that this thread captures now */
int pl_guard_captures(void);
/* the backend's graph_begin: ops go to a new graph */
polar_status pl_guard_graph_begin(pl_queue *q);
/* the backend's graph_end: hands it over */
polar_status pl_guard_graph_end(pl_queue *q, void **graph);
/* the backend's graph_launch: proves, records */
polar_status pl_guard_graph_launch(pl_queue *q, void *graph, pl_graph_fn fn, void *arg);
int pl_guard_graph_move(pl_queue *q, void *graph, const pl_moved *grad, int64_t n);
void pl_guard_graph_free(pl_device *dev, void *graph); /* the backend's graph_free */
/* one reference less; NULL is fine */
void pl_guard_graph_drop(pl_guard_graph *graph);

/* guard_run.c, guard_replay.c */
/* the backend's queue_sync */
polar_status pl_guard_sync(pl_queue *q);
/* "operand B", "gradient of 'fc.weight'" */
pl_operand_words pl_guard_operand(const pl_guard_record *r, int i);
/* checks, runs, looks at the red zones */
polar_status pl_guard_run_op(pl_queue *q, const pl_guard_record *r, const char *where, int64_t number);
/* a launch: runs it twice, has the effect of one */
polar_status pl_guard_replay(pl_queue *q, const pl_guard_graph *graph);

#endif
