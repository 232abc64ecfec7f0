/* gauge_shadow.h -- the gauge violation of an update rule while a model trains.
 *
 * A block (a matrix on the matrix route) has the gradient g at every step. Each of K shadows has one pair
 * of Haar-orthogonal P, Q per block for the whole run and an optimiser of the run's rule that is fed P g
 * Q^T; their twin is fed g. At chosen steps the shadow's update u' is compared with the twin's u,
 *
 *     deviation = ||u' - P u Q^T||_F / (||u||_F + 1e-12)                  (||P u Q^T|| = ||u||)
 *
 * once per polar map: a map does not touch the moments, so one set of moments serves every map, and only
 * measured steps pay for maps. Learning rate and scale cancel. The trained model is read (its gradients)
 * and never written.
 *
 *     PL_TRY(pl_gauge_shadow_create(&s, dev, q, blocks, count, &opts));
 *     for (...) { backward;  PL_TRY(pl_gauge_shadow_step(s, q));  if (wanted)
 *         PL_TRY(pl_gauge_shadow_measure(deviation, s, q)); }
 *     pl_gauge_shadow_destroy(s);
 */
#ifndef PL_VERIFY_GAUGE_SHADOW_H
#define PL_VERIFY_GAUGE_SHADOW_H

#include "device/mat.h"
#include "polar/optim.h"

#define PL_GAUGE_MAX_MAPS 8

typedef struct pl_gauge_shadow pl_gauge_shadow;

typedef struct pl_gauge_block {
    const char *name; /* unique; copied */
    pl_mat G;         /* (1, n, m): where the gradient of every step lies, in device memory */
} pl_gauge_block;

typedef struct pl_gauge_opts {
    polar_rule rule; /* its map is replaced by those of `maps`, its steps and table stay */
    /* names as polar_map_opts_parse takes them, by commas; a rule without a map has the one map "none" */
    const char *maps;
    uint64_t seed;   /* of P and Q */
    int64_t shadows; /* K, 1 or more */
    /* of rotations, moments and directions: F64 leaves the map's own deviation, F32 is what training in f32
     * has */
    polar_dtype dtype;
    /* or NULL: called after each of the 2 K rotations of a block; not 0: return, with POLAR_E_STATE */
    int (*drawn)(void *arg);
    void *drawn_arg;
} pl_gauge_opts;

/* synchronises */
polar_status pl_gauge_shadow_create(pl_gauge_shadow **out, polar_device *dev, polar_queue *q,
                                    const pl_gauge_block *blocks, int64_t count, const pl_gauge_opts *opts);
/* NULL is fine */
void pl_gauge_shadow_destroy(pl_gauge_shadow *s);
/* takes the gradients as they lie there; enqueues */
polar_status pl_gauge_shadow_step(pl_gauge_shadow *s, polar_queue *q);
/* of the last step, (maps, blocks, shadows); synchronises. NaN is a value */
polar_status pl_gauge_shadow_measure(double *out, pl_gauge_shadow *s, polar_queue *q);
int64_t pl_gauge_shadow_maps(const pl_gauge_shadow *s); /* how many */
/* a map's name; borrowed */
const char *pl_gauge_shadow_map(const pl_gauge_shadow *s, int64_t map);
/* a block's name; borrowed */
const char *pl_gauge_shadow_block(const pl_gauge_shadow *s, int64_t block);
typedef enum pl_gauge_spectrum {
    PL_GAUGE_GRADIENT, /* of the twin */
    PL_GAUGE_DIRECTION /* of the twin before the map: momentum, preconditioned where the rule does that */
} pl_gauge_spectrum;

/* how many singular values a block has */
int64_t pl_gauge_shadow_rank(const pl_gauge_shadow *s, int64_t block);
/* the singular values of the last step, falling; NaN where the matrix is not finite; synchronises */
polar_status pl_gauge_shadow_values(double *out, pl_gauge_shadow *s, polar_queue *q, int64_t block,
                                    pl_gauge_spectrum of);
/* all of its state between steps, for a checkpoint; borrowed */
polar_optim *pl_gauge_shadow_optim(pl_gauge_shadow *s);
/* step from 1: the first and every so many; every 0: 1, 2, 5, 10, 20, 50, ... */
int pl_gauge_step_wanted(int64_t step, int64_t every);

#endif
