/* test_kron_sweep.c -- kron_sweep at the sides that models have: the new columns are orthonormal, K Q in its
 * order is upper triangular in them, V's lines changed places, steps that are not due write nothing. Small
 * sides, all formats: test_ops.
 *
 *     test_kron_sweep DEVICE few    one side
 */
#include <string.h>

#include "fixtures/machine.h"

static int few;

/* C = A^T B, n x n, on the host. */
static void product(double *C, const double *A, const double *B, int64_t n)
{
    memset(C, 0, (size_t)(n * n) * sizeof *C);
    for (int64_t k = 0; k < n; k++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++) C[i * n + j] += A[k * n + i] * B[k * n + j];
}

/* Columns of K Q by descending q.z; place[r] of which the r-th is. */
static void sorted(double *Z, int64_t *place, const double *K, const double *Q, int64_t n)
{
    double *X = map_new(n * n), *value = map_new(n);
    product(X, K, Q, n); /* K is symmetric */
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) value[j] += Q[i * n + j] * X[i * n + j];
    for (int64_t j = 0; j < n; j++) {
        int64_t before = 0;
        for (int64_t k = 0; k < n; k++) before += value[k] > value[j] || (value[k] == value[j] && k < j);
        place[before] = j;
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) Z[i * n + j] = X[i * n + place[j]];
    free(X), free(value);
}

/* Matrix b: worst entry of Q^T Q - 1, of Q^T Z below the diagonal over its column's norm; lines of V. */
static void defect(double worst[3], const double *Q, const double *before, const double *K, const double *V,
                   const double *W, int64_t n, int64_t other, int trans)
{
    double *Z = map_new(n * n), *R = map_new(n * n);
    int64_t *place = calloc((size_t)n, sizeof *place);
    sorted(Z, place, K, before, n);
    product(R, Q, Q, n);
    for (int64_t i = 0; i < n * n; i++) worst[0] = fmax(worst[0], fabs(R[i] - (i / n == i % n)));
    product(R, Q, Z, n);
    for (int64_t j = 0; j < n; j++) {
        double norm = 0, below = 0;
        for (int64_t i = 0; i < n; i++) norm += Z[i * n + j] * Z[i * n + j];
        for (int64_t i = j + 1; i < n; i++) below = fmax(below, fabs(R[i * n + j]));
        worst[1] = fmax(worst[1], below / sqrt(norm));
    }
    for (int64_t i = 0; i < n * other; i++) {
        int64_t r = trans ? i / n : i / other, c = trans ? i % n : i % other;
        double x = trans ? V[r * n + place[c]] : V[place[r] * other + c];
        worst[2] += x != W[i];
    }
    free(Z), free(R), free(place);
}

/* Two matrices of side n, the second one not due; K has eigenvalues over twelve powers of ten, so that K Q is
 * nearly singular. */
static void sweep(machine *at, int64_t n, int64_t other, int trans)
{
    char line[96];
    double *K = map_new(2 * n * n), *Q = map_new(2 * n * n), *V = map_new(2 * n * other), *T = map_new(n * n),
           live[2 * PL_LIVE_COLS], worst[3] = {0};
    int64_t kept = 0;
    map_fill(T, n * n, 7);
    for (int64_t i = 0; i < n * n; i++) T[i] *= pow(10, -6.0 * (double)(i / n) / (double)n);
    product(K, T, T, n);
    memcpy(K + n * n, K, (size_t)(n * n) * sizeof *K);
    map_fill(Q, 2 * n * n, 8);
    map_fill(V, 2 * n * other, 9);
    for (int b = 0; b < 2; b++) {
        pl_live_row(live + b * PL_LIVE_COLS, 1, 1, 0.1, 0, 0.9, 0.95, 1e-8);
        live[b * PL_LIVE_COLS + PL_LIVE_STEP] = 11 + b;
    }
    pl_mat k = put(at, POLAR_DTYPE_F64, 2, n, n, K), q = put(at, POLAR_DTYPE_F64, 2, n, n, Q),
           v = put(at, POLAR_DTYPE_F64, 2, trans ? other : n, trans ? n : other, V),
           l = put(at, POLAR_DTYPE_F64, 2, 1, PL_LIVE_COLS, live);
    PL_CALL(kron_sweep, at->q, .Q = q, .V = v, .K = k, .live = l, .trans = trans, .every = 10, .after = 1);
    double *new = map_new(2 * n * n), *lines = map_new(2 * n * other);
    TEST_TRY(pl_mat_download_f64(at->q, &q, new));
    TEST_TRY(pl_mat_download_f64(at->q, &v, lines));
    defect(worst, new, Q, K, V, lines, n, other, trans);
    for (int64_t i = n * n; i < 2 * n * n; i++) kept += new[i] != Q[i];
    for (int64_t i = n * other; i < 2 * n * other; i++) kept += lines[i] != V[i];
    /* n reflections, a few roundings each, which add up like their root at best and their number at worst */
    const double tol = 2 * (double)n * 0x1p-53;
    snprintf(line, sizeof line, "side %d: orthonormal", (int)n);
    test_bound(line, worst[0], tol, "2 n u");
    test_bound("... K Q upper triangular", worst[1], tol, "2 n u of a column");
    test_exact("... V's lines", (int64_t)worst[2]);
    test_exact("... a matrix that is not due", kept);
    pl_mat_free(&k, at->dev), pl_mat_free(&q, at->dev), pl_mat_free(&v, at->dev), pl_mat_free(&l, at->dev);
    free(K), free(Q), free(V), free(T), free(new), free(lines);
}

int main(int argc, char **argv)
{
    machine at;
    const char *device = test_begin(argc, argv);
    map_need_device(device);
    at = machine_open(device);
    few = test_few(argc, argv);
    sweep(&at, 75, 9, 0);
    if (!few) {
        sweep(&at, 192, 20, 1);
        sweep(&at, 300, 5, 0);
        sweep(&at, 576, 5, 0);
    }
    if (!few && !strncmp(device, "cuda", 4)) {
        sweep(&at, 768, 192, 1);
        sweep(&at, 1000, 3, 0);
    }
    polar_queue_destroy(at.q);
    polar_device_close(at.dev);
    return test_end();
}
