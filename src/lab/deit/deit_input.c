/* deit_input.c -- a packed set in device memory, whose pictures are cut, augmented and normalised there: the
 * host draws the numbers of a batch, a few hundred bytes a picture, and the op `augment` does the rest, with
 * the bits of the loader's pictures (deit_data.c).
 *
 * data.input: auto is the device's way where that is a GPU, the set a pack of whole pictures that fits and
 * the recipe one that rows can say; otherwise the loader's.
 */
#include <string.h>

#include "base/alloc.h"
#include "data/set/epoch_order.h"
#include "lab/deit/deit_train.h"

/* What stands in the way, or NULL. */
static const char *obstacle(const pl_deit_data *d, const pl_deit_settings *s, polar_queue *q)
{
    if (!pl_queue_has(q, PL_OP_augment) || !pl_queue_has(q, PL_OP_mix))
        return "the device does not make pictures";
    if (pl_image_set_source(d->set) != PL_SOURCE_PACK) return "the set is not a pack (polar data pack)";
    if (!pl_augment_has_rows(&s->augment)) return "erased rectangles of noise are made by the host";
    return NULL;
}

/* Lists every picture and how much room they take. */
static polar_status list_places(pl_deit_data *d, int64_t *bytes, int64_t side)
{
    int64_t longest = 1;
    pl_picture *p = &d->pictures[0];
    *bytes = 0;
    d->tallest = 1;
    for (int k = 0; k < PL_IMAGE_SPLITS; k++) {
        d->places[k] = pl_calloc((size_t)d->count[k], sizeof *d->places[k]);
        PL_NEED(d->places[k], POLAR_E_NOMEM, "a list of %lld pictures", (long long)d->count[k]);
        for (int64_t i = 0; i < d->count[k]; i++) {
            PL_TRY(pl_picture_open(p, d->set, (pl_image_split)k, i));
            PL_NEED(pl_augment_row_serves(p->width, p->height), POLAR_E_UNSUPPORTED,
                    "'%s', of %lld x %lld pixels, is resized by the host", p->name, (long long)p->width,
                    (long long)p->height);
            d->places[k][i] = (pl_deit_place){*bytes, (int32_t)p->width, (int32_t)p->height};
            *bytes += (3 * p->width * p->height + 15) / 16 * 16;
            if (p->height > d->tallest) d->tallest = p->height;
            if (p->width > longest) longest = p->width;
        }
    }
    if (d->tallest > longest) longest = d->tallest;
    d->taps = 4 * longest / side + 8;
    return POLAR_OK;
}

static polar_status send_pictures(pl_deit_data *d, polar_queue *q)
{
    pl_picture *p = &d->pictures[0];
    for (int k = 0; k < PL_IMAGE_SPLITS; k++)
        for (int64_t i = 0; i < d->count[k]; i++) {
            PL_TRY(pl_picture_open(p, d->set, (pl_image_split)k, i));
            PL_TRY(pl_picture_read(p, (pl_box){0, 0, p->width, p->height}));
            PL_NEED(p->stride == 3 * p->width, POLAR_E_UNSUPPORTED, "'%s': rows apart", p->name);
            polar_queue_upload(q, (char *)d->pixels.data + d->places[k][i].at, p->pixels,
                               (size_t)(3 * p->width * p->height));
        }
    return polar_queue_sync(q);
}

static polar_status fill(pl_deit_data *d, const pl_deit_settings *s, polar_queue *q)
{
    int64_t bytes;
    PL_TRY(list_places(d, &bytes, s->shape.image));
    d->rows = pl_calloc((size_t)s->batch, PL_AUG_COLS * sizeof *d->rows);
    PL_NEED(d->rows, POLAR_E_NOMEM, "the draws of %lld pictures", (long long)s->batch);
    PL_TRY(pl_mat_alloc(&d->table, d->dev, POLAR_DTYPE_F64, 1, s->batch, PL_AUG_COLS));
    PL_TRY(pl_mat_alloc(&d->scale, d->dev, POLAR_DTYPE_F32, 1, 3, 256));
    PL_TRY(pl_mat_alloc(&d->pixels, d->dev, POLAR_DTYPE_F32, 1, 1, bytes / 4));
    polar_queue_upload(q, d->scale.data, pl_augment_scale(d->augments[0]), pl_mat_bytes(&d->scale));
    return send_pictures(d, q);
}

polar_status pl_deit_input_create(pl_deit_data *d, const pl_deit_settings *s, polar_device *dev,
                                  polar_queue *q)
{
    const char *why = obstacle(d, s, q);
    int wanted = s->input == PL_INPUT_DEVICE ||
                 (s->input == PL_INPUT_AUTO && !strncmp(polar_device_name(dev), "cuda", 4));
    d->dev = dev;
    d->ordered = -1;
    if (!wanted || (why && s->input == PL_INPUT_AUTO)) return POLAR_OK;
    PL_NEED(!why, POLAR_E_ARG, "data.input=device: %s", why);
    polar_status st = fill(d, s, q);
    int others = st == POLAR_E_NOMEM || st == POLAR_E_UNSUPPORTED || st == POLAR_E_FORMAT;
    if (st != POLAR_OK) pl_deit_input_destroy(d);
    return others && s->input == PL_INPUT_AUTO ? POLAR_OK : st; /* too large, or broken: the loader's */
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
