/* verify_results.h -- everything `polar verify` measured, and the two things done with it: printing and checking. */
#ifndef POLAR_VERIFY_RESULTS_H
#define POLAR_VERIFY_RESULTS_H

#include <stdio.h>

#include "report/table.h"
#include "verify/covariance.h"
#include "verify/gauge.h"
#include "verify/schur.h"

#define VERIFY_SCHUR_ROWS 3
#define VERIFY_PROP_ROWS  7

typedef struct verify_results {
    uint64_t           seed;
    pl_covariance_row *rows;
    int64_t            n_rows;
    pl_schur_reduction schur[VERIFY_SCHUR_ROWS];         /* m = 1, 2, 3 */
    pl_block_lemma     block;
    pl_theorem         theorem;
    pl_proposition     proposition[VERIFY_PROP_ROWS];
    pl_linear_maps     linear;
} verify_results;

const char  *verify_label(int64_t n, int64_t m);                                  /* the paper's label of the shape, or "-" */
polar_status verify_print(FILE *out, const verify_results *v, pl_table_format format);    /* csv and tex hold the covariance table alone */
int          verify_check(FILE *log, const verify_results *v);                    /* how many bars were missed; a line for each */

#endif
