/* augment.h -- from a decoded picture to the numbers a model sees: the recipes' chains for training and for
 * testing.
 *
 *     pl_augment_options o;
 *     pl_augment *a;
 *     PL_TRY(pl_augment_recipe(&o, "deit", 224));
 *     // one per thread
 *     PL_TRY(pl_augment_create(&a, &o));
 *     // x: (3, 224, 224) floats
 *     PL_TRY(pl_augment_train(a, x, &image, (pl_draw_key){seed, epoch, number}));
 *     PL_TRY(pl_augment_eval(a, x, &image));
 *     pl_augment_destroy(a);
 *
 *     recipe    training
 *               test
 *     minimal   RandomResizedCrop(bilinear), flip, normalise
 *               Resize(256, bilinear), CenterCrop(224), normalise
 *     deit      RandomResizedCrop(bicubic), flip, RandAugment rand-m9-mstd0.5-inc1, normalise, erasing 0.25
 *               the same
 *
 * A decoder that can cut asks pl_augment_train_box or _eval_box where, decodes that and calls _train_pixels
 * or _eval_pixels: the same floats (image_input.h does it). The draws are functions of the key
 * (augment_draw.h): the order of calls, threads and what else is in a batch change nothing. After the
 * largest picture has passed nothing is allocated.
 */
#ifndef PL_DATA_AUGMENT_H
#define PL_DATA_AUGMENT_H

#include "data/augment/erasing.h"
#include "data/augment/rand_augment.h"
#include "math/augment_elem.h"

typedef struct pl_augment_options {
    int64_t size;     /* of a side of the result */
    pl_filter filter; /* training: the crop's and RandAugment's */
    double scale[2];  /* RandomResizedCrop: share of the area, from and to */
    double ratio[2];  /* width over height, from and to */
    double flip;      /* probability */
    pl_rand_augment rand;
    pl_erasing erasing;
    /* the short side before the middle is cut out; at least size */
    int64_t test_side;
    pl_filter test_filter;
    double mean[3], std[3]; /* of the set, where white is 1 */
} pl_augment_options;

/* Pixels of the part `have` of a picture of width x height: all that the chain will look at. */
typedef struct pl_pixels {
    const uint8_t *data;
    int64_t stride; /* bytes from row to row */
    pl_box have;
    int64_t width, height;
} pl_pixels;

typedef struct pl_augment pl_augment;

/* "minimal" or "deit"; test_side = size 256 / 224 */
polar_status pl_augment_recipe(pl_augment_options *out, const char *name, int64_t size);
/* a copy of the options, tables, scratch */
polar_status pl_augment_create(pl_augment **out, const pl_augment_options *o);
void pl_augment_destroy(pl_augment *a); /* NULL is fine */
/* where RandomResizedCrop cuts */
pl_box pl_augment_crop(const pl_augment_options *o, int64_t width, int64_t height, pl_draw_key key);
/* out (3, size, size) */
polar_status pl_augment_train(pl_augment *a, float *out, const pl_image *im, pl_draw_key key);
/* out (3, size, size) */
polar_status pl_augment_eval(pl_augment *a, float *out, const pl_image *im);
/* the pixels that training looks at: pl_augment_crop */
polar_status pl_augment_train_box(pl_box *out, const pl_augment *a, int64_t width, int64_t height,
                                  pl_draw_key key);
/* ... that the test looks at */
polar_status pl_augment_eval_box(pl_box *out, const pl_augment *a, int64_t width, int64_t height);
/* from the pixels of pl_augment_train_box alone */
polar_status pl_augment_train_pixels(pl_augment *a, float *out, const pl_pixels *p, pl_draw_key key);
/* from those of pl_augment_eval_box, or more */
polar_status pl_augment_eval_pixels(pl_augment *a, float *out, const pl_pixels *p);
/* the bytes of the last picture before normalisation; borrowed */
pl_image pl_augment_pixels(const pl_augment *a);
/* of a picture whose short side becomes test_side, as torchvision's Resize */
int64_t pl_augment_long_side(int64_t test_side, int64_t width, int64_t height);

/* ---- as numbers for a device that makes pictures itself (math/augment_elem.h) ---- */

/* whether rows can say all of the recipe: no more operations than a row has */
int pl_augment_has_rows(const pl_augment_options *o);
/* whether a row can say how a picture of this size is resized */
int pl_augment_row_serves(int64_t width, int64_t height);
/* pl_augment_train of the picture whose bytes begin at `at` */
polar_status pl_augment_train_row(double row[PL_AUG_COLS], const pl_augment *a, int64_t at, int64_t width,
                                  int64_t height, pl_draw_key key);
/* pl_augment_eval of it */
polar_status pl_augment_eval_row(double row[PL_AUG_COLS], const pl_augment *a, int64_t at, int64_t width,
                                 int64_t height);
/* the same of the row's box alone, whose bytes, packed, begin at `at`; the box as it was */
pl_box pl_augment_row_cut(double row[PL_AUG_COLS], int64_t at);
/* (3, 256): what a byte becomes; borrowed */
const float *pl_augment_scale(const pl_augment *a);

#endif
