/* test_optim_groups.c -- groups of parameters with rules and numbers of their own in one optimiser: the bits
 * of separate optimisers, live changes, members, state files.
 *
 *     ctest -R test_optim_groups
 */
#include "base/alloc.h"
#include "optim_state_file.h"

enum { GROUPS = 3, MODEL = 6, STEPS = 6 };

/* Three groups: 0 PolarAdamW and AdamW for the bias, 1 a Muon as torch has it, 2 AdamW by its route. */
static const param_spec model[MODEL] = {
    {.name = "qkv", .ndim = 2, .shape = {24, 16}, .row_blocks = 3},
    {.name = "proj", .ndim = 2, .shape = {8, 16}, .group = 1},
    {.name = "up", .ndim = 2, .shape = {8, 16}},
    {.name = "gate", .ndim = 2, .shape = {8, 16}, .group = 1},
    {.name = "bias", .ndim = 1, .shape = {24}},
    {.name = "head", .ndim = 2, .shape = {10, 16}, .group = 2},
};

/* One optimiser's options for each group. */
static void options(polar_optim_opts o[GROUPS])
{
    TEST_TRY(polar_optim_opts_parse(&o[0], "polaradamw"));
    o[0].lr = 0.02, o[0].aux_lr = 0.003, o[0].weight_decay = 0.1;
    o[0].schedule = (polar_schedule){.warmup = 2, .total = 20, .warmup_from = 0.1};
    o[1] = o[2] = o[0];
    o[1].rule.momentum = POLAR_MOMENTUM_AVERAGE_NESTEROV, o[1].rule.precondition = POLAR_PRECONDITION_NONE,
    o[1].rule.scale = POLAR_SCALE_JORDAN;
    o[1].rule.beta1 = 0.95, o[1].rule.map.eps = 2.5, o[1].lr = 0.05, o[1].weight_decay = 0;
    o[2].aux_lr = 0.007, o[2].aux_beta1 = 0.8, o[2].aux_beta2 = 0.99, o[2].aux_eps = 1e-6,
    o[2].aux_weight_decay = 0.2;
    o[2].aux_names = "*", o[2].allow_no_matrix = 1;
}

/* All in one; groups must outlive the call of polar_optim_create only. */
static polar_optim_opts joined(const polar_optim_opts o[GROUPS], polar_group groups[GROUPS - 1])
{
    polar_optim_opts all = o[0];
    groups[0] = polar_group_of(&o[1]);
    groups[1] = polar_group_of(&o[2]);
    groups[1].route = POLAR_ROUTE_AUX;
    all.groups = groups, all.group_count = GROUPS - 1;
    return all;
}

/* The parameters of one group, or with group -1 of all, for an optimiser with `members`; *number[i]: which
 * parameter of the model. */
static int specs_of(param_spec out[MODEL], int number[MODEL], int group, int64_t members)
{
    int n = 0;
    for (int i = 0; i < MODEL; i++) {
        if (group >= 0 && model[i].group != group) continue;
        out[n] = model[i];
        out[n].as = i + 1;
        if (group >= 0) out[n].group = 0;
        if (members > 1) {
            memmove(out[n].shape + 1, out[n].shape, 3 * sizeof out[n].shape[0]);
            out[n].shape[0] = members;
            out[n].ndim++;
        }
        number[n++] = i;
    }
    return n;
}

/* What a scheduler would do before step t: numbers of one group and route, of one member where there are
 * several. */
static void reschedule(optim_rig *r, int64_t group, int64_t in, int t, int64_t members)
{
    const polar_hyper muon = {0.04, 0.9, 0.999, 1e-8, 0.01}, adamw = {0.002, 0.7, 0.95, 1e-5, 0.3};
    if (group == 1 && t == 2) TEST_TRY(polar_optim_set_hyper(r->opt, -1, in, POLAR_ROUTE_MATRIX, &muon));
    if (group == 2 && t == 3)
        TEST_TRY(polar_optim_set_hyper(r->opt, members - 1, in, POLAR_ROUTE_AUX, &adamw));
    if (group == 0 && t == 4)
        TEST_TRY(polar_optim_set_hyper(r->opt, 0, in, POLAR_ROUTE_MATRIX,
                                       &(polar_hyper){0.01, 0.8, 0.9, 1e-7, 0.05}));
}

static void as_separate(const char *device, polar_dtype weights, int64_t members)
{
    polar_optim_opts o[GROUPS];
    polar_group groups[GROUPS - 1];
    param_spec specs[MODEL];
    int number[MODEL], all_number[MODEL];
    optim_rig all, one;
    int64_t bad = 0, moved = 0;
    char line[96];
    options(o);
    for (int g = 0; g < GROUPS; g++) o[g].members = members;
    polar_optim_opts a = joined(o, groups);
    int n = specs_of(specs, all_number, -1, members);
    TEST_TRY(rig_open(&all, device, specs, n, weights, POLAR_DTYPE_F32, &a));
    memset(groups, 0xA5, sizeof groups); /* nobody reads them any more */
    double *before = rig_weights(&all, 1);
    for (int t = 0; t < STEPS; t++) {
        for (int g = 0; g < GROUPS; g++) reschedule(&all, g, g, t, members);
        TEST_TRY(rig_step(&all, t));
    }
    double *after = rig_weights(&all, 1);
    for (int64_t i = 0; i < all.elements[1]; i++) moved += before[i] != after[i];
    for (int g = 0; g < GROUPS; g++) {
        n = specs_of(specs, number, g, members);
        TEST_TRY(rig_open(&one, device, specs, n, weights, POLAR_DTYPE_F32, &o[g]));
        for (int t = 0; t < STEPS; t++) {
            reschedule(&one, g, 0, t, members);
            TEST_TRY(rig_step(&one, t));
        }
        for (int i = 0; i < n; i++) bad += rig_differ(&one, i, &all, number[i]);
        rig_close(&one);
    }
    snprintf(line, sizeof line, "three groups as three optimisers: %s, %lld member%s",
             polar_dtype_name(weights), (long long)members, members > 1 ? "s" : "");
    test_exact(line, bad + !moved);
    rig_close(&all);
    free(before), free(after);
}

/* Numbers set before the first step are those of an optimiser that was made with them; and they can be read.
 */
static void set_as_made(const char *device)
{
    polar_optim_opts o[GROUPS], want[GROUPS];
    polar_group groups[GROUPS - 1], other[GROUPS - 1];
    optim_rig a, b;
    polar_hyper h, got;
    int64_t wrong = 0;
    options(o);
    options(want);
    want[1].lr = 0.04, want[1].rule.beta1 = 0.9, want[1].weight_decay = 0.01;
    want[2].aux_lr = 0.002, want[2].aux_beta1 = 0.7, want[2].aux_beta2 = 0.95, want[2].aux_eps = 1e-5,
    want[2].aux_weight_decay = 0.3;
    polar_optim_opts first = joined(o, groups), second = joined(want, other);
    TEST_TRY(rig_open(&a, device, model, MODEL, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &first));
    TEST_TRY(rig_open(&b, device, model, MODEL, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &second));
    for (int g = 1; g < GROUPS; g++) {
        polar_route route = g == 1 ? POLAR_ROUTE_MATRIX : POLAR_ROUTE_AUX;
        TEST_TRY(polar_optim_get_hyper(b.opt, 0, g, route, &h));
        TEST_TRY(polar_optim_set_hyper(a.opt, -1, g, route, &h));
        TEST_TRY(polar_optim_get_hyper(a.opt, 0, g, route, &got));
        wrong += memcmp(&h, &got, sizeof h) != 0 || h.lr != (g == 1 ? 0.04 : 0.002) ||
                 h.eps != (g == 1 ? 1e-8 : 1e-5);
    }
    for (int t = 0; t < 3; t++) {
        TEST_TRY(rig_step(&a, t));
        TEST_TRY(rig_step(&b, t));
    }
    test_exact("numbers set as the optimiser was made", rig_mismatches(&a, &b) + wrong);
    rig_close(&a), rig_close(&b);
}

/* Everybody in a group that says what the options say. */
static void as_plain(const char *device)
{
    polar_optim_opts o[GROUPS];
    param_spec moved[MODEL], plain[MODEL];
    optim_rig a, b;
    options(o);
    polar_optim_opts with = o[0];
    polar_group g = polar_group_of(&o[0]);
    with.groups = &g, with.group_count = 1;
    for (int i = 0; i < MODEL; i++) {
        moved[i] = plain[i] = model[i];
        moved[i].group = 1, plain[i].group = 0;
    }
    TEST_TRY(rig_open(&a, device, moved, MODEL, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &with));
    TEST_TRY(rig_open(&b, device, plain, MODEL, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o[0]));
    for (int t = 0; t < STEPS; t++) {
        TEST_TRY(rig_step(&a, t));
        TEST_TRY(rig_step(&b, t));
    }
    test_exact("a group that says what the options say", rig_mismatches(&a, &b));
    test_true("as much state as without groups",
              polar_optim_state_bytes(a.opt) == polar_optim_state_bytes(b.opt), "%zu bytes",
              polar_optim_state_bytes(a.opt));
    test_true("the report tells who is where",
              strstr(polar_optim_report(a.opt), "2 groups") && !strstr(polar_optim_report(b.opt), "group"),
              "2 groups");
    polar_param_stats s[MODEL];
    TEST_TRY(polar_optim_stats(a.opt, a.q, s));
    test_true("and the stats",
              PART(s[0].group == 1) && PART(s[0].steps == STEPS) && PART(s[0].maps == 3 * STEPS) &&
                  PART(s[0].last_maps == 3) && PART(s[4].maps == 0) && PART(s[4].steps == STEPS),
              "%lld maps of %s", (long long)s[0].maps, s[0].name);
    rig_close(&a);
    rig_close(&b);
}

/* Saved in the middle of a run whose numbers have changed, and gone on with. */
static void resumed(const char *device)
{
    polar_optim_opts o[GROUPS];
    polar_group groups[GROUPS - 1];
    optim_rig whole, first, second;
    options(o);
    polar_optim_opts a = joined(o, groups);
    TEST_TRY(rig_open(&whole, device, model, MODEL, POLAR_DTYPE_BF16, POLAR_DTYPE_F32, &a));
    TEST_TRY(rig_open(&first, device, model, MODEL, POLAR_DTYPE_BF16, POLAR_DTYPE_F32, &a));
    for (int t = 0; t < STEPS; t++)
        for (int k = 0; k < 2; k++) {
            optim_rig *r = k ? &first : &whole;
            if (k && t > 3) continue;
            for (int g = 0; g < GROUPS; g++) reschedule(r, g, g, t, 1);
            TEST_TRY(rig_step(r, t));
        }
    TEST_TRY(polar_optim_save(first.opt, first.q, state_path(0)));
    TEST_TRY(rig_open(&second, device, model, MODEL, POLAR_DTYPE_BF16, POLAR_DTYPE_F32, &a));
    TEST_TRY(polar_optim_load_with(second.opt, second.q, state_path(0), POLAR_LOAD_SETTINGS));
    for (int i = 0; i < MODEL; i++) { /* the weights are the caller's to keep */
        double *w = rig_weights(&first, i);
        TEST_TRY(pl_mat_upload_f64(second.q, &second.W[i], w));
        free(w);
    }
    for (int t = 4; t < STEPS; t++) {
        for (int g = 0; g < GROUPS; g++) reschedule(&second, g, g, t, 1);
        TEST_TRY(rig_step(&second, t));
    }
    test_exact("resumed in the middle, groups and all",
               rig_mismatches(&whole, &second) + state_mismatches(&whole, &second, 0));

    TEST_TRY(polar_optim_save(first.opt, first.q, state_path(0)));
    state_file_age(state_path(0));
    TEST_TRY(polar_optim_load_with(second.opt, second.q, state_path(0), POLAR_LOAD_SETTINGS));
    polar_hyper h0, h1;
    TEST_TRY(polar_optim_get_hyper(second.opt, 0, 0, POLAR_ROUTE_MATRIX, &h0));
    TEST_TRY(polar_optim_get_hyper(second.opt, 0, 1, POLAR_ROUTE_MATRIX, &h1));
    test_true("a file from before there were groups",
              h0.lr == 0.02 && h1.lr == 0.04 && polar_optim_get_step(second.opt) == 4,
              "lr %g of group 0 is the file's, lr %g of group 1 stays", h0.lr, h1.lr);

    polar_optim_opts other = a;
    polar_group changed[2] = {groups[0], groups[1]};
    changed[1].aux_beta1 = 0.5, other.groups = changed;
    optim_rig third;
    TEST_TRY(polar_optim_save(first.opt, first.q, state_path(0)));
    TEST_TRY(rig_open(&third, device, model, MODEL, POLAR_DTYPE_BF16, POLAR_DTYPE_F32, &other));
    polar_status st = polar_optim_load(third.opt, third.q, state_path(0));
    test_true("a state of other groups is refused",
              st == POLAR_E_FORMAT && strstr(polar_error_message(), "another rule"), "%s",
              polar_error_message());
    state_files_remove();
    rig_close(&whole), rig_close(&first), rig_close(&second), rig_close(&third);
}

static void refused(const char *device)
{
    polar_optim_opts o[GROUPS];
    polar_group groups[GROUPS - 1];
    param_spec specs[MODEL];
    optim_rig r;
    polar_hyper h = {0.1, 0.9, 0.99, 1e-8, 0};
    polar_status st;
    options(o);
#define REFUSED(what, sentence, change)                                                     \
    do {                                                                                    \
        polar_optim_opts a = joined(o, groups);                                             \
        memcpy(specs, model, sizeof model);                                                 \
        change;                                                                             \
        st = rig_open(&r, device, specs, MODEL, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &a);      \
        test_true(what, st == POLAR_E_ARG && strstr(polar_error_message(), sentence), "%s", \
                  st == POLAR_OK ? "taken" : polar_error_message());                        \
        if (st == POLAR_OK) rig_close(&r);                                                  \
    } while (0)
    polar_rule bad = o[0].rule;
    bad.momentum = (polar_momentum)9;
    REFUSED("a group that is not there", "'head' belongs to group 3; there are 3", specs[5].group = 3);
    REFUSED("a negative group", "group -1", specs[0].group = -1);
    REFUSED("groups without an array", "groups is NULL", a.groups = NULL);
    REFUSED("fewer than no groups", "group_count is -1", a.group_count = -1);
    REFUSED("a group's lr", "lr of group 1 is nan", groups[0].lr = NAN);
    REFUSED("a group's aux_beta2", "aux_beta2 of group 2 is 1", groups[1].aux_beta2 = 1);
    REFUSED("a group's aux_eps", "aux_eps of group 2 is 0", groups[1].aux_eps = 0);
    REFUSED("a group's route", "group 1 asks for route 7", groups[0].route = (polar_route)7);
    REFUSED("a group's momentum", "no momentum of group 2 9", groups[1].rule = &bad);
    REFUSED("no such skipping", "skip_nonfinite is 5", a.skip_nonfinite = (polar_skip)5);
    REFUSED("a norm's eps", "the norm's eps is -1", a.rule.map.eps = -1);
    REFUSED("a reserved field that is set", "reserved", groups[1].reserved = 1);
    polar_optim_opts a = joined(o, groups);
    TEST_TRY(rig_open(&r, device, model, MODEL, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &a));
    int64_t taken = 0;
    taken += polar_optim_set_hyper(r.opt, 0, 3, POLAR_ROUTE_AUX, &h) == POLAR_OK;
    taken += polar_optim_set_hyper(r.opt, 1, 0, POLAR_ROUTE_AUX, &h) == POLAR_OK;
    taken += polar_optim_set_hyper(r.opt, -2, 0, POLAR_ROUTE_AUX, &h) == POLAR_OK;
    taken += polar_optim_set_hyper(r.opt, 0, 0, POLAR_ROUTE_AUTO, &h) == POLAR_OK;
    taken += polar_optim_set_hyper(r.opt, 0, 0, POLAR_ROUTE_AUX, NULL) == POLAR_OK;
    taken += polar_optim_get_hyper(r.opt, -1, 0, POLAR_ROUTE_AUX, &h) == POLAR_OK;
    h.beta1 = 1;
    taken += polar_optim_set_hyper(r.opt, 0, 1, POLAR_ROUTE_MATRIX, &h) == POLAR_OK;
    test_true("numbers that cannot be", !taken && strstr(polar_error_message(), "beta1 of group 1 is 1"),
              "%s", polar_error_message());
    test_true("no scaler without skipping", polar_optim_set_scaler(r.opt, NULL, NULL) == POLAR_E_STATE, "%s",
              polar_error_message());
    test_true("three groups", polar_optim_group_count(r.opt) == 3, "%lld",
              (long long)polar_optim_group_count(r.opt));
    rig_close(&r);

    const param_spec schur[2] = {{.name = "a", .ndim = 2, .shape = {4, 4}, .schur_group = 1},
                                 {.name = "b", .ndim = 2, .shape = {4, 4}, .schur_group = 1, .group = 1}};
    st = rig_open(&r, device, schur, 2, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &a);
    test_true("one norm and two maps", st == POLAR_E_ARG && strstr(polar_error_message(), "one map"), "%s",
              st == POLAR_OK ? "taken" : polar_error_message());
    if (st == POLAR_OK) rig_close(&r);
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    map_need_device(device);
    as_separate(device, POLAR_DTYPE_F32, 1);
    as_separate(device, POLAR_DTYPE_BF16, 1);
    as_separate(device, POLAR_DTYPE_F64, 1);
    as_separate(device, POLAR_DTYPE_F32, 2);
    set_as_made(device);
    as_plain(device);
    resumed(device);
    refused(device);
    return test_end();
}
