/* optim_fixture.h -- a few parameters on a device, their gradients, an optimiser over them. */
#ifndef POLAR_OPTIM_FIXTURE_H
#define POLAR_OPTIM_FIXTURE_H

#include "device/queue.h"
#include "map_fixture.h"
#include "polar/optim.h"

#define MAX_PARAMS 8

typedef struct {
    const char *name;
    int         ndim;
    int64_t     shape[4];
    polar_route route;
    int64_t     row_blocks, schur_group, schur_dim, group;
    int         as;    /* weights and gradients are those of parameter as - 1 of another rig; 0: its own */
} param_spec;

typedef struct {
    pl_device   *dev;
    pl_queue    *q;
    int          n;
    int64_t      elements[MAX_PARAMS];
    int          number[MAX_PARAMS];              /* whose weights and gradients it has */
    pl_mat       W[MAX_PARAMS], G[MAX_PARAMS];    /* one row each */
    polar_optim *opt;
} optim_rig;

static inline void rig_close(optim_rig *r)
{
    polar_optim_destroy(r->opt);
    for (int i = 0; i < r->n; i++) {
        pl_mat_free(&r->W[i], r->dev);
        pl_mat_free(&r->G[i], r->dev);
    }
    polar_queue_destroy(r->q);
    polar_device_close(r->dev);
    *r = (optim_rig){0};
}

static inline polar_tensor rig_tensor(const pl_mat *m, const param_spec *s)
{
    polar_tensor t = {.data = m->data, .dtype = m->dtype, .ndim = s->ndim};
    int64_t stride = 1;
    for (int i = s->ndim - 1; i >= 0; i--) {
        t.shape[i] = s->shape[i];
        t.stride[i] = stride;
        stride *= s->shape[i];
    }
    return t;
}

/* Weights from map_fill by the parameter's number; gradients not set. */
static inline polar_status rig_open(optim_rig *r, const char *device, const param_spec *specs, int n, polar_dtype weights, polar_dtype grads, const polar_optim_opts *o)
{
    polar_param params[MAX_PARAMS];
    *r = (optim_rig){.n = 0};
    polar_status st = polar_device_open(&r->dev, device);
    if (st == POLAR_OK) st = polar_queue_create(&r->q, r->dev, NULL);
    for (int i = 0; i < n && st == POLAR_OK; i++) {
        r->elements[i] = 1;
        for (int k = 0; k < specs[i].ndim; k++) r->elements[i] *= specs[i].shape[k];
        r->n = i + 1;
        r->number[i] = specs[i].as ? specs[i].as - 1 : i;
        st = pl_mat_alloc(&r->W[i], r->dev, weights, 1, 1, r->elements[i]);
        if (st == POLAR_OK) st = pl_mat_alloc(&r->G[i], r->dev, grads, 1, 1, r->elements[i]);
        double *x = map_new(r->elements[i]);
        map_fill(x, r->elements[i], 900 + (uint64_t)r->number[i]);
        if (st == POLAR_OK) st = pl_mat_upload_f64(r->q, &r->W[i], x);
        free(x);
        params[i] = (polar_param){.name = specs[i].name, .route = specs[i].route, .row_blocks = specs[i].row_blocks, .schur_group = specs[i].schur_group, .schur_dim = specs[i].schur_dim, .group = specs[i].group};
        params[i].weight = rig_tensor(&r->W[i], &specs[i]);
        params[i].grad = rig_tensor(&r->G[i], &specs[i]);
    }
    if (st == POLAR_OK) st = polar_queue_sync(r->q);
    if (st == POLAR_OK) st = polar_optim_create(&r->opt, r->dev, params, n, o);
    if (st != POLAR_OK) rig_close(r);
    return st;
}

/* The gradient of parameter i at step t. */
static inline void rig_gradient(double *g, int64_t n, int i, int64_t t)
{
    map_fill(g, n, 5000 + 100 * (uint64_t)i + (uint64_t)t);
}

static inline polar_status rig_step(optim_rig *r, int64_t t)
{
    for (int i = 0; i < r->n; i++) {
        double *g = map_new(r->elements[i]);
        rig_gradient(g, r->elements[i], r->number[i], t);
        polar_status st = pl_mat_upload_f64(r->q, &r->G[i], g);
        free(g);
        if (st != POLAR_OK) return st;
    }
    polar_status st = polar_optim_step(r->opt, r->q);
    return st == POLAR_OK ? polar_queue_sync(r->q) : st;
}

static inline double *rig_weights(optim_rig *r, int i)
{
    double *w = map_new(r->elements[i]);
    TEST_TRY(pl_mat_download_f64(r->q, &r->W[i], w));
    return w;
}

/* Bits that differ between the weights of parameter i of a and parameter k of b. */
static inline int64_t rig_differ(optim_rig *a, int i, optim_rig *b, int k)
{
    double *x = rig_weights(a, i), *y = rig_weights(b, k);
    int64_t bad = map_mismatches(x, y, a->elements[i]);
    free(x);
    free(y);
    return bad;
}

/* Weights of the same parameters in two rigs: bits that differ. */
static inline int64_t rig_mismatches(optim_rig *a, optim_rig *b)
{
    int64_t bad = 0;
    for (int i = 0; i < a->n; i++) bad += rig_differ(a, i, b, i);
    return bad;
}

#endif
