/* cuda_multi.h -- multi-tensor launches: the elementwise ops of many parameters from one table
 * (cuda_multi.cu).
 *
 * Between pl_queue_overlap_begin and ..._end calls of adamw_step, direction, decay_step, apply_step, copy and
 * nonfinite only become items of the queue's table; the end, or a full table, launches it. An item is what
 * the op was given, for packed operands in f32 (the gradient and a copy's result also in bf16); other formats
 * and strided views go to the kernels of cuda_elem.cu.
 *
 * Invariants
 *  1. The table travels by value, as the kernel's parameter: a captured graph owns its copy, in which
 *     cuda_graph.c can change the gradients' addresses, and a launch outside of a graph may name other
 *     gradients than the last one at no cost.
 *  2. Items of one table do not depend on one another (the caller's promise), so their order is free.
 *  3. An item's bits are those of its op alone: an entry is computed by one thread, from the formulas of
 *     formulas_elem.h.
 */
#ifndef PL_CUDA_MULTI_H
#define PL_CUDA_MULTI_H

#include <cuda_runtime.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PL_CUDA_ITEMS 256 /* of one launch: the table must fit into 32,764 bytes of kernel parameters */

typedef struct pl_cuda_item {
    /* as the op has them, w also for the flags; NULL where it has none */
    void *w, *m, *v, *d;
    const void *g;      /* the gradient, the source of a copy, or norms of matrices */
    const double *live; /* of the first matrix */
    int64_t each;       /* entries of one matrix */
    /* doubles from one matrix's live values to the next one's, or 0 */
    int64_t live_stride;
    double scale, strength;
    int32_t matrices;
    uint8_t op, momentum, precondition, g_bf16;
    int32_t g_stride; /* doubles from one matrix's norms to the next one's */
    uint8_t apply;    /* of a step that looks at W */
} pl_cuda_item;

typedef enum pl_cuda_multi_op {
    PL_MULTI_ADAMW_STEP,
    PL_MULTI_DIRECTION,
    PL_MULTI_DECAY_STEP,
    PL_MULTI_CAUTIOUS_STEP, /* apply_step without norms, and with them */
    PL_MULTI_LOOKING_STEP,
    PL_MULTI_COPY, /* f32 to bf16 */
    PL_MULTI_COPY_F32,
    PL_MULTI_NONFINITE
} pl_cuda_multi_op;

typedef struct pl_cuda_multi {
    int count;
    pl_cuda_item item[PL_CUDA_ITEMS];
} pl_cuda_multi;

/* one launch for all items; none where there are none */
void pl_cuda_launch_multi(cudaStream_t stream, const pl_cuda_multi *list);

/* Of a captured launch: the bytes of its parameter, 0 where `kernel` is not one of these; and where in
 * `table`, such a parameter, the addresses of gradients stand: how many, at most PL_CUDA_ITEMS. */
size_t pl_cuda_multi_bytes(const void *kernel);
int pl_cuda_multi_grads(const void *kernel, void *table, const void ***out);

#ifdef __cplusplus
}
#endif
#endif
