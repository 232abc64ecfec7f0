/* cuda_ns_table.h -- what the Newton-Schulz kernels and their launcher share: the kernel's parameter, the
 * kernels. */
#ifndef PL_CUDA_NS_TABLE_H
#define PL_CUDA_NS_TABLE_H

#include "cuda_ns.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PL_NS_RANKS   8    /* blocks of the largest cluster */
#define PL_NS_MAX_MB  4    /* row blocks of 64 */
#define PL_NS_CONTROL 1024 /* bytes in front of X in shared memory */
#define PL_NS_WARPS   4    /* of a block of the warp kernel, a matrix each */

typedef struct pl_ns_table {
    pl_cuda_ns_task task[PL_CUDA_NS_TASKS];
    float coef[3 * PL_CUDA_NS_STEPS];
    int32_t tasks, steps;
    int32_t clusters; /* of split matrices, which come first; the others have a block each */
    int32_t matrices;
    int32_t panels;    /* room for X, in panels of 64 columns */
    int32_t per_round; /* units exchanged at a time */
    int32_t stage;     /* where rounded units arrive, bytes from A */
    int32_t overlay;   /* stage lies over the partial sums: one barrier more */
} pl_ns_table;

/* a block or a cluster per matrix, mb <= PL_NS_MAX_MB; with stages for tasks that have some, and them alone
 */
const void *pl_ns_block_kernel(int mb, int stages);
/* a warp per matrix of at most 16 x 16 blocks; blocks: 1, 4, 10 or 16 */
const void *pl_ns_warp_kernel(int blocks);

#ifdef __cplusplus
}
static_assert(sizeof(pl_ns_table) <= 32764, "a kernel parameter");
#endif
#endif
