/* weight_grad.h -- the gradients of a linear layer's weight and bias, sums over all rows of a batch of data.
 */
#ifndef PL_COMPOSE_WEIGHT_GRAD_H
#define PL_COMPOSE_WEIGHT_GRAD_H

#include "device/queue.h"

/* pieces the rows are cut in: a divisor of groups */
int64_t pl_weight_grad_parts(int64_t rows, int64_t groups, int64_t out, int64_t in);
/* dW = dY^T X: (E, out, in) from (E, rows, out) and (E, rows, in); db the sums of dY's columns, (E, 1, out),
 * or none. By the fused op where it serves. */
void pl_weight_grad(pl_queue *q, pl_mat dW, pl_mat db, pl_mat dY, pl_mat X, int64_t groups);
/* the same with the product's factors in tf32 (gemm), db of dY as it is */
void pl_weight_grad_tf32(pl_queue *q, pl_mat dW, pl_mat db, pl_mat dY, pl_mat X, int64_t groups);

#endif
