/* test_so3_turned.c -- training in rotated coordinates: for rules whose update is equivariant the run is the
 * plain one but for rounding, for the others it is not; a member among others, saved and loaded, has the same
 * bits; the weights that are written are the model's. */
#include <math.h>

#include "device/mat.h"
#include "fixtures/so3_fixture.h"

#define STEPS 12 /* 4 epochs of 3 */

/* How far a rotated run of an equivariant rule may be from the plain one, relative: every pass makes W anew
 * from W', and the gradients' turn rounds as much, 2 (rows + cols) u each, cg_proj being 3 x 9: 48 u; over
 * STEPS they add up, and the loss moves in proportion. */
static double bound(double u)
{
    return 48 * u * STEPS;
}

static double curve_distance(const run_story *a, const run_story *b)
{
    double worst = a->epochs == b->epochs ? 0 : INFINITY;
    for (int64_t i = 0; i < a->epochs && i < b->epochs; i++)
        worst = fmax(worst, fabs(a->row[i].valid - b->row[i].valid) / fabs(b->row[i].valid));
    return worst;
}

static void changes(char out[200], const char *rule, const char *more)
{
    snprintf(out, 200, "optim.rule=%s %s", rule, more);
}

static double distance_of(const char *device, const char *rule, const char *dtype, const char *map)
{
    char plain[200], rotated[240];
    run_story a, b;
    changes(plain, rule, dtype);
    snprintf(plain + strlen(plain), sizeof plain - strlen(plain), " %s", map);
    snprintf(rotated, sizeof rotated, "%s model.coordinates=rotated", plain);
    run_run(&a, device, &(run_arm){plain, 7}, 1);
    run_run(&b, device, &(run_arm){rotated, 7}, 1);
    double d = curve_distance(&b, &a);
    run_free(&a, 1);
    run_free(&b, 1);
    return d;
}

static void test_rules(const char *device)
{
    static const struct {
        const char *rule, *map;
        int equivariant;
    } rules[] = {
        {"sgdm", "", 1},  {"muon", "map.precision=f64", 1},   {"polar_ema", "map.precision=f64", 1},
        {"adamw", "", 0}, {"muon_v", "map.precision=f64", 0}, {"polaradamw", "map.precision=f64", 0}};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        char what[80];
        double d = distance_of(device, rules[i].rule, "train.dtype=f64", rules[i].map);
        snprintf(what, sizeof what, "%s, rotated against plain, f64", rules[i].rule);
        if (rules[i].equivariant) test_bound(what, d, bound(0x1p-53), "rounding, see bound()");
        else test_true(what, d > 1e5 * bound(0x1p-53), "%.2e away: its coordinates count", d);
    }
    test_bound("muon, fp32 map, rotated against plain, f32",
               distance_of(device, "muon", "train.dtype=f32", "map.precision=f32"), bound(0x1p-24),
               "rounding, see bound()");
}

/* Two rotated runs together and alone, and saved in the middle. */
static void test_members(const char *device)
{
    const run_arm arms[] = {{"model.coordinates=rotated optim.rule=muon", 1},
                            {"model.coordinates=rotated optim.rule=adamw optim.lr=0.003", 2}};
    run_story together[2], alone[2], resumed[2];
    run_rig r;
    const char *path = in_folder("checkpoint");
    int more = 1;
    run_run(together, device, arms, 2);
    for (int i = 0; i < 2; i++) {
        run_run(&alone[i], device, &arms[i], 1);
        test_exact("a rotated member of two, and alone", story_differs(&together[i], &alone[i]));
    }
    TEST_TRY(run_open(&r, device, arms, 2));
    run_begin_story(resumed, 2);
    for (int i = 0; i < 2; i++) more = run_epoch(&r, resumed);
    TEST_TRY(pl_testbed_so3.save(r.t, path));
    run_close(&r);
    TEST_TRY(run_open(&r, device, arms, 2));
    TEST_TRY(pl_testbed_so3.load(r.t, path));
    while (more) more = run_epoch(&r, resumed);
    run_finish(&r, resumed);
    run_close(&r);
    remove(path);
    for (int i = 0; i < 2; i++)
        test_exact("a rotated run, saved and loaded", story_differs(&together[i], &resumed[i]));
    run_free(together, 2);
    run_free(alone, 2);
    run_free(resumed, 2);
}

/* The largest difference between the numbers of two weights' files in f64. */
static double weights_distance(const run_story *a, const run_story *b)
{
    pl_safetensors *x, *y;
    double worst = 0;
    TEST_TRY(pl_safetensors_open_bytes(&x, a->weights, a->weight_bytes, "a"));
    TEST_TRY(pl_safetensors_open_bytes(&y, b->weights, b->weight_bytes, "b"));
    for (int64_t i = 0; i < pl_safetensors_count(x); i++) {
        const pl_safetensors_entry *e = pl_safetensors_view(x, i), *f = pl_safetensors_find(y, e->name);
        if (!f || f->bytes != e->bytes) worst = INFINITY;
        for (int64_t k = 0; f && k < e->bytes / 8; k++)
            worst = fmax(worst, fabs(pl_load_f64(e->data, POLAR_DTYPE_F64, k) -
                                     pl_load_f64(f->data, POLAR_DTYPE_F64, k)));
    }
    pl_safetensors_close(x);
    pl_safetensors_close(y);
    return worst;
}

static void test_weights(const char *device)
{
    run_story a, b;
    run_run(&a, device, &(run_arm){"optim.rule=sgdm train.dtype=f64", 3}, 1);
    run_run(&b, device, &(run_arm){"optim.rule=sgdm train.dtype=f64 model.coordinates=rotated", 3}, 1);
    test_bound("the best weights are the model's", weights_distance(&a, &b), bound(0x1p-53),
               "as the curves; weights are below 1");
    run_free(&a, 1);
    run_free(&b, 1);
}

static void test_refusals(const char *device)
{
    run_rig r;
    const run_arm wide = {"model.coordinates=rotated model.width=180", 1},
                  none = {"model.coordinates=rotated route.matrix=nothing", 1};
    polar_status st = run_open(&r, device, &wide, 1);
    test_true("too large a rotation is refused", st == POLAR_E_ARG && strstr(polar_error_message(), "16384"),
              "%s", polar_error_message());
    run_close(&r);
    st = run_open(&r, device, &none, 1);
    test_true("... and one of nothing", st == POLAR_E_ARG && strstr(polar_error_message(), "nothing"), "%s",
              polar_error_message());
    run_close(&r);
}

/* ---- told of rotations --------------------------------------------------------------------------- */

typedef struct {
    int64_t calls, stop_at, total, wrong;
} listener;

static int listen(void *arg, const pl_step_view *v)
{
    listener *l = arg;
    l->wrong +=
        strcmp(v->what, "rotations") != 0 || v->done != ++l->calls || (l->total && l->total != v->total);
    l->total = v->total;
    return l->calls == l->stop_at;
}

/* A rotated run and one with shadows beside it: stopped after any rotation, it is as if it had not begun.
 * What a device keeps of its first run (cuda: a plan for each shape of a product) is counted before, and is
 * gone when the device is closed. */
static void test_told(const char *device)
{
    static const uint64_t seeds[] = {5, 6};
    static const char *const changes[] = {"model.coordinates=rotated", "gauge.shadows=2 gauge.every=1",
                                          "model.coordinates=rotated gauge.shadows=1 gauge.every=1"};
    for (int i = 0; i < 3; i++) {
        polar_device *dev;
        pl_config *c = config_of(changes[i]);
        const pl_config *const both[] = {c, c};
        listener all = {0};
        int64_t closed = pl_alloc_live(), leaks = 0, wrong = 0;
        pl_train *t = NULL;
        TEST_TRY(polar_device_open(&dev, device));
        TEST_TRY(bed->begin(&t, dev, both, seeds, 2, &(pl_step_watch){listen, &all}));
        bed->end(t);
        int64_t live = pl_alloc_live();
        for (int64_t k = 1; k <= all.calls; k++) {
            listener l = {.stop_at = k};
            polar_status st = bed->begin(&t, dev, both, seeds, 2, &(pl_step_watch){listen, &l});
            wrong += st != POLAR_E_STATE || t || l.calls != k || !*polar_error_message();
            leaks += pl_alloc_live() != live;
        }
        TEST_TRY(bed->begin(&t, dev, both, seeds, 2, NULL));
        bed->end(t);
        leaks += pl_alloc_live() != live;
        polar_device_close(dev);
        leaks += pl_alloc_live() != closed;
        test_true("told of every rotation, and stopped at any",
                  PART(all.calls > 0) && PART(all.calls == all.total) && PART(!all.wrong) && PART(!wrong) &&
                      PART(!leaks),
                  "%lld words; \"%s\"", (long long)all.calls, polar_error_message());
        pl_config_destroy(c);
    }
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    folder_open();
    test_rules(device);
    test_members(device);
    test_weights(device);
    test_refusals(device);
    test_told(device);
    folder_close();
    return test_end();
}
