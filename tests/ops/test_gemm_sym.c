/* test_gemm_sym.c -- gemm with the promise of a symmetric result, at sizes where a backend may halve it, on
 * the device argv[1].
 *
 * Bound: against the same product in f32 without the promise. A sum of k terms in f32 is off by at most k
 * 2^-24 of the sum of sizes, twice that where a unit cuts instead of rounding, and there are two of them; the
 * sizes of row i times row j sum to |x_i| |x_j| at most. The last rounding moves a number of 8 bits by 2^-8
 * of itself at most.
 */
#include "device/queue.h"
#include "fixtures/model_fixture.h"

typedef struct {
    pl_device *dev;
    pl_queue *q;
} rig;

static pl_mat mat(rig *r, polar_dtype dtype, int64_t batch, int64_t rows, int64_t cols, int symmetric)
{
    pl_mat m;
    double *x = model_new(batch * rows * cols);
    for (int64_t i = 0; i < batch * rows * cols; i++) {
        int64_t row = i / cols % rows, col = i % cols, back = i - row * cols - col;
        int64_t at = symmetric && row > col ? back + col * cols + row : i;
        x[i] =
            (float)(pl_normal(7, PL_STREAM_TEST, (uint64_t)symmetric, (uint64_t)at).a / sqrt((double)cols));
    }
    TEST_TRY(pl_mat_alloc(&m, r->dev, dtype, batch, rows, cols));
    TEST_TRY(pl_mat_upload_f64(r->q, &m, x));
    free(x);
    return m;
}

static double *values(rig *r, pl_mat m)
{
    double *x = model_new(m.batch * m.rows * m.cols);
    TEST_TRY(pl_mat_download_f64(r->q, &m, x));
    return x;
}

/* C = 2.0315 X X^T - 4.775 D for each matrix: against f32, symmetric, and the last one without its mates. */
static void product(rig *r, const char *name, int64_t batch, int64_t m, int64_t k, polar_dtype addend)
{
    pl_mat X = mat(r, POLAR_DTYPE_BF16, batch, m, k, 0), D = mat(r, addend, batch, m, m, 1), none = {0};
    pl_mat C = mat(r, POLAR_DTYPE_BF16, batch, m, m, 0), W = mat(r, POLAR_DTYPE_F32, batch, m, m, 0);
    pl_mat alone = mat(r, POLAR_DTYPE_BF16, 1, m, m, 0);
    pl_args_gemm a = {.C = C, .A = X, .B = X, .D = D, .tb = 1, .sym = 1, .alpha = 2.0315, .beta = -4.775};
    if (addend == POLAR_DTYPE_F64) a.D = none;
    pl_args_gemm one = a, wide = a;
    one.C = alone, one.A = one.B = pl_mat_at(X, batch - 1, 1);
    if (a.D.data) one.D = pl_mat_at(D, batch - 1, 1);
    wide.C = W, wide.sym = 0;
    pl_call_gemm(r->q, &a);
    pl_call_gemm(r->q, &one);
    pl_call_gemm(r->q, &wide);
    double *c = values(r, C), *w = values(r, W), *x = values(r, X), *d = values(r, D),
           *last = values(r, alone), worst = 0;
    double *size = model_new(batch * m);
    int64_t asymmetric = 0, mates = 0;
    for (int64_t i = 0; i < batch * m * k; i++) size[i / k] += x[i] * x[i];
    for (int64_t b = 0; b < batch; b++)
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < m; j++) {
                int64_t at = (b * m + i) * m + j;
                double S =
                    2.0315 * sqrt(size[b * m + i] * size[b * m + j]) + 4.775 * (a.D.data ? fabs(d[at]) : 0);
                double e = 4 * (double)(k + 2) * 0x1p-24 * S, tol = e + 0x1p-8 * (fabs(w[at]) + e);
                worst = fmax(worst, fabs(c[at] - w[at]) / tol);
                asymmetric += c[at] != c[(b * m + j) * m + i];
                mates += b == batch - 1 && c[at] != last[i * m + j];
            }
    test_bound(name, worst, 1, "sums of k terms, one rounding");
    test_exact("... it is symmetric", asymmetric);
    test_exact("... and the same without its mates", mates);
    free(c), free(w), free(x), free(d), free(last), free(size);
    pl_mat *all[] = {&X, &D, &C, &W, &alone};
    for (int i = 0; i < 5; i++) pl_mat_free(all[i], r->dev);
}

static void refusal(rig *r)
{
    pl_mat A = mat(r, POLAR_DTYPE_F32, 1, 8, 4, 0), B = mat(r, POLAR_DTYPE_F32, 1, 6, 4, 0),
           C = mat(r, POLAR_DTYPE_F32, 1, 8, 6, 0);
    pl_args_gemm a = {.C = C, .A = A, .B = B, .tb = 1, .sym = 1, .alpha = 1};
    pl_call_gemm(r->q, &a);
    test_true("an oblong result cannot be symmetric", polar_queue_sync(r->q) == POLAR_E_SHAPE, "%s",
              polar_error_message());
    pl_mat_free(&A, r->dev), pl_mat_free(&B, r->dev), pl_mat_free(&C, r->dev);
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    rig r = {0};
    TEST_TRY(polar_device_open(&r.dev, device));
    TEST_TRY(polar_queue_create(&r.q, r.dev, NULL));
    product(&r, "1024 x 1024, k 256, D bf16, three", 3, 1024, 256, POLAR_DTYPE_BF16);
    product(&r, "1032 x 1032, k 72, D f32, two", 2, 1032, 72, POLAR_DTYPE_F32);
    product(&r, "2056 x 2056, k 40, no D", 1, 2056, 40, POLAR_DTYPE_F64);
    /* rows of 8 bytes: nobody halves it */
    product(&r, "1028 x 1028, k 36, D bf16, two", 2, 1028, 36, POLAR_DTYPE_BF16);
    refusal(&r);
    polar_queue_destroy(r.q);
    polar_device_close(r.dev);
    return test_end();
}
