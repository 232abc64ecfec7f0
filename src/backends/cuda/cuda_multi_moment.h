/* cuda_multi_moment.h -- kron_moment of several calls in one launch (cuda_multi_moment.cu).
 *
 * Between pl_queue_overlap_begin and ..._end calls only become items of the queue's list, as in cuda_multi.h
 * and under its invariants; an item is the call as it stands, so any formats and strides go this way.
 */
#ifndef PL_CUDA_MULTI_MOMENT_H
#define PL_CUDA_MULTI_MOMENT_H

#include <cuda_runtime.h>

#include "device/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PL_CUDA_MOMENT_CALLS 6 /* of one launch, some 4 KB of parameters */

typedef struct pl_cuda_multi_moment {
    int count;
    pl_args_kron_moment call[PL_CUDA_MOMENT_CALLS];
} pl_cuda_multi_moment;

/* one launch for all calls; none where there are no entries */
void pl_cuda_launch_moments(cudaStream_t stream, const pl_cuda_multi_moment *list);

#ifdef __cplusplus
}
#endif
#endif
