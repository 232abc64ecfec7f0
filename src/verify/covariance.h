/* covariance.h -- the paper's covariance table, row by row: how far each map is from phi(P G Q^T) = P phi(G)
 * Q^T.
 *
 * Two pipelines over the same draws. True fp64: everything in double. fp32 inputs: G, P, Q rounded to fp32, P
 * G Q^T and P phi(G) Q^T computed and stored in fp32, phi evaluated in its own precision and stored in fp32;
 * this is what the paper's columns show, its "polar" and "NS fp64" sit at fp32 level for that reason.
 */
#ifndef PL_VERIFY_COVARIANCE_H
#define PL_VERIFY_COVARIANCE_H

#include "polar/device.h"
#include "verify/haar.h"

#define PL_COV_MAX_SIDE 16384 /* a rotation of that size takes 2 GiB */

typedef enum pl_covariance_column {
    PL_COV_POLAR,             /* exact polar factor, true fp64 */
    PL_COV_NS_FP64,           /* Newton-Schulz, 5 steps, Jordan's table, true fp64 */
    PL_COV_POLAR_FP32_INPUTS, /* the same two with fp32 inputs: the paper's columns */
    PL_COV_NS_FP64_FP32_INPUTS,
    PL_COV_NS_FP32, /* fp32 inputs from here ... */
    PL_COV_NS_BF16_REFERENCE,
    PL_COV_NS_BF16_FUSED,
    PL_COV_NS_FP16_FUSED, /* ... to here */
    PL_COV_RHO0,          /* X / (|X| + 1e-30), true fp64 */
    PL_COV_COLUMNS
} pl_covariance_column;

typedef struct pl_covariance_row {
    int64_t n, m, samples;
    pl_spectrum values; /* of G, as asked for */
    double mean[PL_COV_COLUMNS];
    double sd[PL_COV_COLUMNS]; /* of one sample, n - 1 in the denominator; NaN for one sample */
} pl_covariance_row;

typedef struct pl_covariance_opts {
    uint64_t seed;
    int64_t samples;
    pl_spectrum values; /* of G; rank 0: Gaussian */
    const char *table;  /* of the Newton-Schulz columns, and its steps; NULL: Jordan's, 5 */
    int steps;
    void (*progress)(void *arg, int64_t done, int64_t samples); /* after each batch, or NULL */
    void *progress_arg;
} pl_covariance_opts;

/* as JSON names it: "polar", "ns_fp64", ..., "rho0" */
const char *pl_covariance_key(pl_covariance_column column);
/* 50, and 1,000 where the short side is at most 32; quick: 10, 100, and 4 from 512 x 512 on */
int64_t pl_covariance_samples(int64_t n, int64_t m, int quick);
/* triples per batch: a bound on memory, no influence on results */
int64_t pl_covariance_batch(int64_t n, int64_t m, int64_t samples);
/* sd with n - 1, NaN for one */
void pl_mean_and_sd(double *mean, double *sd, const double *x, int64_t n);
/* one row; synchronises */
polar_status pl_covariance_measure(pl_covariance_row *out, polar_queue *q, int64_t n, int64_t m,
                                   const pl_covariance_opts *opts);

#endif
