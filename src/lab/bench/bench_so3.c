/* bench_so3.c -- see bench_so3.h. The weights move from step to step, as in training; the clouds stay the
 * same. */
#include "lab/bench/bench_so3.h"

#include <stdio.h>

#include "base/alloc.h"
#include "data/point_cloud.h"
#include "device/backend.h"
#include "models/so3_points.h"

typedef struct {
    pl_so3 *model;
    pl_mat x, y, loss, dpred;
    pl_device *dev;
} so3_bench;

static void run_forward(pl_queue *q, void *arg)
{
    so3_bench *b = arg;
    pl_so3_forward(b->model, q, b->x);
}

static void run_gradients(pl_queue *q, void *arg)
{
    so3_bench *b = arg;
    pl_mat p = pl_so3_forward(b->model, q, b->x);
    PL_CALL(mse, q, .L = b->loss, .dP = b->dpred, .P = p, .Y = b->y);
    pl_so3_backward(b->model, q, b->dpred);
}

static polar_status make_data(so3_bench *b, pl_queue *q, const pl_bench_so3_shape *s)
{
    pl_clouds clouds;
    PL_TRY(pl_mat_alloc(&b->x, b->dev, POLAR_DTYPE_F32, s->batch, s->points, 3));
    PL_TRY(pl_mat_alloc(&b->y, b->dev, POLAR_DTYPE_F32, 1, s->batch, 1));
    PL_TRY(pl_mat_alloc(&b->dpred, b->dev, POLAR_DTYPE_F32, 1, s->batch, 1));
    PL_TRY(pl_mat_alloc(&b->loss, b->dev, POLAR_DTYPE_F64, 1, 1, 1));
    PL_TRY(pl_clouds_create(&clouds, 0, PL_SPLIT_TRAIN, s->batch, s->points, POLAR_DTYPE_F32));
    polar_queue_upload(q, b->x.data, clouds.x, pl_mat_bytes(&b->x));
    polar_status st = pl_mat_upload_f64(q, &b->y, clouds.target);
    if (st == POLAR_OK) st = polar_queue_sync(q);
    pl_clouds_destroy(&clouds);
    return st;
}

static polar_status time_rows(pl_bench_training_rows *out, so3_bench *b, pl_queue *q,
                              const pl_bench_so3_shape *s, const char *rule, const pl_bench_peak_rates *peak)
{
    const pl_so3_shape shape = {.members = 1,
                                .batch = s->batch,
                                .points = s->points,
                                .width = s->width,
                                .layers = 3,
                                .dtype = POLAR_DTYPE_F32,
                                .eps = 1e-8};
    const uint64_t seed = 0;
    pl_bench_training t = {.forward = run_forward, .gradients = run_gradients, .arg = b, .dev = b->dev};
    char of[60];
    snprintf(of, sizeof of, "h=%lld N=%lld B=%lld %s", (long long)s->width, (long long)s->points,
             (long long)s->batch, rule);
    PL_TRY(pl_so3_create(&b->model, b->dev, &shape, 1));
    PL_TRY(pl_so3_init(b->model, q, &seed));
    PL_TRY(make_data(b, q, s));
    PL_TRY(polar_optim_opts_parse(&t.opts, rule));
    t.opts.lr = t.opts.aux_lr = 1e-3;
    t.opts.weight_decay = t.opts.aux_weight_decay = 0;
    t.opts.matrix_names = "layers.*";
    t.params = pl_so3_params(b->model, &t.param_count);
    return pl_bench_training_time(out, q, &t, of, peak);
}

polar_status pl_bench_so3(pl_bench_training_rows *out, pl_queue *q, const pl_bench_so3_shape *s,
                          const char *rule, const pl_bench_peak_rates *peak)
{
    so3_bench b = {.dev = q->dev};
    polar_status st = time_rows(out, &b, q, s, rule, peak);
    pl_so3_destroy(b.model);
    pl_mat_free(&b.x, b.dev);
    pl_mat_free(&b.y, b.dev);
    pl_mat_free(&b.dpred, b.dev);
    pl_mat_free(&b.loss, b.dev);
    return st;
}
