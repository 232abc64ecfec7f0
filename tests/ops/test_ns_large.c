/* test_ns_large.c -- newton_schulz of matrices too large for one block's shared memory, where a device has
 * it.
 *
 * Exact: a tall matrix has the bits of its transpose; the same a second time, in a batch and alone, of normal
 * and adversarial squares; one step, an even and an odd number of them, joined ones; a row stride; nothing
 * written beside X. Bounded: against
 * the gemms of the same device. Another order of sums may put an entry of A or P on the other side of a
 * rounding, which moves NS5 by 1-3 % (docs/NUMERICS.md, 2), and joined steps, each of the two sides some 4 %
 * from fp64 (docs/results/gram.md), by up to 8.
 *
 *     test_ns_large DEVICE few    the smallest shape alone: for slow checkers of races
 */
#include <string.h>

#include "fixtures/map_fixture.h"

typedef struct {
    pl_device *dev;
    pl_queue *q;
} machine;

static double *numbers(int64_t n, double scale, uint64_t seed)
{
    double *x = calloc((size_t)n, sizeof *x);
    if (!x) exit(3);
    map_fill(x, n, seed);
    for (int64_t i = 0; i < n; i++) x[i] *= scale;
    return x;
}

static pl_mat put(machine *at, int64_t batch, int64_t rows, int64_t cols, const double *x)
{
    pl_mat m;
    TEST_TRY(pl_mat_alloc(&m, at->dev, POLAR_DTYPE_BF16, batch, rows, cols));
    if (x) TEST_TRY(pl_mat_upload_f64(at->q, &m, x));
    return m;
}

static double *get(machine *at, const pl_mat *m)
{
    double *x = malloc((size_t)(m->batch * m->rows * m->cols) * sizeof *x);
    if (!x) exit(3);
    TEST_TRY(pl_mat_download_f64(at->q, m, x));
    return x;
}

static pl_args_newton_schulz args_of(pl_mat X, int64_t steps, int64_t chain)
{
    pl_args_newton_schulz a = {.X = X, .steps = steps, .chain = chain};
    for (int64_t s = 0; s < steps; s++)
        a.coef[3 * s] = 3.4445 - 0.01 * (double)s, a.coef[3 * s + 1] = -4.7750, a.coef[3 * s + 2] = 2.0315;
    return a;
}

static double *by_op(machine *at, int64_t batch, int64_t rows, int64_t cols, const double *x, int64_t steps,
                     int64_t chain)
{
    pl_mat X = put(at, batch, rows, cols, x);
    pl_args_newton_schulz a = args_of(X, steps, chain);
    pl_call_newton_schulz(at->q, &a);
    double *y = get(at, &X);
    pl_mat_free(&X, at->dev);
    return y;
}

/* The same with a result of its own, in rows with room behind them. */
static double *by_op_out(machine *at, int64_t batch, int64_t rows, int64_t cols, const double *x,
                         int64_t steps, int64_t chain, polar_dtype dtype, int64_t room)
{
    pl_mat X = put(at, batch, rows, cols, x), wide;
    TEST_TRY(pl_mat_alloc(&wide, at->dev, dtype, batch, rows, cols + room));
    pl_args_newton_schulz a = args_of(X, steps, chain);
    a.Y = wide, a.Y.cols = cols;
    pl_call_newton_schulz(at->q, &a);
    double *y = get(at, &wide);
    for (int64_t i = 0; i < batch * rows; i++)
        memmove(y + i * cols, y + i * wide.cols, sizeof *y * (size_t)cols);
    pl_mat_free(&X, at->dev);
    pl_mat_free(&wide, at->dev);
    return y;
}

static void polynomial(machine *at, pl_mat P, pl_mat A, const double *k)
{
    PL_CALL(gemm, at->q, .C = P, .A = A, .B = A, .tb = 1, .sym = 1, .alpha = k[2], .D = A, .beta = k[1]);
}

/* As compose/newton_schulz.c has it; rows <= cols. */
static double *by_gemms(machine *at, int64_t batch, int64_t rows, int64_t cols, const double *x,
                        int64_t steps, int64_t chain)
{
    pl_mat X = put(at, batch, rows, cols, x), Y = put(at, batch, rows, cols, NULL),
           A = put(at, batch, rows, rows, NULL), P = put(at, batch, rows, rows, NULL),
           B = put(at, batch, rows, rows, NULL), S = put(at, batch, rows, rows, NULL), T;
    TEST_TRY(pl_mat_alloc(&T, at->dev, POLAR_DTYPE_F32, batch, rows, rows));
    pl_args_newton_schulz a = args_of(X, steps, chain);
    for (int64_t s = 0; s < steps; s++) {
        const double *k = a.coef + 3 * s;
        double factor = k[0];
        PL_CALL(gemm, at->q, .C = A, .A = X, .B = X, .tb = 1, .sym = 1, .alpha = 1);
        polynomial(at, P, A, k);
        for (int first = 1; chain >> s & 1; s++, first = 0) {
            pl_mat Z = first ? P : B;
            PL_CALL(gemm, at->q, .C = S, .A = Z, .B = A, .tb = 1, .sym = 1, .alpha = 1, .D = A, .beta = k[0]);
            PL_CALL(gemm, at->q, .C = A, .A = S, .B = Z, .tb = 1, .sym = 1, .alpha = 1, .D = S, .beta = k[0]);
            k += 3;
            polynomial(at, B, A, k);
            PL_CALL(axpby, at->q, .Y = T, .X = B, .alpha = factor, .Z = P, .beta = k[0]);
            PL_CALL(gemm, at->q, .C = S, .A = B, .B = P, .tb = 1, .sym = 1, .alpha = 1, .D = T, .beta = 1);
            pl_mat_swap(&P, &S);
            factor *= k[0];
        }
        PL_CALL(gemm, at->q, .C = Y, .A = P, .B = X, .alpha = 1, .D = X, .beta = factor);
        pl_mat_swap(&X, &Y);
    }
    double *y = get(at, &X);
    pl_mat *all[] = {&X, &Y, &A, &P, &B, &S, &T};
    for (int i = 0; i < 7; i++) pl_mat_free(all[i], at->dev);
    return y;
}

static double *turned(const double *x, int64_t batch, int64_t rows, int64_t cols)
{
    int64_t n = rows * cols;
    double *y = numbers(batch * n, 1, 1);
    for (int64_t i = 0; i < batch * n; i++) y[i / n * n + i % cols * rows + i % n / cols] = x[i];
    return y;
}

static int64_t unlike(const double *x, const double *y, int64_t n)
{
    int64_t bad = 0;
    for (int64_t i = 0; i < n; i++) bad += !(x[i] == y[i]);
    return bad;
}

static double apart(const double *x, const double *y, int64_t n)
{
    double e = 0, s = 0;
    for (int64_t i = 0; i < n; i++) e += (x[i] - y[i]) * (x[i] - y[i]), s += y[i] * y[i];
    return sqrt(e / s);
}

/* rows <= cols, and the same transposed. */
static void shape(machine *at, int64_t batch, int64_t rows, int64_t cols, int64_t steps, int64_t chain)
{
    char name[80];
    int64_t one = rows * cols, n = batch * one;
    double *x = numbers(n, 1 / sqrt((double)one), (uint64_t)(rows + cols)), *t = turned(x, batch, rows, cols);
    double *y = by_op(at, batch, rows, cols, x, steps, chain),
           *again = by_op(at, batch, rows, cols, x, steps, chain),
           *out = by_op_out(at, batch, rows, cols, x, steps, chain, POLAR_DTYPE_F32, 8),
           *odd = by_op_out(at, batch, rows, cols, x, steps, chain, POLAR_DTYPE_F32, 1),
           *half = by_op_out(at, batch, rows, cols, x, steps, chain, POLAR_DTYPE_BF16, 8);
    double *tall = by_op(at, batch, cols, rows, t, steps, chain), *back = turned(tall, batch, cols, rows);
    double *alone = by_op(at, 1, rows, cols, x + n - one, steps, chain),
           *g = by_gemms(at, batch, rows, cols, x, steps, chain);
    snprintf(name, sizeof name, "%lld of %lld x %lld, %lld steps%s", (long long)batch, (long long)rows,
             (long long)cols, (long long)steps, chain ? ", joined" : "");
    test_bound(name, apart(y, g, n), chain ? 0.08 : 0.05, "another order of sums");
    test_exact("... a second time", unlike(y, again, n));
    test_exact("... into an f32 array", unlike(y, out, n));
    test_exact("... into one of odd strides", unlike(y, odd, n));
    test_exact("... into a bf16 array", unlike(y, half, n));
    if (rows < cols) test_exact("... tall", unlike(y, back, n)); /* a square's transpose is another matrix */
    test_exact("... without its mates", unlike(y + n - one, alone, one));
    free(x), free(t), free(y), free(again), free(out), free(odd), free(half), free(tall), free(back),
        free(alone), free(g);
}

/* X is the middle of a wider array, of three matrices the second. */
static void strided(machine *at, int64_t rows, int64_t cols)
{
    int64_t wide = cols + 64, n = 3 * rows * wide, changed = 0, bad = 0;
    double *x = numbers(n, 1 / sqrt((double)(rows * cols)), 9), *inner = numbers(rows * cols, 1, 1);
    pl_mat all = put(at, 3, rows, wide, x), X = pl_mat_at(all, 1, 1);
    double *before = get(at, &all);
    X.data = (char *)X.data + 2 * 32, X.cols = cols;
    for (int64_t i = 0; i < rows * cols; i++) inner[i] = before[(rows + i / cols) * wide + 32 + i % cols];
    pl_args_newton_schulz a = args_of(X, 5, 0);
    pl_call_newton_schulz(at->q, &a);
    double *after = get(at, &all), *wanted = by_op(at, 1, rows, cols, inner, 5, 0);
    for (int64_t i = 0; i < n; i++) {
        int64_t r = i / wide - rows, c = i % wide - 32;
        int inside = r >= 0 && r < rows && c >= 0 && c < cols;
        if (inside) bad += !(after[i] == wanted[r * cols + c]);
        else changed += !(after[i] == before[i]);
    }
    test_exact("a row stride", bad);
    test_exact("... nothing written beside it", changed);
    free(x), free(inner), free(before), free(after), free(wanted);
    pl_mat_free(&all, at->dev);
}

/* ---- alone and in a batch ----------------------------------------------------------------------- */

enum { MATES = 12 };

/* Entry (i, j) of a unit-sized square: normal ones, then what rounds, underflows or spreads in its own way.
 */
static double entry_of(int kind, int64_t m, int64_t i, int64_t j, double normal)
{
    const double wave = 1 + (double)(i * 7 % 13) / 16;
    switch (kind) {
    case 4: return i == j ? ldexp(1, -(int)(i % 24)) : 0; /* sums of one term */
    case 5: return wave * (1 + (double)(j * 5 % 11) / 8); /* rank one */
    case 6: return normal * (double)(i % 16 == j % 16);   /* many zeros */
    case 7: return ldexp(normal, -(int)(i * 140 / m));    /* rows down to the last denormal of bf16 */
    case 8: return ldexp(normal, -124);                   /* a X is all of it, and denormal */
    case 9: return (double)((i * 3 + j * 5) % 7 - 3);     /* few values: ties of roundings */
    case 10: return i == 3 && j == 5 ? INFINITY : normal;
    case 11: return i == m - 1 && j == 0 ? NAN : normal;
    default: return normal; /* 0 to 3 */
    }
}

static int64_t unlike_bits(const double *x, const double *y, int64_t n)
{
    int64_t bad = 0;
    for (int64_t i = 0; i < n; i++) {
        const int both_nan = x[i] != x[i] && y[i] != y[i];
        bad += !both_nan && !(x[i] == y[i] && !signbit(x[i]) == !signbit(y[i]));
    }
    return bad;
}

/* Squares alone, where one q X + P X may be cuBLASLt's and the next our own, and twelve in one launch of
 * ours: every entry. What it would miss: cuda_ns_large.c, invariant 2. */
static void mates(machine *at, int64_t m, int64_t steps)
{
    const int64_t one = m * m;
    double *x = numbers(MATES * one, 1, (uint64_t)(m + steps)), square[MATES] = {0};
    for (int64_t i = 0; i < MATES * one; i++) {
        double v = entry_of((int)(i / one), m, i % one / m, i % m, x[i]);
        x[i] = v;
        if (v - v == 0 && i / one != 8) square[i / one] += v * v;
    }
    for (int64_t i = 0; i < MATES * one; i++)
        if (i / one != 8) x[i] /= sqrt(square[i / one]);
    double *all = by_op(at, MATES, m, m, x, steps, 0),
           *wide = by_op_out(at, MATES, m, m, x, steps, 0, POLAR_DTYPE_F32, 0);
    test_exact("a batch of twelve, into an f32 array", unlike_bits(all, wide, MATES * one));
    for (int k = 0; k < MATES; k++) {
        char name[80];
        double *alone = by_op(at, 1, m, m, x + k * one, steps, 0);
        snprintf(name, sizeof name, "%lld^2, %lld steps, kind %d, alone", (long long)m, (long long)steps, k);
        test_exact(name, unlike_bits(all + k * one, alone, one));
        free(alone);
    }
    free(x), free(all), free(wide);
}

/* A result that begins in the middle of X. */
static void overlapped(machine *at)
{
    pl_mat all;
    TEST_TRY(pl_mat_alloc(&all, at->dev, POLAR_DTYPE_F32, 1, 2 * 320, 384));
    pl_args_newton_schulz a = args_of(pl_mat_dense(all.data, POLAR_DTYPE_BF16, 1, 320, 384), 5, 0);
    a.Y = pl_mat_dense((float *)all.data + 384, POLAR_DTYPE_F32, 1, 320, 384);
    pl_call_newton_schulz(at->q, &a);
    polar_status st = polar_queue_sync(at->q);
    test_true("a result that overlaps X is refused", st == POLAR_E_ARG, "%s", polar_error_message());
    pl_mat_free(&all, at->dev);
}

int main(int argc, char **argv)
{
    machine at;
    const char *device = test_begin(argc, argv);
    map_need_device(device);
    TEST_TRY(polar_device_open(&at.dev, device));
    TEST_TRY(polar_queue_create(&at.q, at.dev, NULL));
    pl_args_newton_schulz asked = args_of(pl_mat_dense(NULL, POLAR_DTYPE_BF16, 1, 320, 384), 5, 0);
    if (!pl_queue_has(at.q, PL_OP_newton_schulz) || !pl_queue_serves(at.q, PL_OP_newton_schulz, &asked))
        return 77;
    shape(&at, 3, 320, 384, 5, 0);
    shape(&at, 2, 320, 384, 1, 0);
    shape(&at, 3, 48, 80, 5, 0); /* in a block's memory */
    strided(&at, 320, 384);
    overlapped(&at);
    if (!strncmp(device, "cuda", 4)) mates(&at, 320, 2);
    if (!test_few(argc, argv)) {
        shape(&at, 2, 512, 576, 1, 0);
        shape(&at, 5, 576, 1024, 4, 0);
        shape(&at, 3, 640, 768, 3, 0);
        shape(&at, 13, 768, 1024, 5, 0);
        if (!strncmp(device, "cuda", 4)) {
            shape(&at, 3, 576, 1024, 5, 8 + 2 + 1); /* three steps and two */
            shape(&at, 2, 512, 768, 5, 1);
            shape(&at, 12, 1024, 1024, 5, 0); /* together in one launch, alone product by product */
            shape(&at, 6, 1024, 1536, 5, 8 + 2 + 1);
            mates(&at, 1024, 2);
            mates(&at, 1024, 5);
            shape(&at, 1, 1088, 1152, 1, 0);
            shape(&at, 2, 1088, 1152, 3, 0);
            shape(&at, 1, 1088, 1664, 5, 8 + 2 + 1);
            strided(&at, 1088, 1152);
            shape(&at, 1, 4096, 4160, 1, 0); /* the last product by our tiles again */
        }
        strided(&at, 512, 832);
    }
    polar_queue_destroy(at.q);
    polar_device_close(at.dev);
    return test_end();
}
