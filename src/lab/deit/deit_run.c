/* deit_run.c -- the DeiT testbed (lab/testbed.h): an ensemble of runs from their first batch to the accuracy
 * of their last epochs.
 *
 * An epoch: every whole batch (train.last_batch: and the rest) of the epoch's order through forward, backward
 * and step; then top-1 over the whole test set. There is no early stopping and no choice of an epoch: the
 * result is l10, the mean over the last ten epochs of the schedule.
 *     ./polar train deit --data synth:classes=10,train=400,test=100,size=64 --set model.image=64
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "lab/deit/deit_train.h"
#include "lab/run/optim_keys.h"
#include "lab/run/provenance.h"
#include "lab/run/train_optim.h"

/* ---- begin -------------------------------------------------------------------------------------- */

static int alike(const void *settings, int64_t i, int64_t k)
{
    const pl_deit_settings *sets = settings;
    return pl_deit_same_rule(&sets[i], &sets[k]);
}

static void assign_slots(pl_train *t, const pl_config *const *configs, const pl_deit_settings *sets,
                         const uint64_t *seeds)
{
    t->group_count = pl_train_slots(t->slot_of, t->groups, t->members, alike, sets);
    for (int64_t k = 0; k < t->members; k++) {
        int64_t slot = t->slot_of[k];
        t->slots[slot] = (pl_deit_slot){.config = configs[k], .set = sets[k], .seed = seeds[k]};
        t->slots[slot].stop = (pl_early_stop){.epochs = sets[k].epochs};
        t->slots[slot].set.shape.batch /= t->leaves.total; /* of a pass */
        pl_leaves_optim(&t->leaves, &t->slots[slot].set.optim);
        t->seeds[slot] = seeds[k];
    }
    t->set = &t->slots[0].set;
}

static polar_status take_slots(pl_train *t, const pl_config *const *configs, const uint64_t *seeds)
{
    size_t n = (size_t)t->members;
    t->slots = pl_calloc(n, sizeof *t->slots);
    t->slot_of = pl_calloc(n, sizeof *t->slot_of);
    t->groups = pl_calloc(n, sizeof *t->groups);
    t->data = pl_calloc(n, sizeof *t->data);
    t->seeds = pl_calloc(n, sizeof *t->seeds);
    pl_deit_settings *sets = pl_calloc(n, sizeof *sets);
    int room = t->slots && t->slot_of && t->groups && t->data && t->seeds && sets;
    polar_status st =
        room ? POLAR_OK : PL_FAIL(POLAR_E_NOMEM, "an ensemble of %lld runs", (long long)t->members);
    for (int64_t i = 0; i < t->members && st == POLAR_OK; i++) {
        st = pl_deit_settings_read(&sets[i], configs[i]);
        if (st == POLAR_OK && !pl_deit_same_shape(configs[0], configs[i]))
            st = PL_FAIL(POLAR_E_ARG, "runs 0 and %lld have different shapes and cannot be trained together",
                         (long long)i);
    }
    if (st == POLAR_OK) st = pl_leaves_begin(&t->leaves, t->dev, sets[0].leaves, t->members);
    if (st == POLAR_OK) assign_slots(t, configs, sets, seeds);
    pl_free(sets);
    for (int64_t i = 0; i < t->members && st == POLAR_OK; i++) {
        int64_t epochs = t->set->epochs;
        t->slots[i].top1 = pl_alloc((size_t)epochs * sizeof *t->slots[i].top1);
        PL_NEED(t->slots[i].top1, POLAR_E_NOMEM, "the accuracies of %lld epochs", (long long)epochs);
        for (int64_t k = 0; k < epochs; k++) t->slots[i].top1[k] = (double)NAN;
    }
    return st;
}

static int64_t seed_count(const pl_train *t)
{
    int64_t n = 0;
    for (int64_t i = 0; i < t->members; i++) {
        int64_t k = 0;
        while (t->slots[k].seed != t->slots[i].seed) k++;
        n += k == i;
    }
    return n;
}

/* Of one seed's loader. */
static int worker_count(const pl_train *t)
{
    pl_provenance_text text;
    int64_t n = t->set->workers ? t->set->workers : pl_provenance_of(&text, t->dev).threads / seed_count(t);
    return (int)(n < 1 ? 1 : n > 1024 ? 1024 : n);
}

/* One set of pictures per seed, whatever the number of arms. */
static polar_status open_data(pl_train *t)
{
    int workers = worker_count(t);
    for (int64_t i = 0; i < t->members; i++) {
        pl_deit_slot *s = &t->slots[i];
        for (int64_t k = 0; k < t->data_count && !s->data; k++)
            if (t->data[k].seed == s->seed) s->data = &t->data[k];
        if (s->data) continue;
        PL_TRY(pl_deit_data_create(&t->data[t->data_count], &s->set, s->seed, workers));
        s->data = &t->data[t->data_count++];
    }
    t->prints = pl_calloc((size_t)t->data_count, PL_SHA256_HEX);
    PL_NEED(t->prints, POLAR_E_NOMEM, "fingerprints");
    for (int64_t i = 0; i < t->data_count; i++)
        sprintf(t->prints + strlen(t->prints), "%s%s", i ? " " : "", t->data[i].print);
    return POLAR_OK;
}

/* Members go through their epochs in step. */
static polar_status check_data(const pl_train *t)
{
    const pl_deit_data *d = &t->data[0];
    for (int64_t i = 1; i < t->data_count; i++)
        for (int k = 0; k < PL_IMAGE_SPLITS; k++)
            PL_NEED(d->count[k] == t->data[i].count[k] && d->classes == t->data[i].classes,
                    POLAR_E_UNSUPPORTED, "the classes of seeds %llu and %llu have %lld and %lld pictures",
                    (unsigned long long)d->seed, (unsigned long long)t->data[i].seed, (long long)d->count[k],
                    (long long)t->data[i].count[k]);
    return POLAR_OK;
}

static polar_status take_data(pl_train *t)
{
    const pl_deit_settings *set = t->set;
    PL_TRY(open_data(t));
    PL_TRY(check_data(t));
    int64_t pictures = t->data[0].count[PL_IMAGES_TRAIN], rest = pictures % set->batch;
    int mixes = set->mix.mixup_alpha > 0 || set->mix.cutmix_alpha > 0;
    t->steps = pictures / set->batch + (set->keep_last && rest);
    PL_NEED(t->steps > 0, POLAR_E_ARG,
            "train.batch is %lld and there are %lld training pictures: not one whole batch",
            (long long)set->batch, (long long)pictures);
    PL_NEED(!set->keep_last || !mixes || rest % 2 == 0, POLAR_E_ARG,
            "train.last_batch=keep leaves %lld pictures for the last batch: Mixup and CutMix pair them, so "
            "they must be even",
            (long long)rest);
    PL_TRY(pl_schedule_read(&t->schedule, t->slots[0].config, t->steps));
    for (int64_t i = 0; i < t->members; i++) {
        t->slots[i].set.shape.classes = t->data[0].classes;
        t->slots[i].set.optim.schedule = pl_schedule_of_steps(&t->schedule);
    }
    return POLAR_OK;
}

static polar_status take_model(pl_train *t)
{
    pl_deit_shape shape = t->set->shape;
    shape.members = t->members;
    PL_TRY(pl_deit_create(&t->model, t->dev, &shape, 1));
    PL_TRY(pl_deit_init(t->model, t->q, t->seeds));
    t->params = pl_deit_params(t->model, &t->param_count);
    for (int64_t i = 0; i < t->group_count; i++) {
        pl_train_group *g = &t->groups[i];
        const pl_deit_settings *s = &t->slots[g->first].set;
        PL_TRY(pl_train_optim_create(&g->opt, t->dev, t->params, t->param_count, g->first, g->count,
                                     &s->optim, &(pl_train_routes){s->split, s->no_decay}));
    }
    pl_deit_watch_grads(t->model, pl_leaves_watch(&t->leaves, t->groups[0].opt));
    return pl_deit_set_slots(t);
}

/* What the first steps will still take on the device: scratch, and the next batch. */
static polar_status spare_bytes(size_t *out, pl_train *t)
{
    const pl_deit_settings *s = t->set;
    pl_deit_shape shape = s->shape;
    pl_estimate e = {0};
    shape.members = t->members;
    PL_TRY(pl_deit_cost(&e.pass, NULL, t->dev, &shape, 1));
    PL_TRY(pl_estimate_step(&e, t->dev, t->params, t->param_count, &s->optim,
                            &(pl_train_routes){s->split, s->no_decay}));
    pl_free(e.routes);
    int64_t next = t->data_count * shape.batch * (3 * shape.image * shape.image + shape.classes);
    *out = e.pass.scratch_bytes + (size_t)t->members * e.step.scratch_bytes + 4 * (size_t)next;
    return POLAR_OK;
}

/* After everything else that the device holds, so that the pictures take what is left. */
static polar_status take_input(pl_train *t)
{
    size_t spare = 0;
    if (pl_deit_input_fills(t->set, t->dev)) PL_TRY(spare_bytes(&spare, t));
    pl_deit_reading r = {.watch = t->watch};
    int64_t of_set = t->data[0].count[PL_IMAGES_TRAIN] + t->data[0].count[PL_IMAGES_TEST];
    r.total = t->data_count * of_set;
    for (int64_t i = 0; i < t->data_count; i++, r.before += of_set)
        PL_TRY(pl_deit_input_create(&t->data[i], t->set, t->dev, t->q, spare, &r));
    return pl_deit_prefetch_create(t);
}

static void begin_epoch(pl_train *t)
{
    t->step = t->tested = 0;
    for (int64_t i = 0; i < t->data_count; i++) t->data[i].counted = 0;
    for (int64_t i = 0; i < t->members; i++) {
        pl_deit_slot *s = &t->slots[i];
        s->correct = s->lost = 0;
        s->finite = 1;
        s->loss_sum = 0;
    }
    pl_deit_loss_set(t);
}

static polar_status fill(pl_train *t, const pl_config *const *configs, const uint64_t *seeds)
{
    PL_TRY(polar_queue_create(&t->q, t->dev, NULL));
    PL_TRY(take_slots(t, configs, seeds));
    PL_TRY(take_data(t));
    PL_TRY(take_model(t));
    PL_TRY(pl_deit_batch_create(t));
    PL_TRY(take_input(t));
    begin_epoch(t);
    return polar_queue_sync(t->q);
}

static void deit_end(pl_train *t)
{
    if (!t) return;
    if (t->q) (void)polar_queue_sync(t->q); /* nothing may still use what is freed now */
    for (int64_t i = 0; i < t->data_count; i++) pl_deit_data_destroy(&t->data[i]);
    for (int64_t i = 0; i < t->group_count; i++) polar_optim_destroy(t->groups[i].opt);
    for (int64_t i = 0; t->slots && i < t->members; i++) pl_free(t->slots[i].top1);
    pl_deit_batch_destroy(t);
    pl_leaves_end(&t->leaves);
    pl_deit_destroy(t->model);
    polar_queue_destroy(t->q);
    pl_free(t->slots);
    pl_free(t->slot_of);
    pl_free(t->groups);
    pl_free(t->data);
    pl_free(t->seeds);
    pl_free(t->prints);
    pl_free(t);
}

/* The largest half, quarter, ... of the batch whose model finds room on the device; 0 for none. */
static int64_t batch_to_try(polar_device *dev, const pl_config *c)
{
    pl_deit_settings set;
    if (pl_deit_settings_read(&set, c) != POLAR_OK) return 0;
    if (!set.shape.classes) set.shape.classes = 1000;
    for (set.shape.batch /= 2; set.shape.batch > 0; set.shape.batch /= 2) {
        pl_deit *model;
        polar_status st = pl_deit_create(&model, dev, &set.shape, 1);
        pl_deit_destroy(model);
        if (st == POLAR_OK) return set.shape.batch;
    }
    return 0;
}

/* No memory for a single run: the sentence, and which batch would fit. */
static polar_status tell_memory(polar_device *dev, const pl_config *c)
{
    char text[1200];
    int n = snprintf(text, sizeof text, "%.900s", polar_error_message());
    int64_t batch = batch_to_try(dev, c);
    if (batch)
        snprintf(text + n, sizeof text - (size_t)n, " (train.batch is %lld; try --set train.batch=%lld)",
                 (long long)pl_config_int(c, "train.batch"), (long long)batch);
    return pl_fail_again(POLAR_E_NOMEM, text);
}

static polar_status deit_begin(pl_train **out, polar_device *dev, const pl_config *const *configs,
                               const uint64_t *seeds, int64_t members, const pl_step_watch *w)
{
    *out = NULL;
    PL_NEED(members >= 1, POLAR_E_ARG, "an ensemble of %lld runs", (long long)members);
    pl_train *t = pl_calloc(1, sizeof *t);
    PL_NEED(t, POLAR_E_NOMEM, "an ensemble of %lld runs", (long long)members);
    t->dev = dev;
    t->members = members;
    if (w) t->watch = *w;
    polar_status st = fill(t, configs, seeds);
    t->watch = (pl_step_watch){0};
    if (st == POLAR_OK) *out = t;
    else deit_end(t);
    return st == POLAR_E_NOMEM && members == 1 ? tell_memory(dev, configs[0]) : st;
}

/* ---- epochs ------------------------------------------------------------------------------------- */

static void deit_where(const pl_train *t, int64_t *epochs, int *active)
{
    for (int64_t i = 0; i < t->members; i++) {
        const pl_early_stop *s = &t->slots[t->slot_of[i]].stop;
        epochs[i] = s->made;
        active[i] = s->end == PL_END_NOT;
    }
}

static const char *deit_data(const pl_train *t, int64_t member)
{
    const pl_deit_data *d = t->slots[t->slot_of[member]].data;
    return *d->origin ? d->origin : NULL;
}

static void deit_watch(pl_train *t, const pl_step_watch *w)
{
    t->watch = *w;
}

/* Whether to return from the epoch, after a batch. */
static int told_to_pause(const pl_train *t)
{
    int64_t test = t->data[0].count[PL_IMAGES_TEST];
    const pl_step_view v = {"images", t->members * (pl_deit_pictures(t, t->step) + t->tested),
                            t->members * (pl_deit_pictures(t, t->steps) + test),
                            t->loss_steps ? t->slots[t->slot_of[0]].loss_sum / (double)t->loss_steps
                                          : (double)NAN};
    return t->watch.step && t->watch.step(t->watch.arg, &v);
}

static int anybody_active(const pl_train *t)
{
    for (int64_t i = 0; i < t->members; i++)
        if (pl_deit_slot_active(&t->slots[i])) return 1;
    return 0;
}

/* The row of an epoch whose batches are done, or whose loss is none. */
static pl_epoch_row close_slot(pl_train *t, pl_deit_slot *s)
{
    int whole = !s->lost && s->finite && s->data->counted > 0;
    double top1 = whole ? 100 * (double)s->correct / (double)s->data->counted : (double)NAN;
    int64_t steps = s->lost ? s->lost : t->step, last = t->made * t->steps + steps - 1;
    pl_epoch_row row = {.epoch = t->made + 1,
                        .train_loss = s->loss_sum / (double)steps,
                        .valid = top1,
                        .lr = s->set.optim.lr * pl_schedule_factor(&t->schedule, last)};
    s->top1[t->made] = top1;
    pl_early_stop_step(&s->stop, row.train_loss, -top1);
    row.improved = s->stop.improved;
    return row;
}

static polar_status close_epoch(pl_train *t, pl_epoch_row *rows, int *active)
{
    for (int64_t i = 0; i < t->members; i++) {
        pl_deit_slot *s = &t->slots[t->slot_of[i]];
        if (s->stop.end == PL_END_NOT) rows[i] = close_slot(t, s);
        active[i] = s->stop.end == PL_END_NOT;
    }
    for (int64_t i = 0; i < t->data_count; i++) pl_deit_data_end(&t->data[i]);
    t->made++;
    begin_epoch(t);
    return pl_deit_set_slots(t);
}

static polar_status deit_epoch(pl_train *t, pl_epoch_row *rows, int *active)
{
    const int64_t tests = t->data[0].count[PL_IMAGES_TEST];
    for (int64_t i = 0; i < t->members; i++) /* also where a pause leaves the epoch in its middle */
        active[i] = t->slots[t->slot_of[i]].stop.end == PL_END_NOT;
    while (t->step < t->steps && anybody_active(t)) {
        PL_TRY(pl_deit_train_batch(t));
        if (told_to_pause(t)) return POLAR_OK;
    }
    while (t->tested < tests && anybody_active(t)) {
        PL_TRY(pl_deit_test_batch(t));
        if (told_to_pause(t)) return POLAR_OK;
    }
    for (int64_t i = 0; i < t->members; i++)
        PL_NEED(t->slots[i].data->counted || !pl_deit_slot_active(&t->slots[i]), POLAR_E_FORMAT,
                "not one of %lld test pictures can be read", (long long)tests);
    return close_epoch(t, rows, active);
}

/* ---- results ------------------------------------------------------------------------------------ */

/* Mean top-1 over the last epochs of the schedule; NaN where there are not as many, and of a run that
 * diverged. */
static double last_ten(const pl_deit_slot *s)
{
    double sum = 0;
    if (s->set.epochs < PL_DEIT_LAST) return (double)NAN;
    for (int64_t i = s->set.epochs - PL_DEIT_LAST; i < s->set.epochs; i++) sum += s->top1[i];
    return sum / PL_DEIT_LAST;
}

static polar_status deit_results(pl_train *t, int64_t member, pl_result *out, int max, int *count)
{
    const pl_deit_slot *s = &t->slots[t->slot_of[member]];
    const pl_deit_data *d = s->data;
    PL_NEED(s->stop.end != PL_END_NOT, POLAR_E_STATE, "the run has not ended");
    const pl_result all[] = {
        {"l10", last_ten(s)},
        {"top1", s->top1[s->stop.made - 1]},
        {"best_top1", s->stop.best_epoch ? -s->stop.best : (double)NAN},
        {"best_epoch", (double)s->stop.best_epoch},
        {"epochs", (double)s->stop.made},
        {"diverged", s->stop.end == PL_END_DIVERGED},
        {"train_images", (double)d->count[PL_IMAGES_TRAIN]},
        {"test_images", (double)d->count[PL_IMAGES_TEST]},
        {"classes", (double)d->classes},
        {"skipped", (double)pl_deit_data_skipped(d)},
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
    return pl_deit_save(t->model, t->q, t->slot_of[member], path);
}

const pl_testbed pl_testbed_deit = {
    .schema = &pl_deit_schema,
    .estimate = pl_deit_estimate,
    .shorten = pl_deit_shorten,
    .same_shape = pl_deit_same_shape,
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
