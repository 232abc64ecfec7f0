/* cuda_ns.h -- Newton-Schulz and whole optimiser steps of matrices with a short side of at most 256, on
 * Hopper.
 *
 * A matrix is read once, has its direction, norm and Newton-Schulz steps in shared memory or registers, and
 * is written once. A task is a batch of matrices of one shape. A list of tasks of any shapes is a few
 * launches, one for each kernel that some task needs.
 *
 * Invariants
 *  1. Tasks travel by value, as the kernel's parameter: nothing is allocated or uploaded, a captured graph
 *     owns its copy, in which cuda_graph.c can change the gradients' addresses.
 *  2. Tasks of one list do not depend on one another (the caller's promise).
 *  3. Kernel and layout are of the shape and of having stages alone, so a matrix's bits do not depend on the
 *     rest of its list.
 */
#ifndef PL_CUDA_NS_H
#define PL_CUDA_NS_H

#include <cuda_runtime.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PL_CUDA_NS_STEPS 12  /* PL_FUSED_STEPS */
#define PL_CUDA_NS_TASKS 200 /* of one launch: a parameter holds 32,764 bytes */

typedef enum pl_cuda_ns_kind {
    PL_CUDA_NS_ITERATE, /* W <- newton_schulz(W), W bf16 */
    PL_CUDA_NS_MAP,     /* W <- newton_schulz(G / norm), the norm N's or G's own */
    /* not of a warp's matrices: D = direction(M, V, G); W <- (1 - lr wd) W - lr scale newton_schulz(D /
     * norm), or with stages: P, apply */
    PL_CUDA_NS_STEP
} pl_cuda_ns_kind;

typedef struct pl_cuda_ns_task {
    void *W;                        /* f32, or bf16 where w_bf16: the output */
    float *M, *V;                   /* V: NULL without preconditioner */
    const void *G;                  /* f32, or bf16 where g_bf16 */
    const double *live;             /* STEP: a live row (pl_live_col) */
    const double *N;                /* MAP: (s, n) as frob leaves them, or NULL */
    float *P;                       /* STEP: moments of lines, or NULL */
    int64_t w_bs, m_bs, v_bs, g_bs; /* elements from matrix to matrix */
    double scale, strength;         /* STEP */
    int32_t w_rs, m_rs, v_rs, g_rs; /* elements from row to row */
    int32_t rows, cols, batch;
    int32_t first;         /* matrices before it in the launch: the launcher's */
    int32_t live_bs, n_bs; /* doubles from matrix to matrix; 0: one for all */
    int32_t p_bs;          /* floats from matrix to matrix */
    float eps;             /* the norm is taken for at least eps */
    uint8_t kind, momentum, w_bf16, g_bf16;
    uint8_t apply;            /* a polar_apply */
    uint8_t columns, clamped; /* P is of columns; PL_LINE_CLAMPED */
    uint8_t stages;           /* P, or an apply other than DECOUPLED and CONSTRAINED */
} pl_cuda_ns_task;

/* Coefficients a, b, c of each step, and tasks that all go through these steps. */
typedef struct pl_cuda_ns_list {
    float coef[3 * PL_CUDA_NS_STEPS];
    int32_t steps, tasks;
    pl_cuda_ns_task task[PL_CUDA_NS_TASKS];
} pl_cuda_ns_list;

/* the device has the kernels */
int pl_cuda_ns_usable(int ordinal);
/* they serve the shape */
int pl_cuda_ns_fits(pl_cuda_ns_kind kind, int64_t rows, int64_t cols);
cudaError_t pl_cuda_ns_launch(cudaStream_t stream, const pl_cuda_ns_list *list); /* enqueues all tasks */

/* Of a captured launch: the bytes of its parameter, 0 where `kernel` is not one of these; and where in
 * `table`, such a parameter, the addresses of gradients stand: how many, at most PL_CUDA_NS_TASKS. */
size_t pl_cuda_ns_bytes(const void *kernel);
int pl_cuda_ns_grads(void *table, const void ***out);

#ifdef __cplusplus
}
#endif
#endif
