/* test_optim_edge.c -- awkward gradients, independent plain-C optimisers, schedules and scales, Schur groups,
 * live values, queues, threads.
 *
 *     ctest -R test_optim_edge
 */
#include "fixtures/optim_fixture.h"

#define U32 5.96e-8 /* half an ulp of 1 in float, in double */
#define U64 1.11e-16

static int rule_has_map(const char *rule)
{
    return strcmp(rule, "sgdm") && strcmp(rule, "adamw");
}

/* ---- gradients ---------------------------------------------------------------------------------- */

/* Three mates of one shape, the last two as blocks of one parameter; a tall one; a bias. */
static const param_spec small[] = {{.name = "a", .ndim = 2, .shape = {6, 9}},
                                   {.name = "b", .ndim = 2, .shape = {12, 9}, .row_blocks = 2},
                                   {.name = "tall", .ndim = 2, .shape = {11, 4}},
                                   {.name = "bias", .ndim = 1, .shape = {7}}};
enum { SMALL = 4, BLOCK = 6 * 9, STEPS = 3 };

typedef struct {
    double scale; /* of every gradient */
    int param;    /* the one that gets a bad entry at the second step, or -1 */
    double bad;
} fill;

/* Steps before STEPS in which matrices only wait for a first basis. */
static int waits(const char *rule)
{
    polar_rule r;
    TEST_TRY(polar_rule_parse(&r, rule));
    return r.precondition == POLAR_PRECONDITION_SOAP || r.precondition == POLAR_PRECONDITION_KL_SOAP
               ? (int)r.first_basis
               : 0;
}

/* lr and decay whose product has few bits, so that the decay alone rounds once in any precision. */
static void run_fill(optim_rig *r, const char *device, const char *rule, const char *map, fill f)
{
    polar_optim_opts o;
    TEST_TRY(polar_optim_opts_parse(&o, rule));
    if (rule_has_map(rule)) TEST_TRY(polar_map_opts_parse(&o.rule.map, map));
    o.lr = o.aux_lr = 0.5;
    o.weight_decay = o.aux_weight_decay = 0.25;
    TEST_TRY(rig_open(r, device, small, SMALL, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o));
    for (int t = -waits(rule); t < STEPS; t++) {
        for (int i = 0; i < SMALL; i++) {
            double *g = map_new(r->elements[i]);
            rig_gradient(g, r->elements[i], i, t < 0 ? STEPS - t : t);
            for (int64_t k = 0; k < r->elements[i]; k++) g[k] *= f.scale;
            if (t == 1 && i == f.param) g[3] = f.bad;
            TEST_TRY(pl_mat_upload_f64(r->q, &r->G[i], g));
            free(g);
        }
        TEST_TRY(polar_optim_step(r->opt, r->q));
    }
    TEST_TRY(polar_queue_sync(r->q));
}

static int64_t not_finite(optim_rig *r, int i)
{
    double *w = rig_weights(r, i);
    int64_t n = 0;
    for (int64_t k = 0; k < r->elements[i]; k++) n += w[k] - w[k] != 0;
    free(w);
    return n;
}

/* What is left of a matrix after a step at lr 1/2 and decay 1/4 along a zero direction. */
static double kept(const char *rule)
{
    polar_rule r;
    TEST_TRY(polar_rule_parse(&r, rule));
    switch (r.apply) {
    case POLAR_APPLY_CONSTRAINED: return 0.5;
    case POLAR_APPLY_CAUTIOUS:
    case POLAR_APPLY_HYPERBALL: return 1;
    default: return 0.875;
    }
}

/* Weights that only decayed: 7/8 each step (the bias, and matrices unless the rule has another way), one
 * rounding to f32. */
static void zero_gradient(const char *device, const char *rule, const char *map)
{
    optim_rig r;
    char line[96];
    int64_t bad = 0;
    run_fill(&r, device, rule, map, (fill){0, -1, 0});
    for (int i = 0; i < SMALL; i++) {
        double *w = rig_weights(&r, i), *want = map_new(r.elements[i]);
        map_fill(want, r.elements[i], 900 + (uint64_t)i);
        for (int64_t k = 0; k < r.elements[i]; k++)
            for (int t = i == 3 ? -waits(rule) : 0; t < STEPS; t++)
                want[k] = (double)(float)(want[k] * (i == 3 ? 0.875 : kept(rule)));
        bad += map_mismatches(w, want, r.elements[i]);
        free(w);
        free(want);
    }
    snprintf(line, sizeof line, "%s %s: zero gradients only decay", rule, map);
    test_exact(line, bad);
    rig_close(&r);
}

/* Finite gradients of any size leave finite weights; where the map bounds the update (||D||_2 <= 1.21) the
 * weights stay near. */
static void sized_gradients(const char *device, const char *rule, const char *map)
{
    static const double scales[] = {1e-42, 1e-38, 1e-30, 1e30};
    optim_rig r;
    char line[96];
    int64_t bad = 0;
    double largest = 0;
    for (int s = 0; s < 4; s++) {
        run_fill(&r, device, rule, map, (fill){scales[s], -1, 0});
        for (int i = 0; i < SMALL; i++) {
            double *w = rig_weights(&r, i);
            bad += not_finite(&r, i);
            for (int64_t k = 0; k < r.elements[i]; k++) largest = fmax(largest, fabs(w[k]));
            free(w);
        }
        rig_close(&r);
    }
    snprintf(line, sizeof line, "%s %s: denormal ... 1e30 stays finite", rule, map);
    /* |w| <= 2, and each step adds at most lr s 1.21 with s <= sqrt(11/4); Adam's |D| <= sqrt(t) < 1.8 for
     * the bias: under 2 + 3 0.5 1.66 1.21 < 6; Scion's radius of 50 is in s. SGD and the nuclear norm know
     * the gradient's size. */
    polar_rule r0;
    TEST_TRY(polar_rule_parse(&r0, rule));
    int sized = r0.scale == POLAR_SCALE_NUCLEAR || !strcmp(rule, "sgdm");
    test_true(line, !bad && (sized || largest < 6 * fmax(1, r0.radius)), "largest weight %.3g", largest);
}

/* A NaN or an infinity shows in its own parameter (its own block, under a map), and everything else has the
 * bits of a run without it. */
static void bad_gradient(const char *device, const char *rule, const char *map, int param, double value)
{
    optim_rig with, without;
    char line[96];
    int64_t other = 0;
    run_fill(&with, device, rule, map, (fill){1, param, value});
    run_fill(&without, device, rule, map, (fill){1, -1, 0});
    for (int i = 0; i < SMALL; i++) {
        double *a = rig_weights(&with, i), *b = rig_weights(&without, i);
        int64_t from = i != param ? 0 : i == 1 ? BLOCK : with.elements[i];
        other += map_mismatches(a + from, b + from, with.elements[i] - from);
        free(a);
        free(b);
    }
    int64_t n = not_finite(&with, param), want = !rule_has_map(rule) || param == 3 ? 1
                                                 : param == 1                      ? BLOCK
                                                                                   : with.elements[param];
    snprintf(line, sizeof line, "%s %s: %s in '%s'", rule, map, value != value ? "NaN" : "infinity",
             small[param].name);
    test_true(line, n == want && !other, "%lld of %lld entries not finite, %lld elsewhere differ",
              (long long)n, (long long)want, (long long)other);
    rig_close(&with);
    rig_close(&without);
}

/* Momentum is linear and the map scale-free: gradients times 2^-100 or 2^100 give the same bits. */
static void scale_free(const char *device, const char *rule, const char *map)
{
    optim_rig one, other;
    char line[96];
    int64_t bad = 0;
    run_fill(&one, device, rule, map, (fill){1, -1, 0});
    for (int s = -100; s <= 100; s += 200) {
        run_fill(&other, device, rule, map, (fill){ldexp(1, s), -1, 0});
        other.n = one.n = 3; /* the bias goes by AdamW, which has an eps */
        bad += rig_mismatches(&one, &other);
        other.n = one.n = SMALL;
        rig_close(&other);
    }
    snprintf(line, sizeof line, "%s %s: gradients times 2^-100, 2^100", rule, map);
    test_exact(line, bad);
    rig_close(&one);
}

static void gradients(const char *device)
{
    static const char *const maps[] = {"ns_bf16_fused", "ns_bf16_reference", "exact"};
    for (int k = 0; polar_rule_name(k); k++)
        for (int m = 0; m < (rule_has_map(polar_rule_name(k)) ? 3 : 1); m++) {
            const char *rule = polar_rule_name(k), *map = rule_has_map(rule) ? maps[m] : "none";
            zero_gradient(device, rule, map);
            sized_gradients(device, rule, map);
            for (int p = 0; p < SMALL; p++) {
                bad_gradient(device, rule, map, p, NAN);
                bad_gradient(device, rule, map, p, INFINITY);
            }
            if (m != 1 && (!strcmp(rule, "muon") || !strcmp(rule, "polar_ema")))
                scale_free(device, rule, map);
        }
}

/* ---- independent optimisers --------------------------------------------------------------------- */

static double my_schedule(int64_t t, int64_t warmup, int64_t total)
{
    return t < warmup ? 1e-3 + (1 - 1e-3) * (double)t / (double)warmup
                      : (1 + cos(acos(-1) * (double)(t - warmup) / (double)(total - warmup))) / 2;
}

/* torch.optim.AdamW as its page writes it, in long double. */
static void my_adamw(long double *w, long double *m, long double *v, const double *g, int64_t n, int64_t t,
                     double lr, double decay)
{
    const long double b1 = 0.9, b2 = 0.999, eps = 1e-8;
    for (int64_t i = 0; i < n; i++) {
        w[i] -= (long double)lr * decay * w[i];
        m[i] = b1 * m[i] + (1 - b1) * g[i];
        v[i] = b2 * v[i] + (1 - b2) * g[i] * g[i];
        w[i] -= lr / (1 - powl(b1, t)) * m[i] / (sqrtl(v[i]) / sqrtl(1 - powl(b2, t)) + eps);
    }
}

/* Both routes of the rule adamw. Weights (at most 2) take two roundings a step. After t steps v is off by 3 t
 * u relative, m by 3 min(t, 10) u, eight roundings follow: with t <= 20 that is 68 u of a |D| <= sqrt(20).
 * Over 20 steps of lr <= 0.01: 20 (2 2 + 0.01 sqrt(20) 68) u = 141 u. */
static void adamw_alone(const char *device, polar_dtype dtype)
{
    enum { R = 8, C = 13, N = R * C, T = 20 };
    static const param_spec specs[] = {{.name = "w", .ndim = 2, .shape = {R, C}},
                                       {.name = "b", .ndim = 1, .shape = {C}}};
    long double w[2][N], m[2][N] = {{0}}, v[2][N] = {{0}};
    double g[N], worst = 0;
    optim_rig r;
    polar_optim_opts o;
    char line[96];
    TEST_TRY(polar_optim_opts_parse(&o, "adamw"));
    o.lr = 0.01, o.aux_lr = 0.004, o.weight_decay = 0.05, o.aux_weight_decay = 0.1;
    o.schedule = (polar_schedule){4, T, 1e-3};
    TEST_TRY(rig_open(&r, device, specs, 2, dtype, POLAR_DTYPE_F32, &o));
    for (int i = 0; i < 2; i++) {
        double *w0 = rig_weights(&r, i);
        for (int64_t k = 0; k < r.elements[i]; k++) w[i][k] = w0[k];
        free(w0);
    }
    for (int t = 0; t < T; t++) {
        TEST_TRY(rig_step(&r, t));
        for (int i = 0; i < 2; i++) {
            rig_gradient(g, r.elements[i], i, t);
            my_adamw(w[i], m[i], v[i], g, r.elements[i], t + 1, (i ? o.aux_lr : o.lr) * my_schedule(t, 4, T),
                     i ? 0.1 : 0.05);
        }
    }
    for (int i = 0; i < 2; i++) {
        double *got = rig_weights(&r, i);
        for (int64_t k = 0; k < r.elements[i]; k++) worst = fmax(worst, (double)fabsl(got[k] - w[i][k]));
        free(got);
    }
    snprintf(line, sizeof line, "adamw in plain C, 20 steps, %s", polar_dtype_name(dtype));
    test_bound(line, worst, 141 * (dtype == POLAR_DTYPE_F64 ? U64 : U32), "20 (4 + 0.01 sqrt(20) 68) u");
    rig_close(&r);
}

/* X <- a X + X (b A + c A A), A = X^T X: the columns' side, whatever the shape. */
static void my_newton_schulz(double *x, int rows, int cols)
{
    double a[144], p[144], row[12], norm = 0;
    for (int i = 0; i < rows * cols; i++) norm += x[i] * x[i];
    for (int i = 0; i < rows * cols; i++) x[i] /= sqrt(norm);
    for (int step = 0; step < 5; step++) {
        for (int i = 0; i < cols * cols; i++) {
            a[i] = 0;
            for (int k = 0; k < rows; k++) a[i] += x[k * cols + i / cols] * x[k * cols + i % cols];
        }
        for (int i = 0; i < cols * cols; i++) {
            p[i] = 0;
            for (int k = 0; k < cols; k++) p[i] += a[i / cols * cols + k] * a[k * cols + i % cols];
        }
        for (int i = 0; i < cols * cols; i++) p[i] = -4.7750 * a[i] + 2.0315 * p[i];
        for (int i = 0; i < rows; i++) {
            memcpy(row, x + i * cols, (size_t)cols * sizeof *row);
            for (int j = 0; j < cols; j++) {
                double s = 0;
                for (int k = 0; k < cols; k++) s += row[k] * p[k * cols + j];
                x[i * cols + j] = 3.4445 * row[j] + s;
            }
        }
    }
}

static void my_direction(double *d, double *m, double *v, const double *g, int n, int t, int muon)
{
    for (int i = 0; i < n; i++) {
        m[i] = muon ? 0.95 * m[i] + g[i] : 0.9 * m[i] + 0.1 * g[i];
        v[i] = 0.999 * v[i] + 0.001 * g[i] * g[i];
        d[i] =
            muon ? g[i] + 0.95 * m[i] : m[i] / (1 - pow(0.9, t)) / (sqrt(v[i] / (1 - pow(0.999, t))) + 1e-8);
    }
}

/* fp64: a step has 5 sqrt(3 n) roundings in Newton-Schulz and 35 before it, each amplified by at
 * most 3.4445^5 = 485; it moves the weights by lr s of that. */
static void matrix_alone(const char *device, const char *rule, int rows, int cols)
{
    enum { T = 6 };
    param_spec spec = {.name = "w", .ndim = 2, .shape = {rows, cols}};
    double m[144] = {0}, v[144] = {0}, d[144], g[144], worst = 0, lr = 0.02, decay = 0.05,
           s = sqrt((double)(rows > cols ? rows : cols) / (rows > cols ? cols : rows));
    int n = rows * cols;
    optim_rig r;
    polar_optim_opts o;
    char line[96];
    TEST_TRY(polar_optim_opts_parse(&o, rule));
    o.lr = lr, o.weight_decay = decay;
    o.rule.map.precision = POLAR_DTYPE_F64;
    TEST_TRY(rig_open(&r, device, &spec, 1, POLAR_DTYPE_F64, POLAR_DTYPE_F64, &o));
    double *w = rig_weights(&r, 0);
    for (int t = 0; t < T; t++) {
        TEST_TRY(rig_step(&r, t));
        rig_gradient(g, n, 0, t);
        my_direction(d, m, v, g, n, t + 1, !strcmp(rule, "muon"));
        my_newton_schulz(d, rows, cols);
        for (int i = 0; i < n; i++) w[i] = (1 - lr * decay) * w[i] - lr * s * d[i];
    }
    double *got = rig_weights(&r, 0);
    for (int i = 0; i < n; i++) worst = fmax(worst, fabs(got[i] - w[i]));
    snprintf(line, sizeof line, "%s %dx%d in plain C, %d steps", rule, rows, cols, T);
    test_bound(line, worst, T * (lr * s * 485 * (5 * sqrt(3.0 * (rows > cols ? rows : cols)) + 35) + 4) * U64,
               "T (lr s 485 (5 sqrt(3 n) + 35) + 4) u64");
    free(w);
    free(got);
    rig_close(&r);
}

/* ---- numbers without a device ------------------------------------------------------------------- */

static void schedules(void)
{
    const polar_schedule s = {10, 110, 1e-3}, none = {0, 0, 1e-3}, all = {8, 8, 0.5}, cosine = {0, 4, 1};
    const struct {
        const polar_schedule *s;
        int64_t step;
        double want;
    } rows[] = {{&s, 0, 1e-3},
                {&s, 5, 0.5005},
                {&s, 10, 1},
                {&s, 60, 0.5},
                {&s, 35, 0.5 + sqrt(0.125)},
                {&s, 109, 0.5 * (1 - cos(acos(-1) / 100))},
                {&s, 110, 0},
                {&s, 1 << 30, 0},
                {&none, 0, 1},
                {&none, 999, 1},
                {&all, 4, 0.75},
                {&all, 7, 0.5 + 0.5 * 7 / 8},
                {&all, 8, 0},
                {&cosine, 0, 1},
                {&cosine, 2, 0.5}};
    double worst = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        worst = fmax(worst, fabs(polar_schedule_factor(rows[i].s, rows[i].step) - rows[i].want));
    test_bound("schedule: first, warm-up, middle, last, beyond", worst, 8 * U64,
               "a cosine of at most pi and three roundings");
}

/* docs/NUMERICS.md, section 3, for DeiT-Tiny: half a unit of the printed digit. */
static void scales(void)
{
    static const int64_t shapes[4][2] = {{576, 192}, {192, 192}, {768, 192}, {192, 768}};
    static const struct {
        const char *name;
        double value[4], half;
    } table[] = {{"paper", {1.73, 1, 2, 2}, 0.005},
                 {"jordan", {1.73, 1, 2, 1}, 0.005},
                 {"spectral", {1.73, 1, 2, 0.5}, 0.005},
                 {"rms", {4.8, 2.8, 5.5, 5.5}, 0.05},
                 {"none", {1, 1, 1, 1}, 0}};
    for (int k = 0; k < 5; k++) {
        polar_scale scale;
        double worst = 0;
        char line[96];
        TEST_TRY(polar_scale_parse(&scale, table[k].name));
        for (int i = 0; i < 4; i++)
            worst =
                fmax(worst, fabs(polar_scale_value(scale, shapes[i][0], shapes[i][1]) - table[k].value[i]));
        snprintf(line, sizeof line, "scale %s, qkv/proj/fc1/fc2", table[k].name);
        test_bound(line, worst, table[k].half, "half a unit of the table's last digit");
    }
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    map_need_device(device);
    schedules();
    scales();
    adamw_alone(device, POLAR_DTYPE_F64);
    adamw_alone(device, POLAR_DTYPE_F32);
    matrix_alone(device, "muon", 7, 11);
    matrix_alone(device, "muon", 11, 7);
    matrix_alone(device, "polaradamw", 7, 11);
    matrix_alone(device, "polaradamw", 11, 7);
    gradients(device);
    return test_end();
}
