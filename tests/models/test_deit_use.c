/* test_deit_use.c -- a vision transformer in use: members independent of their mates, smaller batches,
 * graphs, costs, misuse, memory that runs out.
 *
 *     ctest -R test_deit_use
 */
#include "base/alloc.h"
#include "fixtures/deit_fixture.h"

enum { B = 3, CLASSES = 7 };

static pl_deit_shape tiny(int64_t E, int64_t batch, polar_dtype dtype, double drop_path)
{
    return (pl_deit_shape){.members = E,
                           .batch = batch,
                           .image = 8,
                           .patch = 2,
                           .width = 12,
                           .depth = 3,
                           .heads = 3,
                           .mlp_ratio = 2.5,
                           .classes = CLASSES,
                           .dtype = dtype,
                           .drop_path = drop_path};
}

/* ---- members ------------------------------------------------------------------------------------ */

/* Three members with their own weights, images and draws, the middle one with a NaN in its images: the
 * others' bits are those of a model of one. */
static void ensemble(const char *device, polar_dtype dtype, double drop_path)
{
    enum { E = 3 };
    pl_deit_shape all = tiny(E, B, dtype, drop_path), one = tiny(1, B, dtype, drop_path);
    vit_net a = vit_open(device, &all, 1), s = vit_open(device, &one, 1);
    int64_t n = s.total, nx = B * vit_pixels(&one), nz = B * CLASSES, bad = 0;
    double *x = model_new(E * nx), *t = model_new(E * nz), *w = model_new(E * n), *g = model_new(E * n),
           *z = model_new(E * nz), *w1 = model_new(n), *g1 = model_new(n), *part = model_new(n),
           *z1 = model_new(nz);
    double loss[E], loss1;
    uint64_t seeds[E] = {5, 6, 7};
    char line[96];
    vit_images(x, E * nx, 21);
    vit_targets(t, E * B, CLASSES, 22);
    for (int poisoned = 0; poisoned < 2; poisoned++) {
        if (poisoned) x[nx + 4] = NAN;
        TEST_TRY(pl_deit_init(a.m, a.q, seeds));
        pl_deit_set_drop(a.m, a.q, seeds, 11, B);
        vit_get(&a, w, 0);
        vit_run(&a, B, x, t, loss, z, g);
        for (int64_t e = 0; e < E; e++) {
            if (poisoned && e == 1) {
                bad += !isnan(loss[e]); /* that is how divergence is seen */
                continue;
            }
            vit_member(&s, w1, w, e, E);
            vit_set_weights(&s, w1);
            pl_deit_set_drop(s.m, s.q, &seeds[e], 11, B);
            vit_run(&s, B, x + e * nx, t + e * nz, &loss1, z1, g1);
            vit_member(&s, part, g, e, E);
            bad += model_mismatches(z + e * nz, z1, nz) + model_mismatches(part, g1, n) +
                   model_mismatches(&loss[e], &loss1, 1);
        }
        snprintf(line, sizeof line, "%s drop_path %.1f: three members%s", polar_dtype_name(dtype), drop_path,
                 poisoned ? ", one NaN" : "");
        test_exact(line, bad);
    }
    vit_close(&a);
    vit_close(&s);
    free(x), free(t), free(w), free(g), free(z), free(w1), free(g1), free(part), free(z1);
}

/* B images in a model made for more, trained or not: the bits of a model made for B; a full batch afterwards
 * still works. */
static void smaller_batch(const char *device, polar_dtype dtype)
{
    enum { E = 2, MOST = 5 };
    pl_deit_shape big = tiny(E, MOST, dtype, 0), fit = tiny(E, B, dtype, 0);
    vit_net a = vit_open(device, &big, 1), s = vit_open(device, &fit, 1), plain = vit_open(device, &big, 0);
    int64_t n = E * s.total, nx = E * MOST * vit_pixels(&big);
    double *x = model_new(nx), *t = model_new(E * MOST * CLASSES), *g = model_new(n), *g1 = model_new(n),
           z[E * MOST * CLASSES], z1[E * MOST * CLASSES], z2[E * MOST * CLASSES];
    uint64_t seeds[E] = {1, 2};
    vit_images(x, nx, 23);
    vit_targets(t, E * MOST, CLASSES, 24);
    TEST_TRY(pl_deit_init(a.m, a.q, seeds));
    TEST_TRY(pl_deit_init(s.m, s.q, seeds));
    TEST_TRY(pl_deit_init(plain.m, plain.q, seeds));
    vit_run(&a, MOST, x, t, NULL, z1, g);
    vit_run(&a, B, x, t, NULL, z, g);
    vit_run(&s, B, x, t, NULL, z1, g1);
    test_exact("fewer images than the batch, trained",
               model_mismatches(z, z1, E * B * CLASSES) + model_mismatches(g, g1, n));
    vit_run(&plain, B, x, NULL, NULL, z2, NULL);
    test_exact("... and in a model without gradients", model_mismatches(z2, z1, E * B * CLASSES));
    vit_run(&a, MOST, x, t, NULL, z, g);
    vit_run(&plain, MOST, x, NULL, NULL, z2, NULL);
    test_exact("... and a full batch afterwards", model_mismatches(z, z2, E * MOST * CLASSES));
    vit_close(&a);
    vit_close(&s);
    vit_close(&plain);
    free(x), free(t), free(g), free(g1);
}

/* One thread or three: the same bits. For devices whose name takes threads. */
static void threads(const char *device, polar_dtype dtype)
{
    pl_deit_shape shape = vit_small(8, dtype, 0.2);
    double *x = model_new(8 * vit_pixels(&shape)), *t = model_new(8 * 10), *g[2] = {NULL, NULL}, loss[2];
    int64_t n = 0;
    uint64_t seed = 8;
    vit_images(x, 8 * vit_pixels(&shape), 25);
    vit_targets(t, 8, 10, 26);
    for (int i = 0; i < 2 && !strncmp(device, "cpu", 3); i++) {
        char name[96];
        snprintf(name, sizeof name, "%s%cthreads=%d", device, strchr(device, ':') ? ',' : ':', i ? 3 : 1);
        vit_net r = vit_open(name, &shape, 1);
        g[i] = model_new(n = r.total);
        TEST_TRY(pl_deit_init(r.m, r.q, &seed));
        pl_deit_set_drop(r.m, r.q, &seed, 3, 8);
        vit_run(&r, 8, x, t, &loss[i], NULL, g[i]);
        vit_close(&r);
    }
    if (n)
        test_exact("one thread or three",
                   model_mismatches(g[0], g[1], n) + model_mismatches(&loss[0], &loss[1], 1));
    free(x), free(t), free(g[0]), free(g[1]);
}

/* ---- graphs ------------------------------------------------------------------------------------- */

/* Captured once and replayed on other images, draws and weights: the bits of plain calls. */
static void in_a_graph(const char *device, polar_dtype dtype)
{
    enum { E = 2 };
    pl_deit_shape shape = tiny(E, B, dtype, 0.5);
    vit_net r = vit_open(device, &shape, 1), s = vit_open(device, &shape, 1);
    int64_t nx = E * B * vit_pixels(&shape), n = E * r.total, bad = 0;
    double *x = model_new(nx), *t = model_new(E * B * CLASSES), *g = model_new(n), *g1 = model_new(n),
           loss[E], loss1[E];
    pl_graph *graph;
    TEST_TRY(pl_graph_create(&graph, r.dev));
    for (uint64_t i = 0; i < 3; i++) {
        uint64_t seeds[E] = {3 + i, 40 + i};
        vit_images(x, nx, 31 + i);
        vit_targets(t, E * B, CLASSES, 41 + i);
        TEST_TRY(pl_deit_init(r.m, r.q, seeds));
        TEST_TRY(pl_deit_init(s.m, s.q, seeds));
        pl_deit_set_drop(r.m, r.q, seeds, i, B);
        pl_deit_set_drop(s.m, s.q, seeds, i, B);
        TEST_TRY(pl_mat_upload_f64(r.q, &r.x, x));
        TEST_TRY(pl_mat_upload_f64(r.q, &r.t, t));
        TEST_TRY(pl_graph_run(graph, r.q, vit_step, &r));
        TEST_TRY(polar_queue_sync(r.q));
        vit_get(&r, g, 1);
        TEST_TRY(pl_mat_download_f64(r.q, &r.loss, loss));
        vit_run(&s, B, x, t, loss1, NULL, g1);
        bad += model_mismatches(g, g1, n) + model_mismatches(loss, loss1, E);
    }
    test_exact("forward and backward in a graph, three runs", bad);
    pl_graph_destroy(graph);
    vit_close(&r);
    vit_close(&s);
    free(x), free(t), free(g), free(g1);
}

/* ---- costs -------------------------------------------------------------------------------------- */

static void costs(const char *device)
{
    polar_cost one, two, forward;
    pl_model_bytes bytes, half;
    pl_deit_shape shape = PL_DEIT_TINY, twice = shape;
    pl_device *dev;
    shape.dtype = twice.dtype = POLAR_DTYPE_BF16;
    twice.members = 2;
    TEST_TRY(polar_device_open(&dev, device));
    int64_t live = pl_alloc_live();
    TEST_TRY(pl_deit_cost(&one, &bytes, dev, &shape, 1));
    TEST_TRY(pl_deit_cost(&two, NULL, dev, &twice, 1));
    TEST_TRY(pl_deit_cost(&forward, &half, dev, &shape, 0));
    /* the products of a forward: 197 tokens (12 C^2 of weights and 2 T C of attention, 12 blocks), 196
     * patches of 768 numbers, the head; twice that backward (a patch has no gradient) */
    double C = 192, T = 197, blocks = 2 * 32 * 12 * T * (12 * C * C + 2 * T * C),
           patches = 2 * 32 * 196 * 768 * C, head = 2 * 32 * 100 * C, least = blocks + patches + head;
    test_bound("FLOPs of DeiT-Tiny's forward, batch 32", forward.flops / least - 1, 0.05,
               "little beside products");
    test_bound("FLOPs of a step", one.flops / (3 * least - patches) - 1, 0.1,
               "scores once more, and little else");
    test_true(
        "... no fewer; members cost alike",
        forward.flops > least && one.flops > 3 * least - patches && fabs(two.flops / one.flops - 2) < 1e-12,
        "%.4g FLOPs in %lld ops, %zu bytes of scratch", one.flops, (long long)one.ops, one.scratch_bytes);
    test_true("memory of a model",
              PART(bytes.weights >= 4 * (size_t)5543716) && PART(bytes.gradients == bytes.weights) &&
                  PART(half.gradients == 0) && PART(half.activations < bytes.activations / 4),
              "weights %zu, gradients %zu, activations %zu, without training %zu", bytes.weights,
              bytes.gradients, bytes.activations, half.activations);
    test_true("nothing is kept", pl_alloc_live() == live, "%lld blocks", (long long)(pl_alloc_live() - live));
    polar_device_close(dev);
}

/* What a dry run promised is enough: with that much scratch reserved, and no more, a step asks for no further
 * piece. */
static void scratch_promise(const char *device, polar_dtype dtype)
{
    enum { batch = 72 }; /* more than the least piece of scratch, 1 MiB */
    pl_deit_shape shape = vit_small(batch, dtype, 0.1);
    vit_net r = vit_open(device, &shape, 1);
    polar_cost cost;
    double *x = model_new(batch * vit_pixels(&shape)), *t = model_new(batch * 10), *g = model_new(r.total);
    vit_images(x, batch * vit_pixels(&shape), 51);
    vit_targets(t, batch, 10, 52);
    TEST_TRY(pl_deit_cost(&cost, NULL, r.dev, &shape, 1));
    TEST_TRY(pl_deit_init(r.m, r.q, (uint64_t[]){1}));
    TEST_TRY(polar_queue_reserve(r.q, cost.scratch_bytes));
    size_t given = r.q->scratch.size[0];
    pl_deit_set_drop(r.m, r.q, (uint64_t[]){1}, 0, batch);
    vit_run(&r, batch, x, t, NULL, NULL, g);
    test_true("the scratch of a dry run is enough", r.q->scratch.count == 1 && given == cost.scratch_bytes,
              "%zu bytes reserved of %zu, %d pieces in the end", given, cost.scratch_bytes,
              r.q->scratch.count);
    vit_close(&r);
    free(x), free(t), free(g);
}

/* ---- misuse ------------------------------------------------------------------------------------- */

static void refused(const char *what, polar_status st, polar_status want)
{
    test_true(what, st == want && *polar_error_message(), "%s",
              st == POLAR_OK ? "taken" : polar_error_message());
}

static void misuse(const char *device)
{
    pl_deit_shape shape = tiny(2, B, POLAR_DTYPE_F32, 0.1);
    vit_net r = vit_open(device, &shape, 1), plain = vit_open(device, &shape, 0);
    static const struct {
        const char *what;
        polar_status code;
        size_t field;
        int64_t value;
    } sizes[] = {{"no heads", POLAR_E_ARG, offsetof(pl_deit_shape, heads), 0},
                 {"a negative width", POLAR_E_ARG, offsetof(pl_deit_shape, width), -12},
                 {"five heads of twelve channels", POLAR_E_SHAPE, offsetof(pl_deit_shape, heads), 5},
                 {"patches that do not fit", POLAR_E_SHAPE, offsetof(pl_deit_shape, patch), 3},
                 {"no images", POLAR_E_ARG, offsetof(pl_deit_shape, batch), 0},
                 {"no classes", POLAR_E_ARG, offsetof(pl_deit_shape, classes), 0}};
    pl_deit *m;
    pl_deit_shape bad;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        bad = shape;
        memcpy((char *)&bad + sizes[i].field, &sizes[i].value, sizeof(int64_t));
        refused(sizes[i].what, pl_deit_create(&m, r.dev, &bad, 1), sizes[i].code);
    }
    bad = shape, bad.mlp_ratio = NAN;
    refused("mlp_ratio NaN", pl_deit_create(&m, r.dev, &bad, 1), POLAR_E_ARG);
    bad = shape, bad.drop_path = 1;
    refused("drop_path 1", pl_deit_create(&m, r.dev, &bad, 1), POLAR_E_ARG);
    bad = shape, bad.dtype = (polar_dtype)7;
    refused("an unknown format", pl_deit_create(&m, r.dev, &bad, 1), POLAR_E_DTYPE);
    bad = shape, bad.members = 1 << 16, bad.batch = 1 << 20, bad.image = 1 << 14;
    refused("more than memory", pl_deit_create(&m, r.dev, &bad, 1), POLAR_E_SHAPE);
    pl_deit_backward(r.m, r.q, r.dz);
    refused("backward before forward", polar_queue_sync(r.q), POLAR_E_STATE);
    pl_deit_backward(plain.m, plain.q, plain.dz);
    refused("backward without gradients", polar_queue_sync(plain.q), POLAR_E_STATE);
    static const struct {
        const char *what;
        int64_t batch, rows;
    } inputs[] = {{"three images for two members", 3, 24},
                  {"more images than the batch", 8, 24},
                  {"images of fewer rows", 6, 23}};
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
        pl_mat x = r.x;
        x.batch = inputs[i].batch, x.rows = inputs[i].rows;
        pl_deit_forward(r.m, r.q, x);
        refused(inputs[i].what, polar_queue_sync(r.q), POLAR_E_SHAPE);
    }
    pl_deit_set_drop(r.m, r.q, (uint64_t[]){1, 2}, 0, B + 1);
    refused("draws for more images than the batch", polar_queue_sync(r.q), POLAR_E_ARG);
    pl_deit_set_drop(r.m, r.q, (uint64_t[]){1, 2}, 0, B - 1);
    pl_deit_forward(r.m, r.q, r.x);
    refused("draws for fewer images than the forward", polar_queue_sync(r.q), POLAR_E_STATE);
    pl_deit_destroy(NULL);
    vit_close(&r);
    vit_close(&plain);
}

/* ---- faults ------------------------------------------------------------------------------------- */

static polar_status life(pl_device *dev)
{
    pl_deit_shape shape = tiny(2, B, POLAR_DTYPE_BF16, 0.2);
    pl_deit *m = NULL;
    pl_queue *q = NULL;
    polar_cost cost;
    pl_mat x = {0};
    polar_status st = pl_deit_cost(&cost, NULL, dev, &shape, 1);
    if (st == POLAR_OK) st = polar_queue_create(&q, dev, NULL);
    if (st == POLAR_OK) st = pl_deit_create(&m, dev, &shape, 1);
    if (st == POLAR_OK) st = pl_deit_init(m, q, (uint64_t[]){1, 2});
    if (st == POLAR_OK) st = pl_mat_alloc(&x, dev, POLAR_DTYPE_F32, 2 * B, 24, 8);
    if (st == POLAR_OK) {
        double zeros[2 * B * 24 * 8] = {0};
        st = pl_mat_upload_f64(q, &x, zeros);
    }
    if (st == POLAR_OK) {
        pl_deit_set_drop(m, q, (uint64_t[]){1, 2}, 0, B);
        pl_mat z = pl_deit_forward(m, q, x);
        pl_deit_backward(m, q, z);
        st = polar_queue_sync(q);
    } else if (q) polar_queue_sync(q);
    pl_mat_free(&x, dev);
    pl_deit_destroy(m);
    polar_queue_destroy(q);
    return st;
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    static const polar_dtype formats[] = {POLAR_DTYPE_F64, POLAR_DTYPE_F32, POLAR_DTYPE_BF16};
    for (int f = 0; f < 3; f++) {
        ensemble(device, formats[f], 0);
        ensemble(device, formats[f], 0.5);
    }
    for (int f = 1; f < 3; f++) {
        smaller_batch(device, formats[f]);
        threads(device, formats[f]);
        in_a_graph(device, formats[f]);
        scratch_promise(device, formats[f]);
    }
    costs(device);
    misuse(device);
    model_no_memory(device, life);
    return test_end();
}
