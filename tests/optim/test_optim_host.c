/* test_optim_host.c -- what a host program such as torch does with an optimiser: all gradients handed over in
 * one call, the state seen and written where it lies, work launched again and again after one prepare.
 *
 *     ctest -R test_optim_host
 */
#include "optim_state_file.h"

/* Enough parameters for a GPU's large table, and a matrix whose whole step is one kernel there. */
enum { MODEL = 12, STEPS = 12 };

static const param_spec model[MODEL] = {
    {.name = "qkv", .ndim = 2, .shape = {24, 16}, .row_blocks = 3},
    {.name = "proj", .ndim = 2, .shape = {8, 16}},
    {.name = "bias", .ndim = 1, .shape = {24}},
    {.name = "fc1", .ndim = 2, .shape = {96, 64}},
    {.name = "fc2", .ndim = 2, .shape = {64, 96}},
    {.name = "b1", .ndim = 1, .shape = {96}},
    {.name = "b2", .ndim = 1, .shape = {64}},
    {.name = "norm1", .ndim = 1, .shape = {16}},
    {.name = "norm2", .ndim = 1, .shape = {17}},
    {.name = "norm3", .ndim = 1, .shape = {31}},
    {.name = "norm4", .ndim = 1, .shape = {1}},
    {.name = "norm5", .ndim = 1, .shape = {5}},
};

static polar_optim_opts options(const char *rule, polar_skip skip)
{
    polar_optim_opts o;
    TEST_TRY(polar_optim_opts_parse(&o, rule));
    o.lr = 0.02, o.aux_lr = 0.003;
    o.skip_nonfinite = skip, o.skip_missing = 1;
    return o;
}

static void fill_gradients(optim_rig *r, pl_mat *to, int64_t t, double factor)
{
    for (int i = 0; i < MODEL; i++) {
        double *g = map_new(r->elements[i]);
        rig_gradient(g, r->elements[i], i, t);
        for (int64_t k = 0; k < r->elements[i]; k++) g[k] *= factor;
        TEST_TRY(pl_mat_upload_f64(r->q, &to[i], g));
        free(g);
    }
}

/* Gradients that move now and then, so that graphs are captured, follow them, are dropped and waited for: the
 * bits of gradients that stay. */
static void all_gradients(const char *device, const char *rule, polar_dtype dtype, polar_skip skip)
{
    static const int second[STEPS] = {0, 0, 1, 0, 0, 0, 0, 1, 1, 1, 0, 1};
    polar_optim_opts o = options(rule, skip);
    optim_rig a, b;
    pl_mat other[MODEL];
    TEST_TRY(rig_open(&a, device, model, MODEL, dtype, dtype, &o));
    TEST_TRY(rig_open(&b, device, model, MODEL, dtype, dtype, &o));
    for (int i = 0; i < MODEL; i++) TEST_TRY(pl_mat_alloc(&other[i], b.dev, dtype, 1, 1, b.elements[i]));
    for (int t = 0; t < STEPS; t++) {
        pl_mat *to = second[t] ? other : b.G;
        void *all[MODEL], *none[MODEL] = {0};
        fill_gradients(&b, to, t, 1);
        if (t == 8) { /* one of them moves alone */
            double *g = map_new(b.elements[3]);
            rig_gradient(g, b.elements[3], 3, t);
            TEST_TRY(pl_mat_upload_f64(b.q, &b.G[3], g));
            free(g);
        }
        for (int i = 0; i < MODEL; i++) all[i] = t == 8 && i == 3 ? b.G[3].data : to[i].data;
        TEST_TRY(polar_optim_set_grads(b.opt, all, MODEL));
        TEST_TRY(rig_step(&a, t));
        TEST_TRY(polar_optim_step(b.opt, b.q));
        if (t == 4) { /* a step without any gradient changes nothing */
            TEST_TRY(polar_optim_set_grads(b.opt, none, MODEL));
            TEST_TRY(polar_optim_step(b.opt, b.q));
        }
    }
    char line[96];
    snprintf(line, sizeof line, "%s %s%s: gradients that move, in one call", rule, polar_dtype_name(dtype),
             skip == POLAR_SKIP_NONFINITE ? ", looked through" : "");
    test_exact(line, rig_mismatches(&a, &b) + state_mismatches(&a, &b, 1));
    void *wrong[MODEL] = {other[0].data, b.W[3].data, NULL};
    polar_status st = polar_optim_set_grads(b.opt, wrong, MODEL);
    test_true("  one of them on a weight",
              st == POLAR_E_ARG && strstr(polar_error_message(), "'proj'") &&
                  strstr(polar_error_message(), "'fc1'"),
              "%s", polar_error_message());
    fill_gradients(&b, other, STEPS, 1);
    TEST_TRY(rig_step(&a, STEPS));
    TEST_TRY(polar_optim_step(b.opt, b.q));
    test_exact("  then none was taken", rig_mismatches(&a, &b));
    polar_optim_destroy(b.opt);
    b.opt = NULL;
    for (int i = 0; i < MODEL; i++) pl_mat_free(&other[i], b.dev);
    rig_close(&a), rig_close(&b);
}

/* The state of one optimiser, read and written through views, is another one's: both go on alike. */
static void state_by_views(const char *device, const char *rule, polar_dtype weights)
{
    polar_optim_opts o = options(rule, POLAR_SKIP_FLAGGED);
    optim_rig a, b;
    int64_t bytes = 0;
    TEST_TRY(rig_open(&a, device, model, MODEL, weights, POLAR_DTYPE_F32, &o));
    TEST_TRY(rig_open(&b, device, model, MODEL, weights, POLAR_DTYPE_F32, &o));
    for (int t = 0; t < 3; t++) TEST_TRY(rig_step(&a, t));
    for (int i = 0; i < MODEL; i++) {
        double *w = rig_weights(&a, i);
        TEST_TRY(pl_mat_upload_f64(b.q, &b.W[i], w));
        free(w);
        for (int s = POLAR_STATE_MOMENTUM; s <= POLAR_STATE_STEPS; s++) {
            polar_tensor from, to;
            TEST_TRY(polar_optim_state_view(&from, a.opt, i, (polar_state)s));
            TEST_TRY(polar_optim_state_view(&to, b.opt, i, (polar_state)s));
            size_t n =
                from.data ? (size_t)(from.shape[0] * from.stride[0]) * polar_dtype_size(from.dtype) : 0;
            char *host = malloc(n + 1);
            polar_queue_download(a.q, host, from.data, n);
            TEST_TRY(polar_queue_sync(a.q));
            polar_queue_upload(b.q, to.data, host, n);
            TEST_TRY(polar_queue_sync(b.q));
            free(host);
            bytes += (int64_t)n;
        }
    }
    for (int t = 3; t < 6; t++) {
        TEST_TRY(rig_step(&a, t));
        TEST_TRY(rig_step(&b, t));
    }
    char line[64];
    snprintf(line, sizeof line, "%s: state by views, %s weights", rule, polar_dtype_name(weights));
    test_exact(line, rig_mismatches(&a, &b) + state_mismatches(&a, &b, 1));
    polar_param_stats s[MODEL];
    TEST_TRY(polar_optim_stats(b.opt, b.q, s));
    test_true("  with its count", s[0].steps == 6 && s[2].steps == 6, "%lld steps, %lld bytes",
              (long long)s[0].steps, (long long)bytes);
    rig_close(&a), rig_close(&b);
}

/* Work launched again after one prepare, as a graph of the caller's replays it: the steps are counted and
 * corrected on the device, and a step that a flag left out does not keep the next ones from being made. */
static void launched_again(const char *device, polar_skip skip)
{
    polar_optim_opts o = options("polaradamw", skip);
    optim_rig a, b;
    pl_mat flag;
    const double up = 1, down = 0;
    TEST_TRY(rig_open(&a, device, model, MODEL, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o));
    TEST_TRY(rig_open(&b, device, model, MODEL, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o));
    TEST_TRY(pl_mat_alloc(&flag, b.dev, POLAR_DTYPE_F32, 1, 1, 1));
    TEST_TRY(pl_mat_upload_f64(b.q, &flag, &down));
    TEST_TRY(polar_optim_set_scaler(b.opt, flag.data, NULL));
    fill_gradients(&b, b.G, 0, 1);
    TEST_TRY(polar_optim_prepare(b.opt, b.q));
    for (int t = 0; t < 5; t++) {
        int bad = t == 1 || t == 2;
        fill_gradients(&b, b.G, t, bad && skip == POLAR_SKIP_NONFINITE ? (double)INFINITY : 1);
        TEST_TRY(pl_mat_upload_f64(b.q, &flag, bad ? &up : &down));
        TEST_TRY(polar_optim_enqueue(b.opt, b.q));
        TEST_TRY(polar_queue_sync(b.q));
        if (!bad) TEST_TRY(rig_step(&a, t));
    }
    test_exact("launched again after one prepare, two of five steps flagged",
               rig_mismatches(&a, &b) + state_mismatches(&a, &b, 1));
    polar_param_stats s[MODEL];
    TEST_TRY(polar_optim_stats(b.opt, b.q, s));
    test_true("  counted on the device", s[0].steps == 3 && s[0].skipped == 2 && s[2].steps == 3,
              "%lld made, %lld left out", (long long)s[0].steps, (long long)s[0].skipped);
    polar_optim_destroy(b.opt);
    b.opt = NULL;
    pl_mat_free(&flag, b.dev);
    rig_close(&a), rig_close(&b);
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    map_need_device(device);
    all_gradients(device, "polaradamw", POLAR_DTYPE_F32, POLAR_SKIP_FLAGGED);
    all_gradients(device, "polaradamw", POLAR_DTYPE_BF16, POLAR_SKIP_NONFINITE);
    all_gradients(device, "muon", POLAR_DTYPE_F64, POLAR_SKIP_FLAGGED);
    all_gradients(device, "adamw", POLAR_DTYPE_F32, POLAR_SKIP_NONFINITE);
    state_by_views(device, "muon", POLAR_DTYPE_F32);
    state_by_views(device, "polaradamw", POLAR_DTYPE_BF16);
    launched_again(device, POLAR_SKIP_FLAGGED);
    launched_again(device, POLAR_SKIP_NONFINITE);
    return test_end();
}
