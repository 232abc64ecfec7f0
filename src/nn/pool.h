/* pool.h -- invariants of a whole cloud: the means over its points of the scalars and of the vectors'
 * lengths. */
#ifndef PL_NN_POOL_H
#define PL_NN_POOL_H

#include "device/queue.h"

/* s (E, B N, h), v (E, 3 B N, h) -> Y (E, B, 2h): the scalars' means in the left half, the lengths' in the
 * right. */
void pl_pool_forward(pl_queue *q, pl_mat Y, pl_mat s, pl_mat v, double eps);
/* overwrites ds and dv */
void pl_pool_backward(pl_queue *q, pl_mat ds, pl_mat dv, pl_mat v, pl_mat dY, double eps);

#endif
