/* message.h -- distance-weighted messages between the points of a cloud, forward and backward.
 *
 *     w_ij = W2 silu(w0 d_ij + b0) + b2            (2h numbers per pair i <= j; w_ji = w_ij)
 *     Ys_i = S_i + alpha sum_j w_ij[:h] S_j        scalars
 *     Yv_i = V_i + alpha sum_j w_ij[h:] V_j        vectors, each of the three components
 *
 * or, with one weight a pair for all channels, w_ij = w2 silu(w0 d_ij + b0) + b2, or the sigmoid of that; or
 * h weights a pair and messages of scalars alone, Yv = V; or a fixed kernel, 2 sigmoid(-d_ij), and scalars
 * that went through the MLP on their way, S_j -> W2 silu(w0 S_j + b0) + b2.
 *
 * E members, B clouds each, N points, h channels, P = N (N + 1) / 2 pairs as torch.triu_indices(N, N) orders
 * them.
 */
#ifndef PL_COMPOSE_MESSAGE_H
#define PL_COMPOSE_MESSAGE_H

#include "device/queue.h"

typedef enum pl_message_kind {
    PL_MESSAGE_CHANNEL,        /* 2h weights a pair */
    PL_MESSAGE_SHARED,         /* one */
    PL_MESSAGE_SHARED_BOUNDED, /* one, in (0, 1) */
    PL_MESSAGE_KERNEL,         /* a fixed one; the MLP is of scalars */
    PL_MESSAGE_SCALARS,        /* h, of scalars alone */
    PL_MESSAGE_KINDS
} pl_message_kind;

typedef struct pl_message {
    pl_mat D; /* (E * B, P, 1): distances */
    /* (E, h, 1), (E, 1, h), (E, r, h), (E, 1, r): the MLP of distances, r = 2h, 1 or h numbers; of a kernel
     * that of scalars, whose first is (E, h, h) */
    pl_mat w0, b0, W2, b2;
    int64_t points; /* N */
    double alpha;
    /* composed: bytes of the pairs' arrays at one time, members permitting; 0: 1 GiB */
    int64_t slab;
    pl_message_kind kind;
} pl_message;

typedef struct pl_message_grads {
    pl_mat w0, b0, W2, b2; /* of the MLP, overwritten */
} pl_message_grads;

/* S, Ys (E * B, N, h) and V, Yv (E * B, 3 N, h); rows at any stride, results apart from the inputs. */
/* by the fused op where the device has it */
void pl_message_forward(pl_queue *q, pl_mat Ys, pl_mat Yv, pl_mat S, pl_mat V, const pl_message *m);
void pl_message_backward(pl_queue *q, pl_mat dS, pl_mat dV, const pl_message_grads *g, pl_mat dYs, pl_mat dYv,
                         pl_mat S, pl_mat V, const pl_message *m);

/* of plain ops, on any device */
void pl_message_forward_composed(pl_queue *q, pl_mat Ys, pl_mat Yv, pl_mat S, pl_mat V, const pl_message *m);
void pl_message_backward_composed(pl_queue *q, pl_mat dS, pl_mat dV, const pl_message_grads *g, pl_mat dYs,
                                  pl_mat dYv, pl_mat S, pl_mat V, const pl_message *m);

#endif
