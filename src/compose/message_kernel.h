/* message_kernel.h -- messages by a fixed kernel of the distance (message.h), for members few enough that
 * their pairs' arrays fit; called by message.c alone. */
#ifndef PL_COMPOSE_MESSAGE_KERNEL_H
#define PL_COMPOSE_MESSAGE_KERNEL_H

#include "compose/message.h"

void pl_message_kernel_forward(pl_queue *q, pl_mat Ys, pl_mat Yv, pl_mat S, pl_mat V, const pl_message *m);
void pl_message_kernel_backward(pl_queue *q, pl_mat dS, pl_mat dV, const pl_message_grads *g, pl_mat dYs,
                                pl_mat dYv, pl_mat S, pl_mat V, const pl_message *m);

#endif
