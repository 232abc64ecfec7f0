/* verify_results.h -- everything `polar verify` measured, and the two things done with it: printing and
 * checking. */
#ifndef POLAR_VERIFY_RESULTS_H
#define POLAR_VERIFY_RESULTS_H

#include <stdio.h>

#include "report/table/table.h"
#include "verify/covariance.h"
#include "verify/gauge.h"
#include "verify/rule_covariance.h"
#include "verify/schur.h"

#define VERIFY_SCHUR_ROWS 3
#define VERIFY_PROP_ROWS  7

typedef struct verify_results {
    uint64_t seed;
    pl_covariance_row *rows;
    int64_t n_rows;             /* 0: not measured */
    pl_covariance_row *spectra; /* the same of matrices with given singular values, shape by shape */
    int64_t n_spectra;
    pl_rule_row *rules;        /* every rule on one shape after the other */
    int64_t n_rules;           /* 0: not measured */
    pl_rule_symmetry *classes; /* the same on square, wide and tall shapes */
    int64_t n_classes;
    int claims;                                  /* the rest was measured */
    pl_schur_reduction schur[VERIFY_SCHUR_ROWS]; /* m = 1, 2, 3 */
    pl_block_lemma block;
    pl_theorem theorem;
    pl_proposition proposition[VERIFY_PROP_ROWS];
    pl_linear_maps linear;
} verify_results;

/* "8x44" as a table's cell, and as the JSON member "shape" */
void verify_put_shape(pl_table *t, int64_t n, int64_t m);
void verify_json_shape(pl_json_writer *w, int64_t n, int64_t m);
/* the paper's label of the shape, or "-" */
const char *verify_label(int64_t n, int64_t m);
/* csv and tex hold one table, covariance if it was measured, else the one that was */
polar_status verify_print(FILE *out, const verify_results *v, pl_table_format format);
/* the table of given singular values; not as JSON */
polar_status verify_print_spectra(FILE *out, const verify_results *v, pl_table_format format);
void verify_json_spectra(pl_json_writer *w, const verify_results *v); /* the member "spectra" */
/* the table of rules; not as JSON */
polar_status verify_print_rules(FILE *out, const verify_results *v, pl_table_format format);
/* the table of their symmetries; not as JSON */
polar_status verify_print_classes(FILE *out, const verify_results *v, pl_table_format format);
void verify_json_classes(pl_json_writer *w, const verify_results *v); /* the member "symmetries" */
void verify_json_rules(pl_json_writer *w, const verify_results *v);   /* the member "rules" */
/* how many bars were missed; a line for each */
int verify_check(FILE *log, const verify_results *v);

#endif
