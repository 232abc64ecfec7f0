/* image_resize.h -- pictures resampled as Pillow's Image.resize does it, byte for byte: bilinear and
 * bicubic with antialiasing.
 *
 *     pl_resizer *r;
 *     PL_TRY(pl_resizer_create(&r));
 *     pl_resize_args a = {.src = image->data + 3 * (y * image->width + x), .src_width = w, .src_height
 *         = h, .src_stride = 3 * image->width,
 *                         // crop(x, y, w, h), then resize
 *                         .out = pixels, .out_width = 224, .out_height = 224, .filter = PL_FILTER_BICUBIC};
 *     PL_TRY(pl_resize(r, &a));
 *     pl_resizer_destroy(r);
 *
 * src is all there is: filters do not reach beyond it, so a crop that is resized is a view of the crop
 * (Pillow's crop().resize()), and a `box` inside a larger picture (Pillow's resize(box=)) does see the
 * pixels around it. `part` asks for a piece of the result only, the same bytes as in the whole: Resize(256)
 * + CenterCrop(224) of a 20000 x 10 picture computes 224 columns, not 512000, and looks at no other pixels
 * of the source than pl_resize_reach says: `have` need be no more than that.
 * A resizer keeps its scratch and grows it when a picture is larger than all before; one per thread.
 */
#ifndef PL_DATA_IMAGE_RESIZE_H
#define PL_DATA_IMAGE_RESIZE_H

#include <stdint.h>

#include "base/status.h"
#include "data/image.h"
#include "math/picture_elem.h"

typedef struct pl_resize_args {
    uint8_t *out;       /* RGB, packed rows of the part (of all without one) */
    const uint8_t *src; /* RGB; its first pixel is that of `have` */
    int64_t src_width, src_height;
    int64_t src_stride; /* bytes from row to row */
    /* x0, y0, x1, y1 in src, single precision as Pillow's; all zero: the whole */
    float box[4];
    int64_t out_width, out_height; /* size of the whole result */
    pl_box part;                   /* of the result; all zero: the whole */
    /* the piece of the source that is at src, pl_resize_reach or more; all zero: the whole */
    pl_box have;
    pl_filter filter;
    int flip; /* the part is mirrored left to right */
} pl_resize_args;

typedef struct pl_resizer pl_resizer;

polar_status pl_resizer_create(pl_resizer **out); /* no scratch yet */
void pl_resizer_destroy(pl_resizer *r);           /* NULL is fine */
/* 1: without image_resize_wide.c; the same bytes, for tests */
void pl_resizer_set_plain(pl_resizer *r, int plain);
polar_status pl_resize(pl_resizer *r, const pl_resize_args *args); /* out does not overlap src */
/* the source's pixels that resizing looks at; out, src, stride and have are not read */
polar_status pl_resize_reach(pl_box *out, const pl_resize_args *args);

#endif
