/* test_cuda_rows.c -- ops over rows whose cuda kernels have ways of their own for common shapes (rows in
 * registers, four elements at a time, sums in one pass): the bits of `cpu`, at those shapes and beside them.
 *
 *     build/cuda/tests/test_cuda_rows cuda:0
 *     build/cuda/tests/test_cuda_rows cuda:0 few    fewer widths
 */
#include "fixtures/model_fixture.h"

typedef struct {
    pl_device *dev;
    pl_queue *q;
} place;

static place places[2]; /* the device, and cpu */

static pl_mat mat(const place *at, polar_dtype dtype, int64_t batch, int64_t rows, int64_t cols,
                  uint64_t what)
{
    pl_mat m;
    int64_t n = batch * rows * cols;
    double *x = model_new(n);
    TEST_TRY(pl_mat_alloc(&m, at->dev, dtype, batch, rows, cols));
    for (int64_t i = 0; i < n; i++) x[i] = (float)pl_normal(9, PL_STREAM_TEST, what, (uint64_t)i).a;
    TEST_TRY(pl_mat_upload_f64(at->q, &m, x));
    free(x);
    return m;
}

static double *values(const place *at, pl_mat m)
{
    double *x = model_new(m.batch * m.rows * m.cols);
    TEST_TRY(pl_mat_download_f64(at->q, &m, x));
    return x;
}

/* Compares what both places hold, and frees it. */
static int64_t differ(pl_mat *a, pl_mat *b)
{
    double *x = values(&places[0], *a), *y = values(&places[1], *b);
    int64_t bad = model_mismatches(x, y, a->batch * a->rows * a->cols);
    pl_mat_free(a, places[0].dev);
    pl_mat_free(b, places[1].dev);
    free(x), free(y);
    return bad;
}

#define F32  POLAR_DTYPE_F32
#define BF16 POLAR_DTYPE_BF16

/* low: h and the gradients' factors in bf16, as in mixed precision; else all in f32. groups: of rows that
 * have a factor each in the copy of the gradient; 0: none. */
static int64_t norms(int64_t batch, int64_t rows, int64_t cols, int low, int with_z, int64_t groups)
{
    pl_mat m[2][10];
    int64_t bad = 0;
    for (int k = 0; k < 2; k++) {
        const place *at = &places[k];
        pl_mat none = {0}, X = mat(at, F32, batch, rows, cols, 1), g = mat(at, F32, 1, 1, cols, 2),
               b = mat(at, F32, 1, 1, cols, 3), Y = mat(at, low ? BF16 : F32, batch, rows, cols, 4),
               S = mat(at, F32, batch, rows, 2, 5), dY = mat(at, low ? BF16 : F32, batch, rows, cols, 6),
               dX = mat(at, F32, batch, rows, cols, 7), dg = mat(at, F32, batch, 1, cols, 8),
               db = mat(at, F32, batch, 1, cols, 8), s = mat(at, F32, batch, groups ? groups : 1, 1, 9);
        PL_CALL(layernorm, at->q, .Y = Y, .S = S, .X = X, .g = g, .b = b, .eps = 1e-6);
        /* as in a model: the gradient of the stream in place, its copy in the place of dY */
        PL_CALL(layernorm_back, at->q, .dX = dX, .dg = dg, .db = db, .dL = low || groups ? dY : none, .X = X,
                .S = S, .g = g, .dY = dY, .Z = with_z ? dX : none, .s = groups ? s : none);
        pl_mat all[] = {X, g, b, Y, S, dY, dX, dg, db, s};
        memcpy(m[k], all, sizeof all);
    }
    for (int i = 0; i < 10; i++) bad += differ(&m[0][i], &m[1][i]);
    return bad;
}

static int64_t sums(int64_t rows, int64_t groups, int64_t cols, polar_dtype dtype)
{
    pl_mat m[2][2];
    for (int k = 0; k < 2; k++) {
        m[k][0] = mat(&places[k], dtype, 2, rows, cols, 1),
        m[k][1] = mat(&places[k], F32, 2, groups, cols, 2);
        PL_CALL(row_sum, places[k].q, .Y = m[k][1], .X = m[k][0], .alpha = 1.5);
    }
    return differ(&m[0][0], &m[1][0]) + differ(&m[0][1], &m[1][1]);
}

static int64_t losses(int64_t rows, int64_t cols)
{
    pl_mat m[2][4];
    int64_t bad = 0;
    for (int k = 0; k < 2; k++) {
        const place *at = &places[k];
        m[k][0] = mat(at, F32, 2, rows, cols, 1), m[k][1] = mat(at, F32, 2, rows, cols, 2);
        m[k][2] = mat(at, F32, 2, rows, cols, 3), m[k][3] = mat(at, POLAR_DTYPE_F64, 2, 1, 1, 4);
        PL_CALL(cross_entropy, at->q, .L = m[k][3], .dZ = m[k][2], .Z = m[k][0], .T = m[k][1]);
    }
    for (int i = 0; i < 4; i++) bad += differ(&m[0][i], &m[1][i]);
    return bad;
}

/* scale_rows, and copy and axpby of all rows but the first of every matrix. */
static int64_t strided(int64_t cols, polar_dtype dtype)
{
    pl_mat m[2][5];
    int64_t bad = 0, rows = 21;
    for (int k = 0; k < 2; k++) {
        const place *at = &places[k];
        pl_mat X = mat(at, dtype, 3, rows, cols, 1), s = mat(at, F32, 3, 7, 1, 2),
               Z = mat(at, F32, 3, rows, cols, 3);
        pl_mat Y = mat(at, F32, 3, rows, cols, 4), C = mat(at, BF16, 3, rows - 1, cols, 5), inner = Y,
               from = X;
        PL_CALL(scale_rows, at->q, .Y = Y, .X = X, .s = s, .Z = Z);
        inner.rows--, inner.data = (float *)inner.data + cols;
        from.rows--, from.data = (char *)from.data + (size_t)cols * polar_dtype_size(dtype);
        PL_CALL(copy, at->q, .Y = C, .X = from);
        PL_CALL(axpby, at->q, .Y = inner, .X = C, .alpha = 0.75, .Z = inner, .beta = 2);
        pl_mat all[] = {X, s, Z, Y, C};
        memcpy(m[k], all, sizeof all);
    }
    for (int i = 0; i < 5; i++) bad += differ(&m[0][i], &m[1][i]);
    return bad;
}

static int64_t squares(int64_t patch, int64_t side, polar_dtype dtype)
{
    pl_mat m[2][2];
    int64_t n = side / patch;
    for (int k = 0; k < 2; k++) {
        const place *at = &places[k];
        m[k][0] = mat(at, F32, 3, 3 * side, side, 1),
        m[k][1] = mat(at, dtype, 3, n * n, 3 * patch * patch, 2);
        PL_CALL(patches, at->q, .Y = m[k][1], .X = m[k][0], .height = side, .width = side, .patch = patch);
    }
    return differ(&m[0][0], &m[1][0]) + differ(&m[0][1], &m[1][1]);
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    TEST_TRY(polar_device_open(&places[0].dev, device));
    TEST_TRY(polar_device_open(&places[1].dev, "cpu"));
    for (int k = 0; k < 2; k++) TEST_TRY(polar_queue_create(&places[k].q, places[k].dev, NULL));
    static const int64_t widths[] = {64, 128, 192, 256, 384, 100}, heights[] = {1, 63, 65, 200},
                         groups[] = {1, 21, 1, 8};
    char line[64];
    for (size_t i = 0; i < 6; i++) {
        int64_t bad = 0;
        if (test_few(argc, argv) && i % 3 != 2) continue;
        for (int low = 0; low < 2; low++)
            for (int k = 0; k < 4; k++)
                bad += norms(1 + k / 2, heights[k], widths[i], low, k % 2, 0) +
                       norms(1 + k / 2, heights[k], widths[i], low, k % 2, groups[k]);
        snprintf(line, sizeof line, "layer norm of %lld columns, and back", (long long)widths[i]);
        test_exact(line, bad);
    }
    test_exact("layer norm of 2500 rows, and back",
               norms(1, 2500, 192, 1, 1, 0) + norms(1, 2500, 192, 1, 1, 20));
    test_exact("sums of rows", sums(128, 1, 300, F32) + sums(390, 3, 7, BF16) + sums(300, 1, 40, BF16) +
                                   sums(2500, 1, 65, F32));
    test_exact("cross entropy", losses(130, 100) + losses(1, 3) + losses(33, 1000));
    test_exact("scaled, copied and added rows", strided(192, BF16) + strided(192, F32) + strided(6, BF16));
    test_exact("patches", squares(16, 48, BF16) + squares(4, 20, F32) + squares(3, 9, BF16));
    for (int k = 0; k < 2; k++) {
        polar_queue_destroy(places[k].q);
        polar_device_close(places[k].dev);
    }
    return test_end();
}
