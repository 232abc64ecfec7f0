/* schur.h -- the paper's Schur setting as measurements: the reduction to multiplicity matrices, and the block
 * lemma. Numbers, no verdicts. */
#ifndef PL_VERIFY_SCHUR_H
#define PL_VERIFY_SCHUR_H

#include "polar/device.h"

#define PL_SCHUR_COUNTS 4

/* Schur reduction: a 3m x 3m matrix M averaged over (I (x) R)^T M (I (x) R). Distances are to the nearest B
 * (x) I_3, over ||M||_F. */
typedef struct pl_schur_reduction {
    int64_t m;
    double before;                      /* of M itself, about sqrt(8/9) */
    int64_t rotations[PL_SCHUR_COUNTS]; /* Monte Carlo: N Haar rotations ... */
    /* ... and the distance left: before / sqrt(N) in the root mean square */
    double monte_carlo[PL_SCHUR_COUNTS];
    /* after the 24 rotations of the cube, irreducible on R^3: zero but for rounding */
    double octahedral;
    /* ||B(average) - B(M)||_F over ||B(M)||_F: averaging keeps the multiplicity matrix */
    double b_change;
    int64_t parameters_before; /* 9 m^2 */
    int64_t parameters_after;  /* rank of the averaging projector, by SVD: m^2 is expected */
    double projector_gap;      /* how far its singular values are from 0 and 1 */
} pl_schur_reduction;

/* Block lemma: phi of the assembled direct sum of G_i (x) I_{d_i} against the direct sum of phi(G_i) (x)
 * I_{d_i}; relative Frobenius distances. */
typedef struct pl_block_lemma {
    int64_t rows, cols; /* of the assembled matrix */
    int64_t blocks;
    double polar;           /* exact map, one block rank-deficient */
    double ns5_shared_norm; /* Newton-Schulz fp64, all blocks over the norm of the whole */
    double ns5_own_norms;   /* the same with each block over its own norm: another map */
    /* AdamW after three gradients, one optimiser over the whole and one over the blocks: the blocks are
     * aligned with the coordinates, so a map of single entries respects them to the bit */
    double adamw;
} pl_block_lemma;

typedef struct pl_block_shape {
    int64_t n, m, d; /* G_i is (n, m), times I_d */
    int64_t rank;    /* of G_i; 0 means full */
} pl_block_shape;

/* on the host, m up to 8 */
polar_status pl_schur_reduction_measure(pl_schur_reduction *out, int64_t m, uint64_t seed);
/* shapes NULL: a set with d = 1, 3, 5 */
polar_status pl_block_lemma_measure(pl_block_lemma *out, polar_queue *q, const pl_block_shape *shapes,
                                    int64_t n, uint64_t seed);

#endif
