/* statistics.c -- see statistics.h.
 *
 * Student's t:  P(|T| >= t) = I_x(df/2, 1/2),  x = df / (df + t^2)
 *
 * I_x(a, b) by its continued fraction (modified Lentz), which converges fast for x < (a + 1)/(a + b + 2);
 * above, by I_x(a, b) = 1 - I_y(b, a). The factor in front, x^a y^b / (a B(a, b)), decides the far tail: log
 * x comes from log1p of the exact odds, and B(a, 1/2) from the ratio Gamma(a + 1/2)/Gamma(a), whose series
 * needs no cancelling logarithms. The relative error is then about eps (a |log x| + 10).
 *
 * Wilcoxon, as scipy 1.17 decides: zero differences are left out; equal sizes share their mean rank. Up to 50
 * differences without zero or tie, and up to 13 with one, all 2^m signs are counted; otherwise the normal
 * approximation, corrected for ties and not for continuity.
 */
#include "math/statistics.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

/* ---- the incomplete beta function and Student's t ---- */

/* Gamma(a + 1/2) / Gamma(a): the asymptotic series from a = 100 on (next term 1e-17), below by Gamma(a + 1) =
 * a Gamma(a). */
static double half_gamma_ratio(double a)
{
    double f = 1;
    for (; a < 100; a++) f *= a / (a + 0.5);
    double u = 1 / a;
    double series =
        1 + u * (-1.0 / 8 +
                 u * (1.0 / 128 + u * (5.0 / 1024 +
                                       u * (-21.0 / 32768 + u * (-399.0 / 262144 + u * (869.0 / 4194304))))));
    return f * sqrt(a) * series;
}

/* log B(a, b); without cancellation when one of them is 1/2. */
static double log_beta(double a, double b)
{
    static const double half_log_pi = 0.57236494292470008707; /* log Gamma(1/2) */
    int sign;
    if (b == 0.5) return half_log_pi - log(half_gamma_ratio(a));
    if (a == 0.5) return half_log_pi - log(half_gamma_ratio(b));
    return lgamma_r(a, &sign) + lgamma_r(b, &sign) - lgamma_r(a + b, &sign);
}

static double away_from_zero(double x)
{
    return fabs(x) < 1e-300 ? 1e-300 : x;
}

/* B(a, b) I_x(a, b) / (x^a y^b), y = 1 - x, as 1/(d0 + c1/(d1 + c2/(d2 + ...))) (DiDonato and Morris 1992,
 * equation 9). */
static double beta_fraction(double x, double y, double a, double b)
{
    double f = away_from_zero(a * (a * y - b * x + 1) / (a + 1)), u = f, v = 0;
    for (int i = 1; i <= 100000; i++) {
        double m = i, w = a + 2 * m - 1;
        double c = (a + m - 1) * (a + b + m - 1) * m * (b - m) * x * x / (w * w);
        double d = m + m * (b - m) * x / w + (a + m) * (a * y - b * x + 1 + m * (1 + y)) / (w + 2);
        v = 1 / away_from_zero(d + c * v);
        u = away_from_zero(d + c / u);
        f *= u * v;
        if (fabs(u * v - 1) <= DBL_EPSILON) break;
    }
    return 1 / f;
}

/* log of the smaller from its own digits, of the larger from those of the smaller. */
static double log_part(double x, double y)
{
    return x < 0.5 ? log(x) : log1p(-y);
}

double pl_beta_regularised(double x, double y, double a, double b)
{
    assert(a > 0 && b > 0);
    if (isnan(x) || isnan(y)) return NAN;
    if (x <= 0) return 0;
    if (y <= 0) return 1;
    double factor = exp(a * log_part(x, y) + b * log_part(y, x) - log_beta(a, b));
    if (x <= (a + 1) / (a + b + 2)) return factor * beta_fraction(x, y, a, b);
    return 1 - factor * beta_fraction(y, x, b, a);
}

double pl_student_p(double t, double df)
{
    if (isnan(t) || !(df > 0)) return NAN;
    if (isinf(t)) return 0;
    if (fabs(t) > 1e150) { /* t^2 overflows: the first term of the tail is exact there */
        double s = sqrt(df) / fabs(t);
        return exp(df * log(s) - log_beta(df / 2, 0.5)) * 2 / df;
    }
    double square = t * t;
    return pl_beta_regularised(df / (df + square), square / (df + square), df / 2, 0.5);
}

/* log p is monotone in log t and nearly straight in the tail: Newton there, kept inside a bracket by
 * bisection. */
double pl_student_quantile(double p, double df)
{
    if (!(p > 0 && p <= 1) || !(df > 0)) return NAN;
    if (p == 1) return 0;
    double lo = -700, hi = 700, u = 0.5; /* u = log t */
    for (int i = 0; i < 200; i++) {
        double t = exp(u), q = pl_student_p(t, df), error = log(q) - log(p);
        if (error > 0) lo = u;
        else hi = u;
        /* of |T| at t */
        double log_density =
            log(2) - 0.5 * (df + 1) * log1p(t * t / df) - 0.5 * log(df) - log_beta(df / 2, 0.5);
        double next = u + error / exp(log_density + u - log(q));
        if (!(next > lo && next < hi)) next = 0.5 * (lo + hi);
        if (fabs(next - u) <= 2 * DBL_EPSILON) return exp(next);
        u = next;
    }
    return exp(u);
}

/* ---- Wilcoxon's signed ranks ---- */

/* differences whose signs are counted one by one */
#define EXACT_MOST 50
#define EXACT_TIES 13                                  /* the same with ties or zeros */
#define EXACT_SUMS (EXACT_MOST * (EXACT_MOST + 1) + 1) /* of doubled ranks */

static int by_size(const void *x, const void *y)
{
    double a = fabs(*(const double *)x), b = fabs(*(const double *)y);
    return (a > b) - (a < b);
}

/* Of all 2^m choices of signs, twice the share whose positive ranks sum to at most, or at least, what was
 * seen; ranks and sums doubled. */
static double exact_p(const int *ranks, int m, int seen)
{
    double ways[EXACT_SUMS] = {1}; /* whole numbers up to 2^50: exact */
    int top = 0;
    for (int i = 0; i < m; i++) {
        top += ranks[i];
        for (int s = top; s >= ranks[i]; s--) ways[s] += ways[s - ranks[i]];
    }
    double below = 0, above = 0;
    for (int s = 0; s <= top; s++) {
        if (s <= seen) below += ways[s];
        if (s >= seen) above += ways[s];
    }
    return fmin(1, ldexp(fmin(below, above), 1 - m));
}

double pl_wilcoxon_p(double *d, int64_t n)
{
    int64_t m = 0, ties = 0;
    int ranks[EXACT_MOST];
    for (int64_t i = 0; i < n; i++)
        if (d[i] != 0) d[m++] = d[i];
    if (!n) return NAN;
    /* no difference at all: nothing speaks against equality (scipy: 1 up to n = 13, NaN above) */
    if (!m) return 1;
    qsort(d, (size_t)m, sizeof *d, by_size);
    double plus = 0, tie_term = 0; /* plus: sum of the doubled ranks of positive differences */
    for (int64_t i = 0, end; i < m; i = end) {
        for (end = i + 1; end < m && fabs(d[end]) == fabs(d[i]); end++) {
        }
        double size = (double)(end - i), rank = (double)(i + 1 + end); /* twice the mean of i + 1 .. end */
        ties += end - i > 1;
        tie_term += size * size * size - size;
        for (int64_t j = i; j < end; j++) {
            if (d[j] > 0) plus += rank;
            if (m <= EXACT_MOST) ranks[j] = (int)rank;
        }
    }
    if (n <= (ties || m < n ? EXACT_TIES : EXACT_MOST)) return exact_p(ranks, (int)m, (int)plus);
    double c = (double)m, mean = c * (c + 1) / 4, sd = sqrt((c * (c + 1) * (2 * c + 1) - tie_term / 2) / 24);
    return erfc(fabs(plus / 2 - mean) / sd / sqrt(2));
}

/* ---- samples and pairs ---- */

/* Of x, or of x - y: the mean with one correction by the mean of what is left, and the sum of squares about
 * it. */
static pl_sample measure(const double *x, const double *y, int64_t n)
{
    pl_sample s = {n, NAN, NAN, NAN, NAN, NAN, NAN};
    double sum = 0, rest = 0, squares = 0;
    if (n <= 0) return s;
    for (int64_t i = 0; i < n; i++) {
        double d = y ? x[i] - y[i] : x[i];
        sum += d;
        s.min = i ? fmin(s.min, d) : d;
        s.max = i ? fmax(s.max, d) : d;
    }
    s.mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++) rest += (y ? x[i] - y[i] : x[i]) - s.mean;
    s.mean += rest / (double)n;
    if (s.min == s.max) s.mean = s.min;
    for (int64_t i = 0; i < n; i++) {
        double e = (y ? x[i] - y[i] : x[i]) - s.mean;
        squares += e * e;
    }
    if (n < 2) return s;
    s.sd = sqrt(squares / (double)(n - 1));
    if (s.sd == 0) return s;
    double half = pl_student_quantile(0.05, (double)(n - 1)) * s.sd / sqrt((double)n);
    s.ci_lo = s.mean - half;
    s.ci_hi = s.mean + half;
    return s;
}

pl_sample pl_sample_measure(const double *x, int64_t n)
{
    return measure(x, NULL, n);
}

pl_paired pl_paired_measure(const double *a, const double *b, int64_t n, double *work)
{
    pl_sample d = measure(a, b, n);
    pl_paired s = {
        .n = n, .mean_a = measure(a, NULL, n).mean, .mean_b = measure(b, NULL, n).mean, .mean_diff = d.mean};
    s.sd_diff = d.sd;
    s.ci_lo = d.ci_lo;
    s.ci_hi = d.ci_hi;
    s.t = d.sd > 0 ? d.mean / (d.sd / sqrt((double)n)) : NAN;
    s.p = d.sd > 0 ? pl_student_p(s.t, (double)(n - 1)) : NAN;
    for (int64_t i = 0; i < n; i++) {
        work[i] = a[i] - b[i];
        s.positive += work[i] > 0;
        s.negative += work[i] < 0;
        s.zero += work[i] == 0;
    }
    s.wilcoxon_p = pl_wilcoxon_p(work, n);
    return s;
}
