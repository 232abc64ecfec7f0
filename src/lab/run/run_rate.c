/* run_rate.c -- see run_rate.h. */
#include "lab/run/run_rate.h"

#include <math.h>

#include "base/alloc.h"
#include "base/clock.h"

#define STEPS     2 /* of an epoch */
#define LEAST     2 /* epochs that are timed, after one that is not */
#define MOST      16
#define MOST_TIME 1.0 /* seconds after which no further epoch begins */

double pl_step_flops(const pl_estimate *e)
{
    return e->pass.flops + e->step.flops;
}

/* Seconds of the fastest epoch. */
static polar_status time_epochs(double *out, const pl_testbed *tb, pl_train *t)
{
    pl_epoch_row row;
    int active = 1;
    double spent = 0;
    *out = INFINITY;
    PL_TRY(tb->epoch(t, &row, &active)); /* allocates, captures, loads */
    for (int i = 0; active && i < MOST && (i < LEAST || spent < MOST_TIME); i++) {
        double begin = pl_clock_seconds();
        PL_TRY(tb->epoch(t, &row, &active));
        double seconds = pl_clock_seconds() - begin;
        spent += seconds;
        *out = fmin(*out, seconds);
    }
    PL_NEED(isfinite(*out), POLAR_E_STATE, "a run of made-up data diverged at once: no time was taken");
    return POLAR_OK;
}

static polar_status measure(pl_run_rate *out, const pl_testbed *tb, polar_device *dev, pl_config *c)
{
    const pl_config *const configs[] = {c};
    const uint64_t seed = 0;
    pl_estimate e;
    pl_train *t = NULL;
    double seconds;
    PL_TRY(tb->shorten(c, STEPS));
    PL_TRY(tb->estimate(&e, dev, c));
    pl_free(e.routes);
    PL_TRY(tb->begin(&t, dev, configs, &seed, 1, NULL));
    polar_status st = time_epochs(&seconds, tb, t);
    tb->end(t);
    PL_TRY(st);
    out->step_flops = pl_step_flops(&e);
    out->rate = ((double)e.steps * out->step_flops + e.epoch_looks * e.look.flops) / seconds;
    return POLAR_OK;
}

polar_status pl_run_rate_measure(pl_run_rate *out, const pl_testbed *tb, polar_device *dev,
                                 const pl_config *c)
{
    pl_config *copy;
    *out = (pl_run_rate){0};
    PL_NEED(tb->shorten && tb->estimate, POLAR_E_UNSUPPORTED, "testbed %s has no short run to time",
            tb->schema->name);
    PL_TRY(pl_config_copy(&copy, c));
    polar_status st = measure(out, tb, dev, copy);
    pl_config_destroy(copy);
    return st;
}

double pl_run_rate_between(const pl_run_rate *small, const pl_run_rate *large, double step_flops)
{
    if (step_flops <= small->step_flops || large->step_flops <= small->step_flops) return small->rate;
    if (step_flops >= large->step_flops) return large->rate;
    double share = log(step_flops / small->step_flops) / log(large->step_flops / small->step_flops);
    return small->rate * pow(large->rate / small->rate, share);
}
