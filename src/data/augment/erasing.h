/* erasing.h -- RandomErasing as timm's: with some probability a rectangle of a normalised picture becomes
 * zero, or noise.
 *
 *     pl_box w = pl_erasing_draw(&(pl_erasing){.prob = 0.25, .area = {0.02, 1 / 3.}, .min_aspect =
 *         0.3}, 224, 224, key);
 *     // x: (3, 224, 224); a window without width is no erasing
 *     pl_erasing_apply(x, 224, 224, w, PL_ERASE_CONST, key);
 *
 * Area as a share of the picture uniform, aspect ratio log-uniform in (min_aspect, 1 / min_aspect); ten
 * tries for a rectangle smaller than the picture in both directions, nothing after them; its place uniform.
 */
#ifndef PL_DATA_ERASING_H
#define PL_DATA_ERASING_H

#include "data/augment/augment_draw.h"
#include "data/augment/image_resize.h"

typedef enum pl_erasing_fill {                 /* timm's modes */
                               PL_ERASE_CONST, /* zeros */
                               PL_ERASE_RAND,  /* a colour, normal in each channel */
                               PL_ERASE_PIXEL  /* normal everywhere */
} pl_erasing_fill;

typedef struct pl_erasing {
    double prob;       /* 0: never */
    double area[2];    /* share of the picture, from and to */
    double min_aspect; /* height over width; the largest is its inverse */
    pl_erasing_fill fill;
} pl_erasing;

/* all zero: none */
pl_box pl_erasing_draw(const pl_erasing *e, int64_t width, int64_t height, pl_draw_key key);
/* of PL_ERASE_RAND */
void pl_erasing_colour(double out[3], pl_draw_key key);
/* x (3, height, width) */
void pl_erasing_apply(float *x, int64_t width, int64_t height, pl_box w, pl_erasing_fill fill,
                      pl_draw_key key);

#endif
