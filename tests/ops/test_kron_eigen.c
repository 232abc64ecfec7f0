/* test_kron_eigen.c -- kron_eigen at the sides that models have, of matrices that are hard for divide and
 * conquer or for the exponent: the columns are orthonormal, K is diagonal in them, descending. On `cpu` also:
 * the same bits with any number of threads, alone and in a batch, and on every instruction set with a fused
 * multiply-add. Small sides, all formats, factors: test_ops.
 *
 *     test_kron_eigen DEVICE few    small sides
 */
#include <string.h>

#include "device/queue.h"
#include "fixtures/machine.h"

/* C = A^T B, n x n, on the host. */
static void product(double *C, const double *A, const double *B, int64_t n)
{
    memset(C, 0, (size_t)(n * n) * sizeof *C);
    for (int64_t k = 0; k < n; k++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++) C[i * n + j] += A[k * n + i] * B[k * n + j];
}

/* ---- matrices ----------------------------------------------------------------------------------- */

/* x x^T, x of `rank` columns; rows of x get smaller, over `powers` of ten. */
static void gram(double *K, int64_t n, int64_t rank, double powers)
{
    double *x = numbers(rank * n, 11);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < rank; k++) x[k * n + i] *= pow(10, -powers * (double)i / (double)n);
    memset(K, 0, (size_t)(n * n) * sizeof *K);
    for (int64_t k = 0; k < rank; k++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j <= i; j++) K[i * n + j] += x[k * n + i] * x[k * n + j];
    free(x);
}

/* H diag(K) H, H a reflection: what is on the diagonal are the eigenvalues */
static void reflected(double *K, int64_t n)
{
    if (n < 1) return;
    double *v = numbers(n, 12), vv = 0, *d = map_new(n), along = 0;
    for (int64_t i = 0; i < n; i++) vv += v[i] * v[i], d[i] = K[i * n + i], along += v[i] * v[i] * d[i];
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++)
            K[i * n + j] = (i == j ? d[i] : 0) - 2 / vv * v[i] * v[j] * (d[i] + d[j] - 2 / vv * along);
    free(v), free(d);
}

static void tridiagonal(double *K, int64_t n, double (*diagonal)(int64_t i, int64_t n),
                        double (*beside)(int64_t i))
{
    memset(K, 0, (size_t)(n * n) * sizeof *K);
    for (int64_t i = 0; i < n; i++) {
        K[i * n + i] = diagonal(i, n);
        if (i) K[i * n + i - 1] = beside(i);
    }
}

static double two(int64_t i, int64_t n)
{
    return (void)i, (void)n, 2;
}

static double minus_one(int64_t i)
{
    return (void)i, -1;
}

/* Wilkinson's, whose largest eigenvalues are pairs as near as rounding, and several of them, glued */
static double wilkinson(int64_t i, int64_t n)
{
    return fabs((double)i - 0.5 * (double)(n - 1));
}

static double wilkinson_21(int64_t i, int64_t n)
{
    return (void)n, fabs((double)(i % 21) - 10);
}

static double glue(int64_t i)
{
    return i % 21 ? 1 : 1e-8;
}

static double one(int64_t i)
{
    return (void)i, 1;
}

static void scaled(double *K, int64_t n, double by)
{
    gram(K, n, 2 * n, 0);
    for (int64_t i = 0; i < n * n; i++) K[i] *= by;
}

enum {
    FULL,
    LOW_RANK,
    RANK_ONE,
    GRADED,
    STEEP,
    ZERO,
    UNIT,
    EQUAL,
    SIGNS,
    CLUSTER,
    GEOMETRIC,
    SECOND_DIFFERENCE,
    WILKINSON,
    GLUED,
    HUGE_ONES,
    TINY_ONES,
    SUBNORMAL,
    ANY_EXPONENT,
    KINDS
};
static const char *const names[KINDS] = {"full rank",
                                         "a quarter of the rank",
                                         "rank one",
                                         "graded over 16 powers of ten",
                                         "graded over 300",
                                         "zero",
                                         "unit",
                                         "all entries equal",
                                         "eigenvalues 1 and -1",
                                         "eigenvalues 1e-14 apart",
                                         "eigenvalues over 16 powers of ten",
                                         "second difference",
                                         "Wilkinson's",
                                         "Wilkinson's, glued",
                                         "1e150",
                                         "1e-150",
                                         "subnormal",
                                         "any exponent"};

/* The lower triangle of K; the upper one is NaN, nobody reads it. */
static void make(double *K, int64_t n, int kind)
{
    double *x = numbers(2 * n * n, 13);
    memset(K, 0, (size_t)(n * n) * sizeof *K);
    for (int64_t i = 0; i < n; i++) { /* on the diagonal, for those that are reflected */
        double *d = K + i * n + i;
        if (kind == UNIT) *d = 1;
        if (kind == SIGNS) *d = i % 2 ? 1 : -1;
        if (kind == CLUSTER) *d = 1 + 1e-14 * (double)i;
        if (kind == GEOMETRIC) *d = pow(10, -16 * (double)i / (double)n);
        for (int64_t j = 0; j <= i; j++) {
            if (kind == EQUAL) K[i * n + j] = 3;
            if (kind == ANY_EXPONENT)
                K[i * n + j] = x[i * n + j] * pow(10, -300 * fabs(x[n * n + i * n + j]));
        }
    }
    switch (kind) {
    case FULL: gram(K, n, 2 * n, 0); break;
    case LOW_RANK: gram(K, n, n / 4 + 1, 0); break;
    case RANK_ONE: gram(K, n, 1, 0); break;
    case GRADED: gram(K, n, 2 * n, 8); break;
    case STEEP: gram(K, n, 2 * n, 150); break;
    case SIGNS:
    case CLUSTER:
    case GEOMETRIC: reflected(K, n); break;
    case SECOND_DIFFERENCE: tridiagonal(K, n, two, minus_one); break;
    case WILKINSON: tridiagonal(K, n, wilkinson, one); break;
    case GLUED: tridiagonal(K, n, wilkinson_21, glue); break;
    case HUGE_ONES: scaled(K, n, 1e150); break;
    case TINY_ONES: scaled(K, n, 1e-150); break;
    case SUBNORMAL: scaled(K, n, 1e-316); break;
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i + 1; j < n; j++) K[i * n + j] = NAN;
    free(x);
}

/* ---- the definition ----------------------------------------------------------------------------- */

static double *eigenvectors(machine *at, const double *K, int64_t batch, int64_t n, const double *live)
{
    double *unset = numbers(batch * n * n, 14);
    pl_mat k = put(at, POLAR_DTYPE_F64, batch, n, n, K), q = put(at, POLAR_DTYPE_F64, batch, n, n, unset),
           l = put(at, POLAR_DTYPE_F64, batch, 1, PL_LIVE_COLS, live);
    PL_CALL(kron_eigen, at->q, .Q = q, .K = k, .live = l, .every = 10);
    double *Q = get(at, &q);
    pl_mat_free(&k, at->dev), pl_mat_free(&q, at->dev), pl_mat_free(&l, at->dev);
    free(unset);
    return Q;
}

/* Matrix b is in step 1, which is due, or 2, which is not. */
static void fill_live(double *live, int64_t batch, int64_t away)
{
    for (int64_t b = 0; b < batch; b++) {
        pl_live_row(live + b * PL_LIVE_COLS, 1, 1, 0.1, 0, 0.9, 0.95, 1e-8);
        live[b * PL_LIVE_COLS + PL_LIVE_STEP] = b == away ? 2 : 1;
    }
}

/* Worst entry of Q^T Q - 1, of Q^T K Q beside the diagonal and of its diagonal's ascents, over K's norm. */
static void defect(double worst[3], const double *K, const double *Q, int64_t n)
{
    double *S = map_new(n * n), *T = map_new(n * n), *R = map_new(n * n), top = 0, norm = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++) top = fmax(top, fabs(K[i * n + j]));
    for (int64_t i = 0; i < n; i++) /* as large as 1: no product under- or overflows where it matters */
        for (int64_t j = 0; j <= i && top > 0; j++)
            S[i * n + j] = S[j * n + i] = ldexp(K[i * n + j], -ilogb(top));
    product(R, Q, Q, n);
    for (int64_t i = 0; i < n * n; i++) worst[0] = fmax(worst[0], fabs(R[i] - (i / n == i % n)));
    product(T, S, Q, n);
    product(R, Q, T, n);
    for (int64_t i = 0; i < n; i++) norm = fmax(norm, fabs(R[i * n + i]));
    for (int64_t i = 0; i < n * n; i++)
        if (i / n != i % n) worst[1] = fmax(worst[1], fabs(R[i]));
    for (int64_t i = 1; i < n; i++) worst[2] = fmax(worst[2], R[i * n + i] - R[(i - 1) * n + i - 1]);
    if (norm > 0) worst[1] /= norm, worst[2] /= norm;
    free(S), free(T), free(R);
}

/* What rounding allows: n reflections, then at most log2(n) merges, whose vectors have components of a
 * relative error of a few u each (Gu and Eisenstat, 1995), then n reflections back: as in test_kron_sweep.c 2
 * n u each way at worst, and 8 u where n is small. An entry of K counts by its norm. */
static void matrix(machine *at, int64_t n, int kind)
{
    char line[96];
    double *K = map_new(n * n), worst[3] = {0}, live[PL_LIVE_COLS];
    make(K, n, kind);
    fill_live(live, 1, -1);
    double *Q = eigenvectors(at, K, 1, n, live);
    const double tol = (4 * (double)n + 8) * 0x1p-53;
    defect(worst, K, Q, n);
    snprintf(line, sizeof line, "side %d, %s: orthonormal", (int)n, names[kind]);
    test_bound(line, worst[0], tol, "(4 n + 8) u");
    test_bound("... and K diagonal", worst[1], tol, "(4 n + 8) u of its norm");
    test_bound("... descending", worst[2], tol, "(4 n + 8) u of its norm");
    free(K), free(Q);
}

/* Three matrices, the second one not due, with a NaN and an infinity elsewhere. */
static void batch(machine *at, int64_t n)
{
    double *K = map_new(4 * n * n), live[4 * PL_LIVE_COLS], *unset = numbers(4 * n * n, 14), worst[3] = {0};
    int64_t changed = 0, finite = 0;
    for (int b = 0; b < 4; b++) make(K + b * n * n, n, FULL);
    K[2 * n * n + (n - 1) * n] = INFINITY;
    K[3 * n * n + (n - 1) * n + n - 1] = NAN;
    fill_live(live, 4, 1);
    double *Q = eigenvectors(at, K, 4, n, live);
    defect(worst, K, Q, n);
    for (int64_t i = n * n; i < 2 * n * n; i++) changed += Q[i] != unset[i];
    for (int64_t i = 2 * n * n; i < 4 * n * n; i++) finite += !isnan(Q[i]);
    test_bound("in a batch: orthonormal", worst[0], (4 * (double)n + 8) * 0x1p-53, "(4 n + 8) u");
    test_exact("... a matrix that is not due", changed);
    test_exact("... of matrices that are not finite numbers that are", finite);
    free(K), free(Q), free(unset);
}

/* ---- bits of cpu -------------------------------------------------------------------------------- */

/* 0: this CPU has no such instruction set */
static int same_bits(const char *device, const double *K, const double *want, int64_t n)
{
    machine at;
    double live[3 * PL_LIVE_COLS];
    if (polar_device_open(&at.dev, device) != POLAR_OK) return 0;
    TEST_TRY(polar_queue_create(&at.q, at.dev, NULL));
    fill_live(live, 3, -1);
    double *alone = eigenvectors(&at, K + 2 * n * n, 1, n, live), *all = eigenvectors(&at, K, 3, n, live);
    char line[128];
    snprintf(line, sizeof line, "side %d, %s: bits alone and in a batch", (int)n, device);
    test_exact(line, (memcmp(alone, want, (size_t)(n * n) * sizeof *want) != 0) +
                         (memcmp(all + 2 * n * n, want, (size_t)(n * n) * sizeof *want) != 0));
    free(alone), free(all);
    polar_queue_destroy(at.q);
    polar_device_close(at.dev);
    return 1;
}

/* Every instruction set with a fused multiply-add has the first one's bits, and each its own with any number
 * of threads: two share a batch of three, three and four the products of a single matrix. */
static void bits(int64_t n)
{
    static const char *const isas[] = {"scalar", "neon", "avx2", "avx512", "avx512bf16", "amx"};
    double *K = map_new(3 * n * n), *want = NULL, live[PL_LIVE_COLS];
    for (int b = 0; b < 3; b++) make(K + b * n * n, n, b == 0 ? GLUED : b == 1 ? LOW_RANK : FULL);
    fill_live(live, 1, -1);
    for (int i = 0; i < (int)(sizeof isas / sizeof *isas); i++) {
        char device[64];
        machine at;
        snprintf(device, sizeof device, "cpu:isa=%s,threads=1", isas[i]);
        if (polar_device_open(&at.dev, device) != POLAR_OK) continue;
        TEST_TRY(polar_queue_create(&at.q, at.dev, NULL));
        if (i <= 1 || !want) {
            free(want);
            want = eigenvectors(&at, K + 2 * n * n, 1, n, live);
        }
        polar_queue_destroy(at.q);
        polar_device_close(at.dev);
        for (int threads = 1; threads <= 4; threads++) {
            snprintf(device, sizeof device, "cpu:isa=%s,threads=%d", isas[i], threads);
            same_bits(device, K, want, n);
        }
        if (i == 0) free(want), want = NULL; /* the baseline has no fused multiply-add */
    }
    free(K), free(want);
}

int main(int argc, char **argv)
{
    static const int64_t sides[] = {1, 2, 3, 16, 31, 33, 75, 150, 300};
    machine at;
    const char *device = test_begin(argc, argv);
    map_need_device(device);
    at = machine_open(device);
    const int few = test_few(argc, argv), many = few ? 6 : (int)(sizeof sides / sizeof *sides);
    for (int i = 0; i < many; i++)
        for (int kind = 0; kind < KINDS; kind++) matrix(&at, sides[i], kind);
    batch(&at, 70);
    if (!few) matrix(&at, 560, FULL), matrix(&at, 560, LOW_RANK), matrix(&at, 768, GRADED);
    if (!few && !strcmp(device, "cpu")) bits(20), bits(75), bits(200);
    polar_queue_destroy(at.q);
    polar_device_close(at.dev);
    return test_end();
}
