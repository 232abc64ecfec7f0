/* cuda_multi_norm.h -- frob_normalise of several calls in two launches (cuda_multi_norm.cu).
 *
 * Between pl_queue_overlap_begin and ..._end calls only become items of the queue's list, as in cuda_multi.h
 * and under its invariants. Scratch is taken when the list is launched; a dry run adds up what that will be.
 */
#ifndef PL_CUDA_MULTI_NORM_H
#define PL_CUDA_MULTI_NORM_H

#include <cuda_runtime.h>

#include "device/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PL_CUDA_NORM_CALLS 12 /* of one launch, some 3 KB of parameters */

typedef struct pl_cuda_multi_norm {
    int count;
    pl_args_frob_normalise call[PL_CUDA_NORM_CALLS];
} pl_cuda_multi_norm;

/* f32, rows without gaps and in fours, not of a transpose */
int pl_cuda_norm_suits(const pl_args_frob_normalise *a);
size_t pl_cuda_multi_norm_scratch(const pl_args_frob_normalise *a); /* bytes of a call */
/* two launches for all calls; scratch: that of all of them, one behind the other */
void pl_cuda_launch_norms(cudaStream_t stream, const pl_cuda_multi_norm *list, void *scratch);

#ifdef __cplusplus
}
#endif
#endif
