/* cuda_multi_lines.h -- pick_lines and move_lines of many parameters in one launch a pass
 * (cuda_multi_lines.cu).
 *
 * Between pl_queue_overlap_begin and ..._end calls only become items of the queue's lists, as in
 * cuda_multi.h and under its invariants; an item is the call as it stands, so any formats and strides go
 * this way. Gradients in these tables do not move with a graph.
 */
#ifndef PL_CUDA_MULTI_LINES_H
#define PL_CUDA_MULTI_LINES_H

#include <cuda_runtime.h>

#include "device/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PL_CUDA_LINES_CALLS 96 /* of one launch: kernel parameters end at 32,764 bytes */

typedef struct pl_cuda_multi_lines {
    int picks, moves;
    pl_args_pick_lines pick[PL_CUDA_LINES_CALLS];
    pl_args_move_lines move[PL_CUDA_LINES_CALLS];
} pl_cuda_multi_lines;

/* three launches for all of list->pick, one for all of list->move; none where there is nothing to write */
void pl_cuda_launch_picks(cudaStream_t stream, const pl_cuda_multi_lines *list);
void pl_cuda_launch_moves(cudaStream_t stream, const pl_cuda_multi_lines *list);

#ifdef __cplusplus
}
#endif
#endif
