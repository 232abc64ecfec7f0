/* paper_covariance.h -- the table of the paper's appendix "Numerical verification of Schur
 * gauge-equivariance", as printed there. */
#ifndef PL_VERIFY_PAPER_COVARIANCE_H
#define PL_VERIFY_PAPER_COVARIANCE_H

#include <stdint.h>

typedef struct pl_paper_covariance {
    const char *label;
    int64_t n, m;
    double polar, ns_fp64, ns_bf16, rho0_mean, rho0_sd;
} pl_paper_covariance;

#define PL_PAPER_COVARIANCE_ROWS 15

/* in the paper's order; NULL past the end */
const pl_paper_covariance *pl_paper_covariance_row(int i);
/* by shape; NULL if the paper has none */
const pl_paper_covariance *pl_paper_covariance_find(int64_t n, int64_t m);

#endif
