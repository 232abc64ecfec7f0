/* cuda_state.h -- what the files of the cuda backend share: a device's and a queue's own data, loaded
 * libraries, error reporting. */
#ifndef PL_CUDA_STATE_H
#define PL_CUDA_STATE_H

#include <cuda_runtime.h>
#include <pthread.h>

#include "device/backend.h"

#define PL_CUDA_WORKSPACE ((size_t)32 << 20) /* cuBLASLt's, one per queue */

typedef struct pl_cuda_lt pl_cuda_lt;         /* cuda_gemm.c */
typedef struct pl_cuda_solver pl_cuda_solver; /* cuda_polar.c */

typedef struct pl_cuda_device {
    int ordinal;
    /* POLAR_CUDA_SYNC=1: wait after every op, so that a failing kernel is named */
    int sync_each;
    pl_cuda_lt *lt;
    pl_cuda_solver *solver;      /* opened at the first polar_exact */
    pthread_mutex_t solver_lock; /* of the solver, whose handle has one stream at a time */
} pl_cuda_device;

#define PL_CUDA_RING 64
#define PL_CUDA_SLOT ((size_t)65536) /* the live values of 900 parameters that count their own steps */

#define PL_CUDA_STAGES 8
#define PL_CUDA_STAGE \
    ((size_t)4 << 20) /* all of them hold two batches of 128 pictures of 64 pixels, floats */

typedef struct pl_cuda_queue {
    cudaStream_t stream;
    int owns_stream;
    cudaStream_t
        side; /* captures instead of the legacy default stream, which cannot; made when first wanted */
    cudaStream_t outside; /* the queue's stream while the side stream captures; or NULL */
    void *workspace;
    uint32_t
        *counters; /* of lists of products (cuda_products.h, cuda_hopper_parts.h): zeros between launches */
    char *pinned;  /* PL_CUDA_RING slots for small uploads */
    cudaEvent_t slot_free[PL_CUDA_RING]; /* recorded behind the copy out of the slot */
    int next_slot;
    char *stages; /* PL_CUDA_STAGES pieces of pinned memory for large uploads, taken at the first; or NULL */
    cudaEvent_t stage_free[PL_CUDA_STAGES];
    int next_stage;
    cudaEvent_t timer[2];                 /* of watched ops, made at the first */
    cudaEvent_t reached;                  /* for queues that wait for this one, made at the first */
    struct pl_cuda_multi *multi;          /* ops put off until overlap_end (cuda_optim.c) */
    struct pl_cuda_multi_stage *small;    /* the same (cuda_optim.c) */
    struct pl_cuda_multi_lines *lines;    /* the same (cuda_optim.c) */
    struct pl_cuda_multi_moment *moments; /* the same (cuda_optim.c) */
    struct pl_cuda_ns_list *ns;           /* the same (cuda_ns.c) */
    struct pl_hopper_sweep_list *sweeps;  /* the same (cuda_sweeps.c) */
    struct pl_cuda_multi_norm *norms;     /* the same (cuda_optim.c) */
    struct pl_hopper_parts_list *parts;   /* products of the same (cuda_gemm.c) */
    int fixed_grads;                      /* an op since graph_begin took a gradient outside of the tables */
} pl_cuda_queue;

static inline pl_cuda_device *pl_cuda_dev(const pl_device *dev)
{
    return dev->impl;
}

/* The queue's own data, with its device made current: another thread, or the host program, may have chosen
 * another. */
static inline pl_cuda_queue *pl_cuda_q(const pl_queue *q)
{
    cudaSetDevice(pl_cuda_dev(q->dev)->ordinal);
    return q->impl;
}

/* CUDA's sentence behind ours; OK for cudaSuccess */
polar_status pl_cuda_fail(cudaError_t e, const char *what, const pl_device *dev);
/* after a launch: its error, with op and shapes */
void pl_cuda_check_op(pl_queue *q, pl_op_id id, const void *args);
/* stem.so.N of the process, torch's for one, of whichever of these versions; else that of the toolkit whose
 * cuBLASLt the process has; else the newest that can be loaded; NULL when there is none. The calls that we
 * make, and the numbers that we give them, are the same in CUDA 12 and 13. */
void *pl_cuda_library(const char *stem, int first_version, int last_version);

polar_status pl_cuda_lt_open(pl_cuda_lt **out, const pl_device *dev); /* loads cuBLASLt */
void pl_cuda_lt_close(pl_cuda_lt *lt);                                /* NULL is fine */
/* pl_backend's graphs (cuda_graph.c) */
polar_status pl_cuda_graph_begin(pl_queue *q);
polar_status pl_cuda_graph_end(pl_queue *q, void **graph);
polar_status pl_cuda_graph_launch(pl_queue *q, void *graph, pl_graph_fn fn, void *arg);
int pl_cuda_graph_move(pl_queue *q, void *graph, const pl_moved *grad, int64_t n);
void pl_cuda_graph_free(pl_device *dev, void *graph);
/* ops of our own (ops.def) */
#define CUDA_OWN(op) void pl_cuda_##op(pl_queue *q, const pl_args_##op *a);
#include "device/ops.def"

/* launches what was put off */
void pl_cuda_overlap_end(pl_queue *q);
size_t pl_cuda_gemm_scratch(const pl_args_gemm *a); /* bytes that gemm wants */
size_t pl_cuda_newton_schulz_scratch(pl_queue *q, const pl_args_newton_schulz *a);
/* newton_schulz of matrices with a short side above 256 (cuda_ns_large.c) */
int pl_cuda_ns_large_serves(pl_queue *q, const pl_args_newton_schulz *a);
size_t pl_cuda_ns_large_scratch(const pl_args_newton_schulz *a);
void pl_cuda_ns_large(pl_queue *q, const pl_args_newton_schulz *a);
/* A linear layer's product by our own kernel; 0 where it is not done. */
int pl_cuda_gemm_rows(pl_queue *q, const pl_args_gemm *a);
/* What Hopper's kernels want to know; no multiprocessors: not for this device. */
const struct pl_hopper_device *pl_cuda_hopper(const pl_device *dev);
size_t pl_cuda_layer_scratch(pl_op_id id, const void *args); /* that gemm and layers' fused ops take */
/* pl_backend's question for the layers' fused ops */
int pl_cuda_layer_serves(pl_queue *q, pl_op_id id, const void *args);
/* pl_backend's question */
int pl_cuda_op_serves(pl_queue *q, pl_op_id id, const void *args);
/* launches the tasks put off */
void pl_cuda_ns_flush(pl_queue *q);
void pl_cuda_sweeps_flush(pl_queue *q);
void pl_cuda_parts_flush(pl_queue *q);
/* scratch that overlap_end takes for a call, in a dry run: of sweeps and of norms */
size_t pl_cuda_put_off_scratch(pl_queue *q, pl_op_id id, const void *args);
size_t pl_cuda_sweep_put_off_scratch(const pl_queue *q, const pl_args_kron_sweep *args);
void pl_cuda_solver_close(pl_cuda_solver *s); /* NULL is fine */

#endif
