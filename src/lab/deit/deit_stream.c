/* deit_stream.c -- pictures that a device makes batch by batch: of sets that its memory does not hold, or
 * that have broken pictures. The loader's threads read what is looked at of a picture, as many bytes as its
 * crop has pixels, which go through the queue's pinned memory while the device works on the batch before; the
 * op `augment` does the rest, with the bits of the loader's own floats (deit_data.c).
 *
 * Invariants
 *  1. Which pictures are broken, and what takes their place, is decided by reading the same parts of the same
 * files as without a device.
 *  2. A batch's bytes overwrite those of the batch before in the order of the queue's work.
 */
#include <string.h>

#include "base/alloc.h"
#include "lab/deit/deit_train.h"

/* ---- a worker's ---------------------------------------------------------------------------------- */

void pl_deit_part_drop(pl_deit_part *part)
{
    pl_image_destroy(&part->pixels);
    pl_free(part->floats);
    *part = (pl_deit_part){0};
}

/* The part that was read, at `at` of the pixels. */
static void copy_part(pl_deit_part *out, const pl_picture *p, pl_box part, pl_box at)
{
    for (int64_t y = 0; y < part.height; y++)
        memcpy(pl_image_at(&out->pixels, at.x, at.y + y), p->pixels + y * p->stride,
               (size_t)(3 * part.width));
}

/* A picture that a row does not serve, as the host makes it. */
static polar_status make_floats(pl_deit_part *out, const pl_picture *p, pl_augment *a, pl_box box,
                                pl_image_split split, pl_draw_key key)
{
    const pl_pixels have = {p->pixels, p->stride, box, p->width, p->height};
    const pl_image side = pl_augment_pixels(a);
    out->floats = pl_alloc(3 * (size_t)side.width * (size_t)side.height * sizeof *out->floats);
    PL_NEED(out->floats, POLAR_E_NOMEM, "a picture of %lld x %lld", (long long)side.width,
            (long long)side.height);
    return split == PL_IMAGES_TEST ? pl_augment_eval_pixels(a, out->floats, &have)
                                   : pl_augment_train_pixels(a, out->floats, &have, key);
}

/* In the test resizing sees a whole picture, of which it looks at the middle: the rest is left as it is. */
static polar_status read_part(pl_deit_part *out, pl_picture *p, pl_augment *a, pl_image_split split,
                              pl_draw_key key)
{
    pl_box box, all = {0, 0, p->width, p->height};
    int test = split == PL_IMAGES_TEST;
    PL_TRY(test ? pl_augment_eval_box(&box, a, p->width, p->height)
                : pl_augment_train_box(&box, a, p->width, p->height, key));
    PL_TRY(pl_picture_read(p, box));
    if (!pl_augment_row_serves(p->width, p->height)) return make_floats(out, p, a, box, split, key);
    PL_TRY(test ? pl_augment_eval_row(out->row, a, 0, p->width, p->height)
                : pl_augment_train_row(out->row, a, 0, p->width, p->height, key));
    if (!test) pl_augment_row_cut(out->row, 0);
    PL_TRY(pl_image_create(&out->pixels, test ? all.width : box.width, test ? all.height : box.height));
    copy_part(out, p, box, test ? box : all);
    return POLAR_OK;
}

polar_status pl_deit_part_read(pl_deit_part *out, pl_picture *p, pl_augment *a, pl_image_split split,
                               pl_draw_key key)
{
    *out = (pl_deit_part){0};
    polar_status st = read_part(out, p, a, split, key);
    if (st != POLAR_OK) pl_deit_part_drop(out);
    return st;
}

/* ---- a batch -------------------------------------------------------------------------------------- */

static int64_t room_of(const pl_deit_part *part)
{
    return pl_augment_piece((int64_t)pl_image_bytes(&part->pixels));
}

/* Memory for so many bytes; what is being made from the old has to end first. */
static polar_status grow(pl_deit_data *d, polar_queue *q, int64_t bytes)
{
    int64_t have = 4 * d->pixels.cols;
    if (d->pixels.data && bytes <= have) return POLAR_OK;
    if (d->pixels.data) {
        PL_TRY(polar_queue_sync(q));
        pl_mat_free(&d->pixels, d->dev);
        d->pixels = (pl_mat){0};
    }
    return pl_mat_alloc(&d->pixels, d->dev, POLAR_DTYPE_F32, 1, 1, (bytes > 2 * have ? bytes : 2 * have) / 4);
}

/* Bytes and rows on their way; the floats of those that the host made follow the op. */
static polar_status send_parts(pl_mat Y, pl_deit_data *d, polar_queue *q, const pl_deit_part *parts)
{
    int64_t at = 16, side = Y.cols; /* a batch of broken pictures has no bytes, and memory has some */
    for (int64_t i = 0; i < Y.batch; i++) at += room_of(&parts[i]);
    PL_TRY(grow(d, q, at));
    at = 0;
    for (int64_t i = 0; i < Y.batch; at += room_of(&parts[i]), i++) {
        const pl_image *im = &parts[i].pixels;
        double *row = d->rows + i * PL_AUG_COLS;
        int64_t taps = 4 * (im->width > im->height ? im->width : im->height) / side + 8;
        memcpy(row, parts[i].row, sizeof parts[i].row);
        row[PL_AUG_AT] = (double)at;
        if (im->height > d->tallest) d->tallest = im->height;
        if (taps > d->taps) d->taps = taps;
        if (im->data) polar_queue_upload(q, (char *)d->pixels.data + at, im->data, pl_image_bytes(im));
    }
    pl_mat T = d->table;
    T.rows = Y.batch;
    polar_queue_upload(q, T.data, d->rows, pl_mat_bytes(&T));
    PL_CALL(augment, q, .Y = Y, .P = d->pixels, .T = T, .N = d->scale, .height = d->tallest, .taps = d->taps);
    for (int64_t i = 0; i < Y.batch; i++) {
        pl_mat one = pl_mat_at(Y, i, 1);
        if (parts[i].floats) polar_queue_upload(q, one.data, parts[i].floats, pl_mat_bytes(&one));
    }
    return POLAR_OK;
}

polar_status pl_deit_stream_make(pl_mat Y, pl_deit_data *d, polar_queue *q)
{
    pl_deit_batch b;
    PL_TRY(pl_deit_data_next(&b, d, d->labels));
    polar_status st = b.count == Y.batch ? send_parts(Y, d, q, b.x)
                                         : PL_FAIL(POLAR_E_STATE, "%lld pictures in place of %lld",
                                                   (long long)b.count, (long long)Y.batch);
    for (int64_t i = 0; i < b.count; i++) pl_deit_part_drop((pl_deit_part *)b.x + i);
    return st;
}
