/* test_verify.c -- the paper's claims as `polar verify` measures them: a small covariance table against the
 * paper's, and every lemma within its bound.
 *
 * Draws are functions of the seed, so each run sees the same numbers; the statistical bars below carry their
 * standard errors all the same. On devices other than cpu, which are slow, only the fp64 bars are tested, on
 * few samples.
 */
#include <float.h>

#include "base/alloc.h"
#include "polar/polar.h"
#include "fixtures/place.h"
#include "test.h"
#include "verify/covariance.h"
#include "verify/gauge.h"
#include "verify/haar.h"
#include "verify/paper_covariance.h"
#include "verify/schur.h"

#define SEED 1
#define EPS  DBL_EPSILON

/* ---- Haar matrices ---- */

static double orthogonality(const double *Q, int64_t n)
{
    double squares = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            double s = i == j ? -1 : 0;
            for (int64_t k = 0; k < n; k++) s += Q[i * n + k] * Q[j * n + k];
            squares += s * s;
        }
    return sqrt(squares);
}

/* Beyond the side from which on the draws are the library's own: orthonormal rows Y and a lower triangle
 * G Y^T with a positive diagonal, which only one Y has. */
static void haar_blocks(void)
{
    enum { N = 1057 }; /* blocks of 32 and one row */
    const pl_draw draw = {.seed = SEED, .kind = PL_DRAW_RIGHT, .rows = 3, .cols = N};
    double *G = pl_alloc(N * N * sizeof *G), *Y = pl_alloc(N * N * sizeof *Y), above = 0, norm = 0;
    int64_t negative = 0;
    pl_draw_normal(G, N * N, &draw);
    TEST_TRY(pl_haar_draw(Y, N, &draw));
    for (int64_t i = 0; i < N; i++)
        for (int64_t j = i; j < N; j++) {
            double s = 0;
            for (int64_t k = 0; k < N; k++) s += G[i * N + k] * Y[j * N + k];
            if (j > i) above += s * s;
            if (j == i) negative += s <= 0;
        }
    for (int64_t i = 0; i < N * N; i++) norm += G[i] * G[i];
    test_bound("haar: |Q Q^T - I| by blocks", orthogonality(Y, N), 8 * EPS * N,
               "Householder: some eps per column, 8 n eps in all");
    test_bound("haar: the part of G Q^T above the diagonal", sqrt(above), 8 * EPS * N * sqrt(norm),
               "Householder's backward error: as many eps of G's norm");
    test_exact("haar: diagonal entries of G Q^T that are not positive", negative);
    pl_free(G);
    pl_free(Y);
}

/* tr Q has mean 0 and, up to its 4th power, a Gaussian's moments: mean of tr^2 is 1, its variance 2. Without
 * the correction of signs Householder's Q has diagonal entries of a preferred sign, and the first mean is far
 * from 0. 5 standard errors are granted. */
static void haar(void)
{
    static const int64_t sizes[] = {1, 2, 3, 17, 64};
    enum { N = 4000 };
    double *Q = pl_alloc(64 * 64 * sizeof *Q), trace = 0, squares = 0, det_sum = 0, worst_det = 0;
    int64_t plus = 0, other = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char what[96];
        TEST_TRY(pl_haar_draw(Q, sizes[i],
                              &(pl_draw){.seed = SEED, .kind = PL_DRAW_LEFT, .rows = sizes[i], .cols = 5}));
        snprintf(what, sizeof what, "haar: |Q Q^T - I|, n = %lld", (long long)sizes[i]);
        test_bound(what, orthogonality(Q, sizes[i]), 8 * EPS * (double)sizes[i],
                   "Householder: some eps per column, 8 n eps in all");
    }
    for (int64_t s = 0; s < N; s++) {
        TEST_TRY(pl_haar_draw(
            Q, 3, &(pl_draw){.seed = SEED, .kind = PL_DRAW_RIGHT, .rows = 3, .cols = 3, .sample = s}));
        double t = Q[0] + Q[4] + Q[8];
        trace += t / N;
        squares += t * t / N;
        TEST_TRY(pl_haar_draw(
            Q, 1, &(pl_draw){.seed = SEED, .kind = PL_DRAW_RIGHT, .rows = 8, .cols = 1, .sample = s}));
        plus += Q[0] == 1;
        other += Q[0] != 1 && Q[0] != -1;
        TEST_TRY(pl_haar_rotation(
            Q, &(pl_draw){.seed = SEED, .kind = PL_DRAW_ROTATION, .rows = 3, .cols = 3, .sample = s}));
        double det = Q[0] * (Q[4] * Q[8] - Q[5] * Q[7]) - Q[1] * (Q[3] * Q[8] - Q[5] * Q[6]) +
                     Q[2] * (Q[3] * Q[7] - Q[4] * Q[6]);
        worst_det = fmax(worst_det, fabs(det - 1));
        det_sum += (Q[0] + Q[4] + Q[8]) / N;
    }
    test_bound("haar: mean trace on O(3)", fabs(trace), 5 / sqrt(N), "5 standard errors, variance 1");
    test_bound("haar: mean squared trace on O(3)", fabs(squares - 1), 5 * sqrt(2.0 / N),
               "5 standard errors, variance 2");
    test_bound("haar: mean trace on SO(3)", fabs(det_sum), 5 / sqrt(N), "5 standard errors, variance 1");
    test_bound("haar: determinant on SO(3)", worst_det, 64 * EPS, "three columns of 8 n eps");
    test_exact("haar: O(1) has two elements", other);
    test_bound("haar: and both come", fabs((double)plus / N - 0.5), 5 * 0.5 / sqrt(N),
               "5 standard errors of a coin");
    pl_free(Q);
}

/* ---- the covariance table ---- */

typedef struct {
    int64_t n, m, samples;
} row_case;

/* fp64. G, P and Q turn a matrix by sums of n and m terms: with ||G|| = 1 the two sides differ by about u
 * sqrt(n + m) before the map (u = 2^-53). Five steps magnify a difference by at most 3.4445^5 = 485, the
 * slope at zero, and their result has norm 0.9 sqrt(min(n, m)) or more: for squares 485 u sqrt(2) / 0.9
 * = 8.5e-14, whatever n; long matrices have no singular values near zero, where the slope is small. The exact
 * factor magnifies by 1 / s_min; that has P(1 / s_min > t sqrt(n)) ~ 1 / t for square Gaussian matrices, so
 * its mean over some hundred samples is some 6 sqrt(n): about 1e-14. One bar for both: 1e-13.
 *
 * Fused over reference: 3 roundings a step against 8 (docs/NUMERICS.md, 1), which add in squares if they
 * weigh the same: sqrt(3 / 8) = 0.61, and 3 standard errors of 2.2 %: 0.65. They do not weigh the same: the
 * reference rounds b A and c A A before they cancel, so 0.42 to 0.48 is measured.
 *
 * Standard errors of our bf16 mean, relative (sd of one sample over the mean, over
 * sqrt(samples)): 8x8 0.36/20 = 1.8 %, 8x44 0.16/14 = 1.1 %, 4x4 0.53/24 = 2.2 %, 16x4 0.32/17 = 1.8 %, 32x32
 * 0.8 %, 128x128 0.7 %, 192x192 0.7 %. The paper's, from 50 samples: 5.1, 2.3, 7.5, 4.5, 0.9, 0.2, 0.2 %.
 * Together at most 8 %, so 25 % is three standard errors at the worst row, 4x4. rho_0: sd at most 0.13 (0.18
 * at 8x1), so 0.019 for the difference of the paper's mean of 50 and ours: 0.08 is four of these (three at
 * 8x1). */
static void bars(const pl_covariance_row *r, int full)
{
    const pl_paper_covariance *p = pl_paper_covariance_find(r->n, r->m);
    double reference = r->mean[PL_COV_NS_BF16_REFERENCE], fused = r->mean[PL_COV_NS_BF16_FUSED];
    double se = r->sd[PL_COV_NS_BF16_REFERENCE] / sqrt((double)r->samples) / reference;
    char what[96], why[96];
#define WHAT(text) (snprintf(what, sizeof what, "%lldx%lld: " text, (long long)r->n, (long long)r->m), what)
    test_bound(WHAT("polar, fp64"), r->mean[PL_COV_POLAR], 1e-13, "485 u sqrt(2) / 0.9");
    test_bound(WHAT("NS5, fp64"), r->mean[PL_COV_NS_FP64], 1e-13, "485 u sqrt(2) / 0.9");
    /* G, P, Q rounded, two products of length n and m, one rounding of the result, on both sides: a few 2^-24
     * each, sums in one chain add sqrt(K) 2^-24; a factor of 4 for the polar map's own magnification of the
     * mean error. Not below 2^-27: the rounding must be there. */
    double level = 4 * 0x1p-24 * (8 + sqrt((double)(r->n + r->m)));
    test_bound(WHAT("polar, fp32 inputs"), r->mean[PL_COV_POLAR_FP32_INPUTS], level, "fp32 level");
    test_bound(WHAT("NS5 fp64, fp32 inputs"), r->mean[PL_COV_NS_FP64_FP32_INPUTS], level, "fp32 level");
    if (r->n * r->m > 1) /* signs are exact */
        test_true(WHAT("fp32 inputs are really rounded"), r->mean[PL_COV_POLAR_FP32_INPUTS] > 0x1p-27, "%.1e",
                  r->mean[PL_COV_POLAR_FP32_INPUTS]);
    if (!full) return;
    /* NS5 in fp32: each step adds some 2^-24 sqrt(K) and magnifies by at most 3.45, sum 3.45^5 / 2.45 = 200
     * at the smallest singular values. */
    test_bound(WHAT("NS5 fp32"), r->mean[PL_COV_NS_FP32],
               200 * 0x1p-24 * sqrt((double)(r->n < r->m ? r->n : r->m)), "slope at zero");
    test_bound(WHAT("fused over reference"), fused / reference, 0.65, "sqrt(3 / 8) and 3 se");
    if (!p) return;
    test_bound(WHAT("rho_0 against the paper"), fabs(r->mean[PL_COV_RHO0] - p->rho0_mean), 0.08,
               "3 to 4 se of both means");
    if (r->n == 8 && r->m == 1) return; /* the paper's bf16 figure is 3 standard errors low there */
    snprintf(why, sizeof why, "3 se of both means; ours %.3f", se);
    test_bound(WHAT("bf16 reference against the paper"), fabs(reference / p->ns_bf16 - 1), 0.25, why);
    test_bound(WHAT("fused over the paper"), fused / p->ns_bf16, 0.65, "sqrt(3 / 8), 6 %");
#undef WHAT
}

static void covariance(const char *device, int full)
{
    static const row_case cpu_rows[] = {{8, 8, 400},  {8, 1, 200},   {8, 44, 200},  {4, 4, 600}, {16, 4, 300},
                                        {32, 32, 60}, {128, 128, 6}, {192, 192, 4}, {5, 7, 50},  {1, 1, 5}};
    static const row_case slow_rows[] = {{8, 8, 10}, {3, 1, 4}};
    const row_case *rows = full ? cpu_rows : slow_rows;
    size_t n = full ? sizeof cpu_rows / sizeof *cpu_rows : sizeof slow_rows / sizeof *slow_rows;
    place p = place_open(device);
    for (size_t i = 0; i < n; i++) {
        pl_covariance_row r;
        TEST_TRY(pl_covariance_measure(&r, p.q, rows[i].n, rows[i].m,
                                       &(pl_covariance_opts){.seed = SEED, .samples = rows[i].samples}));
        bars(&r, full && rows[i].n > 1 && rows[i].m + rows[i].n > 4);
    }
    pl_covariance_row r;
    test_true("an empty shape is refused",
              pl_covariance_measure(&r, p.q, 0, 3, &(pl_covariance_opts){.seed = SEED, .samples = 1}) ==
                  POLAR_E_ARG,
              "%s", polar_error_message());
    place_close(p);
}

/* ---- matrices with given singular values ---- */

/* The values are those asked for, the vectors the draw's: with all values 1, X is G's polar factor and X^T G
 * is symmetric. */
static void spectrum(void)
{
    enum { N = 24, M = 16 };
    double X[N * M], G[N * M], largest, smallest, asymmetry = 0;
    pl_draw_normal(G, N * M, &(pl_draw){.seed = SEED, .kind = PL_DRAW_OTHER, .rows = N, .cols = M});
    memcpy(X, G, sizeof X);
    TEST_TRY(pl_spectrum_put(X, N, M, &(pl_spectrum){.rank = 3, .tail = 1e-4}));
    TEST_TRY(pl_singular_range(&largest, &smallest, X, N, M));
    test_bound("spectrum: the largest value is 1, the least 1e-4", fabs(largest - 1) + fabs(smallest - 1e-4),
               8 * EPS * N, "some eps of two decompositions");
    memcpy(X, G, sizeof X);
    TEST_TRY(pl_spectrum_put(X, N, M, &(pl_spectrum){.rank = M}));
    for (int i = 0; i < M; i++)
        for (int j = 0; j < M; j++) {
            double a = 0, b = 0;
            for (int k = 0; k < N; k++) a += X[k * M + i] * G[k * M + j], b += X[k * M + j] * G[k * M + i];
            asymmetry = fmax(asymmetry, fabs(a - b));
        }
    test_bound("spectrum: X^T G of all values 1 against its transpose", asymmetry, 8 * EPS * N * 10,
               "eps a column of ||G|| < 10");
}

/* A map lifts small singular values: the exact one by 1 / tail, five steps of Jordan's table by up
 * to 3.4445^5 = 485, and with them what rounding left there. ||X|| = 1 is rounded to u sqrt(n + m) by the
 * products P G Q^T and P phi Q^T, large values are 1 / sqrt(rank) and end at 0.68 or more. fp32's steps add
 * 200 units (see bars).
 *
 * In bf16 an entry is rounded by 0.42 2^-9 of its size (an error uniform within half a unit, over a mantissa
 * whose logarithm is), so X by 8.3e-4. Of this the share (n - r)(m - r) / (n m) lies in the null directions,
 * for 16 x 16 of rank 2 0.77, is lifted to 485 x 8.3e-4 x sqrt(0.77) = 0.35 in norm, and is another one on
 * the rotated side: 0.5 beside two values near 1 is 0.4 of the whole, to which later steps add. Less than
 * half of that would be another explanation; three bits more leave an eighth of it. */
static void spectra(const char *device, int full)
{
    static const row_case rows[] = {{16, 16, 40}, {16, 152, 10}, {12, 5, 40}};
    place p = place_open(device);
    for (size_t i = 0; i < (full ? sizeof rows / sizeof *rows : 1); i++)
        for (int64_t rank = 1; rank <= 4; rank *= 2)
            for (int t = 0; t < 2; t++) {
                int64_t n = rows[i].n, m = rows[i].m, k = n < m ? n : m;
                double tail = t ? 1e-6 : 1e-2, sum = sqrt((double)(n + m));
                pl_covariance_opts o = {
                    .seed = SEED, .samples = full ? rows[i].samples : 4, .values = {rank, tail}};
                pl_covariance_row r;
                char what[96];
                TEST_TRY(pl_covariance_measure(&r, p.q, n, m, &o));
#define WHAT(text)                                                                                      \
    (snprintf(what, sizeof what, "%lldx%lld, %lld large, tail %.0e: " text, (long long)n, (long long)m, \
              (long long)rank, tail),                                                                   \
     what)
                test_bound(WHAT("polar"), r.mean[PL_COV_POLAR],
                           EPS / 2 * sum * sqrt((double)rank / (double)k) / tail + 1e-13,
                           "u sqrt(n + m) ||G|| / tail");
                test_bound(WHAT("NS5, fp64"), r.mean[PL_COV_NS_FP64],
                           485 * EPS / 2 * sum / (0.68 * sqrt((double)rank)), "485 u sqrt(n + m)");
                if (!full) continue;
                test_bound(WHAT("NS5, fp32"), r.mean[PL_COV_NS_FP32],
                           685 * 0x1p-24 * sum / (0.68 * sqrt((double)rank)),
                           "(485 + 200) 2^-24 sqrt(n + m)");
                if (!t || rank != 2 || k != 16) continue;
                test_true(WHAT("bf16 fused: lifted roundings"), r.mean[PL_COV_NS_BF16_FUSED] > 0.2, "%.2f",
                          r.mean[PL_COV_NS_BF16_FUSED]);
                test_bound(WHAT("fp16 over bf16"),
                           r.mean[PL_COV_NS_FP16_FUSED] / r.mean[PL_COV_NS_BF16_FUSED], 0.25,
                           "an eighth, twice that where bf16's no longer grow");
                o.values = (pl_spectrum){k, 1};
                double few = r.mean[PL_COV_NS_BF16_FUSED];
                TEST_TRY(pl_covariance_measure(&r, p.q, n, m, &o));
                test_bound(WHAT("bf16 fused, all values large, over that"),
                           r.mean[PL_COV_NS_BF16_FUSED] / few, 0.1,
                           "no value is small: slopes of some units, not 485");
#undef WHAT
            }
    pl_covariance_row r;
    test_true("more large values than there are",
              pl_covariance_measure(&r, p.q, 3, 5,
                                    &(pl_covariance_opts){.seed = SEED, .samples = 1, .values = {4, 0}}) ==
                  POLAR_E_ARG,
              "%s", polar_error_message());
    place_close(p);
}

/* Bytes of two rows that differ. */
static int64_t row_mismatch(const pl_covariance_row *a, const pl_covariance_row *b)
{
    int64_t n = 0;
    for (size_t i = 0; i < sizeof *a; i++) n += ((const char *)a)[i] != ((const char *)b)[i];
    return n;
}

/* The table does not know how many threads there are, nor what was measured before. */
static void threads(void)
{
    static const row_case rows[] = {{8, 44, 150}, {33, 17, 12}, {100, 60, 5}};
    place one = place_open("cpu:threads=1"), two = place_open("cpu:threads=2");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pl_covariance_row a, b, c;
        pl_covariance_opts o = {.seed = SEED, .samples = rows[i].samples},
                           other = {.seed = SEED + 1, .samples = rows[i].samples};
        char what[96];
        TEST_TRY(pl_covariance_measure(&a, one.q, rows[i].n, rows[i].m, &o));
        TEST_TRY(pl_covariance_measure(&b, two.q, rows[i].n, rows[i].m, &o));
        TEST_TRY(pl_covariance_measure(&c, two.q, rows[i].n, rows[i].m, &other));
        snprintf(what, sizeof what, "%lldx%lld: 1 and 2 threads", (long long)rows[i].n, (long long)rows[i].m);
        test_exact(what, row_mismatch(&a, &b));
        test_true("another seed, another row", row_mismatch(&a, &c) > 0, "%lld bytes differ",
                  (long long)row_mismatch(&a, &c));
    }
    place_close(one);
    place_close(two);
}

/* ---- lemmas, theorem, proposition, remark ---- */

static void schur(void)
{
    for (int64_t m = 1; m <= 3; m++) {
        pl_schur_reduction s;
        char what[96];
        TEST_TRY(pl_schur_reduction_measure(&s, m, SEED));
#define WHAT(text) (snprintf(what, sizeof what, "schur, m = %lld: " text, (long long)m), what)
        test_bound(WHAT("24 rotations of the cube"), s.octahedral, 24 * EPS, "sums of 24 terms");
        test_bound(WHAT("B is kept"), s.b_change, 24 * EPS / sqrt(1 - s.before * s.before),
                   "24 eps ||M|| over ||B (x) I||");
        test_exact(WHAT("parameters 9 m^2 -> m^2"),
                   llabs(s.parameters_before - 9 * m * m) + llabs(s.parameters_after - m * m));
        test_bound(WHAT("projector's singular values"), s.projector_gap, 9 * (double)(m * m) * EPS,
                   "size times eps");
        /* sqrt(8/9) in the mean; a trace part above 87 % of a Gaussian would be a wonder */
        test_true(WHAT("before"), s.before > 0.5, "%.3f", s.before);
        /* The mean of (left sqrt(N) / before)^2 is 1; it has at least the 3 degrees of freedom of an
         * antisymmetric block, so its sd is at most 0.82: 6 sd are granted. */
        for (int k = 0; k < PL_SCHUR_COUNTS; k++) {
            double ratio = s.monte_carlo[k] * sqrt((double)s.rotations[k]) / s.before;
            snprintf(what, sizeof what, "schur, m = %lld: %lld rotations, square", (long long)m,
                     (long long)s.rotations[k]);
            test_bound(what, ratio * ratio, 5.9, "1 + 6 sd");
        }
        test_true(WHAT("Monte Carlo is no group average"),
                  s.monte_carlo[PL_SCHUR_COUNTS - 1] > 1e3 * s.octahedral &&
                      s.monte_carlo[PL_SCHUR_COUNTS - 1] > 1e-6,
                  "%.1e left", s.monte_carlo[PL_SCHUR_COUNTS - 1]);
#undef WHAT
    }
}

static void block_lemma(place p)
{
    static const pl_block_shape flat[] = {
        {4, 9, 1, 0}, {6, 14, 3, 0}, {12, 5, 3, 0}, {7, 5, 5, 2}, {1, 3, 5, 0}};
    for (int i = 0; i < 2; i++) {
        pl_block_lemma b;
        TEST_TRY(pl_block_lemma_measure(&b, p.q, i ? flat : NULL, i ? 5 : 0, SEED));
        /* An SVD errs by about (size) eps sigma_max, the polar factor by that over the smallest kept singular
         * value. sigma_max is that of the integer block, about 9 (sqrt 7 + sqrt 2)(sqrt 5 + sqrt 2) / 2 < 70;
         * sigma_min of the flat Gaussians above 0.3, of the square 8 x 8 above 0.03 for this seed. */
        test_bound("block lemma: exact polar", b.polar, (double)b.rows * EPS * 70 / (i ? 0.3 : 0.03),
                   "size eps sigma_max / sigma_min");
        /* Five steps magnify an error in X / ||X|| by at most 3.4445^5 = 485; products of length at most
         * `rows` err by eps sqrt(rows) of ||X|| = 1 each step; ||out|| >= 1. */
        test_bound("block lemma: NS5, shared norm", b.ns5_shared_norm, 485 * 5 * EPS * sqrt((double)b.rows),
                   "485 eps sqrt(size) a step");
        test_true("block lemma: NS5, own norms: another map", b.ns5_own_norms > 0.01, "%.3f",
                  b.ns5_own_norms);
        /* entry by entry the same operations on the same numbers; NaN, of no update at all, is no zero */
        test_bound("block lemma: AdamW, to the bit", b.adamw, 0, "no rounding differs");
    }
}

/* How much k steps can magnify rounding: along each trajectory sigma -> p(sigma) an error grows by |p'|, and
 * each step adds one unit. */
static double magnification(const char *table, int steps)
{
    polar_coef c[POLAR_MAX_STEPS];
    double worst = 0;
    TEST_TRY(polar_coef_table(c, steps, table));
    for (int i = 0; i <= 10000; i++) {
        double x = i / 10000.0, amp = 1;
        for (int k = 0; k < steps; k++) {
            double y = x * x;
            amp = amp * fabs(c[k].a + 3 * c[k].b * y + 5 * c[k].c * y * y) + 1;
            x *= c[k].a + c[k].b * y + c[k].c * y * y;
        }
        worst = fmax(worst, amp);
    }
    return worst;
}

static void theorem(place p)
{
    pl_theorem t;
    TEST_TRY(pl_theorem_measure(&t, p.q, SEED));
    /* P G Q^T errs by some eps sqrt(K) ||G||, the polar factor by that over sigma_min; 8 eps sqrt(48)
     * condition. */
    test_bound("theorem: exact polar", t.polar, 8 * EPS * sqrt(48) * t.condition, "8 eps sqrt(K) condition");
    for (int i = 0; i < PL_THEOREM_TABLES; i++)
        for (int k = 0; k < PL_THEOREM_STEPS; k++) {
            char what[96];
            snprintf(what, sizeof what, "theorem: NS_%d, %s", k + 1, t.table[i]);
            /* two evaluations and two rotations, each with products of length at most 48 */
            test_bound(what, t.ns[i][k], 4 * EPS * sqrt(48) * magnification(t.table[i], k + 1),
                       "4 eps sqrt(K) magnification");
        }
}

static void proposition(place p)
{
    static const double eps[] = {1e-30, 1e-8, 1e-4, 1e-2, 1, 1e2, 1e8};
    for (size_t i = 0; i < sizeof eps / sizeof *eps; i++) {
        pl_proposition r;
        char what[96];
        TEST_TRY(pl_proposition_measure(&r, p.q, eps[i]));
        double f = r.factor_rotated_paper, g = r.factor_paper;
        snprintf(what, sizeof what, "proposition, eps %.0e: factors", eps[i]);
        test_bound(what, fabs(r.factor_rotated / f - 1) + fabs(r.factor / g - 1), 16 * EPS,
                   "a handful of roundings each");
        snprintf(what, sizeof what, "proposition, eps %.0e: deviation", eps[i]);
        test_bound(what, fabs(r.deviation - sqrt(2) * fabs(f - g)), 16 * EPS * f,
                   "sqrt2 |f - g|, a handful of roundings of f");
        test_true(what, r.delta > 0 && fabs(r.delta - (f / g - 1)) < 32 * EPS,
                  "delta %.9g is f/g - 1, never 0", r.delta);
    }
    pl_proposition r;
    test_true("proposition: eps 0 is outside of it", pl_proposition_measure(&r, p.q, 0) == POLAR_E_ARG, "%s",
              polar_error_message());
}

static void linear(place p)
{
    pl_linear_maps l;
    TEST_TRY(pl_linear_maps_measure(&l, p.q, SEED));
    /* two chains of products of lengths 24 and 40, on both sides */
    test_bound("linear: SGD", l.sgd, 2 * EPS * sqrt(64), "2 eps sqrt(K)");
    test_bound("linear: momentum", l.momentum, 2 * EPS * sqrt(64),
               "2 eps sqrt(K), one chain per term, terms add as the sum does");
    double ns5 = 0, sgd = 0, adamw = INFINITY;
    for (int i = 0; i < PL_LINEAR_SCALES; i++) {
        ns5 = fmax(ns5, l.ns5_norm[i]);
        sgd = fmax(sgd, fabs(l.sgd_norm[i] / pow(10, i - PL_LINEAR_SCALES / 2) - 1));
        adamw = fmin(adamw, l.adamw_norm[i]);
    }
    test_bound("linear: NS5 holds the spectral norm", ns5, 1.21, "Jordan's quintic on [0, 1], five steps");
    test_bound("linear: SGD has the input's, 1e-3 to 1e3", sgd, 64 * EPS, "rounding of an SVD");
    /* 24 x 40 entries of size 1: ||rho||_F^2 = 960 over at most 24 values */
    test_true("linear: AdamW's is large at any scale", adamw >= sqrt(40), "%.2f", adamw);
}

/* ---- memory ---- */

static polar_status everything(const char *device)
{
    polar_device *dev = NULL;
    polar_queue *q = NULL;
    pl_covariance_row r;
    pl_block_lemma b;
    pl_proposition pr;
    pl_linear_maps l;
    polar_status st = polar_device_open(&dev, device);
    if (st == POLAR_OK) st = polar_queue_create(&q, dev, NULL);
    if (st == POLAR_OK)
        st = pl_covariance_measure(&r, q, 4, 6,
                                   &(pl_covariance_opts){.seed = SEED, .samples = 2, .values = {2, 1e-2}});
    if (st == POLAR_OK) st = pl_block_lemma_measure(&b, q, NULL, 0, SEED);
    if (st == POLAR_OK) st = pl_proposition_measure(&pr, q, 1);
    if (st == POLAR_OK) st = pl_linear_maps_measure(&l, q, SEED);
    polar_queue_destroy(q);
    polar_device_close(dev);
    return st;
}

/* The n-th allocation fails, n = 1, 2, ...: a sentence each time and nothing lost. */
/* Guard, where each try takes a tenth of a second, has every seventh. */
static void memory(const char *device)
{
    int64_t before = pl_alloc_live(), wrong = 0, n = 0, stride = strncmp(device, "guard", 5) ? 1 : 7;
    polar_status st = POLAR_E_NOMEM;
    while (st != POLAR_OK && n < 3000) {
        pl_alloc_fail_at(n += stride);
        st = everything(device);
        pl_alloc_fail_at(0);
        wrong += (st != POLAR_OK && st != POLAR_E_NOMEM) || pl_alloc_live() != before;
    }
    test_true(
        stride > 1 ? "the n-th allocation fails, n by sevens" : "the n-th allocation fails, for every n",
        !wrong && st == POLAR_OK && n > 20, "%lld allocations, %lld wrong", (long long)n, (long long)wrong);
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    int full = !strncmp(device, "cpu", 3);
    haar();
    haar_blocks();
    schur();
    covariance(device, full);
    spectrum();
    spectra(device, full);
    if (full) threads();
    place p = place_open(device);
    block_lemma(p);
    theorem(p);
    proposition(p);
    linear(p);
    place_close(p);
    memory(device);
    return test_end();
}
