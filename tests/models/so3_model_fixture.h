/* so3_model_fixture.h -- an SO(3) model on a device with its data; host doubles in, predictions and gradients
 * out; how much rounding may move them. */
#ifndef POLAR_SO3_MODEL_FIXTURE_H
#define POLAR_SO3_MODEL_FIXTURE_H

#include "fixtures/model_fixture.h"
#include "models/so3_points.h"

typedef struct {
    pl_device *dev;
    pl_queue *q;
    pl_so3 *m;
    pl_so3_shape shape;
    pl_param *params;
    int64_t count; /* of parameter arrays */
    int64_t total; /* numbers in all of them, one member's */
    pl_mat x, y, dp, loss;
} so3_net;

static inline pl_so3_shape so3_shape(int64_t members, int64_t batch, int64_t points, int64_t width,
                                     int64_t layers, polar_dtype dtype)
{
    return (pl_so3_shape){.members = members,
                          .batch = batch,
                          .points = points,
                          .width = width,
                          .layers = layers,
                          .dtype = dtype,
                          .eps = 1e-8};
}

static inline so3_net so3_open(const char *device, const pl_so3_shape *shape, int training)
{
    so3_net r = {.shape = *shape};
    model_open(&r.dev, &r.q, device);
    TEST_TRY(pl_so3_create(&r.m, r.dev, shape, training));
    r.params = pl_so3_params(r.m, &r.count);
    for (int64_t i = 0; i < r.count; i++) r.total += r.params[i].rows * r.params[i].cols;
    TEST_TRY(pl_mat_alloc(&r.x, r.dev, shape->dtype, shape->members * shape->batch, shape->points, 3));
    TEST_TRY(pl_mat_alloc(&r.y, r.dev, shape->dtype, shape->members, shape->batch, 1));
    TEST_TRY(pl_mat_alloc(&r.dp, r.dev, shape->dtype, shape->members, shape->batch, 1));
    TEST_TRY(pl_mat_alloc(&r.loss, r.dev, POLAR_DTYPE_F64, shape->members, 1, 1));
    return r;
}

static inline void so3_close(so3_net *r)
{
    pl_mat_free(&r->x, r->dev);
    pl_mat_free(&r->y, r->dev);
    pl_mat_free(&r->dp, r->dev);
    pl_mat_free(&r->loss, r->dev);
    pl_so3_destroy(r->m);
    polar_queue_destroy(r->q);
    polar_device_close(r->dev);
}

static inline void so3_set_weights(so3_net *r, const double *w)
{
    model_set_weights(r->q, r->params, r->count, w);
}

static inline void so3_get(so3_net *r, double *out, int gradients)
{
    model_get(r->q, r->params, r->count, out, gradients);
}

/* x (members B, N, 3), y (members, B); pred (members, B), loss (members), grad as so3_get has it; any result
 * or y NULL (then forward only). */
static inline void so3_run(so3_net *r, int64_t B, const double *x, const double *y, double *loss,
                           double *pred, double *grad)
{
    int64_t E = r->shape.members;
    pl_mat X = pl_mat_dense(r->x.data, r->x.dtype, E * B, r->shape.points, 3),
           Y = pl_mat_dense(r->y.data, r->y.dtype, E, B, 1),
           dP = pl_mat_dense(r->dp.data, r->dp.dtype, E, B, 1);
    TEST_TRY(pl_mat_upload_f64(r->q, &X, x));
    if (y) TEST_TRY(pl_mat_upload_f64(r->q, &Y, y));
    pl_mat P = pl_so3_forward(r->m, r->q, X);
    if (y) PL_CALL(mse, r->q, .L = r->loss, .dP = dP, .P = P, .Y = Y);
    if (y && grad) pl_so3_backward(r->m, r->q, dP);
    TEST_TRY(polar_queue_sync(r->q));
    if (pred) TEST_TRY(pl_mat_download_f64(r->q, &P, pred));
    if (loss) TEST_TRY(pl_mat_download_f64(r->q, &r->loss, loss));
    if (grad) so3_get(r, grad, 1);
}

static inline double so3_normal(uint64_t what, int64_t i)
{
    pl_n2 z = pl_normal(77, PL_STREAM_TEST, what, (uint64_t)i / 2);
    return i % 2 ? z.b : z.a;
}

/* Clouds from N(0, 1), rounded to float so that both formats hold them. */
static inline void so3_clouds(double *x, int64_t n, uint64_t what)
{
    for (int64_t i = 0; i < n; i++) x[i] = (float)so3_normal(what, i);
}

/* One member's weights from N(0, 1/fan_in), gates off their initial 1 and 0; rounded to float. */
static inline void so3_weights(const so3_net *r, double *w, uint64_t what)
{
    for (int64_t k = 0, at = 0; k < r->count; k++) {
        const pl_param *p = &r->params[k];
        for (int64_t i = 0; i < p->rows * p->cols; i++, at++)
            w[at] = (float)(p->fan_in ? so3_normal(what, at) / sqrt((double)p->fan_in)
                                      : 0.5 * so3_normal(what, at) + (strstr(p->name, "weight") ? 1 : 0));
    }
}

/* How far rounding may move what a model computes. Every op is a sum of products or an elementwise function;
 * its computed result is the exact one of operands changed relatively by about u sqrt(K), u the unit
 * roundoff, K the length of the sum (roundings behave like a random walk: Higham and Mary, 2019). What such
 * changes do to the end result is measured, in double: weights, clouds and targets are changed, each number
 * by a random relative amount within u sqrt(K), eight times; delta[i] is the largest movement in norm of
 * parameter i's gradient, *delta_pred that of the predictions. A change of a weight acts on all rows alike
 * and does not average out over them as the roundings of the rows do, and almost every op has a weight among
 * its operands; so the largest of eight movements is taken for the bound. */
static inline void so3_sensitivity(so3_net *r, const double *w, const double *x, const double *y,
                                   double relative, double *delta_pred, double *delta)
{
    enum { draws = 8 };
    int64_t B = r->shape.batch, nx = B * r->shape.points * 3, n = r->total;
    double *w1 = model_new(n), *x1 = model_new(nx), *y1 = model_new(B), *p0 = model_new(B),
           *p1 = model_new(B), *g0 = model_new(n), *g1 = model_new(n);
    so3_set_weights(r, w);
    so3_run(r, B, x, y, NULL, p0, g0);
    *delta_pred = 0;
    for (int64_t i = 0; i < r->count; i++) delta[i] = 0;
    for (uint64_t d = 0; d < draws; d++) {
        model_shake(w1, w, n, relative, 5, d);
        model_shake(x1, x, nx, relative, 6, d);
        model_shake(y1, y, B, relative, 7, d);
        so3_set_weights(r, w1);
        so3_run(r, B, x1, y1, NULL, p1, g1);
        *delta_pred = fmax(*delta_pred, model_norm(p1, p0, B));
        for (int64_t i = 0, at = 0; i < r->count; at += r->params[i].rows * r->params[i].cols, i++)
            delta[i] = fmax(delta[i], model_norm(g1 + at, g0 + at, r->params[i].rows * r->params[i].cols));
    }
    so3_set_weights(r, w);
    free(w1), free(x1), free(y1), free(p0), free(p1), free(g0), free(g1);
}

/* The longest chain of additions: cg_proj's inputs, or 64 rows of a sum over rows (PL_SUM_CHUNK; longer ones
 * are trees). */
static inline double so3_longest_sum(const pl_so3_shape *s)
{
    double h = (double)s->width;
    return fmax(h + h * (h + 1) / 2, 64);
}

#endif
