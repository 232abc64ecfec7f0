/* deit_data.c -- pictures of a run, in the order of an epoch, read and augmented by worker threads.
 *
 * An item of an epoch is a place in its order: the picture there, augmented with the draws of (seed, epoch,
 * number), where the number counts the pictures of the chosen classes. A broken picture is an error that
 * names it; with skip_bad the next one of the set that can be read takes its place in training, with the
 * draws of that place, and in the test it does not count. Which it is depends on the pictures alone, so
 * batches are the same whatever the workers, and the arms of a seed see the same.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "data/set/class_subset.h"
#include "data/set/epoch_order.h"
#include "lab/deit/deit_train.h"

#define AHEAD 2 /* batches made ahead */

/* ---- the set ------------------------------------------------------------------------------------ */

static polar_status choose(pl_image_set *set, const pl_deit_settings *s, uint64_t seed)
{
    int64_t *chosen, want = s->shape.classes, of = pl_image_set_classes(set);
    PL_NEED(want <= of, POLAR_E_ARG,
            "data.classes is %lld, but the set '%s' has %lld classes (data.classes=0 takes them all)",
            (long long)want, s->set, (long long)of);
    PL_TRY(pl_class_subset(&chosen, of, want, s->subset_seed < 0 ? seed : (uint64_t)s->subset_seed));
    polar_status st = pl_image_set_select(set, chosen, want);
    pl_free(chosen);
    return st;
}

polar_status pl_deit_data_open(pl_image_set **out, const pl_deit_settings *s, uint64_t seed)
{
    int synth = !strncmp(s->set, "synth:", 6);
    *out = NULL;
    PL_NEED(synth || *s->path, POLAR_E_ARG,
            "where the set '%s' lies is not said: --data DIR (data.path) wants the folder that holds train/ "
            "and val/, or a pack; a first try goes without: --data synth:",
            s->set);
    PL_TRY(pl_image_set_open(out, synth ? s->set : s->path));
    polar_status st = s->shape.classes ? choose(*out, s, seed) : POLAR_OK;
    if (st != POLAR_OK) {
        pl_image_set_close(*out);
        *out = NULL;
    }
    return st;
}

static int64_t words(int64_t bits)
{
    return (bits + 63) / 64;
}

/* Of a choice of classes too: the seeds of a spec have their own. */
static void say_origin(pl_deit_data *d, const pl_deit_settings *s)
{
    long long seed = s->subset_seed < 0 ? (long long)d->seed : (long long)s->subset_seed;
    if (pl_image_set_source(d->set) == PL_SOURCE_SYNTH) return;
    if (s->shape.classes)
        snprintf(d->origin, sizeof d->origin, "%s, %lld classes of seed %lld, %s", s->set,
                 (long long)d->classes, seed, d->print);
    else snprintf(d->origin, sizeof d->origin, "%s, all classes, %s", s->set, d->print);
}

static polar_status fill(pl_deit_data *d, const pl_deit_settings *s)
{
    int64_t train, test;
    PL_TRY(pl_deit_data_open(&d->set, s, d->seed));
    PL_TRY(pl_image_set_fingerprint(d->print, d->set));
    d->classes = pl_image_set_classes(d->set);
    say_origin(d, s);
    for (int k = 0; k < PL_IMAGE_SPLITS; k++) d->count[k] = pl_image_set_count(d->set, k);
    train = d->count[PL_IMAGES_TRAIN], test = d->count[PL_IMAGES_TEST];
    d->bad_words = words(train) + words(test);
    d->pictures = pl_calloc((size_t)d->workers, sizeof *d->pictures);
    d->augments = pl_calloc((size_t)d->workers, sizeof *d->augments);
    d->order = pl_calloc((size_t)train, sizeof *d->order);
    d->picked = pl_calloc((size_t)(train > test ? train : test), sizeof *d->picked);
    d->bad = pl_calloc((size_t)d->bad_words, sizeof *d->bad);
    d->labels = pl_calloc((size_t)s->batch, sizeof *d->labels);
    PL_NEED(d->pictures && d->augments && d->order && d->picked && d->bad && d->labels, POLAR_E_NOMEM,
            "lists of %lld pictures", (long long)(train + test));
    for (int i = 0; i < d->workers; i++) PL_TRY(pl_augment_create(&d->augments[i], &s->augment));
    return POLAR_OK;
}

polar_status pl_deit_data_create(pl_deit_data *d, const pl_deit_settings *s, uint64_t seed, int workers)
{
    *d = (pl_deit_data){.workers = workers, .skip_bad = s->skip_bad, .seed = seed};
    polar_status st = fill(d, s);
    if (st != POLAR_OK) pl_deit_data_destroy(d);
    return st;
}

void pl_deit_data_destroy(pl_deit_data *d)
{
    pl_deit_data_end(d);
    pl_deit_input_destroy(d);
    for (int i = 0; d->pictures && i < d->workers; i++) pl_picture_drop(&d->pictures[i]);
    for (int i = 0; d->augments && i < d->workers; i++) pl_augment_destroy(d->augments[i]);
    pl_free(d->pictures);
    pl_free(d->augments);
    pl_free(d->order);
    pl_free(d->picked);
    pl_free(d->bad);
    pl_free(d->labels);
    pl_image_set_close(d->set);
    *d = (pl_deit_data){0};
}

/* ---- one picture, by a worker ------------------------------------------------------------------- */

static polar_status read_picture(pl_deit_data *d, int worker, void *out, int64_t picture, int64_t place)
{
    const pl_draw_key key = {d->seed, d->epoch, place};
    pl_picture *p = &d->pictures[worker];
    pl_augment *a = d->augments[worker];
    PL_TRY(pl_picture_open(p, d->set, d->split, picture));
    if (d->way == PL_DEIT_BY_DEVICE_PARTS) return pl_deit_part_read(out, p, a, d->split, key);
    return d->split == PL_IMAGES_TEST ? pl_input_eval(out, p, a) : pl_input_train(out, p, a, key);
}

/* The place of the loader's item in the epoch. */
static int64_t place_of(const pl_deit_data *d, int64_t item)
{
    return d->first + item + (d->gap && d->split == PL_IMAGES_TRAIN ? item / d->run * d->gap : 0);
}

static size_t item_bytes(const pl_deit_data *d)
{
    return d->way == PL_DEIT_BY_DEVICE_PARTS ? sizeof(pl_deit_part) : d->picture_bytes;
}

static void drop_part(void *user, void *item)
{
    (void)user;
    pl_deit_part_drop(item);
}

static polar_status fill_item(void *user, int worker, int64_t item, void *out)
{
    pl_deit_data *d = user;
    int64_t at = place_of(d, item), n = d->count[d->split],
            place = d->split == PL_IMAGES_TEST ? at : d->order[at], picture = place;
    polar_status st = read_picture(d, worker, out, picture, place);
    if (st == POLAR_E_FORMAT && d->skip_bad && d->split == PL_IMAGES_TEST) {
        memset(out, 0, item_bytes(d));
        d->picked[at] = -1;
        return POLAR_OK;
    }
    for (int64_t k = 1; st == POLAR_E_FORMAT && d->skip_bad && k < n; k++) {
        picture = (place + k) % n;
        st = read_picture(d, worker, out, picture, place);
    }
    d->picked[at] = picture;
    return st;
}

/* ---- batches ------------------------------------------------------------------------------------ */

polar_status pl_deit_data_begin(pl_deit_data *d, pl_image_split split, int64_t epoch, int64_t first,
                                int64_t items, int64_t batch, int64_t image)
{
    pl_deit_data_end(d);
    d->split = split;
    d->epoch = epoch;
    d->first = first;
    if (split == PL_IMAGES_TRAIN) PL_TRY(pl_epoch_order(d->order, d->count[split], d->seed, epoch));
    d->picture_bytes = (size_t)(3 * image * image) * sizeof(float);
    pl_loader_opts o = {.workers = d->workers,
                        .ahead = AHEAD,
                        .items = items,
                        .batch = batch,
                        .item_bytes = item_bytes(d),
                        .fill = fill_item,
                        .drop = d->way == PL_DEIT_BY_DEVICE_PARTS ? drop_part : NULL,
                        .user = d};
    return pl_loader_create(&d->loader, &o);
}

void pl_deit_data_end(pl_deit_data *d)
{
    pl_loader_destroy(d->loader);
    d->loader = NULL;
}

static void mark_bad(pl_deit_data *d, int64_t picture)
{
    int64_t *w = d->bad + (d->split == PL_IMAGES_TEST ? words(d->count[PL_IMAGES_TRAIN]) : 0) + picture / 64;
    *w |= (int64_t)((uint64_t)1 << (picture % 64));
}

/* Everything from the picture that was wanted up to the one that was taken is broken. */
static void mark_passed(pl_deit_data *d, int64_t at)
{
    int64_t n = d->count[d->split], test = d->split == PL_IMAGES_TEST, wanted = test ? at : d->order[at];
    if (d->picked[at] < 0) mark_bad(d, wanted);
    for (int64_t p = wanted; d->picked[at] >= 0 && p != d->picked[at]; p = (p + 1) % n) mark_bad(d, p);
}

/* A broken picture's sentence, with what to try. */
static polar_status tell_broken(polar_status st, const pl_deit_data *d)
{
    char text[1200];
    if (st != POLAR_E_FORMAT || d->skip_bad) return st;
    snprintf(text, sizeof text, "%.1000s (--skip-bad counts broken pictures and goes on)",
             polar_error_message());
    return pl_fail_again(st, text);
}

polar_status pl_deit_data_next(pl_deit_batch *out, pl_deit_data *d, int32_t *labels)
{
    pl_batch b;
    polar_status st = pl_loader_next(&b, d->loader);
    if (st != POLAR_OK) return tell_broken(st, d);
    for (int64_t i = 0; i < b.count; i++) {
        int64_t at = place_of(d, b.first + i);
        mark_passed(d, at);
        labels[i] = d->picked[at] < 0 ? -1 : (int32_t)pl_image_set_label(d->set, d->split, d->picked[at]);
    }
    *out = (pl_deit_batch){.x = b.data, .labels = labels, .count = b.count};
    return POLAR_OK;
}

int64_t pl_deit_data_skipped(const pl_deit_data *d)
{
    int64_t n = 0;
    for (int64_t i = 0; i < d->bad_words; i++) n += __builtin_popcountll((uint64_t)d->bad[i]);
    return n;
}
