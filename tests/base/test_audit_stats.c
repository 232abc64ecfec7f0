/* test_audit_stats.c -- effect sizes, Holm's correction, equivalence and times to an event against
 * tests/golden/audit_stats.json (scipy, statsmodels, lifelines, mpmath), and where nothing can be said. */
#include <float.h>

#include "base/json_read.h"
#include "math/statistics.h"
#include "test.h"

#define MOST  256
#define LISTS 128

typedef struct list {
    char name[32];
    double x[MOST];
    int64_t n;
} list;

static list lists[LISTS];
static int list_count;

/* A number that is too large for a double stands for infinity. */
static polar_status read_list(pl_json *p, list *l)
{
    PL_TRY(pl_json_need(p, PL_JSON_ARRAY));
    for (;;) {
        PL_TRY(pl_json_next(p));
        if (p->token == PL_JSON_ARRAY_END) return POLAR_OK;
        PL_NEED(l->n < MOST, POLAR_E_FORMAT, "more than %d numbers", MOST);
        l->x[l->n++] = p->token == PL_JSON_NULL ? INFINITY : p->number;
    }
}

static polar_status read_lists(const char *text, int64_t size)
{
    pl_json p = pl_json_view(text, size, "'audit_stats.json'");
    PL_TRY(pl_json_need(&p, PL_JSON_OBJECT));
    for (;;) {
        PL_TRY(pl_json_next(&p));
        if (p.token == PL_JSON_OBJECT_END) return POLAR_OK;
        PL_NEED(list_count < LISTS && p.raw_size < 32, POLAR_E_FORMAT, "too many lists");
        list *l = &lists[list_count++];
        (void)pl_json_decode(l->name, &p);
        PL_TRY(read_list(&p, l));
    }
}

/* "km", 3, ".time"; NULL: there is none. */
static const list *find(const char *stem, int k, const char *tail)
{
    char name[32];
    if (k < 0) snprintf(name, sizeof name, "%s", stem);
    else snprintf(name, sizeof name, "%s.%d%s", stem, k, tail);
    for (int i = 0; i < list_count; i++)
        if (!strcmp(lists[i].name, name)) return &lists[i];
    return NULL;
}

static double relative(double got, double want)
{
    return got == want ? 0 : fabs(got - want) / fabs(want);
}

/* ---- effect sizes ---- */

/* Each weight and each value of the normal distribution is good to some eps, exp(df ...) to eps times its
 * argument, which is 46 where a weight ends; sums of positive terms keep that. Far below 1 erfc's argument
 * counts: x^2 eps. */
static void noncentral(void)
{
    const list *l = find("nct", -1, "");
    for (int64_t i = 0; l && i + 3 < l->n; i += 4) {
        char what[80];
        double p = pl_student_noncentral(l->x[i], l->x[i + 1], l->x[i + 2]);
        snprintf(what, sizeof what, "noncentral t %g, df %g, ncp %g: %.3g", l->x[i], l->x[i + 1], l->x[i + 2],
                 p);
        test_bound(what, relative(p, l->x[i + 3]), 400 * DBL_EPSILON, "400 eps");
    }
    test_true("noncentral t: there are golden ones", l && l->n >= 64, "%lld", l ? (long long)l->n / 4 : 0);
    /* with ncp 0 it is Student's */
    test_bound("noncentral t, ncp 0",
               relative(1 - pl_student_noncentral(2.5, 7, 0), pl_student_p(2.5, 7) / 2),
               400 * DBL_EPSILON * 50, "400 eps / p");
    test_true("noncentral t, nothing to say",
              isnan(pl_student_noncentral(NAN, 5, 0)) && isnan(pl_student_noncentral(1, 0, 0)), "NaN");
}

static void effects(void)
{
    int k = 0;
    double work[MOST];
    for (const list *w; (w = find("effect", k, "")); k++) {
        const list *a = find("effect", k, ".a"), *b = find("effect", k, ".b");
        char what[80];
        pl_paired s = pl_paired_measure(a->x, b->x, a->n, work);
        pl_effect e = pl_effect_measure(&s);
        double t_tol = ((double)a->n + 8) * DBL_EPSILON; /* test_statistics.c: of t */
        snprintf(what, sizeof what, "effect %d, n %lld: g %.4f [%.4f, %.4f]", k, (long long)a->n, e.g, e.lo,
                 e.hi);
        /* the script takes J from logarithms of gamma functions, which lose eps of their size */
        test_bound(what, relative(e.g, w->x[0]), t_tol + (40 + 2 * lgamma((double)a->n / 2)) * DBL_EPSILON,
                   "t's + 40 eps + 2 eps lgamma");
        /* the script's ends hold P(T <= t) to 1e-11; dP/dncp there is at least the density of a 2.5 % event
         * of a nearly normal distribution, 0.05, so ncp is good to 2e-10, in units of its width of about 1 or
         * more */
        double scale = fmax(1 / sqrt((double)a->n), fabs(w->x[0]));
        test_bound("    its ends", fmax(fabs(e.lo - w->x[1]), fabs(e.hi - w->x[2])) / scale, 2e-10,
                   "1e-11 / 0.05");
        /* |d log p / d log t| <= t^2 + 1 as there, t of the nearer margin; margin and mean cancel in it */
        double error = s.sd_diff / sqrt((double)s.n), m = w->x[3], d = fabs(s.mean_diff), t = (m - d) / error;
        test_bound("    equivalence p", relative(pl_equivalence_p(&s, m), w->x[4]),
                   (t_tol + 8 * DBL_EPSILON * (m + d) / fabs(m - d)) * (t * t + 1) + 80 * DBL_EPSILON,
                   "t's, times t^2 + 1, + 80 eps");
    }
    test_true("effects: there are golden ones", k == 8, "%d", k);
}

/* Differences that are the same up to rounding: t has no bound, and the work must have one. Of n = 3 the
 * interval of a large t is t r / sqrt(3), shrunk, with Q(r) = P(s >= r) = exp(-r^2) of two degrees of
 * freedom. P is Q(r) + Q''(r) / (2 t^2), which moves r by (4 r^2 - 2) / (4 r^2 t^2) of itself, 18.8 / t^2 at
 * the low end; of t above 1e7 as of 1e7. And r is known to the rounding of P, 40 eps over 0.05. */
static void nearly_equal(void)
{
    const double unbias = tgamma(1) / tgamma(0.5), low = sqrt(-log(0.975)), high = sqrt(-log(0.025));
    for (double spread = 1e-4; spread > 1e-15; spread /= 10) {
        const double a[3] = {1 + spread, 1, 1 - spread / 2}, b[3] = {0};
        double work[3];
        char what[80];
        pl_paired s = pl_paired_measure(a, b, 3, work);
        pl_effect e = pl_effect_measure(&s);
        snprintf(what, sizeof what, "differences nearly equal, t %.3g: g in [%.4g, %.4g]", s.t, e.lo, e.hi);
        test_bound(
            what,
            fmax(relative(e.lo, unbias * s.t * low / sqrt(3)), relative(e.hi, unbias * s.t * high / sqrt(3))),
            20 / fmin(s.t * s.t, 1e14) + 2e-13, "20 / t^2 + 40 eps / 0.05");
    }
}

/* The interval holds the truth in 95 % of samples: 2000 of n = 6 with an effect of 0.8, within 4 sigma (1.95
 * %). */
static void coverage(void)
{
    uint64_t x = 88172645463325252ull;
    int inside = 0, tries = 2000;
    double a[6], b[6] = {0}, work[6];
    double unbias =
        0.84089641525371454303; /* of df = 5: Gamma(5/2) / (sqrt(5/2) Gamma(2)), shrinks the ends too */
    unbias = tgamma(2.5) / (sqrt(2.5) * tgamma(2)); /* of df = 5: the ends are shrunk by it too */
    for (int i = 0; i < tries; i++) {
        for (int j = 0; j < 6; j += 2) {
            double u[2];
            for (int m = 0; m < 2; m++) {
                x ^= x << 13, x ^= x >> 7, x ^= x << 17;
                u[m] = ((double)(x >> 11) + 0.5) / 9007199254740992.0;
            }
            a[j] = 0.8 + sqrt(-2 * log(u[0])) * cos(6.283185307179586 * u[1]);
            a[j + 1] = 0.8 + sqrt(-2 * log(u[0])) * sin(6.283185307179586 * u[1]);
        }
        pl_paired s = pl_paired_measure(a, b, 6, work);
        pl_effect e = pl_effect_measure(&s);
        inside += e.lo <= 0.8 * unbias && 0.8 * unbias <= e.hi;
    }
    test_bound("effects: coverage of 95 %", fabs((double)inside / tries - 0.95),
               4 * sqrt(0.95 * 0.05 / tries), "4 sigma of 2000");
}

/* ---- many tests ---- */

static void holm(void)
{
    int k = 0;
    double out[MOST];
    pl_ranked work[MOST];
    for (const list *w; (w = find("holm", k, "")); k++) {
        const list *p = find("holm", k, ".p");
        double worst = 0;
        pl_holm(out, p->x, p->n, work);
        for (int64_t i = 0; i < p->n; i++) worst = fmax(worst, relative(out[i], w->x[i]));
        test_bound("holm", worst, 2 * DBL_EPSILON, "one product"); /* statsmodels multiplies too */
    }
    test_true("holm: there are golden ones", k == 5, "%d", k);
    const double some[] = {0.01, (double)NAN, 0.04};
    pl_holm(out, some, 3, work);
    test_true("holm: NaN is no test", out[0] == 0.02 && isnan(out[1]) && out[2] == 0.04, "%g %g %g", out[0],
              out[1], out[2]);
    pl_holm(out, some, 0, work);
}

/* ---- times ---- */

static void survival(void)
{
    int k = 0;
    pl_event_time x[MOST];
    for (const list *w; (w = find("km", k, "")); k++) {
        const list *time = find("km", k, ".time"), *event = find("km", k, ".event");
        char what[80];
        int64_t events = 0;
        for (int64_t i = 0; i < time->n; i++) { /* in another order than they were given */
            int64_t from = (i * 7 + 3) % time->n;
            if (time->n % 7 == 0) from = time->n - 1 - i;
            x[i] = (pl_event_time){time->x[from], event->x[from] != 0};
            events += event->x[i] != 0;
        }
        pl_survival s = pl_survival_measure(x, time->n, w->x[0]);
        snprintf(what, sizeof what, "times %d: median %g [%g, %g]", k, s.median, s.lo, s.hi);
        test_true(what,
                  PART(s.median == w->x[1]) && PART(s.lo == w->x[2]) && PART(s.hi == w->x[3]) &&
                      PART(s.n == time->n) && PART(s.events == events),
                  "%lld of %lld", (long long)s.events, (long long)s.n);
        test_bound("    restricted mean", relative(s.mean, w->x[4]), (double)time->n * 4 * DBL_EPSILON,
                   "4 n eps");
    }
    test_true("times: there are golden ones", k == 8, "%d", k);
    /* S(8) = 5/6 x 3/5 is 1/2, and rounded a little more */
    pl_event_time half[] = {{5, 1}, {8, 1}, {8, 1}, {12, 1}, {40, 0}, {40, 0}};
    test_true("times: half of them is half", pl_survival_measure(half, 6, 40).median == 8, "8");
    pl_survival none = pl_survival_measure(NULL, 0, 40);
    test_true("times: none", isinf(none.median) && isnan(none.mean) && none.n == 0, "NaN");
}

static void signs(void)
{
    const list *l = find("sign", -1, "");
    for (int64_t i = 0; l && i + 2 < l->n; i += 3) {
        char what[60];
        double p = pl_sign_p((int64_t)l->x[i], (int64_t)l->x[i + 1]);
        snprintf(what, sizeof what, "signs %g against %g: p %.3g", l->x[i], l->x[i + 1], p);
        test_bound(what, relative(p, l->x[i + 2]), 400 * DBL_EPSILON,
                   "up to 100 products here, as many there");
        test_true("    both ways", p == pl_sign_p((int64_t)l->x[i + 1], (int64_t)l->x[i]), "%g", p);
    }
    /* of 1000 counted one by one and of 1002 by the beta function: neighbours */
    test_bound("signs: many", relative(pl_sign_p(461, 541), pl_sign_p(460, 540)), 0.02,
               "a step of the count");
}

/* Who is earlier, against the log-rank stratified by pairs. */
static void orders(void)
{
    int k = 0;
    for (const list *w; (w = find("logrank", k, "")); k++) {
        const list *a = find("logrank", k, ".a"), *ea = find("logrank", k, ".ea"),
                   *b = find("logrank", k, ".b"), *eb = find("logrank", k, ".eb");
        double count[2] = {0, 0};
        int64_t wrong = 0;
        for (int64_t i = 0; i < a->n; i++) {
            pl_event_time x = {a->x[i], ea->x[i] != 0}, y = {b->x[i], eb->x[i] != 0};
            int order = pl_event_order(x, y), back = pl_event_order(y, x);
            wrong += order == 2 ? back != 2 : order != -back;
            count[0] += order == -1;
            count[1] += order == 1;
        }
        test_exact("pairs in order: the other way round", wrong);
        double d = count[0] - count[1], chi2 = d * d / (count[0] + count[1]);
        test_bound("pairs in order: log-rank's chi2", fabs(chi2 - w->x[0]), 64 * DBL_EPSILON * (1 + w->x[0]),
                   "64 eps");
    }
    test_true("orders: there are golden ones", k == 2, "%d", k);
}

static void degenerate(void)
{
    static const double a[] = {0.3, 0.3, 0.3}, b[] = {0.1, 0.1, 0.1}, c[] = {0.2, 0.4, 0.1};
    double work[3];
    pl_paired flat = pl_paired_measure(a, b, 3, work), two = pl_paired_measure(a, c, 2, work),
              one = pl_paired_measure(a, c, 1, work), none = pl_paired_measure(a, c, 0, work);
    test_true("no effect size of equal differences, or of two",
              isnan(pl_effect_measure(&flat).g) && isnan(pl_effect_measure(&two).lo), "NaN");
    test_true("equivalence of equal differences",
              pl_equivalence_p(&flat, 0.3) == 0 && pl_equivalence_p(&flat, 0.1) == 1, "0 and 1");
    test_true("equivalence of one, of none, without a margin",
              isnan(pl_equivalence_p(&one, 1)) && isnan(pl_equivalence_p(&none, 1)) &&
                  isnan(pl_equivalence_p(&two, (double)NAN)) && isnan(pl_equivalence_p(&two, 0)),
              "NaN");
}

int main(int argc, char **argv)
{
    static char text[1 << 16];
    test_begin(argc, argv);
    FILE *f = fopen(test_golden_path("audit_stats.json"), "rb");
    if (!test_true("golden: audit_stats.json", f != NULL, "%s", test_golden_path("audit_stats.json")))
        return test_end();
    int64_t size = (int64_t)fread(text, 1, sizeof text, f);
    fclose(f);
    TEST_TRY(read_lists(text, size));
    noncentral();
    nearly_equal();
    effects();
    coverage();
    holm();
    survival();
    signs();
    orders();
    degenerate();
    return test_end();
}
