/* bench_deit.c -- see bench_deit.h. */
#include "lab/bench/bench_deit.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/philox.h"
#include "base/status.h"
#include "device/backend.h"

#define SMOOTHING 0.1

typedef struct {
    pl_deit *model;
    pl_mat x, target, loss, dlogits;
    pl_device *dev;
} deit_bench;

static void run_forward(pl_queue *q, void *arg)
{
    deit_bench *b = arg;
    pl_deit_forward(b->model, q, b->x);
}

static void run_gradients(pl_queue *q, void *arg)
{
    deit_bench *b = arg;
    pl_mat z = pl_deit_forward(b->model, q, b->x);
    PL_CALL(cross_entropy, q, .L = b->loss, .dZ = b->dlogits, .Z = z, .T = b->target);
    pl_deit_backward(b->model, q, b->dlogits);
}

/* Noise of variance 1, as normalised pictures have; of every row of targets one class gets most of the
 * weight. */
static polar_status make_data(deit_bench *b, pl_queue *q, const pl_deit_shape *s, polar_dtype wide)
{
    int64_t E = s->members, pixels = E * s->batch * 3 * s->image * s->image,
            scores = E * s->batch * s->classes, most = pixels > scores ? pixels : scores;
    PL_TRY(pl_mat_alloc(&b->x, b->dev, wide, E * s->batch, 3 * s->image, s->image));
    PL_TRY(pl_mat_alloc(&b->target, b->dev, wide, E, s->batch, s->classes));
    PL_TRY(pl_mat_alloc(&b->dlogits, b->dev, wide, E, s->batch, s->classes));
    PL_TRY(pl_mat_alloc(&b->loss, b->dev, POLAR_DTYPE_F64, E, 1, 1));
    double *v = pl_alloc((size_t)most * sizeof *v);
    PL_NEED(v, POLAR_E_NOMEM, "%lld pixels", (long long)pixels);
    for (int64_t i = 0; i < pixels; i++)
        v[i] = 3.4641016151377544 * (pl_uniform_f32(pl_philox(0, PL_STREAM_TEST, 0, (uint64_t)i).x) - 0.5);
    polar_status st = pl_mat_upload_f64(q, &b->x, v);
    for (int64_t i = 0; i < scores; i++)
        v[i] = SMOOTHING / (double)s->classes +
               (i % s->classes == i / s->classes * 7 % s->classes ? 1 - SMOOTHING : 0);
    if (st == POLAR_OK) st = pl_mat_upload_f64(q, &b->target, v);
    pl_free(v);
    return st;
}

static polar_status make(deit_bench *b, pl_bench_training *t, pl_queue *q, const pl_deit_shape *shape,
                         const char *rule)
{
    const uint64_t seeds[PL_BENCH_MEMBERS] = {0};
    PL_NEED(shape->members <= PL_BENCH_MEMBERS, POLAR_E_ARG, "%lld members", (long long)shape->members);
    PL_TRY(pl_deit_create(&b->model, b->dev, shape, 1));
    PL_TRY(pl_deit_init(b->model, q, seeds));
    PL_TRY(make_data(b, q, shape, shape->dtype == POLAR_DTYPE_F64 ? POLAR_DTYPE_F64 : POLAR_DTYPE_F32));
    if (shape->drop_path > 0) pl_deit_set_drop(b->model, q, seeds, 0, shape->batch);
    PL_TRY(polar_optim_opts_parse(&t->opts, rule));
    t->opts.members = shape->members;
    t->opts.lr = t->opts.aux_lr = 1e-3;
    t->opts.weight_decay = t->opts.aux_weight_decay = 0.05;
    t->opts.matrix_names = "blocks.*";
    t->params = pl_deit_params(b->model, &t->param_count);
    t->forward = run_forward, t->gradients = run_gradients;
    t->arg = b, t->dev = b->dev;
    return POLAR_OK;
}

static void unmake(deit_bench *b)
{
    pl_deit_destroy(b->model);
    pl_mat_free(&b->x, b->dev);
    pl_mat_free(&b->target, b->dev);
    pl_mat_free(&b->dlogits, b->dev);
    pl_mat_free(&b->loss, b->dev);
}

polar_status pl_bench_deit(pl_bench_training_rows *out, pl_queue *q, const pl_deit_shape *shape,
                           const char *rule, const pl_bench_peak_rates *peak)
{
    deit_bench b = {.dev = q->dev};
    pl_bench_training t;
    char of[60];
    snprintf(of, sizeof of, "B=%lld %s %s", (long long)(shape->members * shape->batch),
             polar_dtype_name(shape->dtype), rule);
    polar_status st = make(&b, &t, q, shape, rule);
    if (st == POLAR_OK) st = pl_bench_training_time(out, q, &t, of, peak);
    unmake(&b);
    return st;
}

polar_status pl_bench_deit_ops(pl_bench_row *rows, int most, int *count, pl_queue *q,
                               const pl_deit_shape *shape, const pl_bench_peak_rates *peak)
{
    deit_bench b = {.dev = q->dev};
    pl_bench_training t;
    polar_status st = make(&b, &t, q, shape, "adamw");
    if (st == POLAR_OK) st = pl_bench_training_ops(rows, most, count, q, &t, peak);
    unmake(&b);
    return st;
}
