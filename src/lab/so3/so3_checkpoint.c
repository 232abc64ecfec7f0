/* so3_checkpoint.c -- an ensemble in one safetensors file (train_state.h), and a member's best weights in
 * another.
 *
 *     weight.NAME, best.NAME       (members, rows, cols) in the run's format, slot by slot
 *     optim<g>.NAME.m, ...         the state of the optimiser of group g (optim_state.h), and its
 *         metadata under the same prefix
 *     shadow<s>.NAME.m, ...        the moments of slot s's gauge shadows
 *     slots.best                   (members) F64: the best validation loss
 *     slots.count                  (members, 3) I64: epochs made, best epoch, how it ended and, times
 *         END_RADIX, the epoch that left the plateau (0: none, or from before it was looked for)
 *
 * The runs of the metadata are in the order of the slots, its epochs those made by the slots still active.
 * Rows of deviations that were not yet handed out are not part of the file: take them before saving.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/safetensors.h"
#include "lab/so3/so3_train.h"
#include "lab/run/train_state.h"

#define MADE_BY "so3 2"
#define OLDER   "so3 1" /* the same without a checksum */

enum { COUNTS = 3, END_RADIX = 16 }; /* numbers of a slot in slots.count; more than there are ends */

typedef struct slots_image {
    double *best;
    int64_t *counts;
} slots_image;

/* Everything of the ensemble that a file holds; the slots' numbers by way of im. */
static polar_status list_state(pl_state *s, slots_image *im, pl_train *t)
{
    PL_TRY(pl_state_create(s, MADE_BY, 2 * t->param_count + 2, t->group_count + t->members, t->members));
    s->older = OLDER;
    im->best = pl_calloc((size_t)t->members, sizeof *im->best);
    im->counts = pl_calloc((size_t)t->members, COUNTS * sizeof *im->counts);
    PL_NEED(im->best && im->counts, POLAR_E_NOMEM, "a checkpoint of %lld runs", (long long)t->members);
    for (int64_t i = 0; i < t->members; i++)
        PL_TRY(pl_state_add_run(s, t->slots[i].config, t->slots[i].seed));
    for (int64_t i = 0; i < t->param_count; i++) {
        pl_state_add_mat(s, t->params[i].W, "weight.%s", t->params[i].name);
        pl_state_add_mat(s, t->best[i], "best.%s", t->params[i].name);
    }
    pl_state_add_reals(s, im->best, t->members, 0, "slots.best");
    pl_state_add_counts(s, im->counts, t->members, COUNTS, "slots.count");
    pl_state_add_groups(s, t->groups, t->group_count);
    for (int64_t i = 0; i < t->members; i++)
        if (t->slots[i].shadow) pl_state_add_own(s, pl_gauge_shadow_optim(t->slots[i].shadow), i, "shadow");
    return POLAR_OK;
}

static void drop_state(pl_state *s, slots_image *im)
{
    pl_state_destroy(s);
    pl_free(im->best);
    pl_free(im->counts);
}

polar_status pl_so3_save(pl_train *t, const char *path)
{
    pl_state s = {0};
    slots_image im = {0};
    polar_status st = list_state(&s, &im, t);
    for (int64_t i = 0; i < t->members && st == POLAR_OK; i++) {
        const pl_early_stop *e = &t->slots[i].stop;
        int64_t left = t->slots[i].plateau_epoch > 0 ? t->slots[i].plateau_epoch : 0;
        const int64_t counts[COUNTS] = {e->made, e->best_epoch, e->end + END_RADIX * left};
        im.best[i] = e->best;
        memcpy(im.counts + COUNTS * i, counts, sizeof counts);
    }
    s.made = t->made;
    if (st == POLAR_OK) st = pl_state_save(&s, t->q, path);
    drop_state(&s, &im);
    return st;
}

/* The slots' counters: what a run of ours could have left. */
static polar_status check_slots(const slots_image *im, const pl_state *s, const pl_train *t, const char *path)
{
    for (int64_t i = 0; i < t->members; i++) {
        const int64_t *c = im->counts + COUNTS * i;
        int64_t end = c[2] % END_RADIX, left = c[2] / END_RADIX;
        int possible = c[0] >= 0 && c[0] <= t->slots[i].stop.epochs && c[1] >= 0 && c[1] <= c[0] &&
                       end >= PL_END_NOT && end <= PL_END_DIVERGED && left >= 0 && left <= c[0] &&
                       (end == PL_END_NOT ? c[0] == s->made : c[0] <= s->made);
        PL_NEED(possible, POLAR_E_FORMAT, "'%s': the counters of run %lld make no sense", path, (long long)i);
    }
    return POLAR_OK;
}

static void set_slots(pl_train *t, const slots_image *im)
{
    for (int64_t i = 0; i < t->members; i++) {
        pl_so3_slot *slot = &t->slots[i];
        const int64_t *c = im->counts + COUNTS * i;
        slot->stop.made = c[0];
        slot->stop.best_epoch = c[1];
        slot->stop.end = (pl_end)(c[2] % END_RADIX);
        slot->stop.best = im->best[i];
        slot->plateau_epoch = c[2] / END_RADIX;
        /* it has left, nobody noted when */
        if (!slot->plateau_epoch && c[1] && im->best[i] < slot->data->plateau) slot->plateau_epoch = -1;
        slot->stop.improved = 0;
        slot->tested = 0;
        slot->taken = slot->count = 0;
    }
}

polar_status pl_so3_load(pl_train *t, const char *path)
{
    pl_state s = {0};
    slots_image im = {0};
    pl_state_file *f = NULL;
    polar_status st = list_state(&s, &im, t);
    if (st == POLAR_OK) st = pl_state_open(&f, &s, path);
    if (st == POLAR_OK) st = check_slots(&im, &s, t, path);
    if (st == POLAR_OK) st = pl_state_apply(f, &s, t->q);
    if (st == POLAR_OK) {
        t->before_good = 0;
        set_slots(t, &im);
        t->made = s.made;
    }
    pl_state_close(f);
    drop_state(&s, &im);
    return st;
}

/* ---- a member's best weights -------------------------------------------------------------------- */

polar_status pl_so3_weights(pl_train *t, int64_t member, const char *path)
{
    int64_t slot = t->slot_of[member];
    char id[PL_RUN_ID_CHARS], epoch[32];
    size_t size = 1;
    PL_NEED(t->slots[slot].stop.best_epoch, POLAR_E_STATE,
            "run %lld has no best epoch: none had a finite validation loss yet", (long long)member);
    PL_TRY(pl_config_run_id(id, t->slots[slot].config, (int64_t)t->slots[slot].seed));
    snprintf(epoch, sizeof epoch, "%" PRId64, t->slots[slot].stop.best_epoch);
    const pl_safetensors_meta meta[] = {
        {"polar.weights", "so3 1"}, {"polar.run", id}, {"polar.best_epoch", epoch}};
    for (int64_t i = 0; i < t->param_count; i++) size += pl_mat_bytes(&t->best[i]) / (size_t)t->members;
    pl_safetensors_entry *entries = pl_calloc((size_t)t->param_count, sizeof *entries);
    char *bytes = pl_alloc(size), *at = bytes;
    polar_status st =
        entries && bytes ? POLAR_OK : PL_FAIL(POLAR_E_NOMEM, "a copy of %zu bytes of weights", size);
    pl_scratch_mark mark = pl_scratch_begin(t->q);
    for (int64_t i = 0; i < t->param_count && st == POLAR_OK; i++) {
        const pl_param *p = &t->params[i];
        pl_mat m = pl_so3_turned_back(t, t->q, i, pl_mat_at(t->best[i], slot, 1));
        int two = p->ndim == 2;
        entries[i] = (pl_safetensors_entry){.name = p->name,
                                            .dtype = (int)m.dtype,
                                            .ndim = p->ndim,
                                            .shape = {two ? p->rows : p->cols, two ? p->cols : 0},
                                            .data = at,
                                            .bytes = (int64_t)pl_mat_bytes(&m)};
        polar_queue_download(t->q, at, m.data, pl_mat_bytes(&m));
        at += pl_mat_bytes(&m);
    }
    pl_scratch_end(t->q, mark);
    if (st == POLAR_OK) st = polar_queue_sync(t->q);
    if (st == POLAR_OK)
        st = pl_safetensors_write(path, entries, t->param_count, meta, (int64_t)(sizeof meta / sizeof *meta));
    pl_free(entries);
    pl_free(bytes);
    return st;
}
