/* newton_schulz.h -- the polar map by an odd polynomial iteration, for many matrices of any shapes at once.
 */
#ifndef PL_COMPOSE_NEWTON_SCHULZ_H
#define PL_COMPOSE_NEWTON_SCHULZ_H

#include "device/queue.h"
#include "polar/map.h"

typedef struct pl_ns_opts {
    polar_dtype precision;   /* of the iterates */
    polar_rounding rounding; /* but for POLAR_ROUND_FUSED: bf16 only */
    int steps;
    const polar_coef *coefs; /* `steps` of them */
    /* the norm is taken for at least that; added to it by the reference rounding */
    double eps;
    int64_t joined; /* pl_ns_joined of them for the Gram form, else 0 */
} pl_ns_opts;

/* out[i] = NS(in[i]), i < n; same shapes are worked on as one batch. dim NULL: each matrix over its own
 * Frobenius norm; else over that of the direct sum of in[i] (x) I_dim[i]. out[i] may be in[i]. */
void pl_newton_schulz(pl_queue *q, const pl_mat *out, const pl_mat *in, const int64_t *dim, int64_t n,
                      const pl_ns_opts *o);

/* Which steps of the Gram form are joined with the next (bit t: step t), by a simulation; never across
 * multiples of PL_FUSED_STEPS. */
int64_t pl_ns_joined(const polar_coef *coefs, int steps, polar_dtype precision);
/* the form pays for its shape: one and a half times as long as wide */
int pl_ns_long(const pl_mat *X);

/* As the fused ops want them, steps <= PL_FUSED_STEPS: coefficients, and which of the steps from `first` on
 * X's shape has joined. */
void pl_ns_coefs(double *out, const polar_coef *coefs, int64_t steps);
int64_t pl_ns_chain(int64_t joined, int64_t first, int64_t steps, const pl_mat *X);

/* A whole step of a rule with this map may be one op, polar_step, on the queue's device; */
int pl_polar_step_fuses(const pl_queue *q, const polar_map_opts *map);
/* and it takes these operands. */
int pl_polar_step_serves(pl_queue *q, const pl_args_polar_step *a);

#endif
