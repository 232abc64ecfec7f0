/* gate.h -- the norm gate on vectors: a vector keeps its direction, its length decides how much of it passes.
 */
#ifndef PL_NN_GATE_H
#define PL_NN_GATE_H

#include "device/queue.h"
#include "nn/param.h"

typedef struct pl_gate {
    const pl_param *weight, *bias; /* (E, 1, h): g and b */
    double eps;
} pl_gate;

/* V, Y (E, 3 r, h): the three components of r vectors per channel in consecutive rows. Y = V sigmoid(g |V| +
 * b) + Z; Z or none. */
void pl_gate_forward(pl_queue *q, const pl_gate *l, pl_mat Y, pl_mat V, pl_mat Z);
/* overwrites dV (which may be dY) and the gradients of g and b */
void pl_gate_backward(pl_queue *q, const pl_gate *l, pl_mat dV, pl_mat V, pl_mat dY);

#endif
