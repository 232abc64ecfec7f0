/* bench_so3.c -- see bench_so3.h. The weights move from step to step, as in training; the clouds stay the same. */
#include "lab/bench_so3.h"

#include <stdio.h>

#include "base/alloc.h"
#include "data/point_cloud.h"
#include "device/backend.h"
#include "models/so3_points.h"

#define MAX_PARAMS 64

typedef struct {
    pl_so3      *model;
    polar_optim *opt;
    pl_mat       x, y, loss, dpred;
    pl_device   *dev;
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

static void run_optimiser(pl_queue *q, void *arg)
{
    so3_bench *b = arg;
    polar_status st = polar_optim_enqueue(b->opt, q);
    if (st != POLAR_OK) pl_queue_keep(q, st);
}

static void run_step(pl_queue *q, void *arg)
{
    run_gradients(q, arg);
    run_optimiser(q, arg);
}

static polar_tensor tensor_of(const pl_param *p, void *data)
{
    polar_tensor t = p->ndim == 1 ? polar_tensor_1d(data, p->W.dtype, p->cols) : polar_tensor_2d(data, p->W.dtype, p->rows, p->cols);
    return t;
}

static polar_status make_optimiser(so3_bench *b, pl_queue *q, const char *rule)
{
    polar_param params[MAX_PARAMS];
    polar_optim_opts o;
    int64_t n;
    pl_param *p = pl_so3_params(b->model, &n);
    PL_NEED(n <= MAX_PARAMS, POLAR_E_ARG, "%lld parameters", (long long)n);
    for (int64_t i = 0; i < n; i++) params[i] = (polar_param){.name = p[i].name, .weight = tensor_of(&p[i], p[i].W.data), .grad = tensor_of(&p[i], p[i].G.data)};
    PL_TRY(polar_optim_opts_parse(&o, rule));
    o.lr = o.aux_lr = 1e-3;
    o.weight_decay = o.aux_weight_decay = 0;
    o.matrix_names = "layers.*";
    PL_TRY(polar_optim_create(&b->opt, b->dev, params, n, &o));
    return polar_optim_prepare(b->opt, q);
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

static polar_status time_rows(pl_bench_so3_rows *out, so3_bench *b, pl_queue *q, const pl_bench_so3_shape *s, const char *rule, const pl_bench_peak_rates *peak)
{
    const pl_so3_shape shape = {.members = 1, .batch = s->batch, .points = s->points, .width = s->width, .layers = 3, .dtype = POLAR_DTYPE_F32, .eps = 1e-8};
    const struct {
        const char   *what;
        pl_graph_fn   fn;
        pl_bench_row *row;
    } rows[] = {{"forward", run_forward, &out->forward}, {"forward+backward", run_gradients, &out->gradients}, {"optimiser", run_optimiser, &out->optimiser}, {"step", run_step, &out->step}};
    const uint64_t seed = 0;
    PL_TRY(pl_so3_create(&b->model, b->dev, &shape, 1));
    PL_TRY(pl_so3_init(b->model, q, &seed));
    PL_TRY(make_data(b, q, s));
    PL_TRY(make_optimiser(b, q, rule));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (i == 2) {    /* gradients for the optimiser to work on */
            run_gradients(q, b);
            PL_TRY(polar_queue_sync(q));
        }
        PL_TRY(pl_bench_time(rows[i].row, q, rows[i].fn, b, peak));
        snprintf(rows[i].row->what, sizeof rows[i].row->what, "%s h=%lld N=%lld B=%lld %s", rows[i].what, (long long)s->width, (long long)s->points, (long long)s->batch, rule);
    }
    return POLAR_OK;
}

polar_status pl_bench_so3(pl_bench_so3_rows *out, pl_queue *q, const pl_bench_so3_shape *s, const char *rule, const pl_bench_peak_rates *peak)
{
    so3_bench b = {.dev = q->dev};
    polar_status st = time_rows(out, &b, q, s, rule, peak);
    polar_optim_destroy(b.opt);
    pl_so3_destroy(b.model);
    pl_mat_free(&b.x, b.dev);
    pl_mat_free(&b.y, b.dev);
    pl_mat_free(&b.dpred, b.dev);
    pl_mat_free(&b.loss, b.dev);
    return st;
}
