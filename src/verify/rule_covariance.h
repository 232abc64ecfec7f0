/* rule_covariance.h -- is a whole update rule covariant? Momentum, preconditioner, map and step together,
 * over several steps.
 *
 * Two optimisers of one rule start at W = 0 (at the first gradient and its rotation, where the rule's step
 * looks at the weights). One is fed g_1 .. g_T, the other P g_1 Q^T .. P g_T Q^T, at
 * one constant lr and without decay. Compared are
 *
 *     the last update   u_T = W_T - W_{T-1}:   ||u'_T - P u_T Q^T||_F / ||u_T||_F        (primed: the
 *         second optimiser)
 *     the weights       W_T:                   ||W'_T - P W_T Q^T||_F / ||W_T||_F
 *
 * and the spectral norm of the updates is taken in units of lr s. Gradients are correlated, g_t = C + N_t
 * with Gaussian C, N_t of unit variance, so that momentum and second moment have something to remember.
 * Only polar/optim.h is used: what is measured is what a caller gets.
 *
 *     ./polar verify --only rules
 */
#ifndef PL_VERIFY_RULE_COVARIANCE_H
#define PL_VERIFY_RULE_COVARIANCE_H

#include "polar/device.h"

#define PL_RULE_STEPS     6
#define PL_RULE_MAX_STEPS 1024

/* What is done to a history of gradients, and must happen to the update. */
typedef enum pl_rule_group {
    PL_RULE_BOTH,        /* P g Q^T, P and Q orthogonal */
    PL_RULE_LEFT,        /* P g */
    PL_RULE_RIGHT,       /* g Q^T */
    PL_RULE_PERMUTATION, /* P g Q^T, P and Q permutations */
    PL_RULE_SCALING,     /* 3 g, and the update stays */
    PL_RULE_GROUPS
} pl_rule_group;

typedef enum pl_rule_precision {
    PL_RULE_FP64,           /* weights, gradients, state, rotations and map in double */
    PL_RULE_FP32,           /* all of it in fp32 */
    PL_RULE_BF16_REFERENCE, /* fp32 but for the map's iterates */
    PL_RULE_BF16_FUSED,
    PL_RULE_PRECISIONS
} pl_rule_precision;

typedef struct pl_rule_measure {
    double deviation_mean, deviation_sd; /* of the last update; sd of one sample, NaN for one sample */
    double weight_deviation_mean;        /* of the weights after the last step */
    double spectral_norm_max;            /* of the last updates, rotated or not, over lr s */
} pl_rule_measure;

typedef struct pl_rule_row {
    const char *rule; /* the caller's string */
    /* its map is Newton-Schulz; without that there are no bf16 precisions and their numbers are NaN */
    int polar;
    int64_t n, m, steps, samples;
    pl_rule_measure at[PL_RULE_PRECISIONS];
} pl_rule_row;

typedef struct pl_rule_opts {
    uint64_t seed;
    int64_t first, samples; /* samples first, first + 1, ... */
    int64_t steps;          /* T; 0: PL_RULE_STEPS */
    pl_rule_group group;
} pl_rule_opts;

/* The deviation of the last update under each group, in each precision; NaN where not measured. */
typedef struct pl_rule_symmetry {
    const char *rule; /* the caller's string */
    int64_t n, m, steps, samples;
    double deviation[PL_RULE_GROUPS][PL_RULE_PRECISIONS];
} pl_rule_symmetry;

/* a deviation in fp64 below which a rule has the symmetry: rounding, magnified by Newton-Schulz, is below
 * 1e-11, eps of a quotient of 1e-8 beside entries of about 1 at 1e-8, a broken one is above 1e-2 */
#define PL_RULE_HAS_IT 1e-6

/* "fp64", "fp32", "bf16_reference", "bf16_fused" */
const char *pl_rule_precision_key(pl_rule_precision precision);
/* this precision was measured */
int pl_rule_has(const pl_rule_row *row, pl_rule_precision precision);
/* 200 where the short side is at most 32, else 20, 2 from 512 on; quick: 40, 4, 1 */
int64_t pl_rule_samples(int64_t n, int64_t m, int quick);
/* "both", "left", "right" or "neither": the sides on which it is equivariant, by fp64 */
const char *pl_rule_class(const pl_rule_symmetry *s);
/* LEFT to SCALING; opts->group is not looked at; synchronises */
polar_status pl_rule_symmetry_measure(pl_rule_symmetry *out, polar_queue *q, const char *rule, int64_t n,
                                      int64_t m, const pl_rule_opts *opts);
/* one row; synchronises */
polar_status pl_rule_covariance_measure(pl_rule_row *out, polar_queue *q, const char *rule, int64_t n,
                                        int64_t m, const pl_rule_opts *opts);

#endif
