/* test_optim_skip.c -- steps and parameters that are left out: gradients that are not finite, the caller's
 * flag and scale, gradients that are missing; counts, state files, and no memory.
 *
 *     ctest -R test_optim_skip
 */
#include "base/alloc.h"
#include "optim/rule_names.h"
#include "optim_state_file.h"

enum { MODEL = 4, STEPS = 6 };

static const param_spec model[MODEL] = {
    {.name = "qkv", .ndim = 2, .shape = {24, 16}, .row_blocks = 3},
    {.name = "proj", .ndim = 2, .shape = {8, 16}},
    {.name = "up", .ndim = 2, .shape = {8, 16}},
    {.name = "bias", .ndim = 1, .shape = {24}},
};

static polar_optim_opts options(const char *rule, const char *map, polar_skip skip, int missing)
{
    polar_optim_opts o;
    TEST_TRY(polar_optim_opts_parse(&o, rule));
    if (map) TEST_TRY(polar_map_opts_parse(&o.rule.map, map));
    o.lr = 0.02, o.aux_lr = 0.003, o.weight_decay = 0.1;
    o.skip_nonfinite = skip, o.skip_missing = missing;
    return o;
}

/* Step t with x as entry `at` of parameter `who`'s gradient; who < 0: as it is. factor: of all gradients. */
static polar_status step_with(optim_rig *r, int64_t t, int who, int64_t at, double x, double factor)
{
    for (int i = 0; i < r->n; i++) {
        double *g = map_new(r->elements[i]);
        rig_gradient(g, r->elements[i], r->number[i], t);
        for (int64_t k = 0; k < r->elements[i]; k++) g[k] *= factor;
        if (i == who) g[at] = x;
        polar_status st = pl_mat_upload_f64(r->q, &r->G[i], g);
        free(g);
        if (st != POLAR_OK) return st;
    }
    polar_status st = polar_optim_step(r->opt, r->q);
    return st == POLAR_OK ? polar_queue_sync(r->q) : st;
}

/* ---- gradients that are not finite -------------------------------------------------------------- */

/* The run with bad steps in it is the run without them, and a bad step changes nothing. */
static void nan_inserted(const char *device, const char *rule, const char *map, polar_dtype weights,
                         polar_dtype grads)
{
    static const struct {
        int who;
        int64_t at;
        double x;
    } bad[STEPS] = {{1, 5, NAN}, {-1, 0, 0}, {3, 23, INFINITY}, {0, 383, -INFINITY}, {-1, 0, 0}, {2, 0, NAN}};
    polar_optim_opts o = options(rule, map, POLAR_SKIP_NONFINITE, 0);
    optim_rig clean, dirty, still;
    polar_param_stats s[MODEL];
    int64_t changed = 0, inserted = 0;
    char line[96];
    TEST_TRY(rig_open(&clean, device, model, MODEL, weights, grads, &o));
    TEST_TRY(rig_open(&dirty, device, model, MODEL, weights, grads, &o));
    TEST_TRY(rig_open(&still, device, model, MODEL, weights, grads, &o));
    for (int t = 0; t < STEPS; t++) {
        if (bad[t].who >= 0) {
            TEST_TRY(step_with(&dirty, 100 + t, bad[t].who, bad[t].at, bad[t].x, 1));
            inserted++;
            changed += rig_mismatches(&dirty, &still) + state_mismatches(&dirty, &still, 1);
            if (t < 2) { /* twice in a row */
                TEST_TRY(step_with(&dirty, 200 + t, bad[t].who, bad[t].at, bad[t].x, 1));
                inserted++;
            }
        }
        TEST_TRY(rig_step(&clean, t));
        TEST_TRY(rig_step(&dirty, t));
        TEST_TRY(rig_step(&still, t));
    }
    snprintf(line, sizeof line, "%s %s, %s: a bad step changes nothing", rule, map ? map : "",
             polar_dtype_name(weights));
    test_exact(line, changed);
    test_exact("  and the run is the one without it",
               rig_mismatches(&clean, &dirty) + state_mismatches(&clean, &dirty, 1));
    TEST_TRY(polar_optim_stats(dirty.opt, dirty.q, s));
    test_true("  counted",
              PART(polar_optim_get_step(dirty.opt) == STEPS) &&
                  PART(polar_optim_skipped(dirty.opt) == inserted) && PART(s[0].steps == STEPS) &&
                  PART(s[0].skipped == inserted),
              "%lld steps, %lld left out", (long long)polar_optim_get_step(dirty.opt),
              (long long)polar_optim_skipped(dirty.opt));
    int maps = o.rule.map.kind != POLAR_MAP_NONE;
    test_true("  maps too",
              PART(s[0].maps == 3 * STEPS * maps) && PART(s[1].maps == STEPS * maps) &&
                  PART(s[3].maps == 0) && PART(s[0].last_maps == 3 * maps),
              "%lld", (long long)s[0].maps);
    TEST_TRY(step_with(&dirty, 300, 0, 0, NAN, 1));
    TEST_TRY(polar_optim_stats(dirty.opt, dirty.q, s));
    test_true("  none in a step left out",
              s[0].last_maps == 0 && s[0].maps == 3 * STEPS * maps && s[0].skipped == inserted + 1, "%lld",
              (long long)s[0].last_maps);
    rig_close(&clean), rig_close(&dirty), rig_close(&still);
}

/* A step that may be left out and is not: the plain step, but for the last bits of the bias corrections,
 * whose powers are made by squares. In double, through a map in double: a correction's error of 2 t 2^-53
 * grows by the map's condition, about 10 a step here; 1e-12 covers six steps with two digits to spare. */
static void nearly_plain(const char *device)
{
    polar_optim_opts with = options("polaradamw", "ns_fp64", POLAR_SKIP_NONFINITE, 1),
                     without = options("polaradamw", "ns_fp64", POLAR_SKIP_NEVER, 0);
    optim_rig a, b;
    double most = 0;
    TEST_TRY(rig_open(&a, device, model, MODEL, POLAR_DTYPE_F64, POLAR_DTYPE_F64, &with));
    TEST_TRY(rig_open(&b, device, model, MODEL, POLAR_DTYPE_F64, POLAR_DTYPE_F64, &without));
    for (int t = 0; t < STEPS; t++) {
        TEST_TRY(rig_step(&a, t));
        TEST_TRY(rig_step(&b, t));
    }
    for (int i = 0; i < MODEL; i++) {
        double *x = rig_weights(&a, i), *y = rig_weights(&b, i);
        for (int64_t k = 0; k < a.elements[i]; k++) most = fmax(most, fabs(x[k] - y[k]));
        free(x), free(y);
    }
    test_bound("with nothing left out: the plain step", most, 1e-12, "errors of powers, through the map");
    rig_close(&a), rig_close(&b);
}

/* Members are models of their own: the one with a NaN stays, the other goes on. */
static void by_member(const char *device)
{
    const param_spec two[2] = {{.name = "w", .ndim = 3, .shape = {2, 8, 6}},
                               {.name = "b", .ndim = 2, .shape = {2, 8}}};
    polar_optim_opts o = options("polaradamw", NULL, POLAR_SKIP_NONFINITE, 0);
    optim_rig a, b;
    int64_t moved = 0, stayed = 0;
    o.members = 2;
    TEST_TRY(rig_open(&a, device, two, 2, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o));
    TEST_TRY(rig_open(&b, device, two, 2, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o));
    TEST_TRY(rig_step(&a, 0));
    TEST_TRY(rig_step(&b, 0));
    double *before = rig_weights(&b, 0);
    TEST_TRY(step_with(&a, 1, 1, 8 + 3, NAN, 1)); /* the bias of member 1 */
    TEST_TRY(rig_step(&b, 1));
    double *x = rig_weights(&a, 0), *y = rig_weights(&b, 0);
    for (int i = 0; i < 48; i++) moved += x[i] != y[i], stayed += x[48 + i] != before[48 + i];
    test_exact("a NaN of one member leaves the other alone", moved + stayed);
    polar_param_stats s[2];
    TEST_TRY(polar_optim_stats(a.opt, a.q, s));
    test_true("  maps of both members counted", s[0].maps == 3 && s[0].last_maps == 1 && s[0].steps == 2,
              "%lld, %lld in the last step", (long long)s[0].maps, (long long)s[0].last_maps);
    free(before), free(x), free(y);
    rig_close(&a), rig_close(&b);
}

/* ---- the caller's flag and scale ---------------------------------------------------------------- */

static void scaler(const char *device, polar_skip skip)
{
    polar_optim_opts o = options("muon_v", NULL, skip, 0);
    optim_rig a, b;
    pl_mat flag, scale;
    TEST_TRY(rig_open(&a, device, model, MODEL, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o));
    TEST_TRY(rig_open(&b, device, model, MODEL, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o));
    TEST_TRY(pl_mat_alloc(&flag, a.dev, POLAR_DTYPE_F32, 1, 1, 1));
    TEST_TRY(pl_mat_alloc(&scale, a.dev, POLAR_DTYPE_F32, 1, 1, 1));
    TEST_TRY(polar_optim_set_scaler(a.opt, flag.data, scale.data));
    for (int t = 0; t < 4; t++) {
        double found = t == 2, s = t < 2 ? 1024 : 4096; /* a power of two: exact */
        TEST_TRY(pl_mat_upload_f64(a.q, &flag, &found));
        TEST_TRY(pl_mat_upload_f64(a.q, &scale, &s));
        TEST_TRY(step_with(&a, t, -1, 0, 0, s));
        if (t != 2) TEST_TRY(rig_step(&b, t));
    }
    test_exact("the caller's flag and scale", rig_mismatches(&a, &b) + state_mismatches(&a, &b, 1));
    test_true("  counted", polar_optim_skipped(a.opt) == 1 && polar_optim_get_step(a.opt) == 3,
              "%lld left out", (long long)polar_optim_skipped(a.opt));
    TEST_TRY(polar_optim_set_scaler(a.opt, NULL, NULL));
    TEST_TRY(rig_step(&a, 5));
    TEST_TRY(rig_step(&b, 5));
    test_exact("  and taken away again", rig_mismatches(&a, &b));
    if (skip == POLAR_SKIP_FLAGGED) {
        TEST_TRY(step_with(&a, 6, 3, 2, NAN, 1)); /* nobody looks */
        double *w = rig_weights(&a, 3);
        test_true("  without a flag a NaN is not looked for", isnan(w[2]), "%g", w[2]);
        free(w);
    }
    rig_close(&b);
    polar_optim_destroy(a.opt);
    a.opt = NULL;
    pl_mat_free(&flag, a.dev), pl_mat_free(&scale, a.dev);
    rig_close(&a);
}

/* ---- gradients that are missing ----------------------------------------------------------------- */

static void take_away(optim_rig *r, int who, int away)
{
    TEST_TRY(polar_optim_set_grad(r->opt, who, away ? NULL : r->G[who].data));
}

/* A parameter that misses steps is one whose optimiser made fewer. */
static void missing(const char *device, polar_skip skip)
{
    polar_optim_opts o = options("polaradamw", NULL, skip, 1);
    param_spec rest[MODEL - 1] = {model[0], model[2], model[3]}, alone = model[1];
    optim_rig all, others, one;
    polar_param_stats s[MODEL];
    rest[0].as = 1, rest[1].as = 3, rest[2].as = 4, alone.as = 2;
    TEST_TRY(rig_open(&all, device, model, MODEL, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o));
    TEST_TRY(rig_open(&others, device, rest, MODEL - 1, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o));
    TEST_TRY(rig_open(&one, device, &alone, 1, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o));
    for (int t = 0; t < STEPS; t++) {
        int away = t == 0 || t == 2 || t == 3;
        take_away(&all, 1, away);
        TEST_TRY(rig_step(&all, t));
        TEST_TRY(rig_step(&others, t));
        if (!away) TEST_TRY(rig_step(&one, t));
        if (t == 3) {
            TEST_TRY(polar_optim_stats(all.opt, all.q, s));
            test_true("missing: nothing in this step",
                      PART(s[1].last_maps == 0) && PART(s[1].steps == 1) && PART(s[1].maps == 1) &&
                          PART(s[2].last_maps == 1) && PART(s[2].steps == 4),
                      "%lld steps of %s", (long long)s[1].steps, s[1].name);
        }
    }
    int64_t bad = rig_differ(&all, 0, &others, 0) + rig_differ(&all, 1, &one, 0) +
                  rig_differ(&all, 2, &others, 1) + rig_differ(&all, 3, &others, 2);
    test_exact("missing: as optimisers that made fewer steps", bad);
    TEST_TRY(polar_optim_stats(all.opt, all.q, s));
    test_true("missing: its own count",
              PART(s[1].steps == 3) && PART(s[0].steps == STEPS) && PART(s[1].skipped == 0) &&
                  PART(polar_optim_get_step(all.opt) == STEPS),
              "%lld of %d", (long long)s[1].steps, STEPS);
    rig_close(&all), rig_close(&others), rig_close(&one);
}

static double step_flops(optim_rig *r)
{
    polar_cost cost;
    TEST_TRY(polar_queue_dry_begin(r->q));
    TEST_TRY(polar_optim_enqueue(r->opt, r->q));
    TEST_TRY(polar_queue_dry_end(r->q, &cost));
    return cost.flops;
}

/* What is missing costs nothing, in the middle of a batch of the map too. */
static void missing_cost(const char *device)
{
    polar_optim_opts o = options("polaradamw", NULL, POLAR_SKIP_NEVER, 1);
    optim_rig r;
    TEST_TRY(rig_open(&r, device, model, MODEL, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o));
    double all = step_flops(&r), parts = 0;
    for (int k = 0; k < MODEL; k++) {
        for (int i = 0; i < MODEL; i++) take_away(&r, i, i != k);
        parts += step_flops(&r);
    }
    test_true("missing: costs nothing", all == parts && all > 0, "%g FLOP, %g one by one", all, parts);
    rig_close(&r);
}

static void refused(const char *device)
{
    polar_optim_opts o = options("polaradamw", NULL, POLAR_SKIP_NEVER, 0);
    const param_spec schur[2] = {{.name = "a", .ndim = 2, .shape = {4, 4}, .schur_group = 1},
                                 {.name = "b", .ndim = 2, .shape = {6, 4}, .schur_group = 1}};
    optim_rig r;
    TEST_TRY(rig_open(&r, device, model, MODEL, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o));
    take_away(&r, 2, 1);
    polar_status st = polar_optim_step(r.opt, r.q);
    test_true("a gradient missing where that is not meant",
              st == POLAR_E_STATE && strstr(polar_error_message(), "skip_missing"), "%s",
              polar_error_message());
    rig_close(&r);
    o.skip_missing = 1;
    TEST_TRY(rig_open(&r, device, schur, 2, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o));
    take_away(&r, 0, 1);
    st = polar_optim_step(r.opt, r.q);
    test_true("half of what shares a norm",
              st == POLAR_E_STATE && strstr(polar_error_message(), "shares a norm"), "%s",
              polar_error_message());
    take_away(&r, 1, 1);
    test_true("  all of it may be missing", polar_optim_step(r.opt, r.q) == POLAR_OK, "%s", "taken");
    take_away(&r, 0, 0);
    take_away(&r, 1, 0);
    TEST_TRY(polar_optim_prepare(r.opt, r.q));
    take_away(&r, 0, 1);
    take_away(&r, 1, 1);
    st = polar_optim_enqueue(r.opt, r.q);
    test_true("a gradient gone between prepare and enqueue",
              st == POLAR_E_STATE && strstr(polar_error_message(), "polar_optim_prepare"), "%s",
              polar_error_message());
    rig_close(&r);
}

/* ---- state files -------------------------------------------------------------------------------- */

/* Step t of a run with everything in it: bad gradients and missing ones. */
static void eventful(optim_rig *r, int t)
{
    take_away(r, 2, t == 1 || t == 4);
    TEST_TRY(step_with(r, t, t == 2 || t == 5 ? 0 : -1, 7, NAN, 1));
}

static void resumed(const char *device)
{
    polar_optim_opts o = options("polaradamw", NULL, POLAR_SKIP_NONFINITE, 1),
                     plain = options("polaradamw", NULL, POLAR_SKIP_NEVER, 0);
    optim_rig whole, first, second, other;
    o.schedule = plain.schedule = (polar_schedule){.warmup = 1, .total = 12, .warmup_from = 0.2};
    TEST_TRY(rig_open(&whole, device, model, MODEL, POLAR_DTYPE_BF16, POLAR_DTYPE_F32, &o));
    TEST_TRY(rig_open(&first, device, model, MODEL, POLAR_DTYPE_BF16, POLAR_DTYPE_F32, &o));
    TEST_TRY(rig_open(&second, device, model, MODEL, POLAR_DTYPE_BF16, POLAR_DTYPE_F32, &o));
    TEST_TRY(rig_open(&other, device, model, MODEL, POLAR_DTYPE_BF16, POLAR_DTYPE_F32, &plain));
    for (int t = 0; t < 8; t++) eventful(&whole, t);
    for (int t = 0; t < 3; t++) eventful(&first, t);
    TEST_TRY(polar_optim_save(first.opt, first.q, state_path(0)));
    TEST_TRY(polar_optim_load(second.opt, second.q, state_path(0)));
    test_true("counts come back",
              polar_optim_get_step(second.opt) == 2 && polar_optim_skipped(second.opt) == 1,
              "%lld made, %lld left out", (long long)polar_optim_get_step(second.opt),
              (long long)polar_optim_skipped(second.opt));
    polar_status st = polar_optim_load(other.opt, other.q, state_path(0));
    test_true("an optimiser that leaves nothing out",
              st == POLAR_E_FORMAT && strstr(polar_error_message(), "skip_missing"), "%s",
              polar_error_message());
    for (int t = 3; t < 8; t++) eventful(&second, t);
    test_exact("resumed in the middle of it",
               rig_mismatches(&whole, &second) + state_mismatches(&whole, &second, 0));

    polar_param_stats s[MODEL];
    for (int t = 0; t < 3; t++) TEST_TRY(rig_step(&other, t));
    TEST_TRY(polar_optim_save(other.opt, other.q, state_path(0)));
    state_file_age(state_path(0));
    TEST_TRY(polar_optim_load(second.opt, second.q, state_path(0)));
    TEST_TRY(polar_optim_stats(second.opt, second.q, s));
    test_true("a file without counts: all made its steps",
              PART(s[0].steps == 3) && PART(s[2].steps == 3) && PART(s[0].skipped == 0) &&
                  PART(polar_optim_get_step(second.opt) == 3),
              "%lld", (long long)s[2].steps);
    state_files_remove();
    rig_close(&whole), rig_close(&first), rig_close(&second), rig_close(&other);
}

/* ---- by other ways, and without memory ---------------------------------------------------------- */

static void enqueue_fn(pl_queue *q, void *arg)
{
    (void)polar_optim_enqueue(arg, q);
}

/* prepare and the caller's own graph. */
static void captured(const char *device)
{
    polar_optim_opts o = options("polaradamw", NULL, POLAR_SKIP_NONFINITE, 0);
    optim_rig a, b;
    pl_graph *g;
    TEST_TRY(rig_open(&a, device, model, MODEL, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o));
    TEST_TRY(rig_open(&b, device, model, MODEL, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o));
    TEST_TRY(pl_graph_create(&g, a.dev));
    for (int t = 0; t < STEPS; t++) {
        double bad = t == 3 ? NAN : 1;
        for (int i = 0; i < MODEL; i++) {
            double *x = map_new(a.elements[i]);
            rig_gradient(x, a.elements[i], i, t);
            if (i == 1) x[4] = bad;
            TEST_TRY(pl_mat_upload_f64(a.q, &a.G[i], x));
            free(x);
        }
        TEST_TRY(polar_optim_prepare(a.opt, a.q));
        TEST_TRY(pl_graph_run(g, a.q, enqueue_fn, a.opt));
        TEST_TRY(polar_queue_sync(a.q));
        TEST_TRY(step_with(&b, t, 1, 4, bad, 1));
    }
    test_exact("the caller's own graph", rig_mismatches(&a, &b) + state_mismatches(&a, &b, 0));
    pl_graph_destroy(g);
    rig_close(&a), rig_close(&b);
}

static polar_status life(const char *device, const polar_optim_opts *o)
{
    optim_rig r;
    polar_param_stats s[MODEL];
    polar_status st = rig_open(&r, device, model, MODEL, POLAR_DTYPE_F32, POLAR_DTYPE_F32, o);
    if (st != POLAR_OK) return st;
    for (int t = 0; t < 3 && st == POLAR_OK; t++) {
        st = polar_optim_set_grad(r.opt, 2, t == 1 ? NULL : r.G[2].data);
        if (st == POLAR_OK) st = step_with(&r, t, t == 2 ? 1 : -1, 0, NAN, 1);
    }
    if (st == POLAR_OK) st = polar_optim_stats(r.opt, r.q, s);
    if (st == POLAR_OK) st = polar_optim_save(r.opt, r.q, state_path(0));
    if (st == POLAR_OK) st = polar_optim_load(r.opt, r.q, state_path(0));
    rig_close(&r);
    return st;
}

static void no_memory(const char *device)
{
    polar_optim_opts o = options("polaradamw", NULL, POLAR_SKIP_NONFINITE, 1);
    polar_group group = polar_group_of(&o);
    polar_status st = POLAR_E_NOMEM;
    int64_t n = 0, before = pl_alloc_live(), leaks = 0, wrong = 0;
    o.groups = &group, o.group_count = 1;
    while (st != POLAR_OK && n < 100000) {
        pl_alloc_fail_at(++n);
        st = life(device, &o);
        pl_alloc_fail_at(0);
        leaks += pl_alloc_live() != before;
        wrong += st != POLAR_OK && (st != POLAR_E_NOMEM || !*polar_error_message());
        remove(state_path(0));
    }
    test_true("allocation 1, 2, ... fails",
              PART(st == POLAR_OK) && PART(n > 20) && PART(!leaks) && PART(!wrong),
              "%lld allocations, %lld leaks, %lld wrong codes", (long long)n - 1, (long long)leaks,
              (long long)wrong);
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    map_need_device(device);
    nan_inserted(device, "polaradamw", "ns_bf16_fused", POLAR_DTYPE_F32, POLAR_DTYPE_F32);
    nan_inserted(device, "muon", "ns_bf16_reference", POLAR_DTYPE_BF16, POLAR_DTYPE_BF16);
    nan_inserted(device, "adamw", NULL, POLAR_DTYPE_F32, POLAR_DTYPE_BF16);
    nan_inserted(device, "polar_ema", "exact", POLAR_DTYPE_F64, POLAR_DTYPE_F64);
    for (const char *const *rule = pl_rule_names; *rule;
         rule++) /* each stage between the gradient and the step */
        nan_inserted(device, *rule, NULL, POLAR_DTYPE_F32, POLAR_DTYPE_F32);
    nearly_plain(device);
    by_member(device);
    scaler(device, POLAR_SKIP_NONFINITE);
    scaler(device, POLAR_SKIP_FLAGGED);
    missing(device, POLAR_SKIP_NEVER);
    missing(device, POLAR_SKIP_NONFINITE);
    missing_cost(device);
    refused(device);
    resumed(device);
    captured(device);
    no_memory(device);
    return test_end();
}
