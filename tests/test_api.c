/* test_api.c -- every public function: used as it should be, and given what it must refuse.
 *
 *     test_api DEVICE
 *
 * Two tables name every function of include/polar: `use_all` calls it rightly, `refuse_all` with NULL where none may be and with sizes that cannot be.
 * Both are walked by the main thread, by a child after fork (with the parent's objects, then with its own), and by two threads at once on one
 * device. A function that cmake/polar.map exports and a table lacks fails the test. Then come the calls whose order is wrong.
 */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <polar/polar.h>

#include "base/alloc.h"
#include "test.h"

enum { ROWS = 4, COLS = 6, SIZE = ROWS * COLS, PARAMS = 2, MOST = 128 };
enum { USED, REFUSED, TABLES };
static const char *const table_names[TABLES] = {"use_all", "refuse_all"};

typedef struct place {
    polar_device *dev;
    polar_queue  *q;
    polar_optim  *opt;
    void         *weight[PARAMS], *grad[PARAMS];
    char          path[64];                       /* of an optimiser's state */
    const char   *seen[TABLES][MOST];             /* functions of each table */
    int           count[TABLES], rows, wrong;
    char          first[400];                     /* the first row that went wrong */
} place;

static float start[SIZE], slope[SIZE];

static int has(const place *p, int table, const char *name)
{
    int found = 0;
    for (int i = 0; i < p->count[table]; i++) found |= !strcmp(p->seen[table][i], name);
    return found;
}

static void note(place *p, int table, const char *function, const char *row, int ok)
{
    if (!has(p, table, function) && p->count[table] < MOST) p->seen[table][p->count[table]++] = function;
    p->rows++;
    if (ok) return;
    if (!p->wrong++) snprintf(p->first, sizeof p->first, "%s: %s (%.150s)", function, row, polar_error_message());
}

static void must(polar_status st)
{
    if (st == POLAR_OK) return;
    printf("%s  FAIL\n", polar_error_message());
    _exit(1);
}

static void fill_params(place *p, polar_param params[PARAMS])
{
    params[0] = (polar_param){.name = "matrix", .weight = polar_tensor_2d(p->weight[0], POLAR_DTYPE_F32, ROWS, COLS), .grad = polar_tensor_2d(p->grad[0], POLAR_DTYPE_F32, ROWS, COLS)};
    params[1] = (polar_param){.name = "vector", .weight = polar_tensor_1d(p->weight[1], POLAR_DTYPE_F32, SIZE), .grad = polar_tensor_1d(p->grad[1], POLAR_DTYPE_F32, SIZE)};
}

static void place_begin(place *p, polar_device *dev)
{
    static _Atomic int number;
    polar_param params[PARAMS];
    memset(p, 0, sizeof *p);
    p->dev = dev;
    snprintf(p->path, sizeof p->path, "/tmp/test_api.%d.%d.safetensors", (int)getpid(), ++number);
    must(polar_queue_create(&p->q, dev, NULL));
    for (int i = 0; i < PARAMS; i++) {
        must(polar_device_alloc(dev, &p->weight[i], sizeof start));
        must(polar_device_alloc(dev, &p->grad[i], sizeof slope));
        polar_queue_upload(p->q, p->weight[i], start, sizeof start);
        polar_queue_upload(p->q, p->grad[i], slope, sizeof slope);
    }
    must(polar_queue_sync(p->q));
    fill_params(p, params);
    must(polar_optim_create(&p->opt, dev, params, PARAMS, NULL));
}

static void place_end(place *p)
{
    polar_optim_destroy(p->opt);
    for (int i = 0; i < PARAMS; i++) {
        polar_device_free(p->dev, p->weight[i]);
        polar_device_free(p->dev, p->grad[i]);
    }
    polar_queue_destroy(p->q);
    unlink(p->path);
}

/* ---- the tables ------------------------------------------------------------------------------------ */

#define USE(fn, ...)  note(p, USED, #fn, #__VA_ARGS__, (__VA_ARGS__))              /* true where the function did what it should */
#define RUNS(fn, ...) note(p, USED, #fn, #__VA_ARGS__, fn(__VA_ARGS__) == POLAR_OK)

static void use_all(place *p)
{
    polar_device *dev = p->dev, *second = NULL;
    polar_queue *q = p->q, *other = NULL;
    polar_optim *opt = p->opt, *made = NULL;
    polar_param params[PARAMS];
    polar_param_stats stats[PARAMS];
    polar_map_opts map;
    polar_rule rule;
    polar_optim_opts opts;
    polar_optim_layout layout = POLAR_OPTIM_LAYOUT_INIT;
    polar_coef coefs[3];
    polar_cost cost;
    polar_dtype dtype;
    polar_scale scale;
    polar_schedule schedule = {.warmup = 2, .total = 4, .warmup_from = 0.5};
    polar_tensor tin = polar_tensor_2d(p->grad[0], POLAR_DTYPE_F32, ROWS, COLS), tout = polar_tensor_2d(p->weight[0], POLAR_DTYPE_F32, ROWS, COLS);
    const int64_t dims[1] = {3};
    float back[SIZE];
    void *memory = NULL;
    fill_params(p, params);

    USE(polar_status_name, !strcmp(polar_status_name(POLAR_E_SHAPE), "shape mismatch"));
    USE(polar_error_message, polar_error_message() != NULL);
    USE(polar_version, !strcmp(polar_version(), POLAR_VERSION));
    USE(polar_dtype_size, polar_dtype_size(POLAR_DTYPE_BF16) == 2);
    USE(polar_dtype_name, !strcmp(polar_dtype_name(POLAR_DTYPE_F32), "f32"));
    USE(polar_dtype_parse, polar_dtype_parse(&dtype, "float64") == POLAR_OK && dtype == POLAR_DTYPE_F64);
    USE(polar_tensor_1d, polar_tensor_1d(back, POLAR_DTYPE_F32, SIZE).shape[0] == SIZE);
    USE(polar_tensor_2d, polar_tensor_2d(back, POLAR_DTYPE_F32, ROWS, COLS).stride[0] == COLS);
    USE(polar_tensor_3d, polar_tensor_3d(back, POLAR_DTYPE_F32, 2, ROWS, COLS / 2).stride[0] == SIZE / 2);

    USE(polar_backend_count, polar_backend_count() >= 3);
    USE(polar_backend_name, !strcmp(polar_backend_name(0), "ref"));
    USE(polar_backend_summary, *polar_backend_summary(0));
    RUNS(polar_device_open, &second, "ref");
    USE(polar_device_close, (polar_device_close(second), 1));
    USE(polar_device_name, *polar_device_name(dev));
    RUNS(polar_device_alloc, dev, &memory, sizeof back);
    USE(polar_device_free, (polar_device_free(dev, memory), 1));

    RUNS(polar_queue_create, &other, dev, NULL);
    USE(polar_queue_destroy, (polar_queue_destroy(other), 1));
    RUNS(polar_queue_reserve, q, 4096);
    USE(polar_queue_upload, (polar_queue_upload(q, p->weight[0], start, sizeof start), 1));
    USE(polar_queue_download, (polar_queue_download(q, back, p->weight[0], sizeof back), 1));
    RUNS(polar_queue_sync, q);
    USE(polar_queue_download, !memcmp(back, start, sizeof start));
    RUNS(polar_queue_dry_begin, q);
    RUNS(polar_map_apply, q, &tout, &tin, 1, NULL);
    USE(polar_queue_dry_end, polar_queue_dry_end(q, &cost) == POLAR_OK && cost.ops > 0);
    RUNS(polar_queue_dry_begin, q);
    USE(polar_queue_dry_end_sized, polar_queue_dry_end_sized(q, &cost, sizeof cost) == POLAR_OK && cost.ops == 0);

    USE(polar_coef_table_name, !strcmp(polar_coef_table_name(0), "jordan"));
    RUNS(polar_coef_table, coefs, 3, "classical");
    USE(polar_map_opts_parse, polar_map_opts_parse(&map, "ns_fp32") == POLAR_OK && map.precision == POLAR_DTYPE_F32);
    USE(polar_map_opts_parse_sized, polar_map_opts_parse_sized(&map, sizeof map, "exact") == POLAR_OK && map.kind == POLAR_MAP_EXACT);
    RUNS(polar_map_apply, q, &tout, &tin, 1, &map);
    RUNS(polar_map_apply_blocks, q, &tout, &tin, dims, 1, NULL);

    USE(polar_rule_name, !strcmp(polar_rule_name(0), "sgdm"));
    USE(polar_rule_parse, polar_rule_parse(&rule, "muon") == POLAR_OK && rule.momentum == POLAR_MOMENTUM_NESTEROV);
    USE(polar_rule_parse_sized, polar_rule_parse_sized(&rule, "adamw", &layout) == POLAR_OK && rule.map.kind == POLAR_MAP_NONE);
    USE(polar_scale_parse, polar_scale_parse(&scale, "rms") == POLAR_OK && scale == POLAR_SCALE_RMS);
    USE(polar_scale_value, polar_scale_value(POLAR_SCALE_PAPER, 4, 1) == 2);
    USE(polar_schedule_factor, polar_schedule_factor(&schedule, 1) == 0.75);
    RUNS(polar_optim_opts_parse_sized, &opts, "muon_v", &layout);
    RUNS(polar_optim_opts_parse, &opts, "polaradamw");
    RUNS(polar_optim_create_sized, &made, dev, params, PARAMS, &opts, &layout);
    USE(polar_optim_destroy, (polar_optim_destroy(made), 1));
    RUNS(polar_optim_create, &made, dev, params, PARAMS, NULL);
    polar_optim_destroy(made);

    int64_t steps = polar_optim_get_step(opt);
    USE(polar_optim_param_count, polar_optim_param_count(opt) == PARAMS);
    USE(polar_optim_report, strstr(polar_optim_report(opt), "vector") != NULL);
    USE(polar_optim_state_bytes, polar_optim_state_bytes(opt) >= sizeof start * 4);
    RUNS(polar_optim_set_lr, opt, 0.01, 0.02);
    RUNS(polar_optim_set_weight_decay, opt, 0.1, 0.2);
    RUNS(polar_optim_set_member, opt, 0, 0.01, 0.02, 0.1, 0.2, 1);
    polar_hyper hyper;
    USE(polar_optim_get_hyper, polar_optim_get_hyper(opt, 0, 0, POLAR_ROUTE_AUX, &hyper) == POLAR_OK && hyper.lr == 0.02);
    RUNS(polar_optim_set_hyper, opt, -1, 0, POLAR_ROUTE_AUX, &hyper);
    USE(polar_optim_group_count, polar_optim_group_count(opt) == 1);
    USE(polar_optim_skipped, polar_optim_skipped(opt) == 0);
    USE(polar_optim_set_scaler, polar_optim_set_scaler(opt, NULL, NULL) == POLAR_E_STATE);    /* test_optim_skip has those that take it */
    RUNS(polar_optim_set_grad, opt, 0, p->grad[0]);
    RUNS(polar_optim_step, opt, q);
    RUNS(polar_optim_prepare, opt, q);
    RUNS(polar_optim_enqueue, opt, q);
    USE(polar_optim_get_step, polar_optim_get_step(opt) == steps + 2);
    USE(polar_optim_stats, polar_optim_stats(opt, q, stats) == POLAR_OK && stats[1].effective_lr == 0.02);
    USE(polar_optim_stats_sized, polar_optim_stats_sized(opt, q, stats, sizeof *stats) == POLAR_OK && stats[0].rows == ROWS);
    RUNS(polar_optim_save, opt, q, p->path);
    RUNS(polar_optim_load, opt, q, p->path);
    RUNS(polar_optim_load_with, opt, q, p->path, POLAR_LOAD_SETTINGS);
    RUNS(polar_optim_reload_weights, opt, q);
    RUNS(polar_queue_sync, q);
}

#define REFUSE_AS(fn, code, ...) note(p, REFUSED, #fn, #__VA_ARGS__, fn(__VA_ARGS__) == (code) && *polar_error_message())
#define REFUSE(fn, ...)          REFUSE_AS(fn, POLAR_E_ARG, __VA_ARGS__)
#define NONE(fn, ...)            note(p, REFUSED, #fn, #__VA_ARGS__, fn(__VA_ARGS__) == POLAR_E_ARG && strstr(polar_error_message(), "NULL"))    /* a NULL, and told so */
#define QUIET(fn, ...)           note(p, REFUSED, #fn, #__VA_ARGS__, (__VA_ARGS__))                                                               /* the harmless answer of its comment */

static void refuse_all(place *p)
{
    polar_device *dev = p->dev, *d = (polar_device *)p;
    polar_queue *q = p->q, *made = (polar_queue *)p;
    polar_optim *opt = p->opt, *o = (polar_optim *)p;
    polar_param params[PARAMS];
    polar_param_stats stats[PARAMS];
    polar_map_opts map = POLAR_MAP_OPTS_INIT, small = POLAR_MAP_OPTS_INIT;
    polar_rule rule;
    polar_optim_opts opts = POLAR_OPTIM_OPTS_INIT;
    polar_optim_layout layout = POLAR_OPTIM_LAYOUT_INIT, empty = {0};
    polar_coef coefs[3];
    polar_cost cost;
    polar_dtype dtype;
    polar_scale scale;
    polar_tensor t = polar_tensor_2d(p->weight[0], POLAR_DTYPE_F32, ROWS, COLS);
    const int64_t dims[1] = {0};
    void *memory = p;
    char bytes[8] = {0};
    fill_params(p, params);
    small.struct_size = 8;

    QUIET(polar_status_name, !strcmp(polar_status_name((polar_status)99), "unknown status"));
    QUIET(polar_error_message, polar_error_message() != NULL);
    QUIET(polar_version, *polar_version());
    QUIET(polar_dtype_size, polar_dtype_size((polar_dtype)77) == 0);
    QUIET(polar_dtype_name, !strcmp(polar_dtype_name((polar_dtype)77), "?"));
    NONE(polar_dtype_parse, NULL, "f32");
    NONE(polar_dtype_parse, &dtype, NULL);
    REFUSE_AS(polar_dtype_parse, POLAR_E_DTYPE, &dtype, "f8");
    QUIET(polar_tensor_1d, polar_tensor_1d(NULL, POLAR_DTYPE_F32, -1).data == NULL);
    QUIET(polar_tensor_2d, polar_tensor_2d(NULL, POLAR_DTYPE_F32, -1, 1).data == NULL);
    QUIET(polar_tensor_3d, polar_tensor_3d(NULL, POLAR_DTYPE_F32, 1, 1, 1).data == NULL);

    QUIET(polar_backend_count, polar_backend_count() > 0);
    QUIET(polar_backend_name, !polar_backend_name(-1) && !polar_backend_name(999));
    QUIET(polar_backend_summary, !polar_backend_summary(-1) && !polar_backend_summary(999));
    NONE(polar_device_open, NULL, "ref");
    NONE(polar_device_open, &d, NULL);
    QUIET(polar_device_open, d == NULL);
    REFUSE(polar_device_open, &d, "abacus");
    REFUSE(polar_device_open, &d, "cpu:threads=2,threads=4");
    REFUSE(polar_device_open, &d, "cpu:isa=scalar,threads=1,isa=scalar");
    REFUSE(polar_device_open, &d, "guard:on=cpu,threads=1,threads=1");
    REFUSE(polar_device_open, &d, "guard:on=ref,on=cpu");
    QUIET(polar_device_close, (polar_device_close(NULL), 1));
    QUIET(polar_device_name, !*polar_device_name(NULL));
    NONE(polar_device_alloc, NULL, &memory, 8);
    QUIET(polar_device_alloc, memory == NULL);
    NONE(polar_device_alloc, dev, NULL, 8);
    REFUSE_AS(polar_device_alloc, POLAR_E_NOMEM, dev, &memory, SIZE_MAX / 2);
    QUIET(polar_device_free, (polar_device_free(NULL, NULL), polar_device_free(dev, NULL), polar_device_free(NULL, p), 1));

    NONE(polar_queue_create, NULL, dev, NULL);
    REFUSE(polar_queue_create, &made, NULL, NULL);
    QUIET(polar_queue_create, made == NULL);
    QUIET(polar_queue_destroy, (polar_queue_destroy(NULL), 1));
    NONE(polar_queue_sync, NULL);
    QUIET(polar_queue_upload, (polar_queue_upload(NULL, p->weight[0], bytes, 8), strstr(polar_error_message(), "upload") != NULL));
    QUIET(polar_queue_upload, (polar_queue_upload(q, NULL, NULL, 0), 1));
    polar_queue_upload(q, NULL, bytes, sizeof bytes);
    NONE(polar_queue_sync, q);
    polar_queue_upload(q, p->weight[0], NULL, sizeof bytes);
    NONE(polar_queue_sync, q);
    QUIET(polar_queue_download, (polar_queue_download(NULL, bytes, p->weight[0], 8), strstr(polar_error_message(), "download") != NULL));
    polar_queue_download(q, bytes, NULL, sizeof bytes);
    NONE(polar_queue_sync, q);
    polar_queue_download(q, NULL, p->weight[0], sizeof bytes);
    NONE(polar_queue_sync, q);
    NONE(polar_queue_reserve, NULL, 8);
    NONE(polar_queue_dry_begin, NULL);
    NONE(polar_queue_dry_end, NULL, &cost);
    NONE(polar_queue_dry_end, q, NULL);
    NONE(polar_queue_dry_end_sized, NULL, &cost, sizeof cost);
    REFUSE_AS(polar_queue_dry_end_sized, POLAR_E_STATE, q, &cost, sizeof cost);
    must(polar_queue_dry_begin(q));
    REFUSE(polar_queue_dry_end_sized, q, &cost, 8);
    REFUSE_AS(polar_queue_dry_begin, POLAR_E_STATE, q);
    must(polar_queue_dry_end(q, &cost));

    QUIET(polar_coef_table_name, !polar_coef_table_name(-1) && !polar_coef_table_name(999));
    NONE(polar_coef_table, NULL, 3, "jordan");
    NONE(polar_coef_table, coefs, 3, NULL);
    REFUSE(polar_coef_table, coefs, -1, "jordan");
    REFUSE(polar_coef_table, coefs, POLAR_MAX_STEPS + 1, "jordan");
    NONE(polar_map_opts_parse, NULL, "exact");
    NONE(polar_map_opts_parse, &map, NULL);
    NONE(polar_map_opts_parse_sized, NULL, sizeof map, "exact");
    REFUSE(polar_map_opts_parse_sized, &map, 8, "exact");
    NONE(polar_map_apply, NULL, &t, &t, 1, NULL);
    NONE(polar_map_apply, q, NULL, &t, 1, NULL);
    NONE(polar_map_apply, q, &t, NULL, 1, NULL);
    REFUSE(polar_map_apply, q, &t, &t, -1, NULL);
    REFUSE(polar_map_apply, q, &t, &t, 1, &small);
    NONE(polar_map_apply_blocks, NULL, &t, &t, NULL, 1, NULL);
    NONE(polar_map_apply_blocks, q, NULL, &t, NULL, 1, NULL);
    NONE(polar_map_apply_blocks, q, &t, NULL, NULL, 1, NULL);
    REFUSE(polar_map_apply_blocks, q, &t, &t, dims, 1, NULL);

    QUIET(polar_rule_name, !polar_rule_name(-1) && !polar_rule_name(999));
    NONE(polar_rule_parse, NULL, "muon");
    NONE(polar_rule_parse, &rule, NULL);
    NONE(polar_rule_parse_sized, NULL, "muon", &layout);
    REFUSE(polar_rule_parse_sized, &rule, "muon", NULL);
    REFUSE(polar_rule_parse_sized, &rule, "muon", &empty);
    NONE(polar_scale_parse, NULL, "rms");
    NONE(polar_scale_parse, &scale, NULL);
    QUIET(polar_scale_value, polar_scale_value((polar_scale)77, 4, 4) == 1 && polar_scale_value(POLAR_SCALE_PAPER, 0, 4) == 1);
    QUIET(polar_schedule_factor, polar_schedule_factor(NULL, 3) == 1);
    QUIET(polar_schedule_factor, isnan(polar_schedule_factor(&opts.schedule, -1)) && strstr(polar_error_message(), "-1"));
    NONE(polar_optim_opts_parse, NULL, "muon");
    NONE(polar_optim_opts_parse, &opts, NULL);
    NONE(polar_optim_opts_parse_sized, NULL, "muon", &layout);
    REFUSE(polar_optim_opts_parse_sized, &opts, "muon", NULL);
    REFUSE(polar_optim_opts_parse_sized, &opts, "muon", &empty);

    NONE(polar_optim_create, NULL, dev, params, PARAMS, &opts);
    NONE(polar_optim_create, &o, NULL, params, PARAMS, &opts);
    QUIET(polar_optim_create, o == NULL);
    NONE(polar_optim_create, &o, dev, NULL, PARAMS, &opts);
    REFUSE(polar_optim_create, &o, dev, params, 0, &opts);
    REFUSE(polar_optim_create, &o, dev, params, -1, &opts);
    NONE(polar_optim_create_sized, NULL, dev, params, PARAMS, &opts, &layout);
    REFUSE(polar_optim_create_sized, &o, dev, params, PARAMS, &opts, NULL);
    REFUSE(polar_optim_create_sized, &o, dev, params, PARAMS, &opts, &empty);
    params[0].name = NULL;
    REFUSE(polar_optim_create, &o, dev, params, PARAMS, &opts);
    fill_params(p, params);
    params[0].weight.data = NULL;
    REFUSE(polar_optim_create, &o, dev, params, PARAMS, &opts);
    fill_params(p, params);
    params[0].schur_dim = 3;
    REFUSE(polar_optim_create, &o, dev, params, PARAMS, &opts);
    fill_params(p, params);
    opts.schedule.warmup = -1;
    REFUSE(polar_optim_create, &o, dev, params, PARAMS, &opts);
    QUIET(polar_optim_destroy, (polar_optim_destroy(NULL), 1));
    NONE(polar_optim_step, NULL, q);
    NONE(polar_optim_step, opt, NULL);
    NONE(polar_optim_prepare, NULL, q);
    NONE(polar_optim_prepare, opt, NULL);
    NONE(polar_optim_enqueue, NULL, q);
    NONE(polar_optim_enqueue, opt, NULL);
    NONE(polar_optim_set_lr, NULL, 0.1, 0.1);
    REFUSE(polar_optim_set_lr, opt, -1, 0.1);
    NONE(polar_optim_set_weight_decay, NULL, 0.1, 0.1);
    REFUSE(polar_optim_set_weight_decay, opt, 0.1, (double)NAN);
    NONE(polar_optim_set_member, NULL, 0, 0.1, 0.1, 0, 0, 1);
    REFUSE(polar_optim_set_member, opt, -1, 0.1, 0.1, 0, 0, 1);
    REFUSE(polar_optim_set_member, opt, 1, 0.1, 0.1, 0, 0, 1);
    polar_hyper hyper = {0.1, 0.9, 0.99, 1e-8, 0};
    NONE(polar_optim_set_hyper, NULL, 0, 0, POLAR_ROUTE_AUX, &hyper);
    NONE(polar_optim_set_hyper, opt, 0, 0, POLAR_ROUTE_AUX, NULL);
    NONE(polar_optim_get_hyper, NULL, 0, 0, POLAR_ROUTE_AUX, &hyper);
    REFUSE(polar_optim_get_hyper, opt, 0, 0, POLAR_ROUTE_AUTO, &hyper);
    NONE(polar_optim_set_scaler, NULL, NULL, NULL);
    REFUSE_AS(polar_optim_set_scaler, POLAR_E_STATE, opt, NULL, NULL);
    QUIET(polar_optim_group_count, polar_optim_group_count(NULL) == 0);
    QUIET(polar_optim_skipped, polar_optim_skipped(NULL) == 0);
    NONE(polar_optim_set_grad, NULL, 0, p->grad[0]);
    REFUSE(polar_optim_set_grad, opt, -1, p->grad[0]);
    REFUSE(polar_optim_set_grad, opt, PARAMS, p->grad[0]);
    REFUSE(polar_optim_set_grad, opt, 0, p->weight[1]);
    QUIET(polar_optim_get_step, polar_optim_get_step(NULL) == 0);
    QUIET(polar_optim_param_count, polar_optim_param_count(NULL) == 0);
    QUIET(polar_optim_report, !*polar_optim_report(NULL));
    QUIET(polar_optim_state_bytes, polar_optim_state_bytes(NULL) == 0);
    NONE(polar_optim_stats, NULL, q, stats);
    NONE(polar_optim_stats, opt, NULL, stats);
    NONE(polar_optim_stats, opt, q, NULL);
    NONE(polar_optim_stats_sized, opt, q, NULL, sizeof *stats);
    REFUSE(polar_optim_stats_sized, opt, q, stats, 8);
    NONE(polar_optim_save, NULL, q, p->path);
    NONE(polar_optim_save, opt, NULL, p->path);
    NONE(polar_optim_save, opt, q, NULL);
    REFUSE(polar_optim_save, opt, q, "/no/such/folder/state");
    NONE(polar_optim_load, NULL, q, p->path);
    NONE(polar_optim_load, opt, NULL, p->path);
    NONE(polar_optim_load, opt, q, NULL);
    REFUSE(polar_optim_load, opt, q, "/no/such/folder/state");
    NONE(polar_optim_load_with, NULL, q, p->path, 0);
    NONE(polar_optim_load_with, opt, NULL, p->path, 0);
    NONE(polar_optim_load_with, opt, q, NULL, 0);
    REFUSE(polar_optim_load_with, opt, q, p->path, 99);
    NONE(polar_optim_reload_weights, NULL, q);
    NONE(polar_optim_reload_weights, opt, NULL);
    RUNS(polar_queue_sync, q);
}

/* ---- who walks them -------------------------------------------------------------------------------- */

static void walk(place *p)
{
    for (int i = 0; i < 2; i++) {    /* what was refused must not spoil what follows */
        refuse_all(p);
        use_all(p);
    }
}

static void report(const char *who, const place *p)
{
    test_true(who, p->wrong == 0 && p->rows > 0, "%d of %d rows wrong%s%s", p->wrong, p->rows, p->wrong ? ", the first: " : "", p->first);
}

static void *thread_main(void *arg)
{
    place *p = arg;
    walk(p);
    return NULL;
}

static void test_threads(polar_device *dev)
{
    static place p[2];
    pthread_t thread[2];
    for (int i = 0; i < 2; i++) place_begin(&p[i], dev);
    for (int i = 0; i < 2; i++)
        if (pthread_create(&thread[i], NULL, thread_main, &p[i])) exit(1);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    report("one of two threads on a device", &p[0]);
    report("the other", &p[1]);
    for (int i = 0; i < 2; i++) place_end(&p[i]);
}

/* The child has no other threads than the one that forked: a device of several must make its own anew. */
static int child(place *parents, const char *device)
{
    static place own;
    polar_device *dev;
    walk(parents);
    must(polar_device_open(&dev, device));
    place_begin(&own, dev);
    walk(&own);
    place_end(&own);
    polar_device_close(dev);
    if (parents->wrong) printf("  with the parent's objects: %s\n", parents->first);
    if (own.wrong) printf("  with its own: %s\n", own.first);
    return parents->wrong || own.wrong;
}

static void test_fork(const char *device, polar_device *dev)
{
    static place p;
    int status = -1;
    place_begin(&p, dev);
    walk(&p);    /* whatever the library makes lazily, the parent has made */
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        alarm(60);    /* a child that waits for threads it does not have is ended */
        int wrong = child(&p, device);
        fflush(stdout);
        _exit(wrong);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid) status = -1;
    test_true("a child after fork", WIFEXITED(status) && WEXITSTATUS(status) == 0, "exit %d, signal %d", WIFEXITED(status) ? WEXITSTATUS(status) : -1,
              WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    p.wrong = p.rows = 0;
    walk(&p);
    report("  and its parent", &p);
    place_end(&p);
}

/* ---- nobody was forgotten -------------------------------------------------------------------------- */

/* Words of a file that stand before `end` and begin with polar_: "    polar_version;" of the version script. */
static int exported(char names[MOST][64], const char *path)
{
    char line[200];
    int n = 0;
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f) && n < MOST) n += sscanf(line, " polar_%57[a-z0-9_]", names[n] + 6) == 1 && memcpy(names[n], "polar_", 6) && line[0] == ' ';
    if (f) fclose(f);
    return n;
}

static void test_complete(const place *p)
{
    static char names[MOST][64];
    int n = exported(names, SOURCE_DIR "/cmake/polar.map"), lacking = 0;
    for (int table = 0; table < TABLES; table++)
        for (int i = 0; i < n; i++) {
            if (has(p, table, names[i])) continue;
            printf("  %s lacks %s, which cmake/polar.map exports\n", table_names[table], names[i]);
            lacking++;
        }
    test_true("exported functions are in both tables", lacking == 0 && n >= 59, "%d functions", n);
    for (int table = 0; table < TABLES; table++) test_true(table_names[table], p->count[table] == n, "%d functions", p->count[table]);
    test_true("  a function that is in neither is found out", !has(p, USED, "polar_none") && !has(p, REFUSED, "polar_none"), "polar_none");
}

/* ---- wrong order ----------------------------------------------------------------------------------- */

static int same_weights(place *p, const float *want)
{
    float back[SIZE];
    polar_queue_download(p->q, back, p->weight[0], sizeof back);
    must(polar_queue_sync(p->q));
    return !memcmp(back, want, sizeof back);
}

/* The device is closed first and everything else goes on working. */
static void test_closed_first(const char *device)
{
    static place p;
    polar_device *dev;
    polar_queue *late = (polar_queue *)&p;
    polar_optim *opt;
    polar_param params[PARAMS];
    int64_t blocks = pl_alloc_live();
    must(polar_device_open(&dev, device));
    place_begin(&p, dev);
    polar_device_close(dev);
    polar_status st = polar_optim_step(p.opt, p.q);
    test_true("a closed device: its optimiser steps", st == POLAR_OK && polar_queue_sync(p.q) == POLAR_OK && !same_weights(&p, start), "the weights moved");
    test_true("  a new queue is refused", polar_queue_create(&late, dev, NULL) == POLAR_E_STATE && !late, "%s", polar_error_message());
    fill_params(&p, params);
    test_true("  a new optimiser too", polar_optim_create(&opt, dev, params, PARAMS, NULL) == POLAR_E_STATE, "%s", polar_error_message());
    polar_device_close(dev);    /* once more, while it is kept: nothing */
    polar_queue_destroy(p.q);
    p.q = NULL;
    place_end(&p);              /* optimiser and buffers after queue and device: the last one ends the device */
    test_exact("  device, queue, optimiser, buffers: blocks left", pl_alloc_live() - blocks);
}

/* A graph of a queue that is gone, and work in a queue whose optimiser is gone. */
static void test_gone(polar_device *dev)
{
    static place p;
    float want[SIZE];
    polar_queue *first;
    place_begin(&p, dev);
    must(polar_queue_create(&first, dev, NULL));
    must(polar_optim_step(p.opt, first));
    must(polar_optim_step(p.opt, first));
    must(polar_queue_sync(first));
    polar_queue_destroy(first);
    polar_status st = polar_optim_step(p.opt, p.q);
    test_true("a captured queue is gone: another steps on", st == POLAR_OK && polar_queue_sync(p.q) == POLAR_OK, "step %lld", (long long)polar_optim_get_step(p.opt));
    polar_queue_download(p.q, want, p.weight[0], sizeof want);
    must(polar_queue_sync(p.q));
    must(polar_optim_step(p.opt, p.q));
    polar_optim_destroy(p.opt);    /* with its step perhaps still in the queue */
    p.opt = NULL;
    test_true("an optimiser goes before its work is done", polar_queue_sync(p.q) == POLAR_OK && !same_weights(&p, want), "the step was made");
    place_end(&p);
}

/* The work without the values of a step: no weight moves, and none becomes NaN. */
static void test_not_prepared(polar_device *dev)
{
    static place p;
    place_begin(&p, dev);
    test_true("enqueue before the first prepare", polar_optim_enqueue(p.opt, p.q) == POLAR_OK && polar_queue_sync(p.q) == POLAR_OK, "step %lld",
              (long long)polar_optim_get_step(p.opt));
    test_true("  moves no weight", same_weights(&p, start), "as they were");
    place_end(&p);
}

/* guard finds what a GPU would stumble over, and says whose it is. */
static void test_named(const char *device, polar_device *dev)
{
    static place p;
    static float host[SIZE];
    if (strncmp(device, "guard", 5)) return;
    place_begin(&p, dev);
    must(polar_optim_set_grad(p.opt, 0, host));
    polar_status st = polar_optim_step(p.opt, p.q);
    if (st == POLAR_OK) st = polar_queue_sync(p.q);
    test_true("a gradient in host memory", st != POLAR_OK && strstr(polar_error_message(), "gradient of 'matrix'"), "%s", polar_error_message());
    must(polar_optim_set_grad(p.opt, 0, p.grad[0]));
    (void)polar_queue_sync(p.q);
    place_end(&p);
}

int main(int argc, char **argv)
{
    static place p;
    polar_device *dev;
    const char *device = test_begin(argc, argv);
    for (int i = 0; i < SIZE; i++) start[i] = (float)(i % 7) - 3, slope[i] = (float)(i * i % 11) - 5;
    must(polar_device_open(&dev, device));
    place_begin(&p, dev);
    walk(&p);
    report("the main thread", &p);
    test_complete(&p);
    place_end(&p);
    test_threads(dev);
    test_fork(device, dev);
    test_gone(dev);
    test_not_prepared(dev);
    test_named(device, dev);
    test_closed_first(device);
    polar_device_close(dev);
    return test_end();
}
