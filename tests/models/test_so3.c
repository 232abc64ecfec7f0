/* test_so3.c -- the SO(3) model and its other messages, gate and readout against torch's predictions and
 * gradients (golden/so3.safetensors): in double, in float, in float with composed messages.
 *
 *     ctest -R test_so3
 */
#include "base/safetensors.h"
#include "compose/message.h"
#include "so3_model_fixture.h"

#define U64 0x1p-53
#define U32 0x1p-24

typedef struct {
    pl_so3_shape shape;
    double *w, *x, *y, *pred, *grad, loss; /* w and grad in the model's order */
} golden;

static double *read(const pl_safetensors *f, int64_t n, const char *set, const char *key, const char *name)
{
    char full[64];
    snprintf(full, sizeof full, "%s.%s", set, key);
    return model_golden(f, n, full, name);
}

static golden golden_open(const char *set, const pl_so3_shape *shape)
{
    golden g = {.shape = *shape};
    int64_t batch = shape->batch, points = shape->points;
    pl_safetensors *f;
    TEST_TRY(pl_safetensors_open(&f, test_golden_path("so3.safetensors")));
    so3_net r = so3_open("ref", &g.shape, 1);
    g.x = read(f, batch * points * 3, set, "x", "");
    g.y = read(f, batch, set, "y", "");
    g.pred = read(f, batch, set, "pred", "");
    double *loss = read(f, 1, set, "loss", "");
    g.loss = *loss;
    free(loss);
    g.w = model_new(r.total);
    g.grad = model_new(r.total);
    for (int64_t i = 0, at = 0; i < r.count; at += r.params[i].rows * r.params[i].cols, i++) {
        int64_t n = r.params[i].rows * r.params[i].cols;
        double *w = read(f, n, set, "param.", r.params[i].name),
               *d = read(f, n, set, "grad.", r.params[i].name);
        memcpy(g.w + at, w, (size_t)n * sizeof *w);
        memcpy(g.grad + at, d, (size_t)n * sizeof *d);
        free(w), free(d);
    }
    int64_t arrays = 0, inexact = 0;
    for (int64_t i = 0; i < r.total; i++) inexact += (double)(float)g.w[i] != g.w[i];
    test_exact("the golden weights are floats", inexact);
    char first[64];
    snprintf(first, sizeof first, "%s.param.", set);
    for (int64_t i = 0; i < pl_safetensors_count(f); i++)
        arrays += !strncmp(pl_safetensors_view(f, i)->name, first, strlen(first));
    test_true("the golden file's arrays are the model's", arrays == r.count, "%s: %lld and %lld", set,
              (long long)arrays, (long long)r.count);
    so3_close(&r);
    pl_safetensors_close(f);
    return g;
}

static void golden_close(golden *g)
{
    free(g->w), free(g->x), free(g->y), free(g->pred), free(g->grad);
}

/* In double within what so3_sensitivity measures at u sqrt(K), derived there, once for each side: torch's
 * doubles are rounded too. It is measured with a change small enough to be linear and large enough for
 * doubles, then scaled. The loss, a mean of squares, moves by at most 2 sqrt(loss / clouds) of what the
 * predictions do; its own sum adds some u of it. */
static void in_double(const char *device, const golden *g, const char *set)
{
    char line[96];
    so3_net r = so3_open(device, &g->shape, 1);
    so3_net exact = so3_open("ref", &g->shape, 1);
    const double probe = 1e-7, clouds = (double)g->shape.batch,
                 relative = 2 * U64 * sqrt(so3_longest_sum(&g->shape));
    double *pred = model_new(g->shape.batch), *grad = model_new(r.total), *tol = model_new(r.count), tol_pred,
           loss;
    so3_sensitivity(&exact, g->w, g->x, g->y, probe, &tol_pred, tol);
    tol_pred *= relative / probe;
    for (int64_t i = 0; i < r.count; i++) tol[i] *= relative / probe;
    so3_set_weights(&r, g->w);
    so3_run(&r, g->shape.batch, g->x, g->y, &loss, pred, grad);
    snprintf(line, sizeof line, "%s f64 predictions", set);
    test_bound(line, model_norm(pred, g->pred, g->shape.batch), tol_pred, "movement by 2 u sqrt(K)");
    snprintf(line, sizeof line, "%s f64 loss", set);
    test_bound(line, fabs(loss - g->loss), 2 * sqrt(g->loss / clouds) * tol_pred + 8 * U64 * g->loss,
               "2 sqrt(loss / clouds) of that + 8 u");
    snprintf(line, sizeof line, "%s f64 gradients", set);
    model_worst_gradient(line, r.params, r.count, grad, g->grad, tol, "movement by 2 u sqrt(K)");
    so3_close(&r);
    so3_close(&exact);
    free(pred), free(grad), free(tol);
}

/* In float against the golden doubles; the bound is what so3_sensitivity measures at u sqrt(K), derived
 * there. */
static void in_float(const char *device, const golden *g, const char *set, int composed)
{
    char line[96];
    pl_so3_shape shape = g->shape;
    so3_net exact = so3_open("ref", &shape, 1);
    shape.dtype = POLAR_DTYPE_F32;
    so3_net r = so3_open(device, &shape, 1);
    if (composed) r.dev->ops.pair_message = NULL, r.dev->ops.pair_message_back = NULL;
    double *pred = model_new(shape.batch), *grad = model_new(r.total), *tol = model_new(r.count), tol_pred;
    so3_sensitivity(&exact, g->w, g->x, g->y, U32 * sqrt(so3_longest_sum(&shape)), &tol_pred, tol);
    so3_set_weights(&r, g->w);
    so3_run(&r, shape.batch, g->x, g->y, NULL, pred, grad);
    snprintf(line, sizeof line, "%s f32%s predictions", set, composed ? " composed" : "");
    test_bound(line, model_norm(pred, g->pred, shape.batch), tol_pred, "movement by u sqrt(K)");
    snprintf(line, sizeof line, "%s f32%s gradients", set, composed ? " composed" : "");
    model_worst_gradient(line, r.params, r.count, grad, g->grad, tol, "movement by u sqrt(K)");
    so3_close(&r);
    so3_close(&exact);
    free(pred), free(grad), free(tol);
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    static const struct {
        const char *name;
        int64_t width, batch, points;
        int message, linear_gate, scalars_only;
    } sets[] = {{"h8", 8, 3, 10, 0, 0, 0},
                {"h16", 16, 2, 32, 0, 0, 0},
                {"shared", 6, 2, 9, PL_MESSAGE_SHARED, 0, 0},
                {"shared_bounded", 6, 2, 9, PL_MESSAGE_SHARED_BOUNDED, 0, 0},
                {"kernel", 6, 2, 9, PL_MESSAGE_KERNEL, 0, 0},
                {"scalars_only", 6, 2, 9, PL_MESSAGE_SCALARS, 0, 0},
                {"linear", 6, 2, 9, 0, 1, 0},
                {"scalars", 6, 2, 9, 0, 0, 1}};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        pl_so3_shape shape = so3_shape(1, sets[i].batch, sets[i].points, sets[i].width, 3, POLAR_DTYPE_F64);
        shape.message = sets[i].message;
        shape.linear_gate = sets[i].linear_gate;
        shape.scalars_only = sets[i].scalars_only;
        golden g = golden_open(sets[i].name, &shape);
        in_double(device, &g, sets[i].name);
        in_float(device, &g, sets[i].name, 0);
        if (shape.message == PL_MESSAGE_CHANNEL || shape.message == PL_MESSAGE_SCALARS)
            in_float(device, &g, sets[i].name, 1);
        golden_close(&g);
    }
    return test_end();
}
