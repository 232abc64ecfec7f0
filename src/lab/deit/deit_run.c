/* deit_run.c -- the DeiT testbed (lab/testbed.h): one run from its first batch to the accuracy of its last
 * epochs.
 *
 * An epoch: every whole batch (train.last_batch: and the rest) of the epoch's order through forward, backward
 * and step; then top-1 over the whole test set. There is no early stopping and no choice of an epoch: the
 * result is l10, the mean over the last ten epochs of the schedule. An ensemble has one member: a run fills
 * any device.
 *     ./polar train deit --data synth:classes=10,train=400,test=100,size=64 --set model.image=64
 */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "lab/deit/deit_train.h"
#include "lab/run/optim_keys.h"
#include "lab/run/provenance.h"
#include "lab/run/train_optim.h"

/* ---- begin -------------------------------------------------------------------------------------- */

static int never_same_shape(const pl_config *a, const pl_config *b)
{
    (void)a, (void)b;
    return 0;
}

static int worker_count(const pl_train *t)
{
    pl_provenance_text text;
    int64_t n = t->set.workers ? t->set.workers : pl_provenance_of(&text, t->dev).threads;
    return (int)(n > 1024 ? 1024 : n);
}

static polar_status take_data(pl_train *t)
{
    PL_TRY(pl_deit_data_create(&t->data, &t->set, t->seed, worker_count(t)));
    t->set.shape.classes = t->data.classes;
    int64_t pictures = t->data.count[PL_IMAGES_TRAIN], rest = pictures % t->set.batch;
    int mixes = t->set.mix.mixup_alpha > 0 || t->set.mix.cutmix_alpha > 0;
    t->steps = pictures / t->set.batch + (t->set.keep_last && rest);
    PL_NEED(t->steps > 0, POLAR_E_ARG,
            "train.batch is %lld and there are %lld training pictures: not one whole batch",
            (long long)t->set.batch, (long long)pictures);
    PL_NEED(!t->set.keep_last || !mixes || rest % 2 == 0, POLAR_E_ARG,
            "train.last_batch=keep leaves %lld pictures for the last batch: Mixup and CutMix pair them, so "
            "they must be even",
            (long long)rest);
    PL_TRY(pl_schedule_read(&t->schedule, t->config, t->steps));
    t->set.optim.schedule = pl_schedule_of_steps(&t->schedule);
    return POLAR_OK;
}

static polar_status take_model(pl_train *t)
{
    PL_TRY(pl_deit_create(&t->model, t->dev, &t->set.shape, 1));
    PL_TRY(pl_deit_init(t->model, t->q, &t->seed));
    t->params = pl_deit_params(t->model, &t->param_count);
    return pl_train_optim_create(&t->opt, t->dev, t->params, t->param_count, 0, 1, &t->set.optim,
                                 &(pl_train_routes){t->set.split, t->set.no_decay});
}

static void begin_epoch(pl_train *t)
{
    t->step = t->tested = t->counted = t->correct = 0;
    t->finite = 1;
    pl_deit_loss_set(t, 0);
}

static polar_status fill(pl_train *t)
{
    PL_TRY(polar_queue_create(&t->q, t->dev, NULL));
    PL_TRY(pl_deit_settings_read(&t->set, t->config));
    PL_TRY(take_data(t));
    PL_TRY(take_model(t));
    PL_TRY(pl_deit_batch_create(t));
    t->top1 = pl_alloc((size_t)t->set.epochs * sizeof *t->top1);
    PL_NEED(t->top1, POLAR_E_NOMEM, "the accuracies of %lld epochs", (long long)t->set.epochs);
    for (int64_t i = 0; i < t->set.epochs; i++) t->top1[i] = (double)NAN;
    t->stop = (pl_early_stop){.epochs = t->set.epochs};
    begin_epoch(t);
    return polar_queue_sync(t->q);
}

static void deit_end(pl_train *t)
{
    if (!t) return;
    if (t->q) (void)polar_queue_sync(t->q); /* nothing may still use what is freed now */
    pl_deit_data_destroy(&t->data);
    polar_optim_destroy(t->opt);
    pl_deit_batch_destroy(t);
    pl_deit_destroy(t->model);
    polar_queue_destroy(t->q);
    pl_free(t->top1);
    pl_free(t);
}

static polar_status deit_begin(pl_train **out, polar_device *dev, const pl_config *const *configs,
                               const uint64_t *seeds, int64_t members)
{
    *out = NULL;
    PL_NEED(members == 1, POLAR_E_ARG, "an ensemble of %lld DeiT runs: they are trained one by one",
            (long long)members);
    pl_train *t = pl_calloc(1, sizeof *t);
    PL_NEED(t, POLAR_E_NOMEM, "a run");
    t->dev = dev;
    t->config = configs[0];
    t->seed = seeds[0];
    polar_status st = fill(t);
    if (st == POLAR_OK) *out = t;
    else deit_end(t);
    return st;
}

/* ---- epochs ------------------------------------------------------------------------------------- */

static void deit_where(const pl_train *t, int64_t *epochs, int *active)
{
    *epochs = t->stop.made;
    *active = t->stop.end == PL_END_NOT;
}

static const char *deit_data(const pl_train *t)
{
    return *t->data.origin ? t->data.origin : NULL;
}

static void deit_watch(pl_train *t, const pl_step_watch *w)
{
    t->watch = *w;
}

/* Whether to return from the epoch, after a batch. */
static int told_to_pause(const pl_train *t)
{
    int64_t test = t->data.count[PL_IMAGES_TEST];
    const pl_step_view v = {"images", pl_deit_pictures(t, t->step) + t->tested,
                            pl_deit_pictures(t, t->steps) + test,
                            t->loss_steps ? t->loss_sum / (double)t->loss_steps : (double)NAN};
    return t->watch.step && t->watch.step(t->watch.arg, &v);
}

/* The row of an epoch whose batches are done, or whose loss is none. */
static pl_epoch_row close_epoch(pl_train *t)
{
    int whole = isfinite(t->loss_sum) && t->finite && t->counted > 0;
    double top1 = whole ? 100 * (double)t->correct / (double)t->counted : (double)NAN;
    int64_t last = t->stop.made * t->steps + t->step - 1;
    pl_epoch_row row = {.epoch = t->stop.made + 1,
                        .train_loss = t->loss_sum / (double)t->step,
                        .valid = top1,
                        .lr = t->set.optim.lr * pl_schedule_factor(&t->schedule, last)};
    t->top1[t->stop.made] = top1;
    pl_early_stop_step(&t->stop, row.train_loss, -top1);
    row.improved = t->stop.improved;
    pl_deit_data_end(&t->data);
    begin_epoch(t);
    return row;
}

static polar_status deit_epoch(pl_train *t, pl_epoch_row *rows, int *active)
{
    active[0] = t->stop.end == PL_END_NOT; /* also where a pause leaves the epoch in its middle */
    while (t->step < t->steps && !pl_deit_loss_lost(t)) {
        PL_TRY(pl_deit_train_batch(t));
        if (told_to_pause(t)) return POLAR_OK;
    }
    while (t->tested < t->data.count[PL_IMAGES_TEST] && !pl_deit_loss_lost(t) && t->finite) {
        PL_TRY(pl_deit_test_batch(t));
        if (told_to_pause(t)) return POLAR_OK;
    }
    PL_NEED(t->counted || t->tested < t->data.count[PL_IMAGES_TEST], POLAR_E_FORMAT,
            "not one of %lld test pictures can be read", (long long)t->tested);
    rows[0] = close_epoch(t);
    active[0] = t->stop.end == PL_END_NOT;
    return POLAR_OK;
}

/* ---- results ------------------------------------------------------------------------------------ */

/* Mean top-1 over the last epochs of the schedule; NaN where there are not as many, and of a run that
 * diverged. */
static double last_ten(const pl_train *t)
{
    double sum = 0;
    if (t->set.epochs < PL_DEIT_LAST) return (double)NAN;
    for (int64_t i = t->set.epochs - PL_DEIT_LAST; i < t->set.epochs; i++) sum += t->top1[i];
    return sum / PL_DEIT_LAST;
}

static polar_status deit_results(pl_train *t, int64_t member, pl_result *out, int max, int *count)
{
    (void)member;
    PL_NEED(t->stop.end != PL_END_NOT, POLAR_E_STATE, "the run has not ended");
    const pl_result all[] = {
        {"l10", last_ten(t)},
        {"top1", t->top1[t->stop.made - 1]},
        {"best_top1", t->stop.best_epoch ? -t->stop.best : (double)NAN},
        {"best_epoch", (double)t->stop.best_epoch},
        {"epochs", (double)t->stop.made},
        {"diverged", t->stop.end == PL_END_DIVERGED},
        {"train_images", (double)t->data.count[PL_IMAGES_TRAIN]},
        {"test_images", (double)t->data.count[PL_IMAGES_TEST]},
        {"classes", (double)t->data.classes},
        {"skipped", (double)pl_deit_data_skipped(&t->data)},
    };
    int n = (int)(sizeof all / sizeof *all);
    PL_NEED(max >= n, POLAR_E_ARG, "room for %d results, there are %d", max, n);
    memcpy(out, all, sizeof all);
    *count = n;
    return POLAR_OK;
}

/* Nothing chooses an epoch, so these are the last one's. */
static polar_status deit_weights(pl_train *t, int64_t member, const char *path)
{
    return pl_deit_save(t->model, t->q, member, path);
}

const pl_testbed pl_testbed_deit = {
    .schema = &pl_deit_schema,
    .estimate = pl_deit_estimate,
    .shorten = pl_deit_shorten,
    .same_shape = never_same_shape,
    .begin = deit_begin,
    .data = deit_data,
    .where = deit_where,
    .epoch = deit_epoch,
    .watch = deit_watch,
    .save = pl_deit_state_save,
    .load = pl_deit_state_load,
    .results = deit_results,
    .weights = deit_weights,
    .end = deit_end,
};
