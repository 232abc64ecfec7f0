/* test_optim_use.c -- routes and their report, odd shapes, and wrong use: a status and a sentence each.
 *
 *     ctest -R test_optim_use
 */
#include "fixtures/optim_fixture.h"

#define REFUSED(what, call, code) test_true(what, (call) == (code), "%s", polar_error_message())

/* ---- routes ------------------------------------------------------------------------------------- */

enum { R = 4, C = 6, N = R * C, MOST = 8 };

/* A device and memory for parameters of up to N elements. */
typedef struct {
    pl_device *dev;
    pl_queue *q;
    pl_mat W[MOST], G[MOST];
    polar_param p[MOST];
    polar_optim *opt;
} place;

static void place_open(place *at, const char *device)
{
    double x[N];
    *at = (place){0};
    TEST_TRY(polar_device_open(&at->dev, device));
    TEST_TRY(polar_queue_create(&at->q, at->dev, NULL));
    for (int i = 0; i < MOST; i++) {
        TEST_TRY(pl_mat_alloc(&at->W[i], at->dev, POLAR_DTYPE_F32, 1, 1, N));
        TEST_TRY(pl_mat_alloc(&at->G[i], at->dev, POLAR_DTYPE_F32, 1, 1, N));
        map_fill(x, N, 10 + (uint64_t)i);
        TEST_TRY(pl_mat_upload_f64(at->q, &at->W[i], x));
        map_fill(x, N, 30 + (uint64_t)i);
        TEST_TRY(pl_mat_upload_f64(at->q, &at->G[i], x));
    }
    TEST_TRY(polar_queue_sync(at->q));
}

static void place_close(place *at)
{
    polar_optim_destroy(at->opt);
    polar_queue_destroy(at->q);
    for (int i = 0; i < MOST; i++) {
        pl_mat_free(&at->W[i], at->dev);
        pl_mat_free(&at->G[i], at->dev);
    }
    polar_device_close(at->dev);
}

/* Parameter i: a matrix of R x C unless changed afterwards. */
static polar_param *place_param(place *at, int i, const char *name)
{
    at->p[i] = (polar_param){.name = name};
    at->p[i].weight = polar_tensor_2d(at->W[i].data, POLAR_DTYPE_F32, R, C);
    at->p[i].grad = polar_tensor_2d(at->G[i].data, POLAR_DTYPE_F32, R, C);
    return &at->p[i];
}

static void set_shape(polar_param *p, int ndim, int64_t a, int64_t b, int64_t c)
{
    polar_tensor t = {.dtype = POLAR_DTYPE_F32,
                      .ndim = ndim,
                      .shape = {a, b, c},
                      .stride = {ndim == 3   ? b * c
                                 : ndim == 2 ? b
                                             : 1,
                                 ndim == 3 ? c : 1, 1}};
    void *w = p->weight.data, *g = p->grad.data;
    p->weight = p->grad = t;
    p->weight.data = w;
    p->grad.data = g;
}

static polar_status create(place *at, int n, const polar_optim_opts *o)
{
    polar_optim_destroy(at->opt);
    return polar_optim_create(&at->opt, at->dev, at->p, n, o);
}

static void patterns(const char *device)
{
    static const struct {
        const char *names, *not, *name;
        polar_route route, want;
    } rows[] = {
        {NULL, NULL, "w", 0, POLAR_ROUTE_MATRIX},
        {"blocks.*", NULL, "blocks.0.w", 0, POLAR_ROUTE_MATRIX},
        {"blocks.*", NULL, "head.w", 0, POLAR_ROUTE_AUX},
        {"blocks.*", NULL, "my.blocks.0", 0, POLAR_ROUTE_AUX},
        {"*.weight", NULL, "a.weight.weight", 0, POLAR_ROUTE_MATRIX},
        {"*.weight", NULL, "a.weights", 0, POLAR_ROUTE_AUX},
        {"blocks.?.w", NULL, "blocks.7.w", 0, POLAR_ROUTE_MATRIX},
        {"blocks.?.w", NULL, "blocks.10.w", 0, POLAR_ROUTE_AUX},
        {"blocks.?.w", NULL, "blocks..w", 0, POLAR_ROUTE_AUX},
        {"*a*b*c", NULL, "xaxbxxbc", 0, POLAR_ROUTE_MATRIX},
        {"*a*b*c", NULL, "xaxbxxbcd", 0, POLAR_ROUTE_AUX},
        {"q,k,v", NULL, "k", 0, POLAR_ROUTE_MATRIX},
        {"q,k,v", NULL, "kv", 0, POLAR_ROUTE_AUX},
        {",,q,", NULL, "q", 0, POLAR_ROUTE_MATRIX},
        {"", NULL, "q", 0, POLAR_ROUTE_AUX},
        {"*", NULL, "q", 0, POLAR_ROUTE_MATRIX},
        {"**", NULL, "*", 0, POLAR_ROUTE_MATRIX},
        {"blocks.*", "*.embed*", "blocks.embed.w", 0, POLAR_ROUTE_AUX},
        {NULL, "head*,*.embed", "pos.embed", 0, POLAR_ROUTE_AUX},
        {NULL, "head*,*.embed", "ahead", 0, POLAR_ROUTE_MATRIX},
        {NULL, "*", "w", POLAR_ROUTE_MATRIX, POLAR_ROUTE_MATRIX},
        {"*", NULL, "w", POLAR_ROUTE_AUX, POLAR_ROUTE_AUX},
    };
    place at;
    int64_t bad = 0;
    place_open(&at, device);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        polar_optim_opts o = POLAR_OPTIM_OPTS_INIT;
        polar_param_stats s;
        o.matrix_names = rows[i].names, o.aux_names = rows[i].not, o.allow_no_matrix = 1;
        place_param(&at, 0, rows[i].name)->route = rows[i].route;
        TEST_TRY(create(&at, 1, &o));
        TEST_TRY(polar_optim_stats(at.opt, at.q, &s));
        if (s.route != rows[i].want)
            printf("matrix '%s', aux '%s': '%s' went the wrong way\n", rows[i].names ? rows[i].names : "",
                   rows[i].not ? rows[i].not : "", rows[i].name);
        bad += s.route != rows[i].want || strcmp(s.name, rows[i].name);
    }
    test_exact("22 patterns and routes", bad);
    place_close(&at);
}

/* Every name stands in the report with its route; zero elements, 1 x 1, 1 x N, scalars and filters make
 * steps. */
static void odd_shapes(const char *device, const char *map, int measure)
{
    static const char *const names[] = {"none", "empty.rows", "scalar", "one",
                                        "row",  "column",     "filter", "vector"};
    static const char *const routes[] = {"matrix", "matrix", "aux",    "matrix",
                                         "matrix", "matrix", "matrix", "aux"};
    polar_optim_opts o = POLAR_OPTIM_OPTS_INIT;
    polar_param_stats s[MOST];
    place at;
    int64_t bad = 0, still = 0;
    char line[96];
    place_open(&at, device);
    for (int i = 0; i < MOST; i++) place_param(&at, i, names[i]);
    set_shape(&at.p[0], 2, 3, 0, 0);
    at.p[0].weight.data = at.p[0].grad.data = NULL;
    set_shape(&at.p[1], 2, 0, 5, 0);
    set_shape(&at.p[2], 0, 0, 0, 0);
    set_shape(&at.p[3], 2, 1, 1, 0);
    set_shape(&at.p[4], 2, 1, 7, 0);
    set_shape(&at.p[5], 2, 7, 1, 0);
    set_shape(&at.p[6], 3, 2, 3, 4);
    set_shape(&at.p[7], 1, 5, 0, 0);
    at.p[7].row_blocks = 5; /* means nothing on the aux route */
    TEST_TRY(polar_map_opts_parse(&o.rule.map, map));
    o.measure = measure;
    TEST_TRY(create(&at, MOST, &o));
    for (int t = 0; t < 3; t++) TEST_TRY(polar_optim_step(at.opt, at.q));
    TEST_TRY(polar_optim_stats(at.opt, at.q, s));
    const char *report = polar_optim_report(at.opt);
    for (int i = 0; i < MOST; i++) {
        const char *at_name = strstr(report, names[i]), *end = at_name ? strchr(at_name, '\n') : NULL,
                   *route = at_name ? strstr(at_name, routes[i]) : NULL;
        bad += !route || !end || route > end;
        bad += measure ? !(s[i].update_norm >= 0) : s[i].update_norm == s[i].update_norm;
        double x[N], w[N], moved = 0;
        map_fill(x, N, 10 + (uint64_t)i);
        TEST_TRY(pl_mat_download_f64(at.q, &at.W[i], w));
        int64_t n = i < 2 ? 0 : i == 2 || i == 3 ? 1 : i == 6 ? N : i == 7 ? 5 : 7;
        for (int64_t k = 0; k < N; k++) {
            bad += w[k] - w[k] != 0 || (k >= n && w[k] != x[k]);
            if (k < n) moved += fabs(w[k] - x[k]);
        }
        still += n && moved == 0;
    }
    bad += s[7].rows != 1 || s[7].blocks != 1 || s[6].rows != 2 || s[6].cols != 12;
    snprintf(line, sizeof line, "odd shapes, %s%s", map, measure ? ", measured" : "");
    test_true(line, !bad && !still, "%lld wrong, %lld did not move", (long long)bad, (long long)still);
    if (measure) printf("%s", report);
    place_close(&at);
}

/* Only parameters of zero elements: nothing to do, and no error. */
static void all_empty(const char *device)
{
    polar_optim_opts o = POLAR_OPTIM_OPTS_INIT;
    place at;
    place_open(&at, device);
    set_shape(place_param(&at, 0, "nothing"), 2, 0, 0, 0);
    at.p[0].weight.data = at.p[0].grad.data = NULL;
    polar_status st = create(&at, 1, &o);
    if (st == POLAR_OK) st = polar_optim_step(at.opt, at.q);
    if (st == POLAR_OK) st = polar_queue_sync(at.q);
    test_true("nothing but an empty parameter", st == POLAR_OK && polar_optim_get_step(at.opt) == 1, "%s",
              polar_status_name(st));
    place_close(&at);
}

/* Nothing split into as many blocks as there are numbers, with a group whose norm is taken of all of them. */
static void empty_blocks(const char *device)
{
    polar_optim_opts o = POLAR_OPTIM_OPTS_INIT;
    place at;
    place_open(&at, device);
    set_shape(place_param(&at, 0, "nothing"), 2, 0, 5, 0);
    at.p[0].row_blocks = INT64_MAX / 2;
    at.p[0].schur_group = 1;
    place_param(&at, 1, "something")->schur_group = 1;
    polar_status st = create(&at, 2, &o);
    if (st == POLAR_OK) st = polar_optim_step(at.opt, at.q);
    if (st == POLAR_OK) st = polar_queue_sync(at.q);
    test_true("an empty parameter in any number of blocks", st == POLAR_OK, "%s", polar_status_name(st));
    place_close(&at);
}

/* ---- wrong use ---------------------------------------------------------------------------------- */

/* create fails with this code and leaves no optimiser. */
static void refused(const char *what, place *at, int n, const polar_optim_opts *o, polar_status code)
{
    polar_status st = create(at, n, o);
    test_true(what, st == code && !at->opt, "%s", polar_error_message());
}

/* One option changed, tried on one good parameter. */
#define OPTION(what, code, ...)                     \
    do {                                            \
        polar_optim_opts o = POLAR_OPTIM_OPTS_INIT; \
        place_param(&at, 0, "w");                   \
        __VA_ARGS__;                                \
        refused(what, &at, 1, &o, code);            \
    } while (0)

static void wrong_options(const char *device)
{
    place at;
    polar_rule rule;
    polar_optim_opts parsed;
    polar_scale scale;
    place_open(&at, device);
    OPTION("options of another size", POLAR_E_ARG, o.struct_size = 24);
    OPTION("map options of another size", POLAR_E_ARG, o.rule.map.struct_size = 1);
    OPTION("beta1 of 1", POLAR_E_ARG, o.rule.beta1 = 1);
    OPTION("negative beta2", POLAR_E_ARG, o.rule.beta2 = -0.1);
    OPTION("beta2 not a number", POLAR_E_ARG, o.rule.beta2 = NAN);
    OPTION("aux_beta1 of 1", POLAR_E_ARG, o.aux_beta1 = 1);
    OPTION("eps of 0", POLAR_E_ARG, o.rule.eps = 0);
    OPTION("aux_eps that float rounds to 0", POLAR_E_ARG, o.aux_eps = 1e-60);
    OPTION("infinite eps", POLAR_E_ARG, o.rule.eps = INFINITY);
    OPTION("lr not a number", POLAR_E_ARG, o.lr = NAN);
    OPTION("infinite aux_lr", POLAR_E_ARG, o.aux_lr = INFINITY);
    OPTION("negative lr", POLAR_E_ARG, o.lr = -1e-3);
    OPTION("negative decay", POLAR_E_ARG, o.weight_decay = -1);
    OPTION("aux decay not a number", POLAR_E_ARG, o.aux_weight_decay = NAN);
    OPTION("negative members", POLAR_E_ARG, o.members = -2);
    OPTION("a warm-up longer than the run", POLAR_E_ARG, (o.schedule.warmup = 9, o.schedule.total = 8));
    OPTION("a warm-up without a run", POLAR_E_ARG, o.schedule.warmup = 9);
    OPTION("a negative run", POLAR_E_ARG, o.schedule.total = -8);
    OPTION("warm-up from not a number", POLAR_E_ARG, o.schedule.warmup_from = NAN);
    OPTION("no such momentum", POLAR_E_ARG, o.rule.momentum = (polar_momentum)5);
    OPTION("no such preconditioner", POLAR_E_ARG, o.rule.precondition = (polar_precondition)7);
    OPTION("no such scale", POLAR_E_ARG, o.rule.scale = (polar_scale)17);
    OPTION("no such map", POLAR_E_ARG, o.rule.map.kind = (polar_map_kind)5);
    OPTION("no such rounding", POLAR_E_ARG, o.rule.map.rounding = (polar_rounding)4);
    OPTION("reference rounding in f32", POLAR_E_ARG,
           (o.rule.map.rounding = POLAR_ROUND_REFERENCE, o.rule.map.precision = POLAR_DTYPE_F32));
    OPTION("33 steps of the map", POLAR_E_ARG, o.rule.map.steps = 33);
    OPTION("no such table", POLAR_E_ARG, o.rule.map.table = "jordon");
    OPTION("no such precision", POLAR_E_DTYPE, o.rule.map.precision = (polar_dtype)9);
    OPTION("nothing for the rule", POLAR_E_ARG, o.matrix_names = "layers.*,stem");
    test_true("... and it quotes the patterns", strstr(polar_error_message(), "'layers.*,stem'") != NULL,
              "%s", "");
    OPTION("everything is aux", POLAR_E_ARG, o.aux_names = "?,*w");
    test_true("... and it quotes the patterns", strstr(polar_error_message(), "'?,*w'") != NULL, "%s", "");
    polar_optim_opts none = POLAR_OPTIM_OPTS_INIT;
    refused("no parameters", &at, 0, &none, POLAR_E_ARG);
    none.aux_names = "*", none.allow_no_matrix = 1;
    test_true("... unless allowed",
              create(&at, 1, &none) == POLAR_OK && polar_optim_step(at.opt, at.q) == POLAR_OK &&
                  polar_queue_sync(at.q) == POLAR_OK,
              "%s", "");
    REFUSED("unknown rule", polar_rule_parse(&rule, "adam"), POLAR_E_ARG);
    REFUSED("unknown rule's defaults", polar_optim_opts_parse(&parsed, ""), POLAR_E_ARG);
    REFUSED("unknown scale", polar_scale_parse(&scale, "Paper"), POLAR_E_ARG);
    place_close(&at);
}

/* Parameters "w" and "x", one of them spoilt. */
#define PARAM(what, code, ...)                                                    \
    do {                                                                          \
        polar_optim_opts o = POLAR_OPTIM_OPTS_INIT;                               \
        polar_param *w = place_param(&at, 0, "w"), *x = place_param(&at, 1, "x"); \
        (void)w, (void)x;                                                         \
        __VA_ARGS__;                                                              \
        refused(what, &at, 2, &o, code);                                          \
    } while (0)

static void wrong_params(const char *device)
{
    place at;
    char longest[800];
    memset(longest, 'n', sizeof longest);
    longest[sizeof longest - 1] = 0;
    place_open(&at, device);
    PARAM("one name twice", POLAR_E_ARG, x->name = "w");
    PARAM("no name", POLAR_E_ARG, x->name = NULL);
    PARAM("an empty name", POLAR_E_ARG, x->name = "");
    PARAM("a name that is not UTF-8", POLAR_E_ARG, x->name = "w\xff\n");
    PARAM("a name of 799 bytes", POLAR_E_ARG, x->name = longest);
    PARAM("the same weights twice", POLAR_E_ARG, x->weight.data = w->weight.data);
    PARAM("weights that overlap by one", POLAR_E_ARG,
          (set_shape(w, 2, R, C - 1, 0), set_shape(x, 2, 2, 2, 0),
           x->weight.data = (float *)w->weight.data + R * (C - 1) - 1));
    PARAM("its gradient is its weight", POLAR_E_ARG, x->grad.data = x->weight.data);
    PARAM("another's gradient is a weight", POLAR_E_ARG, x->grad.data = w->weight.data);
    PARAM("no weights", POLAR_E_ARG, x->weight.data = NULL);
    PARAM("shapes that differ", POLAR_E_SHAPE,
          (x->grad.shape[0] = C, x->grad.shape[1] = R, x->grad.stride[0] = R));
    PARAM("dimensions that differ", POLAR_E_SHAPE,
          x->grad = polar_tensor_1d(x->grad.data, POLAR_DTYPE_F32, N));
    PARAM("weights in no format", POLAR_E_DTYPE, x->weight.dtype = (polar_dtype)3);
    PARAM("gradient in no format", POLAR_E_DTYPE, x->grad.dtype = (polar_dtype)-1);
    PARAM("weights with gaps", POLAR_E_SHAPE, x->weight.stride[0] = C + 1);
    PARAM("a transposed gradient", POLAR_E_SHAPE, (x->grad.stride[0] = 1, x->grad.stride[1] = R));
    PARAM("a negative size", POLAR_E_SHAPE, x->weight.shape[0] = x->grad.shape[0] = -R);
    PARAM("too many dimensions", POLAR_E_SHAPE, x->weight.ndim = x->grad.ndim = 9);
    PARAM("negative dimensions", POLAR_E_SHAPE, x->weight.ndim = x->grad.ndim = -1);
    PARAM("more elements than memory", POLAR_E_SHAPE, (set_shape(x, 2, INT64_MAX / 8, 16, 0)));
    PARAM("no elements, by more than memory each", POLAR_E_SHAPE,
          set_shape(x, 3, 0, (int64_t)1 << 40, (int64_t)1 << 22));
    PARAM("more elements together than memory", POLAR_E_SHAPE,
          (set_shape(w, 2, INT64_MAX / 100, 1, 0), set_shape(x, 2, 1, INT64_MAX / 100, 0)));
    PARAM("a vector on the matrix route", POLAR_E_SHAPE,
          (set_shape(x, 1, N, 0, 0), x->route = POLAR_ROUTE_MATRIX));
    PARAM("a scalar on the matrix route", POLAR_E_SHAPE,
          (set_shape(x, 0, 0, 0, 0), x->route = POLAR_ROUTE_MATRIX));
    PARAM("no such route", POLAR_E_ARG, x->route = (polar_route)3);
    PARAM("rows that cannot be split", POLAR_E_SHAPE, x->row_blocks = 3);
    PARAM("negative row blocks", POLAR_E_ARG, x->row_blocks = -1);
    PARAM("a negative Schur group", POLAR_E_ARG, x->schur_group = -1);
    PARAM("a negative dimension of a Schur block", POLAR_E_ARG, (x->schur_group = 1, x->schur_dim = -3));
    PARAM("members: another first dimension", POLAR_E_SHAPE, o.members = 3);
    PARAM("members: a scalar", POLAR_E_SHAPE, (o.members = R, set_shape(x, 0, 0, 0, 0)));
    PARAM("members in a Schur group", POLAR_E_UNSUPPORTED,
          (o.members = 2, set_shape(w, 3, 2, 3, 4), set_shape(x, 3, 2, 3, 4), x->schur_group = 1));
    PARAM("a Schur group of f64 and f32", POLAR_E_DTYPE,
          (set_shape(x, 2, 2, 2, 0), x->weight.dtype = POLAR_DTYPE_F64, w->schur_group = x->schur_group = 2));
    place_close(&at);
}

static void wrong_moments(const char *device)
{
    polar_optim_opts o = POLAR_OPTIM_OPTS_INIT;
    place at, other;
    double before[N], after[N];
    place_open(&at, device);
    place_open(&other, device);
    place_param(&at, 0, "w");
    place_param(&at, 1, "x")->grad.data = NULL;
    TEST_TRY(create(&at, 2, &o));
    TEST_TRY(pl_mat_download_f64(at.q, &at.W[0], before));
    REFUSED("a step without a gradient", polar_optim_step(at.opt, at.q), POLAR_E_STATE);
    REFUSED("enqueue without a gradient", polar_optim_enqueue(at.opt, at.q), POLAR_E_STATE);
    REFUSED("gradient of parameter 2 of 2", polar_optim_set_grad(at.opt, 2, at.G[1].data), POLAR_E_ARG);
    REFUSED("gradient of parameter -1", polar_optim_set_grad(at.opt, -1, at.G[1].data), POLAR_E_ARG);
    REFUSED("a gradient that moves onto a weight", polar_optim_set_grad(at.opt, 1, at.W[0].data),
            POLAR_E_ARG);
    TEST_TRY(polar_optim_set_grad(at.opt, 1, at.G[1].data));
    REFUSED("a queue of another device", polar_optim_step(at.opt, other.q), POLAR_E_ARG);
    REFUSED("... for enqueue", polar_optim_enqueue(at.opt, other.q), POLAR_E_ARG);
    REFUSED("... for a state file", polar_optim_save(at.opt, other.q, "/nowhere/state"), POLAR_E_ARG);
    REFUSED("member 1 of 1", polar_optim_set_member(at.opt, 1, 1, 1, 0, 0, 1), POLAR_E_ARG);
    REFUSED("member -1", polar_optim_set_member(at.opt, -1, 1, 1, 0, 0, 1), POLAR_E_ARG);
    REFUSED("lr not a number", polar_optim_set_lr(at.opt, NAN, 1), POLAR_E_ARG);
    REFUSED("negative aux_lr", polar_optim_set_lr(at.opt, 1, -1), POLAR_E_ARG);
    REFUSED("infinite decay", polar_optim_set_weight_decay(at.opt, INFINITY, 0), POLAR_E_ARG);
    TEST_TRY(polar_queue_sync(at.q));
    TEST_TRY(pl_mat_download_f64(at.q, &at.W[0], after));
    test_true("... and nothing happened",
              !map_mismatches(before, after, N) && polar_optim_get_step(at.opt) == 0, "step %lld",
              (long long)polar_optim_get_step(at.opt));
    polar_cost cost;
    TEST_TRY(polar_queue_dry_begin(at.q));
    TEST_TRY(polar_optim_step(at.opt, at.q));
    TEST_TRY(polar_queue_dry_end(at.q, &cost));
    test_true("a dry run is no step", cost.ops > 0 && polar_optim_get_step(at.opt) == 0,
              "%lld ops, %.0f flops, step %lld", (long long)cost.ops, cost.flops,
              (long long)polar_optim_get_step(at.opt));
    TEST_TRY(polar_optim_step(at.opt, at.q));
    TEST_TRY(polar_queue_sync(at.q));
    test_true("and then it works",
              polar_optim_get_step(at.opt) == 1 && polar_optim_param_count(at.opt) == 2 &&
                  polar_optim_state_bytes(at.opt) >= 3 * 2 * N * sizeof(float),
              "%zu bytes of state", polar_optim_state_bytes(at.opt));
    polar_optim_destroy(NULL);
    place_close(&at);
    place_close(&other);
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    patterns(device);
    odd_shapes(device, "ns_bf16_fused", 0);
    odd_shapes(device, "ns_bf16_reference", 1);
    odd_shapes(device, "exact", 1);
    all_empty(device);
    empty_blocks(device);
    wrong_options(device);
    wrong_params(device);
    wrong_moments(device);
    return test_end();
}
