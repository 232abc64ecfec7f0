/* statistics.h -- the statistics of paired runs: means, Student's t, its p and interval, Wilcoxon's signed
 * ranks, signs; effect sizes, correction for many tests, equivalence, times to an event.
 *
 *     pl_paired s = pl_paired_measure(a, b, n, work);      // work: room for n numbers
 *     s.mean_diff, s.ci_lo, s.ci_hi, s.t, s.p, s.wilcoxon_p, s.positive
 *     pl_effect e = pl_effect_measure(&s);                 // e.g in [e.lo, e.hi]
 *     pl_equivalence_p(&s, 1e-4);                          // small: the difference is within 1e-4 of none
 *     pl_holm(adjusted, p, count, work);
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

/* ---- effect sizes, many tests, equivalence ---- */

typedef struct pl_effect {
    double g, lo, hi;
} pl_effect;

/* P(T <= t) of the noncentral t */
double pl_student_noncentral(double t, double df, double ncp);
/* Hedges' g_z: the mean difference in units of its standard deviation over pairs, without the bias of small n
 * (n >= 3), and its exact 95 % interval by the noncentral t, both ends shrunk alike. NaN where t is. */
pl_effect pl_effect_measure(const pl_paired *s);
/* two one-sided paired t-tests: the larger p of "the mean difference is below -margin" and "above margin". Of
 * equal differences 0 or 1: within the margin or not */
double pl_equivalence_p(const pl_paired *s, double margin);
typedef struct pl_ranked {
    double p;
    int64_t at;
} pl_ranked;

/* Holm's step-down; work: n rows. out[i] <= alpha for every i that may be called significant with a chance of
 * at most alpha that any such claim is wrong. NaN is no test and stays NaN. */
void pl_holm(double *out, const double *p, int64_t n, pl_ranked *work);

/* ---- times to an event, some of them not seen ---- */

typedef struct pl_event_time {
    double time;
    int seen; /* 0: censored, it was still to come at this time */
} pl_event_time;

typedef struct pl_survival {
    int64_t n, events;
    double median, lo, hi; /* Kaplan and Meier's, and its 95 % ends (log-log); INFINITY: not reached */
    double mean;           /* restricted to tau: of min(time, tau) */
} pl_survival;

/* sorts x */
pl_survival pl_survival_measure(pl_event_time *x, int64_t n, double tau);
/* which of a pair is earlier: -1 a, 1 b, 0 both at once, 2 nobody can tell */
int pl_event_order(pl_event_time a, pl_event_time b);
/* of `plus` against `minus` signs, two-sided, exact; 1 of none */
double pl_sign_p(int64_t plus, int64_t minus);

#endif
