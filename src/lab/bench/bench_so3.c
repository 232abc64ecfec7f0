/* bench_so3.c -- see bench_so3.h. The weights move from step to step, as in training; the clouds stay the
 * same. */
#include "lab/bench/bench_so3.h"

#include <stdio.h>

#include "base/alloc.h"
#include "data/point_cloud.h"
#include "device/backend.h"
#include "lab/so3/so3_keys.h"
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

/* The clouds of one member, for all of them. */
static polar_status make_data(so3_bench *b, pl_queue *q, const pl_bench_so3_shape *s)
{
    pl_clouds clouds;
    PL_TRY(pl_mat_alloc(&b->x, b->dev, POLAR_DTYPE_F32, s->members * s->batch, s->points, 3));
    PL_TRY(pl_mat_alloc(&b->y, b->dev, POLAR_DTYPE_F32, s->members, s->batch, 1));
    PL_TRY(pl_mat_alloc(&b->dpred, b->dev, POLAR_DTYPE_F32, s->members, s->batch, 1));
    PL_TRY(pl_mat_alloc(&b->loss, b->dev, POLAR_DTYPE_F64, s->members, 1, 1));
    PL_TRY(pl_clouds_create(&clouds, 0, PL_SPLIT_TRAIN, s->batch, s->points, POLAR_DTYPE_F32));
    pl_mat x = pl_mat_at(b->x, 0, s->batch);
    polar_status st = POLAR_OK;
    for (int64_t e = 0; e < s->members && st == POLAR_OK; e++) {
        pl_mat y = pl_mat_at(b->y, e, 1);
        polar_queue_upload(q, (char *)b->x.data + (size_t)e * pl_mat_bytes(&x), clouds.x, pl_mat_bytes(&x));
        st = pl_mat_upload_f64(q, &y, clouds.target);
    }
    if (st == POLAR_OK) st = polar_queue_sync(q);
    pl_clouds_destroy(&clouds);
    return st;
}

/* Everything but the time: b and t belong together. */
static polar_status make(so3_bench *b, pl_bench_training *t, pl_queue *q, const pl_bench_so3_shape *s,
                         const char *rule)
{
    const pl_so3_shape shape = {.members = s->members,
                                .batch = s->batch,
                                .points = s->points,
                                .width = s->width,
                                .layers = 3,
                                .message = s->message,
                                .dtype = POLAR_DTYPE_F32,
                                .eps = 1e-8};
    *t = (pl_bench_training){.forward = run_forward, .gradients = run_gradients, .arg = b, .dev = b->dev};
    PL_TRY(pl_so3_create(&b->model, b->dev, &shape, 1));
    uint64_t *seeds = pl_alloc((size_t)s->members * sizeof *seeds);
    PL_NEED(seeds, POLAR_E_NOMEM, "the seeds of %lld members", (long long)s->members);
    for (int64_t e = 0; e < s->members; e++) seeds[e] = (uint64_t)e;
    polar_status st = pl_so3_init(b->model, q, seeds);
    pl_free(seeds);
    if (st != POLAR_OK) return st;
    PL_TRY(make_data(b, q, s));
    PL_TRY(polar_optim_opts_parse(&t->opts, rule));
    t->opts.lr = t->opts.aux_lr = 1e-3;
    t->opts.weight_decay = t->opts.aux_weight_decay = 0;
    t->opts.matrix_names = "layers.*";
    t->opts.members = s->members;
    t->params = pl_so3_params(b->model, &t->param_count);
    return POLAR_OK;
}

static void unmake(so3_bench *b)
{
    pl_so3_destroy(b->model);
    pl_mat_free(&b->x, b->dev);
    pl_mat_free(&b->y, b->dev);
    pl_mat_free(&b->dpred, b->dev);
    pl_mat_free(&b->loss, b->dev);
}

polar_status pl_bench_so3(pl_bench_training_rows *out, pl_queue *q, const pl_bench_so3_shape *s,
                          const char *rule, const pl_bench_peak_rates *peak)
{
    so3_bench b = {.dev = q->dev};
    pl_bench_training t;
    char of[80];
    snprintf(of, sizeof of, "h=%lld N=%lld B=%lld E=%lld %s%s%s", (long long)s->width, (long long)s->points,
             (long long)s->batch, (long long)s->members, s->message ? pl_so3_messages[s->message] : "",
             s->message ? " " : "", rule);
    polar_status st = make(&b, &t, q, s, rule);
    if (st == POLAR_OK) st = pl_bench_training_time(out, q, &t, of, peak);
    unmake(&b);
    return st;
}

polar_status pl_bench_so3_ops(pl_bench_row *rows, int most, int *count, pl_queue *q,
                              const pl_bench_so3_shape *s, const pl_bench_peak_rates *peak)
{
    so3_bench b = {.dev = q->dev};
    pl_bench_training t;
    polar_status st = make(&b, &t, q, s, "adamw");
    if (st == POLAR_OK) st = pl_bench_training_ops(rows, most, count, q, &t, peak);
    unmake(&b);
    return st;
}
