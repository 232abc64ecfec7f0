/* attention.h -- self-attention of the tokens of an image, forward and backward.
 *
 *     head h of C / heads = d channels:   P = softmax(Q K^T / sqrt(d)),   O = P V
 *
 * QKV (images, tokens, 3 C) holds Q, K and V side by side, each with its heads side by side, as timm's fused
 * qkv layer leaves them; O (images, tokens, C). lse (images, heads, tokens) is what the fused forward keeps
 * for its backward: log of the sum of e^(Q K^T / sqrt(d)) over a row. The composition makes the probabilities
 * again and neither reads nor writes it.
 */
#ifndef PL_COMPOSE_ATTENTION_H
#define PL_COMPOSE_ATTENTION_H

#include "device/queue.h"

/* Whether the fused ops serve: both or neither, for the fused backward wants the fused forward's lse. O, lse
 * and dO are taken to be packed. */
int pl_attention_fused(pl_queue *q, pl_mat QKV, int64_t heads);

/* by the fused op where the device has it */
void pl_attention_forward(pl_queue *q, pl_mat O, pl_mat lse, pl_mat QKV, int64_t heads);
/* after the forward; overwrites dQKV, apart from its inputs */
void pl_attention_backward(pl_queue *q, pl_mat dQKV, pl_mat QKV, pl_mat O, pl_mat lse, pl_mat dO,
                           int64_t heads);

/* Of plain ops, on any device. slab: bytes of the images' score matrices at one time, images permitting; 0: 1
 * GiB. */
void pl_attention_forward_composed(pl_queue *q, pl_mat O, pl_mat QKV, int64_t heads, int64_t slab);
void pl_attention_backward_composed(pl_queue *q, pl_mat dQKV, pl_mat QKV, pl_mat dO, int64_t heads,
                                    int64_t slab);

#endif
