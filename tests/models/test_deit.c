/* test_deit.c -- the vision transformer against torch and timm (golden/vit.safetensors): logits, loss and
 * gradients in double, float and mixed precision; names and shapes of vit_tiny_patch16_224.
 *
 *     ctest -R test_deit
 */
#include "base/json_read.h"
#include "fixtures/deit_golden.h"

#define U64  0x1p-53
#define U32  0x1p-24
#define UB16 0x1p-9

typedef struct {
    double logits, *grad; /* vit_sensitivity of the golden model, per unit of relative change */
} movement;

static movement movement_of(const golden *g)
{
    const double probe = 1e-6; /* small enough to be linear, large enough for doubles */
    vit_net r = vit_open("ref", &g->shape, 1);
    movement m = {.grad = model_new(r.count)};
    vit_sensitivity(&r, g->w, g->x, g->t, probe, &m.logits, m.grad);
    m.logits /= probe;
    for (int64_t i = 0; i < r.count; i++) m.grad[i] /= probe;
    vit_close(&r);
    return m;
}

/* In double within what vit_sensitivity measures at u sqrt(K), derived there, once for each side: torch's
 * doubles are rounded too. The loss, a mean over images of -t log softmax(z), has derivatives softmax - t of
 * norm at most sqrt(2) an image, so it moves by at most sqrt(2 / images) of what the logits do; its own log
 * and sum add some u of it. */
static void in_double(const char *device, const golden *g, const movement *m)
{
    vit_net r = vit_open(device, &g->shape, 1);
    double z[IMAGES * 10], *grad = model_new(r.total), *tol = model_new(r.count), loss,
                           relative = 2 * U64 * sqrt(vit_longest_sum(&g->shape));
    vit_set_weights(&r, g->w);
    vit_run(&r, IMAGES, g->x, g->t, &loss, z, grad);
    test_bound("f64 logits", model_norm(z, g->logits, IMAGES * 10), relative * m->logits,
               "movement by 2 u sqrt(K)");
    test_bound("f64 loss", fabs(loss - g->loss),
               sqrt(2.0 / IMAGES) * relative * m->logits + 8 * U64 * g->loss,
               "sqrt(2 / images) of the logits' + 8 u");
    for (int64_t i = 0; i < r.count; i++) tol[i] = relative * m->grad[i];
    model_worst_gradient("f64 gradients", r.params, r.count, grad, g->grad, tol, "movement by 2 u sqrt(K)");
    vit_close(&r);
    free(grad), free(tol);
}

/* Against the golden doubles, within what vit_sensitivity measures; in float at u sqrt(K), derived there.
 * Mixed: sums are floats, so nothing grows with K, but a block's forward and backward round 21 arrays to
 * bf16, u = 2^-9: four weights; two norms, qkv before and after its bias, probabilities, heads' results, fc1,
 * gelu; and backward twice the stream's gradient, six gradients of these, the scores'. The measurement
 * changes the four weights alone; 21 independent changes move as sqrt(21 / 4) u of it. Gradients then differ
 * by some per cent, which is what bf16 can give (docs/NUMERICS.md, 2). */
static void rounded(const char *device, const golden *g, const movement *m, polar_dtype dtype, int composed)
{
    char line[96];
    pl_deit_shape shape = g->shape;
    shape.dtype = dtype;
    vit_net r = vit_open(device, &shape, 1);
    if (composed && !pl_queue_has(r.q, PL_OP_attention)) { /* it is composed anyway */
        vit_close(&r);
        return;
    }
    if (composed) r.dev->ops.attention = NULL, r.dev->ops.attention_back = NULL;
    double z[IMAGES * 10],
        *grad = model_new(r.total), *tol = model_new(r.count),
        relative = dtype == POLAR_DTYPE_F32 ? U32 * sqrt(vit_longest_sum(&shape)) : UB16 * sqrt(21.0 / 4);
    double size = model_norm(g->logits, NULL, IMAGES * 10);
    const char *how = composed ? " composed" : "",
               *why = dtype == POLAR_DTYPE_F32 ? "movement by u sqrt(K)" : "movement by u sqrt(21/4)";
    for (int64_t i = 0; i < r.count; i++) tol[i] = relative * m->grad[i];
    vit_set_weights(&r, g->w);
    vit_run(&r, IMAGES, g->x, g->t, NULL, z, grad);
    snprintf(line, sizeof line, "%s%s logits", polar_dtype_name(dtype), how);
    test_bound(line, model_norm(z, g->logits, IMAGES * 10) / size, relative * m->logits / size, why);
    snprintf(line, sizeof line, "%s%s gradients", polar_dtype_name(dtype), how);
    model_worst_gradient(line, r.params, r.count, grad, g->grad, tol, why);
    vit_close(&r);
    free(grad), free(tol);
}

/* timm's list of names and shapes, in order: [["cls_token", [1, 1, 192]], ...]. */
static void names(const char *device)
{
    pl_deit_shape shape = PL_DEIT_TINY;
    shape.batch = 1;
    FILE *f = fopen(test_golden_path("vit_tiny_patch16_224_params.json"), "rb");
    static char text[1 << 16];
    size_t size = f ? fread(text, 1, sizeof text, f) : 0;
    if (f) fclose(f);
    vit_net r = vit_open(device, &shape, 0);
    pl_json p = pl_json_view(text, (int64_t)size, "the list of names");
    int64_t bad = 0, n = 0, numbers = 0;
    TEST_TRY(pl_json_need(&p, PL_JSON_ARRAY));
    for (;; n++) {
        char name[128];
        TEST_TRY(pl_json_next(&p));
        if (p.token == PL_JSON_ARRAY_END || n >= r.count) break;
        polar_tensor t = pl_param_tensor(&r.params[n], &r.params[n].W);
        int ndim = 0;
        TEST_TRY(pl_json_need(&p, PL_JSON_STRING));
        if (p.raw_size < (int64_t)sizeof name) pl_json_decode(name, &p);
        bad += strcmp(name, r.params[n].name) != 0;
        TEST_TRY(pl_json_need(&p, PL_JSON_ARRAY));
        TEST_TRY(pl_json_next(&p));
        for (; p.token == PL_JSON_INTEGER; ndim++) {
            bad += ndim >= t.ndim || t.shape[ndim] != p.integer;
            TEST_TRY(pl_json_next(&p));
        }
        bad += ndim != t.ndim;
        numbers += r.params[n].rows * r.params[n].cols;
        TEST_TRY(pl_json_need(&p, PL_JSON_ARRAY_END));
    }
    test_true("names and shapes of vit_tiny_patch16_224",
              PART(!bad) && PART(n == r.count) && PART(n == 152) && PART(p.token == PL_JSON_ARRAY_END),
              "%lld arrays, %lld numbers, %lld differ", (long long)n, (long long)numbers, (long long)bad);
    vit_close(&r);
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    golden g = golden_open();
    movement m = movement_of(&g);
    names(device);
    in_double(device, &g, &m);
    for (int composed = 0; composed < 2; composed++) {
        rounded(device, &g, &m, POLAR_DTYPE_F32, composed);
        rounded(device, &g, &m, POLAR_DTYPE_BF16, composed);
    }
    free(m.grad);
    golden_close(&g);
    return test_end();
}
