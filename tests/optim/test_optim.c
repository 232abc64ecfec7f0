/* test_optim.c -- the rules against golden trajectories, and the ways of saying the same thing that must
 * give the same bits.
 *
 * Golden (tests/golden/optim.safetensors): step i uses lr 0.02 (i+1)/6, decay 0.05 (muon 0), Newton-Schulz in
 * fp64 without epsilon.
 */
#include "base/safetensors.h"
#include <unistd.h>

#include "fixtures/optim_fixture.h"
#include "math/bf16_elem.h"

#define STEPS        6
#define GOLDEN_RULES 6 /* the first of the list; every rule: test_optim_rules.c */

static double *golden_new(const pl_safetensors *f, const char *shape, const char *rule, const char *what,
                          int64_t *rows, int64_t *cols)
{
    char name[96];
    snprintf(name, sizeof name, "traj.%s.%s.%s", shape, rule, what);
    const pl_safetensors_entry *e = pl_safetensors_find(f, name);
    if (!e) {
        printf("%s is not in the golden file\n", name);
        exit(1);
    }
    *rows = e->shape[0];
    *cols = e->shape[1];
    double *x = map_new(*rows * *cols);
    for (int64_t i = 0; i < *rows * *cols; i++) x[i] = pl_load_f64(e->data, (polar_dtype)e->dtype, i);
    return x;
}

/* Six golden steps from golden gradients, each moved by `noise` times its size; w1 and w6 come back. */
static void run_golden(double *w1, double *w6, const char *device, const pl_safetensors *f, const char *shape,
                       const char *rule, polar_dtype dtype, double noise)
{
    int64_t rows, cols;
    double *w0 = golden_new(f, shape, rule, "w0", &rows, &cols), *moved = map_new(rows * cols);
    param_spec spec = {.name = "w", .ndim = 2, .shape = {rows, cols}, .route = POLAR_ROUTE_MATRIX};
    polar_optim_opts o;
    optim_rig r;
    TEST_TRY(polar_optim_opts_parse(&o, rule));
    o.rule.map.precision = dtype;
    TEST_TRY(rig_open(&r, device, &spec, 1, dtype, dtype, &o));
    TEST_TRY(pl_mat_upload_f64(r.q, &r.W[0], w0));
    map_fill(moved, rows * cols, 44);
    for (int i = 0; i < STEPS; i++) {
        char what[8];
        snprintf(what, sizeof what, "g%d", i);
        double *g = golden_new(f, shape, rule, what, &rows, &cols);
        for (int64_t k = 0; k < rows * cols; k++) g[k] *= 1 + noise * moved[k];
        TEST_TRY(pl_mat_upload_f64(r.q, &r.G[0], g));
        TEST_TRY(polar_optim_set_lr(r.opt, 0.02 * (i + 1) / 6, 0));
        TEST_TRY(polar_optim_step(r.opt, r.q));
        if (i == 0) TEST_TRY(pl_mat_download_f64(r.q, &r.W[0], w1));
        free(g);
    }
    TEST_TRY(pl_mat_download_f64(r.q, &r.W[0], w6));
    rig_close(&r);
    free(w0);
    free(moved);
}

/* fp64: test_map.c's bound of the map, 9.2e-12 of sD, whose norm is at most that of W here (sqrt(max side)
 * against sqrt(rows cols)); lr adds up to 0.07 over the six steps: 6.5e-13, and the weights are rounded six
 * times: 1e-12. Directions without a map err by some u. fp32: every rounding acts like a relative change u =
 * 2^-24 of an operand, and a step has about 5 sqrt(3 n) of them in Newton-Schulz (test_map.c) and ten
 * outside; what one such change does to the trajectory is measured on the spot, in fp64 with gradients moved
 * by u. Weights themselves are rounded six times. */
static void golden_rule(const char *device, const pl_safetensors *f, const char *shape, const char *rule)
{
    int64_t rows, cols;
    double *want1 = golden_new(f, shape, rule, "w1", &rows, &cols),
           *want6 = golden_new(f, shape, rule, "w6", &rows, &cols), u = ldexp(1, -24);
    int64_t n = rows * cols;
    double *w1 = map_new(n), *w6 = map_new(n), *m1 = map_new(n), *m6 = map_new(n);
    char line[96];
    run_golden(w1, w6, device, f, shape, rule, POLAR_DTYPE_F64, 0);
    snprintf(line, sizeof line, "golden %s %s fp64, steps 1 and 6", rule, shape);
    test_bound(line, fmax(map_distance(w1, want1, n), map_distance(w6, want6, n)), 1e-12,
               "0.07 of the map's 9.2e-12");
    run_golden(m1, m6, device, f, shape, rule, POLAR_DTYPE_F64, u);
    double sensitivity = fmax(map_distance(m6, w6, n), map_distance(m1, w1, n)),
           side = (double)(rows > cols ? rows : cols);
    run_golden(w1, w6, device, f, shape, rule, POLAR_DTYPE_F32, 0);
    snprintf(line, sizeof line, "golden %s %s fp32, steps 1 and 6", rule, shape);
    test_bound(line, fmax(map_distance(w1, want1, n), map_distance(w6, want6, n)),
               (5 * sqrt(3 * side) + 10) * sensitivity + 6 * u, "(5 sqrt(3 n) + 10) moves by u + 6 u");
    free(want1);
    free(want6);
    free(w1);
    free(w6);
    free(m1);
    free(m6);
}

static void golden(const char *device)
{
    pl_safetensors *f;
    int found = 0;
    TEST_TRY(pl_safetensors_open(&f, test_golden_path("optim.safetensors")));
    for (int64_t i = 0; i < pl_safetensors_count(f); i++) {
        char shape[24] = "";
        const char *name = pl_safetensors_view(f, i)->name, *tail = strstr(name, ".sgdm.w0");
        if (strncmp(name, "traj.", 5) || !tail) continue;
        snprintf(shape, sizeof shape, "%.*s", (int)(tail - name - 5), name + 5);
        for (int k = 0; k < GOLDEN_RULES; k++, found++) golden_rule(device, f, shape, polar_rule_name(k));
    }
    test_true("golden trajectories", found >= 24, "%d", found);
    pl_safetensors_close(f);
}

/* A small model: a fused qkv, two square blocks, a filter, a bias, a head. */
static const param_spec model[] = {
    {.name = "blocks.0.qkv.weight", .ndim = 2, .shape = {36, 12}, .row_blocks = 3},
    {.name = "blocks.0.proj.weight", .ndim = 2, .shape = {12, 12}},
    {.name = "blocks.1.proj.weight", .ndim = 2, .shape = {12, 12}},
    {.name = "blocks.0.conv.weight", .ndim = 4, .shape = {8, 3, 2, 2}},
    {.name = "blocks.0.qkv.bias", .ndim = 1, .shape = {36}},
    {.name = "head.weight", .ndim = 2, .shape = {5, 12}},
};
#define MODEL 6

static polar_optim_opts model_opts(const char *rule)
{
    polar_optim_opts o;
    TEST_TRY(polar_optim_opts_parse(&o, rule));
    o.matrix_names = "blocks.*";
    o.lr = 0.01;
    o.aux_lr = 0.002;
    o.weight_decay = 0.03;
    o.schedule = (polar_schedule){2, 12, 1e-3};
    return o;
}

static void run_steps(optim_rig *r, int64_t from, int64_t to)
{
    for (int64_t t = from; t < to; t++) TEST_TRY(rig_step(r, t));
}

/* qkv in three row blocks = three parameters; a filter = its flattened matrix; both to the bit. */
static void equal_views(const char *device, const char *rule)
{
    static const param_spec whole[] = {{.name = "qkv", .ndim = 2, .shape = {36, 12}, .row_blocks = 3},
                                       {.name = "conv", .ndim = 4, .shape = {8, 3, 2, 2}}};
    static const param_spec parts[] = {{.name = "q", .ndim = 2, .shape = {12, 12}},
                                       {.name = "k", .ndim = 2, .shape = {12, 12}},
                                       {.name = "v", .ndim = 2, .shape = {12, 12}},
                                       {.name = "conv", .ndim = 2, .shape = {8, 12}}};
    optim_rig a, b;
    polar_optim_opts o = model_opts(rule);
    o.matrix_names = NULL;
    char line[96];
    int64_t bad = 0;
    TEST_TRY(rig_open(&a, device, whole, 2, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o));
    TEST_TRY(rig_open(&b, device, parts, 4, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o));
    double w[432], c[96], g[432];
    map_fill(w, 432, 1);
    map_fill(c, 96, 2);
    TEST_TRY(pl_mat_upload_f64(a.q, &a.W[0], w));
    TEST_TRY(pl_mat_upload_f64(a.q, &a.W[1], c));
    for (int k = 0; k < 3; k++) TEST_TRY(pl_mat_upload_f64(b.q, &b.W[k], w + 144 * k));
    TEST_TRY(pl_mat_upload_f64(b.q, &b.W[3], c));
    for (int t = 0; t < 4; t++) {
        map_fill(g, 432, 30 + (uint64_t)t);
        TEST_TRY(pl_mat_upload_f64(a.q, &a.G[0], g));
        TEST_TRY(pl_mat_upload_f64(a.q, &a.G[1], g));
        for (int k = 0; k < 3; k++) TEST_TRY(pl_mat_upload_f64(b.q, &b.G[k], g + 144 * k));
        TEST_TRY(pl_mat_upload_f64(b.q, &b.G[3], g));
        TEST_TRY(polar_optim_step(a.opt, a.q));
        TEST_TRY(polar_optim_step(b.opt, b.q));
    }
    double *qkv = rig_weights(&a, 0), *conv = rig_weights(&a, 1), *flat = rig_weights(&b, 3);
    for (int k = 0; k < 3; k++) {
        double *part = rig_weights(&b, k);
        bad += map_mismatches(qkv + 144 * k, part, 144);
        free(part);
    }
    bad += map_mismatches(conv, flat, 96);
    snprintf(line, sizeof line, "%s: row blocks and flattening", rule);
    test_exact(line, bad);
    free(qkv);
    free(conv);
    free(flat);
    rig_close(&a);
    rig_close(&b);
}

/* Three members in one step = three optimisers; an inactive one is not touched, not even by NaN. */
static void equal_members(const char *device, const char *rule)
{
    enum { R = 10, C = 14, N = R * C, MEMBERS = 4 };
    static const param_spec stacked[] = {{.name = "w", .ndim = 3, .shape = {MEMBERS, R, C}},
                                         {.name = "b", .ndim = 2, .shape = {MEMBERS, C}}},
                            single[] = {{.name = "w", .ndim = 2, .shape = {R, C}},
                                        {.name = "b", .ndim = 1, .shape = {C}}};
    double w[MEMBERS * N], b[MEMBERS * C], g[MEMBERS * N];
    optim_rig all;
    polar_optim_opts o = model_opts(rule);
    o.matrix_names = NULL;
    o.members = MEMBERS;
    char line[96];
    int64_t bad = 0;
    map_fill(w, MEMBERS * N, 3);
    map_fill(b, MEMBERS * C, 4);
    TEST_TRY(rig_open(&all, device, stacked, 2, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o));
    TEST_TRY(pl_mat_upload_f64(all.q, &all.W[0], w));
    TEST_TRY(pl_mat_upload_f64(all.q, &all.W[1], b));
    for (int m = 0; m < MEMBERS; m++)
        TEST_TRY(polar_optim_set_member(all.opt, m, 0.01 * (m + 1), 0.001 * (m + 1), 0.1 * m, 0.2, m != 3));
    for (int t = 0; t < 3; t++) {
        map_fill(g, MEMBERS * N, 60 + (uint64_t)t);
        for (int k = 0; k < N; k++) g[3 * N + k] = NAN;
        TEST_TRY(pl_mat_upload_f64(all.q, &all.G[0], g));
        for (int k = 0; k < C; k++) g[3 * C + k] = NAN;
        TEST_TRY(pl_mat_upload_f64(all.q, &all.G[1], g));
        TEST_TRY(polar_optim_step(all.opt, all.q));
    }
    double *wa = rig_weights(&all, 0), *ba = rig_weights(&all, 1);
    o.members = 1;
    for (int m = 0; m < MEMBERS - 1; m++) {
        optim_rig one;
        TEST_TRY(rig_open(&one, device, single, 2, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o));
        TEST_TRY(pl_mat_upload_f64(one.q, &one.W[0], w + m * N));
        TEST_TRY(pl_mat_upload_f64(one.q, &one.W[1], b + m * C));
        TEST_TRY(polar_optim_set_member(one.opt, 0, 0.01 * (m + 1), 0.001 * (m + 1), 0.1 * m, 0.2, 1));
        for (int t = 0; t < 3; t++) {
            map_fill(g, MEMBERS * N, 60 + (uint64_t)t);
            TEST_TRY(pl_mat_upload_f64(one.q, &one.G[0], g + m * N));
            TEST_TRY(pl_mat_upload_f64(one.q, &one.G[1], g + m * C));
            TEST_TRY(polar_optim_step(one.opt, one.q));
        }
        double *w1 = rig_weights(&one, 0), *b1 = rig_weights(&one, 1);
        bad += map_mismatches(wa + m * N, w1, N) + map_mismatches(ba + m * C, b1, C);
        free(w1);
        free(b1);
        rig_close(&one);
    }
    bad += map_mismatches(wa + 3 * N, w + 3 * N, N) + map_mismatches(ba + 3 * C, b + 3 * C, C);
    snprintf(line, sizeof line, "%s: members, one of them off", rule);
    test_exact(line, bad);
    free(wa);
    free(ba);
    rig_close(&all);
}

/* 4 + 4 steps through a file = 8 steps, for f32 and for bf16 weights. */
static void resume(const char *device, const char *rule, polar_dtype weights)
{
    char path[64], line[96];
    optim_rig straight, first, second;
    polar_optim_opts o = model_opts(rule);
    snprintf(path, sizeof path, "/tmp/polar_optim_%d.safetensors", (int)getpid());
    TEST_TRY(rig_open(&straight, device, model, MODEL, weights, POLAR_DTYPE_F32, &o));
    TEST_TRY(rig_open(&first, device, model, MODEL, weights, POLAR_DTYPE_F32, &o));
    TEST_TRY(rig_open(&second, device, model, MODEL, weights, POLAR_DTYPE_F32, &o));
    run_steps(&straight, 0, 8);
    TEST_TRY(polar_optim_set_lr(first.opt, o.lr, o.aux_lr));
    run_steps(&first, 0, 4);
    TEST_TRY(polar_optim_save(first.opt, first.q, path));
    for (int i = 0; i < MODEL; i++) {
        double *w = rig_weights(&first, i);
        TEST_TRY(pl_mat_upload_f64(second.q, &second.W[i], w));
        free(w);
    }
    TEST_TRY(polar_optim_load(second.opt, second.q, path));
    run_steps(&second, 4, 8);
    snprintf(line, sizeof line, "%s: resumed run, %s weights", rule, polar_dtype_name(weights));
    test_exact(line, rig_mismatches(&straight, &second) + (polar_optim_get_step(second.opt) != 8));
    remove(path);
    rig_close(&straight);
    rig_close(&first);
    rig_close(&second);
}

/* Gradients that move from step to step, in bf16 too, and with ops that look at them beside the steps (skip);
 * and gradients are const. */
static void moving_gradients(const char *device, const char *rule, polar_skip skip)
{
    static const param_spec spec[] = {{.name = "w", .ndim = 2, .shape = {9, 16}},
                                      {.name = "v", .ndim = 2, .shape = {40, 70}}};
    enum { N = 2, MOST = 2800 };
    char line[96];
    optim_rig a, b;
    polar_optim_opts o = model_opts(rule);
    pl_mat other[N];
    double *g = map_new(MOST), *back = map_new(MOST);
    int64_t changed = 0;
    o.matrix_names = NULL, o.skip_nonfinite = skip;
    TEST_TRY(rig_open(&a, device, spec, N, POLAR_DTYPE_F32, POLAR_DTYPE_BF16, &o));
    TEST_TRY(rig_open(&b, device, spec, N, POLAR_DTYPE_F32, POLAR_DTYPE_BF16, &o));
    for (int i = 0; i < N; i++)
        TEST_TRY(pl_mat_alloc(&other[i], b.dev, POLAR_DTYPE_BF16, 1, 1, b.elements[i]));
    for (int t = 0; t < 6; t++) {
        for (int i = 0; i < N; i++) {
            pl_mat *to = t % 2 ? &other[i] : &b.G[i];
            map_fill(g, a.elements[i], 80 + (uint64_t)t);
            TEST_TRY(pl_mat_upload_f64(a.q, &a.G[i], g));
            TEST_TRY(pl_mat_upload_f64(b.q, to, g));
            TEST_TRY(polar_optim_set_grad(b.opt, i, to->data));
        }
        TEST_TRY(polar_optim_step(a.opt, a.q));
        TEST_TRY(polar_optim_step(b.opt, b.q));
        for (int i = 0; i < N; i++) { /* as bf16 holds them */
            TEST_TRY(pl_mat_download_f64(b.q, t % 2 ? &other[i] : &b.G[i], back));
            map_fill(g, a.elements[i], 80 + (uint64_t)t);
            for (int64_t k = 0; k < a.elements[i]; k++) changed += back[k] != pl_bf16_round_f64(g[k]);
        }
    }
    snprintf(line, sizeof line, "%s: gradients that move%s", rule, skip ? ", are looked at" : "");
    test_exact(line, rig_mismatches(&a, &b));
    snprintf(line, sizeof line, "%s: gradients are const", rule);
    test_exact(line, changed);
    for (int i = 0; i < N; i++) pl_mat_free(&other[i], b.dev);
    free(g);
    free(back);
    rig_close(&a);
    rig_close(&b);
}

/* prepare + enqueue = step, and update norms are those of the weights' differences. */
static void norms(const char *device)
{
    optim_rig r;
    polar_optim_opts o = model_opts("muon");
    polar_param_stats stats[MODEL];
    double worst = 0;
    o.measure = 1;
    o.weight_decay = o.aux_weight_decay = 0;
    o.schedule = (polar_schedule){0};
    TEST_TRY(rig_open(&r, device, model, MODEL, POLAR_DTYPE_F64, POLAR_DTYPE_F32, &o));
    double *before[MODEL];
    for (int i = 0; i < MODEL; i++) before[i] = rig_weights(&r, i);
    TEST_TRY(rig_step(&r, 0));
    TEST_TRY(polar_optim_stats(r.opt, r.q, stats));
    for (int i = 0; i < MODEL; i++) {
        double *after = rig_weights(&r, i), sum = 0;
        for (int64_t k = 0; k < r.elements[i]; k++)
            sum += (after[k] - before[i][k]) * (after[k] - before[i][k]);
        worst = fmax(worst, fabs(sqrt(sum) / stats[i].update_norm - 1));
        free(after);
        free(before[i]);
    }
    /* Weights of size 1 moved by lr s D, of entries no smaller than 1e-5: one rounding of the weight is 1e-16
     * / 1e-5 of it. */
    test_bound("update norms", worst, 1e-10, "u64 |w| / |update|");
    test_true("effective lr of the head",
              fabs(stats[5].effective_lr - 0.002) < 1e-15 && stats[5].route == POLAR_ROUTE_AUX, "%g",
              stats[5].effective_lr);
    test_true("scale of the qkv blocks", stats[0].scale == 1 && stats[0].blocks == 3 && stats[0].rows == 12,
              "%g", stats[0].scale);
    printf("%s", polar_optim_report(r.opt));
    rig_close(&r);
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    golden(device);
    for (int k = 0; polar_rule_name(k); k++) {
        equal_views(device, polar_rule_name(k));
        equal_members(device, polar_rule_name(k));
        resume(device, polar_rule_name(k), POLAR_DTYPE_F32);
    }
    resume(device, "polaradamw", POLAR_DTYPE_BF16);
    for (int k = 0; polar_rule_name(k); k++) {
        moving_gradients(device, polar_rule_name(k), POLAR_SKIP_NEVER);
        moving_gradients(device, polar_rule_name(k), POLAR_SKIP_NONFINITE);
    }
    norms(device);
    return test_end();
}
