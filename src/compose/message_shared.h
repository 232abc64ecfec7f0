/* message_shared.h -- messages whose weight is one number a pair, shared by all channels (message.h), for
 * members few enough that their pairs' arrays fit; called by message.c alone. */
#ifndef PL_COMPOSE_MESSAGE_SHARED_H
#define PL_COMPOSE_MESSAGE_SHARED_H

#include "compose/message.h"

void pl_message_shared_forward(pl_queue *q, pl_mat Ys, pl_mat Yv, pl_mat S, pl_mat V, const pl_message *m);
void pl_message_shared_backward(pl_queue *q, pl_mat dS, pl_mat dV, const pl_message_grads *g, pl_mat dYs,
                                pl_mat dYv, pl_mat S, pl_mat V, const pl_message *m);

#endif
