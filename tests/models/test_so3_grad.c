/* test_so3_grad.c -- the SO(3) model's gradients against differences of its loss, and the symmetries of its
 * predictions.
 *
 *     ctest -R test_so3_grad
 */
#include "compose/message.h"
#include "so3_model_fixture.h"
#include "verify/haar.h"

#define U32 0x1p-24
#define U64 0x1p-53

/* ---- gradients ---------------------------------------------------------------------------------- */

/* The derivative by the five-point rule at step t is exact up to t^4 f5 / 30 and rounding. Two steps, t and
 * t/2, are taken by eight members of one model, each with the entry moved by its own amount. The finer
 * value's truncation error is 1/15 of the difference of the two to leading order; the whole difference is
 * granted. Rounding: a loss carries a relative error of a few u sqrt(K) (K = 64 terms at most here); 16 u is
 * granted for each of the four losses, whose coefficients sum to 18/12 over the step. */
static double stencil(const double f[4], double t) /* f at -2t, -t, t, 2t */
{
    return (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * t);
}

/* pl_message_kind; then by channel with a readout of scalars, or a linear gate */
enum { SCALARS = PL_MESSAGE_KINDS, LINEAR, VARIANTS };
static const char *const kinds[VARIANTS] = {"",        "shared ",  "bounded ",    "kernel ",
                                            "s only ", "scalars ", "linear gate "};

static void differences(const char *device, int64_t layers, int message)
{
    static const double at[8] = {-2, -1, 1, 2, -1, -0.5, 0.5, 1};
    enum { members = 8, B = 3, N = 7, h = 5 };
    const double step = 2e-3;
    pl_so3_shape one = so3_shape(1, B, N, h, layers, POLAR_DTYPE_F64),
                 many = so3_shape(members, B, N, h, layers, POLAR_DTYPE_F64);
    one.message = many.message = message >= PL_MESSAGE_KINDS ? PL_MESSAGE_CHANNEL : message;
    one.linear_gate = many.linear_gate = message == LINEAR;
    one.scalars_only = many.scalars_only = message == SCALARS;
    so3_net a = so3_open(device, &one, 1), e = so3_open(device, &many, 0);
    double *x = model_new(members * B * N * 3), *y = model_new(members * B), *w = model_new(a.total),
           *g = model_new(a.total), *all = model_new(members * a.total), loss[members];
    so3_clouds(x, B * N * 3, 1);
    so3_clouds(y, B, 2);
    for (int64_t i = 1; i < members; i++)
        memcpy(x + i * B * N * 3, x, B * N * 3 * sizeof *x), memcpy(y + i * B, y, B * sizeof *y);
    so3_weights(&a, w, 3);
    so3_set_weights(&a, w);
    so3_run(&a, B, x, y, NULL, NULL, g);
    for (int64_t k = 0, first = 0; k < a.count; k++) {
        int64_t n = a.params[k].rows * a.params[k].cols;
        for (int64_t m = 0; m < members; m++)
            memcpy(all + members * first + m * n, w + first, (size_t)n * sizeof *w);
        first += n;
    }
    so3_set_weights(&e, all);
    int64_t entries = 0;
    for (int64_t k = 0, first = 0; k < a.count; first += a.params[k].rows * a.params[k].cols, k++) {
        int64_t n = a.params[k].rows * a.params[k].cols;
        double *p = all + members * first, err = 0, tol = 1, share = -1;
        char line[128];
        for (int64_t i = 0; i < n; i++, entries++) {
            for (int64_t m = 0; m < members; m++) p[m * n + i] = w[first + i] + at[m] * step;
            TEST_TRY(pl_mat_upload_f64(e.q, &e.params[k].W, p));
            so3_run(&e, B, x, y, loss, NULL, NULL);
            for (int64_t m = 0; m < members; m++) p[m * n + i] = w[first + i];
            double coarse = stencil(loss, step), fine = stencil(loss + 4, step / 2),
                   biggest = fmax(fmax(loss[0], loss[3]), fmax(loss[1], loss[2]));
            double t = fabs(coarse - fine) + 16 * U64 * biggest * 1.5 / (step / 2),
                   d = fabs(g[first + i] - fine);
            if (!(d / t <= share)) share = d / t, err = d, tol = t;
        }
        TEST_TRY(pl_mat_upload_f64(e.q, &e.params[k].W, p));
        snprintf(line, sizeof line, "%s%lld layers, d loss / d %s", kinds[message], (long long)layers,
                 a.params[k].name);
        test_bound(line, err, tol, "two five-point rules");
    }
    test_true("every entry was moved", entries == a.total, "%lld of %lld", (long long)entries,
              (long long)a.total);
    so3_close(&a);
    so3_close(&e);
    free(x), free(y), free(w), free(g), free(all);
}

/* A shared weight is each channel's own where all rows of message.2 are alike; its gradient is their sum.
 * Both compute the same in other orders: sums of at most 2 h = 10 products, of 28 pairs, of 3 clouds, twice
 * over, some hundred roundings on the way. */
static void shared_as_channels(const char *device)
{
    enum { B = 3, N = 7, h = 5, LAYERS_HERE = 2 };
    pl_so3_shape one = so3_shape(1, B, N, h, LAYERS_HERE, POLAR_DTYPE_F64), own = one;
    one.message = PL_MESSAGE_SHARED;
    so3_net a = so3_open(device, &one, 1), b = so3_open(device, &own, 1);
    double *x = model_new(B * N * 3), *y = model_new(B), *w = model_new(a.total), *g = model_new(a.total),
           *v = model_new(b.total), *k = model_new(b.total), p[B], r[B], worst = 0;
    so3_clouds(x, B * N * 3, 1);
    so3_clouds(y, B, 2);
    so3_weights(&a, w, 3);
    for (int64_t i = 0, from = 0, to = 0; i < a.count; i++) {
        int64_t n = a.params[i].rows * a.params[i].cols, m = b.params[i].rows * b.params[i].cols;
        for (int64_t c = 0; c < m; c++) v[to + c] = w[from + c % n]; /* again and again where it is shorter */
        from += n, to += m;
    }
    so3_set_weights(&a, w);
    so3_set_weights(&b, v);
    so3_run(&a, B, x, y, NULL, p, g);
    so3_run(&b, B, x, y, NULL, r, k);
    for (int i = 0; i < B; i++) worst = fmax(worst, fabs(p[i] / r[i] - 1));
    test_bound("a shared weight, and equal ones by channel", worst, 100 * U64, "other orders of sums");
    worst = 0;
    for (int64_t i = 0, from = 0, to = 0; i < a.count; i++) {
        int64_t n = a.params[i].rows * a.params[i].cols, m = b.params[i].rows * b.params[i].cols;
        double size = 0, far = 0;
        for (int64_t c = 0; c < n; c++) {
            double sum = 0;
            for (int64_t j = c; j < m; j += n) sum += k[to + j], size = fmax(size, fabs(k[to + j]));
            far = fmax(far, fabs(sum - g[from + c]));
        }
        worst = fmax(worst, far / size / (double)(m / n));
        from += n, to += m;
    }
    test_bound("... and their gradients", worst, 100 * U64, "of the largest entry of each parameter");
    so3_close(&a);
    so3_close(&b);
    free(x), free(y), free(w), free(g), free(v), free(k);
}

/* ---- symmetries --------------------------------------------------------------------------------- */

enum { CLOUDS = 4, POINTS = 9, WIDTH = 6, LAYERS = 3, ROTATIONS = 8 };

static void symmetries(const char *device, polar_dtype dtype)
{
    double u = dtype == POLAR_DTYPE_F64 ? U64 : U32, worst = 0, delta_pred, R[9];
    pl_so3_shape shape = so3_shape(1, CLOUDS, POINTS, WIDTH, LAYERS, dtype),
                 exact = so3_shape(1, CLOUDS, POINTS, WIDTH, LAYERS, POLAR_DTYPE_F64);
    so3_net r = so3_open(device, &shape, 0), s = so3_open("ref", &exact, 1);
    enum { n = CLOUDS * POINTS * 3 };
    double x[n], x1[n], y[CLOUDS], p0[CLOUDS], p1[CLOUDS], *w = model_new(r.total),
                                                           *delta = model_new(r.count);
    char line[96];
    so3_clouds(x, n, 11);
    so3_clouds(y, CLOUDS, 12);
    so3_weights(&r, w, 13);
    so3_set_weights(&r, w);
    so3_run(&r, CLOUDS, x, NULL, NULL, p0, NULL);
    /* Both evaluations round; a rotated cloud is rounded itself. Movements at u sqrt(K), see the fixture; at
     * 1e-8 in place of u 2^-53, which double cannot resolve, and scaled down. */
    double probe = 1e-8;
    so3_sensitivity(&s, w, x, y, probe, &delta_pred, delta);
    double tol = 2 * delta_pred / probe * u * sqrt(so3_longest_sum(&shape));

    for (int64_t k = 0; k < ROTATIONS; k++) {
        TEST_TRY(pl_haar_rotation(R, &(pl_draw){.seed = 9, .kind = PL_DRAW_ROTATION, .sample = k}));
        for (int64_t i = 0; i < CLOUDS * POINTS; i++)
            for (int c = 0; c < 3; c++)
                x1[3 * i + c] =
                    R[3 * c] * x[3 * i] + R[3 * c + 1] * x[3 * i + 1] + R[3 * c + 2] * x[3 * i + 2];
        so3_run(&r, CLOUDS, x1, NULL, NULL, p1, NULL);
        worst = fmax(worst, model_norm(p1, p0, CLOUDS));
    }
    snprintf(line, sizeof line, "%s |f(Rx) - f(x)|, %d rotations", polar_dtype_name(dtype), ROTATIONS);
    test_bound(line, worst, tol, "2 movements by u sqrt(K)");

    /* -I: squares and products of two components keep their bits, vectors only change sign. */
    for (int64_t i = 0; i < n; i++) x1[i] = -x[i];
    so3_run(&r, CLOUDS, x1, NULL, NULL, p1, NULL);
    snprintf(line, sizeof line, "%s f(-x) = f(x), bit for bit", polar_dtype_name(dtype));
    test_exact(line, model_mismatches(p1, p0, CLOUDS));

    /* Another order of the points is another order of the same sums. */
    for (int64_t c = 0; c < CLOUDS; c++)
        for (int64_t i = 0; i < POINTS; i++)
            memcpy(x1 + 3 * (c * POINTS + i), x + 3 * (c * POINTS + (4 * i + c) % POINTS), 3 * sizeof *x);
    so3_run(&r, CLOUDS, x1, NULL, NULL, p1, NULL);
    snprintf(line, sizeof line, "%s permuted points", polar_dtype_name(dtype));
    test_bound(line, model_norm(p1, p0, CLOUDS), tol, "2 movements by u sqrt(K)");

    /* Translations are no symmetry of this model: |x| and x are features. The test fails if someone makes
     * them one. */
    for (int64_t i = 0; i < n; i++) x1[i] = x[i] + 0.5;
    so3_run(&r, CLOUDS, x1, NULL, NULL, p1, NULL);
    snprintf(line, sizeof line, "%s a translation is seen", polar_dtype_name(dtype));
    test_true(line, model_norm(p1, p0, CLOUDS) > 1e3 * tol, "moves the predictions by %.2e",
              model_norm(p1, p0, CLOUDS));
    so3_close(&r);
    so3_close(&s);
    free(w), free(delta);
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    differences(device, 2, PL_MESSAGE_CHANNEL);
    differences(device, 3, PL_MESSAGE_CHANNEL);
    for (int kind = PL_MESSAGE_SHARED; kind < VARIANTS; kind++) differences(device, 2, kind);
    shared_as_channels(device);
    symmetries(device, POLAR_DTYPE_F64);
    symmetries(device, POLAR_DTYPE_F32);
    return test_end();
}
