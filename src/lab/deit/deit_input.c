/* deit_input.c -- a set in device memory, whose pictures are cut, augmented and normalised there: the host
 * draws the numbers of a batch, a few hundred bytes a picture, and the op `augment` does the rest, with the
 * bits of the loader's pictures (deit_data.c).
 *
 * A pack's pixels are brought there, a folder's files are decoded once, by the host's threads or by nvJPEG
 * (data.decode), and sets made on the fly are drawn. data.input: auto is this way where the device is a GPU
 * and all pictures can be read and fit; otherwise it has them batch by batch (deit_stream.c).
 *
 * Invariants
 *  1. Without nvJPEG who makes a picture changes none of its bits, so that data.input is no part of a run.
 *  2. With it every picture comes from the device's memory or the run does not begin. A file that nvJPEG does
 * not take is decoded by the host, whoever its neighbours are.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "data/codec/image_nvjpeg.h"
#include "data/set/epoch_order.h"
#include "device/backend.h"
#include "lab/deit/deit_train.h"

#define MEASURED  64 /* headers, and pictures, that the loader hands over at a time */
#define FILLED    8
#define FIRST_TRY ((int64_t)1 << 30) /* bytes, and every double of them */

typedef struct {
    pl_deit_data *d;
    const pl_deit_reading *reading;
    pl_nvjpeg *decoder;   /* or NULL */
    polar_queue **queues; /* (workers): its streams */
} filling;

typedef struct {           /* a picture of the loader's */
    const uint8_t *pixels; /* NULL: it is on the device already */
    pl_image own;
} whole;

/* What stands in the way, or NULL. */
static const char *obstacle(const pl_deit_settings *s, polar_queue *q)
{
    if (!pl_queue_has(q, PL_OP_augment) || !pl_queue_has(q, PL_OP_mix))
        return "the device does not make pictures";
    if (!pl_augment_has_rows(&s->augment)) return "the recipe has more operations than the device does";
    return NULL;
}

/* Tells how far it is; an error where it is not to go on. */
static polar_status tell_done(const filling *f, const char *what, const pl_batch *b)
{
    const pl_deit_reading *r = f->reading;
    const pl_step_view v = {what, r->before + b->first + b->count, r->total, (double)NAN};
    PL_NEED(!b->count || !r->watch.step || !r->watch.step(r->watch.arg, &v), POLAR_E_STATE,
            "stopped after %lld of %lld pictures on their way to the device", (long long)v.done,
            (long long)v.total);
    return POLAR_OK;
}

/* ---- how large they are -------------------------------------------------------------------------- */

static pl_image_split split_of(const pl_deit_data *d, int64_t item, int64_t *i)
{
    int test = item >= d->count[PL_IMAGES_TRAIN];
    *i = item - (test ? d->count[PL_IMAGES_TRAIN] : 0);
    return test ? PL_IMAGES_TEST : PL_IMAGES_TRAIN;
}

static polar_status measure(void *user, int worker, int64_t item, void *out)
{
    const pl_deit_data *d = ((filling *)user)->d;
    pl_image_info info;
    int64_t i;
    pl_image_split split = split_of(d, item, &i);
    (void)worker;
    PL_TRY(pl_image_set_measure(&info, d->set, split, i));
    PL_NEED(pl_augment_row_serves(info.width, info.height), POLAR_E_UNSUPPORTED,
            "%s picture %lld, of %lld x %lld pixels, is resized by the host",
            split == PL_IMAGES_TEST ? "test" : "training", (long long)i, (long long)info.width,
            (long long)info.height);
    *(pl_deit_place *)out = (pl_deit_place){0, (int32_t)info.width, (int32_t)info.height};
    return POLAR_OK;
}

/* Where each picture will lie, and how much room they take. */
static void put_place(pl_deit_data *d, int64_t item, const pl_deit_place *p, int64_t *bytes)
{
    int64_t i;
    pl_image_split split = split_of(d, item, &i);
    d->places[split][i] = (pl_deit_place){*bytes, p->width, p->height};
    *bytes += pl_augment_piece(3 * (int64_t)p->width * p->height);
    if (p->height > d->tallest) d->tallest = p->height;
}

/* Whether there is such a piece of memory. */
static polar_status try_room(const pl_deit_data *d, size_t bytes)
{
    void *piece = NULL;
    PL_TRY(polar_device_alloc(d->dev, &piece, bytes));
    polar_device_free(d->dev, piece);
    return POLAR_OK;
}

/* A set that is much too large is known before all of its headers are read. */
static polar_status list_places(filling *f, int64_t *bytes, int64_t side)
{
    pl_deit_data *d = f->d;
    int64_t longest = 1, total = d->count[PL_IMAGES_TRAIN] + d->count[PL_IMAGES_TEST], tried = FIRST_TRY;
    pl_loader *l;
    pl_loader_opts o = {.workers = d->workers,
                        .ahead = 2,
                        .items = total,
                        .batch = MEASURED,
                        .item_bytes = sizeof(pl_deit_place),
                        .fill = measure,
                        .user = f};
    for (int k = 0; k < PL_IMAGE_SPLITS; k++) {
        d->places[k] = pl_calloc((size_t)d->count[k], sizeof *d->places[k]);
        PL_NEED(d->places[k], POLAR_E_NOMEM, "a list of %lld pictures", (long long)d->count[k]);
    }
    *bytes = 0;
    PL_TRY(pl_loader_create(&l, &o));
    polar_status st = POLAR_OK;
    for (pl_batch b = {.count = 1}; st == POLAR_OK && b.count;) {
        st = pl_loader_next(&b, l);
        for (int64_t i = 0; st == POLAR_OK && i < b.count; i++) {
            const pl_deit_place *p = (const pl_deit_place *)b.data + i;
            put_place(d, b.first + i, p, bytes);
            if (p->width > longest) longest = p->width;
        }
        for (; st == POLAR_OK && *bytes > tried; tried *= 2) st = try_room(d, (size_t)*bytes);
        if (st == POLAR_OK) st = tell_done(f, "sizes of pictures", &b);
    }
    pl_loader_destroy(l);
    if (d->tallest > longest) longest = d->tallest;
    d->taps = 4 * longest / side + 8;
    return st;
}

/* ---- their pixels -------------------------------------------------------------------------------- */

static polar_status decode_there(filling *f, int worker, pl_picture *p, int64_t at)
{
    char path[4096];
    polar_queue *q = f->queues[worker];
    const pl_backend *b = f->d->dev->backend;
    PL_TRY(pl_picture_path(path, sizeof path, p));
    PL_TRY(pl_nvjpeg_decode(f->decoder, worker, (char *)f->d->pixels.data + at, p->file.data, p->file.size,
                            path, p->width, p->height, b->queue_stream ? b->queue_stream(q) : NULL));
    return polar_queue_sync(q);
}

static polar_status take(void *user, int worker, int64_t item, void *out)
{
    filling *f = user;
    pl_deit_data *d = f->d;
    pl_picture *p = &d->pictures[worker];
    whole *w = out;
    int64_t i;
    pl_image_split split = split_of(d, item, &i);
    const pl_deit_place *place = &d->places[split][i];
    *w = (whole){0};
    PL_TRY(pl_picture_open(p, d->set, split, i));
    PL_NEED(p->width == place->width && p->height == place->height, POLAR_E_FORMAT,
            "%s: had %d x %d pixels a moment ago, and has %lld x %lld now", p->name, place->width,
            place->height, (long long)p->width, (long long)p->height);
    polar_status st = f->decoder ? decode_there(f, worker, p, place->at) : POLAR_E_UNSUPPORTED;
    return st == POLAR_E_UNSUPPORTED ? pl_picture_take(&w->pixels, &w->own, p) : st;
}

static void drop(void *user, void *item)
{
    (void)user;
    pl_image_destroy(&((whole *)item)->own);
}

static polar_status send_pictures(filling *f, polar_queue *q)
{
    pl_deit_data *d = f->d;
    pl_loader *l;
    pl_loader_opts o = {.workers = d->workers,
                        .ahead = 4,
                        .items = d->count[PL_IMAGES_TRAIN] + d->count[PL_IMAGES_TEST],
                        .batch = FILLED,
                        .item_bytes = sizeof(whole),
                        .fill = take,
                        .drop = drop,
                        .user = f};
    PL_TRY(pl_loader_create(&l, &o));
    polar_status st = POLAR_OK;
    for (pl_batch b = {.count = 1}; st == POLAR_OK && b.count;) {
        st = pl_loader_next(&b, l);
        for (int64_t k = 0; st == POLAR_OK && k < b.count; k++) {
            whole *w = (whole *)b.data + k;
            int64_t i;
            pl_image_split split = split_of(d, b.first + k, &i);
            const pl_deit_place *p = &d->places[split][i];
            if (w->pixels)
                polar_queue_upload(q, (char *)d->pixels.data + p->at, w->pixels,
                                   (size_t)(3 * (int64_t)p->width * p->height));
            drop(NULL, w);
        }
        if (st == POLAR_OK) st = tell_done(f, "pictures read", &b);
    }
    pl_loader_destroy(l);
    polar_status sync = polar_queue_sync(q);
    return st == POLAR_OK ? sync : st;
}

/* ---- nvJPEG --------------------------------------------------------------------------------------- */

static polar_status open_decoder(filling *f, const pl_deit_settings *s)
{
    pl_deit_data *d = f->d;
    const char *device = polar_device_name(d->dev);
    char text[1200];
    PL_NEED(pl_image_set_source(d->set) == PL_SOURCE_FOLDER, POLAR_E_ARG,
            "data.decode=nvjpeg is for folders of JPEG files; the pictures of '%s' need no decoding", s->set);
    PL_NEED(!strncmp(device, "cuda", 4) || pl_nvjpeg_named(), POLAR_E_ARG,
            "data.decode=nvjpeg: nvJPEG decodes into a GPU's memory, not for %s (--device cuda:0, or "
            "data.decode=host)",
            device);
    f->queues = pl_calloc((size_t)d->workers, sizeof(polar_queue *));
    PL_NEED(f->queues, POLAR_E_NOMEM, "%d queues", d->workers);
    for (int i = 0; i < d->workers; i++) PL_TRY(polar_queue_create(&f->queues[i], d->dev, NULL));
    polar_status st = pl_nvjpeg_open(&f->decoder, d->workers);
    if (st == POLAR_OK) return POLAR_OK;
    snprintf(text, sizeof text, "data.decode=nvjpeg: %.1000s (data.decode=host decodes on the CPU)",
             polar_error_message());
    return pl_fail_again(st, text);
}

static void close_decoder(filling *f)
{
    pl_nvjpeg_close(f->decoder);
    for (int i = 0; f->queues && i < f->d->workers; i++) polar_queue_destroy(f->queues[i]);
    pl_free(f->queues);
}

/* ---- all of it ------------------------------------------------------------------------------------ */

/* What a batch is made with, whatever way its bytes come. */
static polar_status make_tables(pl_deit_data *d, const pl_deit_settings *s, polar_queue *q)
{
    d->tallest = 1, d->taps = 8;
    d->rows = pl_calloc((size_t)s->batch, PL_AUG_COLS * sizeof *d->rows);
    PL_NEED(d->rows, POLAR_E_NOMEM, "the draws of %lld pictures", (long long)s->batch);
    PL_TRY(pl_mat_alloc(&d->table, d->dev, POLAR_DTYPE_F64, 1, s->batch, PL_AUG_COLS));
    PL_TRY(pl_mat_alloc(&d->scale, d->dev, POLAR_DTYPE_F32, 1, 3, 256));
    polar_queue_upload(q, d->scale.data, pl_augment_scale(d->augments[0]), pl_mat_bytes(&d->scale));
    return polar_queue_sync(q);
}

static polar_status fill(filling *f, const pl_deit_settings *s, polar_queue *q, size_t reserve)
{
    pl_deit_data *d = f->d;
    int64_t bytes = 0;
    if (s->decode == PL_DECODE_NVJPEG) PL_TRY(open_decoder(f, s));
    PL_TRY(make_tables(d, s, q));
    PL_TRY(list_places(f, &bytes, s->shape.image));
    PL_TRY(pl_mat_alloc(&d->pixels, d->dev, POLAR_DTYPE_F32, 1, 1, bytes / 4));
    /* and for the op's own, on the step's queue and on the prefetch's */
    reserve += 2 * (size_t)(s->batch * pl_augment_room(s->shape.image, d->tallest, d->taps));
    PL_TRY(try_room(d, reserve));
    return send_pictures(f, q);
}

/* The sentence of a set that was to be in the device's memory and is not. */
static polar_status tell(polar_status st)
{
    char text[1200];
    if (st != POLAR_E_NOMEM) return st;
    snprintf(text, sizeof text, "all pictures in the device's memory: %.1000s (data.input=stream)",
             polar_error_message());
    return pl_fail_again(POLAR_E_UNSUPPORTED, text);
}

static polar_status bring_all(pl_deit_data *d, const pl_deit_settings *s, polar_queue *q, size_t reserve,
                              const pl_deit_reading *r)
{
    filling f = {.d = d, .reading = r};
    polar_status st = fill(&f, s, q, reserve);
    close_decoder(&f);
    if (st == POLAR_OK) d->way = PL_DEIT_BY_DEVICE;
    else pl_deit_input_destroy(d);
    return st;
}

static int must_fit(const pl_deit_settings *s)
{
    return s->input == PL_INPUT_DEVICE || s->decode == PL_DECODE_NVJPEG;
}

int pl_deit_input_fills(const pl_deit_settings *s, const polar_device *dev)
{
    return must_fit(s) || (s->input == PL_INPUT_AUTO && !strncmp(polar_device_name(dev), "cuda", 4));
}

polar_status pl_deit_input_create(pl_deit_data *d, const pl_deit_settings *s, polar_device *dev,
                                  polar_queue *q, size_t reserve, const pl_deit_reading *r)
{
    const char *why = obstacle(s, q);
    int must = must_fit(s), fills = pl_deit_input_fills(s, dev), stream = s->input == PL_INPUT_STREAM;
    d->dev = dev;
    d->ordered = -1;
    if (!stream && (!fills || (why && !must))) return POLAR_OK;
    PL_NEED(!why, POLAR_E_ARG, "data.input=%s: %s", stream ? "stream" : "device", why);
    if (fills) {
        polar_status st = bring_all(d, s, q, reserve, r);
        int others = st == POLAR_E_NOMEM || st == POLAR_E_UNSUPPORTED || st == POLAR_E_FORMAT;
        if (must || !others) return tell(st); /* too large, or broken: batch by batch */
    }
    polar_status st = make_tables(d, s, q);
    if (st == POLAR_OK) d->way = PL_DEIT_BY_DEVICE_PARTS;
    else pl_deit_input_destroy(d);
    return st;
}

void pl_deit_input_destroy(pl_deit_data *d)
{
    pl_mat *mats[] = {&d->pixels, &d->table, &d->scale};
    for (size_t i = 0; i < sizeof mats / sizeof *mats; i++) {
        if (mats[i]->data) pl_mat_free(mats[i], d->dev);
        *mats[i] = (pl_mat){0};
    }
    for (int k = 0; k < PL_IMAGE_SPLITS; k++) {
        pl_free(d->places[k]);
        d->places[k] = NULL;
    }
    pl_free(d->rows);
    d->rows = NULL;
    d->way = PL_DEIT_BY_HOST;
}

polar_status pl_deit_input_make(pl_mat Y, pl_deit_data *d, polar_queue *q, pl_image_split split,
                                int64_t epoch, int64_t first)
{
    const pl_augment *a = d->augments[0];
    if (split == PL_IMAGES_TRAIN && d->ordered != epoch) {
        PL_TRY(pl_epoch_order(d->order, d->count[split], d->seed, epoch));
        d->ordered = epoch;
    }
    for (int64_t i = 0; i < Y.batch; i++) {
        int64_t picture = split == PL_IMAGES_TEST ? first + i : d->order[first + i];
        const pl_deit_place *p = &d->places[split][picture];
        double *row = d->rows + i * PL_AUG_COLS;
        d->labels[i] = (int32_t)pl_image_set_label(d->set, split, picture);
        if (split == PL_IMAGES_TEST) PL_TRY(pl_augment_eval_row(row, a, p->at, p->width, p->height));
        else
            PL_TRY(pl_augment_train_row(row, a, p->at, p->width, p->height,
                                        (pl_draw_key){d->seed, epoch, picture}));
    }
    pl_mat T = d->table;
    T.rows = Y.batch;
    polar_queue_upload(q, T.data, d->rows, pl_mat_bytes(&T));
    PL_CALL(augment, q, .Y = Y, .P = d->pixels, .T = T, .N = d->scale, .height = d->tallest, .taps = d->taps);
    return POLAR_OK;
}
