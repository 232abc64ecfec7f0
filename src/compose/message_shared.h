/* message_shared.h -- messages whose weight is one number a pair, shared by all channels (message.h), for
 * members few enough that their pairs' arrays fit; called by message.c alone. */
#ifndef PL_COMPOSE_MESSAGE_SHARED_H
#define PL_COMPOSE_MESSAGE_SHARED_H

#include "compose/message.h"

/* A column (E, n, 1) is spread over h channels, or summed over them, by a product with (E, 1, h) of halves:
 * sigmoid(0 x), x (E, 1, h) any numbers of the members; NaN where they are not finite any more. */
pl_mat pl_message_halves(pl_queue *q, pl_mat x);
/* W = alpha w 1^T, and w = W 1 */
void pl_message_spread(pl_queue *q, pl_mat W, pl_mat w, pl_mat halves, double alpha);
void pl_message_gather(pl_queue *q, pl_mat w, pl_mat W, pl_mat halves);

void pl_message_shared_forward(pl_queue *q, pl_mat Ys, pl_mat Yv, pl_mat S, pl_mat V, const pl_message *m);
void pl_message_shared_backward(pl_queue *q, pl_mat dS, pl_mat dV, const pl_message_grads *g, pl_mat dYs,
                                pl_mat dYv, pl_mat S, pl_mat V, const pl_message *m);

#endif
