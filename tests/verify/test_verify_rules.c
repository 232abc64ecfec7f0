/* test_verify_rules.c -- whole update rules under rotated histories of gradients: covariant to rounding
 * without an entrywise preconditioner, far from it with one.
 *
 * Draws are functions of the seed, so each run sees the same numbers; the statistical bars carry their
 * standard errors all the same. On devices other than cpu, which are slow, only small shapes and few samples.
 */
#include <float.h>

#include "base/alloc.h"
#include "polar/optim.h"
#include "polar/polar.h"
#include "fixtures/place.h"
#include "test.h"
#include "verify/haar.h"
#include "verify/paper_covariance.h"
#include "verify/rule_covariance.h"

#define SEED 1

static pl_rule_row measured(place p, const char *rule, int64_t n, int64_t m, int64_t samples, int64_t steps)
{
    pl_rule_row r;
    TEST_TRY(pl_rule_covariance_measure(&r, p.q, rule, n, m,
                                        &(pl_rule_opts){.seed = SEED, .samples = samples, .steps = steps}));
    return r;
}

static const char *name_of(char *text, size_t bytes, const pl_rule_row *r, pl_rule_precision p,
                           const char *what)
{
    snprintf(text, bytes, "%s %lldx%lld T=%lld %s: %s", r->rule, (long long)r->n, (long long)r->m,
             (long long)r->steps, pl_rule_precision_key(p), what);
    return text;
}

#define WHAT(r, p, what) name_of(text, sizeof text, r, p, what)

/* ---- all rules ---- */

/* A covariant rule in a format of unit roundoff u. Rotating a gradient and rotating the update back are four
 * products of lengths n and m: 2 u sqrt(n + m) of the norm on both sides together (one chain per entry,
 * rounding errors of either sign), and a history errs as its sum does. The weights are rounded every step and
 * the update is a difference of weights no larger than T updates: 2 T u. A polar map sees X = u / ||u||_F;
 * five steps magnify an error of it by at most 485, the slope at 0, and leave a norm of at least 0.6
 * sqrt(min(n, m)); its own products err by u sqrt(min) each step, magnified to 200 in all. An SVD, in double
 * whatever the format, is that of a matrix 10 max(n, m) 2^-53 away, as op_expect_polar.c has it, on each of
 * both sides. */
static double rounding_bar(const pl_rule_row *r, double u)
{
    double s = (double)(r->n < r->m ? r->n : r->m), rotation = 2 * u * sqrt((double)(r->n + r->m)),
           weights = 2 * u * (double)r->steps, svd = 20 * 0x1p-53 * (double)(r->n > r->m ? r->n : r->m);
    polar_rule rule;
    TEST_TRY(polar_rule_parse(&rule, r->rule));
    if (r->polar) return 485 * rotation / (0.6 * sqrt(s)) + 200 * u * sqrt(s) + weights;
    return rotation + weights + (rule.map.kind == POLAR_MAP_NONE ? 0 : svd);
}

static void check_covariant(const pl_rule_row *r)
{
    static const double u[] = {0x1p-53, 0x1p-24};
    char text[128];
    for (pl_rule_precision p = PL_RULE_FP64; p <= PL_RULE_FP32; p++) {
        const char *why = r->polar ? "u (485 x 2 sqrt(n+m) / 0.6 sqrt(s) + 200 sqrt(s) + 2 T)"
                                   : "u (2 sqrt(n+m) + 2 T) + an SVD's";
        test_bound(WHAT(r, p, "update"), r->at[p].deviation_mean, rounding_bar(r, u[p]), why);
        test_bound(WHAT(r, p, "weights"), r->at[p].weight_deviation_mean, rounding_bar(r, u[p]), why);
        /* equality to the bit would mean that nothing was rotated */
        test_true(WHAT(r, p, "rotated, so rounded"), r->at[p].deviation_mean > u[p] / 8, "%.1e",
                  r->at[p].deviation_mean);
    }
    if (!r->polar) return;
    /* bf16: the paper's 3 to 5.5 per cent for one map, whatever the history was; 8 x 8 has sd 1.4 per cent of
     * one sample. The fused one deviates about half as much. */
    double reference = r->at[PL_RULE_BF16_REFERENCE].deviation_mean,
           fused = r->at[PL_RULE_BF16_FUSED].deviation_mean;
    test_bound(WHAT(r, PL_RULE_BF16_REFERENCE, "update"), reference, 0.1, "the paper's bf16 column, twice");
    test_true(WHAT(r, PL_RULE_BF16_FUSED, "really bf16"), fused > 0x1p-9, "%.1e", fused);
}

/* With a preconditioner the rule sees coordinates: all precisions agree that it does, since the breakage is
 * far above their rounding. */
static void check_broken(const pl_rule_row *r)
{
    char text[128];
    double truth = r->at[PL_RULE_FP64].deviation_mean;
    /* measured: adamw 0.48 to 0.50, polaradamw and muon_v 0.5 to 0.75; the sd of a sample is at most 0.2, of
     * the mean of 12 0.06 */
    test_true(WHAT(r, PL_RULE_FP64, "breaks"), truth >= 0.3, "%.3f", truth);
    test_true(WHAT(r, PL_RULE_FP64, "weights break"), r->at[PL_RULE_FP64].weight_deviation_mean >= 0.3,
              "%.3f", r->at[PL_RULE_FP64].weight_deviation_mean);
    for (pl_rule_precision p = PL_RULE_FP32; p < PL_RULE_PRECISIONS; p++)
        /* each update within 10 per cent in bf16 (the covariant rules' bar); both sides move, in a mean: 0.1
         * again */
        if (pl_rule_has(r, p))
            test_bound(WHAT(r, p, "as in fp64"), fabs(r->at[p].deviation_mean - truth),
                       p == PL_RULE_FP32 ? 1e-4 : 0.1,
                       p == PL_RULE_FP32 ? "2^-24 x 485 on both sides" : "bf16's 10 %");
}

static void check_norms(const pl_rule_row *r)
{
    char text[128];
    for (pl_rule_precision p = 0; p < PL_RULE_PRECISIONS; p++) {
        double norm = r->at[p].spectral_norm_max;
        if (r->polar)
            test_bound(WHAT(r, p, "||u||_2 / (lr s)"), norm, p >= PL_RULE_BF16_REFERENCE ? 1.22 : 1.21,
                       "Jordan's quintic on [0, 1], bf16 adds 0.01");
        /* where 1 goes: 0.70; so s and lr were taken out */
        if (r->polar) test_true(WHAT(r, p, "||u||_2 / (lr s)"), norm > 0.67, "%.3f", norm);
        else if (!pl_rule_has(r, p))
            test_true(WHAT(r, p, "not measured"), isnan(norm) && isnan(r->at[p].deviation_mean), "nan");
    }
}

static void rules(place p, int full)
{
    static const int64_t shapes[][3] = {{8, 8, 60}, {8, 44, 30}, {44, 8, 10}, {64, 64, 4}, {192, 192, 2}};
    int64_t count = full ? (int64_t)(sizeof shapes / sizeof *shapes) : 2;
    int seen = 0, known = 0;
    while (polar_rule_name(known)) known++;
    for (int64_t i = 0; i < count; i++)
        for (int k = 0; k < known; k++) {
            pl_rule_row r =
                measured(p, polar_rule_name(k), shapes[i][0], shapes[i][1], full ? shapes[i][2] : 12, 0);
            polar_rule rule;
            TEST_TRY(polar_rule_parse(&rule, r.rule));
            int entries = rule.precondition == POLAR_PRECONDITION_ADAM ||
                          rule.precondition == POLAR_PRECONDITION_LAPROP ||
                          rule.precondition == POLAR_PRECONDITION_SIGN ||
                          rule.precondition == POLAR_PRECONDITION_ROOT ||
                          rule.post == POLAR_POST_ENTRY_MOMENT,
                lines = (rule.precondition >= POLAR_PRECONDITION_ROWS &&
                         rule.precondition <= POLAR_PRECONDITION_BOTH) ||
                        (rule.post != POLAR_POST_NONE && rule.post < POLAR_POST_ENTRY_MOMENT) ||
                        rule.post == POLAR_POST_BALANCE || rule.momentum == POLAR_MOMENTUM_PICKED,
                kron = rule.precondition >= POLAR_PRECONDITION_KRON &&
                       rule.precondition <= POLAR_PRECONDITION_KL_SOAP; /* their classes: sides, below */
            if (entries) check_broken(&r);
            else if (!lines && !kron && rule.apply != POLAR_APPLY_CAUTIOUS) check_covariant(&r);
            if (rule.post == POLAR_POST_NONE && rule.scale != POLAR_SCALE_FROBENIUS &&
                rule.scale != POLAR_SCALE_NUCLEAR && rule.apply == POLAR_APPLY_DECOUPLED)
                check_norms(&r);
            seen++;
        }
    test_true("all rules, the first six among them", known >= 6 && seen == known * count, "%d rows", seen);
}

/* ---- sides ---- */

/* Entries move, values do not, but for sums in another order: e = 2 u sqrt(n + m), and five steps of the map
 * make 3.4445^5 = 485 of it where a singular value is small. Factors of one gradient, as KRON_TRACE has them
 * up to its next look, have eigenvalues of 0 on the longer side, computed to e of the largest one, which is
 * at most N, N the side, in units of trace / N: (0 + 2 eps)^-p is off by p e N / (2 eps), before the map and,
 * where it is undone, behind. */
static double permuted_bound(const polar_rule *r, int64_t n, int64_t m)
{
    const double e = 2 * 0x1p-53 * sqrt((double)(n + m)), side = (double)(n > m ? n : m);
    if (r->precondition != POLAR_PRECONDITION_KRON_TRACE || n == m) return 1e-11;
    return 485 * 2 * r->kron_power * e * side / (2 * r->eps);
}

/* The class of every rule, on 16x16, 12x20 and 20x12: what its stages look at says it. Five steps of
 * Newton-Schulz leave rows of a wide matrix that are not unit rows, so moments of rows see the left side
 * there too. */
static void sides(place p)
{
    static const struct {
        const char *rule, *classes[3]; /* square, wide, tall */
    } known[] = {{"sgdm", {"both", "both", "both"}},
                 {"adamw", {"neither", "neither", "neither"}},
                 {"muon", {"both", "both", "both"}},
                 {"polaradamw", {"neither", "neither", "neither"}},
                 {"muon_v", {"neither", "neither", "neither"}},
                 {"polar_ema", {"both", "both", "both"}},
                 {"normuon", {"right", "right", "right"}},
                 {"normuon_long", {"right", "left", "right"}},
                 {"adamuon", {"neither", "neither", "neither"}},
                 {"adamuon_sign", {"neither", "neither", "neither"}},
                 {"muon2", {"neither", "neither", "neither"}},
                 {"muon_laprop", {"neither", "neither", "neither"}},
                 {"muoneq_r", {"right", "right", "right"}},
                 {"muoneq_c", {"left", "left", "left"}},
                 {"muoneq_rc", {"neither", "neither", "neither"}},
                 {"polargrad", {"both", "both", "both"}},
                 {"scion", {"both", "both", "both"}},
                 {"muonh", {"both", "both", "both"}},
                 {"muon_cautious", {"neither", "neither", "neither"}},
                 {"muon_plus", {"left", "left", "left"}},
                 {"aurora", {"both", "left", "right"}},
                 {"namo", {"both", "both", "both"}},
                 {"adago", {"both", "both", "both"}},
                 {"muon_floor", {"both", "both", "both"}},
                 {"muon_brake", {"both", "both", "both"}},
                 {"muon_power", {"both", "both", "both"}},
                 {"muon_soft", {"both", "both", "both"}},
                 {"shampoo", {"both", "both", "both"}},
                 {"shampoo_polar", {"both", "both", "both"}},
                 {"pmuon", {"both", "both", "both"}},
                 {"mousse", {"both", "both", "both"}},
                 {"soap", {"both", "neither", "neither"}},
                 {"soap_warm", {"both", "both", "both"}},
                 {"soap_muon", {"both", "neither", "neither"}},
                 {"soap_muon_warm", {"both", "both", "both"}},
                 {"kl_soap", {"both", "neither", "neither"}},
                 {"kl_soap_warm", {"both", "both", "both"}},
                 {"muon2_paper", {"neither", "neither", "neither"}},
                 {"dion2", {"neither", "neither", "neither"}}};
    static const int64_t shapes[3][2] = {{16, 16}, {12, 20}, {20, 12}};
    int seen = 0;
    for (int k = 0; polar_rule_name(k); k++)
        for (int i = 0; i < 3; i++) {
            pl_rule_symmetry s;
            char text[128];
            const char *want = NULL;
            TEST_TRY(pl_rule_symmetry_measure(&s, p.q, polar_rule_name(k), shapes[i][0], shapes[i][1],
                                              &(pl_rule_opts){.seed = SEED, .samples = 2, .steps = 6}));
            for (size_t j = 0; j < sizeof known / sizeof *known; j++)
                if (!strcmp(known[j].rule, s.rule)) want = known[j].classes[i];
            snprintf(text, sizeof text, "%s %lldx%lld: class", s.rule, (long long)s.n, (long long)s.m);
            test_true(text, want && !strcmp(pl_rule_class(&s), want), "%s", pl_rule_class(&s));
            polar_rule rule;
            TEST_TRY(polar_rule_parse(&rule, s.rule));
            const int64_t least = s.n < s.m ? s.n : s.m, most = s.n < s.m ? s.m : s.n;
            /* the larger factor's null space has no basis of its own: nothing is known of the other one's */
            if (rule.precondition >= POLAR_PRECONDITION_SOAP &&
                rule.precondition <= POLAR_PRECONDITION_KL_SOAP && rule.first_basis * least < most) {
                test_true(text, s.deviation[PL_RULE_PERMUTATION][PL_RULE_FP64] > 0.01, "%.2f",
                          s.deviation[PL_RULE_PERMUTATION][PL_RULE_FP64]);
                seen++;
                continue;
            }
            snprintf(text, sizeof text, "%s %lldx%lld: permuted", s.rule, (long long)s.n, (long long)s.m);
            test_bound(text, s.deviation[PL_RULE_PERMUTATION][PL_RULE_FP64], permuted_bound(&rule, s.n, s.m),
                       "rounding under the map");
            /* 3 g: three times the update of sgdm and polargrad; eps of quotients is felt at 1e-8 */
            double scaled = s.deviation[PL_RULE_SCALING][PL_RULE_FP64];
            int sized = !strcmp(s.rule, "sgdm") || !strcmp(s.rule, "polargrad");
            snprintf(text, sizeof text, "%s %lldx%lld: scaled", s.rule, (long long)s.n, (long long)s.m);
            /* factors of least divergence begin as squares of the gradient and average quotients then */
            if (rule.precondition == POLAR_PRECONDITION_KL_SOAP)
                test_true(text, scaled > 0.1, "%.1e", scaled);
            else test_true(text, sized ? fabs(scaled - 2) < 1e-6 : scaled <= PL_RULE_HAS_IT, "%.1e", scaled);
            seen++;
        }
    test_true("every rule has its class", seen == 3 * (int)(sizeof known / sizeof *known), "%d", seen);
}

/* ---- what is known beforehand ---- */

/* One step from zero: AdamW's direction is g / (|g| + eps), the paper's rho; Muon's is NS5(g), the paper's
 * bf16 column. Gaussian g of any size serves. */
static void one_step(place p)
{
    static const int64_t shapes[][3] = {{8, 8, 400}, {8, 44, 200}};
    char text[128];
    for (int i = 0; i < 2; i++) {
        const pl_paper_covariance *paper = pl_paper_covariance_find(shapes[i][0], shapes[i][1]);
        pl_rule_row adamw = measured(p, "adamw", shapes[i][0], shapes[i][1], shapes[i][2], 1),
                    muon = measured(p, "muon", shapes[i][0], shapes[i][1], shapes[i][2], 1);
        /* sd 0.06 and 0.03 of a sample, so standard errors of 0.003 (ours) and 0.0085 (the paper's 50) at
         * most */
        test_bound(WHAT(&adamw, PL_RULE_FP64, "the paper's rho_0"),
                   fabs(adamw.at[PL_RULE_FP64].deviation_mean - paper->rho0_mean), 0.05,
                   "5 se of the paper's mean");
        test_bound(WHAT(&muon, PL_RULE_BF16_REFERENCE, "the paper's bf16"),
                   fabs(muon.at[PL_RULE_BF16_REFERENCE].deviation_mean / paper->ns_bf16 - 1), 0.25,
                   "as in test_verify; both se below 6 %");
        test_bound(WHAT(&muon, PL_RULE_BF16_FUSED, "over the reference"),
                   muon.at[PL_RULE_BF16_FUSED].deviation_mean /
                       muon.at[PL_RULE_BF16_REFERENCE].deviation_mean,
                   0.65, "as in test_verify; about 0.45");
        /* W_1 = u_1, exactly: W_0 is zero */
        test_exact(WHAT(&adamw, PL_RULE_FP64, "W is u"),
                   adamw.at[PL_RULE_FP64].deviation_mean != adamw.at[PL_RULE_FP64].weight_deviation_mean);
    }
}

/* The history as the header has it: for sgdm the last update is lr sum mu^(T-t) g_t, whose spectral norm the
 * host can tell. */
static void history(place p)
{
    enum { N = 5, M = 7, T = 4 };
    double common[N * M], x[N * M], sum[N * M] = {0}, norm;
    pl_draw draw = {.seed = SEED, .kind = PL_DRAW_GRADIENT, .rows = N, .cols = M};
    pl_draw_normal(common, N * M, &draw);
    draw.kind = PL_DRAW_OTHER;
    for (int t = 0; t < T; t++) {
        draw.sample = t;
        pl_draw_normal(x, N * M, &draw);
        for (int i = 0; i < N * M; i++)
            sum[i] = 0.95 * sum[i] + (double)(float)((double)(float)common[i] + x[i]);
    }
    TEST_TRY(pl_singular_range(&norm, NULL, sum, N, M));
    pl_rule_row r = measured(p, "sgdm", N, M, 1, T);
    /* rotations keep a norm to u sqrt(n + m), an SVD to some u, weights err by 2 T u of the update */
    test_bound("sgdm: the history's norm", fabs(r.at[PL_RULE_FP64].spectral_norm_max / norm - 1),
               DBL_EPSILON * (2 * sqrt(N + M) + 2 * T), "eps (2 sqrt(n+m) + 2 T)");
    test_true("one sample has no sd",
              isnan(r.at[PL_RULE_FP64].deviation_sd) && !isnan(r.at[PL_RULE_FP64].deviation_mean), "%g",
              r.at[PL_RULE_FP64].deviation_sd);
    r = measured(p, "adamw", 1, 1, 3, 0); /* signs: +-1 commutes with everything, to the bit */
    test_exact("adamw 1x1: deviation",
               r.at[PL_RULE_FP64].deviation_mean != 0 || r.at[PL_RULE_FP32].deviation_mean != 0);
}

/* ---- independence ---- */

static int64_t mismatch(const pl_rule_row *a, const pl_rule_row *b)
{
    int64_t n = 0;
    for (size_t i = 0; i < sizeof a->at; i++) n += ((const char *)a->at)[i] != ((const char *)b->at)[i];
    return n;
}

static void threads(void)
{
    static const int64_t shapes[][3] = {{8, 44, 30}, {33, 17, 5}, {100, 60, 3}};
    place one = place_open("cpu:threads=1"), two = place_open("cpu:threads=2");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int k = 0; polar_rule_name(k); k++) {
            char text[128];
            pl_rule_row a = measured(one, polar_rule_name(k), shapes[i][0], shapes[i][1], shapes[i][2], 3);
            pl_rule_row b = measured(two, polar_rule_name(k), shapes[i][0], shapes[i][1], shapes[i][2], 3);
            test_exact(WHAT(&a, PL_RULE_FP64, "1 and 2 threads"), mismatch(&a, &b));
        }
    pl_rule_row a = measured(one, "adamw", 8, 8, 5, 3), c;
    TEST_TRY(pl_rule_covariance_measure(&c, one.q, "adamw", 8, 8,
                                        &(pl_rule_opts){.seed = SEED + 1, .samples = 5, .steps = 3}));
    test_true("another seed, another row", mismatch(&a, &c) > 0, "%lld bytes differ",
              (long long)mismatch(&a, &c));
    place_close(one);
    place_close(two);
}

/* A sample alone is a matrix, two are an ensemble: the same deviations, to the bit, in every rule and
 * precision. */
static void members(place p)
{
    for (int k = 0; polar_rule_name(k); k++) {
        pl_rule_row r[3];
        char text[128];
        int64_t wrong = 0;
        for (int i = 0; i < 3; i++) /* sample 0, sample 1, both */
            TEST_TRY(pl_rule_covariance_measure(
                &r[i], p.q, polar_rule_name(k), 5, 3,
                &(pl_rule_opts){.seed = SEED, .first = i % 2, .samples = 1 + i / 2, .steps = 3}));
        for (pl_rule_precision f = 0; f < PL_RULE_PRECISIONS; f++) {
            const pl_rule_measure *a = &r[0].at[f], *b = &r[1].at[f], *both = &r[2].at[f];
            if (!pl_rule_has(&r[0], f)) continue;
            wrong +=
                both->deviation_mean != (a->deviation_mean + b->deviation_mean) / 2 ||
                both->weight_deviation_mean != (a->weight_deviation_mean + b->weight_deviation_mean) / 2 ||
                both->spectral_norm_max != fmax(a->spectral_norm_max, b->spectral_norm_max);
        }
        test_exact(WHAT(&r[2], PL_RULE_FP64, "members and matrices"), wrong);
    }
}

/* 100 samples fill a batch; the next one begins another. */
static void batches(place p)
{
    pl_rule_row a, b, c = measured(p, "polaradamw", 3, 4, 101, 2);
    pl_rule_opts head = {.seed = SEED, .samples = 100, .steps = 2},
                 tail = {.seed = SEED, .first = 100, .samples = 1, .steps = 2};
    TEST_TRY(pl_rule_covariance_measure(&a, p.q, "polaradamw", 3, 4, &head));
    TEST_TRY(pl_rule_covariance_measure(&b, p.q, "polaradamw", 3, 4, &tail));
    double sum = 100 * a.at[PL_RULE_BF16_FUSED].deviation_mean + b.at[PL_RULE_BF16_FUSED].deviation_mean;
    test_bound("100 samples and one more", fabs(101 * c.at[PL_RULE_BF16_FUSED].deviation_mean / sum - 1),
               4 * DBL_EPSILON, "one sum, some roundings of it");
}

/* ---- wrong use, memory ---- */

static void refused(place p)
{
    pl_rule_row r;
    pl_rule_opts ok = {.samples = 1}, long_one = {.samples = 1, .steps = PL_RULE_MAX_STEPS + 1}, none = {0};
    test_true("an unknown rule", pl_rule_covariance_measure(&r, p.q, "lion", 4, 4, &ok) == POLAR_E_ARG, "%s",
              polar_error_message());
    test_true("an empty shape", pl_rule_covariance_measure(&r, p.q, "muon", 0, 4, &ok) == POLAR_E_ARG, "%s",
              polar_error_message());
    test_true("too many steps", pl_rule_covariance_measure(&r, p.q, "muon", 4, 4, &long_one) == POLAR_E_ARG,
              "%s", polar_error_message());
    test_true("no sample", pl_rule_covariance_measure(&r, p.q, "muon", 4, 4, &none) == POLAR_E_ARG, "%s",
              polar_error_message());
}

static polar_status small_run(const char *device)
{
    polar_device *dev = NULL;
    polar_queue *q = NULL;
    pl_rule_row r;
    polar_status st = polar_device_open(&dev, device);
    if (st == POLAR_OK) st = polar_queue_create(&q, dev, NULL);
    if (st == POLAR_OK)
        st = pl_rule_covariance_measure(&r, q, "polaradamw", 3, 4,
                                        &(pl_rule_opts){.seed = SEED, .samples = 2, .steps = 2});
    polar_queue_destroy(q);
    polar_device_close(dev);
    return st;
}

/* The n-th allocation fails, n = 1, 2, ...: a sentence each time and nothing lost. */
static void memory(const char *device)
{
    int64_t before = pl_alloc_live(), wrong = 0, n = 0;
    polar_status st = POLAR_E_NOMEM;
    while (st != POLAR_OK && n < 5000) {
        pl_alloc_fail_at(++n);
        st = small_run(device);
        pl_alloc_fail_at(0);
        wrong +=
            (st != POLAR_OK && (st != POLAR_E_NOMEM || !*polar_error_message())) || pl_alloc_live() != before;
    }
    test_true("the n-th allocation fails, for every n", !wrong && st == POLAR_OK && n > 20,
              "%lld allocations, %lld wrong", (long long)n, (long long)wrong);
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    int full = !strncmp(device, "cpu", 3);
    place p = place_open(device);
    rules(p, full);
    if (full) sides(p);
    if (full) one_step(p);
    members(p);
    if (full) batches(p);
    history(p);
    refused(p);
    place_close(p);
    if (full) threads();
    memory(device);
    return test_end();
}
