/* test_statistics.c -- Student's t, intervals and Wilcoxon's signed ranks against tests/golden/stats.json
 * (scipy), against scipy for other n, with ties and zeros, against sixty-digit values in the far tail, and
 * where nothing can be said.
 */
#include <float.h>

#include "base/json_read.h"
#include "math/statistics.h"
#include "test.h"

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

static double relative(double got, double want)
{
    return fabs(got - want) / fabs(want);
}

/* ---- Student's t against mpmath ----
 *
 *     import mpmath as mp; mp.mp.dps = 60
 *     def p(t, df): t, df = mp.mpf(t), mp.mpf(df); return mp.betainc(df/2, mp.mpf(1)/2, 0, df/(df +
 *         t*t), regularized=True)
 *     for t, df in cases: print(mp.nstr(p(t, df), 20))
 *     for q, df in cases: print(mp.nstr(mp.findroot(lambda t: p(t, df) - mp.mpf(q),
 *         scipy.stats.t.isf(q/2, df)), 20))
 */
static const struct {
    double t, df, p;
} tails[] = {
    {0.001, 1, 0.99936338043983888211},    {1, 1, 0.5},
    {1e8, 1, 6.3661977236758132185e-9},    {2.5, 2, 0.12961172022151080911},
    {0.7, 3, 0.53432699830476365305},      {3.182446305284263, 3, 0.049999999999978760849},
    {12.706, 1, 0.050000802358133187905},  {4.97, 99, 2.808842476306117991e-6},
    {8.62, 99, 1.1072244564530667171e-13}, {0.3, 99, 0.76480616174025744649},
    {1.7, 99, 0.092270709746488873032},    {25, 99, 1.4493044898916565016e-44},
    {60, 99, 1.1818606072220290607e-79},   {300, 99, 2.6826459412852276301e-148},
    {1e6, 49, 2.9136028094344138545e-254}, {40, 1000, 1.047885215517336094e-209},
    {1.75, 1e5, 0.08012138061739486374},   {2, 0.5, 0.44551489018313123119},
    {37, 1e6, 1.8299730861802263061e-299},
};

static const struct {
    double p, df, t;
} quantiles[] = {
    {0.05, 1, 12.706204736174703938},   {0.05, 2, 4.3026527297494637234},   {0.05, 3, 3.1824463052837095204},
    {0.05, 7, 2.3646242515927853039},   {0.05, 19, 2.0930240544083097411},  {0.05, 99, 1.9842169515864174706},
    {0.05, 999, 1.9623414611334499548}, {0.05, 1e5, 1.9599877075346096148}, {0.01, 5, 4.0321429835552280573},
    {1e-20, 9, 430.61304066996953904},  {0.9, 4, 0.13383036711194332601},   {0.001, 1, 636.61924876871960296},
};

static void student(void)
{
    char what[64];
    for (int i = 0; i < COUNT(tails); i++) {
        double p = pl_student_p(tails[i].t, tails[i].df);
        snprintf(what, sizeof what, "student p, t %g df %g: %.2e", tails[i].t, tails[i].df, p);
        /* p = exp(L) S: L is rounded in a handful of operations, each an error of eps |L| at most in p's
         * logarithm, S in about ten more */
        test_bound(what, relative(p, tails[i].p), 4 * DBL_EPSILON * (fabs(log(tails[i].p)) + 10),
                   "4 eps (|log p| + 10)");
    }
    for (int i = 0; i < COUNT(quantiles); i++) {
        double t = pl_student_quantile(quantiles[i].p, quantiles[i].df);
        snprintf(what, sizeof what, "student quantile, p %g df %g", quantiles[i].p, quantiles[i].df);
        /* |d log t / d log p| <= 1 in these cases (about 1/df in the tail, below 1/t^2 + 1/t in the middle),
         * so p's error bounds it; 4 eps for exp */
        test_bound(what, relative(t, quantiles[i].t), 4 * DBL_EPSILON * (fabs(log(quantiles[i].p)) + 11),
                   "4 eps (|log p| + 11)");
    }
    /* t = 1e160, df = 3: p = 2.205e-480 is below every double; with df 1 it is 2 / (pi t) */
    test_bound("student p, t 1e160 df 1", relative(pl_student_p(1e160, 1), 6.3661977236758134308e-161),
               4 * DBL_EPSILON * 380, "4 eps (|log p| + 10)");
    test_true("student p, beyond doubles",
              pl_student_p(1e160, 3) == 0 && pl_student_p(INFINITY, 5) == 0 && pl_student_p(0, 5) == 1,
              "0, 0, 1");
    test_true("student p, nothing to say",
              isnan(pl_student_p(NAN, 5)) && isnan(pl_student_p(1, 0)) && isnan(pl_student_quantile(0, 5)),
              "NaN");
    test_true("student p, even in t", pl_student_p(-2.5, 7) == pl_student_p(2.5, 7), "%.17g",
              pl_student_p(2.5, 7));
}

/* I_x(a, b) where neither is 1/2: closed forms. I_x(2, 3) = 6x^2 - 8x^3 + 3x^4, I_x(1, b) = 1 - (1 - x)^b;
 * lgamma's error in the logarithm: 10 eps. */
static void beta(void)
{
    double x = 0.25, y = 0.75;
    test_bound("beta, I_0.25(2, 3)",
               relative(pl_beta_regularised(x, y, 2, 3), 6 * x * x - 8 * x * x * x + 3 * x * x * x * x),
               40 * DBL_EPSILON, "40 eps");
    test_bound("beta, I_0.75(1, 4)", relative(pl_beta_regularised(y, x, 1, 4), 1 - x * x * x * x),
               40 * DBL_EPSILON, "40 eps");
    test_true("beta, the ends", pl_beta_regularised(0, 1, 2, 3) == 0 && pl_beta_regularised(1, 0, 2, 3) == 1,
              "0 and 1");
}

/* ---- pairs against scipy ----
 *
 *     for n, mul, mod, shift in cases:
 *         d = np.array([(i + 1)*mul % mod - shift for i in range(n)])/64; b = np.array([i*29 % 31 for i
 *             in range(n)])/16; a = b + d
 *         r = scipy.stats.ttest_rel(a, b); ci = r.confidence_interval(0.95); w =
 *             scipy.stats.wilcoxon(a, b)         # scipy 1.17.1
 *         print(n, mul, mod, shift, r.statistic, r.pvalue, ci.low, ci.high, w.pvalue, (d > 0).sum())
 *
 * Exact counts (n <= 50), counts with ties and zeros (n <= 13), the normal approximation with and without
 * them.
 */
static const struct {
    int n, mul, mod, shift;
    double t, p, lo, hi, wilcoxon;
    int positive;
} pairs[] = {
    {2, 5, 97, 30, -9, 0.070446574954554558, -0.84789862250682402, 0.14477362250682402, 0.5, 0},
    {3, 5, 97, 30, -6.9282032302755088, 0.020204102886728765, -0.50657325873049452, -0.11842674126950545,
     0.25, 0},
    {4, 37, 97, 30, 1.1131932253689727, 0.34679235971968397, -0.40662222956065497, 0.84412222956065497, 0.375,
     3},
    {5, 37, 97, 40, 0.97502763579560237, 0.38475652933416105, -0.36951105861369188, 0.76951105861369196,
     0.4375, 3},
    {8, 37, 97, 40, 0.50553685708070983, 0.62870783975152822, -0.30166596301547444, 0.46572846301547444,
     0.84375, 4},
    {13, 41, 101, 45, 0.14347335194093555, 0.88829747543217619, -0.25576054241684737, 0.29181823472453966,
     0.946044921875, 6},
    {20, 41, 101, 45, 0.26136595670090262, 0.79662250672259705, -0.18615055623341992, 0.23927555623341989,
     0.70118141174316406, 10},
    {50, 41, 101, 45, 1.1256961656250426, 0.26577764556325367, -0.056925869200658744, 0.20192586920065875,
     0.27742014253459335, 27},
    {50, 37, 1009, 450, 0.75393048952961916, 0.45449881079660986, -0.76403201085648043, 1.6815320108564804,
     0.48430323191030489, 26},
    {51, 41, 101, 45, 1.2454284740737087, 0.2187792781005059, -0.048433923896873593, 0.20652215919099123,
     0.22653864997366258, 28},
    {100, 41, 1009, 450, 1.5709574296591262, 0.11938323774251787, -0.19096671783409724, 1.6428417178340973,
     0.12943639817790953, 55},
    {8, 3, 4, 1, 1.1832159566199232, 0.27534554870873057, -0.0078005644302177792, 0.023425564430217781,
     0.34375, 4},
    {13, 7, 5, 2, 0.19245008972987526, 0.8506081329827978, -0.012405581206129401, 0.014809427359975553,
     0.90234375, 5},
    {14, 7, 5, 2, 0.38005847503304602, 0.71003886849178843, -0.010456040099175737, 0.014920325813461453,
     0.68075338241706285, 6},
    {60, 7, 11, 3, 5.0093696472172011, 5.2657729155846414e-06, 0.019236350098772816, 0.044826149901227179,
     2.3956211900948498e-05, 38},
    {200, 7, 31, 15, -0.015778724864473462, 0.98742672947376176, -0.019683696779497311, 0.019371196779497311,
     0.98869867964210822, 96},
};

/* The larger of the two ends' errors against the larger end. */
static double ends(const pl_paired *s, double lo, double hi)
{
    return fmax(fabs(s->ci_lo - lo), fabs(s->ci_hi - hi)) / fmax(fabs(lo), fabs(hi));
}

#define MOST 256

static void against_scipy(void)
{
    double a[MOST], b[MOST], work[MOST];
    for (int k = 0; k < COUNT(pairs); k++) {
        char what[64];
        int n = pairs[k].n;
        for (int i = 0; i < n; i++) {
            b[i] = (double)(i * 29 % 31) / 16;
            a[i] = b[i] + (double)((i + 1) * pairs[k].mul % pairs[k].mod - pairs[k].shift) / 64;
        }
        pl_paired s = pl_paired_measure(a, b, n, work);
        /* sums of whole 64ths are exact; the sum of n squares about a rounded mean is good to n eps, its root
         * to half of that, on both sides */
        double t_tol = (n + 8) * DBL_EPSILON;
        snprintf(what, sizeof what, "n %d, %d mod %d: t %.4g", n, pairs[k].mul, pairs[k].mod, s.t);
        test_bound(what, relative(s.t, pairs[k].t), t_tol, "(n + 8) eps");
        /* |d log p / d log t| <= t^2 + 1 for these df (n t^2 / (n + t^2) + 1); scipy's own p and ours: 40 eps
         * each */
        test_bound("    p", relative(s.p, pairs[k].p),
                   t_tol * (pairs[k].t * pairs[k].t + 1) + 80 * DBL_EPSILON, "t's, times t^2 + 1, + 80 eps");
        test_bound("    ci95", ends(&s, pairs[k].lo, pairs[k].hi), t_tol + 80 * DBL_EPSILON, "t's + 80 eps");
        /* ours is exact up to n = 50 or rounds z a few times (z < 5: d log p / d log z < 26); scipy adds up
         * to 1276 rounded probabilities */
        test_bound("    wilcoxon p", relative(s.wilcoxon_p, pairs[k].wilcoxon), 1400 * DBL_EPSILON,
                   "1400 eps");
        test_exact("    signs", (s.positive != pairs[k].positive) + (s.positive + s.negative + s.zero != n));
    }
}

/* ---- tests/golden/stats.json ---- */

typedef struct {
    double a[MOST], b[MOST], ci[MOST], t, p, wilcoxon;
    int64_t n_a, n_b, n_ci;
} golden;

static polar_status read_numbers(pl_json *p, double *out, int64_t *n)
{
    PL_TRY(pl_json_need(p, PL_JSON_ARRAY));
    for (;;) {
        PL_TRY(pl_json_next(p));
        if (p->token == PL_JSON_ARRAY_END) return POLAR_OK;
        PL_NEED(*n < MOST, POLAR_E_FORMAT, "more than %d numbers", MOST);
        out[(*n)++] = p->number;
    }
}

static polar_status read_golden(golden *g, const char *text, int64_t size)
{
    pl_json p = pl_json_view(text, size, "'stats.json'");
    PL_TRY(pl_json_need(&p, PL_JSON_OBJECT));
    for (;;) {
        PL_TRY(pl_json_next(&p));
        if (p.token == PL_JSON_OBJECT_END) return POLAR_OK;
        double *one = pl_json_is(&p, "t")            ? &g->t
                      : pl_json_is(&p, "p")          ? &g->p
                      : pl_json_is(&p, "wilcoxon_p") ? &g->wilcoxon
                                                     : NULL;
        if (one) {
            PL_TRY(pl_json_next(&p));
            *one = p.number;
        } else if (pl_json_is(&p, "a")) PL_TRY(read_numbers(&p, g->a, &g->n_a));
        else if (pl_json_is(&p, "b")) PL_TRY(read_numbers(&p, g->b, &g->n_b));
        else if (pl_json_is(&p, "ci95")) PL_TRY(read_numbers(&p, g->ci, &g->n_ci));
        else return PL_FAIL(POLAR_E_FORMAT, "a key this test does not know");
    }
}

static void against_golden(void)
{
    static golden g;
    static char text[1 << 16];
    double work[MOST], sizes = 0, sum = 0;
    FILE *f = fopen(test_golden_path("stats.json"), "rb");
    if (!test_true("golden: stats.json", f != NULL, "%s", test_golden_path("stats.json"))) return;
    int64_t size = (int64_t)fread(text, 1, sizeof text, f);
    fclose(f);
    TEST_TRY(read_golden(&g, text, size));
    test_true("golden: its numbers", g.n_a == 40 && g.n_b == 40 && g.n_ci == 2, "%lld, %lld, %lld",
              (long long)g.n_a, (long long)g.n_b, (long long)g.n_ci);
    pl_paired s = pl_paired_measure(g.a, g.b, g.n_a, work);
    for (int64_t i = 0; i < g.n_a; i++) {
        sizes += fabs(g.a[i]) + fabs(g.b[i]);
        sum += g.a[i] - g.b[i];
    }
    /* the differences are exact (Sterbenz) or lose eps (|a| + |b|); adding n of them loses n eps of their
     * sizes at most, against their sum */
    double tol = (double)g.n_a * DBL_EPSILON * sizes / fabs(sum);
    test_bound("golden: t", relative(s.t, g.t), tol, "n eps sum(|a|+|b|)/|sum d|");
    test_bound("golden: p", relative(s.p, g.p), tol * (g.t * g.t + 1), "the same, times t^2 + 1");
    test_bound("golden: ci95", ends(&s, g.ci[0], g.ci[1]), tol, "the same");
    test_bound("golden: wilcoxon p", relative(s.wilcoxon_p, g.wilcoxon), 1400 * DBL_EPSILON,
               "scipy adds 1276 terms at most");
}

/* ---- where nothing can be said, and samples ---- */

static void degenerate(void)
{
    static const double a[] = {0.3, 0.3, 0.3, 0.3, 0.3}, b[] = {0.1, 0.1, 0.1, 0.1, 0.1};
    double work[5];
    pl_paired none = pl_paired_measure(a, b, 0, work), one = pl_paired_measure(a, b, 1, work),
              flat = pl_paired_measure(a, b, 5, work), same = pl_paired_measure(a, a, 5, work);
    test_true("n = 0",
              PART(none.n == 0) && PART(isnan(none.mean_a)) && PART(isnan(none.mean_diff)) &&
                  PART(isnan(none.t)) && PART(isnan(none.p)) && PART(isnan(none.ci_lo)) &&
                  PART(isnan(none.wilcoxon_p)),
              "NaN");
    test_true("n = 1",
              PART(one.mean_diff == a[0] - b[0]) && PART(isnan(one.sd_diff)) && PART(isnan(one.t)) &&
                  PART(isnan(one.p)) && PART(isnan(one.ci_hi)) && PART(one.wilcoxon_p == 1) &&
                  PART(one.positive == 1),
              "mean %g, Wilcoxon 1, the rest NaN", one.mean_diff);
    test_true("equal differences",
              PART(flat.mean_diff == a[0] - b[0]) && PART(flat.sd_diff == 0) && PART(isnan(flat.t)) &&
                  PART(isnan(flat.p)) && PART(isnan(flat.ci_lo)) && PART(flat.positive == 5) &&
                  PART(flat.wilcoxon_p == 0.0625),
              "mean %g, t NaN, Wilcoxon 2/2^5 = %g", flat.mean_diff, flat.wilcoxon_p);
    test_true("no difference",
              PART(same.mean_diff == 0) && PART(isnan(same.t)) && PART(same.zero == 5) &&
                  PART(same.wilcoxon_p == 1),
              "t NaN, Wilcoxon 1");
}

static void samples(void)
{
    /* mean 4, squares about it 9 + 4 + 1 + 0 + 36 = 50, variance 12.5 */
    static const double x[] = {1, 2, 3, 4, 10};
    pl_sample s = pl_sample_measure(x, 5), one = pl_sample_measure(x, 1), none = pl_sample_measure(x, 0);
    double half = 2.7764451051977987 * sqrt(12.5 / 5); /* scipy.stats.t.isf(0.025, 4) */
    test_true("sample: mean, sd, ends",
              PART(s.mean == 4) && PART(s.sd == sqrt(12.5)) && PART(s.min == 1) && PART(s.max == 10),
              "%g, %g, %g, %g", s.mean, s.sd, s.min, s.max);
    test_bound("sample: ci95", fmax(relative(s.ci_lo, 4 - half), relative(s.ci_hi, 4 + half)),
               80 * DBL_EPSILON * (4 + half) / fabs(4 - half), "80 eps, relative to the end near 0");
    test_true("sample: n = 1, n = 0",
              PART(one.mean == 1) && PART(isnan(one.sd)) && PART(isnan(one.ci_lo)) &&
                  PART(isnan(none.mean)) && PART(isnan(none.min)),
              "NaN");
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    student();
    beta();
    against_scipy();
    against_golden();
    degenerate();
    samples();
    return test_end();
}
