/* statistics.h -- the statistics of paired runs: means, Student's t, its p and interval, Wilcoxon's signed
 * ranks, signs.
 *
 *     pl_paired s = pl_paired_measure(a, b, n, work);      // work: room for n numbers
 *     s.mean_diff, s.ci_lo, s.ci_hi, s.t, s.p, s.wilcoxon_p, s.positive
 *
 * What cannot be said is NaN: every mean of n = 0; sd, interval, t and p of n = 1, and t, p and the
 * interval's ends when all differences are equal (a t of infinity would claim certainty). Inputs are finite:
 * pairs with a missing value are the caller's to list. Sums run in the order given, in double, so equal
 * inputs give equal bits.
 */
#ifndef PL_MATH_STATISTICS_H
#define PL_MATH_STATISTICS_H

#include <stdint.h>

typedef struct pl_sample {
    int64_t n;
    double mean, sd;     /* sd with n - 1 */
    double ci_lo, ci_hi; /* 95 %, Student's t */
    double min, max;
} pl_sample;

typedef struct pl_paired {
    int64_t n;
    double mean_a, mean_b, mean_diff; /* of a, of b, of a - b */
    double sd_diff, ci_lo, ci_hi;     /* of a - b */
    double t, p;                      /* paired, two-sided */
    double wilcoxon_p;                /* two-sided, as scipy.stats.wilcoxon by default */
    int64_t positive, negative, zero; /* signs of a - b */
} pl_paired;

pl_sample pl_sample_measure(const double *x, int64_t n); /* one arm */
/* a against b; work: n numbers, overwritten */
pl_paired pl_paired_measure(const double *a, const double *b, int64_t n, double *work);
/* I_x(a, b), y = 1 - x given apart to keep its digits; a, b > 0 */
double pl_beta_regularised(double x, double y, double a, double b);
/* P(|T| >= |t|), accurate in the far tail */
double pl_student_p(double t, double df);
/* t >= 0 with P(|T| >= t) = p, 0 < p <= 1 */
double pl_student_quantile(double p, double df);
/* of n differences, which it reorders */
double pl_wilcoxon_p(double *d, int64_t n);

#endif
