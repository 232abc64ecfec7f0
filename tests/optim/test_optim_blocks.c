/* test_optim_blocks.c -- a parameter as a list of blocks: the bits of the same matrices as parameters of
 * their own, and of what no block covers as a vector on the aux route. */
#include <unistd.h>

#include "device/queue.h"
#include "fixtures/map_fixture.h"
#include "polar/optim.h"

enum { MOST = 400, MOST_PARAMS = 12, MOST_BLOCKS = 8 };

typedef struct {
    const char *name;
    int ndim;
    int64_t shape[2], schur_group;
    int count;
    polar_block block[MOST_BLOCKS];
} blocks_case;

static const blocks_case cases[] = {
    {"a flat vector, neighbours alike, two gaps",
     1,
     {123},
     0,
     5,
     {{0, 6, 4, 0, 0}, {24, 6, 4, 0, 0}, {48, 3, 5, 0, 0}, {70, 4, 6, 0, 0}, {94, 6, 4, 0, 0}}},
    {"heads: columns of a matrix",
     2,
     {12, 15},
     0,
     3,
     {{0, 12, 5, 15, 0}, {5, 12, 5, 15, 0}, {10, 12, 5, 15, 0}}},
    {"some columns, the rest on both sides", 2, {10, 9}, 0, 1, {{2, 10, 3, 9, 0}}},
    {"heads of q alone: rows and columns", 2, {12, 8}, 0, 2, {{0, 3, 8, 0, 0}, {24, 3, 8, 0, 0}}},
    {"in no order, single rows and columns",
     1,
     {90},
     0,
     4,
     {{60, 5, 6, 0, 0}, {0, 1, 20, 0, 0}, {21, 8, 1, 2, 0}, {40, 4, 5, 0, 0}}},
    {"a direct sum", 1, {60}, 3, 3, {{0, 4, 4, 0, 1}, {16, 5, 4, 0, 3}, {36, 2, 12, 0, 5}}},
};
enum { CASES = sizeof cases / sizeof *cases };

/* A side: the parameter whole with its list, or cut up. Element j of its parameter p is element at[p][j] of
 * the whole. */
typedef struct {
    pl_device *dev;
    pl_queue *q;
    polar_optim *opt;
    int n;
    int64_t members, all, size[MOST_PARAMS], at[MOST_PARAMS][MOST];
    pl_mat W[MOST_PARAMS], G[MOST_PARAMS], H[MOST_PARAMS];
    polar_param p[MOST_PARAMS];
    char name[MOST_PARAMS][24];
} side;

static int64_t elements_of(const blocks_case *c)
{
    return c->shape[0] * (c->ndim == 2 ? c->shape[1] : 1);
}

static void side_param(side *s, int64_t rows, int64_t cols, int ndim, polar_dtype dtype, polar_dtype grad)
{
    const int i = s->n++;
    const int64_t k = s->members;
    s->size[i] = rows * cols;
    TEST_TRY(pl_mat_alloc(&s->W[i], s->dev, dtype, k, 1, rows * cols));
    TEST_TRY(pl_mat_alloc(&s->G[i], s->dev, grad, k, 1, rows * cols));
    TEST_TRY(pl_mat_alloc(&s->H[i], s->dev, grad, k, 1, rows * cols));
    snprintf(s->name[i], sizeof s->name[i], "p%d", i);
    s->p[i] = (polar_param){.name = s->name[i]};
    polar_tensor *t[2] = {&s->p[i].weight, &s->p[i].grad};
    void *data[2] = {s->W[i].data, s->G[i].data};
    for (int j = 0; j < 2; j++) {
        polar_dtype d = j ? grad : dtype;
        if (ndim == 2)
            *t[j] =
                k > 1 ? polar_tensor_3d(data[j], d, k, rows, cols) : polar_tensor_2d(data[j], d, rows, cols);
        else *t[j] = k > 1 ? polar_tensor_2d(data[j], d, k, cols) : polar_tensor_1d(data[j], d, cols);
    }
}

static void side_begin(side *s, const char *device, const blocks_case *c, int64_t members)
{
    *s = (side){.members = members, .all = elements_of(c)};
    TEST_TRY(polar_device_open(&s->dev, device));
    TEST_TRY(polar_queue_create(&s->q, s->dev, NULL));
}

/* values: (members, all), to weights or gradients. */
static void side_put(side *s, const pl_mat *m, const double *values)
{
    double x[2 * MOST];
    for (int i = 0; i < s->n; i++) {
        for (int64_t k = 0; k < s->members; k++)
            for (int64_t j = 0; j < s->size[i]; j++) x[k * s->size[i] + j] = values[k * s->all + s->at[i][j]];
        TEST_TRY(pl_mat_upload_f64(s->q, &m[i], x));
    }
    TEST_TRY(polar_queue_sync(s->q));
}

static void side_get(side *s, double *values)
{
    double x[2 * MOST];
    for (int i = 0; i < s->n; i++) {
        TEST_TRY(pl_mat_download_f64(s->q, &s->W[i], x));
        for (int64_t k = 0; k < s->members; k++)
            for (int64_t j = 0; j < s->size[i]; j++) values[k * s->all + s->at[i][j]] = x[k * s->size[i] + j];
    }
}

static void side_weights(side *s)
{
    double x[2 * MOST];
    map_fill(x, s->members * s->all, 77);
    side_put(s, s->W, x);
}

static void open_whole(side *s, const char *device, const blocks_case *c, polar_dtype dtype, polar_dtype grad,
                       const polar_optim_opts *o)
{
    side_begin(s, device, c, o->members > 1 ? o->members : 1);
    side_param(s, c->ndim == 2 ? c->shape[0] : 1, c->ndim == 2 ? c->shape[1] : c->shape[0], c->ndim, dtype,
               grad);
    for (int64_t j = 0; j < s->all; j++) s->at[0][j] = j;
    s->p[0].blocks = c->block, s->p[0].block_count = c->count, s->p[0].schur_group = c->schur_group;
    side_weights(s);
    TEST_TRY(polar_optim_create(&s->opt, s->dev, s->p, 1, o));
}

static void open_apart(side *s, const char *device, const blocks_case *c, polar_dtype dtype, polar_dtype grad,
                       const polar_optim_opts *o)
{
    unsigned char covered[MOST] = {0};
    int64_t rest = 0;
    side_begin(s, device, c, o->members > 1 ? o->members : 1);
    for (int k = 0; k < c->count; k++) {
        const polar_block *b = &c->block[k];
        side_param(s, b->rows, b->cols, 2, dtype, grad);
        s->p[k].schur_group = c->schur_group, s->p[k].schur_dim = b->dim;
        for (int64_t j = 0; j < b->rows * b->cols; j++) {
            int64_t at = b->offset + j / b->cols * (b->ld ? b->ld : b->cols) + j % b->cols;
            s->at[k][j] = at, covered[at] = 1;
        }
    }
    for (int64_t j = 0; j < s->all; j++) rest += !covered[j];
    if (rest) {
        side_param(s, 1, rest, 1, dtype, grad);
        rest = 0;
        for (int64_t j = 0; j < s->all; j++)
            if (!covered[j]) s->at[c->count][rest++] = j;
    }
    side_weights(s);
    TEST_TRY(polar_optim_create(&s->opt, s->dev, s->p, s->n, o));
}

static void side_close(side *s)
{
    polar_optim_destroy(s->opt);
    for (int i = 0; i < s->n; i++) {
        pl_mat_free(&s->W[i], s->dev);
        pl_mat_free(&s->G[i], s->dev);
        pl_mat_free(&s->H[i], s->dev);
    }
    polar_queue_destroy(s->q);
    polar_device_close(s->dev);
}

enum { PLAIN, MOVES = 1, MISSING = 2, INFINITE = 4 };

/* Step t: gradients that lie elsewhere every time, none in step 1, an infinity in step 2 (in another place in
 * step 3). */
static void side_step(side *s, int64_t t, int how)
{
    double g[2 * MOST] = {0};
    pl_mat *G = how & MOVES && t % 2 ? s->H : s->G;
    map_fill(g, s->members * s->all, 5000 + (uint64_t)t);
    if (how & INFINITE && t == 2) g[1] = (double)INFINITY;
    if (how & INFINITE && t == 3) g[s->all - 1] = (double)INFINITY;
    side_put(s, G, g);
    for (int i = 0; i < s->n; i++)
        TEST_TRY(polar_optim_set_grad(s->opt, i, how & MISSING && t == 1 ? NULL : G[i].data));
    if (t == 4) TEST_TRY(polar_optim_set_lr(s->opt, 0.03, 0.02));
    TEST_TRY(polar_optim_step(s->opt, s->q));
    TEST_TRY(polar_queue_sync(s->q));
}

static int64_t side_mismatches(side *a, side *b)
{
    double x[2 * MOST], y[2 * MOST];
    side_get(a, x);
    side_get(b, y);
    return map_mismatches(x, y, a->members * a->all);
}

static polar_optim_opts opts_of(const char *rule)
{
    polar_optim_opts o;
    TEST_TRY(polar_optim_opts_parse(&o, rule));
    o.lr = 0.05, o.weight_decay = 0.1, o.aux_lr = 0.01, o.aux_weight_decay = 0.2;
    return o;
}

/* ---- the same bits ------------------------------------------------------------------------------ */

static int shares_norms(const polar_optim_opts *o)
{
    return o->rule.momentum != POLAR_MOMENTUM_PICKED && o->rule.precondition < POLAR_PRECONDITION_ROWS &&
           !o->rule.post && o->rule.scale < POLAR_SCALE_FROBENIUS && o->rule.apply < POLAR_APPLY_HYPERBALL &&
           o->rule.map.kind != POLAR_MAP_SOFT;
}

static void same_bits(const char *device, const char *what, const polar_optim_opts *o, polar_dtype dtype,
                      polar_dtype grad, int how)
{
    char line[200];
    for (int k = 0; k < CASES; k++) {
        side whole, apart;
        double before[2 * MOST], after[2 * MOST];
        if (cases[k].schur_group && (!shares_norms(o) || o->members > 1)) continue;
        open_whole(&whole, device, &cases[k], dtype, grad, o);
        open_apart(&apart, device, &cases[k], dtype, grad, o);
        side_get(&whole, before);
        for (int64_t t = 0; t < 6; t++) side_step(&whole, t, how), side_step(&apart, t, how);
        side_get(&whole, after);
        int64_t still = 0;
        for (int64_t j = 0; j < whole.members * whole.all; j++) still += before[j] == after[j];
        snprintf(line, sizeof line, "%s: %s", what, cases[k].name);
        test_exact(line, side_mismatches(&whole, &apart) + (still > whole.all / 8) * still);
        side_close(&whole);
        side_close(&apart);
    }
}

static void all_rules(const char *device)
{
    for (int k = 0; polar_rule_name(k); k++) {
        polar_optim_opts o = opts_of(polar_rule_name(k));
        same_bits(device, polar_rule_name(k), &o, POLAR_DTYPE_F32, POLAR_DTYPE_F32, PLAIN);
    }
}

static void all_ways(const char *device)
{
    static const char *const rules[] = {"polaradamw", "muon", "normuon", "muonh"};
    for (int k = 0; k < 4; k++) {
        char line[64];
        polar_optim_opts o = opts_of(rules[k]);
#define WAY(text, dtype, grad, how)                            \
    do {                                                       \
        snprintf(line, sizeof line, "%s, %s", rules[k], text); \
        same_bits(device, line, &o, dtype, grad, how);         \
    } while (0)
        WAY("bf16 weights", POLAR_DTYPE_BF16, POLAR_DTYPE_BF16, MOVES);
        WAY("f64", POLAR_DTYPE_F64, POLAR_DTYPE_F64, PLAIN);
        WAY("gradients that move", POLAR_DTYPE_F32, POLAR_DTYPE_BF16, MOVES);
        o.measure = 1;
        WAY("measured", POLAR_DTYPE_F32, POLAR_DTYPE_F32, PLAIN);
        o.measure = 0, o.members = 2;
        WAY("two members", POLAR_DTYPE_F32, POLAR_DTYPE_F32, MOVES);
        o.skip_missing = 1, o.skip_nonfinite = POLAR_SKIP_NONFINITE;
        WAY("two members, steps left out", POLAR_DTYPE_BF16, POLAR_DTYPE_F32, MOVES | MISSING | INFINITE);
        o.members = 1;
        WAY("steps left out", POLAR_DTYPE_F32, POLAR_DTYPE_F32, MISSING | INFINITE);
        o.rule.map = (polar_map_opts)POLAR_MAP_OPTS_INIT;
        TEST_TRY(polar_map_opts_parse(&o.rule.map, "ns_fp32"));
        WAY("fp32 map, steps left out", POLAR_DTYPE_F32, POLAR_DTYPE_F32, MOVES | MISSING | INFINITE);
    }
}

/* ---- statistics and the report ------------------------------------------------------------------ */

static void statistics(const char *device)
{
    polar_optim_opts o = opts_of("polaradamw");
    const blocks_case *c = &cases[0];
    side whole, apart;
    polar_param_stats a, b[MOST_PARAMS];
    double square = 0;
    o.measure = 1;
    open_whole(&whole, device, c, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o);
    open_apart(&apart, device, c, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o);
    for (int64_t t = 0; t < 3; t++) side_step(&whole, t, PLAIN), side_step(&apart, t, PLAIN);
    TEST_TRY(polar_optim_stats(whole.opt, whole.q, &a));
    TEST_TRY(polar_optim_stats(apart.opt, apart.q, b));
    for (int i = 0; i < apart.n; i++) square += b[i].update_norm * b[i].update_norm;
    test_bound("the norm of all blocks and the rest", fabs(a.update_norm / sqrt(square) - 1), 1e-13,
               "sums of squares of a few norms, each of which adds up its entries in another order");
    test_true("counts",
              a.blocks == 5 && a.maps == 15 && a.last_maps == 5 && a.rows == 6 && a.cols == 4 &&
                  a.steps == 3 && a.scale == b[0].scale && a.effective_lr == b[0].effective_lr,
              "%lld blocks, %lld maps", (long long)a.blocks, (long long)a.maps);
    const char *report = polar_optim_report(whole.opt);
    test_true("the report has blocks and rest",
              strstr(report, "p0[0-1]") && strstr(report, "2 blocks of 6x4") && strstr(report, "p0[4]") &&
                  strstr(report, "p0[rest]"),
              "%s", report);
    side_close(&whole);
    side_close(&apart);
    open_whole(&whole, device, &cases[1], POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o);
    test_true("... and where rows lie apart", strstr(polar_optim_report(whole.opt), "12x5, ld 15") != NULL,
              "%s", polar_optim_report(whole.opt));
    side_close(&whole);
}

/* ---- state -------------------------------------------------------------------------------------- */

static const char *state_path(const char *which)
{
    static char path[2][64];
    int k = *which != 'a';
    snprintf(path[k], sizeof path[k], "blocks_%s_%ld.safetensors", which, (long)getpid());
    return path[k];
}

/* Saved after three steps and gone on with by another: as if nothing had happened. */
static void resumed(const char *device, const char *rule, int64_t members, int counts)
{
    char line[200];
    polar_optim_opts o = opts_of(rule);
    o.members = members;
    if (counts) o.skip_missing = 1, o.skip_nonfinite = POLAR_SKIP_NONFINITE;
    for (int k = 0; k < CASES; k++) {
        side through, first, second;
        double x[2 * MOST];
        const int how = counts ? MISSING | INFINITE : PLAIN;
        if (cases[k].schur_group && (!shares_norms(&o) || members > 1)) continue;
        open_whole(&through, device, &cases[k], POLAR_DTYPE_BF16, POLAR_DTYPE_F32, &o);
        open_whole(&first, device, &cases[k], POLAR_DTYPE_BF16, POLAR_DTYPE_F32, &o);
        open_whole(&second, device, &cases[k], POLAR_DTYPE_BF16, POLAR_DTYPE_F32, &o);
        for (int64_t t = 0; t < 6; t++) side_step(&through, t, how);
        for (int64_t t = 0; t < 3; t++) side_step(&first, t, how);
        TEST_TRY(polar_optim_save(first.opt, first.q, state_path("a")));
        side_get(&first, x);
        side_put(&second, second.W, x);
        TEST_TRY(polar_optim_load(second.opt, second.q, state_path("a")));
        for (int64_t t = 3; t < 6; t++) side_step(&second, t, how);
        snprintf(line, sizeof line, "%s%s, %lld members, resumed: %s", rule, counts ? ", counts" : "",
                 (long long)members, cases[k].name);
        test_exact(line, side_mismatches(&through, &second));
        side_close(&through);
        side_close(&first);
        side_close(&second);
    }
    unlink(state_path("a"));
}

static int64_t files_differ(const char *a, const char *b)
{
    FILE *f = fopen(a, "rb"), *g = fopen(b, "rb");
    int64_t bad = !f || !g;
    for (int x = 0, y = 0; !bad && x != EOF;) x = getc(f), y = getc(g), bad = x != y;
    if (f) fclose(f);
    if (g) fclose(g);
    return bad;
}

/* row_blocks = 3, and the list of blocks that says the same: one state file. */
static void row_blocks_are_blocks(const char *device)
{
    const blocks_case c = {"rows", 2, {12, 5}, 0, 3, {{0, 4, 5, 0, 0}, {20, 4, 5, 5, 1}, {40, 4, 5, 0, 0}}};
    polar_optim_opts o = opts_of("polaradamw");
    side list, rows;
    open_whole(&list, device, &c, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o);
    open_whole(&rows, device, &c, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o);
    polar_optim_destroy(rows.opt);
    rows.p[0].blocks = NULL, rows.p[0].block_count = 0, rows.p[0].row_blocks = 3;
    TEST_TRY(polar_optim_create(&rows.opt, rows.dev, rows.p, 1, &o));
    for (int64_t t = 0; t < 3; t++) side_step(&list, t, PLAIN), side_step(&rows, t, PLAIN);
    TEST_TRY(polar_optim_save(list.opt, list.q, state_path("a")));
    TEST_TRY(polar_optim_save(rows.opt, rows.q, state_path("b")));
    test_exact("row blocks as a list: weights, state files, reports",
               side_mismatches(&list, &rows) + files_differ(state_path("a"), state_path("b")) +
                   (strcmp(polar_optim_report(list.opt), polar_optim_report(rows.opt)) != 0));
    unlink(state_path("a"));
    unlink(state_path("b"));
    side_close(&list);
    side_close(&rows);
}

/* A file of other blocks is refused by name, unless other maps are meant: moments lie as the tensor does. */
static void other_blocks(const char *device)
{
    blocks_case c = cases[0];
    polar_optim_opts o = opts_of("polaradamw");
    side a, b, none;
    open_whole(&a, device, &c, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o);
    side_step(&a, 0, PLAIN);
    TEST_TRY(polar_optim_save(a.opt, a.q, state_path("a")));
    c.block[2] = (polar_block){48, 5, 3, 0, 0};
    open_whole(&b, device, &c, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o);
    polar_status st = polar_optim_load(b.opt, b.q, state_path("a"));
    test_true("a file of other blocks", st == POLAR_E_FORMAT && strstr(polar_error_message(), "'p0'"), "%s",
              polar_error_message());
    TEST_TRY(polar_optim_load_with(b.opt, b.q, state_path("a"), POLAR_LOAD_OTHER_MAP));
    c.count = 0, o.allow_no_matrix = 1;
    open_whole(&none, device, &c, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o);
    st = polar_optim_load(none.opt, none.q, state_path("a"));
    test_true("a file of blocks for a vector", st == POLAR_E_FORMAT, "%s", polar_error_message());
    TEST_TRY(polar_optim_load_with(none.opt, none.q, state_path("a"), POLAR_LOAD_OTHER_MAP));
    polar_tensor m, n;
    TEST_TRY(polar_optim_state_view(&m, a.opt, 0, POLAR_STATE_SECOND_MOMENT));
    TEST_TRY(polar_optim_state_view(&n, none.opt, 0, POLAR_STATE_SECOND_MOMENT));
    double x[MOST], y[MOST];
    pl_mat M = pl_mat_dense(m.data, m.dtype, 1, 1, a.all), N = pl_mat_dense(n.data, n.dtype, 1, 1, a.all);
    TEST_TRY(pl_mat_download_f64(a.q, &M, x));
    TEST_TRY(pl_mat_download_f64(none.q, &N, y));
    test_exact("... takes its moments where other maps are meant",
               map_mismatches(x, y, a.all) + (m.shape[1] != 1) + (m.shape[2] != a.all));
    unlink(state_path("a"));
    side_close(&a);
    side_close(&b);
    side_close(&none);
}

/* ---- bad lists ---------------------------------------------------------------------------------- */

static void wrong_blocks(const char *device)
{
    const blocks_case c = {"bad", 1, {60}, 0, 3, {{0, 4, 5, 0, 0}, {20, 4, 5, 0, 0}, {40, 4, 5, 0, 0}}};
    polar_optim_opts o = opts_of("muon");
    side s;
    open_whole(&s, device, &c, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o);
#define BAD(what, code, words, set)                                              \
    do {                                                                         \
        polar_block b[3] = {c.block[0], c.block[1], c.block[2]};                 \
        polar_param p = s.p[0];                                                  \
        polar_optim *opt = s.opt;                                                \
        p.blocks = b;                                                            \
        set;                                                                     \
        polar_status st_ = polar_optim_create(&opt, s.dev, &p, 1, &o);           \
        test_true(what,                                                          \
                  st_ == code && !opt && strstr(polar_error_message(), words) && \
                      strstr(polar_error_message(), "'p0'"),                     \
                  "%s", polar_error_message());                                  \
    } while (0)
    BAD("no rows", POLAR_E_SHAPE, "block 1 of", b[1].rows = 0);
    BAD("no columns", POLAR_E_SHAPE, "block 2 of", b[2].cols = 0);
    BAD("negative rows", POLAR_E_SHAPE, "block 0 of", b[0].rows = -4);
    BAD("a negative offset", POLAR_E_SHAPE, "block 0 of", b[0].offset = -1);
    BAD("an offset at the end", POLAR_E_SHAPE, "60 elements", b[2].offset = 60);
    BAD("one element too many", POLAR_E_SHAPE, "60 elements", b[2].offset = 41);
    BAD("more rows than there are numbers", POLAR_E_SHAPE, "60 elements", b[2].rows = INT64_MAX);
    BAD("more columns than there are numbers", POLAR_E_SHAPE, "60 elements", b[2].cols = INT64_MAX);
    BAD("rows and columns past every number", POLAR_E_SHAPE, "60 elements",
        (b[0].rows = INT64_MAX / 2, b[0].cols = 3));
    BAD("rows too far apart", POLAR_E_SHAPE, "60 elements", b[1].ld = 12);
    BAD("rows infinitely far apart", POLAR_E_SHAPE, "60 elements", b[1].ld = INT64_MAX);
    BAD("rows that meet", POLAR_E_SHAPE, "(ld)", b[1].ld = 4);
    BAD("a negative ld", POLAR_E_SHAPE, "(ld)", b[1].ld = -5);
    BAD("blocks that share an element", POLAR_E_ARG, "blocks 0 and 1 of 'p0' share element 19",
        b[1].offset = 19);
    BAD("blocks that cross", POLAR_E_ARG, "share element",
        (b[0] = (polar_block){3, 10, 2, 6, 0}, p.block_count = 2));
    BAD("one block twice", POLAR_E_ARG, "share element 20", b[2] = b[1]);
    BAD("a negative dim", POLAR_E_ARG, "dim of -1", (b[0].dim = -1, p.schur_group = 1));
    BAD("a dim without a group", POLAR_E_ARG, "no schur_group", b[0].dim = 3);
    BAD("row blocks besides", POLAR_E_ARG, "row_blocks", p.row_blocks = 1);
    BAD("a schur_dim besides", POLAR_E_ARG, "schur_dim", (p.schur_group = 1, p.schur_dim = 1));
    BAD("a negative count", POLAR_E_ARG, "block_count of -1", p.block_count = -1);
    BAD("a count past every list", POLAR_E_ARG, "block_count", p.block_count = (int64_t)1 << 40);
    BAD("a count and no list", POLAR_E_ARG, "NULL", p.blocks = NULL);
#undef BAD
    s.p[0].route = POLAR_ROUTE_AUX, o.allow_no_matrix = 1;
    polar_optim *aux;
    TEST_TRY(polar_optim_create(&aux, s.dev, s.p, 1, &o));
    test_true("on the aux route blocks mean nothing", strstr(polar_optim_report(aux), "0 matrices") != NULL,
              "%s", "");
    polar_optim_destroy(aux);
    side_close(&s);
}

/* ---- random lists ------------------------------------------------------------------------------- */

static uint64_t draw(uint64_t *state, uint64_t below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (*state >> 33) % below;
}

/* Rectangles of a matrix, some of which meet: those that do are refused, the others step as they would
 * apart. */
static void random_lists(const char *device, int count)
{
    uint64_t state = 1;
    int64_t bad = 0, good = 0, refused = 0;
    polar_optim_opts o = opts_of("polaradamw");
    for (int turn = 0; turn < count; turn++) {
        const int64_t rows = 1 + (int64_t)draw(&state, 12), cols = 1 + (int64_t)draw(&state, 12);
        blocks_case c = {"random", 2, {rows, cols}, 0, 1 + (int)draw(&state, 4), {{0}}};
        int uses[MOST] = {0}, meet = 0;
        for (int k = 0; k < c.count; k++) {
            const int64_t i = (int64_t)draw(&state, (uint64_t)rows),
                          j = (int64_t)draw(&state, (uint64_t)cols);
            polar_block *b = &c.block[k];
            b->rows = 1 + (int64_t)draw(&state, (uint64_t)((rows - i) / 2 + 1));
            b->cols = 1 + (int64_t)draw(&state, (uint64_t)((cols - j) / 2 + 1));
            if (b->rows > rows - i) b->rows = rows - i;
            if (b->cols > cols - j) b->cols = cols - j;
            b->offset = i * cols + j, b->ld = cols;
            for (int64_t y = 0; y < b->rows; y++)
                for (int64_t x = 0; x < b->cols; x++) meet |= uses[b->offset + y * cols + x]++;
        }
        side whole, apart;
        side_begin(&whole, device, &c, 1);
        side_param(&whole, rows, cols, 2, POLAR_DTYPE_F32, POLAR_DTYPE_F32);
        for (int64_t j = 0; j < whole.all; j++) whole.at[0][j] = j;
        whole.p[0].blocks = c.block, whole.p[0].block_count = c.count;
        side_weights(&whole);
        polar_status st = polar_optim_create(&whole.opt, whole.dev, whole.p, 1, &o);
        bad += st != (meet ? POLAR_E_ARG : POLAR_OK);
        refused += meet, good += !meet;
        if (!meet && st == POLAR_OK) {
            open_apart(&apart, device, &c, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o);
            for (int64_t t = 0; t < 2; t++) side_step(&whole, t, PLAIN), side_step(&apart, t, PLAIN);
            bad += side_mismatches(&whole, &apart);
            side_close(&apart);
        }
        side_close(&whole);
    }
    char line[96];
    snprintf(line, sizeof line, "random lists: %lld taken, %lld refused", (long long)good,
             (long long)refused);
    test_exact(line, bad + (good < count / 8) + (refused < count / 8));
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    all_rules(device);
    all_ways(device);
    statistics(device);
    resumed(device, "polaradamw", 1, 0);
    resumed(device, "muon", 1, 1);
    resumed(device, "normuon", 1, 0);
    resumed(device, "polaradamw", 2, 1);
    row_blocks_are_blocks(device);
    other_blocks(device);
    wrong_blocks(device);
    random_lists(device, 100);
    return test_end();
}
