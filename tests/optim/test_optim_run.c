/* test_optim_run.c -- the same step by other ways: prepare and enqueue, the caller's own graph, several
 * queues and optimisers, threads; Schur groups; live values between captured steps (on guard every replay is
 * compared with a fresh recording). All expectations are exact.
 *
 *     ctest -R test_optim_run
 */
#include "fixtures/optim_fixture.h"

static const param_spec model[] = {{.name = "qkv", .ndim = 2, .shape = {24, 8}, .row_blocks = 3},
                                   {.name = "proj", .ndim = 2, .shape = {8, 8}},
                                   {.name = "fc", .ndim = 2, .shape = {20, 8}},
                                   {.name = "bias", .ndim = 1, .shape = {24}}};
#define MODEL 4

static polar_optim_opts model_opts(const char *rule)
{
    polar_optim_opts o;
    TEST_TRY(polar_optim_opts_parse(&o, rule));
    o.lr = 0.01, o.aux_lr = 0.002, o.weight_decay = 0.03;
    o.schedule = (polar_schedule){2, 12, 1e-3};
    return o;
}

static void upload_gradients(optim_rig *r, int64_t t)
{
    for (int i = 0; i < r->n; i++) {
        double *g = map_new(r->elements[i]);
        rig_gradient(g, r->elements[i], i, t);
        TEST_TRY(pl_mat_upload_f64(r->q, &r->G[i], g));
        free(g);
    }
}

/* ---- other ways of making a step ---------------------------------------------------------------- */

static void enqueue(pl_queue *q, void *arg)
{
    TEST_TRY(polar_optim_enqueue(arg, q));
}

/* step = prepare + enqueue = prepare + enqueue captured by the caller. */
static void by_hand(const char *device, const char *rule, const char *map)
{
    optim_rig step, hand, graph;
    pl_graph *g;
    polar_optim_opts o = model_opts(rule);
    char line[96];
    if (o.rule.map.kind != POLAR_MAP_NONE) TEST_TRY(polar_map_opts_parse(&o.rule.map, map));
    TEST_TRY(rig_open(&step, device, model, MODEL, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o));
    TEST_TRY(rig_open(&hand, device, model, MODEL, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o));
    TEST_TRY(rig_open(&graph, device, model, MODEL, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o));
    TEST_TRY(pl_graph_create(&g, graph.dev));
    for (int t = 0; t < 4; t++) {
        TEST_TRY(rig_step(&step, t));
        upload_gradients(&hand, t);
        TEST_TRY(polar_optim_prepare(hand.opt, hand.q));
        TEST_TRY(polar_optim_enqueue(hand.opt, hand.q));
        upload_gradients(&graph, t);
        TEST_TRY(polar_optim_prepare(graph.opt, graph.q));
        /* an SVD is not captured */
        if (o.rule.map.kind == POLAR_MAP_EXACT) TEST_TRY(polar_optim_enqueue(graph.opt, graph.q));
        else TEST_TRY(pl_graph_run(g, graph.q, enqueue, graph.opt));
    }
    snprintf(line, sizeof line, "%s %s: by hand, in a caller's graph", rule, map);
    test_exact(line, rig_mismatches(&step, &hand) + rig_mismatches(&step, &graph) +
                         (polar_optim_get_step(hand.opt) != 4));
    pl_graph_destroy(g);
    rig_close(&step);
    rig_close(&hand);
    rig_close(&graph);
}

/* The model cut in two optimisers on one queue, nobody waiting between them. */
static void two_optimisers(const char *device)
{
    optim_rig whole, cut;
    polar_optim *part[2];
    polar_optim_opts o = model_opts("polaradamw");
    o.allow_no_matrix = 1;
    TEST_TRY(rig_open(&whole, device, model, MODEL, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o));
    TEST_TRY(rig_open(&cut, device, model, MODEL, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o));
    for (int k = 0; k < 2; k++) {
        polar_param p[2];
        for (int i = 0; i < 2; i++) {
            const param_spec *s = &model[2 * i + k];
            p[i] = (polar_param){.name = s->name,
                                 .row_blocks = s->row_blocks,
                                 .weight = rig_tensor(&cut.W[2 * i + k], s),
                                 .grad = rig_tensor(&cut.G[2 * i + k], s)};
        }
        TEST_TRY(polar_optim_create(&part[k], cut.dev, p, 2, &o));
    }
    for (int t = 0; t < 4; t++) {
        TEST_TRY(rig_step(&whole, t));
        upload_gradients(&cut, t);
        for (int k = 0; k < 2; k++) TEST_TRY(polar_optim_step(part[(k + t) % 2], cut.q));
    }
    test_exact("two optimisers on one queue", rig_mismatches(&whole, &cut));
    for (int k = 0; k < 2; k++) polar_optim_destroy(part[k]);
    rig_close(&whole);
    rig_close(&cut);
}

static void two_queues(const char *device)
{
    optim_rig one, two;
    pl_queue *q[2];
    polar_optim_opts o = model_opts("muon_v");
    TEST_TRY(rig_open(&one, device, model, MODEL, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o));
    TEST_TRY(rig_open(&two, device, model, MODEL, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o));
    q[0] = two.q;
    TEST_TRY(polar_queue_create(&q[1], two.dev, NULL));
    for (int t = 0; t < 6; t++) {
        TEST_TRY(rig_step(&one, t));
        two.q = q[t % 3 == 1];
        TEST_TRY(rig_step(&two, t));
    }
    two.q = q[0];
    test_exact("one optimiser on two queues in turn", rig_mismatches(&one, &two));
    rig_close(&one);
    polar_optim_destroy(two.opt); /* before the queues its graph knows */
    two.opt = NULL;
    polar_queue_destroy(q[1]);
    rig_close(&two);
}

/* Large enough that every op goes parallel. */
static void thread_counts(const char *rule)
{
    static const param_spec large[] = {{.name = "qkv", .ndim = 2, .shape = {288, 96}, .row_blocks = 3},
                                       {.name = "fc", .ndim = 2, .shape = {96, 300}},
                                       {.name = "table", .ndim = 1, .shape = {70001}}};
    static const char *const devices[] = {"cpu:threads=1", "cpu:threads=2", "cpu:threads=3"};
    optim_rig r[3];
    polar_optim_opts o = model_opts(rule);
    char line[96];
    int64_t bad = 0;
    o.measure = !strcmp(rule, "muon");
    for (int k = 0; k < 3; k++) {
        TEST_TRY(rig_open(&r[k], devices[k], large, 3, POLAR_DTYPE_F32, POLAR_DTYPE_BF16, &o));
        for (int t = 0; t < 3; t++) TEST_TRY(rig_step(&r[k], t));
        if (k) bad += rig_mismatches(&r[0], &r[k]);
        if (o.measure) {
            polar_param_stats a[3], b[3];
            TEST_TRY(polar_optim_stats(r[0].opt, r[0].q, a));
            TEST_TRY(polar_optim_stats(r[k].opt, r[k].q, b));
            for (int i = 0; i < 3; i++) bad += a[i].update_norm != b[i].update_norm;
        }
    }
    snprintf(line, sizeof line, "%s: 1, 2 and 3 threads", rule);
    test_exact(line, bad);
    for (int k = 0; k < 3; k++) rig_close(&r[k]);
}

/* ---- Schur groups ------------------------------------------------------------------------------- */

/* Two groups interleaved, and a plain matrix of the first one's shape. One step of a heavy ball from zero
 * weights with lr 1 and no scale leaves W = -map(G). */
static void schur_groups(const char *device, const char *map)
{
    enum { PARTS = 5, MOST = 64 };
    static const param_spec specs[PARTS] = {
        {.name = "a0", .ndim = 2, .shape = {6, 4}, .schur_group = 7, .schur_dim = 1},
        {.name = "b0", .ndim = 2, .shape = {4, 4}, .schur_group = 2, .schur_dim = 5},
        {.name = "plain", .ndim = 2, .shape = {6, 4}},
        {.name = "a1", .ndim = 2, .shape = {5, 3}, .schur_group = 7, .schur_dim = 3},
        {.name = "b1", .ndim = 3, .shape = {4, 2, 2}, .schur_group = 2}};
    static const int groups[3][2] = {{0, 3}, {1, 4}, {2, -1}};
    static const int64_t dims[3][2] = {{1, 3}, {5, 1}, {1, 1}};
    double g[PARTS][MOST], zero[MOST] = {0}, want[2][MOST];
    optim_rig r;
    polar_optim_opts o;
    char line[96];
    int64_t bad = 0;
    TEST_TRY(polar_optim_opts_parse(&o, "muon"));
    TEST_TRY(polar_map_opts_parse(&o.rule.map, map));
    o.rule.momentum = POLAR_MOMENTUM_HEAVY_BALL, o.rule.scale = POLAR_SCALE_NONE, o.lr = 1,
    o.weight_decay = 0;
    TEST_TRY(rig_open(&r, device, specs, PARTS, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o));
    for (int i = 0; i < PARTS; i++) {
        TEST_TRY(pl_mat_upload_f64(r.q, &r.W[i], zero));
        rig_gradient(g[i], r.elements[i], i, 0);
    }
    TEST_TRY(rig_step(&r, 0));
    for (int k = 0; k < 3; k++) {
        map_item items[2];
        int n = 0;
        for (; n < 2 && groups[k][n] >= 0; n++) {
            const param_spec *s = &specs[groups[k][n]];
            items[n] = (map_item){1,
                                  s->shape[0],
                                  r.elements[groups[k][n]] / s->shape[0],
                                  POLAR_DTYPE_F32,
                                  g[groups[k][n]],
                                  want[n],
                                  POLAR_DTYPE_F32};
        }
        TEST_TRY(map_run(device, items, n, n == 2 ? dims[k] : NULL, &o.rule.map));
        for (int i = 0; i < n; i++) {
            double *w = rig_weights(&r, groups[k][i]);
            for (int64_t j = 0; j < r.elements[groups[k][i]]; j++) w[j] = -w[j];
            bad += map_mismatches(w, want[i], r.elements[groups[k][i]]);
            free(w);
        }
    }
    snprintf(line, sizeof line, "%s: two Schur groups, interleaved", map);
    test_exact(line, bad);
    test_true("... stand in the report", strstr(polar_optim_report(r.opt), "5x3 (x) I_3 of group 7") != NULL,
              "%s", "");
    rig_close(&r);
}

/* ---- live values -------------------------------------------------------------------------------- */

static void change(polar_optim *opt, int t)
{
    if (t == 2) TEST_TRY(polar_optim_set_lr(opt, 0.05, 0.07));
    if (t == 3) TEST_TRY(polar_optim_set_weight_decay(opt, 0.4, 0.6));
    if (t == 4) TEST_TRY(polar_optim_set_member(opt, 1, 0.02, 0.03, 0.1, 0.2, 0));
    if (t == 5) TEST_TRY(polar_optim_set_member(opt, 1, 0.02, 0.03, 0.1, 0.2, 1));
    if (t == 5) TEST_TRY(polar_optim_set_member(opt, 0, 0, 0, 0, 0, 1));
}

/* Captured steps see every change: the bits of steps that were never captured; and each change tells. */
static void live_values(const char *device, const char *rule)
{
    static const param_spec specs[] = {{.name = "w", .ndim = 3, .shape = {2, 6, 9}},
                                       {.name = "b", .ndim = 2, .shape = {2, 9}}};
    optim_rig captured, plain, same;
    polar_optim_opts o = model_opts(rule);
    char line[96];
    int64_t silent = 0;
    o.members = 2;
    TEST_TRY(rig_open(&captured, device, specs, 2, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o));
    TEST_TRY(rig_open(&plain, device, specs, 2, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o));
    TEST_TRY(rig_open(&same, device, specs, 2, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o));
    for (int t = 0; t < 7; t++) {
        change(captured.opt, t);
        change(plain.opt, t);
        TEST_TRY(rig_step(&captured, t));
        TEST_TRY(rig_step(&same, t));
        upload_gradients(&plain, t);
        TEST_TRY(polar_optim_prepare(plain.opt, plain.q));
        TEST_TRY(polar_optim_enqueue(plain.opt, plain.q));
        silent += (t >= 2) == (rig_mismatches(&captured, &same) == 0);
    }
    snprintf(line, sizeof line, "%s: live values and captured steps", rule);
    test_exact(line, rig_mismatches(&captured, &plain));
    snprintf(line, sizeof line, "%s: ... tell", rule);
    test_exact(line, silent);
    rig_close(&captured);
    rig_close(&plain);
    rig_close(&same);
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    for (int k = 0; polar_rule_name(k); k++) {
        by_hand(device, polar_rule_name(k), "ns_bf16_fused");
        live_values(device, polar_rule_name(k));
        if (!strcmp(device, "cpu")) thread_counts(polar_rule_name(k));
    }
    by_hand(device, "polaradamw", "exact");
    two_optimisers(device);
    two_queues(device);
    schur_groups(device, "ns_bf16_fused");
    schur_groups(device, "ns_bf16_reference");
    schur_groups(device, "ns_fp32");
    schur_groups(device, "exact");
    return test_end();
}
