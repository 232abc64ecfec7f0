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
 *
 * Noncentral t:  P(T <= t) = integral of Phi(t s - ncp) f(s) ds over s = sqrt(chi^2/df). In x = log s the
 * integrand is analytic and falls off at both ends, so the trapezoidal rule converges faster than any power
 * of its step.
 *
 * Effect sizes: d = mean/sd has t = d sqrt(n), noncentral with ncp = delta sqrt(n): the ends of delta's
 * interval are those ncp for which the t seen is a 2.5 % event.
 *
 * Kaplan and Meier: S falls by 1 - d/r where d of r at risk have their event; its 95 % band is that of
 * log(-log S) by Greenwood's variance; the median is the first time with S <= 1/2, its ends those of the
 * band.
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

/* ---- effect sizes ---- */

static double normal_below(double x)
{
    return 0.5 * erfc(-x / sqrt(2));
}

/* Of x = log s, T = (Z + ncp) / s: log density, less its value at the peak, which is at 0 and as wide as
 * 1/sqrt(2 df). */
static double log_density(double x, double df)
{
    return df * (x - 0.5 * expm1(2 * x));
}

/* Gauss's rule of 8 points on panels: over one, neither the density's exponent nor that of the normal
 * distribution moves by more than some units, whatever t is, so that its error is that of rounding. */
double pl_student_noncentral(double t, double df, double ncp)
{
    static const double node[4] = {0.1834346424956498, 0.5255324099163290, 0.7966664774136267,
                                   0.9602898564975363},
                        share[4] = {0.3626837833783620, 0.3137066458778873, 0.2223810344533745,
                                    0.1012285362903763};
    static const double least = -46.1; /* exp of it: 1e-20 */
    /* P is E Q((Z + ncp)/t), Q(r) = P(s >= r), that is Q(ncp/t) and a term in 1/t^2: of a larger t that is
     * rounding */
    static const double most = 1e7;
    if (isnan(t) || isnan(ncp) || !(df > 0)) return NAN;
    const double sign = t < 0 ? -1 : 1, wide = 0.5 / sqrt(2 * df);
    /* beyond, the normal distribution is 0, or 1 to all digits */
    const double below = t < 0 ? 9 : 38, above = t < 0 ? 38 : 9;
    double u = fabs(t), c = sign * ncp, lo = 0, hi = 0, sum = 0, mass = 0, end;
    if (u > most) c *= most / u, u = most;
    while (log_density(lo, df) > least) lo -= wide;
    while (log_density(hi, df) > least) hi += wide;
    for (double x = lo; x < hi; x = end) {
        const double slope = u * exp(x), z = slope - c;
        end = x + wide;
        const double fine = x + 1 / (slope * (1 + 0.25 * fabs(z)));
        if (z < -below) end = fmin(end, fmax(log((c - below) / u), fine)); /* not past the rise */
        else if (z < above) end = fmin(end, fine);
        for (int i = 0; i < 8; i++) {
            const double at = 0.5 * (x + end) + 0.5 * (end - x) * (i < 4 ? node[i] : -node[i - 4]);
            const double weight = (end - x) * share[i % 4] * exp(log_density(at, df));
            mass += weight;
            sum += weight * normal_below(sign * (u * exp(at) - c));
        }
    }
    return sum / mass; /* the same rule for both: the constant is the mass's */
}

/* The ncp for which P(T <= t) = p: it falls as ncp grows. */
static double noncentral_quantile(double t, double df, double p)
{
    double wide = sqrt(1 + t * t / (2 * df)), lo = t - 4 * wide, hi = t + 4 * wide;
    while (pl_student_noncentral(t, df, lo) < p) lo -= 4 * wide;
    while (pl_student_noncentral(t, df, hi) > p) hi += 4 * wide;
    double f_lo = pl_student_noncentral(t, df, lo) - p, f_hi = pl_student_noncentral(t, df, hi) - p, x = lo;
    for (int i = 0; i < 200 && hi - lo > 4 * DBL_EPSILON * (fabs(lo) + fabs(hi)); i++) {
        /* regula falsi by turns with bisection: never slower than the one, mostly as fast as the other */
        x = i % 3 == 2 ? 0.5 * (lo + hi) : (lo * f_hi - hi * f_lo) / (f_hi - f_lo);
        if (!(x > lo && x < hi)) x = 0.5 * (lo + hi);
        double f = pl_student_noncentral(t, df, x) - p;
        if (f == 0) return x;
        if (f > 0) lo = x, f_lo = f;
        else hi = x, f_hi = f;
    }
    return 0.5 * (lo + hi);
}

pl_effect pl_effect_measure(const pl_paired *s)
{
    pl_effect e = {NAN, NAN, NAN};
    if (isnan(s->t) || s->n < 3) return e;
    double n = (double)s->n, df = n - 1;
    double unbias =
        half_gamma_ratio((df - 1) / 2) / sqrt(df / 2); /* Gamma(df/2) / (sqrt(df/2) Gamma((df-1)/2)) */
    e.g = unbias * s->t / sqrt(n);
    e.lo = unbias * noncentral_quantile(s->t, df, 0.975) / sqrt(n);
    e.hi = unbias * noncentral_quantile(s->t, df, 0.025) / sqrt(n);
    return e;
}

/* ---- equivalence, many tests ---- */

/* P(T >= t) */
static double student_above(double t, double df)
{
    double p = pl_student_p(t, df) / 2;
    return t > 0 ? p : 1 - p;
}

double pl_equivalence_p(const pl_paired *s, double margin)
{
    if (!(margin > 0) || s->n < 2 || isnan(s->mean_diff)) return NAN;
    if (s->sd_diff == 0) return fabs(s->mean_diff) < margin ? 0 : 1;
    double df = (double)(s->n - 1), error = s->sd_diff / sqrt((double)s->n);
    double above = student_above((s->mean_diff + margin) / error, df),
           below = student_above((margin - s->mean_diff) / error, df);
    return fmax(above, below);
}

static int by_p(const void *a, const void *b)
{
    const pl_ranked *x = a, *y = b;
    if (x->p != y->p) return x->p < y->p ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

void pl_holm(double *out, const double *p, int64_t n, pl_ranked *work)
{
    int64_t tests = 0;
    double most = 0;
    for (int64_t i = 0; i < n; i++) {
        out[i] = NAN;
        if (!isnan(p[i])) work[tests++] = (pl_ranked){p[i], i};
    }
    qsort(work, (size_t)tests, sizeof *work, by_p);
    for (int64_t k = 0; k < tests; k++) {
        most = fmax(most, fmin(1, (double)(tests - k) * work[k].p));
        out[work[k].at] = most;
    }
}

/* ---- times to an event ---- */

/* Events before what was only seen until then. */
static int by_time(const void *a, const void *b)
{
    const pl_event_time *x = a, *y = b;
    if (x->time != y->time) return x->time < y->time ? -1 : 1;
    return (y->seen != 0) - (x->seen != 0);
}

/* The end of S's band, the upper one for z > 0: log(-log S) has the variance sum/(log S)^2. */
static double band(double left, double sum, double z)
{
    if (left <= 0 || left >= 1) return left;
    double log_s = log(left);
    return exp(-exp(log(-log_s) + z * sqrt(sum) / log_s));
}

static void first_below(double *at, double left, double time)
{
    if (isinf(*at) && left <= 0.5 * (1 + 16 * DBL_EPSILON)) *at = time; /* a product of rounded shares */
}

pl_survival pl_survival_measure(pl_event_time *x, int64_t n, double tau)
{
    static const double z = 1.9599639845400542355; /* 97.5 % of the normal distribution are below */
    pl_survival s = {n, 0, INFINITY, INFINITY, INFINITY, NAN};
    if (n <= 0) return s;
    double left = 1, sum = 0, mean = 0, since = 0;
    qsort(x, (size_t)n, sizeof *x, by_time);
    for (int64_t i = 0, end; i < n; i = end) {
        double time = x[i].time, at_risk = (double)(n - i), events = 0;
        for (end = i; end < n && x[end].time == time; end++) events += x[end].seen != 0;
        if (events == 0) continue;
        s.events += (int64_t)events;
        mean += left * (fmin(time, tau) - fmin(since, tau));
        since = time;
        left *= (at_risk - events) / at_risk;
        sum += events / (at_risk * (at_risk - events)); /* infinite at the last event of all, where S is 0 */
        first_below(&s.median, left, time);
        first_below(&s.lo, band(left, sum, -z), time);
        first_below(&s.hi, band(left, sum, z), time);
    }
    s.mean = mean + left * (tau - fmin(since, tau));
    return s;
}

int pl_event_order(pl_event_time a, pl_event_time b)
{
    if (a.seen && b.seen) return (a.time > b.time) - (a.time < b.time);
    if (a.seen && a.time <= b.time) return -1; /* b's was still to come */
    if (b.seen && b.time <= a.time) return 1;
    return 2;
}

double pl_sign_p(int64_t plus, int64_t minus)
{
    int64_t n = plus + minus, few = plus < minus ? plus : minus;
    double ways = 1, sum = 1; /* of k signs among n, k = 0 .. few */
    if (n <= 0) return 1;
    if (n > 1000) return fmin(1, 2 * pl_beta_regularised(0.5, 0.5, (double)(n - few), (double)few + 1));
    for (int64_t k = 1; k <= few; k++) sum += ways *= (double)(n - k + 1) / (double)k;
    return fmin(1, ldexp(sum, (int)(1 - n)));
}
