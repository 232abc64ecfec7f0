/* test_so3_use.c -- an SO(3) model in use: members independent of their mates, smaller batches, graphs,
 * initial weights, costs, misuse, memory that runs out.
 *
 *     ctest -R test_so3_use
 */
#include "base/alloc.h"
#include "so3_model_fixture.h"

enum { B = 3, N = 9, H = 6, LAYERS = 3 };

/* Member e's part of arrays stored as (members, n) one after the other. */
static void member_of(const so3_net *r, double *out, const double *all, int64_t e, int64_t members)
{
    for (int64_t k = 0, at = 0; k < r->count; k++) {
        int64_t n = r->params[k].rows * r->params[k].cols;
        memcpy(out + at, all + members * at + e * n, (size_t)n * sizeof *out);
        at += n;
    }
}

/* ---- members ------------------------------------------------------------------------------------ */

/* Three members with their own weights and clouds, the middle one with a NaN in its clouds: the others' bits
 * are those of a model of one. */
static void ensemble(const char *device, polar_dtype dtype, int64_t clouds, int64_t points, int64_t width)
{
    enum { E = 3 };
    pl_so3_shape all = so3_shape(E, clouds, points, width, LAYERS, dtype),
                 one = so3_shape(1, clouds, points, width, LAYERS, dtype);
    so3_net a = so3_open(device, &all, 1), s = so3_open(device, &one, 1);
    int64_t n = s.total, nx = clouds * points * 3, bad[3] = {0};
    double *x = model_new(E * nx), *y = model_new(E * clouds), *w = model_new(E * n), *g = model_new(E * n),
           *p = model_new(E * clouds), *w1 = model_new(n), *g1 = model_new(n), *part = model_new(n),
           *p1 = model_new(clouds);
    double loss[E], loss1;
    uint64_t seeds[E] = {5, 6, 7};
    char line[96];
    so3_clouds(x, E * nx, 21);
    so3_clouds(y, E * clouds, 22);
    for (int poisoned = 0; poisoned < 2; poisoned++) {
        if (poisoned) x[nx + 4] = NAN;
        TEST_TRY(pl_so3_init(a.m, a.q, seeds));
        so3_get(&a, w, 0);
        so3_run(&a, clouds, x, y, loss, p, g);
        for (int64_t e = 0; e < E; e++) {
            if (poisoned && e == 1) continue;
            member_of(&s, w1, w, e, E);
            so3_set_weights(&s, w1);
            so3_run(&s, clouds, x + e * nx, y + e * clouds, &loss1, p1, g1);
            member_of(&s, part, g, e, E);
            bad[0] += model_mismatches(p + e * clouds, p1, clouds);
            bad[1] += model_mismatches(part, g1, n);
            bad[2] += model_mismatches(&loss[e], &loss1, 1);
        }
        snprintf(line, sizeof line, "%s width %lld: three members%s = three models", polar_dtype_name(dtype),
                 (long long)width, poisoned ? ", one NaN," : "");
        test_exact(line, bad[0] + bad[1] + bad[2]);
    }
    test_true("the poisoned member's loss is NaN", isnan(loss[1]) && !isnan(loss[0]) && !isnan(loss[2]),
              "%g, %g, %g", loss[0], loss[1], loss[2]);
    so3_close(&a);
    so3_close(&s);
    free(x), free(y), free(w), free(g), free(p), free(w1), free(g1), free(part), free(p1);
}

/* B clouds in a model made for more, trained or not: the bits of a model made for B; a full batch afterwards
 * still works. */
static void smaller_batch(const char *device)
{
    enum { E = 2, MOST = 5 };
    pl_so3_shape big = so3_shape(E, MOST, N, H, LAYERS, POLAR_DTYPE_F32),
                 fit = so3_shape(E, B, N, H, LAYERS, POLAR_DTYPE_F32);
    so3_net a = so3_open(device, &big, 1), s = so3_open(device, &fit, 1), plain = so3_open(device, &big, 0);
    int64_t n = E * s.total;
    double *x = model_new(E * MOST * N * 3), *y = model_new(E * MOST), *g = model_new(n), *g1 = model_new(n),
           p[E * MOST], p1[E * MOST], p2[E * MOST];
    uint64_t seeds[E] = {1, 2};
    so3_clouds(x, E * MOST * N * 3, 23);
    so3_clouds(y, E * MOST, 24);
    TEST_TRY(pl_so3_init(a.m, a.q, seeds));
    TEST_TRY(pl_so3_init(s.m, s.q, seeds));
    TEST_TRY(pl_so3_init(plain.m, plain.q, seeds));
    so3_run(&a, MOST, x, y, NULL, p1, g);
    so3_run(&a, B, x, y, NULL, p, g);
    so3_run(&s, B, x, y, NULL, p1, g1);
    test_exact("fewer clouds than the batch, trained",
               model_mismatches(p, p1, E * B) + model_mismatches(g, g1, n));
    so3_run(&plain, B, x, NULL, NULL, p2, NULL);
    test_exact("... and in a model without gradients", model_mismatches(p2, p1, E * B));
    so3_run(&a, MOST, x, y, NULL, p, g);
    so3_run(&plain, MOST, x, NULL, NULL, p2, NULL);
    test_exact("... and a full batch afterwards", model_mismatches(p, p2, E * MOST));
    so3_close(&a);
    so3_close(&s);
    so3_close(&plain);
    free(x), free(y), free(g), free(g1);
}

/* One thread or three: the same bits. For devices whose name takes threads. */
static void threads(const char *device)
{
    pl_so3_shape shape = so3_shape(2, 8, 24, 16, LAYERS, POLAR_DTYPE_F32);
    double *x = model_new(2 * 8 * 24 * 3), *y = model_new(2 * 8), *g[2] = {NULL, NULL}, loss[2][2];
    int64_t n = 0;
    so3_clouds(x, 2 * 8 * 24 * 3, 25);
    so3_clouds(y, 2 * 8, 26);
    for (int i = 0; i < 2 && !strncmp(device, "cpu", 3); i++) {
        char name[96];
        snprintf(name, sizeof name, "%s%cthreads=%d", device, strchr(device, ':') ? ',' : ':', i ? 3 : 1);
        so3_net r = so3_open(name, &shape, 1);
        g[i] = model_new(n = 2 * r.total);
        TEST_TRY(pl_so3_init(r.m, r.q, (uint64_t[]){8, 9}));
        so3_run(&r, 8, x, y, loss[i], NULL, g[i]);
        so3_close(&r);
    }
    if (n)
        test_exact("one thread or three",
                   model_mismatches(g[0], g[1], n) + model_mismatches(loss[0], loss[1], 2));
    free(x), free(y), free(g[0]), free(g[1]);
}

/* ---- graphs ------------------------------------------------------------------------------------- */

static void graph_step(pl_queue *q, void *arg)
{
    so3_net *r = arg;
    pl_mat p = pl_so3_forward(r->m, q, r->x);
    PL_CALL(mse, q, .L = r->loss, .dP = r->dp, .P = p, .Y = r->y);
    pl_so3_backward(r->m, q, r->dp);
}

/* Captured once and replayed on other clouds: the bits of plain calls. */
static void in_a_graph(const char *device)
{
    pl_so3_shape shape = so3_shape(2, B, N, H, LAYERS, POLAR_DTYPE_F32);
    so3_net r = so3_open(device, &shape, 1), s = so3_open(device, &shape, 1);
    int64_t nx = 2 * B * N * 3, n = 2 * r.total, bad = 0;
    double *x = model_new(nx), *y = model_new(2 * B), *g = model_new(n), *g1 = model_new(n), loss[2],
           loss1[2];
    pl_graph *graph;
    TEST_TRY(pl_graph_create(&graph, r.dev));
    TEST_TRY(pl_so3_init(r.m, r.q, (uint64_t[]){3, 4}));
    TEST_TRY(pl_so3_init(s.m, s.q, (uint64_t[]){3, 4}));
    for (uint64_t t = 0; t < 3; t++) {
        so3_clouds(x, nx, 31 + t);
        so3_clouds(y, 2 * B, 41 + t);
        TEST_TRY(pl_mat_upload_f64(r.q, &r.x, x));
        TEST_TRY(pl_mat_upload_f64(r.q, &r.y, y));
        TEST_TRY(pl_graph_run(graph, r.q, graph_step, &r));
        TEST_TRY(polar_queue_sync(r.q));
        so3_get(&r, g, 1);
        TEST_TRY(pl_mat_download_f64(r.q, &r.loss, loss));
        so3_run(&s, B, x, y, loss1, NULL, g1);
        bad += model_mismatches(g, g1, n) + model_mismatches(loss, loss1, 2);
    }
    test_exact("forward and backward in a graph, three runs", bad);
    pl_graph_destroy(graph);
    so3_close(&r);
    so3_close(&s);
    free(x), free(y), free(g), free(g1);
}

/* ---- initial weights ---------------------------------------------------------------------------- */

static void initial_weights(const char *device)
{
    enum { E = 3 };
    static const char *const order[] = {"W_00.weight",      "W_00.bias",      "W_11",
                                        "message.0.weight", "message.0.bias", "message.2.weight",
                                        "message.2.bias",   "cg_proj.weight", "cg_proj.bias",
                                        "gate.weight",      "gate.bias"};
    static const char *const tail[] = {"readout.0.weight", "readout.0.bias", "readout.2.weight",
                                       "readout.2.bias"};
    pl_so3_shape shape = so3_shape(E, 1, 4, 16, 2, POLAR_DTYPE_F32),
                 one = so3_shape(1, 1, 4, 16, 2, POLAR_DTYPE_F64);
    so3_net r = so3_open(device, &shape, 0), s = so3_open(device, &one, 0);
    double *w = model_new(E * r.total), *w1 = model_new(r.total), *part = model_new(r.total);
    int64_t names = 0, outside = 0, gates = 0, drawn = 0;
    for (int64_t k = 0; k < r.count; k++) {
        char name[64];
        if (k < 22) snprintf(name, sizeof name, "layers.%lld.%s", (long long)k / 11, order[k % 11]);
        else snprintf(name, sizeof name, "%s", tail[k - 22]);
        names += strcmp(name, r.params[k].name) != 0;
    }
    test_true("names and order of the parameters", r.count == 26 && !names, "%lld arrays, %lld out of order",
              (long long)r.count, (long long)names);
    TEST_TRY(pl_so3_init(r.m, r.q, (uint64_t[]){10, 11, 12}));
    so3_get(&r, w, 0);
    /* U(-a, a), a = 1/sqrt(fan_in), over n numbers of all arrays as w/a in U(-1, 1): mean 0 within 5 sd of
     * sqrt(1/(3n)), mean square 1/3 within 5 sd of sqrt(4/(45 n)). */
    double sum = 0, square = 0;
    for (int64_t k = 0, at = 0; k < r.count; k++) {
        const pl_param *p = &r.params[k];
        for (int64_t i = 0; i < E * p->rows * p->cols; i++, at++) {
            if (!p->fan_in) {
                gates += w[at] != (strstr(p->name, "weight") ? 1 : 0);
                continue;
            }
            double v = w[at] * sqrt((double)p->fan_in);
            outside += !(fabs(w[at]) <= (double)(float)(1 / sqrt((double)p->fan_in)));
            sum += v, square += v * v, drawn++;
        }
    }
    double n = (double)drawn;
    test_true("initial weights within 1/sqrt(fan_in), gates 1, 0", !outside && !gates,
              "%lld outside, %lld gates off", (long long)outside, (long long)gates);
    test_bound("initial weights: mean", fabs(sum / n), 5 * sqrt(1 / (3 * n)), "5 sd");
    test_bound("initial weights: mean square - 1/3", fabs(square / n - 1.0 / 3), 5 * sqrt(4 / (45 * n)),
               "5 sd");
    /* One member alone, in double, has the weights it has among mates, in float; members and arrays are
     * uncorrelated: |sum v v'| within 5 sd of sqrt(n)/3. */
    TEST_TRY(pl_so3_init(s.m, s.q, (uint64_t[]){11}));
    so3_get(&s, w1, 0);
    member_of(&r, part, w, 1, E);
    test_exact("a member's weights do not depend on its mates", model_mismatches(part, w1, r.total));
    double dot = 0, shifted = 0, m = 0, ms = 0;
    member_of(&r, part, w, 0, E);
    for (int64_t k = 0, at = 0; k < r.count; at += r.params[k].rows * r.params[k].cols, k++) {
        const pl_param *p = &r.params[k];
        int64_t size = p->rows * p->cols, next = at + size;
        for (int64_t i = 0; p->fan_in && i < size; i++)
            dot += part[at + i] * w1[at + i] * (double)p->fan_in, m++;
        if (k + 1 < r.count && p->fan_in && r.params[k + 1].fan_in)
            for (int64_t i = 0; i < size && i < r.params[k + 1].rows * r.params[k + 1].cols; i++)
                shifted +=
                    part[at + i] * part[next + i] * sqrt((double)p->fan_in * (double)r.params[k + 1].fan_in),
                    ms++;
    }
    test_bound("two members are uncorrelated", fabs(dot), 5 * sqrt(m) / 3, "5 sd");
    test_bound("neighbouring arrays are uncorrelated", fabs(shifted), 5 * sqrt(ms) / 3, "5 sd");
    so3_close(&r);
    so3_close(&s);
    free(w), free(w1), free(part);
}

/* ---- costs -------------------------------------------------------------------------------------- */

static void costs(const char *device)
{
    polar_cost one, two, forward;
    pl_model_bytes bytes, half;
    pl_so3_shape shape = so3_shape(1, B, N, H, LAYERS, POLAR_DTYPE_F32), twice = shape;
    twice.members = 2;
    so3_net r = so3_open(device, &shape, 1);
    int64_t live = pl_alloc_live();
    TEST_TRY(pl_so3_cost(&one, &bytes, r.dev, &shape, 1));
    TEST_TRY(pl_so3_cost(&two, NULL, r.dev, &twice, 1));
    TEST_TRY(pl_so3_cost(&forward, &half, r.dev, &shape, 0));
    /* at least the products of cg_proj: 2 n h (h + nd) per layer forward, and twice that backward */
    double least = LAYERS * 2.0 * B * N * H * (H + H * (H + 1) / 2);
    test_true("a step's cost",
              PART(one.flops > 3 * least) && PART(forward.flops > least) &&
                  PART(two.flops == 2 * one.flops) && PART(two.ops == one.ops) && PART(one.ops > forward.ops),
              "%.3g FLOPs in %lld ops, %zu bytes of scratch", one.flops, (long long)one.ops,
              one.scratch_bytes);
    test_true("memory of a model",
              PART(bytes.weights >= 4 * (size_t)r.total) && PART(bytes.gradients == bytes.weights) &&
                  PART(half.gradients == 0) && PART(half.activations < bytes.activations),
              "weights %zu, gradients %zu, activations %zu, without training %zu", bytes.weights,
              bytes.gradients, bytes.activations, half.activations);
    test_true("nothing is kept", pl_alloc_live() == live, "%lld blocks", (long long)(pl_alloc_live() - live));
    so3_close(&r);
}

/* What a dry run promised is enough: with that much scratch reserved, and no more, a step asks for no further
 * piece. */
static void scratch_promise(const char *device)
{
    enum { batch = 64, points = 16, width = 16 };
    pl_so3_shape shape = so3_shape(1, batch, points, width, 2, POLAR_DTYPE_F32);
    so3_net r = so3_open(device, &shape, 1);
    polar_cost cost;
    double *x = model_new(batch * points * 3), *y = model_new(batch), *g = model_new(r.total);
    so3_clouds(x, batch * points * 3, 51);
    so3_clouds(y, batch, 52);
    TEST_TRY(pl_so3_cost(&cost, NULL, r.dev, &shape, 1));
    TEST_TRY(pl_so3_init(r.m, r.q, (uint64_t[]){1}));
    TEST_TRY(polar_queue_reserve(r.q, cost.scratch_bytes));
    size_t given = r.q->scratch.size[0];
    so3_run(&r, batch, x, y, NULL, NULL, g);
    test_true("the scratch of a dry run is enough", r.q->scratch.count == 1 && given == cost.scratch_bytes,
              "%zu bytes reserved of %zu, %d pieces in the end", given, cost.scratch_bytes,
              r.q->scratch.count);
    so3_close(&r);
    free(x), free(y), free(g);
}

/* ---- misuse ------------------------------------------------------------------------------------- */

static void refused(const char *what, polar_status st, polar_status want)
{
    test_true(what, st == want && *polar_error_message(), "%s",
              st == POLAR_OK ? "taken" : polar_error_message());
}

static void misuse(const char *device)
{
    pl_so3_shape shape = so3_shape(2, B, N, H, LAYERS, POLAR_DTYPE_F32), bad;
    so3_net r = so3_open(device, &shape, 1), plain = so3_open(device, &shape, 0);
    pl_so3 *m;
    bad = shape, bad.width = -1;
    refused("a negative width", pl_so3_create(&m, r.dev, &bad, 1), POLAR_E_ARG);
    bad = shape, bad.layers = 0;
    refused("no layers", pl_so3_create(&m, r.dev, &bad, 1), POLAR_E_ARG);
    bad = shape, bad.dtype = POLAR_DTYPE_BF16;
    refused("bf16", pl_so3_create(&m, r.dev, &bad, 1), POLAR_E_DTYPE);
    bad = shape, bad.eps = 0;
    refused("eps 0", pl_so3_create(&m, r.dev, &bad, 1), POLAR_E_ARG);
    bad = so3_shape(1 << 20, 1 << 20, 1 << 14, 1 << 12, 3, POLAR_DTYPE_F32);
    refused("more than memory", pl_so3_create(&m, r.dev, &bad, 1), POLAR_E_SHAPE);
    pl_so3_backward(r.m, r.q, r.dp);
    refused("backward before forward", polar_queue_sync(r.q), POLAR_E_STATE);
    pl_so3_backward(plain.m, plain.q, plain.dp);
    refused("backward without gradients", polar_queue_sync(plain.q), POLAR_E_STATE);
    pl_mat x = r.x;
    x.dtype = POLAR_DTYPE_F64;
    pl_so3_forward(r.m, r.q, x);
    refused("clouds in another format", polar_queue_sync(r.q), POLAR_E_DTYPE);
    x = r.x, x.batch = 3;
    pl_so3_forward(r.m, r.q, x);
    refused("three clouds for two members", polar_queue_sync(r.q), POLAR_E_SHAPE);
    x = r.x, x.batch = 8;
    pl_so3_forward(r.m, r.q, x);
    refused("more clouds than the batch", polar_queue_sync(r.q), POLAR_E_SHAPE);
    x = r.x, x.rows--;
    pl_so3_forward(r.m, r.q, x);
    refused("clouds of fewer points", polar_queue_sync(r.q), POLAR_E_SHAPE);
    pl_so3_destroy(NULL);
    so3_close(&r);
    so3_close(&plain);
}

/* ---- faults ------------------------------------------------------------------------------------- */

static polar_status life(pl_device *dev)
{
    pl_so3_shape shape = so3_shape(2, B, N, H, LAYERS, POLAR_DTYPE_F32);
    pl_so3 *m = NULL;
    pl_queue *q = NULL;
    polar_cost cost;
    pl_mat x = {0};
    polar_status st = pl_so3_cost(&cost, NULL, dev, &shape, 1);
    if (st == POLAR_OK) st = polar_queue_create(&q, dev, NULL);
    if (st == POLAR_OK) st = pl_so3_create(&m, dev, &shape, 1);
    if (st == POLAR_OK) st = pl_so3_init(m, q, (uint64_t[]){1, 2});
    if (st == POLAR_OK) st = pl_mat_alloc(&x, dev, shape.dtype, 2 * B, N, 3);
    if (st == POLAR_OK) {
        double zeros[2 * B * N * 3] = {0};
        st = pl_mat_upload_f64(q, &x, zeros);
    }
    if (st == POLAR_OK) {
        pl_mat p = pl_so3_forward(m, q, x);
        pl_so3_backward(m, q, p);
        st = polar_queue_sync(q);
    } else if (q) polar_queue_sync(q);
    pl_mat_free(&x, dev);
    pl_so3_destroy(m);
    polar_queue_destroy(q);
    return st;
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    ensemble(device, POLAR_DTYPE_F64, B, N, H);
    ensemble(device, POLAR_DTYPE_F32, B, N, H);
    ensemble(device, POLAR_DTYPE_F32, 8, 24, 16);
    threads(device);
    smaller_batch(device);
    in_a_graph(device);
    initial_weights(device);
    costs(device);
    scratch_promise(device);
    misuse(device);
    model_no_memory(device, life);
    return test_end();
}
