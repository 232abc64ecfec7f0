/* bench_maps.c -- see bench_maps.h. Inputs are normal numbers: a map of zeros would take a shortcut. */
#include "lab/bench/bench_maps.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/philox.h"
#include "lab/bench/bench_training.h"

#define MAX_TENSORS 8

static const pl_bench_set sets[] = {
    {"deit",
     "DeiT-Tiny's 48 block matrices: 12 each of qkv, proj, fc1, fc2",
     {{12, 576, 192}, {12, 192, 192}, {12, 768, 192}, {12, 192, 768}},
     0},
    {"mlp", "12 matrices of 192x768", {{12, 192, 768}}, 0},
    {"small",
     "100 of 16x16 and 100 of 16x152, as the SO(3) testbed has them",
     {{100, 16, 16}, {100, 16, 152}},
     0},
    {"1024", "one 1024x1024", {{1, 1024, 1024}}, 0},
    {"1024x12", "twelve of 1024x1024 in one call", {{12, 1024, 1024}}, 0},
    {"1024x12_apart", "twelve of 1024x1024, twelve calls", {{12, 1024, 1024}}, 1},
    {"1024x4096", "one 1024x4096", {{1, 1024, 4096}}, 0},
    {"2048", "one 2048x2048", {{1, 2048, 2048}}, 0},
    {"2048x8192", "one 2048x8192", {{1, 2048, 8192}}, 0},
    {"4096", "one 4096x4096", {{1, 4096, 4096}}, 0},
    {"4096x16384", "one 4096x16384", {{1, 4096, 16384}}, 0},
    {"8192", "one 8192x8192", {{1, 8192, 8192}}, 0},
};

const pl_bench_set *pl_bench_set_at(int i)
{
    return i >= 0 && i < (int)(sizeof sets / sizeof *sets) ? &sets[i] : NULL;
}

typedef struct {
    int n;
    pl_mat in[MAX_TENSORS], out[MAX_TENSORS];
    polar_tensor tin[MAX_TENSORS], tout[MAX_TENSORS];
    int apart;
    const polar_map_opts *opts;
} map_work;

/* Matrix b of a tensor of f32. */
static polar_tensor matrix_of(const pl_mat *m, int64_t b)
{
    return polar_tensor_3d(pl_mat_at(*m, b, 1).data, POLAR_DTYPE_F32, 1, m->rows, m->cols);
}

static void run_map(pl_queue *q, void *arg)
{
    map_work *w = arg;
    polar_status st = w->apart ? POLAR_OK : polar_map_apply(q, w->tout, w->tin, w->n, w->opts);
    for (int64_t b = 0; w->apart && b < w->in[0].batch && st == POLAR_OK; b++) {
        polar_tensor in = matrix_of(&w->in[0], b), out = matrix_of(&w->out[0], b);
        st = polar_map_apply(q, &out, &in, 1, w->opts);
    }
    if (st != POLAR_OK) pl_queue_keep(q, st);
}

static polar_status prepare(map_work *w, pl_queue *q, int i, const pl_bench_shape *s)
{
    int64_t n = s->batch * s->rows * s->cols;
    PL_TRY(pl_mat_alloc(&w->in[i], q->dev, POLAR_DTYPE_F32, s->batch, s->rows, s->cols));
    PL_TRY(pl_mat_alloc(&w->out[i], q->dev, POLAR_DTYPE_F32, s->batch, s->rows, s->cols));
    float *x = pl_alloc((size_t)n * sizeof *x);
    PL_NEED(x, POLAR_E_NOMEM, "%lld numbers", (long long)n);
    for (int64_t k = 0; k < n; k++) x[k] = (float)pl_normal(0, PL_STREAM_TEST, (uint64_t)i, (uint64_t)k).a;
    polar_queue_upload(q, w->in[i].data, x, (size_t)n * sizeof *x);
    polar_status st = polar_queue_sync(q);
    pl_free(x);
    w->tin[i] = polar_tensor_3d(w->in[i].data, POLAR_DTYPE_F32, s->batch, s->rows, s->cols);
    w->tout[i] = polar_tensor_3d(w->out[i].data, POLAR_DTYPE_F32, s->batch, s->rows, s->cols);
    return st;
}

static double nominal_flops(const pl_bench_set *set, const polar_map_opts *o)
{
    double flops = 0;
    for (int i = 0; i < MAX_TENSORS && set->shape[i].batch; i++) {
        const pl_bench_shape *s = &set->shape[i];
        double m = (double)(s->rows < s->cols ? s->rows : s->cols),
               n = (double)(s->rows < s->cols ? s->cols : s->rows);
        flops += (double)s->batch * o->steps * (4 * m * m * n + 2 * m * m * m);
    }
    return flops;
}

static polar_status work_begin(map_work *w, pl_queue *q, const pl_bench_set *set, const polar_map_opts *o)
{
    polar_status st = POLAR_OK;
    *w = (map_work){.opts = o, .apart = set->apart};
    for (; w->n < MAX_TENSORS && set->shape[w->n].batch && st == POLAR_OK; w->n++)
        st = prepare(w, q, w->n, &set->shape[w->n]);
    return st;
}

static void work_end(map_work *w, pl_queue *q)
{
    for (int i = 0; i < w->n; i++) {
        pl_mat_free(&w->in[i], q->dev);
        pl_mat_free(&w->out[i], q->dev);
    }
}

polar_status pl_bench_map(pl_bench_row *out, pl_queue *q, const pl_bench_set *set, const polar_map_opts *o,
                          const pl_bench_peak_rates *peak)
{
    map_work w;
    polar_status st = work_begin(&w, q, set, o);
    if (st == POLAR_OK) st = pl_bench_time(out, q, run_map, &w, peak);
    work_end(&w, q);
    if (o->kind == POLAR_MAP_NEWTON_SCHULZ) {
        out->flops = nominal_flops(set, o);
        out->peak_share = peak && peak->flops > 0 ? out->flops / out->seconds / peak->flops : 0;
    }
    snprintf(out->what, sizeof out->what, "%s", set->name);
    return st;
}

polar_status pl_bench_map_ops(pl_bench_row *rows, int most, int *count, pl_queue *q, const pl_bench_set *set,
                              const polar_map_opts *o, const pl_bench_peak_rates *peak)
{
    map_work w;
    pl_bench_training t = {.gradients = run_map, .arg = &w};
    polar_status st = work_begin(&w, q, set, o);
    if (st == POLAR_OK) st = pl_bench_training_ops(rows, most, count, q, &t, peak);
    work_end(&w, q);
    return st;
}
