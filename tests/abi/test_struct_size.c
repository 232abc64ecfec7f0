/* test_struct_size.c -- structs of headers that are yet to come, and claims that cannot be: what the library
 * takes, and what it refuses.
 *
 * The headers of tomorrow are played by structs with one more field at every tail, nested ones too, so that
 * whatever follows a nested struct stands elsewhere.
 */
#include <polar/polar.h>

#include "test.h"

enum { N = 2, ROWS = 3, COLS = 3 };

typedef struct map_to_come {
    polar_map_opts now;
    double more;
} map_to_come;

typedef struct rule_to_come {
    char head[offsetof(polar_rule, map)];
    map_to_come map;
    char tail[sizeof(polar_rule) - offsetof(polar_rule, map) - sizeof(polar_map_opts) + 8];
} rule_to_come;

typedef struct schedule_to_come {
    polar_schedule now;
    int64_t more;
} schedule_to_come;

typedef struct param_to_come {
    polar_param now;
    int64_t more;
} param_to_come;

enum {
    RULE_END = offsetof(polar_optim_opts, rule) + sizeof(polar_rule),
    SCHEDULE = offsetof(polar_optim_opts, schedule),
    SCHEDULE_END = SCHEDULE + sizeof(polar_schedule)
};

typedef struct opts_to_come {
    size_t struct_size;
    rule_to_come rule;
    char numbers[SCHEDULE - RULE_END];
    schedule_to_come schedule;
    char tail[sizeof(polar_optim_opts) - SCHEDULE_END];
    int64_t more;
} opts_to_come;

static const polar_optim_layout to_come = {
    sizeof(polar_optim_layout), sizeof(map_to_come),  sizeof(rule_to_come), sizeof(schedule_to_come),
    sizeof(param_to_come),      sizeof(opts_to_come), sizeof(polar_group),  sizeof(polar_block)};

/* The same settings as a program of tomorrow would hold them. */
static opts_to_come carry_over(const polar_optim_opts *o)
{
    opts_to_come f;
    memset(&f, 0, sizeof f);
    f.struct_size = sizeof f;
    memcpy(f.rule.head, &o->rule, sizeof f.rule.head);
    f.rule.map.now = o->rule.map;
    f.rule.map.now.struct_size = sizeof f.rule.map;
    memcpy(f.rule.tail, (const char *)&o->rule.map + sizeof o->rule.map, sizeof f.rule.tail - 8);
    memcpy(f.numbers, (const char *)o + RULE_END, sizeof f.numbers);
    f.schedule.now = o->schedule;
    memcpy(f.tail, (const char *)o + SCHEDULE_END, sizeof f.tail);
    return f;
}

static double weights[N][ROWS * COLS], grads[N][ROWS * COLS];
static polar_param params[N];

static void reset(void)
{
    static const char *const names[N] = {"first", "second"};
    for (int i = 0; i < N; i++) {
        params[i] = (polar_param){.name = names[i],
                                  .weight = polar_tensor_2d(weights[i], POLAR_DTYPE_F64, ROWS, COLS),
                                  .grad = polar_tensor_2d(grads[i], POLAR_DTYPE_F64, ROWS, COLS)};
        for (int k = 0; k < ROWS * COLS; k++) weights[i][k] = 1, grads[i][k] = (double)(k * k % 7 + i) - 3;
    }
}

static void step_once(polar_optim *opt, polar_device *dev)
{
    polar_queue *q;
    TEST_TRY(polar_queue_create(&q, dev, NULL));
    TEST_TRY(polar_optim_step(opt, q));
    TEST_TRY(polar_queue_sync(q));
    polar_queue_destroy(q);
    polar_optim_destroy(opt);
}

/* A newer program that asks for nothing new is served as today's is, bit by bit; one that does is refused. */
static void test_newer(polar_device *dev)
{
    polar_optim_opts o = POLAR_OPTIM_OPTS_INIT;
    polar_optim *opt;
    param_to_come later[N];
    double want[N][ROWS * COLS];
    o.lr = 0.125, o.weight_decay = 0.25, o.rule.beta2 = 0.5, o.aux_names = "sec*";
    o.schedule = (polar_schedule){.warmup = 4, .total = 8, .warmup_from = 0.25};
    reset();
    TEST_TRY(polar_optim_create(&opt, dev, params, N, &o));
    step_once(opt, dev);
    memcpy(want, weights, sizeof want);

    reset();
    opts_to_come f = carry_over(&o);
    memset(later, 0, sizeof later);
    for (int i = 0; i < N; i++) later[i].now = params[i];
#define CREATE_LATER() \
    polar_optim_create_sized(&opt, dev, &later[0].now, N, (const polar_optim_opts *)&f, &to_come)
    TEST_TRY(CREATE_LATER());
    step_once(opt, dev);
    test_exact("structs to come, what is new left zero", memcmp(want, weights, sizeof want) != 0);

#define NEW(what, set, unset)                                                              \
    do {                                                                                   \
        set;                                                                               \
        polar_status st_ = CREATE_LATER();                                                 \
        test_true("  " what " set is refused",                                             \
                  st_ == POLAR_E_ARG && !opt && strstr(polar_error_message(), what), "%s", \
                  polar_error_message());                                                  \
        unset;                                                                             \
    } while (0)
    NEW("polar_map_opts", f.rule.map.more = 1, f.rule.map.more = 0);
    NEW("polar_rule", f.rule.tail[sizeof f.rule.tail - 1] = 1, f.rule.tail[sizeof f.rule.tail - 1] = 0);
    NEW("polar_schedule", f.schedule.more = 1, f.schedule.more = 0);
    NEW("polar_optim_opts", f.more = 1, f.more = 0);
    NEW("polar_param", later[1].more = 1, later[1].more = 0);

    /* what lies beyond a struct's claim is not read, ... */
    f.rule.map.more = 1, f.rule.map.now.struct_size = sizeof(polar_map_opts);
    f.more = 1, f.struct_size = offsetof(opts_to_come, more);
    reset();
    TEST_TRY(CREATE_LATER());
    step_once(opt, dev);
    test_exact("a struct_size that leaves the new out", memcmp(want, weights, sizeof want) != 0);
    /* ... and a claim of more than there is room for is not believed */
    f.rule.map.now.struct_size = sizeof f.rule.map + 8;
    test_true("more map than there is room for", CREATE_LATER() == POLAR_E_ARG, "%s", polar_error_message());
    f.rule.map.now.struct_size = sizeof(polar_map_opts);
    f.struct_size = sizeof f + 8;
    test_true("more options than there is room for", CREATE_LATER() == POLAR_E_ARG, "%s",
              polar_error_message());
    f.struct_size = offsetof(opts_to_come, tail);
    test_true("options without what 0.1 had", CREATE_LATER() == POLAR_E_ARG, "%s", polar_error_message());
}

static void test_layouts(polar_device *dev)
{
    polar_optim *opt = (polar_optim *)&opt;
    polar_rule rule;
    reset();
#define LAYOUT(what, set)                                                                                 \
    do {                                                                                                  \
        polar_optim_layout l = POLAR_OPTIM_LAYOUT_INIT;                                                   \
        set;                                                                                              \
        polar_status st_ = polar_optim_create_sized(&opt, dev, params, N, NULL, &l);                      \
        test_true(what,                                                                                   \
                  st_ == POLAR_E_ARG && !opt && polar_rule_parse_sized(&rule, "muon", &l) == POLAR_E_ARG, \
                  "%s", polar_error_message());                                                           \
    } while (0)
    LAYOUT("a layout of nothing", l.struct_size = 0);
    LAYOUT("a map of 8 bytes", l.map_opts = 8);
    LAYOUT("a map of an odd size", l.map_opts++);
    LAYOUT("a rule smaller than its map", l.rule = l.map_opts);
    LAYOUT("a schedule of 8 bytes", l.schedule = 8);
    LAYOUT("a parameter of 8 bytes", l.param = 8);
    LAYOUT("a block of 8 bytes", l.block = 8);
    LAYOUT("options smaller than their rule", l.optim_opts = l.rule);
}

/* Options handed out to a newer program: what is new is zero, and the sizes are the caller's. */
static void test_out(void)
{
    opts_to_come f;
    map_to_come m;
    polar_optim_opts o;
    memset(&f, 0x5a, sizeof f);
    memset(&m, 0x5a, sizeof m);
    TEST_TRY(polar_optim_opts_parse_sized((polar_optim_opts *)&f, "muon", &to_come));
    TEST_TRY(polar_optim_opts_parse(&o, "muon"));
    opts_to_come want = carry_over(&o);
    /* padding behind three enums */
    f.rule.head[12] = f.rule.head[13] = f.rule.head[14] = f.rule.head[15] = 0;
    want.rule.head[12] = want.rule.head[13] = want.rule.head[14] = want.rule.head[15] = 0;
    test_exact("options of tomorrow by name", memcmp(&f, &want, sizeof f) != 0);
    TEST_TRY(polar_map_opts_parse_sized(&m.now, sizeof m, "exact"));
    test_true("map options of tomorrow by name",
              m.more == 0 && m.now.struct_size == sizeof m && m.now.kind == POLAR_MAP_EXACT, "%zu bytes",
              m.now.struct_size);
    test_true("  of too few bytes", polar_map_opts_parse_sized(&m.now, 8, "exact") == POLAR_E_ARG, "%s",
              polar_error_message());
}

static void test_map(polar_device *dev)
{
    polar_queue *q;
    map_to_come m = {.now = POLAR_MAP_OPTS_INIT};
    double x[4] = {2, 0, 0, 3};
    polar_tensor t = polar_tensor_2d(x, POLAR_DTYPE_F64, 2, 2);
    m.now.struct_size = sizeof m;
    m.now.kind = POLAR_MAP_EXACT;
    TEST_TRY(polar_queue_create(&q, dev, NULL));
    TEST_TRY(polar_map_apply(q, &t, &t, 1, &m.now));
    TEST_TRY(polar_queue_sync(q));
    test_bound("a map with options of tomorrow", fabs(x[0] - 1) + fabs(x[3] - 1), 1e-14, "an SVD in double");
    m.more = 1;
    test_true("  that asks for what is new", polar_map_apply(q, &t, &t, 1, &m.now) == POLAR_E_ARG, "%s",
              polar_error_message());
    polar_queue_destroy(q);
}

int main(int argc, char **argv)
{
    polar_device *dev;
    TEST_TRY(polar_device_open(&dev, test_begin(argc, argv)));
    test_newer(dev);
    test_layouts(dev);
    test_out();
    test_map(dev);
    polar_device_close(dev);
    return test_end();
}
