/* map.h -- polar maps for those who keep their options: the optimiser checks them once and enqueues them
 * every step. */
#ifndef PL_COMPOSE_MAP_H
#define PL_COMPOSE_MAP_H

#include "device/queue.h"
#include "polar/map.h"

/* a decomposition in double, which nothing captures in a graph */
static inline int pl_map_decomposes(const polar_map_opts *o)
{
    return o->kind >= POLAR_MAP_EXACT;
}

#define PL_REFERENCE_EPS 1e-7 /* the public Muon code's, added to the norm: the reference rounding's own */

/* checks; coefficients into coefs; o may be opts, NULL opts: the defaults */
polar_status pl_map_resolve(polar_map_opts *o, polar_coef coefs[POLAR_MAX_STEPS], const polar_map_opts *opts);
/* of resolved options; dim NULL: own norms */
void pl_map_enqueue(pl_queue *q, const pl_mat *out, const pl_mat *in, const int64_t *dim, int64_t n,
                    const polar_map_opts *o);

#endif
