/* cuda_hopper_kron.h -- kron_sweep by a cluster a matrix, on Hopper (cuda_hopper_kron.cu).
 *
 * Between pl_queue_overlap_begin and ..._end calls only become items of the queue's list (cuda_sweeps.c), as
 * in cuda_multi.h and under its invariants; an item is the call as it stands.
 */
#ifndef PL_CUDA_HOPPER_KRON_H
#define PL_CUDA_HOPPER_KRON_H

#include <cuda_runtime.h>

#include "device/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PL_HOPPER_SWEEPS 16 /* calls of one launch */

typedef struct pl_hopper_sweep_list {
    int calls;
    pl_args_kron_sweep call[PL_HOPPER_SWEEPS];
    double *scratch[PL_HOPPER_SWEEPS]; /* pl_hopper_sweep_scratch bytes each */
} pl_hopper_sweep_list;

/* it serves sides of n */
int pl_hopper_sweeps(int64_t n);
size_t pl_hopper_sweep_scratch(const pl_args_kron_sweep *a);
/* A launch for sides from 257 on, one for smaller ones, and, where two calls have the same V, one that moves
 * its lines. At most two have, one of each side, due in the same steps (pl_hopper_sweeps_agree). */
int pl_hopper_sweeps_agree(const pl_args_kron_sweep *a, const pl_args_kron_sweep *b);
void pl_hopper_sweep(cudaStream_t stream, const pl_hopper_sweep_list *list);

#ifdef __cplusplus
}
#endif
#endif
