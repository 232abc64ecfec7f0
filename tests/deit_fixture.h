/* deit_fixture.h -- a vision transformer on a device with its data; host doubles in, logits and gradients out; how much rounding may move them. */
#ifndef POLAR_DEIT_FIXTURE_H
#define POLAR_DEIT_FIXTURE_H

#include "model_fixture.h"
#include "models/deit.h"

typedef struct {
    pl_device    *dev;
    pl_queue     *q;
    pl_deit      *m;
    pl_deit_shape shape;
    polar_dtype   wide;        /* of weights and logits */
    pl_param     *params;
    int64_t       count;       /* of parameter arrays */
    int64_t       total;       /* numbers in all of them, one member's */
    pl_mat        x, t, dz, loss;
} vit_net;

/* Numbers in one image. */
static inline int64_t vit_pixels(const pl_deit_shape *s)
{
    return 3 * s->image * s->image;
}

static inline vit_net vit_open(const char *device, const pl_deit_shape *shape, int training)
{
    vit_net r = {.shape = *shape, .wide = shape->dtype == POLAR_DTYPE_F64 ? POLAR_DTYPE_F64 : POLAR_DTYPE_F32};
    model_open(&r.dev, &r.q, device);
    TEST_TRY(pl_deit_create(&r.m, r.dev, shape, training));
    r.params = pl_deit_params(r.m, &r.count);
    for (int64_t i = 0; i < r.count; i++) r.total += r.params[i].rows * r.params[i].cols;
    TEST_TRY(pl_mat_alloc(&r.x, r.dev, r.wide, shape->members * shape->batch, 3 * shape->image, shape->image));
    TEST_TRY(pl_mat_alloc(&r.t, r.dev, r.wide, shape->members, shape->batch, shape->classes));
    TEST_TRY(pl_mat_alloc(&r.dz, r.dev, r.wide, shape->members, shape->batch, shape->classes));
    TEST_TRY(pl_mat_alloc(&r.loss, r.dev, POLAR_DTYPE_F64, shape->members, 1, 1));
    return r;
}

static inline void vit_close(vit_net *r)
{
    pl_mat_free(&r->x, r->dev);
    pl_mat_free(&r->t, r->dev);
    pl_mat_free(&r->dz, r->dev);
    pl_mat_free(&r->loss, r->dev);
    pl_deit_destroy(r->m);
    polar_queue_destroy(r->q);
    polar_device_close(r->dev);
}

static inline void vit_set_weights(vit_net *r, const double *w)
{
    model_set_weights(r->q, r->params, r->count, w);
}

static inline void vit_get(vit_net *r, double *out, int gradients)
{
    model_get(r->q, r->params, r->count, out, gradients);
}

/* Enqueues forward, loss and backward of what lies in r->x and r->t. */
static inline void vit_step(pl_queue *q, void *arg)
{
    vit_net *r = arg;
    pl_mat z = pl_deit_forward(r->m, q, r->x);
    PL_CALL(cross_entropy, q, .L = r->loss, .dZ = r->dz, .Z = z, .T = r->t);
    pl_deit_backward(r->m, q, r->dz);
}

/* x (members B images), t (members, B, classes); logits (members, B, classes), loss (members), grad as vit_get has it; any result or t NULL (then forward only). */
static inline void vit_run(vit_net *r, int64_t B, const double *x, const double *t, double *loss, double *logits, double *grad)
{
    int64_t E = r->shape.members, k = r->shape.classes;
    pl_mat X = pl_mat_dense(r->x.data, r->wide, E * B, 3 * r->shape.image, r->shape.image), T = pl_mat_dense(r->t.data, r->wide, E, B, k), dZ = pl_mat_dense(r->dz.data, r->wide, E, B, k);
    TEST_TRY(pl_mat_upload_f64(r->q, &X, x));
    if (t) TEST_TRY(pl_mat_upload_f64(r->q, &T, t));
    pl_mat Z = pl_deit_forward(r->m, r->q, X);
    if (t) PL_CALL(cross_entropy, r->q, .L = r->loss, .dZ = dZ, .Z = Z, .T = T);
    if (t && grad) pl_deit_backward(r->m, r->q, dZ);
    TEST_TRY(polar_queue_sync(r->q));
    if (logits) TEST_TRY(pl_mat_download_f64(r->q, &Z, logits));
    if (loss) TEST_TRY(pl_mat_download_f64(r->q, &r->loss, loss));
    if (grad) vit_get(r, grad, 1);
}

static inline double vit_normal(uint64_t what, int64_t i)
{
    pl_n2 z = pl_normal(88, PL_STREAM_TEST, what, (uint64_t)i / 2);
    return i % 2 ? z.b : z.a;
}

/* Pixels from N(0, 1), rounded to float so that both formats hold them. */
static inline void vit_images(double *x, int64_t n, uint64_t what)
{
    for (int64_t i = 0; i < n; i++) x[i] = (float)vit_normal(what, i);
}

/* Soft targets: rows of positive floats that sum to about 1. */
static inline void vit_targets(double *t, int64_t rows, int64_t classes, uint64_t what)
{
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0;
        for (int64_t c = 0; c < classes; c++) sum += t[r * classes + c] = exp(vit_normal(what, r * classes + c));
        for (int64_t c = 0; c < classes; c++) t[r * classes + c] = (float)(t[r * classes + c] / sum);
    }
}

/* One member's weights: matrices from N(0, 1/cols), norms and biases off their initial 1 and 0, tokens of size 1/2; rounded to float. */
static inline void vit_weights(const vit_net *r, double *w, uint64_t what)
{
    for (int64_t k = 0, at = 0; k < r->count; k++) {
        const pl_param *p = &r->params[k];
        for (int64_t i = 0; i < p->rows * p->cols; i++, at++) {
            double z = vit_normal(what, at);
            if (p->ndim == 3) w[at] = (float)(0.5 * z);
            else if (p->ndim == 1) w[at] = (float)(0.3 * z + (strstr(p->name, "weight") ? 1 : 0));
            else w[at] = (float)(z / sqrt((double)p->cols));
        }
    }
}

/* Member e's part of arrays stored as (members, n) one after the other. */
static inline void vit_member(const vit_net *r, double *out, const double *all, int64_t e, int64_t members)
{
    for (int64_t k = 0, at = 0; k < r->count; k++) {
        int64_t n = r->params[k].rows * r->params[k].cols;
        memcpy(out + at, all + members * at + e * n, (size_t)n * sizeof *out);
        at += n;
    }
}

/* How far rounding may move what a model computes; the method and its reasons are so3_sensitivity's (so3_model_fixture.h). An op's computed result is the exact one of operands
 * changed relatively by about u sqrt(K), K the length of its sum. What such changes do is measured in double: weights, pixels and targets are changed, each number by a random
 * relative amount within `relative`, eight times; delta[i] is the largest movement in norm of parameter i's gradient, *delta_logits that of the logits. */
static inline void vit_sensitivity(vit_net *r, const double *w, const double *x, const double *t, double relative, double *delta_logits, double *delta)
{
    enum { draws = 8 };
    int64_t B = r->shape.batch, nx = B * vit_pixels(&r->shape), nz = B * r->shape.classes, n = r->total;
    double *w1 = model_new(n), *x1 = model_new(nx), *t1 = model_new(nz), *z0 = model_new(nz), *z1 = model_new(nz), *g0 = model_new(n), *g1 = model_new(n);
    vit_set_weights(r, w);
    vit_run(r, B, x, t, NULL, z0, g0);
    *delta_logits = 0;
    for (int64_t i = 0; i < r->count; i++) delta[i] = 0;
    for (uint64_t d = 0; d < draws; d++) {
        model_shake(w1, w, n, relative, 5, d);
        model_shake(x1, x, nx, relative, 6, d);
        model_shake(t1, t, nz, relative, 7, d);
        vit_set_weights(r, w1);
        vit_run(r, B, x1, t1, NULL, z1, g1);
        *delta_logits = fmax(*delta_logits, model_norm(z1, z0, nz));
        for (int64_t i = 0, at = 0; i < r->count; at += r->params[i].rows * r->params[i].cols, i++)
            delta[i] = fmax(delta[i], model_norm(g1 + at, g0 + at, r->params[i].rows * r->params[i].cols));
    }
    vit_set_weights(r, w);
    free(w1), free(x1), free(t1), free(z0), free(z1), free(g0), free(g1);
}

/* The longest chain of additions in a product or a sum over rows: 3 p p inputs of a patch, hidden channels, or 64 rows (PL_SUM_CHUNK; longer ones are trees). */
static inline double vit_longest_sum(const pl_deit_shape *s)
{
    double p = (double)s->patch;
    return fmax(fmax(3 * p * p, (double)s->width * s->mlp_ratio), 64);
}

#endif
