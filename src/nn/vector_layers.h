/* vector_layers.h -- layers on scalars and vectors of points: dot products back into the scalars, a gate on
 * vectors, means over a cloud. */
#ifndef PL_NN_VECTOR_LAYERS_H
#define PL_NN_VECTOR_LAYERS_H

#include "nn/linear.h"

/* ---- dot products into scalars ------------------------------------------------------------------- */

/* The Clebsch-Gordan product of vector and vector, its invariant part, back into the
 * scalars.
 *
 *     Y = act(W [s, dots] + b),   dots_ab = <v_a, v_b> for channels a <= b     nd = h (h + 1) / 2 of them
 *
 * The layer's input [s, dots] is one array (E, r, h + nd): who makes the scalars writes them into its left
 * part, the layer fills the right one. */

/* cat (E, r, h + nd), its left h columns filled; v (E, 3 r, h); U, Y (E, r, h) as of pl_linear_forward. */
void pl_dots_linear_forward(pl_queue *q, const pl_linear *l, pl_mat Y, pl_mat U, pl_mat cat, pl_mat v);

/* dcat = the gradient of [s, dots], and dv += what comes through the dots. */
void pl_dots_linear_backward(pl_queue *q, const pl_linear *l, pl_mat dcat, pl_mat dv, pl_mat dY, pl_mat U,
                             pl_mat cat, pl_mat v, int64_t groups);

/* ---- gate ---------------------------------------------------------------------------------------- */

/* The norm gate on vectors: a vector keeps its direction, its length decides how much of it passes, or, of a
 * linear gate, the lengths of all channels do. */

typedef struct pl_gate {
    const pl_param *weight, *bias; /* (E, 1, h): g and b; of a linear gate the first is (E, h, h) */
    double eps;
    int64_t tf32; /* of a linear gate: as pl_linear's */
} pl_gate;

/* V, Y (E, 3 r, h): the three components of r vectors per channel in consecutive rows. Y = V sigmoid(g |V| +
 * b) + Z, of a linear gate V sigmoid(G |V| + b) + Z; Z or none. */
void pl_gate_forward(pl_queue *q, const pl_gate *l, pl_mat Y, pl_mat V, pl_mat Z);
/* overwrites dV (which may be dY) and the gradients of g and b; the rows come in `groups` (clouds) */
void pl_gate_backward(pl_queue *q, const pl_gate *l, pl_mat dV, pl_mat V, pl_mat dY, int64_t groups);

/* ---- means over a cloud -------------------------------------------------------------------------- */

/* Invariants of a whole cloud: the means over its points of the scalars and of the vectors'
 * lengths. */

/* s (E, B N, h), v (E, 3 B N, h) -> Y (E, B, 2h): the scalars' means in the left half, the lengths' in the
 * right; or Y (E, B, h), the scalars' alone. */
void pl_cloud_mean_forward(pl_queue *q, pl_mat Y, pl_mat s, pl_mat v, double eps);
/* overwrites ds and dv */
void pl_cloud_mean_backward(pl_queue *q, pl_mat ds, pl_mat dv, pl_mat v, pl_mat dY, double eps);

#endif
