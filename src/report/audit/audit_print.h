/* audit_print.h -- an audit's tables and its JSON, for those who print or write them elsewhere. */
#ifndef PL_REPORT_AUDIT_PRINT_H
#define PL_REPORT_AUDIT_PRINT_H

#include "report/audit/audit.h"

/* how many rows of `missing` from i on are of the (cell, seed) of row i */
int64_t pl_audit_missing_group(const pl_audit *a, int64_t i);
/* whether the runs have reference values to stand beside this metric */
int pl_audit_has_references(const pl_audit *a);
/* after the point: four figures of the largest mean */
int pl_audit_digits(const pl_audit *a);
/* every arm in every cell */
polar_status pl_audit_arm_table(const pl_audit *a, FILE *f, pl_table_format format);
/* every pair of arms in every cell */
polar_status pl_audit_pair_table(const pl_audit *a, FILE *f, pl_table_format format);
/* every pair's effect size, corrected p, equivalence where a margin is given */
polar_status pl_audit_effect_table(const pl_audit *a, FILE *f, pl_table_format format);
/* epochs to the target: of every arm; of every pair */
polar_status pl_audit_target_table(const pl_audit *a, FILE *f, pl_table_format format);
polar_status pl_audit_race_table(const pl_audit *a, FILE *f, pl_table_format format);
/* what the target is: "validation MSE <= 0.005"; out for the caller */
const char *pl_audit_target_text(char out[160], const pl_audit *a);
/* inside pl_audit_create, after the pairs: what audit_tests.c measures */
polar_status pl_audit_measure_tests(pl_audit *a);
/* {"spec", "metric", "better", "pairs", "arms", "incomplete"} */
polar_status pl_audit_json(const pl_audit *a, FILE *f);

#endif
