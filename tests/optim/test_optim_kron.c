/* test_optim_kron.c -- rules with Kronecker factors, whose matrices of one shape are one call: a parameter
 * has the bits that it has alone, whoever is beside it, whose gradient is missing and how many threads there
 * are, and a file goes on. */
#include "optim_state_file.h"

/* Matrices of one shape with others between them, and blocks of rows of that shape. */
static const param_spec specs[] = {{.name = "a", .ndim = 2, .shape = {6, 10}},
                                   {.name = "b", .ndim = 2, .shape = {6, 10}},
                                   {.name = "tall", .ndim = 2, .shape = {9, 4}},
                                   {.name = "c", .ndim = 2, .shape = {6, 10}},
                                   {.name = "blocks", .ndim = 2, .shape = {12, 10}, .row_blocks = 2},
                                   {.name = "d", .ndim = 2, .shape = {6, 10}},
                                   {.name = "bias", .ndim = 1, .shape = {7}}};
enum { PARAMS = 7, MATRICES = 6, STEPS = 9 };

/* Sides from which on a device may have products of many shapes in one launch. */
static const param_spec big[] = {{.name = "a", .ndim = 2, .shape = {160, 132}},
                                 {.name = "wide", .ndim = 2, .shape = {100, 196}},
                                 {.name = "b", .ndim = 2, .shape = {160, 132}}};
enum { BIG = 3, BIG_STEPS = 3 };

/* With looks at the factors often enough to matter. */
static polar_optim_opts opts_of(const char *rule)
{
    polar_optim_opts o;
    TEST_TRY(polar_optim_opts_parse(&o, rule));
    if (o.rule.map.kind != POLAR_MAP_NONE) o.rule.map.precision = POLAR_DTYPE_F32;
    o.rule.refresh = 2;
    if (o.rule.first_basis) o.rule.first_basis = 2;
    o.lr = 0.05;
    return o;
}

static int is_kron(const char *rule)
{
    polar_rule r;
    TEST_TRY(polar_rule_parse(&r, rule));
    return r.precondition >= POLAR_PRECONDITION_KRON && r.precondition <= POLAR_PRECONDITION_KL_SOAP;
}

/* Parameter i has no gradient in step t. */
static int is_away(int i, int64_t t)
{
    return (i == 1 && (t == 0 || t == 4)) || (i == 4 && t == 5);
}

static void steps(optim_rig *r, int64_t from, int64_t to, int missing)
{
    for (int64_t t = from; t < to; t++) {
        int all_away = 1;
        for (int i = 0; i < r->n; i++) {
            const int away = missing && is_away(r->number[i], t);
            if (missing) TEST_TRY(polar_optim_set_grad(r->opt, i, away ? NULL : r->G[i].data));
            all_away &= away;
        }
        if (!all_away) TEST_TRY(rig_step(r, t));
    }
}

static int64_t moved(optim_rig *r)
{
    int64_t still = 0;
    for (int i = 0; i < r->n; i++) {
        double *w = rig_weights(r, i), *start = map_new(r->elements[i]);
        map_fill(start, r->elements[i], 900 + (uint64_t)r->number[i]);
        still += map_distance(w, start, r->elements[i]) < 1e-3;
        free(w);
        free(start);
    }
    return still;
}

/* Of the first `count` of a list of matrices: weights that differ from those of an optimiser of each alone.
 */
static int64_t differ_alone(optim_rig *all, const char *device, const param_spec *list, int count,
                            polar_dtype weights, const polar_optim_opts *o, int n_steps, int missing)
{
    int64_t bad = 0;
    for (int i = 0; i < count; i++) {
        param_spec one = list[i];
        optim_rig alone;
        one.as = i + 1;
        TEST_TRY(rig_open(&alone, device, &one, 1, weights, POLAR_DTYPE_F32, o));
        steps(&alone, 0, n_steps, missing);
        bad += rig_differ(all, i, &alone, 0);
        rig_close(&alone);
    }
    return bad;
}

/* Every matrix together with the others and by itself. */
static void beside(const char *device, const char *rule, polar_dtype weights, int missing)
{
    polar_optim_opts o = opts_of(rule);
    optim_rig all;
    char line[96];
    o.skip_missing = missing;
    TEST_TRY(rig_open(&all, device, specs, PARAMS, weights, POLAR_DTYPE_F32, &o));
    steps(&all, 0, STEPS, missing);
    const int64_t bad = differ_alone(&all, device, specs, MATRICES, weights, &o, STEPS, missing);
    snprintf(line, sizeof line, "%s, %s weights%s: beside others and alone", rule, polar_dtype_name(weights),
             missing ? ", gradients missing" : "");
    test_exact(line, bad);
    test_exact("... and all moved", moved(&all));
    rig_close(&all);
}

/* The same of larger ones; the bits of one that is not put off with others. */
static void beside_large(const char *device, const char *rule, int tf32)
{
    polar_optim_opts o = opts_of(rule);
    optim_rig all;
    char line[96];
    o.kron_tf32 = tf32;
    TEST_TRY(rig_open(&all, device, big, BIG, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o));
    steps(&all, 0, BIG_STEPS, 0);
    const int64_t bad = differ_alone(&all, device, big, BIG, POLAR_DTYPE_F32, &o, BIG_STEPS, 0);
    snprintf(line, sizeof line, "%s%s, larger ones: beside others and alone", rule, tf32 ? ", tf32" : "");
    test_exact(line, bad);
    test_exact("... and all moved", moved(&all));
    rig_close(&all);
}

/* A file after k steps, into an optimiser that has the weights of that moment. */
static void resumed(const char *device, const char *rule, polar_dtype weights, int missing)
{
    polar_optim_opts o = opts_of(rule);
    optim_rig whole, first, second;
    char line[96];
    int64_t bad = 0;
    o.skip_missing = missing;
    TEST_TRY(rig_open(&whole, device, specs, PARAMS, weights, POLAR_DTYPE_F32, &o));
    steps(&whole, 0, STEPS, missing);
    for (int64_t k = 1; k < STEPS; k += 2) { /* before the first basis, at it, between two sweeps */
        TEST_TRY(rig_open(&first, device, specs, PARAMS, weights, POLAR_DTYPE_F32, &o));
        TEST_TRY(rig_open(&second, device, specs, PARAMS, weights, POLAR_DTYPE_F32, &o));
        steps(&first, 0, k, missing);
        TEST_TRY(polar_optim_save(first.opt, first.q, state_path(0)));
        for (int i = 0; i < PARAMS; i++) {
            double *w = rig_weights(&first, i);
            TEST_TRY(pl_mat_upload_f64(second.q, &second.W[i], w));
            free(w);
        }
        TEST_TRY(polar_optim_load(second.opt, second.q, state_path(0)));
        steps(&second, k, STEPS, missing);
        bad += rig_mismatches(&whole, &second) + state_mismatches(&whole, &second, 0);
        rig_close(&first);
        rig_close(&second);
    }
    snprintf(line, sizeof line, "%s, %s weights%s: saved and loaded", rule, polar_dtype_name(weights),
             missing ? ", gradients missing" : "");
    test_exact(line, bad);
    rig_close(&whole);
    state_files_remove();
}

/* The decompositions go to the threads matrix by matrix: large enough for several blocks of reflections. */
static void threads(const char *rule)
{
    static const param_spec large[] = {{.name = "a", .ndim = 2, .shape = {70, 100}},
                                       {.name = "b", .ndim = 2, .shape = {70, 100}},
                                       {.name = "c", .ndim = 2, .shape = {70, 100}}};
    polar_optim_opts o = opts_of(rule);
    optim_rig one, three;
    char line[96];
    TEST_TRY(rig_open(&one, "cpu:threads=1", large, 3, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o));
    TEST_TRY(rig_open(&three, "cpu:threads=3", large, 3, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o));
    steps(&one, 0, 5, 0);
    steps(&three, 0, 5, 0);
    snprintf(line, sizeof line, "%s: 1 and 3 threads", rule);
    test_exact(line, rig_mismatches(&one, &three) + state_mismatches(&one, &three, 0));
    rig_close(&one);
    rig_close(&three);
    state_files_remove();
}

/* The square of a side of 2^31 has more bytes than a size can say: modulo 2^64 they would be few. */
static void too_large(const char *device)
{
    polar_device *dev;
    polar_optim *opt = NULL;
    polar_optim_opts o = opts_of("shampoo");
    float w = 0;
    TEST_TRY(polar_device_open(&dev, device));
    const polar_param p = {.name = "long",
                           .weight = polar_tensor_2d(&w, POLAR_DTYPE_F32, 1, (int64_t)1 << 31),
                           .grad = polar_tensor_2d(NULL, POLAR_DTYPE_F32, 1, (int64_t)1 << 31)};
    polar_status st = polar_optim_create(&opt, dev, &p, 1, &o);
    test_true("factors that no memory holds", st == POLAR_E_SHAPE && !opt, "%s",
              st == POLAR_OK ? "taken" : polar_error_message());
    polar_optim_destroy(opt);
    polar_device_close(dev);
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    int rules = 0;
    for (int k = 0; polar_rule_name(k); k++) {
        const char *rule = polar_rule_name(k);
        if (!is_kron(rule)) continue;
        for (int missing = 0; missing < 2; missing++) {
            beside(device, rule, POLAR_DTYPE_F32, missing);
            beside(device, rule, POLAR_DTYPE_BF16, missing);
            resumed(device, rule, missing ? POLAR_DTYPE_F32 : POLAR_DTYPE_BF16, missing);
        }
        if (!strcmp(device, "cpu")) threads(rule);
        rules++;
    }
    beside_large(device, "soap", 0), beside_large(device, "soap", 1);
    beside_large(device, "kl_soap", 0), beside_large(device, "shampoo", 1);
    too_large(device);
    test_true("rules with factors", rules >= 10, "%d", rules);
    return test_end();
}
