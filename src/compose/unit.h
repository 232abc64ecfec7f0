/* unit.h -- a matrix over its own norm, which is kept. */
#ifndef PL_COMPOSE_UNIT_H
#define PL_COMPOSE_UNIT_H

#include "device/queue.h"

/* N = X's norm as frob leaves it (weight 1), Y = X over it; a zero X stays zero. Y may be X. */
void pl_unit(pl_queue *q, pl_mat Y, pl_mat N, pl_mat X);

#endif
