/* so3_estimate.c -- what an SO(3) run will cost, by dry runs: a pass over a batch, the optimiser's step, and
 * both times their number.
 *
 *     ./polar plan specs/paper/so3_capacity.yaml
 */
#include <stdio.h>

#include "lab/so3/so3_train.h"
#include "lab/run/train_optim.h"

/* The optimiser of a small stand-in: its weights have the run's shapes, its batch is one cloud of one point.
 */
static polar_status estimate_step(pl_estimate *e, polar_device *dev, const pl_so3_shape *shape,
                                  const pl_so3_settings *s)
{
    pl_so3_shape small = *shape;
    pl_so3 *model = NULL;
    int64_t n;
    small.batch = small.points = 1;
    PL_TRY(pl_so3_create(&model, dev, &small, 1));
    const pl_param *params = pl_so3_params(model, &n);
    polar_status st = pl_estimate_step(e, dev, params, n, &s->optim, &(pl_train_routes){"", s->no_decay});
    pl_so3_destroy(model);
    return st;
}

polar_status pl_so3_estimate(pl_estimate *out, polar_device *dev, const pl_config *c)
{
    pl_so3_settings s;
    pl_model_bytes memory;
    *out = (pl_estimate){0};
    PL_TRY(pl_so3_settings_read(&s, c));
    pl_so3_shape shape = {.members = 1,
                          .batch = s.batch,
                          .points = s.points,
                          .width = s.width,
                          .layers = s.layers,
                          .dtype = s.dtype,
                          .eps = s.eps,
                          .message = s.message,
                          .linear_gate = s.linear_gate,
                          .tf32 = s.tf32,
                          .scalars_only = s.scalars_only};
    PL_TRY(pl_so3_cost(&out->pass, &memory, dev, &shape, 1));
    PL_TRY(pl_so3_cost(&out->look, NULL, dev, &shape, 0));
    out->memory = memory.weights * 2 + memory.gradients + memory.activations; /* twice: the best epoch's */
    PL_TRY(estimate_step(out, dev, &shape, &s));
    out->epochs = s.epochs;
    out->steps = s.steps;
    out->may_stop = s.patience > 0;
    out->epoch_looks = pl_whole_batches(s.valid, s.batch);
    pl_estimate_sum(out, pl_whole_batches(s.test, s.batch));
    return POLAR_OK;
}

polar_status pl_so3_shorten(pl_config *c, int64_t steps)
{
    int64_t batch = pl_config_int(c, "train.batch");
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)(steps * batch));
    PL_TRY(pl_config_set(c, "data.train", text));
    snprintf(text, sizeof text, "%lld", (long long)batch);
    PL_TRY(pl_config_set(c, "data.valid", text));
    PL_TRY(pl_config_set(c, "data.test", text));
    PL_TRY(pl_config_set(c, "gauge.shadows", "0"));
    PL_TRY(pl_config_set(c, "train.patience", "0"));
    PL_TRY(pl_config_set(c, "train.warmup", "1"));
    return pl_config_set(c, "train.epochs", "1000");
}
