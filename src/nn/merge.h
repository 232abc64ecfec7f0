/* merge.h -- the Clebsch-Gordan merge: the invariant part of vector times vector, back into the scalars.
 *
 *     Y = act(W [s, dots] + b),   dots_ab = <v_a, v_b> for channels a <= b     nd = h (h + 1) / 2 of them
 *
 * The layer's input [s, dots] is one array (E, r, h + nd): who makes the scalars writes them into its left
 * part, the merge fills the right one.
 */
#ifndef PL_NN_MERGE_H
#define PL_NN_MERGE_H

#include "nn/linear.h"

/* cat (E, r, h + nd), its left h columns filled; v (E, 3 r, h); U, Y (E, r, h) as of pl_linear_forward. */
void pl_merge_forward(pl_queue *q, const pl_linear *l, pl_mat Y, pl_mat U, pl_mat cat, pl_mat v);

/* dcat = the gradient of [s, dots], and dv += what comes through the dots. */
void pl_merge_backward(pl_queue *q, const pl_linear *l, pl_mat dcat, pl_mat dv, pl_mat dY, pl_mat U,
                       pl_mat cat, pl_mat v, int64_t groups);

#endif
