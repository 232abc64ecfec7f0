/* test_abi_0_1.c -- a program of version 0.1 and the libpolar.so of today.
 *
 * It sees nothing but the headers of 0.1 (polar_0_1.h) and is linked against a library of the same name that
 * has their functions without symbol versions, as 0.1 had; at run time it meets the real one. Every struct it
 * hands out stands before a row of canaries: whatever the structs have become since, the library must read
 * and write those of 0.1.
 */
#include <unistd.h>

#include "abi/polar_0_1.h"
#include "test.h"

enum { ROWS = 6, COLS = 4, N = 3, CANARY = 0x5a };

/* A struct of 0.1 with canaries behind it, filled with rubbish at first as on a stack. */
#define GUARDED(type)              \
    struct {                       \
        type it;                   \
        unsigned char canary[256]; \
    }
#define FILL(g) memset(&(g), CANARY, sizeof(g))

static int canaries_dead(const unsigned char *canary, size_t n)
{
    int dead = 0;
    for (size_t i = 0; i < n; i++) dead += canary[i] != CANARY;
    return dead;
}
#define ALIVE(what, g) test_exact(what ": bytes behind it", canaries_dead((g).canary, sizeof(g).canary))

static void test_names(void)
{
    GUARDED(polar_map_opts) map;
    GUARDED(polar_rule) rule;
    GUARDED(polar_optim_opts) opts;
    FILL(map), FILL(rule), FILL(opts);
    TEST_TRY(polar_map_opts_parse(&map.it, "ns_bf16_reference"));
    test_true("map options by name",
              PART(map.it.struct_size == sizeof map.it) && PART(map.it.rounding == POLAR_ROUND_REFERENCE) &&
                  PART(map.it.steps == 5) && PART(!map.it.coefs),
              "%zu bytes", map.it.struct_size);
    ALIVE("map options", map);
    TEST_TRY(polar_rule_parse(&rule.it, "muon"));
    test_true("a rule by name",
              PART(rule.it.momentum == POLAR_MOMENTUM_NESTEROV) && PART(rule.it.beta1 == 0.95) &&
                  PART(rule.it.map.struct_size == sizeof rule.it.map) &&
                  PART(!strcmp(rule.it.map.table, "jordan")),
              "%zu bytes of map", rule.it.map.struct_size);
    ALIVE("a rule", rule);
    TEST_TRY(polar_optim_opts_parse(&opts.it, "muon_v"));
    test_true("options by name",
              PART(opts.it.struct_size == sizeof opts.it) &&
                  PART(opts.it.rule.map.struct_size == sizeof opts.it.rule.map) && PART(opts.it.lr == 5e-3) &&
                  PART(opts.it.aux_lr == 5e-4) && PART(opts.it.weight_decay == 0.05) &&
                  PART(opts.it.schedule.warmup_from == 1e-3) && PART(opts.it.members == 1) &&
                  PART(!opts.it.matrix_names) && PART(!opts.it.aux_names),
              "%zu bytes", opts.it.struct_size);
    ALIVE("options", opts);
    FILL(opts);
    test_true("  a name that is none", polar_optim_opts_parse(&opts.it, "nonsuch") == POLAR_E_ARG, "%s",
              polar_error_message());
    test_exact("  changes nothing", canaries_dead((unsigned char *)&opts, sizeof opts));
}

static double weights[N][ROWS * COLS], grads[N][ROWS * COLS];

/* Every field of the options and of the parameters has another value than its default, and a trace in what
 * comes out. */
static void test_optimiser(polar_device *dev, polar_queue *q)
{
    static const polar_coef coefs[2] = {{1.5, -0.5, 0}, {1.5, -0.5, 0}};
    GUARDED(polar_cost) cost;
    polar_param_stats got[N + 4];
    polar_param params[N] = {
        {.name = "qkv",
         .weight = polar_tensor_2d(weights[0], POLAR_DTYPE_F64, ROWS, COLS),
         .grad = polar_tensor_2d(grads[0], POLAR_DTYPE_F64, ROWS, COLS),
         .row_blocks = 3},
        {.name = "embed",
         .weight = polar_tensor_2d(weights[1], POLAR_DTYPE_F64, ROWS, COLS),
         .grad = polar_tensor_2d(grads[1], POLAR_DTYPE_F64, ROWS, COLS)},
        {.name = "block",
         .weight = polar_tensor_2d(weights[2], POLAR_DTYPE_F64, ROWS, COLS),
         .grad = polar_tensor_2d(grads[2], POLAR_DTYPE_F64, ROWS, COLS),
         .route = POLAR_ROUTE_MATRIX,
         .schur_group = 7,
         .schur_dim = 5},
    };
    polar_optim_opts o = POLAR_OPTIM_OPTS_INIT;
    polar_optim *opt;
    o.rule.scale = POLAR_SCALE_SPECTRAL;
    o.rule.map.precision = POLAR_DTYPE_F64;
    o.rule.map.steps = 2;
    o.rule.map.table = NULL;
    o.rule.map.coefs = coefs;
    o.lr = 0.5, o.weight_decay = 0, o.aux_lr = 0.25, o.aux_weight_decay = 0;
    o.schedule = (polar_schedule){.warmup = 2, .total = 10, .warmup_from = 0.5};
    o.aux_names = "emb*";
    o.measure = 1;
    for (int i = 0; i < N; i++)
        for (int k = 0; k < ROWS * COLS; k++) weights[i][k] = 0, grads[i][k] = k % (COLS + 1) ? 0 : 1;
    TEST_TRY(polar_optim_create(&opt, dev, params, N, &o));
    test_true("parameters of 0.1",
              strstr(polar_optim_report(opt), "3 blocks of 2x4") &&
                  strstr(polar_optim_report(opt), "(x) I_5 of group 7"),
              "%lld parameters", (long long)polar_optim_param_count(opt));

    FILL(cost);
    TEST_TRY(polar_queue_dry_begin(q));
    TEST_TRY(polar_optim_step(opt, q));
    TEST_TRY(polar_queue_dry_end(q, &cost.it));
    test_true("a dry run", cost.it.ops > 0 && cost.it.flops > 0 && cost.it.bytes > 0, "%lld ops",
              (long long)cost.it.ops);
    ALIVE("a dry run's cost", cost);

    TEST_TRY(polar_optim_step(opt, q));
    FILL(got);
    TEST_TRY(polar_optim_stats(opt, q, got));
    test_exact("statistics: bytes behind them", canaries_dead((unsigned char *)(got + N), 4 * sizeof *got));
    for (int i = 0; i < N; i++) {
        /* warm-up begins at a half */
        double scale = i == 0 ? sqrt(2 / 4.0) : i == 1 ? 1 : sqrt(6 / 4.0), lr = (i == 1 ? 0.25 : 0.5) * 0.5;
        test_true(params[i].name,
                  PART(!strcmp(got[i].name, params[i].name)) && PART(got[i].scale == scale) &&
                      PART(got[i].effective_lr == lr * scale) && PART(got[i].update_norm > 0) &&
                      PART(got[i].route == (i == 1 ? POLAR_ROUTE_AUX : POLAR_ROUTE_MATRIX)),
                  "scale %g, effective lr %g, update %g", got[i].scale, got[i].effective_lr,
                  got[i].update_norm);
    }
    char path[64];
    snprintf(path, sizeof path, "/tmp/test_abi_0_1.%d", (int)getpid());
    TEST_TRY(polar_optim_save(opt, q, path));
    TEST_TRY(polar_optim_set_lr(opt, 7, 7));
    TEST_TRY(polar_optim_load(opt, q, path));
    TEST_TRY(polar_optim_step(opt, q));
    TEST_TRY(polar_optim_stats(opt, q, got));
    /* half way through the warm-up */
    test_true("a load brings the saved lr, as in 0.1", got[1].effective_lr == 0.25 * 0.75, "effective lr %g",
              got[1].effective_lr);
    unlink(path);
    polar_optim_destroy(opt);
    TEST_TRY(polar_optim_create(&opt, dev, params, N, NULL)); /* the defaults */
    polar_optim_destroy(opt);
    o.struct_size = 24;
    test_true("too small a struct_size", polar_optim_create(&opt, dev, params, N, &o) == POLAR_E_ARG && !opt,
              "%s", polar_error_message());
}

static void test_maps(polar_queue *q)
{
    float x[6] = {3, 0, 0, 0, -2, 0};
    polar_tensor t = polar_tensor_2d(x, POLAR_DTYPE_F32, 2, 3);
    polar_map_opts o = POLAR_MAP_OPTS_INIT;
    o.kind = POLAR_MAP_EXACT;
    TEST_TRY(polar_map_apply(q, &t, &t, 1, &o));
    TEST_TRY(polar_queue_sync(q));
    test_true("the exact map", fabsf(x[0] - 1) < 1e-6f && fabsf(x[4] + 1) < 1e-6f, "%g %g", (double)x[0],
              (double)x[4]);
    o.struct_size = 8;
    test_true("too small a struct_size", polar_map_apply(q, &t, &t, 1, &o) == POLAR_E_ARG, "%s",
              polar_error_message());
}

int main(int argc, char **argv)
{
    polar_device *dev;
    polar_queue *q;
    const char *device = test_begin(argc, argv);
    printf("compiled with %s, running with %s\n", POLAR_VERSION, polar_version());
    TEST_TRY(polar_device_open(&dev, device));
    TEST_TRY(polar_queue_create(&q, dev, NULL));
    test_names();
    test_maps(q);
    test_optimiser(dev, q);
    polar_queue_destroy(q);
    polar_device_close(dev);
    return test_end();
}
