/* so3_checkpoint.c -- an ensemble in one safetensors file, and a member's best weights in another.
 *
 *     weight.NAME, best.NAME       (members, rows, cols) in the run's format, slot by slot
 *     optim<g>.NAME.m, ...         the state of the optimiser of group g (optim_state.h), and its metadata under the same prefix
 *     shadow<s>.NAME.m, ...        the moments of slot s's gauge shadows
 *     slots.best                   (members) F64: the best validation loss
 *     slots.count                  (members, 3) I64: epochs made, best epoch, how it ended
 *     metadata                     polar.checkpoint "so3 1"; polar.runs: the run ids slot by slot; polar.epochs: made by those still active
 *
 * A file of other runs is known by its ids; half a file cannot be read as safetensors. All of it is checked before any of it reaches the device.
 * Rows of deviations that were not yet handed out are not part of it: take them before saving.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/safetensors.h"
#include "lab/so3_train.h"
#include "optim/optim_state.h"

#define MADE_BY     "so3 1"
#define ENTRY_BYTES (PL_PARAM_NAME + 16)    /* a tensor's name */

enum { COUNTS = 3 };                        /* numbers of a slot in slots.count */

/* Every optimiser of the ensemble, groups first, then shadows; NULL past the end. */
static polar_optim *optimiser_at(pl_train *t, int64_t i, char prefix[PL_OPTIM_PREFIX_MAX])
{
    if (i < t->group_count) {
        snprintf(prefix, PL_OPTIM_PREFIX_MAX, "optim%" PRId64 ".", i);
        return t->groups[i].opt;
    }
    i -= t->group_count;
    for (int64_t s = 0; s < t->members; s++) {
        if (!t->slots[s].shadow || i--) continue;
        snprintf(prefix, PL_OPTIM_PREFIX_MAX, "shadow%" PRId64 ".", s);
        return pl_gauge_shadow_optim(t->slots[s].shadow);
    }
    return NULL;
}

static polar_status run_ids(char **out, const pl_train *t)
{
    *out = pl_calloc((size_t)t->members, PL_RUN_ID_CHARS);
    PL_NEED(*out, POLAR_E_NOMEM, "the ids of %lld runs", (long long)t->members);
    char *at = *out;
    for (int64_t i = 0; i < t->members; i++) {
        PL_TRY(pl_config_run_id(at, t->slots[i].config, (int64_t)t->slots[i].seed));
        at += PL_RUN_ID_CHARS - 1;
        if (i + 1 < t->members) *at++ = ' ';
    }
    return POLAR_OK;
}

/* ---- a file in the making ------------------------------------------------------------------------------ */

typedef struct image {
    pl_optim_image      **optims;
    int64_t               optim_count, entry_count, meta_count;
    pl_safetensors_entry *entries;
    pl_safetensors_meta  *meta;
    char                 *names, *bytes, *ids;
    double               *best;
    int64_t              *counts;
} image;

static void image_free(image *im)
{
    for (int64_t i = 0; im->optims && i < im->optim_count; i++) pl_optim_image_free(im->optims[i]);
    void *all[] = {im->optims, im->entries, im->meta, im->names, im->bytes, im->ids, im->best, im->counts};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) pl_free(all[i]);
}

static int64_t count_optimisers(pl_train *t)
{
    char prefix[PL_OPTIM_PREFIX_MAX];
    int64_t n = 0;
    while (optimiser_at(t, n, prefix)) n++;
    return n;
}

static polar_status take_room(image *im, pl_train *t)
{
    size_t bytes = 1;
    int64_t entries = 2 * t->param_count + 2;
    for (int64_t i = 0; i < t->param_count; i++) bytes += 2 * pl_mat_bytes(&t->best[i]);
    for (int64_t i = 0; i < im->optim_count; i++) entries += im->optims[i]->entry_count;
    im->entries = pl_calloc((size_t)entries, sizeof *im->entries);
    im->meta = pl_calloc((size_t)(3 + PL_OPTIM_META * im->optim_count), sizeof *im->meta);
    im->names = pl_calloc((size_t)t->param_count, 2 * ENTRY_BYTES);
    im->bytes = pl_alloc(bytes);
    im->best = pl_calloc((size_t)t->members, sizeof *im->best);
    im->counts = pl_calloc((size_t)t->members, COUNTS * sizeof *im->counts);
    PL_NEED(im->entries && im->meta && im->names && im->bytes && im->best && im->counts, POLAR_E_NOMEM, "a checkpoint of %zu bytes", bytes);
    return POLAR_OK;
}

/* Weights and best weights, copied off the device; filled after the next synchronisation. */
static void put_weights(image *im, pl_train *t)
{
    char *name = im->names, *bytes = im->bytes;
    for (int64_t i = 0; i < 2 * t->param_count; i++) {
        const pl_param *p = &t->params[i / 2];
        const pl_mat *m = i % 2 ? &t->best[i / 2] : &p->W;
        snprintf(name, ENTRY_BYTES, "%s.%s", i % 2 ? "best" : "weight", p->name);
        im->entries[im->entry_count++] =
            (pl_safetensors_entry){.name = name, .dtype = (int)m->dtype, .ndim = 3, .shape = {m->batch, m->rows, m->cols}, .data = bytes, .bytes = (int64_t)pl_mat_bytes(m)};
        polar_queue_download(t->q, bytes, m->data, pl_mat_bytes(m));
        name += ENTRY_BYTES;
        bytes += pl_mat_bytes(m);
    }
}

static void put_slots(image *im, const pl_train *t)
{
    for (int64_t i = 0; i < t->members; i++) {
        const pl_early_stop *s = &t->slots[i].stop;
        const int64_t counts[COUNTS] = {s->made, s->best_epoch, s->end};
        im->best[i] = s->best;
        memcpy(im->counts + COUNTS * i, counts, sizeof counts);
    }
    im->entries[im->entry_count++] =
        (pl_safetensors_entry){.name = "slots.best", .dtype = POLAR_DTYPE_F64, .ndim = 1, .shape = {t->members}, .data = im->best, .bytes = t->members * (int64_t)sizeof *im->best};
    im->entries[im->entry_count++] = (pl_safetensors_entry){.name = "slots.count", .dtype_name = "I64", .ndim = 2, .shape = {t->members, COUNTS}, .data = im->counts,
                                                            .bytes = t->members * COUNTS * (int64_t)sizeof *im->counts};
}

static polar_status save(image *im, pl_train *t, const char *path)
{
    char prefix[PL_OPTIM_PREFIX_MAX], epochs[32];
    im->optim_count = count_optimisers(t);
    im->optims = pl_calloc((size_t)im->optim_count, sizeof *im->optims);
    PL_NEED(im->optims, POLAR_E_NOMEM, "a list of optimisers");
    for (int64_t i = 0; i < im->optim_count; i++) {
        polar_optim *opt = optimiser_at(t, i, prefix);
        PL_TRY(pl_optim_image_take(&im->optims[i], opt, t->q, prefix));
    }
    PL_TRY(take_room(im, t));
    PL_TRY(run_ids(&im->ids, t));
    put_weights(im, t);
    PL_TRY(polar_queue_sync(t->q));
    put_slots(im, t);
    snprintf(epochs, sizeof epochs, "%" PRId64, t->made);
    im->meta[im->meta_count++] = (pl_safetensors_meta){"polar.checkpoint", MADE_BY};
    im->meta[im->meta_count++] = (pl_safetensors_meta){"polar.runs", im->ids};
    im->meta[im->meta_count++] = (pl_safetensors_meta){"polar.epochs", epochs};
    for (int64_t i = 0; i < im->optim_count; i++) {
        const pl_optim_image *o = im->optims[i];
        if (o->entry_count) memcpy(im->entries + im->entry_count, o->entries, (size_t)o->entry_count * sizeof *o->entries);
        memcpy(im->meta + im->meta_count, o->meta, sizeof o->meta);
        im->entry_count += o->entry_count;
        im->meta_count += PL_OPTIM_META;
    }
    return pl_safetensors_write(path, im->entries, im->entry_count, im->meta, im->meta_count);
}

polar_status pl_so3_save(pl_train *t, const char *path)
{
    image im = {0};
    polar_status st = save(&im, t, path);
    if (st != POLAR_OK) (void)polar_queue_sync(t->q);    /* no download may arrive in what is freed now */
    image_free(&im);
    return st;
}

/* ---- reading ------------------------------------------------------------------------------------------- */

static polar_status check_origin(const pl_safetensors *f, const pl_train *t, const char *path)
{
    const char *made_by = pl_safetensors_meta_find(f, "polar.checkpoint"), *runs = pl_safetensors_meta_find(f, "polar.runs");
    char *ids = NULL;
    PL_NEED(made_by && runs, POLAR_E_FORMAT, "'%s' is no checkpoint", path);
    PL_NEED(!strcmp(made_by, MADE_BY), POLAR_E_FORMAT, "'%s' is a checkpoint of another kind than '" MADE_BY "'", path);
    polar_status st = run_ids(&ids, t);
    if (st == POLAR_OK && strcmp(ids, runs)) st = PL_FAIL(POLAR_E_FORMAT, "'%s' is the checkpoint of other runs", path);
    pl_free(ids);
    return st;
}

static polar_status find_tensor(const pl_safetensors_entry **out, const pl_safetensors *f, const char *path, const char *name, int dtype, const int64_t *shape, int ndim)
{
    const pl_safetensors_entry *e = pl_safetensors_find(f, name);
    PL_NEED(e, POLAR_E_FORMAT, "'%s' has no '%s'", path, name);
    int same = e->ndim == ndim && (dtype >= 0 ? e->dtype == dtype : !strcmp(e->dtype_name, "I64"));
    for (int i = 0; same && i < ndim; i++) same = e->shape[i] == shape[i];
    PL_NEED(same, POLAR_E_FORMAT, "'%s': '%s' has another shape or number format than here", path, name);
    *out = e;
    return POLAR_OK;
}

static polar_status weight_tensor(const pl_safetensors_entry **out, const pl_train *t, const pl_safetensors *f, const char *path, int64_t i, int best)
{
    const pl_mat *m = &t->best[i];
    char name[ENTRY_BYTES];
    snprintf(name, sizeof name, "%s.%s", best ? "best" : "weight", t->params[i].name);
    return find_tensor(out, f, path, name, (int)m->dtype, (const int64_t[]){m->batch, m->rows, m->cols}, 3);
}

/* The slots' counters, checked: what a run of ours could have left. */
static polar_status read_slots(pl_early_stop *out, int64_t *made, const pl_safetensors *f, const pl_train *t, const char *path)
{
    const pl_safetensors_entry *best, *counts;
    const char *epochs = pl_safetensors_meta_find(f, "polar.epochs");
    PL_TRY(find_tensor(&best, f, path, "slots.best", POLAR_DTYPE_F64, (const int64_t[]){t->members}, 1));
    PL_TRY(find_tensor(&counts, f, path, "slots.count", -1, (const int64_t[]){t->members, COUNTS}, 2));
    PL_NEED(epochs && *epochs && !epochs[strspn(epochs, "0123456789")], POLAR_E_FORMAT, "'%s' does not say how many epochs were made", path);
    *made = strtoll(epochs, NULL, 10);
    for (int64_t i = 0; i < t->members; i++) {
        const int64_t *c = (const int64_t *)counts->data + COUNTS * i;
        out[i] = t->slots[i].stop;
        int possible = c[0] >= 0 && c[0] <= out[i].epochs && c[1] >= 0 && c[1] <= c[0] && c[2] >= PL_END_NOT && c[2] <= PL_END_DIVERGED && (c[2] == PL_END_NOT ? c[0] == *made : c[0] <= *made);
        PL_NEED(possible, POLAR_E_FORMAT, "'%s': the counters of run %lld make no sense", path, (long long)i);
        out[i].made = c[0];
        out[i].best_epoch = c[1];
        out[i].end = (pl_end)c[2];
        out[i].best = ((const double *)best->data)[i];
        out[i].improved = 0;
    }
    return POLAR_OK;
}

static polar_status load(image *im, pl_early_stop *stops, pl_train *t, const pl_safetensors *f, const char *path)
{
    char prefix[PL_OPTIM_PREFIX_MAX];
    const pl_safetensors_entry *e;
    int64_t made = 0;
    PL_TRY(check_origin(f, t, path));
    PL_TRY(read_slots(stops, &made, f, t, path));
    for (int64_t i = 0; i < 2 * t->param_count; i++) PL_TRY(weight_tensor(&e, t, f, path, i / 2, i % 2));
    for (int64_t i = 0; i < im->optim_count; i++) {
        polar_optim *opt = optimiser_at(t, i, prefix);
        PL_TRY(pl_optim_image_read(&im->optims[i], opt, f, path, prefix));
    }
    for (int64_t i = 0; i < 2 * t->param_count; i++) {
        PL_TRY(weight_tensor(&e, t, f, path, i / 2, i % 2));
        polar_queue_upload(t->q, i % 2 ? t->best[i / 2].data : t->params[i / 2].W.data, e->data, (size_t)e->bytes);
    }
    for (int64_t i = 0; i < im->optim_count; i++) PL_TRY(pl_optim_image_apply(im->optims[i], optimiser_at(t, i, prefix), t->q));
    for (int64_t i = 0; i < t->members; i++) {
        t->slots[i].stop = stops[i];
        t->slots[i].tested = 0;
        t->slots[i].taken = t->slots[i].count = 0;
    }
    t->made = made;
    return polar_queue_sync(t->q);
}

polar_status pl_so3_load(pl_train *t, const char *path)
{
    pl_safetensors *f;
    image im = {.optim_count = count_optimisers(t)};
    PL_TRY(pl_safetensors_open(&f, path));
    im.optims = pl_calloc((size_t)im.optim_count, sizeof *im.optims);
    pl_early_stop *stops = pl_calloc((size_t)t->members, sizeof *stops);
    polar_status st = im.optims && stops ? load(&im, stops, t, f, path) : PL_FAIL(POLAR_E_NOMEM, "a checkpoint of %lld runs", (long long)t->members);
    pl_free(stops);
    image_free(&im);
    pl_safetensors_close(f);
    return st;
}

/* ---- a member's best weights ------------------------------------------------------------------------------ */

polar_status pl_so3_weights(pl_train *t, int64_t member, const char *path)
{
    int64_t slot = t->slot_of[member];
    char id[PL_RUN_ID_CHARS], epoch[32];
    size_t size = 1;
    PL_NEED(t->slots[slot].stop.best_epoch, POLAR_E_STATE, "run %lld has no best epoch: none had a finite validation loss yet", (long long)member);
    PL_TRY(pl_config_run_id(id, t->slots[slot].config, (int64_t)t->slots[slot].seed));
    snprintf(epoch, sizeof epoch, "%" PRId64, t->slots[slot].stop.best_epoch);
    const pl_safetensors_meta meta[] = {{"polar.weights", MADE_BY}, {"polar.run", id}, {"polar.best_epoch", epoch}};
    for (int64_t i = 0; i < t->param_count; i++) size += pl_mat_bytes(&t->best[i]) / (size_t)t->members;
    pl_safetensors_entry *entries = pl_calloc((size_t)t->param_count, sizeof *entries);
    char *bytes = pl_alloc(size), *at = bytes;
    polar_status st = entries && bytes ? POLAR_OK : PL_FAIL(POLAR_E_NOMEM, "a copy of %zu bytes of weights", size);
    for (int64_t i = 0; i < t->param_count && st == POLAR_OK; i++) {
        const pl_param *p = &t->params[i];
        pl_mat m = pl_mat_at(t->best[i], slot, 1);
        int two = p->ndim == 2;
        entries[i] = (pl_safetensors_entry){.name = p->name, .dtype = (int)m.dtype, .ndim = p->ndim, .shape = {two ? p->rows : p->cols, two ? p->cols : 0}, .data = at, .bytes = (int64_t)pl_mat_bytes(&m)};
        polar_queue_download(t->q, at, m.data, pl_mat_bytes(&m));
        at += pl_mat_bytes(&m);
    }
    if (st == POLAR_OK) st = polar_queue_sync(t->q);
    if (st == POLAR_OK) st = pl_safetensors_write(path, entries, t->param_count, meta, (int64_t)(sizeof meta / sizeof *meta));
    pl_free(entries);
    pl_free(bytes);
    return st;
}
