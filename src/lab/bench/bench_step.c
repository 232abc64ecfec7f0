/* bench_step.c -- see bench_step.h. Gradients are normal numbers and stay the same from step to step. */
#include "lab/bench/bench_step.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/philox.h"
#include "device/backend.h"
#include "lab/bench/bench_list.h"

static void run_step(pl_queue *q, void *arg)
{
    polar_status st = polar_optim_enqueue(arg, q);
    if (st != POLAR_OK) pl_queue_keep(q, st);
}

/* ---- an optimiser over a list ------------------------------------------------------------------- */

typedef struct {
    pl_bench_list list;
    polar_param params[PL_BENCH_LIST_MAX];
    void *grads[2][PL_BENCH_LIST_MAX];
    char *memory; /* weights, then two sets of gradients, each packed one after the other */
    polar_optim *opt;
} bench_model;

static void model_destroy(bench_model *m, pl_queue *q)
{
    if (!m) return;
    polar_optim_destroy(m->opt);
    polar_device_free(q->dev, m->memory);
    pl_free(m);
}

/* Small normal numbers everywhere, a pattern that repeats. */
static polar_status model_fill(bench_model *m, pl_queue *q)
{
    enum { PATTERN = 1 << 16 };
    size_t bytes = (size_t)m->list.weights * sizeof(float);
    float *x = pl_alloc(bytes);
    PL_NEED(x, POLAR_E_NOMEM, "%lld numbers", (long long)m->list.weights);
    for (int64_t i = 0; i < m->list.weights; i++)
        x[i] = i < PATTERN ? (float)(0.02 * pl_normal(0, PL_STREAM_TEST, 77, (uint64_t)i).a) : x[i - PATTERN];
    for (int k = 0; k < 3; k++) polar_queue_upload(q, m->memory + (size_t)k * bytes, x, bytes);
    polar_status st = polar_queue_sync(q);
    pl_free(x);
    return st;
}

static polar_status model_create(bench_model **out, pl_queue *q, const char *list,
                                 const polar_optim_opts *opts)
{
    bench_model *m = pl_calloc(1, sizeof *m);
    polar_optim_opts o = *opts;
    *out = m;
    PL_NEED(m, POLAR_E_NOMEM, "a list of parameters");
    PL_TRY(pl_bench_list_make(&m->list, list));
    size_t all = (size_t)m->list.weights * sizeof(float), at = 0;
    PL_TRY(polar_device_alloc(q->dev, (void **)&m->memory, 3 * all));
    PL_TRY(model_fill(m, q));
    for (int i = 0; i < m->list.n; i++) {
        const polar_tensor *t = &m->list.shape[i];
        m->params[i] = (polar_param){.name = m->list.names[i], .weight = *t, .grad = *t};
        m->params[i].weight.data = m->memory + at;
        m->params[i].grad.data = m->grads[0][i] = m->memory + all + at;
        m->grads[1][i] = m->memory + 2 * all + at;
        at += (size_t)(t->shape[0] * t->stride[0]) * sizeof(float);
    }
    o.members = m->list.members;
    PL_TRY(polar_optim_create(&m->opt, q->dev, m->params, m->list.n, &o));
    /* a step between two refreshes, bases as they began: the first ones would be made anew in every sample */
    for (int64_t t = 1; t < o.rule.refresh / 2; t++) PL_TRY(polar_optim_prepare(m->opt, q));
    return polar_optim_prepare(m->opt, q);
}

polar_status pl_bench_step(pl_bench_row *out, pl_queue *q, const char *list, const polar_optim_opts *o,
                           const pl_bench_peak_rates *peak)
{
    bench_model *m;
    polar_status st = model_create(&m, q, list, o);
    if (st == POLAR_OK) st = pl_bench_time(out, q, run_step, m->opt, peak);
    model_destroy(m, q);
    return st;
}

/* ---- gradients that move ------------------------------------------------------------------------ */

#define MOVING_STEPS 200
#define MOVING_WARM  20

/* Whole calls of polar_optim_step enqueued one after the other: seconds of one. */
static polar_status time_calls(double *out, pl_queue *q, bench_model *m, int moving)
{
    double begin = 0;
    for (int k = -MOVING_WARM; k < MOVING_STEPS; k++) {
        if (k == 0) {
            PL_TRY(polar_queue_sync(q));
            begin = pl_clock_seconds();
        }
        if (moving) PL_TRY(polar_optim_set_grads(m->opt, m->grads[k & 1], m->list.n));
        PL_TRY(polar_optim_step(m->opt, q));
    }
    PL_TRY(polar_queue_sync(q));
    *out = (pl_clock_seconds() - begin) / MOVING_STEPS;
    return POLAR_OK;
}

polar_status pl_bench_moving(double *fixed, double *moving, pl_queue *q, const char *list,
                             const polar_optim_opts *o)
{
    bench_model *m;
    polar_status st = model_create(&m, q, list, o);
    if (st == POLAR_OK) st = time_calls(fixed, q, m, 0);
    if (st == POLAR_OK) st = time_calls(moving, q, m, 1);
    model_destroy(m, q);
    return st;
}

int64_t pl_bench_list_weights(const char *list)
{
    pl_bench_list *l = pl_calloc(1, sizeof *l);
    int64_t n = l && pl_bench_list_make(l, list) == POLAR_OK ? l->weights : 0;
    pl_free(l);
    return n;
}

/* ---- the least that AdamW must move ------------------------------------------------------------- */

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__SANITIZE_THREAD__) /* as in clones.h */
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
static void
loop_piece(float *w, float *m, float *v, const float *g, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        m[i] = 0.5f * m[i] + g[i];
        v[i] = 0.5f * v[i] + g[i];
        w[i] = w[i] - 0.001f * m[i] - 0.001f * v[i];
    }
}

typedef struct {
    float *a[4];
    int64_t n;
    int threads;
} host_loop;

static void loop_part(void *arg, int me, int64_t p)
{
    const host_loop *l = arg;
    int64_t from = l->n * p / l->threads, to = l->n * (p + 1) / l->threads;
    (void)me;
    loop_piece(l->a[0] + from, l->a[1] + from, l->a[2] + from, l->a[3] + from, to - from);
}

/* On a device that is the host, work in a graph's function simply happens. */
static void run_loop(pl_queue *q, void *arg)
{
    host_loop *l = arg;
    if (!q->dry) pl_pool_items(q->dev->pool, l->threads, l->threads, 1, loop_part, l);
}

polar_status pl_bench_loop(pl_bench_row *out, pl_queue *q, int64_t elements)
{
    host_loop l = {.n = elements, .threads = q->dev->threads};
    polar_status st = POLAR_OK;
    for (int k = 0; k < 4; k++) {
        l.a[k] = pl_calloc((size_t)elements, sizeof(float));
        if (!l.a[k]) st = PL_FAIL(POLAR_E_NOMEM, "%lld numbers", (long long)elements);
    }
    if (st == POLAR_OK) st = pl_bench_time(out, q, run_loop, &l, NULL);
    for (int k = 0; k < 4; k++) pl_free(l.a[k]);
    out->bytes = 28.0 * (double)elements;
    snprintf(out->what, sizeof out->what, "loop: 4 reads, 3 writes of %.1f M", (double)elements * 1e-6);
    return st;
}
