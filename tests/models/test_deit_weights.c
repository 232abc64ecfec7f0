/* test_deit_weights.c -- a vision transformer's initial weights, and its weights as timm's state_dict in a
 * file.
 *
 *     ctest -R test_deit_weights
 */

#include "base/alloc.h"
#include "base/safetensors.h"
#include "fixtures/deit_fixture.h"
#include "fixtures/folder.h"

static char folder[] = "/tmp/polar_test_XXXXXX";

static const char *in_folder(const char *name)
{
    static char path[4][128];
    static int turn;
    char *p = path[turn++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", folder, name);
    return p;
}

static pl_deit_shape tiny(int64_t E, polar_dtype dtype)
{
    return (pl_deit_shape){.members = E,
                           .batch = 1,
                           .image = 24,
                           .patch = 8,
                           .width = 24,
                           .depth = 2,
                           .heads = 2,
                           .mlp_ratio = 4,
                           .classes = 11,
                           .dtype = dtype};
}

/* ---- initial weights ---------------------------------------------------------------------------- */

/* What timm's constructor draws an array from: its standard deviation, and whether it is uniform (patches) or
 * normal; 0: constant. */
static double deviation(const pl_param *p, int *uniform)
{
    *uniform = !strncmp(p->name, "patch_embed.", 12);
    if (*uniform) return 1 / sqrt(3.0 * 3 * 8 * 8); /* of U(-a, a): a / sqrt(3), a = 1 / sqrt(3 p p) */
    if (!strcmp(p->name, "cls_token")) return 1e-6;
    return p->ndim >= 2 ? 0.02 : 0;
}

/* In units of the standard deviation, over n numbers of all drawn arrays: mean 0 within 5 sd of 1/sqrt(n),
 * mean square 1 within 5 sd of sqrt(2/n) (a uniform's is smaller). */
static void initial_weights(const char *device)
{
    enum { E = 3 };
    pl_deit_shape shape = tiny(E, POLAR_DTYPE_F32), one = tiny(1, POLAR_DTYPE_F64);
    vit_net r = vit_open(device, &shape, 0), s = vit_open(device, &one, 0);
    double *w = model_new(E * r.total), *w1 = model_new(r.total), *part = model_new(r.total), sum = 0,
           square = 0, dot = 0, drawn = 0, m = 0, cls = 0;
    int64_t off = 0, outside = 0;
    int uniform;
    TEST_TRY(pl_deit_init(r.m, r.q, (uint64_t[]){10, 11, 12}));
    vit_get(&r, w, 0);
    for (int64_t k = 0, at = 0; k < r.count; k++) {
        const pl_param *p = &r.params[k];
        double sd = deviation(p, &uniform);
        for (int64_t i = 0; i < E * p->rows * p->cols; i++, at++) {
            off += sd == 0 && w[at] != (strstr(p->name, "norm") && strstr(p->name, "weight") ? 1 : 0);
            outside += uniform && !(fabs(w[at]) <= (double)(float)(sd * sqrt(3)));
            if (sd > 0) sum += w[at] / sd, square += w[at] * w[at] / (sd * sd), drawn++;
            cls += !strcmp(p->name, "cls_token") && w[at] != 0;
        }
    }
    test_true("biases 0, norms 1 and 0, patches within their bound", !off && !outside && cls == E * 24,
              "%lld off, %lld outside", (long long)off, (long long)outside);
    test_bound("initial weights: mean", fabs(sum / drawn), 5 / sqrt(drawn), "5 sd");
    test_bound("initial weights: mean square - 1", fabs(square / drawn - 1), 5 * sqrt(2 / drawn), "5 sd");
    /* One member alone, in double, has the weights it has among mates, in float; members are uncorrelated:
     * |sum v v'| within 5 sd of sqrt(n). */
    TEST_TRY(pl_deit_init(s.m, s.q, (uint64_t[]){11}));
    vit_get(&s, w1, 0);
    vit_member(&r, part, w, 1, E);
    test_exact("a member's weights do not depend on its mates", model_mismatches(part, w1, r.total));
    vit_member(&r, part, w, 0, E);
    for (int64_t k = 0, at = 0; k < r.count; at += r.params[k].rows * r.params[k].cols, k++) {
        double sd = deviation(&r.params[k], &uniform);
        for (int64_t i = 0; sd > 0 && i < r.params[k].rows * r.params[k].cols; i++)
            dot += part[at + i] * w1[at + i] / (sd * sd), m++;
    }
    test_bound("two members are uncorrelated", fabs(dot), 5 * sqrt(m), "5 sd");
    vit_close(&r);
    vit_close(&s);
    free(w), free(w1), free(part);
}

/* ---- files -------------------------------------------------------------------------------------- */

static void refused(const char *what, vit_net *r, int64_t member, const char *file)
{
    double *before = model_new(r->shape.members * r->total), *after = model_new(r->shape.members * r->total);
    vit_get(r, before, 0);
    polar_status st = pl_deit_load(r->m, r->q, member, in_folder(file));
    vit_get(r, after, 0);
    test_true(what,
              st != POLAR_OK && *polar_error_message() &&
                  !model_mismatches(before, after, r->shape.members * r->total),
              "%s", st == POLAR_OK ? "taken" : polar_error_message());
    free(before), free(after);
}

static int same_shape(const pl_safetensors_entry *e, const pl_param *p)
{
    polar_tensor t = pl_param_tensor(p, &p->W);
    int drop = p->W.batch > 1; /* a member's array in a file has no members */
    if (e->ndim != t.ndim - drop) return 0;
    for (int i = 0; i < e->ndim; i++)
        if (e->shape[i] != t.shape[i + drop]) return 0;
    return 1;
}

static void round_trip(const char *device)
{
    pl_deit_shape three = tiny(3, POLAR_DTYPE_F32), mixed = tiny(2, POLAR_DTYPE_BF16),
                  wide = tiny(1, POLAR_DTYPE_F64);
    vit_net a = vit_open(device, &three, 0), b = vit_open(device, &mixed, 0), c = vit_open(device, &wide, 0);
    double *w = model_new(3 * a.total), *v = model_new(3 * a.total), *part = model_new(a.total),
           *part1 = model_new(a.total);
    TEST_TRY(pl_deit_init(a.m, a.q, (uint64_t[]){1, 2, 3}));
    TEST_TRY(pl_deit_init(b.m, b.q, (uint64_t[]){4, 5}));
    TEST_TRY(pl_deit_init(c.m, c.q, (uint64_t[]){6}));
    TEST_TRY(pl_deit_save(a.m, a.q, 1, in_folder("a.safetensors")));
    pl_safetensors *f;
    TEST_TRY(pl_safetensors_open(&f, in_folder("a.safetensors")));
    int64_t bad = pl_safetensors_count(f) != a.count;
    for (int64_t i = 0; !bad && i < a.count; i++) {
        const pl_safetensors_entry *e = pl_safetensors_view(f, i);
        bad +=
            strcmp(e->name, a.params[i].name) || e->dtype != POLAR_DTYPE_F32 || !same_shape(e, &a.params[i]);
    }
    const char *format = pl_safetensors_meta_find(f, "format");
    test_true("names, shapes and order of the file", !bad && format && !strcmp(format, "pt"),
              "%lld of %lld differ", (long long)bad, (long long)a.count);
    pl_safetensors_close(f);
    vit_get(&a, w, 0);
    vit_member(&a, part, w, 1, 3);
    TEST_TRY(pl_deit_load(b.m, b.q, 1, in_folder("a.safetensors")));
    vit_get(&b, v, 0);
    vit_member(&b, part1, v, 1, 2);
    bad = model_mismatches(part, part1, a.total);
    vit_member(&b, part1, v, 0, 2);
    test_true("a member goes to another model, its mate stays",
              !bad && model_mismatches(part, part1, a.total), "%lld weights differ", (long long)bad);
    TEST_TRY(pl_deit_load(c.m, c.q, 0, in_folder("a.safetensors")));
    TEST_TRY(pl_deit_save(c.m, c.q, 0, in_folder("c.safetensors")));
    TEST_TRY(pl_deit_load(a.m, a.q, 2, in_folder("c.safetensors"))); /* by way of doubles */
    vit_get(&a, w, 0);
    vit_member(&a, part1, w, 2, 3);
    test_exact("f32 to f64 and back by files", model_mismatches(part, part1, a.total));

    refused("member 3 of three", &a, 3, "a.safetensors");
    refused("no such file", &a, 0, "none.safetensors");
    static const struct {
        const char *what;
        size_t field;
        int64_t value;
    } others[] = {{"a file of other classes", offsetof(pl_deit_shape, classes), 10},
                  {"a file of more blocks", offsetof(pl_deit_shape, depth), 3},
                  {"a file of fewer blocks", offsetof(pl_deit_shape, depth), 1},
                  {"a file of other images", offsetof(pl_deit_shape, image), 32}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        pl_deit_shape other = wide;
        memcpy((char *)&other + others[i].field, &others[i].value, sizeof(int64_t));
        vit_net o = vit_open(device, &other, 0);
        TEST_TRY(pl_deit_init(o.m, o.q, (uint64_t[]){6}));
        TEST_TRY(pl_deit_save(o.m, o.q, 0, in_folder("o.safetensors")));
        refused(others[i].what, &a, 0, "o.safetensors");
        vit_close(&o);
    }
    /* half floats are known to the format and not to us */
    TEST_TRY(pl_safetensors_open(&f, in_folder("a.safetensors")));
    pl_safetensors_entry *entries = calloc((size_t)a.count, sizeof *entries);
    for (int64_t i = 0; i < a.count; i++) {
        entries[i] = *pl_safetensors_view(f, i);
        if (i == a.count - 1) entries[i].dtype_name = "F16", entries[i].bytes /= 2;
    }
    TEST_TRY(pl_safetensors_write(in_folder("h.safetensors"), entries, a.count, NULL, 0));
    refused("a file with half floats", &a, 0, "h.safetensors");
    pl_safetensors_close(f);
    free(entries);
    vit_close(&a);
    vit_close(&b);
    vit_close(&c);
    free(w), free(v), free(part), free(part1);
}

/* Allocation 1, 2, ... fails until saving and loading pass: out of memory each time, nothing left over,
 * weights whole. */
static void no_memory(const char *device)
{
    pl_deit_shape shape = tiny(1, POLAR_DTYPE_F32);
    vit_net r = vit_open(device, &shape, 0);
    TEST_TRY(pl_deit_init(r.m, r.q, (uint64_t[]){1}));
    TEST_TRY(pl_deit_save(r.m, r.q, 0, in_folder("n.safetensors")));
    polar_status st = POLAR_E_NOMEM;
    int64_t n = 0, before = pl_alloc_live(), leaks = 0, wrong = 0;
    while (st != POLAR_OK && n < 10000) {
        pl_alloc_fail_at(++n);
        st = pl_deit_save(r.m, r.q, 0, in_folder("n.safetensors"));
        if (st == POLAR_OK) st = pl_deit_load(r.m, r.q, 0, in_folder("n.safetensors"));
        pl_alloc_fail_at(0);
        polar_queue_sync(r.q);
        leaks += pl_alloc_live() != before;
        wrong += st != POLAR_OK && st != POLAR_E_NOMEM;
    }
    test_true(
        "allocation 1, 2, ... fails", PART(st == POLAR_OK) && PART(n > 8) && PART(!leaks) && PART(!wrong),
        "%lld times: %lld leaks, %lld wrong codes", (long long)n - 1, (long long)leaks, (long long)wrong);
    vit_close(&r);
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    if (!mkdtemp(folder)) exit(1);
    initial_weights(device);
    round_trip(device);
    no_memory(device);
    folder_remove(folder);
    return test_end();
}
