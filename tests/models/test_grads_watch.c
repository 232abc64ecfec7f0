/* test_grads_watch.c -- a backward tells which gradients are finished: each once, from the last parameters to
 * the first, and they do not change any more.
 *
 *     ./test_grads_watch ref|cpu
 */
#include <string.h>

#include "base/alloc.h"
#include "models/deit.h"
#include "models/so3_points.h"
#include "test.h"

enum { PARAMS_MOST = 64 };

typedef struct witness {
    const pl_param *params;
    int64_t count, next, told, wrong; /* next: the lowest parameter that was told */
    double *seen[PARAMS_MOST];        /* as it was then */
} witness;

static void look(polar_queue *q, const pl_param *p, double *out)
{
    TEST_TRY(pl_mat_download_f64(q, &p->G, out));
}

static void note(void *arg, polar_queue *q, int64_t first, int64_t count)
{
    witness *w = arg;
    w->wrong += first + count != w->next;
    w->next = first;
    w->told++;
    for (int64_t i = first; i < first + count; i++) look(q, &w->params[i], w->seen[i]);
}

static void begin(witness *w, polar_queue *q, const pl_param *params, int64_t count)
{
    if (count > PARAMS_MOST) exit(1);
    *w = (witness){.params = params, .count = count, .next = count};
    for (int64_t i = 0; i < count; i++) {
        double *x = w->seen[i] = pl_calloc((size_t)(params[i].rows * params[i].cols), sizeof *x);
        for (int64_t k = 0; k < params[i].rows * params[i].cols; k++) x[k] = 1e30;
        TEST_TRY(pl_mat_upload_f64(q, &params[i].G, x)); /* what a gradient is not */
    }
}

static void end(witness *w, polar_queue *q, const char *what, int64_t layers)
{
    for (int64_t i = 0; i < w->count; i++) {
        size_t bytes = (size_t)(w->params[i].rows * w->params[i].cols) * sizeof(double);
        double *now = pl_alloc(bytes);
        look(q, &w->params[i], now);
        w->wrong += memcmp(now, w->seen[i], bytes) != 0 || now[0] == 1e30;
        pl_free(now);
        pl_free(w->seen[i]);
    }
    test_true(what, !w->wrong && w->next == 0 && w->told >= layers,
              "%lld parameters, %lld times, %lld were told too early or twice", (long long)w->count,
              (long long)w->told, (long long)w->wrong);
}

static pl_mat filled(polar_device *dev, polar_queue *q, int64_t batch, int64_t rows, int64_t cols, int salt)
{
    pl_mat m;
    int64_t n = batch * rows * cols;
    double *x = pl_alloc((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = sin((double)(i * 7 + salt));
    TEST_TRY(pl_mat_alloc(&m, dev, POLAR_DTYPE_F32, batch, rows, cols));
    TEST_TRY(pl_mat_upload_f64(q, &m, x));
    pl_free(x);
    return m;
}

static void test_deit(polar_device *dev, polar_queue *q)
{
    pl_deit_shape shape = PL_DEIT_TINY;
    pl_deit *model;
    witness w;
    int64_t count;
    uint64_t seed = 3;
    shape.batch = 2, shape.image = 8, shape.patch = 4, shape.width = 12, shape.depth = 3, shape.classes = 5;
    TEST_TRY(pl_deit_create(&model, dev, &shape, 1));
    TEST_TRY(pl_deit_init(model, q, &seed));
    pl_mat x = filled(dev, q, 2, 24, 8, 1), dz = filled(dev, q, 1, 2, 5, 2);
    const pl_param *params = pl_deit_params(model, &count);
    begin(&w, q, params, count);
    pl_deit_watch_grads(model, (pl_grads_watch){note, &w});
    pl_deit_forward(model, q, x);
    pl_deit_backward(model, q, dz);
    end(&w, q, "a vision transformer", shape.depth + 2);
    pl_mat_free(&x, dev);
    pl_mat_free(&dz, dev);
    pl_deit_destroy(model);
}

static void test_so3(polar_device *dev, polar_queue *q)
{
    pl_so3_shape shape = {.members = 1, .batch = 2, .points = 5, .width = 4, .layers = 3, .eps = 1e-8};
    pl_so3 *model;
    witness w;
    int64_t count;
    uint64_t seed = 5;
    shape.dtype = POLAR_DTYPE_F32;
    TEST_TRY(pl_so3_create(&model, dev, &shape, 1));
    TEST_TRY(pl_so3_init(model, q, &seed));
    pl_mat x = filled(dev, q, 2, 5, 3, 3), dp = filled(dev, q, 1, 2, 1, 4);
    const pl_param *params = pl_so3_params(model, &count);
    begin(&w, q, params, count);
    pl_so3_watch_grads(model, (pl_grads_watch){note, &w});
    pl_so3_forward(model, q, x);
    pl_so3_backward(model, q, dp);
    end(&w, q, "an SO(3) network", shape.layers + 1);
    pl_mat_free(&x, dev);
    pl_mat_free(&dp, dev);
    pl_so3_destroy(model);
}

int main(int argc, char **argv)
{
    polar_device *dev;
    polar_queue *q;
    TEST_TRY(polar_device_open(&dev, test_begin(argc, argv)));
    TEST_TRY(polar_queue_create(&q, dev, NULL));
    test_deit(dev, q);
    test_so3(dev, q);
    polar_queue_destroy(q);
    polar_device_close(dev);
    return test_end();
}
