/* test_point_cloud.c -- the SO(3) testbed's data: eigenvalues against LAPACK, clouds by coordinates, orders,
 * the predictors without learning. */
#include <float.h>

#include "base/alloc.h"
#include "base/lapack.h"
#include "base/philox.h"
#include "data/set/epoch_order.h"
#include "data/point_cloud.h"
#include "math/sym3.h"
#include "test.h"

/* ---- eigenvalues -------------------------------------------------------------------------------- */

static double frobenius(const double a[6])
{
    double largest = 0, s = 0;
    for (int i = 0; i < 6; i++) largest = fmax(largest, fabs(a[i]));
    for (int i = 0; i < 6 && largest > 0; i++)
        s += (i == 0 || i == 3 || i == 5 ? 1 : 2) * (a[i] / largest) * (a[i] / largest);
    return largest * sqrt(s);
}

typedef void (*eigen_fn)(const char *job, const char *half, const int *n, double *a, const int *lda,
                         double *w, double *work, const int *lwork, int *info, size_t, size_t);

/* Largest difference from LAPACK's three eigenvalues over eps ||A||_F. */
static double eigen_error(const double a[6])
{
    double ours[3], w[3], full[9] = {a[0], a[1], a[2], a[1], a[3], a[4], a[2], a[4], a[5]}, worst = 0,
                          norm = frobenius(a);
    pl_sym3_eigenvalues(ours, a);
    eigen_fn dsyev = (eigen_fn)pl_lapack_symbol("dsyev_");
    double work[64];
    int n = 3, room = 64, info = 1;
    if (dsyev) dsyev("N", "U", &n, full, &n, w, work, &room, &info, 1, 1);
    if (info) return NAN;
    for (int i = 0; i < 3; i++) worst = fmax(worst, fabs(ours[i] - w[2 - i]));
    return norm > 0 ? worst / (DBL_EPSILON * norm) : worst;
}

/* R diag(d) R^T with R from three plane rotations by random angles. */
static void conjugated(double a[6], const double d[3], uint64_t index)
{
    pl_u4 r = pl_philox(11, PL_STREAM_TEST, 3, index);
    const uint32_t bits[3] = {r.x, r.y, r.z};
    double R[3][3] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}};
    for (int k = 0; k < 3; k++) {
        double t = 6.283185307179586 * (double)pl_uniform_f32(bits[k]), c = cos(t), s = sin(t);
        int p = k == 2, q = k == 0 ? 1 : 2;
        for (int i = 0; i < 3; i++) {
            double x = R[i][p], y = R[i][q];
            R[i][p] = c * x - s * y;
            R[i][q] = s * x + c * y;
        }
    }
    for (int i = 0, n = 0; i < 3; i++)
        for (int j = i; j < 3; j++, n++) {
            a[n] = 0;
            for (int k = 0; k < 3; k++) a[n] += R[i][k] * d[k] * R[j][k];
        }
}

/* Both methods are backward stable: each eigenvalue is off by a few eps ||A||_F (Jacobi: about 3 roundings in
 * each of some 9 rotations, norms add). */
static void test_eigen(void)
{
    static const struct {
        const char *what;
        double d[3];
    } cases[] = {{"three apart", {3, 2, 1}},
                 {"two equal above", {2, 2, 1}},
                 {"two equal below", {2, 1, 1}},
                 {"all equal", {1, 1, 1}},
                 {"rank one", {1, 0, 0}},
                 {"rank two", {1, 1, 0}},
                 {"a gap of 1e-9", {1 + 1e-9, 1, 0.5}},
                 {"a gap of 1e-15", {1 + 1e-15, 1, 1 - 1e-15}},
                 {"signs", {1, -1, 0}},
                 {"near 1e-200", {3e-200, 2e-200, 1e-200}},
                 {"near 1e200", {3e200, 3e200, 1e200}},
                 {"13 orders", {1, 1e-6, 1e-13}}};
    double a[6];
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        double here = 0;
        for (uint64_t i = 0; i < 200; i++) {
            conjugated(a, cases[c].d, i);
            here = fmax(here, eigen_error(a));
        }
        test_bound(cases[c].what, here, 16, "eps ||A||_F, against LAPACK");
    }
    const double plain[6] = {2, 0, 0, 5, 0, 3}, zero[6] = {0};
    double out[3];
    pl_sym3_eigenvalues(out, plain);
    test_exact("a diagonal matrix", (out[0] != 5) + (out[1] != 3) + (out[2] != 2));
    pl_sym3_eigenvalues(out, zero);
    test_exact("zero", (out[0] != 0) + (out[1] != 0) + (out[2] != 0));
    int64_t bad = 0;
    for (int i = 0; i < 12; i++) {
        double x[6] = {1, 2, 3, 4, 5, 6};
        x[i % 6] = i < 6 ? NAN : -INFINITY;
        pl_sym3_eigenvalues(out, x);
        bad += !isnan(out[0]) + !isnan(out[1]) + !isnan(out[2]);
    }
    test_exact("NaN or infinity in, NaN out", bad);
}

/* ---- clouds ------------------------------------------------------------------------------------- */

static void test_clouds(void)
{
    pl_clouds few, many, wide, single, valid, other;
    TEST_TRY(pl_clouds_create(&few, 7, PL_SPLIT_TEST, 5, 10, POLAR_DTYPE_F64));
    TEST_TRY(pl_clouds_create(&many, 7, PL_SPLIT_TEST, 9, 10, POLAR_DTYPE_F64));
    TEST_TRY(pl_clouds_create(&wide, 7, PL_SPLIT_TEST, 5, 13, POLAR_DTYPE_F64));
    TEST_TRY(pl_clouds_create(&single, 7, PL_SPLIT_TEST, 5, 10, POLAR_DTYPE_F32));
    TEST_TRY(pl_clouds_create(&valid, 7, PL_SPLIT_VALID, 5, 10, POLAR_DTYPE_F64));
    TEST_TRY(pl_clouds_create(&other, 8, PL_SPLIT_TEST, 5, 10, POLAR_DTYPE_F64));
    const double *x = few.x;
    test_exact("a cloud does not depend on their number",
               memcmp(few.x, many.x, 5 * pl_clouds_bytes(&few)) != 0);
    int64_t bad = 0, same = 0;
    for (int64_t c = 0; c < 5; c++) {
        bad += memcmp(pl_clouds_view(&few, c), pl_clouds_view(&wide, c), pl_clouds_bytes(&few)) != 0;
        for (int64_t i = 0; i < 30; i++) {
            bad += (double)((const float *)pl_clouds_view(&single, c))[i] != (double)(float)x[30 * c + i];
            same += x[30 * c + i] == ((const double *)valid.x)[30 * c + i] ||
                    x[30 * c + i] == ((const double *)other.x)[30 * c + i];
        }
    }
    test_exact("more points: the first stay; f32: rounded f64", bad);
    test_exact("splits and seeds differ", same);
    /* the coordinates of test cloud 0 of seed 7, which decide every stored result; libm may move the last bit
     * or two */
    static const double first[4] = {0x1.65c9b4ed5c2d2p-1, 0x1.b340ce03d4567p-5, -0x1.a1cd4f89a4fb8p+0,
                                    0x1.9c4c35ab37553p-5};
    double drift = 0;
    for (int i = 0; i < 4; i++) drift = fmax(drift, fabs(x[i] / first[i] - 1));
    test_bound("the draws are those they were", drift, 8 * DBL_EPSILON, "log, sin, cos of another libm");
    pl_clouds *all[] = {&few, &many, &wide, &single, &valid, &other};
    for (size_t i = 0; i < 6; i++) pl_clouds_destroy(all[i]);
}

/* B of y = B x from the first three points. */
static void stretch_of(double B[3][3], const double *x, const double *y)
{
    double det = 0, inverse[3][3];
    for (int r = 0; r < 3; r++)
        for (int c = 0; c < 3; c++) { /* of X, whose columns are the points: cofactors */
            int r1 = (r + 1) % 3, r2 = (r + 2) % 3, c1 = (c + 1) % 3, c2 = (c + 2) % 3;
            inverse[r][c] = x[3 * r1 + c1] * x[3 * r2 + c2] - x[3 * r1 + c2] * x[3 * r2 + c1];
        }
    for (int c = 0; c < 3; c++) det += x[c] * inverse[0][c];
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++) {
            B[i][j] = 0;
            for (int p = 0; p < 3; p++) B[i][j] += y[3 * p + i] * inverse[p][j] / det;
        }
}

/* Stretched clouds: y = (I + a S) x of the plain ones, S symmetric; entries with mean 0 and variance 1 and
 * 1/2 over 2000 clouds, standard errors of the variance sqrt(2 / n) of it. */
static void test_stretched(void)
{
    enum { CLOUDS = 2000, POINTS = 6 };
    const double a = 0.25;
    pl_clouds plain, same, stretched;
    double diagonal = 0, off = 0, worst = 0, skew = 0;
    TEST_TRY(pl_clouds_create(&plain, 9, PL_SPLIT_VALID, CLOUDS, POINTS, POLAR_DTYPE_F64));
    TEST_TRY(pl_clouds_create_stretched(&same, 9, PL_SPLIT_VALID, CLOUDS, POINTS, POLAR_DTYPE_F64, 0));
    TEST_TRY(pl_clouds_create_stretched(&stretched, 9, PL_SPLIT_VALID, CLOUDS, POINTS, POLAR_DTYPE_F64, a));
    test_exact("stretched by nothing", memcmp(plain.x, same.x, CLOUDS * pl_clouds_bytes(&plain)) != 0);
    for (int64_t i = 0; i < CLOUDS; i++) {
        const double *x = pl_clouds_view(&plain, i), *y = pl_clouds_view(&stretched, i);
        double B[3][3], size = 0;
        stretch_of(B, x, y);
        for (int k = 0; k < 3; k++) {
            diagonal += (B[k][k] - 1) * (B[k][k] - 1) / (a * a) / (3.0 * CLOUDS);
            double s = B[k][(k + 1) % 3] / a;
            off += s * s / (3.0 * CLOUDS);
            skew = fmax(skew, fabs(B[k][(k + 1) % 3] - B[(k + 1) % 3][k]));
            for (int64_t p = 3; p < POINTS; p++) {
                double sum = 0;
                for (int j = 0; j < 3; j++)
                    sum += B[k][j] * x[3 * p + j], size = fmax(size, fabs(y[3 * p + k]));
                worst = fmax(worst, fabs(sum - y[3 * p + k]) / size);
            }
        }
    }
    /* three points may lie nearly in a plane: of 2000 determinants the smallest is some 1e-4, and B loses as
     * many digits, twice in the products of cofactors */
    test_bound("one linear map per cloud", worst, 1e8 * DBL_EPSILON, "conditioning of three points");
    test_bound("it is symmetric", skew, 1e8 * DBL_EPSILON, "conditioning of three points");
    test_bound("variance of S_kk", fabs(diagonal - 1), 5 * sqrt(2 / (3.0 * CLOUDS)), "5 standard errors");
    test_bound("variance of S_kl", fabs(off / 0.5 - 1), 5 * sqrt(2 / (3.0 * CLOUDS)), "5 standard errors");
    pl_clouds_destroy(&plain);
    pl_clouds_destroy(&same);
    pl_clouds_destroy(&stretched);
}

/* Mean 0 and variance 1 of 3 x 64 x 2000 coordinates: standard errors sqrt(1/n) and sqrt(2/n); 5 of them.
 * Targets: the largest eigenvalue of the rounded cloud. */
static void test_distribution(void)
{
    pl_clouds c;
    double sum = 0, squares = 0, n = 3.0 * 64 * 2000, a[6], lambda[3];
    int64_t bad = 0;
    TEST_TRY(pl_clouds_create(&c, 3, PL_SPLIT_TRAIN, 2000, 64, POLAR_DTYPE_F32));
    for (int64_t i = 0; i < 3 * 64 * 2000; i++) {
        double x = (double)((float *)c.x)[i];
        sum += x, squares += x * x;
    }
    test_bound("mean of the coordinates", fabs(sum / n), 5 * sqrt(1 / n), "5 standard errors");
    test_bound("variance of the coordinates", fabs(squares / n - 1), 5 * sqrt(2 / n), "5 standard errors");
    for (int64_t i = 0; i < c.count; i++) {
        pl_cloud_moment(a, &c, i);
        pl_sym3_eigenvalues(lambda, a);
        bad += c.target[i] != lambda[0] || c.target[i] < (a[0] + a[3] + a[5]) / 3 ||
               c.target[i] > a[0] + a[3] + a[5];
    }
    test_exact("targets between tr/3 and tr, of the moment", bad);
    pl_clouds_destroy(&c);
}

static void test_order(void)
{
    enum { N = 6, TRIES = 6000 };
    static const int64_t known[3][8] = {
        {6, 2, 4, 1, 5, 7, 0, 3}, {5, 0, 4, 3, 2, 7, 1, 6}, {2, 1, 7, 6, 0, 3, 4, 5}};
    int64_t order[300], seen[300], bad = 0, place[N] = {0};
    for (int64_t e = 0; e < 3; e++) {
        TEST_TRY(pl_epoch_order(order, 8, 7, e));
        bad += memcmp(order, known[e], sizeof known[e]) != 0;
    }
    test_exact("orders of seed 7 are those they were", bad);
    bad = 0;
    for (int64_t e = 0; e < 50; e++) {
        memset(seen, 0, sizeof seen);
        TEST_TRY(pl_epoch_order(order, 300, 5, e));
        for (int i = 0; i < 300; i++) seen[order[i]]++;
        for (int i = 0; i < 300; i++) bad += seen[i] != 1;
    }
    test_exact("every order is a permutation", bad);
    double chi = 0;
    for (int64_t e = 0; e < TRIES; e++) {
        TEST_TRY(pl_epoch_order(order, N, 9, e));
        for (int i = 0; i < N; i++) place[i] += order[i] == 0;
    }
    for (int i = 0; i < N; i++)
        chi += (double)((place[i] - TRIES / N) * (place[i] - TRIES / N)) / (TRIES / N);
    test_bound("where cloud 0 comes: chi squared", chi, 25.7, "5 degrees of freedom, 1e-4");
}

/* ---- predictors without learning ---------------------------------------------------------------- */

/* Averages of 20 samples of 12,000 clouds: trace 0.009427, sd 0.000102 of one sample; with anisotropy
 * 0.001153, sd 0.000014. docs/NUMERICS.md (6) has 0.0093 and 0.0012. */
static void test_baseline(void)
{
    pl_clouds train, test;
    pl_cloud_baseline b, one;
    TEST_TRY(pl_clouds_create(&train, 41, PL_SPLIT_TRAIN, 12000, 64, POLAR_DTYPE_F32));
    TEST_TRY(pl_clouds_create(&test, 41, PL_SPLIT_TEST, 12000, 64, POLAR_DTYPE_F32));
    TEST_TRY(pl_cloud_baseline_measure(&b, &train, &test));
    test_bound("trace only, N = 64: MSE 0.00943", fabs(b.trace_mse - 0.009427), 5 * 0.000102,
               "5 standard deviations");
    test_bound("trace and anisotropy: MSE 0.00115", fabs(b.trace_anisotropy_mse - 0.001153), 5 * 0.0000143,
               "5 standard deviations");
    pl_clouds_destroy(&train);
    pl_clouds_destroy(&test);

    /* one point: A = x x^T, its largest eigenvalue is the trace and the two features are one; a handful of
     * clouds suffices for an exact fit */
    TEST_TRY(pl_clouds_create(&train, 4, PL_SPLIT_TRAIN, 6, 1, POLAR_DTYPE_F64));
    TEST_TRY(pl_clouds_create(&test, 4, PL_SPLIT_TEST, 50, 1, POLAR_DTYPE_F64));
    TEST_TRY(pl_cloud_baseline_measure(&b, &train, &test));
    test_bound("one point: the trace is the target", b.trace_mse, 1e-26, "(some 10 eps 30)^2");
    test_bound("one point: the second feature adds nothing", b.trace_anisotropy_mse, 1e-26, "the same");
    pl_clouds_destroy(&train);

    /* one training cloud: its target is the prediction for all */
    TEST_TRY(pl_clouds_create(&train, 4, PL_SPLIT_TRAIN, 1, 1, POLAR_DTYPE_F64));
    TEST_TRY(pl_cloud_baseline_measure(&one, &train, &test));
    double mean = 0;
    for (int64_t i = 0; i < test.count; i++)
        mean += (test.target[i] - train.target[0]) * (test.target[i] - train.target[0]) / (double)test.count;
    test_bound("one cloud: a constant", fabs(one.trace_mse - mean) + fabs(one.trace_anisotropy_mse - mean),
               100 * DBL_EPSILON * mean, "50 terms, two orders of summation");
    pl_clouds_destroy(&train);
    pl_clouds_destroy(&test);
}

static void test_misuse(void)
{
    pl_clouds c;
    int64_t before = pl_alloc_live(), one[1];
    test_true("no clouds", pl_clouds_create(&c, 1, PL_SPLIT_TRAIN, 0, 4, POLAR_DTYPE_F32) == POLAR_E_ARG,
              "%s", polar_error_message());
    test_true("clouds in bf16",
              pl_clouds_create(&c, 1, PL_SPLIT_TRAIN, 1, 4, POLAR_DTYPE_BF16) == POLAR_E_DTYPE, "%s",
              polar_error_message());
    test_true("the order of nothing", pl_epoch_order(one, 0, 1, 0) == POLAR_E_ARG, "%s",
              polar_error_message());
    int64_t n = 0, bad = 0;
    for (polar_status st = POLAR_E_NOMEM; st != POLAR_OK && n < 10;) {
        pl_alloc_fail_at(++n);
        st = pl_clouds_create(&c, 1, PL_SPLIT_TRAIN, 3, 4, POLAR_DTYPE_F32);
        pl_alloc_fail_at(0);
        if (st == POLAR_OK) pl_clouds_destroy(&c);
        bad += (st != POLAR_OK && st != POLAR_E_NOMEM) + (pl_alloc_live() != before);
    }
    test_true("memory running out", n > 1 && n < 10 && !bad, "%lld allocations", (long long)n - 1);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    test_eigen();
    test_clouds();
    test_stretched();
    test_distribution();
    test_order();
    test_baseline();
    test_misuse();
    return test_end();
}
