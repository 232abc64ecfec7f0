/* test_optim_torch.c -- what torch.optim.Muon computes: momentum as an average, the eps of the norm; against
 * plain loops in double written from its lines.
 *
 *     buf.lerp_(grad, 1 - momentum)                                            # torch/optim/_muon.py
 *     update = grad.lerp(buf, momentum) if nesterov else buf
 *     ortho_grad.div_(ortho_grad.norm().clamp(min=eps))
 *     gram_matrix = ortho_grad @ ortho_grad.T
 *     gram_update = torch.addmm(gram_matrix, gram_matrix, gram_matrix, beta=b, alpha=c)
 *     ortho_grad = torch.addmm(ortho_grad, gram_update, ortho_grad, beta=a)
 *     param.mul_(1 - lr * weight_decay);  param.add_(update, alpha=-adjusted_lr)
 */
#include "optim_state_file.h"

enum { ROWS = 6, COLS = 10, N = ROWS * COLS, STEPS = 5, NS = 5 };

static const param_spec model[] = {{.name = "w", .ndim = 2, .shape = {ROWS, COLS}}};

#define MU 0.95
#define LR 0.02
#define WD 0.1

/* X <- a X + (b A + c A A) X, five times, of X / max(||X||, eps); ROWS <= COLS. */
static void newton_schulz(double *X, double eps)
{
    static const double a = 3.4445, b = -4.7750, c = 2.0315;
    double norm = 0, A[ROWS][ROWS], P[ROWS][ROWS], Y[N];
    for (int i = 0; i < N; i++) norm += X[i] * X[i];
    norm = sqrt(norm);
    for (int i = 0; i < N; i++) X[i] /= norm > eps ? norm : eps;
    for (int s = 0; s < NS; s++) {
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < ROWS; j++) {
                A[i][j] = 0;
                for (int k = 0; k < COLS; k++) A[i][j] += X[i * COLS + k] * X[j * COLS + k];
            }
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < ROWS; j++) {
                double s2 = 0;
                for (int k = 0; k < ROWS; k++) s2 += A[i][k] * A[k][j];
                P[i][j] = b * A[i][j] + c * s2;
            }
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < COLS; j++) {
                double s2 = 0;
                for (int k = 0; k < ROWS; k++) s2 += P[i][k] * X[k * COLS + j];
                Y[i * COLS + j] = a * X[i * COLS + j] + s2;
            }
        memcpy(X, Y, sizeof Y);
    }
}

/* torch's lerp. */
static double lerp(double start, double end, double weight)
{
    return weight < 0.5 ? start + weight * (end - start) : end - (end - start) * (1 - weight);
}

/* One torch step; map: with Newton-Schulz. adjusted: of the learning rate, match_rms_adamw's 0.2 sqrt(max).
 */
static void torch_step(double *w, double *buf, const double *g, int nesterov, int map, double eps)
{
    double update[N], adjusted = map ? 0.2 * sqrt(COLS) : 1;
    for (int i = 0; i < N; i++) {
        buf[i] = lerp(buf[i], g[i], 1 - MU);
        update[i] = nesterov ? lerp(g[i], buf[i], MU) : buf[i];
    }
    if (map) newton_schulz(update, eps);
    for (int i = 0; i < N; i++) w[i] = w[i] * (1 - LR * WD) - LR * adjusted * update[i];
}

static polar_optim_opts options(polar_momentum momentum, int map, double eps)
{
    polar_optim_opts o;
    TEST_TRY(polar_optim_opts_parse(&o, "muon"));
    TEST_TRY(polar_map_opts_parse(&o.rule.map, map ? "ns_fp64" : "none"));
    o.rule.momentum = momentum, o.rule.beta1 = MU, o.rule.scale = POLAR_SCALE_RMS, o.rule.map.eps = eps;
    o.lr = LR, o.weight_decay = WD;
    return o;
}

static double away(const double *x, const double *y)
{
    double most = 0;
    for (int i = 0; i < N; i++) most = fmax(most, fabs(x[i] - y[i]));
    return most;
}

/* The momentum buffer, from a saved state. */
static void buffer_of(double *out, optim_rig *r)
{
    pl_safetensors *f;
    TEST_TRY(polar_optim_save(r->opt, r->q, state_path(0)));
    TEST_TRY(pl_safetensors_open(&f, state_path(0)));
    memcpy(out, pl_safetensors_find(f, "w.m")->data, N * sizeof *out);
    pl_safetensors_close(f);
    state_files_remove();
}

/* Weights and buffers in double. An entry takes about ten roundings a step, of numbers of order 1, and the
 * map makes tenfold of an error: 5 steps leave less than 5 * 10 * 10 * 2^-53 = 6e-14 with the map; five times
 * that is allowed. */
static void against_torch(const char *device, int nesterov, int map, double eps)
{
    polar_optim_opts o =
        options(nesterov ? POLAR_MOMENTUM_AVERAGE_NESTEROV : POLAR_MOMENTUM_AVERAGE, map, eps);
    optim_rig r;
    double buf[N] = {0}, g[N], m[N];
    char line[96];
    TEST_TRY(rig_open(&r, device, model, 1, POLAR_DTYPE_F64, POLAR_DTYPE_F64, &o));
    double *w = rig_weights(&r, 0);
    for (int t = 0; t < STEPS; t++) {
        rig_gradient(g, N, 0, t);
        torch_step(w, buf, g, nesterov, map, eps);
        TEST_TRY(rig_step(&r, t));
    }
    double *got = rig_weights(&r, 0);
    buffer_of(m, &r);
    snprintf(line, sizeof line, "torch's Muon%s%s, eps %g: weights", nesterov ? ", Nesterov" : "",
             map ? "" : ", no map", eps);
    test_bound(line, away(w, got), 3e-13, "roundings, through the map");
    test_bound("  and its momentum_buffer", away(buf, m), 1e-15 * STEPS, "two roundings a step");
    free(w), free(got);
    rig_close(&r);
}

/* The average's buffer is (1 - mu) times the heavy ball's, and a map does not see the factor. */
static void against_heavy_ball(const char *device, int nesterov)
{
    polar_optim_opts average =
        options(nesterov ? POLAR_MOMENTUM_AVERAGE_NESTEROV : POLAR_MOMENTUM_AVERAGE, 1, 0);
    polar_optim_opts ball = options(nesterov ? POLAR_MOMENTUM_NESTEROV : POLAR_MOMENTUM_HEAVY_BALL, 1, 0);
    optim_rig a, b;
    double x[N], y[N];
    TEST_TRY(rig_open(&a, device, model, 1, POLAR_DTYPE_F64, POLAR_DTYPE_F64, &average));
    TEST_TRY(rig_open(&b, device, model, 1, POLAR_DTYPE_F64, POLAR_DTYPE_F64, &ball));
    for (int t = 0; t < STEPS; t++) {
        TEST_TRY(rig_step(&a, t));
        TEST_TRY(rig_step(&b, t));
    }
    buffer_of(x, &a);
    buffer_of(y, &b);
    double apart = away(x, y);
    for (int i = 0; i < N; i++) y[i] *= 1 - MU;
    double *wa = rig_weights(&a, 0), *wb = rig_weights(&b, 0);
    test_bound(nesterov ? "average, Nesterov: the buffer's factor" : "average: the buffer's factor",
               away(x, y), 1e-14, "roundings");
    test_bound("  the same steps through the map", away(wa, wb), 3e-13, "roundings, through the map");
    test_true("  but not the same buffer", apart > 0.1, "%.2g apart", apart);
    free(wa), free(wb);
    rig_close(&a), rig_close(&b);
}

/* ---- the norm's eps ----------------------------------------------------------------------------- */

static void apply(double *out, const char *device, const double *in, const char *map, double eps)
{
    polar_map_opts o;
    map_item item = {.batch = 1,
                     .rows = ROWS,
                     .cols = COLS,
                     .dtype = POLAR_DTYPE_F32,
                     .in = in,
                     .out = out,
                     .out_dtype = POLAR_DTYPE_F64};
    TEST_TRY(polar_map_opts_parse(&o, map));
    o.eps = eps;
    TEST_TRY(map_run(device, &item, 1, NULL, &o));
}

static void norms_eps(const char *device)
{
    static const char *const maps[] = {"ns_fp64", "ns_fp32", "ns_bf16_fused", "ns_bf16_gram"};
    double x[N], small[N], want[N], got[N], other[N];
    int64_t bad = 0, same = 0;
    map_fill(x, N, 77);
    for (int i = 0; i < N; i++)
        x[i] = (double)(float)x[i], small[i] = ldexp(x[i], -30); /* a norm of 7e-9 or so */
    for (int k = 0; k < 4; k++) {
        apply(want, device, x, maps[k], 0);
        apply(got, device, x, maps[k], 1e-7);
        bad += map_mismatches(want, got, N); /* above eps: untouched */
        apply(got, device, small, maps[k], 0);
        bad += map_mismatches(want, got, N); /* none: free of scale */
        apply(got, device, small, maps[k], 1e-7);
        same += !memcmp(want, got, sizeof want);
        memcpy(other, small, sizeof small);
        newton_schulz(other, 1e-7);
        char line[64];
        snprintf(line, sizeof line, "%s: a norm below eps", maps[k]);
        static const double tol[] = {1e-13, 1e-5, 0.05, 0.05}; /* the unit roundoff times 100, but in bf16 */
        test_bound(line, map_distance(got, other, N), tol[k],
                   k < 2 ? "roundings, through the map" : "bf16: 5 %");
    }
    test_exact("eps below the norm changes no bit", bad);
    test_true("eps above it does", same == 0, "%lld maps alike", (long long)same);
    apply(want, device, small, "ns_bf16_reference", 0);
    apply(got, device, small, "ns_bf16_reference", 1e-7);
    test_exact("the reference rounding's own is 1e-7", map_mismatches(want, got, N));
    apply(got, device, small, "ns_bf16_reference", 1e-3);
    test_true("  and another is another", map_mismatches(want, got, N) > N / 2, "%lld entries differ",
              (long long)map_mismatches(want, got, N));
    double zero[N] = {0};
    apply(got, device, zero, "ns_bf16_fused", 1e-7);
    test_exact("zero stays zero", map_mismatches(zero, got, N));
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    map_need_device(device);
    for (int nesterov = 0; nesterov < 2; nesterov++) {
        against_torch(device, nesterov, 0, 0);
        against_torch(device, nesterov, 1, 0);
        against_torch(device, nesterov, 1, 1e-7);
        against_torch(device, nesterov, 1, 8); /* above the norm of every update */
        against_heavy_ball(device, nesterov);
    }
    norms_eps(device);
    return test_end();
}
