/* weight_grad.h -- the gradient of a linear layer's weight, a sum over all rows of a batch of data. */
#ifndef PL_COMPOSE_WEIGHT_GRAD_H
#define PL_COMPOSE_WEIGHT_GRAD_H

#include "device/queue.h"

/* pieces the rows are cut in: a divisor of groups */
int64_t pl_weight_grad_parts(int64_t rows, int64_t groups, int64_t out, int64_t in);
/* dW = dY^T X: (E, out, in) from (E, rows, out) and (E, rows, in) */
void pl_weight_grad(pl_queue *q, pl_mat dW, pl_mat dY, pl_mat X, int64_t groups);

#endif
