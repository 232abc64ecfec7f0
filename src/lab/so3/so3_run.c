/* so3_run.c -- the SO(3) testbed (lab/testbed.h): an ensemble of runs from its first batch to the test error
 * of its best epoch.
 *
 * An epoch: every whole batch of the epoch's order through forward, backward and step; the validation loss of
 * every run; who improved keeps a copy of his weights on the device; who has had enough (early_stop.h)
 * becomes inactive: his learning rate is 0 from then on and his numbers are nobody's. The schedule runs over
 * train.epochs whether or not a run stops before.
 *     ./polar train so3 --set model.width=8 --set train.epochs=5
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "data/set/epoch_order.h"
#include "lab/so3/so3_train.h"
#include "lab/run/train_optim.h"

/* A run has left the plateau, on which it predicts by the cloud's trace alone, when its validation error is
 * this share below that of least squares on the trace. Two or three standard errors of 256 clouds' mean. */
#define PLATEAU_MARGIN 0.1

/* ---- begin -------------------------------------------------------------------------------------- */

/* Whether one optimiser may serve both: all but lr and decay, which are the members' own. */
static int same_rule(const pl_so3_settings *x, const pl_so3_settings *y)
{
    return pl_train_optim_same(&x->optim, &y->optim) && !strcmp(x->no_decay, y->no_decay);
}

static int alike(const void *settings, int64_t i, int64_t k)
{
    const pl_so3_settings *sets = settings;
    return same_rule(&sets[i], &sets[k]);
}

static void assign_slots(pl_train *t, const pl_config *const *configs, const pl_so3_settings *sets,
                         const uint64_t *seeds)
{
    t->group_count = pl_train_slots(t->slot_of, t->groups, t->members, alike, sets);
    for (int64_t k = 0; k < t->members; k++) {
        pl_so3_slot *s = &t->slots[t->slot_of[k]];
        *s = (pl_so3_slot){.config = configs[k], .set = sets[k], .seed = seeds[k]};
        s->set.batch /= t->leaves.total; /* of a pass */
        pl_leaves_optim(&t->leaves, &s->set.optim);
        s->stop = (pl_early_stop){.patience = sets[k].patience, .epochs = sets[k].epochs};
    }
}

static polar_status take_slots(pl_train *t, const pl_config *const *configs, const uint64_t *seeds)
{
    size_t n = (size_t)t->members;
    t->slots = pl_calloc(n, sizeof *t->slots);
    t->slot_of = pl_calloc(n, sizeof *t->slot_of);
    t->groups = pl_calloc(n, sizeof *t->groups);
    t->data = pl_calloc(n, sizeof *t->data);
    pl_so3_settings *sets = pl_calloc(n, sizeof *sets);
    polar_status st = t->slots && t->slot_of && t->groups && t->data && sets
                          ? POLAR_OK
                          : PL_FAIL(POLAR_E_NOMEM, "an ensemble of %lld runs", (long long)t->members);
    for (int64_t i = 0; i < t->members && st == POLAR_OK; i++) {
        st = pl_so3_settings_read(&sets[i], configs[i]);
        if (st == POLAR_OK && !pl_so3_same_shape(configs[0], configs[i]))
            st = PL_FAIL(POLAR_E_ARG, "runs 0 and %lld have different shapes and cannot be trained together",
                         (long long)i);
    }
    if (st == POLAR_OK) st = pl_leaves_begin(&t->leaves, t->dev, sets[0].leaves, t->members);
    if (st == POLAR_OK) assign_slots(t, configs, sets, seeds);
    pl_free(sets);
    return st;
}

static polar_status make_data(pl_so3_data *d, const pl_so3_settings *s, uint64_t seed)
{
    const int64_t counts[PL_SPLITS] = {s->train, s->valid, s->test};
    d->seed = seed;
    for (int k = 0; k < PL_SPLITS; k++)
        PL_TRY(pl_clouds_create_stretched(&d->split[k], seed, (pl_split)k, counts[k], s->points, s->dtype,
                                          s->anisotropy));
    d->order = pl_calloc((size_t)s->train, sizeof *d->order);
    PL_NEED(d->order, POLAR_E_NOMEM, "the order of %lld clouds", (long long)s->train);
    pl_cloud_baseline valid;
    PL_TRY(pl_cloud_baseline_measure(&valid, &d->split[PL_SPLIT_TRAIN], &d->split[PL_SPLIT_VALID]));
    d->plateau = (1 - PLATEAU_MARGIN) * valid.trace_mse;
    return pl_cloud_baseline_measure(&d->baseline, &d->split[PL_SPLIT_TRAIN], &d->split[PL_SPLIT_TEST]);
}

/* One set of clouds per seed, whatever the number of arms. */
static polar_status take_data(pl_train *t)
{
    for (int64_t i = 0; i < t->members; i++) {
        pl_so3_slot *s = &t->slots[i];
        for (int64_t k = 0; k < t->data_count && !s->data; k++)
            if (t->data[k].seed == s->seed) s->data = &t->data[k];
        if (s->data) continue;
        s->data = &t->data[t->data_count++];
        PL_TRY(make_data(s->data, &s->set, s->seed));
    }
    return POLAR_OK;
}

static polar_status take_model(pl_train *t)
{
    const pl_so3_settings *s = &t->slots[0].set;
    pl_so3_shape shape = {.members = t->members,
                          .batch = s->batch,
                          .points = s->points,
                          .width = s->width,
                          .layers = s->layers,
                          .dtype = s->dtype,
                          .eps = s->eps,
                          .message = s->message,
                          .linear_gate = s->linear_gate,
                          .scalars_only = s->scalars_only,
                          .tf32 = s->tf32};
    uint64_t *seeds = pl_alloc((size_t)t->members * sizeof *seeds);
    PL_NEED(seeds, POLAR_E_NOMEM, "the seeds of %lld runs", (long long)t->members);
    for (int64_t i = 0; i < t->members; i++) seeds[i] = t->slots[i].seed;
    polar_status st = pl_so3_create(&t->model, t->dev, &shape, 1);
    if (st == POLAR_OK) st = pl_so3_init(t->model, t->q, seeds);
    pl_free(seeds);
    if (st != POLAR_OK) return st;
    t->params = pl_so3_params(t->model, &t->param_count);
    t->rotations = pl_so3_turned_rotations(t) + pl_so3_shadow_rotations(t);
    PL_TRY(pl_so3_turned_create(t));
    t->best = pl_calloc((size_t)t->param_count, sizeof *t->best);
    PL_NEED(t->best, POLAR_E_NOMEM, "the weights of the best epoch");
    for (int64_t i = 0; i < t->param_count; i++) {
        const pl_mat *W = &t->params[i].W;
        PL_TRY(pl_mat_alloc(&t->best[i], t->dev, W->dtype, W->batch, W->rows, W->cols));
        PL_CALL(copy, t->q, .Y = t->best[i], .X = *W);
    }
    return POLAR_OK;
}

static polar_status set_member(pl_train *t, const pl_train_group *g, int64_t slot)
{
    const pl_so3_settings *s = &t->slots[slot].set;
    double factor = s->schedule.unit > 1 ? pl_schedule_factor(&s->schedule, t->made * s->steps) : 1;
    return pl_train_optim_set_member(g->opt, slot - g->first, &s->optim, factor,
                                     t->slots[slot].stop.end == PL_END_NOT);
}

static polar_status take_optimiser(pl_train *t, pl_train_group *g)
{
    const pl_so3_settings *s = &t->slots[g->first].set;
    PL_TRY(pl_train_optim_create(&g->opt, t->dev, t->params, t->param_count, g->first, g->count, &s->optim,
                                 &(pl_train_routes){"", s->no_decay}));
    pl_grads_watch watch = pl_leaves_watch(&t->leaves, g->opt);
    if (!t->turn_count) pl_so3_watch_grads(t->model, watch); /* turned ones are finished at the end */
    for (int64_t i = g->first; i < g->first + g->count; i++) PL_TRY(set_member(t, g, i));
    return POLAR_OK;
}

static void so3_end(pl_train *t)
{
    if (!t) return;
    if (t->q) (void)polar_queue_sync(t->q); /* nothing may still use what is freed now */
    for (int64_t i = 0; i < t->group_count; i++) polar_optim_destroy(t->groups[i].opt);
    for (int64_t i = 0; t->slots && i < t->members; i++) pl_so3_shadow_destroy(&t->slots[i]);
    for (int64_t i = 0; i < t->data_count; i++) {
        for (int k = 0; k < PL_SPLITS; k++) pl_clouds_destroy(&t->data[i].split[k]);
        pl_free(t->data[i].order);
    }
    for (int64_t i = 0; t->best && i < t->param_count; i++) pl_mat_free(&t->best[i], t->dev);
    pl_so3_batch_destroy(t);
    pl_so3_turned_destroy(t);
    pl_so3_destroy(t->model);
    polar_queue_destroy(t->q);
    pl_leaves_end(&t->leaves);
    pl_free(t->best);
    pl_free(t->disturbed);
    pl_free(t->before);
    pl_free(t->update);
    pl_free(t->slots);
    pl_free(t->slot_of);
    pl_free(t->groups);
    pl_free(t->data);
    pl_free(t);
}

int pl_so3_rotation_drawn(void *arg)
{
    pl_train *t = arg;
    const pl_step_view v = {"rotations", ++t->drawn, t->rotations, (double)NAN};
    return t->begins && t->begins->step && t->begins->step(t->begins->arg, &v);
}

static polar_status fill(pl_train *t, const pl_config *const *configs, const uint64_t *seeds)
{
    PL_TRY(polar_queue_create(&t->q, t->dev, NULL));
    PL_TRY(take_slots(t, configs, seeds));
    PL_TRY(take_data(t));
    PL_TRY(take_model(t));
    for (int64_t i = 0; i < t->group_count; i++) PL_TRY(take_optimiser(t, &t->groups[i]));
    PL_TRY(pl_so3_batch_create(t));
    for (int64_t i = 0; i < t->members; i++) PL_TRY(pl_so3_shadow_create(t, &t->slots[i]));
    return polar_queue_sync(t->q);
}

static polar_status so3_begin(pl_train **out, polar_device *dev, const pl_config *const *configs,
                              const uint64_t *seeds, int64_t members, const pl_step_watch *w)
{
    *out = NULL;
    PL_NEED(members >= 1, POLAR_E_ARG, "an ensemble of %lld runs", (long long)members);
    pl_train *t = pl_calloc(1, sizeof *t);
    PL_NEED(t, POLAR_E_NOMEM, "an ensemble of %lld runs", (long long)members);
    t->dev = dev;
    t->members = members;
    t->begins = w; /* clouds are drawn in no time, rotations are not */
    polar_status st = fill(t, configs, seeds);
    t->begins = NULL;
    if (st != POLAR_OK) {
        so3_end(t);
        return st;
    }
    *out = t;
    return POLAR_OK;
}

/* ---- epochs ------------------------------------------------------------------------------------- */

static void so3_where(const pl_train *t, int64_t *epochs, int *active)
{
    for (int64_t i = 0; i < t->members; i++) {
        const pl_early_stop *s = &t->slots[t->slot_of[i]].stop;
        epochs[i] = s->made;
        active[i] = s->end == PL_END_NOT;
    }
}

static int group_active(const pl_train *t, const pl_train_group *g)
{
    for (int64_t i = g->first; i < g->first + g->count; i++)
        if (t->slots[i].stop.end == PL_END_NOT) return 1;
    return 0;
}

static polar_status train_epoch(pl_train *t)
{
    const pl_so3_settings *s = &t->slots[0].set;
    for (int64_t i = 0; i < t->data_count; i++)
        PL_TRY(pl_epoch_order(t->data[i].order, s->train, t->data[i].seed, t->made));
    for (int64_t step = 0; step < s->steps; step++) {
        PL_TRY((t->leaves.total > 1 ? pl_so3_train_leaves : pl_so3_train_step)(t, step));
        for (int64_t i = 0; i < t->members; i++)
            PL_TRY(pl_so3_shadow_step(t, &t->slots[i], t->made * s->steps + step + 1));
        PL_TRY(pl_so3_disturb_begin(t));
        for (int64_t i = 0; i < t->group_count; i++)
            if (group_active(t, &t->groups[i])) PL_TRY(polar_optim_step(t->groups[i].opt, t->q));
        PL_TRY(pl_so3_disturb_end(t, t->made * s->steps + step + 1));
    }
    return pl_so3_losses(t);
}

/* dst <- src for slots [first, first + count) of every parameter; back: the best ones become the model's. */
static void copy_slots(pl_train *t, int64_t first, int64_t count, int back)
{
    for (int64_t i = 0; i < t->param_count; i++) {
        pl_mat W = pl_mat_at(t->params[i].W, first, count), best = pl_mat_at(t->best[i], first, count);
        PL_CALL(copy, t->q, .Y = back ? W : best, .X = back ? best : W);
    }
}

/* The epoch's losses of a slot, and what follows from them. */
static pl_epoch_row close_epoch(pl_train *t, pl_so3_slot *s, double valid)
{
    int64_t slot = s - t->slots, last = t->made * s->set.steps - 1;
    double sum = 0;
    for (int64_t k = 0; k < s->set.steps; k++) sum += t->losses[k * t->members + slot];
    pl_epoch_row row = {.epoch = t->made,
                        .train_loss = sum / (double)s->set.steps,
                        .valid = valid,
                        .lr = s->set.optim.lr * pl_schedule_factor(&s->set.schedule, last)};
    pl_early_stop_step(&s->stop, row.train_loss, valid);
    if (!s->plateau_epoch && valid < s->data->plateau) s->plateau_epoch = row.epoch;
    row.improved = s->stop.improved;
    return row;
}

static polar_status so3_epoch(pl_train *t, pl_epoch_row *rows, int *active)
{
    double *valid = pl_alloc((size_t)t->members * sizeof *valid);
    PL_NEED(valid, POLAR_E_NOMEM, "the losses of %lld runs", (long long)t->members);
    polar_status st = train_epoch(t);
    if (st == POLAR_OK) st = pl_so3_evaluate(valid, t, PL_SPLIT_VALID);
    if (st == POLAR_OK) {
        t->made++;
        for (int64_t i = 0; i < t->members; i++) {
            pl_so3_slot *s = &t->slots[t->slot_of[i]];
            if (s->stop.end != PL_END_NOT) s->stop.improved = 0;
            else rows[i] = close_epoch(t, s, valid[t->slot_of[i]]);
            active[i] = s->stop.end == PL_END_NOT;
        }
        for (int64_t i = 0, n; i < t->members; i += n) { /* neighbours who improved in one copy */
            for (n = 0; i + n < t->members && t->slots[i + n].stop.improved; n++) t->slots[i + n].tested = 0;
            if (n) copy_slots(t, i, n, 0);
            n += !n;
        }
        /* who diverged goes on with finite weights: others would wait for what kernels do about NaN */
        for (int64_t i = 0; i < t->members; i++)
            if (t->slots[i].stop.end == PL_END_DIVERGED && t->slots[i].stop.made == t->made)
                copy_slots(t, i, 1, 1);
    }
    for (int64_t g = 0; g < t->group_count && st == POLAR_OK; g++)
        for (int64_t i = 0; i < t->groups[g].count && st == POLAR_OK; i++)
            st = set_member(t, &t->groups[g], t->groups[g].first + i);
    if (st == POLAR_OK) st = polar_queue_sync(t->q);
    pl_free(valid);
    return st;
}

/* ---- results ------------------------------------------------------------------------------------ */

/* Test errors of all that have ended and were not tested yet: their best weights take the place of the last
 * ones, which nobody needs any more. */
static polar_status test_ended(pl_train *t)
{
    double *mse = pl_alloc((size_t)t->members * sizeof *mse);
    PL_NEED(mse, POLAR_E_NOMEM, "the errors of %lld runs", (long long)t->members);
    for (int64_t i = 0; i < t->members; i++)
        if (t->slots[i].stop.end != PL_END_NOT && !t->slots[i].tested) copy_slots(t, i, 1, 1);
    polar_status st = pl_so3_evaluate(mse, t, PL_SPLIT_TEST);
    for (int64_t i = 0; i < t->members && st == POLAR_OK; i++) {
        pl_so3_slot *s = &t->slots[i];
        if (s->stop.end == PL_END_NOT || s->tested) continue;
        s->tested = 1;
        s->test_mse = s->stop.end == PL_END_DIVERGED ? NAN : mse[i];
    }
    pl_free(mse);
    return st;
}

static polar_status so3_results(pl_train *t, int64_t member, pl_result *out, int max, int *count)
{
    pl_so3_slot *s = &t->slots[t->slot_of[member]];
    PL_NEED(s->stop.end != PL_END_NOT, POLAR_E_STATE, "run %lld of the ensemble has not ended",
            (long long)member);
    if (!s->tested) PL_TRY(test_ended(t));
    const pl_result all[] = {
        {"test_mse", s->test_mse}, /* at the best epoch; NaN of a run that diverged */
        {"best_valid", s->stop.best_epoch ? s->stop.best : NAN},
        {"best_epoch", (double)s->stop.best_epoch},
        {"epochs", (double)s->stop.made},
        {"plateau_epoch", s->plateau_epoch > 0 ? (double)s->plateau_epoch : NAN},
        {"stopped_early", s->stop.end == PL_END_PATIENCE},
        {"diverged", s->stop.end == PL_END_DIVERGED},
        {"trace_mse", s->data->baseline.trace_mse},
        {"trace_anisotropy_mse", s->data->baseline.trace_anisotropy_mse},
    };
    int n = (int)(sizeof all / sizeof *all);
    PL_NEED(max >= n, POLAR_E_ARG, "room for %d results, there are %d", max, n);
    memcpy(out, all, sizeof all);
    *count = n;
    return POLAR_OK;
}

const pl_testbed pl_testbed_so3 = {
    .schema = &pl_so3_schema,
    .estimate = pl_so3_estimate,
    .shorten = pl_so3_shorten,
    .same_shape = pl_so3_same_shape,
    .begin = so3_begin,
    .where = so3_where,
    .epoch = so3_epoch,
    .save = pl_so3_save,
    .load = pl_so3_load,
    .results = so3_results,
    .gauge = pl_so3_shadow_take,
    .weights = pl_so3_weights,
    .end = so3_end,
};
