/* haar.h -- random matrices for the measures: Gaussian ones and Haar-orthogonal ones, by coordinates.
 *
 * A draw is named by (seed, what, rows, cols, sample): the same matrix comes out whatever else is drawn, on
 * any number of threads. An orthogonal matrix is the Q of a Gaussian's QR with R's diagonal made positive,
 * which makes it unique and therefore Haar; Householder's own Q is not. n = 1 gives a sign.
 */
#ifndef PL_VERIFY_HAAR_H
#define PL_VERIFY_HAAR_H

#include <stdint.h>

#include "base/status.h"

typedef enum pl_draw_kind {
    PL_DRAW_GRADIENT, /* G */
    PL_DRAW_LEFT,     /* P */
    PL_DRAW_RIGHT,    /* Q */
    PL_DRAW_ROTATION, /* of R^3 */
    PL_DRAW_OTHER     /* whatever a measure needs besides */
} pl_draw_kind;

#define PL_HAAR_MAX_SIDE 16384 /* that is asked for: Q takes its square in numbers, its making the cube */

typedef struct pl_draw {
    uint64_t seed;
    pl_draw_kind kind;
    int64_t rows, cols; /* of the measure's matrix G, not of the draw */
    int64_t sample;
} pl_draw;

/* Singular values that a measure asks for: `rank` of them are 1, the others tail. Rank 0: those of the draw.
 */
typedef struct pl_spectrum {
    int64_t rank;
    double tail;
} pl_spectrum;

/* count values of N(0, 1) */
void pl_draw_normal(double *out, int64_t count, const pl_draw *draw);
polar_status pl_haar_from_gaussian(double *q, int64_t n);             /* (n, n) in place */
polar_status pl_haar_draw(double *q, int64_t n, const pl_draw *draw); /* (n, n), Haar on O(n) */
polar_status pl_haar_rotation(double r[9], const pl_draw *draw);      /* Haar on SO(3) */
/* X (rows, cols) keeps its singular vectors, which are Haar where X is Gaussian, and gets these values; by
 * LAPACK */
polar_status pl_spectrum_put(double *x, int64_t rows, int64_t cols, const pl_spectrum *values);
/* by LAPACK; smallest may be NULL */
polar_status pl_singular_range(double *largest, double *smallest, const double *x, int64_t rows,
                               int64_t cols);

#endif
