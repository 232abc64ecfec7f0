/* message_shared.h -- messages whose weight is one number a pair, shared by all channels (message.h), for
 * members few enough that their pairs' arrays fit; called by message.c alone. */
#ifndef PL_COMPOSE_MESSAGE_SHARED_H
#define PL_COMPOSE_MESSAGE_SHARED_H

#include "compose/message.h"

/* the pairs' numbers w (E, clouds P, 1) as squares (E clouds, points, points), in scratch memory */
pl_mat pl_message_square(pl_queue *q, pl_mat w, int64_t clouds, int64_t points);
/* Y = Z + alpha W X, W (clouds, N, N), the others (clouds, N k, h) with k rows a point; Z may be absent */
void pl_message_products(pl_queue *q, pl_mat Y, pl_mat W, pl_mat X, pl_mat Z, double alpha);

/* whether the device has the MLP in one */
int pl_message_shared_fused(pl_queue *q, const pl_message *m);
void pl_message_shared_forward(pl_queue *q, pl_mat Ys, pl_mat Yv, pl_mat S, pl_mat V, const pl_message *m);
void pl_message_shared_backward(pl_queue *q, pl_mat dS, pl_mat dV, const pl_message_grads *g, pl_mat dYs,
                                pl_mat dYv, pl_mat S, pl_mat V, const pl_message *m);

#endif
