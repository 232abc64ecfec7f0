/* image.h -- a picture in memory: RGB, one byte per channel, rows packed, the top row first.
 *
 *     pl_image im;
 *     PL_TRY(pl_image_create(&im, 224, 224));
 *     uint8_t *p = pl_image_at(&im, x, y);         // p[0], p[1], p[2] = red, green, blue
 *     pl_image_destroy(&im);
 */
#ifndef PL_DATA_IMAGE_H
#define PL_DATA_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define PL_IMAGE_CHANNELS 3
/* where Pillow calls a picture a decompression bomb and refuses it */
#define PL_IMAGE_MAX_PIXELS 178956970

typedef struct pl_box { /* a rectangle of pixels */
    int64_t x, y, width, height;
} pl_box;

typedef struct pl_image {
    int64_t width, height;
    int channels;  /* 3 */
    uint8_t *data; /* (height, width, 3) */
} pl_image;

/* not cleared; *out is empty on failure */
polar_status pl_image_create(pl_image *out, int64_t width, int64_t height);
/* only what create made; safe on a zeroed one */
void pl_image_destroy(pl_image *im);
/* pixels that are someone else's: never destroyed */
pl_image pl_image_view(uint8_t *data, int64_t width, int64_t height);

/* Bytes of one row, and of the picture. */
static inline size_t pl_image_row_bytes(const pl_image *im)
{
    return (size_t)im->width * PL_IMAGE_CHANNELS;
}
static inline size_t pl_image_bytes(const pl_image *im)
{
    return pl_image_row_bytes(im) * (size_t)im->height;
}

/* The pixel in column x of row y; borrowed. */
static inline uint8_t *pl_image_at(const pl_image *im, int64_t x, int64_t y)
{
    return im->data + (size_t)y * pl_image_row_bytes(im) + (size_t)x * PL_IMAGE_CHANNELS;
}

#endif
