/* test_nn.c -- layers and compositions apart from a model: linear layers, gradients of weights cut in pieces,
 * messages fused, composed, a few members at a time.
 *
 *     ctest -R test_nn
 */
#include "compose/message.h"
#include "compose/view.h"
#include "compose/weight_grad.h"
#include "math/tf32_elem.h"
#include "nn/linear.h"
#include "nn/vector_layers.h"
#include "so3_model_fixture.h"

#define U32 0x1p-24

typedef struct {
    pl_device *dev;
    pl_queue *q;
    pl_mat mats[64];
    int count;
} bench;

static bench bench_open(const char *device)
{
    bench b = {0};
    polar_status st = polar_device_open(&b.dev, device);
    if (st == POLAR_E_UNSUPPORTED) exit(77);
    TEST_TRY(st);
    TEST_TRY(polar_queue_create(&b.q, b.dev, NULL));
    return b;
}

static void bench_close(bench *b)
{
    for (int i = 0; i < b->count; i++) pl_mat_free(&b->mats[i], b->dev);
    polar_queue_destroy(b->q);
    polar_device_close(b->dev);
}

/* A matrix in device memory, filled with floats from N(0, scale^2), or with 7s that a result must overwrite.
 */
static pl_mat mat(bench *b, polar_dtype dtype, int64_t batch, int64_t rows, int64_t cols, uint64_t what,
                  double scale)
{
    pl_mat *m = &b->mats[b->count++];
    if (b->count > (int)(sizeof b->mats / sizeof *b->mats)) exit(3);
    TEST_TRY(pl_mat_alloc(m, b->dev, dtype, batch, rows, cols));
    double *x = model_new(batch * rows * cols);
    for (int64_t i = 0; i < batch * rows * cols; i++) x[i] = what ? (float)(scale * so3_normal(what, i)) : 7;
    TEST_TRY(pl_mat_upload_f64(b->q, m, x));
    free(x);
    return *m;
}

static double *values(bench *b, pl_mat m)
{
    double *x = model_new(m.batch * m.rows * m.cols);
    TEST_TRY(pl_mat_download_f64(b->q, &m, x));
    return x;
}

/* ---- weight gradients --------------------------------------------------------------------------- */

/* |error| <= gamma |dY|^T |X| elementwise: every term passes at most K additions in its piece and `parts` of
 * the pieces; (K + parts) u in the worst case, sqrt(K + parts) u as roundings go (Higham and Mary, 2019),
 * which is what is asked. */
static void weight_gradient(const char *device, int64_t E, int64_t groups, int64_t per, int64_t out,
                            int64_t in, int64_t want)
{
    bench b = bench_open(device);
    int64_t rows = groups * per, parts = pl_weight_grad_parts(rows, groups, out, in);
    pl_mat dY = mat(&b, POLAR_DTYPE_F32, E, rows, out, 1, 1), X = mat(&b, POLAR_DTYPE_F32, E, rows, in, 2, 1),
           dW = mat(&b, POLAR_DTYPE_F32, E, out, in, 0, 0);
    pl_weight_grad(b.q, dW, (pl_mat){0}, dY, X, groups);
    double *y = values(&b, dY), *x = values(&b, X), *w = values(&b, dW), share = 0,
           gamma = sqrt((double)(rows / parts + parts)) * U32;
    for (int64_t e = 0; e < E; e++)
        for (int64_t i = 0; i < out; i++)
            for (int64_t j = 0; j < in; j++) {
                double s = 0, a = 0;
                for (int64_t r = 0; r < rows; r++) {
                    double t = y[(e * rows + r) * out + i] * x[(e * rows + r) * in + j];
                    s += t, a += fabs(t);
                }
                share = fmax(share, fabs(w[(e * out + i) * in + j] - s) / a);
            }
    char line[96];
    snprintf(line, sizeof line, "dW %lldx%lld of %lld rows in %lld pieces", (long long)out, (long long)in,
             (long long)rows, (long long)parts);
    test_true("the pieces follow from the shape", parts == want && rows % parts == 0 && groups % parts == 0,
              "%lld x %lld rows, %lld pieces", (long long)groups, (long long)per, (long long)parts);
    test_bound(line, share, gamma, "sqrt(K + parts) u of |dY|^T |X|");
    bench_close(&b);
    free(y), free(x), free(w);
}

/* ---- linear layers ------------------------------------------------------------------------------ */

/* With and without bias and activation, in double, by hand; dX added in place. The sums have at most 12 terms
 * below 16 in size, summed twice (there and here): 2 12 16 u. */
static void linear(const char *device, int bias, int64_t act)
{
    enum { E = 2, ROWS = 12, IN = 3, OUT = 5 };
    bench b = bench_open(device);
    pl_param W = {.rows = OUT,
                  .cols = IN,
                  .W = mat(&b, POLAR_DTYPE_F64, E, OUT, IN, 1, 1),
                  .G = mat(&b, POLAR_DTYPE_F64, E, OUT, IN, 0, 0)};
    pl_param c = {.rows = 1,
                  .cols = OUT,
                  .W = mat(&b, POLAR_DTYPE_F64, E, 1, OUT, 2, 1),
                  .G = mat(&b, POLAR_DTYPE_F64, E, 1, OUT, 0, 0)};
    pl_mat X = mat(&b, POLAR_DTYPE_F64, E, ROWS, IN, 3, 1), U = mat(&b, POLAR_DTYPE_F64, E, ROWS, OUT, 0, 0),
           Y = act || bias ? mat(&b, POLAR_DTYPE_F64, E, ROWS, OUT, 0, 0) : U;
    pl_mat dY = mat(&b, POLAR_DTYPE_F64, E, ROWS, OUT, 4, 1),
           dX = mat(&b, POLAR_DTYPE_F64, E, ROWS, IN, 5, 1);
    pl_linear l = {.weight = &W, .bias = bias ? &c : NULL, .act = act};
    double *add = values(&b, dX), *w = values(&b, W.W), *v = values(&b, c.W), *x = values(&b, X),
           *dy = values(&b, dY), err = 0;
    pl_linear_forward(b.q, &l, Y, U, X);
    pl_linear_backward(b.q, &l, dX, dX, dY, U, X, 4);
    double *y = values(&b, Y), *dx = values(&b, dX), *dw = values(&b, W.G), *dv = values(&b, c.G);
    for (int64_t e = 0; e < E; e++)
        for (int64_t r = 0; r < ROWS; r++)
            for (int64_t o = 0; o < OUT; o++) {
                double u = bias ? v[e * OUT + o] : 0;
                for (int64_t i = 0; i < IN; i++) u += w[(e * OUT + o) * IN + i] * x[(e * ROWS + r) * IN + i];
                double s = 1 / (1 + exp(-u)), normal = erfc(-u / sqrt(2)) / 2,
                       density = exp(-u * u / 2) / sqrt(2 * acos(-1));
                double slope = act == PL_ACT_SILU      ? s + u * s * (1 - s)
                               : act == PL_ACT_SIGMOID ? s * (1 - s)
                               : act == PL_ACT_GELU    ? normal + u * density
                                                       : 1;
                double at = act == PL_ACT_SILU      ? u * s
                            : act == PL_ACT_SIGMOID ? s
                            : act == PL_ACT_GELU    ? u * normal
                                                    : u;
                err = fmax(err, fabs(y[(e * ROWS + r) * OUT + o] - at));
                double du = dy[(e * ROWS + r) * OUT + o] * slope;
                for (int64_t i = 0; i < IN; i++) {
                    add[(e * ROWS + r) * IN + i] += du * w[(e * OUT + o) * IN + i];
                    dw[(e * OUT + o) * IN + i] -= du * x[(e * ROWS + r) * IN + i];
                }
                dv[e * OUT + o] -= du;
            }
    for (int64_t i = 0; i < E * ROWS * IN; i++) err = fmax(err, fabs(dx[i] - add[i]));
    for (int64_t i = 0; i < E * OUT * IN; i++) err = fmax(err, fabs(dw[i]));
    for (int64_t i = 0; bias && i < E * OUT; i++) err = fmax(err, fabs(dv[i]));
    char line[96];
    snprintf(line, sizeof line, "linear%s, activation %lld", bias ? " with bias" : "", (long long)act);
    test_bound(line, err, 2 * 12 * 16 * 0x1p-53, "2 12 16 u");
    bench_close(&b);
    free(add), free(w), free(v), free(x), free(dy), free(y), free(dx), free(dw), free(dv);
}

/* A layer in tf32 has the bits of one in f32 whose factors were rounded before, the bias' gradient those of
 * what was not; one piece of rows and several. */
static void linear_tf32(const char *device, int64_t rows, int64_t groups)
{
    enum { E = 2, IN = 20, OUT = 9 };
    bench b = bench_open(device);
    const int64_t sizes[3] = {E * OUT * IN, E * rows * IN, E * rows * OUT};
    pl_param W[2], c[2];
    pl_mat X[2], dY[2], U[2], dX[2];
    int64_t bad = 0, moved = 0;
    for (int k = 0; k < 2; k++) {
        W[k] = (pl_param){.rows = OUT,
                          .cols = IN,
                          .W = mat(&b, POLAR_DTYPE_F32, E, OUT, IN, 1, 1),
                          .G = mat(&b, POLAR_DTYPE_F32, E, OUT, IN, 0, 0)};
        c[k] = (pl_param){.rows = 1,
                          .cols = OUT,
                          .W = mat(&b, POLAR_DTYPE_F32, E, 1, OUT, 2, 1),
                          .G = mat(&b, POLAR_DTYPE_F32, E, 1, OUT, 0, 0)};
        X[k] = mat(&b, POLAR_DTYPE_F32, E, rows, IN, 3, 1),
        U[k] = mat(&b, POLAR_DTYPE_F32, E, rows, OUT, 0, 0);
        dY[k] = mat(&b, POLAR_DTYPE_F32, E, rows, OUT, 4, 1),
        dX[k] = mat(&b, POLAR_DTYPE_F32, E, rows, IN, 5, 1);
        const pl_mat factors[3] = {W[k].W, X[k], dY[k]};
        for (int i = 0; k && i < 3; i++) {
            double *x = values(&b, factors[i]);
            for (int64_t j = 0; j < sizes[i]; j++) {
                double r = (double)pl_tf32_round((float)x[j]);
                moved += r != x[j];
                x[j] = r;
            }
            TEST_TRY(pl_mat_upload_f64(b.q, &factors[i], x));
            free(x);
        }
        const pl_linear l = {.weight = &W[k], .bias = &c[k], .act = PL_ACT_NONE, .tf32 = !k};
        pl_linear_forward(b.q, &l, U[k], U[k], X[k]);
        pl_linear_backward(b.q, &l, dX[k], dX[k], dY[k], (pl_mat){0}, X[k], groups);
    }
    const pl_mat got[3] = {U[0], dX[0], W[0].G}, want[3] = {U[1], dX[1], W[1].G};
    const int64_t out[3] = {sizes[2], sizes[1], sizes[0]};
    for (int i = 0; i < 3; i++) {
        double *x = values(&b, got[i]), *y = values(&b, want[i]);
        bad += model_mismatches(x, y, out[i]);
        free(x), free(y);
    }
    PL_CALL(row_sum, b.q, .Y = c[1].G, .X = dY[0], .alpha = 1);
    double *x = values(&b, c[0].G), *y = values(&b, c[1].G);
    bad += model_mismatches(x, y, E * OUT);
    free(x), free(y);
    test_true("linear in tf32: as f32 of rounded factors",
              !bad && moved > (sizes[0] + sizes[1] + sizes[2]) / 2,
              "%lld bits differ, %lld factors were rounded", (long long)bad, (long long)moved);
    bench_close(&b);
}

/* ---- messages ----------------------------------------------------------------------------------- */

enum { E = 3, B = 2, N = 7, H = 5, BESIDE = 4, P = N * (N + 1) / 2, OUTS = 9 };

/* Forward and backward; way 0: as the device likes, 1: composed, 2: composed, one member at a time. The
 * results in out, one after the other. */
static void messages(const char *device, pl_message_kind kind, polar_dtype t, int way, double *out[OUTS],
                     int64_t size[OUTS])
{
    const int64_t R = kind == PL_MESSAGE_CHANNEL ? 2 * H : kind == PL_MESSAGE_SCALARS ? H : 1;
    bench b = bench_open(device);
    pl_message m = {.D = mat(&b, t, E * B, P, 1, 1, 1),
                    .w0 = mat(&b, t, E, H, 1, 2, 0.5),
                    .b0 = mat(&b, t, E, 1, H, 3, 0.5),
                    .W2 = mat(&b, t, E, R, H, 4, 0.5),
                    .b2 = mat(&b, t, E, 1, R, 5, 0.5),
                    .points = N,
                    .alpha = 1.0 / N,
                    .slab = way == 2 ? 1 : 0,
                    .kind = kind};
    pl_message_grads g = {mat(&b, t, E, H, 1, 0, 0), mat(&b, t, E, 1, H, 0, 0), mat(&b, t, E, R, H, 0, 0),
                          mat(&b, t, E, 1, R, 0, 0)};
    pl_mat S = mat(&b, t, E * B, N, H, 6, 1), V = mat(&b, t, E * B, 3 * N, H, 7, 1),
           wide = mat(&b, t, E * B, N, H + BESIDE, 0, 0), Yv = mat(&b, t, E * B, 3 * N, H, 0, 0);
    pl_mat dwide = mat(&b, t, E * B, N, H + BESIDE, 8, 1), dYv = mat(&b, t, E * B, 3 * N, H, 9, 1),
           dS = mat(&b, t, E * B, N, H, 0, 0), dV = mat(&b, t, E * B, 3 * N, H, 0, 0);
    pl_mat Ys = pl_view_cols(wide, 0, H), dYs = pl_view_cols(dwide, 0, H);
    (way ? pl_message_forward_composed : pl_message_forward)(b.q, Ys, Yv, S, V, &m);
    (way ? pl_message_backward_composed : pl_message_backward)(b.q, dS, dV, &g, dYs, dYv, S, V, &m);
    TEST_TRY(polar_queue_sync(b.q));
    pl_mat packed = mat(&b, t, E * B, N, H, 0, 0), rest = mat(&b, t, E * B, N, BESIDE, 0, 0);
    PL_CALL(copy, b.q, .Y = packed, .X = Ys);
    PL_CALL(copy, b.q, .Y = rest, .X = pl_view_cols(wide, H, BESIDE));
    pl_mat all[OUTS] = {packed, Yv, dS, dV, g.w0, g.b0, g.W2, g.b2, rest};
    for (int i = 0; i < OUTS; i++)
        out[i] = values(&b, all[i]), size[i] = all[i].batch * all[i].rows * all[i].cols;
    bench_close(&b);
}

/* Against the composition in double: three sums behind each other (the MLP's, the messages', the gradients'),
 * each with an error of about u sqrt(K) relative to its norm (Higham and Mary), K the longest: N terms of a
 * message, or the B P pairs of a member in a gradient of the MLP. */
static void message_errors(const char *device, pl_message_kind kind, const char *of)
{
    static const char *const names[OUTS] = {"Ys", "Yv", "dS", "dV", "dw0", "db0", "dW2", "db2", ""};
    double *exact[OUTS], *got[2][OUTS], *slabs[OUTS];
    int64_t size[OUTS], bad = 0, untouched = 0;
    messages("ref", kind, POLAR_DTYPE_F64, 1, exact, size);
    messages(device, kind, POLAR_DTYPE_F32, 0, got[0], size);
    messages(device, kind, POLAR_DTYPE_F32, 1, got[1], size);
    messages(device, kind, POLAR_DTYPE_F32, 2, slabs, size);
    for (int way = 0; way < 2; way++)
        for (int i = 0; i < OUTS - 1; i++) {
            char line[96];
            double tol = 3 * sqrt(i < 4 ? N : B * P) * U32;
            snprintf(line, sizeof line, "%s messages%s, %s", way ? "composed" : "the device's", of, names[i]);
            test_bound(line, model_norm(got[way][i], exact[i], size[i]) / model_norm(exact[i], NULL, size[i]),
                       tol, "3 sqrt(K) u of the norm");
        }
    for (int i = 0; i < OUTS; i++) bad += model_mismatches(slabs[i], got[1][i], size[i]);
    test_exact("composed messages, member by member", bad);
    for (int64_t i = 0; i < size[OUTS - 1]; i++) untouched += got[0][OUTS - 1][i] != 7;
    test_exact("what stands beside a strided result stays", untouched);
    if (kind == PL_MESSAGE_SCALARS)
        test_exact("vectors and their gradients pass as they are",
                   model_mismatches(got[0][1], exact[1], size[1]) +
                       model_mismatches(got[0][3], exact[3], size[3]));
    for (int i = 0; i < OUTS; i++) free(exact[i]), free(got[0][i]), free(got[1][i]), free(slabs[i]);
}

/* ---- pooling ------------------------------------------------------------------------------------ */

/* A NaN among the vectors must come through to the gradients, though dv begins as 0 times v; zero vectors
 * give zero gradients, not NaN (eps). */
static void pooling(const char *device)
{
    enum { ROWS = 4 };
    bench b = bench_open(device);
    double zero[3 * ROWS * 2] = {0};
    pl_mat v = mat(&b, POLAR_DTYPE_F32, 1, 3 * ROWS, 2, 0, 0),
           dv = mat(&b, POLAR_DTYPE_F32, 1, 3 * ROWS, 2, 0, 0),
           ds = mat(&b, POLAR_DTYPE_F32, 1, ROWS, 2, 0, 0);
    pl_mat dY = mat(&b, POLAR_DTYPE_F32, 1, 2, 4, 1, 1);
    TEST_TRY(pl_mat_upload_f64(b.q, &v, zero));
    pl_cloud_mean_backward(b.q, ds, dv, v, dY, 1e-8);
    double *d = values(&b, dv);
    test_true("zero vectors have zero gradients", model_norm(d, NULL, 3 * ROWS * 2) == 0, "%g",
              model_norm(d, NULL, 3 * ROWS * 2));
    free(d);
    zero[4] = NAN;
    TEST_TRY(pl_mat_upload_f64(b.q, &v, zero));
    pl_cloud_mean_backward(b.q, ds, dv, v, dY, 1e-8);
    d = values(&b, dv);
    test_true("a NaN stays one", isnan(d[4]) && d[1] == 0, "%g beside %g", d[4], d[1]);
    free(d);
    bench_close(&b);
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    weight_gradient(device, 2, 32, 64, 16, 24, 32); /* a piece per group */
    weight_gradient(device, 1, 12, 32, 8, 8, 6);    /* 64 rows at least */
    /* a quarter of the operands' memory: 240 rows at least, so 400 */
    weight_gradient(device, 2, 8, 100, 100, 150, 2);
    /* a sixteenth: 1028 rows at least, so 1200; of 128 x 128 as many as groups */
    weight_gradient(device, 1, 6, 400, 129, 128, 2);
    weight_gradient(device, 1, 6, 400, 128, 128, 6);
    weight_gradient(device, 3, 7, 9, 5, 4, 1);
    for (int bias = 0; bias < 2; bias++)
        for (int64_t act = 0; act < PL_ACT_COUNT; act++) linear(device, bias, act);
    if (strncmp(device, "cuda", 4)) { /* which sums in an order of its own */
        linear_tf32(device, 24, 4);
        linear_tf32(device, 1280, 20);
    }
    message_errors(device, PL_MESSAGE_CHANNEL, "");
    message_errors(device, PL_MESSAGE_SHARED_BOUNDED, " of one weight");
    message_errors(device, PL_MESSAGE_SCALARS, " of scalars");
    pooling(device);
    return test_end();
}
