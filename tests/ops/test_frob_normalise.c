/* test_frob_normalise.c -- matrices over their own norms in one op, where a device has it: the bits of frob
 * and normalise, of a part of a matrix, in place, alone as in a batch; zero stays zero, and what holds a NaN
 * or an infinity becomes what the two ops make of it.
 *
 *     test_frob_normalise DEVICE few    without the large matrices: for slow checkers of races
 */
#include <math.h>
#include <string.h>

#include "fixtures/machine.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static int few; /* asked for by the second argument */

#define MATES 5

/* Matrices of normal numbers but for some zeros and small ones; the second is zero, the third holds a NaN,
 * the fourth an infinity, the fifth is small. */
static double *mates(int64_t each, uint64_t seed)
{
    double *x = numbers(MATES * each, seed);
    for (int64_t i = 0; i < MATES * each; i++) {
        if (i % 7 == 3) x[i] = i % 2 ? 0.0 : -0.0;
        if (i % 11 == 5) x[i] = ldexp(x[i], -70);
        if (i / each == 1) x[i] = i % 3 ? 0.0 : -0.0;
        if (i / each == 4) x[i] = ldexp(x[i], i % 5 == 2 ? -110 : -80);
    }
    x[2 * each + each / 2] = NAN;
    x[3 * each + each / 3] = INFINITY;
    return x;
}

/* Entries that are not the same number with the same sign; any NaN is like another. */
static int64_t unlike_bits(const double *x, const double *y, int64_t n)
{
    int64_t bad = 0;
    for (int64_t i = 0; i < n; i++) bad += x[i] != x[i] ? y[i] == y[i] : memcmp(&x[i], &y[i], sizeof *x) != 0;
    return bad;
}

static int64_t differ(machine *at, const pl_mat *Y, const pl_mat *Z)
{
    double *y = get(at, Y), *z = get(at, Z);
    int64_t bad = unlike_bits(y, z, Y->batch * Y->rows * Y->cols);
    free(y), free(z);
    return bad;
}

/* X over its norm into Y, and by the two ops into Z; norms that differ, where the op is asked for them. */
static int64_t both_ways(machine *at, pl_mat X, pl_mat Y, pl_mat Z, int trans, double eps)
{
    double zero[2 * MATES] = {0};
    pl_mat N = put(at, POLAR_DTYPE_F64, X.batch, 1, 2, zero),
           M = put(at, POLAR_DTYPE_F64, X.batch, 1, 2, zero), none = {0};
    PL_CALL(frob, at->q, .N = N, .X = X, .weight = 1, .trans = trans);
    PL_CALL(normalise, at->q, .Y = Z, .X = X, .N = N, .eps = eps);
    PL_CALL(frob_normalise, at->q, .Y = Y, .N = eps == 0 ? M : none, .X = X, .trans = trans, .eps = eps);
    TEST_TRY(polar_queue_sync(at->q));
    const int64_t bad = eps == 0 ? differ(at, &M, &N) : 0;
    pl_mat_free(&N, at->dev), pl_mat_free(&M, at->dev);
    return bad;
}

/* Without its first four columns and its last rows: rows have gaps between them. */
static pl_mat part_of(pl_mat m)
{
    m.data = (char *)m.data + 4 * polar_dtype_size(m.dtype);
    m.cols -= 4, m.rows = (m.rows + 1) / 2;
    return m;
}

static void own_norms(machine *at)
{
    static const struct {
        int64_t rows, cols;
    } sizes[] = {{1, 8},     {3, 5},     {7, 12},   {33, 64},   {100, 1100},
                 {192, 768}, {768, 192}, {2100, 8}, {520, 1028}};
    static const polar_dtype formats[][2] = {
        {POLAR_DTYPE_F32, POLAR_DTYPE_BF16},  {POLAR_DTYPE_F32, POLAR_DTYPE_F32},
        {POLAR_DTYPE_BF16, POLAR_DTYPE_BF16}, {POLAR_DTYPE_F16, POLAR_DTYPE_F32},
        {POLAR_DTYPE_F32, POLAR_DTYPE_F16},   {POLAR_DTYPE_F64, POLAR_DTYPE_BF16}};
    int64_t bad = 0, norms = 0, in_place = 0, padded = 0, alone = 0, runs = 0;
    for (int c = 0; c < COUNT(sizes) - few; c++) {
        int64_t rows = sizes[c].rows, cols = sizes[c].cols, each = rows * cols;
        double *x = mates(each, (uint64_t)(200 + c));
        for (int f = 0; f < COUNT(formats); f++, runs++) {
            polar_dtype in = formats[f][0], out = formats[f][1];
            int trans = rows > cols && f % 2 == 0;
            double eps = runs % 3 ? 0 : 1e-7;
            pl_mat X = put(at, in, MATES, rows, cols, x), Y = put(at, out, MATES, rows, cols, x),
                   Z = put(at, out, MATES, rows, cols, x);
            norms += both_ways(at, X, Y, Z, trans, eps);
            bad += differ(at, &Y, &Z);
            norms += both_ways(at, part_of(X), part_of(Y), part_of(Z), trans, eps);
            padded += differ(at, &Y, &Z);
            PL_CALL(frob_normalise, at->q, .Y = Y, .X = X, .trans = trans, .eps = eps);
            for (int64_t b = 0; b < MATES; b++)
                PL_CALL(frob_normalise, at->q, .Y = pl_mat_at(Z, b, 1), .X = pl_mat_at(X, b, 1),
                        .trans = trans, .eps = eps);
            alone += differ(at, &Y, &Z);
            if (in == out) {
                PL_CALL(frob_normalise, at->q, .Y = X, .X = X, .trans = trans, .eps = eps);
                in_place += differ(at, &X, &Y);
            }
            pl_mat_free(&X, at->dev), pl_mat_free(&Y, at->dev), pl_mat_free(&Z, at->dev);
        }
        free(x);
    }
    test_exact("frob_normalise: frob and normalise", bad);
    test_exact("... and the norms", norms);
    test_exact("... of a part of each matrix", padded);
    test_exact("... in place", in_place);
    test_exact("... in a batch, and alone", alone);
}

enum { TOGETHER = 30 };

/* Calls put off together, among them some in place, of parts of matrices, of columns and of other formats:
 * the bits of each by itself, norms too. */
static void put_off(machine *at)
{
    static const int64_t sizes[][2] = {{33, 64}, {3, 5}, {192, 768}, {1, 8}, {130, 96}, {768, 192}, {7, 12}};
    static pl_mat X[TOGETHER], Y[2][TOGETHER], N[2][TOGETHER];
    double zero[2 * MATES] = {0};
    int64_t bad = 0, norms = 0, nothing = 0;
    for (int i = 0; i < TOGETHER; i++) {
        const int s = i % (COUNT(sizes) - (few && i % 2));
        const int64_t rows = sizes[s][0], cols = sizes[s][1];
        double *x = mates(rows * cols, (uint64_t)(400 + i));
        const polar_dtype in = i % 10 == 7 ? POLAR_DTYPE_BF16 : POLAR_DTYPE_F32;
        X[i] = put(at, in, MATES, rows, cols, x);
        for (int way = 0; way < 2; way++) {
            Y[way][i] = put(at, in, MATES, rows, cols, x);
            N[way][i] = put(at, POLAR_DTYPE_F64, MATES, 1, 2, zero);
        }
        free(x);
    }
    for (int way = 0; way < 2; way++) {
        if (way) pl_queue_overlap_begin(at->q);
        for (int i = 0; i < TOGETHER; i++) {
            const pl_mat none = {0};
            pl_mat y = Y[way][i], from = i % 5 == 3 ? y : X[i];
            if (i % 6 == 5 && y.cols > 8) y = part_of(y), from = part_of(from);
            PL_CALL(frob_normalise, at->q, .Y = y, .N = i % 4 == 2 ? none : N[way][i], .X = from,
                    .trans = i % 9 == 8, .eps = i % 4 == 2 ? 1e-7 : 0);
        }
        if (way) pl_queue_overlap_end(at->q);
    }
    for (int i = 0; i < TOGETHER; i++) {
        bad += differ(at, &Y[0][i], &Y[1][i]), norms += differ(at, &N[0][i], &N[1][i]);
        nothing += differ(at, &X[i], &Y[1][i]) == 0;
        for (int way = 0; way < 2; way++) pl_mat_free(&Y[way][i], at->dev), pl_mat_free(&N[way][i], at->dev);
        pl_mat_free(&X[i], at->dev);
    }
    test_exact("put off together, and each by itself", bad + norms);
    test_exact("... calls that wrote nothing", nothing);
}

static double *norm_of(machine *at, const double *x, int64_t rows, int64_t cols, int trans)
{
    double zero[2] = {0};
    pl_mat X = put(at, POLAR_DTYPE_F32, 1, rows, cols, x), N = put(at, POLAR_DTYPE_F64, 1, 1, 2, zero);
    PL_CALL(frob, at->q, .N = N, .X = X, .weight = 1, .trans = trans);
    double *n = get(at, &N);
    pl_mat_free(&X, at->dev), pl_mat_free(&N, at->dev);
    return n;
}

/* Norms of rows and of columns have the oracle's bits where lines are long and many, too. */
static void norms_by_oracle(machine *at, const double *x, int64_t rows, int64_t cols)
{
    machine ref;
    int64_t bad = 0;
    ref = machine_open("ref");
    for (int trans = 0; trans < 2; trans++) {
        double *n = norm_of(at, x, rows, cols, trans), *wanted = norm_of(&ref, x, rows, cols, trans);
        bad += unlike_bits(n, wanted, 2);
        free(n), free(wanted);
    }
    test_exact("frob of 2100x2080, by rows and by columns: ref's bits", bad);
    polar_queue_destroy(ref.q);
    polar_device_close(ref.dev);
}

/* More than the blocks' first chunks, row sums of more than one round; a matrix large enough for long
 * copies. */
static void own_norm_large(machine *at)
{
    int64_t rows = 2100, cols = 2080, n = rows * cols;
    double *x = numbers(n, 300);
    pl_mat X = put(at, POLAR_DTYPE_F32, 1, rows, cols, x), Y = put(at, POLAR_DTYPE_BF16, 1, rows, cols, x),
           Z = put(at, POLAR_DTYPE_BF16, 1, rows, cols, x);
    norms_by_oracle(at, x, rows, cols);
    const int64_t norms = both_ways(at, X, Y, Z, 0, 0);
    test_exact("frob_normalise of 2100x2080", norms + differ(at, &Y, &Z));
    PL_CALL(copy, at->q, .Y = X, .X = Y);
    test_exact("... and copied to f32", differ(at, &X, &Z));
    free(x);
    pl_mat_free(&X, at->dev), pl_mat_free(&Y, at->dev), pl_mat_free(&Z, at->dev);
}

int main(int argc, char **argv)
{
    machine at;
    const char *device = test_begin(argc, argv);
    map_need_device(device);
    at = machine_open(device);
    if (!pl_queue_has(at.q, PL_OP_frob_normalise)) return 77;
    few = test_few(argc, argv);
    own_norms(&at);
    put_off(&at);
    if (!few) own_norm_large(&at);
    polar_queue_destroy(at.q);
    polar_device_close(at.dev);
    return test_end();
}
