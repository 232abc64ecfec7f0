/* test_optim_rules.c -- every rule of the table against its formula in plain double precision, and rules of a
 * program's own, made of the same stages through the public header. */
#include "fixtures/optim_fixture.h"
#include "rule_reference.h"

#define STEPS 20

/* Wide, tall, square; three blocks of rows, each a matrix of its own. */
static const param_spec shapes[] = {{.name = "wide", .ndim = 2, .shape = {12, 20}},
                                    {.name = "tall", .ndim = 2, .shape = {20, 12}},
                                    {.name = "square", .ndim = 2, .shape = {16, 16}},
                                    {.name = "blocks", .ndim = 2, .shape = {24, 10}, .row_blocks = 3}};
enum { SHAPES = 4, MATRICES = 6 };

/* Matrix k: its parameter, and where it begins there. */
static int matrix_of(ref *r, int k, int64_t *first)
{
    const param_spec *s = &shapes[k < 3 ? k : 3];
    r->rows = (int)(s->shape[0] / (k < 3 ? 1 : 3));
    r->cols = (int)s->shape[1];
    r->n = r->rows * r->cols;
    *first = k < 3 ? 0 : (k - 3) * r->n;
    return k < 3 ? k : 3;
}

/* The largest distance of a matrix from its reference, relative, after STEPS. Newton-Schulz in double errs by
 * 9.2e-12 of its result (test_map.c) at worst; lr s D against W of entries about 1 is at most 0.1, and errors
 * of directions do not add up, as moments forget: 1e-11. */
/* Of fewer gradients than that the larger factor has a null space, whose basis is anybody's: matrices like
 * these are compared with nothing. */
static int has_basis(const polar_rule *rule, const ref *r)
{
    const int64_t least = r->rows < r->cols ? r->rows : r->cols, most = r->rows < r->cols ? r->cols : r->rows;
    return rule->precondition < POLAR_PRECONDITION_SOAP || rule->precondition > POLAR_PRECONDITION_KL_SOAP ||
           rule->first_basis * least >= most;
}

static void against(const char *line, const char *device, const polar_optim_opts *o, ref_rule step)
{
    optim_rig rig;
    ref *all = calloc(MATRICES, sizeof *all);
    double worst = 0, moved = 0;
    TEST_TRY(rig_open(&rig, device, shapes, SHAPES, POLAR_DTYPE_F64, POLAR_DTYPE_F64, o));
    for (int k = 0; k < MATRICES; k++) {
        int64_t first;
        double *w = rig_weights(&rig, matrix_of(&all[k], k, &first));
        memcpy(all[k].W, w + first, sizeof(double) * (size_t)all[k].n);
        all[k].lr = o->lr, all[k].wd = o->weight_decay;
        free(w);
    }
    for (int t = 0; t < STEPS; t++) {
        double *g[SHAPES];
        TEST_TRY(rig_step(&rig, t));
        for (int i = 0; i < SHAPES; i++) {
            g[i] = map_new(rig.elements[i]);
            rig_gradient(g[i], rig.elements[i], i, t);
        }
        for (int k = 0; k < MATRICES; k++) {
            int64_t first;
            int p = matrix_of(&all[k], k, &first);
            all[k].t = t + 1;
            step(&all[k], g[p] + first);
        }
        for (int i = 0; i < SHAPES; i++) free(g[i]);
    }
    for (int k = 0; k < MATRICES; k++) {
        int64_t first;
        int p = matrix_of(&all[k], k, &first);
        double *w = rig_weights(&rig, p), *start = map_new(rig.elements[p]);
        map_fill(start, rig.elements[p], 900 + (uint64_t)p);
        if (has_basis(&o->rule, &all[k])) worst = fmax(worst, map_distance(w + first, all[k].W, all[k].n));
        moved = fmax(moved, map_distance(w + first, start + first, all[k].n));
        free(w);
        free(start);
    }
    test_bound(line, worst, 1e-11, "the map's 9.2e-12");
    test_true("... and the weights moved", moved > 1e-3, "by %.2g", moved);
    rig_close(&rig);
    free(all);
}

static polar_optim_opts opts_of(const char *rule)
{
    polar_optim_opts o;
    TEST_TRY(polar_optim_opts_parse(&o, rule));
    o.rule.map.precision = POLAR_DTYPE_F64;
    return o;
}

static void every_rule(const char *device)
{
    for (int k = 0; polar_rule_name(k); k++) {
        const char *rule = polar_rule_name(k);
        char line[96];
        polar_optim_opts o = opts_of(rule);
        snprintf(line, sizeof line, "%s against its formula, %d steps", rule, STEPS);
        ref_rule step = ref_rule_find(rule);
        if (step) against(line, device, &o, step);
        else test_true(line, 0, "rule_reference.h has none");
    }
}

/* ---- rules of a program's own ---- */

static void own_columns(ref *r, const double *g)
{
    ref_heavy(r, g, 0.9, 1);
    ref_equilibrate(r, 1, 0, 1e-8);
    ref_polar(r);
    ref_line_moment(r, 1, 0.8, 1e-8, 0);
    ref_cautious(r, 2 * ref_frobenius(r));
}

static void own_ball(ref *r, const double *g)
{
    static double x[REF_MOST];
    ref_laprop(r, x, g, 0.95, 1e-8);
    ref_average(r, x, 0.9, 0);
    ref_polar(r);
    ref_line_moment(r, 0, 0.95, 1e-8, 0);
    ref_hyperball(r);
}

static void own_plain(ref *r, const double *g)
{
    ref_average(r, g, 0.9, 1);
    ref_unmapped(r);
    ref_entry_moment(r, 0.95, 1e-6);
    ref_constrained(r, 3);
}

static void own_quarter(ref *r, const double *g)
{
    ref_ema(r, g, 0.9);
    ref_spectral(r, 0, 0.25);
    ref_line_moment(r, 0, 0.9, 1e-8, 0);
    ref_decoupled(r, ref_paper(r));
}

static void own_soft(ref *r, const double *g)
{
    ref_average(r, g, 0.9, 0);
    ref_spectral(r, 1, 4);
    ref_hyperball(r);
}

static void own_norms(ref *r, const double *g)
{
    ref_heavy(r, g, 0.9, 0);
    ref_equilibrate(r, 0, 1, 1e-3);
    ref_polar(r);
    ref_norm_sum(r, g, 3, 1e-3);
    ref_radial_brake(r, 2 * ref_rms(r), 0.25);
}

static void own_floor(ref *r, const double *g)
{
    ref_ema(r, g, 0.9);
    ref_adam(r, g, 0.9, 1e-6);
    ref_unmapped(r);
    ref_norm_moment(r, g, 0.9, 1e-6);
    ref_update_floor(r, 1, 2);
}

/* Looked at often: what a sweep says of the eigenvalues goes into the next gradients. */
static void own_kl(ref *r, const double *g)
{
    ref_soap(r, g, 4, 3, 0.9, 1);
}

/* A new rule of stages that are there is one line. */
static void own_rules(const char *device)
{
    static const struct {
        const char *name;
        ref_rule step;
        polar_rule rule;
    } own[] = {
        {"rows, polar, column moment, cautious",
         own_columns,
         {POLAR_MOMENTUM_NESTEROV, POLAR_PRECONDITION_ROWS, POLAR_SCALE_FROBENIUS, 0.9, 0.8, 1e-8,
          POLAR_MAP_OPTS_INIT, POLAR_POST_COLUMN_MOMENT, POLAR_APPLY_CAUTIOUS, 2, 0, 0, 0, 0, 0, 0}},
        {"laprop, polar, row moment, hyperball",
         own_ball,
         {POLAR_MOMENTUM_AVERAGE, POLAR_PRECONDITION_LAPROP, POLAR_SCALE_NONE, 0.9, 0.95, 1e-8,
          POLAR_MAP_OPTS_INIT, POLAR_POST_ROW_MOMENT, POLAR_APPLY_HYPERBALL, 0, 0, 0, 0, 0, 0, 0}},
        {"no map, entry moment, constrained",
         own_plain,
         {POLAR_MOMENTUM_AVERAGE_NESTEROV,
          POLAR_PRECONDITION_NONE,
          POLAR_SCALE_NUCLEAR,
          0.9,
          0.95,
          1e-6,
          {sizeof(polar_map_opts), POLAR_MAP_NONE, POLAR_DTYPE_F64, POLAR_ROUND_FUSED, 0, NULL, NULL, 0, 0},
          POLAR_POST_ENTRY_MOMENT,
          POLAR_APPLY_CONSTRAINED,
          3,
          0,
          0,
          0,
          0,
          0,
          0}},
        {"singular values to the power 1/4, row moment",
         own_quarter,
         {POLAR_MOMENTUM_EMA,
          POLAR_PRECONDITION_NONE,
          POLAR_SCALE_PAPER,
          0.9,
          0.9,
          1e-8,
          {sizeof(polar_map_opts), POLAR_MAP_POWER, POLAR_DTYPE_F64, POLAR_ROUND_FUSED, 0, NULL, NULL, 0,
           0.25},
          POLAR_POST_ROW_MOMENT,
          POLAR_APPLY_DECOUPLED,
          0,
          0,
          0,
          0,
          0,
          0,
          0}},
        {"columns, polar, sum of norms, radial brake",
         own_norms,
         {POLAR_MOMENTUM_HEAVY_BALL, POLAR_PRECONDITION_COLUMNS, POLAR_SCALE_RMS, 0.9, 0.9, 1e-3,
          POLAR_MAP_OPTS_INIT, POLAR_POST_NORM_SUM, POLAR_APPLY_RADIAL_BRAKE, 2, 0, 0, 3, 0.25, 0, 0}},
        {"adam, no map, moment of norms, update floor",
         own_floor,
         {POLAR_MOMENTUM_EMA,
          POLAR_PRECONDITION_ADAM,
          POLAR_SCALE_NONE,
          0.9,
          0.9,
          1e-6,
          {sizeof(polar_map_opts), POLAR_MAP_NONE, POLAR_DTYPE_F64, POLAR_ROUND_FUSED, 0, NULL, NULL, 0, 0},
          POLAR_POST_NORM_MOMENT,
          POLAR_APPLY_UPDATE_FLOOR,
          0,
          0,
          0,
          0,
          2,
          0,
          0}},
        {"factors of least divergence, refresh 3",
         own_kl,
         {POLAR_MOMENTUM_EMA,
          POLAR_PRECONDITION_KL_SOAP,
          POLAR_SCALE_NONE,
          0.9,
          0.95,
          1e-8,
          {sizeof(polar_map_opts), POLAR_MAP_NONE, POLAR_DTYPE_F64, POLAR_ROUND_FUSED, 0, NULL, NULL, 0, 0},
          POLAR_POST_NONE,
          POLAR_APPLY_DECOUPLED,
          0,
          0,
          3,
          0,
          0,
          4,
          0}},
        {"soft, hyperball",
         own_soft,
         {POLAR_MOMENTUM_AVERAGE,
          POLAR_PRECONDITION_NONE,
          POLAR_SCALE_NONE,
          0.9,
          0.9,
          1e-8,
          {sizeof(polar_map_opts), POLAR_MAP_SOFT, POLAR_DTYPE_F64, POLAR_ROUND_FUSED, 0, NULL, NULL, 0, 4},
          POLAR_POST_NONE,
          POLAR_APPLY_HYPERBALL,
          0,
          0,
          0,
          0,
          0,
          0,
          0}},
    };
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        polar_optim_opts o = opts_of("muon");
        o.rule = own[i].rule;
        if (o.rule.map.kind != POLAR_MAP_NONE) o.rule.map.precision = POLAR_DTYPE_F64;
        o.lr = 0.02;
        o.weight_decay = 0.1;
        against(own[i].name, device, &o, own[i].step);
    }
}

/* ---- what every combination owes ---- */

enum {
    PRECONDITIONS = POLAR_PRECONDITION_ROOT + 1,
    POSTS = POLAR_POST_BALANCE + 1,
    SCALES = POLAR_SCALE_JORDAN_TRANSPOSED + 1
};

/* A first gradient of zero moves nothing but by decay, then one that is not gives numbers; with a NaN in one
 * matrix the others stay numbers. */
static void combinations(const char *device)
{
    static const param_spec two[] = {{.name = "a", .ndim = 2, .shape = {6, 9}},
                                     {.name = "b", .ndim = 2, .shape = {6, 9}}};
    int64_t tried = 0, wrong_zero = 0, wrong = 0, spread = 0;
    for (int c = 0; c < PRECONDITIONS * POSTS * SCALES * 6; c++) {
        polar_optim_opts o = opts_of("muon");
        optim_rig r;
        double g[54];
        if (c % 23 && strncmp(device, "cpu", 3)) continue; /* the slow ones: every 23rd */
        o.rule.precondition = (polar_precondition)(c % PRECONDITIONS);
        o.rule.post = (polar_post)(c / PRECONDITIONS % POSTS);
        o.rule.scale = (polar_scale)(c / PRECONDITIONS / POSTS % SCALES);
        o.rule.apply = (polar_apply)(c / PRECONDITIONS / POSTS / SCALES);
        o.rule.kron_power = 0.25;
        o.rule.refresh = 2;
        o.rule.clip = 2;
        o.rule.strength = 0.5;
        if (c % 5 == 0 && o.rule.precondition != POLAR_PRECONDITION_ADAM &&
            o.rule.precondition != POLAR_PRECONDITION_LAPROP)
            o.rule.momentum = POLAR_MOMENTUM_PICKED, o.rule.fraction = 0.5;
        if (o.rule.post == POLAR_POST_UNWHITEN &&
            (o.rule.precondition < POLAR_PRECONDITION_KRON || o.rule.precondition >= POLAR_PRECONDITION_SOAP))
            continue;
        o.rule.map.precision = POLAR_DTYPE_F32;
        o.lr = 0.01;
        TEST_TRY(rig_open(&r, device, two, 2, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o));
        double *before = rig_weights(&r, 0);
        memset(g, 0, sizeof g);
        TEST_TRY(pl_mat_upload_f64(r.q, &r.G[0], g));
        TEST_TRY(pl_mat_upload_f64(r.q, &r.G[1], g));
        TEST_TRY(polar_optim_step(r.opt, r.q));
        double *after = rig_weights(&r, 0);
        /* SOAP's first step waits for its basis */
        const int waits = o.rule.precondition == POLAR_PRECONDITION_SOAP ||
                          o.rule.precondition == POLAR_PRECONDITION_KL_SOAP;
        double keep = o.rule.apply == POLAR_APPLY_CONSTRAINED && !waits ? 0.99 : 1;
        for (int i = 0; i < 54; i++)
            wrong_zero += !(fabs(after[i] - keep * before[i]) <= 1e-6 * fabs(before[i]));
        free(before);
        free(after);
        rig_gradient(g, 54, 0, 1);
        TEST_TRY(pl_mat_upload_f64(r.q, &r.G[0], g));
        TEST_TRY(pl_mat_upload_f64(r.q, &r.G[1], g));
        TEST_TRY(polar_optim_step(r.opt, r.q));
        after = rig_weights(&r, 0);
        for (int i = 0; i < 54; i++) wrong += !isfinite(after[i]);
        free(after);
        g[7] = NAN;
        TEST_TRY(pl_mat_upload_f64(r.q, &r.G[1], g));
        TEST_TRY(polar_optim_step(r.opt, r.q));
        after = rig_weights(&r, 0);
        for (int i = 0; i < 54; i++) spread += !isfinite(after[i]);
        free(after);
        rig_close(&r);
        tried++;
    }
    test_true("combinations of stages", tried >= 80, "%lld", (long long)tried);
    test_exact("... a zero gradient gives a zero direction", wrong_zero);
    test_exact("... one after it gives numbers", wrong);
    test_exact("... a NaN stays in its own matrix", spread);
}

/* Of a dry run of a step. */
static double step_flops(const char *device, const char *rule, const param_spec *p)
{
    polar_optim_opts o = opts_of(rule);
    polar_cost cost;
    optim_rig r;
    TEST_TRY(rig_open(&r, device, p, 1, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o));
    TEST_TRY(polar_queue_dry_begin(r.q));
    TEST_TRY(polar_optim_step(r.opt, r.q));
    TEST_TRY(polar_queue_dry_end(r.q, &cost));
    rig_close(&r);
    return cost.flops;
}

/* A quarter of the lines is a matrix of its own: of 5 (4 m^2 n + 2 m^3) a sixteenth, and what every rule does
 * for each entry, less than 64 numbers. */
static void picked_alone(const char *device)
{
    static const param_spec wide = {.name = "wide", .ndim = 2, .shape = {64, 256}},
                            tall = {.name = "tall", .ndim = 2, .shape = {256, 64}};
    const double entries = 64 * 256, map = 5 * (4.0 * 16 * 16 * 256 + 2.0 * 16 * 16 * 16);
    const double flops[] = {step_flops(device, "dion2", &wide), step_flops(device, "dion2", &tall)};
    test_true("dion2 maps the lines that it picked, and no others",
              flops[0] < map + 64 * entries && flops[1] < map + 64 * entries,
              "%.3g and %.3g flops, muon's %.3g", flops[0], flops[1], step_flops(device, "muon", &wide));
}

static void refused(const char *device)
{
    static const param_spec blocks[] = {{.name = "a", .ndim = 2, .shape = {6, 9}, .schur_group = 1},
                                        {.name = "b", .ndim = 2, .shape = {3, 3}, .schur_group = 1}};
    static const char *const names[] = {"normuon", "adamuon",    "muoneq_r",   "polargrad", "muonh", "namo",
                                        "adago",   "muon_floor", "muon_brake", "muon_soft", "pmuon", "dion2"};
    optim_rig r;
    int64_t taken = 0;
    for (int i = 0; i < 12; i++) {
        polar_optim_opts o = opts_of(names[i]);
        if (i == 9) o.rule.scale = POLAR_SCALE_PAPER;
        taken += rig_open(&r, device, blocks, 2, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o) != POLAR_E_UNSUPPORTED;
    }
    test_exact("blocks of a direct sum are not taken by rules that look at norms", taken);
    polar_optim_opts scion = opts_of("scion");
    TEST_TRY(rig_open(&r, device, blocks, 2, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &scion));
    rig_close(&r);
#define REFUSED(what, change)                                                                                \
    do {                                                                                                     \
        polar_optim_opts o = opts_of("normuon");                                                             \
        change;                                                                                              \
        test_true(what,                                                                                      \
                  rig_open(&r, device, shapes, SHAPES, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o) == POLAR_E_ARG, \
                  "%s", polar_error_message());                                                              \
    } while (0)
    REFUSED("no such stage after the map", o.rule.post = (polar_post)POSTS);
    REFUSED("no such way to apply", o.rule.apply = (polar_apply)6);
    REFUSED("a negative radius", o.rule.radius = -1);
    REFUSED("a power of 2", (o.rule.map.kind = POLAR_MAP_POWER, o.rule.map.power = 2));
    REFUSED("a power that is none", (o.rule.map.kind = POLAR_MAP_POWER, o.rule.map.power = NAN));
    REFUSED("a soft map of 0", (o.rule.map.kind = POLAR_MAP_SOFT, o.rule.map.power = 0));
    REFUSED("a sum of norms without a clip", o.rule.post = POLAR_POST_NORM_SUM);
    REFUSED("a brake that pushes", (o.rule.apply = POLAR_APPLY_RADIAL_BRAKE, o.rule.strength = 2));
    REFUSED("a moment without eps", o.rule.eps = 0);
    REFUSED("no such preconditioner", o.rule.precondition = (polar_precondition)PRECONDITIONS);
    REFUSED("a power of 0", o.rule.precondition = POLAR_PRECONDITION_KRON);
    REFUSED("a power above 1", (o.rule.precondition = POLAR_PRECONDITION_KRON, o.rule.kron_power = 1.5));
    REFUSED("no such momentum", o.rule.momentum = (polar_momentum)6);
    REFUSED("lines picked, none of them", o.rule.momentum = POLAR_MOMENTUM_PICKED);
    REFUSED("lines picked, and Adam", (o.rule.momentum = POLAR_MOMENTUM_PICKED, o.rule.fraction = 0.5,
                                       o.rule.precondition = POLAR_PRECONDITION_ADAM));
    REFUSED("a refresh in the past", o.rule.refresh = -1);
    REFUSED("a first basis in the past", o.rule.first_basis = -1);
    REFUSED("unwhitening of what was not whitened", o.rule.post = POLAR_POST_UNWHITEN);
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    every_rule(device);
    own_rules(device);
    combinations(device);
    picked_alone(device);
    refused(device);
    return test_end();
}
