/* test_weight_grad.c -- the gradients of a linear layer's weight and bias, composed or fused, against sums in
 * double; a member's bits do not depend on its mates.
 *
 *     ctest -R test_weight_grad
 *     test_weight_grad DEVICE few    without the widest
 */
#include "compose/weight_grad.h"
#include "fixtures/model_fixture.h"

#define U32 0x1p-24

typedef struct {
    polar_dtype dtype;
    int64_t members, groups, per, out, in; /* rows: groups of `per` */
} form;

static const form forms[] = {
    {POLAR_DTYPE_F32, 2, 5, 7, 9, 6},
    {POLAR_DTYPE_BF16, 1, 5, 13, 72, 64},
    /* cuda's own kernel: one tile, several down and across, edges in a tile, members */
    {POLAR_DTYPE_BF16, 1, 7, 197, 192, 192},
    {POLAR_DTYPE_BF16, 1, 5, 215, 576, 192},
    {POLAR_DTYPE_BF16, 1, 8, 128, 64, 768},
    {POLAR_DTYPE_BF16, 2, 5, 207, 200, 72},
    /* other tiles together than alone, more of them than run at once; the rows in several splits */
    {POLAR_DTYPE_BF16, 18, 8, 128, 136, 104},
    {POLAR_DTYPE_BF16, 2, 16, 1604, 136, 104},
};

static pl_mat mat(pl_device *dev, pl_queue *q, polar_dtype dtype, int64_t batch, int64_t rows, int64_t cols,
                  uint64_t what)
{
    pl_mat m;
    int64_t n = batch * rows * cols;
    double *x = model_new(n);
    TEST_TRY(pl_mat_alloc(&m, dev, dtype, batch, rows, cols));
    for (int64_t i = 0; i < n; i++) x[i] = (float)pl_normal(5, PL_STREAM_TEST, what, (uint64_t)i).a;
    TEST_TRY(pl_mat_upload_f64(q, &m, x));
    free(x);
    return m;
}

static double *values(pl_queue *q, pl_mat m)
{
    double *x = model_new(m.batch * m.rows * m.cols);
    TEST_TRY(pl_mat_download_f64(q, &m, x));
    return x;
}

/* A sum of n terms in f32, in any order, is off by at most n u of the sum of their sizes, twice that where a
 * unit cuts off instead of rounding. */
static void against_double(const char *device, const form *f)
{
    pl_device *dev;
    pl_queue *q;
    polar_status st = polar_device_open(&dev, device);
    if (st == POLAR_E_UNSUPPORTED) exit(77);
    TEST_TRY(st);
    TEST_TRY(polar_queue_create(&q, dev, NULL));
    int64_t n = f->groups * f->per, size = f->out * f->in, bad = 0;
    pl_mat dY = mat(dev, q, f->dtype, f->members, n, f->out, 1),
           X = mat(dev, q, f->dtype, f->members, n, f->in, 2);
    pl_mat dW = mat(dev, q, POLAR_DTYPE_F32, f->members, f->out, f->in, 3),
           db = mat(dev, q, POLAR_DTYPE_F32, f->members, 1, f->out, 4);
    double *y = values(q, dY), *x = values(q, X), *want = model_new(size), *sizes = model_new(size),
           worst = 0;
    pl_weight_grad(q, dW, db, dY, X, f->groups);
    double *w = values(q, dW), *b = values(q, db);
    for (int64_t e = 0; e < f->members; e++) {
        memset(want, 0, (size_t)size * sizeof *want), memset(sizes, 0, (size_t)size * sizeof *sizes);
        for (int64_t r = 0; r < n; r++)
            for (int64_t i = 0; i < f->out; i++)
                for (int64_t j = 0; j < f->in; j++) {
                    double t = y[(e * n + r) * f->out + i] * x[(e * n + r) * f->in + j];
                    want[i * f->in + j] += t, sizes[i * f->in + j] += fabs(t);
                }
        for (int64_t i = 0; i < size; i++)
            worst = fmax(worst, fabs(w[e * size + i] - want[i]) / (2 * (double)n * U32 * sizes[i]));
        for (int64_t i = 0; i < f->out; i++) {
            double sum = 0, all = 0;
            for (int64_t r = 0; r < n; r++)
                sum += y[(e * n + r) * f->out + i], all += fabs(y[(e * n + r) * f->out + i]);
            worst = fmax(worst, fabs(b[e * f->out + i] - sum) / (2 * (double)n * U32 * all));
        }
    }
    const pl_args_weight_grad call = {.dW = dW, .db = db, .dY = dY, .X = X};
    char line[96];
    snprintf(line, sizeof line, "%s %s %lld x %lld x %lld x %lld",
             pl_queue_serves(q, PL_OP_weight_grad, &call) ? "fused" : "composed", polar_dtype_name(f->dtype),
             (long long)f->members, (long long)n, (long long)f->out, (long long)f->in);
    test_bound(line, worst, 1, "of 2 n u sum |y x|");
    for (int64_t e = 0; e < f->members; e++) { /* each alone, without a bias */
        pl_weight_grad(q, pl_mat_at(dW, e, 1), (pl_mat){0}, pl_mat_at(dY, e, 1), pl_mat_at(X, e, 1),
                       f->groups);
        double *alone = values(q, pl_mat_at(dW, e, 1));
        bad += model_mismatches(alone, w + e * size, size);
        free(alone);
    }
    test_exact("... each member alone: the same bits", bad);
    pl_mat *all[] = {&dY, &X, &dW, &db};
    for (int i = 0; i < 4; i++) pl_mat_free(all[i], dev);
    polar_queue_destroy(q);
    polar_device_close(dev);
    free(y), free(x), free(want), free(sizes), free(w), free(b);
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (!test_few(argc, argv) || forms[i].out * forms[i].in < 1 << 16) against_double(device, &forms[i]);
    return test_end();
}
