/* cuda_multi_stage.h -- what stages of rules sum over small matrices, of many parameters in one launch
 * (cuda_multi_stage.cu).
 *
 * Between pl_queue_overlap_begin and ..._end calls of inner, line_factors and scale_lines only become items
 * of the queue's table, as in cuda_multi.h and under its invariants; no gradient is among their operands in a
 * graph that follows some. Packed f32 operands of at most PL_CUDA_STAGE_ENTRIES entries and
 * PL_CUDA_STAGE_LINES rows and columns a matrix: a block each. Others go to cuda_stage.cu.
 */
#ifndef PL_CUDA_MULTI_STAGE_H
#define PL_CUDA_MULTI_STAGE_H

#include <cuda_runtime.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PL_CUDA_STAGE_ITEMS   256 /* of one launch: kernel parameters end at 32,764 bytes */
#define PL_CUDA_STAGE_ENTRIES 8192
#define PL_CUDA_STAGE_LINES   512

typedef enum pl_cuda_stage_op {
    PL_STAGE_INNER,
    PL_STAGE_LINE_FACTORS,
    PL_STAGE_SCALE_LINES
} pl_cuda_stage_op;

typedef struct pl_cuda_stage_item {
    const float *x, *y;  /* X; inner's Y */
    float *to, *v;       /* scale_lines' Y; moments of lines, or NULL */
    double *f, *c;       /* N, F, R; C. R and C: NULL where there is none */
    const double *live;  /* of the first matrix */
    int64_t live_stride; /* doubles from one matrix's live values to the next one's, or 0 */
    int32_t rows, cols, matrices;
    int32_t f_stride, c_stride, v_stride; /* from matrix to matrix */
    uint8_t op, columns, kind;            /* lines are columns; a pl_line */
} pl_cuda_stage_item;

typedef struct pl_cuda_multi_stage {
    int count;
    pl_cuda_stage_item item[PL_CUDA_STAGE_ITEMS];
} pl_cuda_multi_stage;

/* one launch for all items; none where there are none */
void pl_cuda_launch_multi_stage(cudaStream_t stream, const pl_cuda_multi_stage *list);

#ifdef __cplusplus
}
#endif
#endif
