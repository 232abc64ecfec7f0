/* paper_values.h -- what the paper reports for a spec's cell, so that it can stand beside what we measure.
 * NaN where it is silent. */
#ifndef PL_REPORT_PAPER_VALUES_H
#define PL_REPORT_PAPER_VALUES_H

#include <stdint.h>

typedef struct pl_paper_pair {
    double diff, t; /* mean of a - b, paired t; NaN: not given */
    int64_t n;      /* seeds; 0: not given */
} pl_paper_pair;

/* a metric of pl_paper_value beside the results' names: mean seconds of an epoch */
#define PL_PAPER_EPOCH_SECONDS "epoch_seconds"

/* an arm's mean */
double pl_paper_value(const char *spec, const char *cell, const char *arm, const char *metric);
/* of one seed */
double pl_paper_seed_value(const char *spec, const char *cell, const char *arm, const char *metric,
                           int64_t seed);
/* accuracy after so many epochs (the paper counts from 0: one more than it says) */
double pl_paper_epoch_value(const char *spec, const char *arm, int64_t epoch);
/* epochs done when spec `to` has caught spec `from` (about); 0: not given */
int64_t pl_paper_crossover(const char *from, const char *to, const char *arm);
/* a against b */
pl_paper_pair pl_paper_pair_value(const char *spec, const char *cell, const char *a, const char *b,
                                  const char *metric);
/* whether the paper says anything about the spec in this metric */
int pl_paper_has(const char *spec, const char *metric);
/* how the paper's numbers were made, where that matters; "" without */
const char *pl_paper_note(const char *spec);

#endif
