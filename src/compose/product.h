/* product.h -- a linear layer's products with what follows them: bias, activation, addend. By the fused op
 * gemm_act where the device has it, else by gemm, bias_act, bias_act_back and scale_rows; the bits are the
 * same, gelu in bf16 apart (ops.def).
 *
 *     X (E, rows, in), W (E, out, in), b (E, 1, out) or none, act a pl_act
 */
#ifndef PL_COMPOSE_PRODUCT_H
#define PL_COMPOSE_PRODUCT_H

#include "device/queue.h"

/* Y = act(U + b), U = X W^T. Y may be U, and is where there is neither bias nor activation. tf32: as gemm's,
 * which then goes apart from what follows it. */
void pl_product(pl_queue *q, pl_mat Y, pl_mat U, pl_mat X, pl_mat W, pl_mat b, int64_t act, int64_t tf32);

/* Y = Z + X W^T + b or, with s (E, groups, 1), a factor for each group of rows, Y = Z + s (X W^T + b), where
 * what is multiplied is rounded to X's format first. Y may be Z. */
void pl_product_add(pl_queue *q, pl_mat Y, pl_mat X, pl_mat W, pl_mat b, pl_mat Z, pl_mat s);

/* An activation between two products, and what its backward wants of the forward. */
typedef struct pl_activation {
    pl_mat kept; /* X W^T or, where it is fused, act'(X W^T + b) */
    pl_mat b;
    int64_t act;
} pl_activation;

/* Y = act(X W^T + b), apart from a->kept, which is overwritten. */
void pl_product_activate(pl_queue *q, pl_mat Y, const pl_activation *a, pl_mat X, pl_mat W);
/* dX = (dY W) act', W the weight behind the activation. */
void pl_product_activate_back(pl_queue *q, pl_mat dX, const pl_activation *a, pl_mat dY, pl_mat W);

#endif
