/* bench_step.c -- see bench_step.h. Gradients are normal numbers and stay the same from step to step. */
#include "lab/bench_step.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/philox.h"
#include "device/backend.h"

#define MAX_LIST 160

typedef struct {
    int          n;
    int64_t      weights;
    char         names[MAX_LIST][48];
    polar_tensor shape[MAX_LIST];    /* data not set */
} param_list;

static void add(param_list *l, const char *name, int ndim, int64_t a, int64_t b, int64_t c, int64_t d)
{
    int64_t dims[4] = {a, b, c, d}, stride = 1;
    polar_tensor *t = &l->shape[l->n];
    *t = (polar_tensor){.dtype = POLAR_DTYPE_F32, .ndim = ndim};
    for (int i = ndim - 1; i >= 0; i--) {
        t->shape[i] = dims[i];
        t->stride[i] = stride;
        stride *= dims[i];
    }
    snprintf(l->names[l->n++], sizeof l->names[0], "%s", name);
    l->weights += stride;
}

/* One transformer block of width 192; the matrices only, or everything. */
static void add_block(param_list *l, int block, int all)
{
    static const struct {
        const char *name;
        int64_t     rows, cols;    /* cols 0: a vector */
    } parts[] = {{"norm1.weight", 192, 0},    {"norm1.bias", 192, 0},    {"attn.qkv.weight", 576, 192}, {"attn.qkv.bias", 576, 0}, {"attn.proj.weight", 192, 192}, {"attn.proj.bias", 192, 0},
                 {"norm2.weight", 192, 0},    {"norm2.bias", 192, 0},    {"mlp.fc1.weight", 768, 192},  {"mlp.fc1.bias", 768, 0},  {"mlp.fc2.weight", 192, 768},   {"mlp.fc2.bias", 192, 0}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char name[48];
        snprintf(name, sizeof name, "blocks.%d.%s", block, parts[i].name);
        if (parts[i].cols) add(l, name, 2, parts[i].rows, parts[i].cols, 0, 0);
        else if (all) add(l, name, 1, parts[i].rows, 0, 0, 0);
    }
}

static int list_make(param_list *l, const char *list)
{
    int all = !strcmp(list, "deit");
    l->n = 0;
    l->weights = 0;
    if (!strcmp(list, "100m")) {
        char name[48];
        for (int i = 0; i < 8; i++) {
            snprintf(name, sizeof name, "part.%d", i);
            add(l, name, 1, 12500000, 0, 0, 0);
        }
        return 1;
    }
    if (!all && strcmp(list, "matrices")) return 0;
    if (all) {
        add(l, "cls_token", 3, 1, 1, 192, 0);
        add(l, "pos_embed", 3, 1, 197, 192, 0);
        add(l, "patch_embed.proj.weight", 4, 192, 3, 16, 16);
        add(l, "patch_embed.proj.bias", 1, 192, 0, 0, 0);
    }
    for (int b = 0; b < 12; b++) add_block(l, b, all);
    if (all) {
        add(l, "norm.weight", 1, 192, 0, 0, 0);
        add(l, "norm.bias", 1, 192, 0, 0, 0);
        add(l, "head.weight", 2, 100, 192, 0, 0);
        add(l, "head.bias", 1, 100, 0, 0, 0);
    }
    return 1;
}

int64_t pl_bench_list_weights(const char *list)
{
    param_list *l = pl_calloc(1, sizeof *l);
    int64_t n = l && list_make(l, list) ? l->weights : 0;
    pl_free(l);
    return n;
}

static void run_step(pl_queue *q, void *arg)
{
    polar_status st = polar_optim_enqueue(arg, q);
    if (st != POLAR_OK) pl_queue_keep(q, st);
}

/* Weights at `memory`, gradients behind them, both packed one after the other. */
static polar_status time_list(pl_bench_row *out, pl_queue *q, param_list *l, char *memory, const polar_optim_opts *o, const pl_bench_peak_rates *peak)
{
    polar_param params[MAX_LIST];
    polar_optim *opt;
    float *x = pl_alloc((size_t)l->weights * 2 * sizeof *x);
    PL_NEED(x, POLAR_E_NOMEM, "%lld numbers", (long long)l->weights * 2);
    for (int64_t i = 0; i < 2 * l->weights; i++) x[i] = i < 1 << 16 ? (float)(0.02 * pl_normal(0, PL_STREAM_TEST, 77, (uint64_t)i).a) : x[i - (1 << 16)];
    polar_queue_upload(q, memory, x, (size_t)l->weights * 2 * sizeof *x);
    polar_status st = polar_queue_sync(q);
    pl_free(x);
    PL_TRY(st);
    size_t at = 0;
    for (int i = 0; i < l->n; i++) {
        params[i] = (polar_param){.name = l->names[i], .weight = l->shape[i], .grad = l->shape[i]};
        params[i].weight.data = memory + at;
        params[i].grad.data = memory + (size_t)l->weights * sizeof(float) + at;
        at += (size_t)(l->shape[i].shape[0] * l->shape[i].stride[0]) * sizeof(float);
    }
    PL_TRY(polar_optim_create(&opt, q->dev, params, l->n, o));
    st = polar_optim_prepare(opt, q);
    if (st == POLAR_OK) st = pl_bench_time(out, q, run_step, opt, peak);
    polar_optim_destroy(opt);
    return st;
}

polar_status pl_bench_step(pl_bench_row *out, pl_queue *q, const char *list, const polar_optim_opts *o, const pl_bench_peak_rates *peak)
{
    param_list *l = pl_calloc(1, sizeof *l);
    void *memory = NULL;
    PL_NEED(l, POLAR_E_NOMEM, "a list of parameters");
    polar_status st = list_make(l, list) ? POLAR_OK : PL_FAIL(POLAR_E_ARG, "no list of parameters '%s' (there are: deit, matrices, 100m)", list);
    if (st == POLAR_OK) st = polar_device_alloc(q->dev, &memory, (size_t)l->weights * 2 * sizeof(float));
    if (st == POLAR_OK) st = time_list(out, q, l, memory, o, peak);
    polar_device_free(q->dev, memory);
    pl_free(l);
    return st;
}

/* ---- the least that AdamW must move ----------------------------------------------------------------- */

#if defined(__x86_64__) && defined(__GNUC__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
static void loop_piece(float *w, float *m, float *v, const float *g, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        m[i] = 0.5f * m[i] + g[i];
        v[i] = 0.5f * v[i] + g[i];
        w[i] = w[i] - 0.001f * m[i] - 0.001f * v[i];
    }
}

typedef struct {
    float  *a[4];
    int64_t n;
    int     threads;
} host_loop;

/* On a device that is the host, work in a graph's function simply happens. */
static void run_loop(pl_queue *q, void *arg)
{
    host_loop *l = arg;
    if (q->dry) return;
#pragma omp parallel for num_threads(l->threads) schedule(static)
    for (int p = 0; p < l->threads; p++) {
        int64_t from = l->n * p / l->threads, to = l->n * (p + 1) / l->threads;
        loop_piece(l->a[0] + from, l->a[1] + from, l->a[2] + from, l->a[3] + from, to - from);
    }
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
