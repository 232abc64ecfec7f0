/* gauge.h -- the paper's theorem, its proposition and its remark on linear maps, as measurements. Numbers, no
 * verdicts. */
#ifndef PL_VERIFY_GAUGE_H
#define PL_VERIFY_GAUGE_H

#include "polar/device.h"

#define PL_THEOREM_STEPS  10
#define PL_THEOREM_TABLES 2

/* Theorem: the largest Delta, in double throughout, over the shapes and samples. */
typedef struct pl_theorem {
    int64_t shapes, samples;
    double polar;
    /* the largest ||G||_2 / sigma_min among them: what magnifies rounding in the polar factor */
    double condition;
    const char *table[PL_THEOREM_TABLES];
    double ns[PL_THEOREM_TABLES][PL_THEOREM_STEPS]; /* NS_k for k = 1 .. 10 */
} pl_theorem;

/* Proposition: M = I_2, Q = I_2, P a rotation by pi/4. rho_eps(P M) = factor_rotated P, P rho_eps(M) = factor
 * P. */
typedef struct pl_proposition {
    double eps;
    double factor_rotated, factor_rotated_paper; /* measured; sqrt(2) / (1 + sqrt(2) eps) */
    double factor, factor_paper;                 /* measured; 1 / (1 + eps) */
    double deviation;                            /* ||rho_eps(P M) - P rho_eps(M)||_F */
    double delta;                                /* the same over ||rho_eps(M)||_F */
} pl_proposition;

#define PL_LINEAR_SCALES 7

/* Linear maps: covariant, but with nothing that holds the size of the update. */
typedef struct pl_linear_maps {
    int64_t n, m, history;
    double sgd; /* Delta of G -> c G */
    /* Delta of heavy ball (0.95) after `history` rotated gradients */
    double momentum;
    double input_norm[PL_LINEAR_SCALES]; /* ||G||_2: 1e-3 .. 1e3 */
    double sgd_norm[PL_LINEAR_SCALES];   /* ||update||_2 of SGD at learning rate 1 */
    double ns5_norm[PL_LINEAR_SCALES];   /* of Newton-Schulz in double: at most 1.21 */
    /* of AdamW's direction rho_0: free of the input's scale, not bounded by 1 */
    double adamw_norm[PL_LINEAR_SCALES];
} pl_linear_maps;

/* synchronises */
polar_status pl_theorem_measure(pl_theorem *out, polar_queue *q, uint64_t seed);
/* synchronises */
polar_status pl_proposition_measure(pl_proposition *out, polar_queue *q, double eps);
/* synchronises */
polar_status pl_linear_maps_measure(pl_linear_maps *out, polar_queue *q, uint64_t seed);

#endif
