/* message_scalars.h -- messages of scalars alone (message.h) by the fused ops of messages by channel, called
 * by message.c alone. */
#ifndef PL_COMPOSE_MESSAGE_SCALARS_H
#define PL_COMPOSE_MESSAGE_SCALARS_H

#include "compose/message.h"

/* The same messages by channel, the vectors' weights zero: in scratch memory, unset. */
pl_message pl_message_scalars_wide(pl_queue *q, const pl_message *m);
/* its weights */
void pl_message_scalars_fill(pl_queue *q, const pl_message *wide, const pl_message *m);
/* room for its gradients; those of W2 and b2 in scratch memory */
pl_message_grads pl_message_scalars_grads(pl_queue *q, const pl_message_grads *g);
/* the scalars' part of them */
void pl_message_scalars_keep(pl_queue *q, const pl_message_grads *g, const pl_message_grads *wide);

#endif
