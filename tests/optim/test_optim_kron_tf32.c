/* test_optim_kron_tf32.c -- opts.kron_tf32: a step from one state with factors of products as they are and in
 * tf32 differs, and by no more than the roundings of factors allow; of matrices in f64 not at all; states
 * know it.
 *
 *     test_optim_kron_tf32 DEVICE
 *
 * u = 2^-11 bounds a factor's rounding (2^-10 where a device cuts), so a product of A and B moves by no more
 * than e |A| |B|, e = 2 u + u^2, and k 2^-23 for sums of k terms in f32. With || |A| |B| ||_F <= sqrt(m)
 * ||B||_F for an orthogonal A of m columns:
 *
 *     moments     (1 - b2) ||g||^2 T, T of a gradient over its norm: e (1 - b2) ||g||^2
 *     p = Q_L^T u Q_R, and of g likewise:  |dp| <= e (sqrt m + sqrt n) ||u||_F, (1 + e) of the second product
 *                 left to the round of e
 *     N = p / s, s = sqrt(v^) + eps:  |dN| <= (|dp| + max |N| sqrt(c2 (1 - b2)) |dP|) / min s, since
 *                 sqrt(a + P^2) moves by no more than P does
 *     D = Q_L N Q_R^T:  |dN| + e (sqrt m + sqrt n) ||N||_F
 */
#include "device/backend.h"
#include "optim/optim_impl.h"
#include "optim_state_file.h"

enum { ROWS = 24, COLS = 40, N = ROWS * COLS, BEFORE = 12 };

static const param_spec specs[] = {{.name = "w", .ndim = 2, .shape = {ROWS, COLS}},
                                   {.name = "other", .ndim = 2, .shape = {ROWS, COLS}}};
enum { PARAMS = 2 };

static polar_optim_opts opts_of(const char *rule, int tf32)
{
    polar_optim_opts o;
    TEST_TRY(polar_optim_opts_parse(&o, rule));
    if (o.rule.map.kind != POLAR_MAP_NONE) o.rule.map.precision = POLAR_DTYPE_F32;
    o.kron_tf32 = tf32;
    o.rule.refresh = 1000; /* one basis for both */
    o.lr = 0.25, o.weight_decay = 0;
    return o;
}

static double *all_of(optim_rig *r, const pl_mat *m)
{
    double *x = map_new(m->batch * m->rows * m->cols);
    TEST_TRY(pl_mat_download_f64(r->q, m, x));
    return x;
}

static double norm(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    return sqrt(sum);
}

static double apart(const double *x, const double *y, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (x[i] - y[i]) * (x[i] - y[i]);
    return sqrt(sum);
}

/* Q_L^T X Q_R */
static void project(double *Y, const double *L, const double *X, const double *R)
{
    static double T[N];
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLS; j++) {
            T[i * COLS + j] = 0;
            for (int k = 0; k < ROWS; k++) T[i * COLS + j] += L[k * ROWS + i] * X[k * COLS + j];
        }
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLS; j++) {
            Y[i * COLS + j] = 0;
            for (int k = 0; k < COLS; k++) Y[i * COLS + j] += T[i * COLS + k] * R[k * COLS + j];
        }
}

/* Both optimisers from one state, and a step of each. */
static void from_one_state(const char *device, const char *rule, optim_rig *plain, optim_rig *tf32)
{
    optim_rig first;
    polar_optim_opts a = opts_of(rule, 0), b = opts_of(rule, 1);
    TEST_TRY(rig_open(&first, device, specs, PARAMS, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &a));
    TEST_TRY(rig_open(plain, device, specs, PARAMS, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &a));
    TEST_TRY(rig_open(tf32, device, specs, PARAMS, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &b));
    for (int64_t t = 0; t < BEFORE; t++) TEST_TRY(rig_step(&first, t));
    TEST_TRY(polar_optim_save(first.opt, first.q, state_path(0)));
    for (int i = 0; i < PARAMS; i++) {
        double *w = rig_weights(&first, i);
        TEST_TRY(pl_mat_upload_f64(plain->q, &plain->W[i], w));
        TEST_TRY(pl_mat_upload_f64(tf32->q, &tf32->W[i], w));
        free(w);
    }
    TEST_TRY(polar_optim_load(plain->opt, plain->q, state_path(0)));
    const polar_status st = polar_optim_load(tf32->opt, tf32->q, state_path(0));
    test_true("a state of the other precision is asked for", st != POLAR_OK, "%s",
              st == POLAR_OK ? "taken" : polar_error_message());
    TEST_TRY(polar_optim_load_with(tf32->opt, tf32->q, state_path(0), POLAR_LOAD_OTHER_MAP));
    rig_close(&first);
    state_files_remove();
}

static void bounded(const char *device)
{
    optim_rig plain, tf32;
    static double p[N], P[N];
    double g[N], most = 0, least = INFINITY, mean = 0;
    int any = 0;
    from_one_state(device, "soap", &plain, &tf32);
    const polar_optim_opts o = opts_of("soap", 0);
    const pl_optim_param *a = &plain.opt->parts[0], *b = &tf32.opt->parts[0];
    double *w0 = rig_weights(&plain, 0), *Q[2] = {all_of(&plain, &a->Q[0]), all_of(&plain, &a->Q[1])};
    TEST_TRY(rig_step(&plain, BEFORE));
    TEST_TRY(rig_step(&tf32, BEFORE));
    rig_gradient(g, N, 0, BEFORE);
    const double u = plain.dev->cuts_tf32 ? 0x1p-10 : 0x1p-11, e = 2 * u + u * u + COLS * 0x1p-23,
                 sides = sqrt(ROWS) + sqrt(COLS), beta2 = o.rule.beta2, size = norm(g, N);
    for (int side = 0; side < 2; side++) {
        const int64_t n = a->K[side].rows * a->K[side].cols;
        double *x = all_of(&plain, &a->K[side]), *y = all_of(&tf32, &b->K[side]), moved = apart(x, y, n);
        test_bound(side ? "moment of the right side" : "moment of the left side", moved,
                   e * (1 - beta2) * size * size, "e (1 - b2) ||g||^2");
        /* a library may keep more bits of some shapes (ops.def), but not of all */
        any += moved > 0;
        if (!plain.dev->cuts_tf32) test_true("... and it moved", moved > 0, "by %.2g", moved);
        free(x), free(y);
    }
    test_true("moments that moved", any > 0, "%d of 2", any);
    double *v = all_of(&plain, &a->V), *V = all_of(&tf32, &b->V), *M = all_of(&plain, &a->M);
    const double c1 = o.rule.momentum == POLAR_MOMENTUM_EMA
                          ? 1 / (1 - pow(o.rule.beta1, (double)(BEFORE + 1 - o.rule.first_basis)))
                          : 1,
                 c2 = 1 / (1 - pow(beta2, (double)(BEFORE + 1 - o.rule.first_basis)));
    for (int i = 0; i < N; i++) M[i] *= c1;
    project(p, Q[0], M, Q[1]);
    project(P, Q[0], g, Q[1]);
    for (int i = 0; i < N; i++) {
        const double s = sqrt(v[i] * c2) + o.rule.eps, other = sqrt(V[i] * c2) + o.rule.eps;
        p[i] /= s;
        most = fmax(most, fabs(p[i])), least = fmin(least, other), mean = fmax(mean, fabs(P[i]));
    }
    const double dP = e * (1 + e) * sides * size, dp = e * (1 + e) * sides * norm(M, N);
    test_bound("entries' moments", apart(v, V, N), (1 - beta2) * dP * (2 * mean + dP),
               "(1 - b2) |dP| (2 max |P| + |dP|)");
    const double dN = (dp + most * sqrt(c2 * (1 - beta2)) * dP) / least, scale = 0.25 * a->scale;
    double *x = rig_weights(&plain, 0), *y = rig_weights(&tf32, 0);
    test_bound("weights", apart(x, y, N),
               scale * (dN + e * (1 + e) * sides * norm(p, N)) + norm(x, N) * 0x1p-23,
               "lr (|dN| + e (sqrt m + sqrt n) ||N||)");
    test_true("... and tf32 is another step", apart(x, y, N) > 0, "by %.2g", apart(x, y, N));
    const double here = apart(x, w0, N), counted = scale * norm(p, N);
    test_true("the counted direction is the step's", fabs(here - counted) < 1e-3 * counted, "%.6g and %.6g",
              here, counted);
    free(x), free(y), free(v), free(V), free(M), free(w0), free(Q[0]), free(Q[1]);
    rig_close(&plain), rig_close(&tf32);
}

/* Every rule with factors: in f32 other bits, in f64 the same. */
static void every_rule(const char *device, polar_dtype weights)
{
    int rules = 0, other = 0;
    for (int k = 0; polar_rule_name(k); k++) {
        optim_rig a, b;
        polar_optim_opts o = opts_of(polar_rule_name(k), 0), p = opts_of(polar_rule_name(k), 1);
        if (o.rule.precondition < POLAR_PRECONDITION_KRON || o.rule.precondition > POLAR_PRECONDITION_KL_SOAP)
            continue;
        TEST_TRY(rig_open(&a, device, specs, PARAMS, weights, weights, &o));
        TEST_TRY(rig_open(&b, device, specs, PARAMS, weights, weights, &p));
        for (int64_t t = 0; t < 6; t++) {
            TEST_TRY(rig_step(&a, t));
            TEST_TRY(rig_step(&b, t));
        }
        other += rig_mismatches(&a, &b) > 0, rules++;
        rig_close(&a), rig_close(&b);
    }
    test_true(weights == POLAR_DTYPE_F64 ? "f64: rules with other bits in tf32" : "f32: the same",
              other == (weights == POLAR_DTYPE_F64 ? 0 : rules) && rules >= 10, "%d of %d", other, rules);
}

int main(int argc, char **argv)
{
    optim_rig r;
    const char *device = test_begin(argc, argv);
    map_need_device(device);
    bounded(device);
    every_rule(device, POLAR_DTYPE_F32);
    every_rule(device, POLAR_DTYPE_F64);
    polar_optim_opts o = opts_of("soap", 2);
    const polar_status st = rig_open(&r, device, specs, PARAMS, POLAR_DTYPE_F32, POLAR_DTYPE_F32, &o);
    test_true("kron_tf32 of 2", st == POLAR_E_ARG, "%s", st == POLAR_OK ? "taken" : polar_error_message());
    return test_end();
}
