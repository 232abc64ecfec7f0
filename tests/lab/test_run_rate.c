/* test_run_rate.c -- a plan's hours: the short run that is timed has the shape of the long one, rates in
 * between, testbeds that cannot, memory that runs out. No time is judged. */
#include "test.h"

#include <math.h>

#include "base/alloc.h"
#include "lab/run/run_rate.h"

static pl_config *configure(const pl_testbed *tb, const char *const *set)
{
    pl_config *c;
    TEST_TRY(pl_config_create(&c, tb->schema));
    for (; *set; set++) TEST_TRY(pl_config_assign(c, *set));
    return c;
}

static const char *const small_so3[] = {"model.width=5",   "model.layers=2",  "data.points=9",
                                        "data.train=130",  "train.batch=13",  "gauge.shadows=1",
                                        "train.warmup=40", "optim.rule=muon", NULL};
static const char *const small_deit[] = {"model.image=8",
                                         "model.patch=4",
                                         "model.width=12",
                                         "model.depth=2",
                                         "model.heads=3",
                                         "data.classes=30",
                                         "train.batch=14",
                                         "train.epochs=60",
                                         "train.warmup=20",
                                         "data.recipe=deit",
                                         NULL};

/* Passes, steps and routes of the short run cost what the long one's do; it has about as many steps as asked
 * for, and its data need no place. */
static void same_shape(const char *device, const pl_testbed *tb, const char *const *set)
{
    polar_device *dev;
    pl_config *c = configure(tb, set);
    pl_estimate a, b;
    pl_run_rate r;
    TEST_TRY(polar_device_open(&dev, device));
    TEST_TRY(tb->estimate(&a, dev, c));
    TEST_TRY(pl_run_rate_measure(&r, tb, dev, c));
    test_true(tb->schema->name, r.rate > 0 && isfinite(r.rate) && r.step_flops == pl_step_flops(&a),
              "%.3g MFLOP a step", r.step_flops / 1e6);
    TEST_TRY(tb->shorten(c, 3));
    TEST_TRY(tb->estimate(&b, dev, c));
    test_true("... shortened: the same step, few of them",
              PART(b.pass.flops == a.pass.flops) && PART(b.step.flops == a.step.flops) &&
                  PART(b.look.flops == a.look.flops) && PART(b.matrix_weights == a.matrix_weights) &&
                  PART(b.aux_weights == a.aux_weights) && PART(b.steps >= 3) && PART(b.steps < 6) &&
                  PART(b.epoch_looks >= 1) && PART(b.epoch_looks < 4),
              "%lld steps, %g looks an epoch", (long long)b.steps, b.epoch_looks);
    pl_free(a.routes);
    pl_free(b.routes);
    pl_config_destroy(c);
    polar_device_close(dev);
}

static void between(void)
{
    const pl_run_rate s = {1e6, 1e9}, l = {1e8, 4e9};
    test_true("rates at and beyond the two that were measured",
              PART(pl_run_rate_between(&s, &l, 1e6) == 1e9) && PART(pl_run_rate_between(&s, &l, 1) == 1e9) &&
                  PART(pl_run_rate_between(&s, &l, 1e8) == 4e9) &&
                  PART(pl_run_rate_between(&s, &l, 1e12) == 4e9) &&
                  PART(pl_run_rate_between(&s, &s, 1e7) == 1e9),
              "1 and 4 GFLOP/s");
    /* half way in the logarithm: the geometric mean, two logarithms, a power and a product */
    test_bound("a rate in between", fabs(pl_run_rate_between(&s, &l, 1e7) / 2e9 - 1), 32 * 2.3e-16, "32 eps");
}

static polar_status measure_once(const char *device, const pl_config *c)
{
    polar_device *dev;
    pl_run_rate r;
    PL_TRY(polar_device_open(&dev, device));
    polar_status st = pl_run_rate_measure(&r, &pl_testbed_so3, dev, c);
    polar_device_close(dev);
    return st;
}

static void refusals(const char *device)
{
    static const char *const least[] = {"model.width=2", "model.layers=1", "data.points=3", "train.batch=2",
                                        NULL};
    pl_testbed none = pl_testbed_so3;
    polar_device *dev;
    pl_run_rate r;
    pl_config *c = configure(&pl_testbed_so3, least);
    none.shorten = NULL;
    TEST_TRY(polar_device_open(&dev, device));
    test_true("a testbed without a short run", pl_run_rate_measure(&r, &none, dev, c) == POLAR_E_UNSUPPORTED,
              "%s", polar_error_message());
    polar_device_close(dev);
    polar_status st = POLAR_E_NOMEM;
    int64_t n = 0, wrong = 0;
    TEST_TRY(measure_once(device, c)); /* what is set up once, once */
    for (; st != POLAR_OK && n < 5000; n++) {
        int64_t live = pl_alloc_live();
        pl_alloc_fail_at(n + 1);
        st = measure_once(device, c);
        pl_alloc_fail_at(0);
        wrong += (st != POLAR_OK && st != POLAR_E_NOMEM) || pl_alloc_live() != live;
    }
    test_true("the n-th allocation fails", st == POLAR_OK && !wrong && n > 50, "%lld allocations, %lld wrong",
              (long long)n - 1, (long long)wrong);
    pl_config_destroy(c);
}

int main(int argc, char **argv)
{
    const char *device = test_begin(argc, argv);
    same_shape(device, &pl_testbed_so3, small_so3);
    same_shape(device, &pl_testbed_deit, small_deit);
    between();
    refusals(device);
    return test_end();
}
