/* deit_golden.h -- torch's numbers for a small vision transformer (golden/vit.safetensors): its weights, pictures, logits, loss and gradients. */
#ifndef POLAR_DEIT_GOLDEN_H
#define POLAR_DEIT_GOLDEN_H

#include "base/safetensors.h"
#include "deit_fixture.h"

enum { IMAGES = 6 };

typedef struct {
    pl_safetensors *f;
    pl_deit_shape   shape;
    double         *w, *x, *t, *logits, *grad, loss;    /* w and grad in the model's order; t one-hot */
} golden;

static inline double *golden_read(const pl_safetensors *f, int64_t n, const char *key, const char *name)
{
    char full[128];
    double *out = model_new(n);
    snprintf(full, sizeof full, "%s%s", key, name);
    const pl_safetensors_entry *e = pl_safetensors_find(f, full);
    int64_t have = e && e->dtype >= 0 ? e->bytes / (int64_t)polar_dtype_size((polar_dtype)e->dtype) : -1;
    if (have != n) {
        printf("the golden file has %lld numbers in '%s', the model %lld  FAIL\n", (long long)have, full, (long long)n);
        exit(1);
    }
    for (int64_t i = 0; i < n; i++) out[i] = pl_load_f64(e->data, (polar_dtype)e->dtype, i);
    return out;
}

static inline double golden_one(const pl_safetensors *f, const char *key)
{
    double *p = golden_read(f, 1, key, ""), v = *p;
    free(p);
    return v;
}

static inline golden golden_open(void)
{
    golden g = {.shape = {.members = 1, .batch = IMAGES, .image = 32, .patch = 8, .width = 48, .depth = 2, .heads = 3, .mlp_ratio = 4, .classes = 10, .dtype = POLAR_DTYPE_F64}};    /* vit.json */
    TEST_TRY(pl_safetensors_open(&g.f, test_golden_path("vit.safetensors")));
    vit_net r = vit_open("ref", &g.shape, 1);
    g.x = golden_read(g.f, IMAGES * vit_pixels(&g.shape), "x", "");
    g.logits = golden_read(g.f, IMAGES * 10, "logits", "");
    g.loss = golden_one(g.f, "loss");
    g.t = model_new(IMAGES * 10);
    const pl_safetensors_entry *y = pl_safetensors_find(g.f, "y");
    for (int64_t i = 0; y && i < IMAGES && y->bytes == IMAGES * 8; i++) g.t[10 * i + ((const int64_t *)y->data)[i]] = 1;
    g.w = model_new(r.total);
    g.grad = model_new(r.total);
    for (int64_t i = 0, at = 0; i < r.count; at += r.params[i].rows * r.params[i].cols, i++) {
        int64_t n = r.params[i].rows * r.params[i].cols;
        double *w = golden_read(g.f, n, "param.", r.params[i].name), *d = golden_read(g.f, n, "grad.", r.params[i].name);
        memcpy(g.w + at, w, (size_t)n * sizeof *w);
        memcpy(g.grad + at, d, (size_t)n * sizeof *d);
        free(w), free(d);
    }
    int64_t arrays = 0;
    for (int64_t i = 0; i < pl_safetensors_count(g.f); i++) arrays += !strncmp(pl_safetensors_view(g.f, i)->name, "param.", 6);
    test_true("the golden file's arrays are the model's", arrays == r.count, "%lld and %lld", (long long)arrays, (long long)r.count);
    vit_close(&r);
    return g;
}

static inline void golden_close(golden *g)
{
    pl_safetensors_close(g->f);
    free(g->w), free(g->x), free(g->t), free(g->logits), free(g->grad);
}

#endif
