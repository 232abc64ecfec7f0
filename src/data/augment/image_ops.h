/* image_ops.h -- the fifteen operations of RandAugment on a picture, as timm calls them and Pillow computes
 * them, byte for byte.
 *
 *     pl_image_op_args a = {.op = PL_IMAGE_ROTATE, .arg = -27, .filter = PL_FILTER_BICUBIC, .fill =
 *         {124, 116, 104}};
 *     pl_image_op_apply(&image, &a, work);          // in place; work: pl_image_op_work(&image) bytes
 *
 * What a rotation, shear or translation brings in from outside the picture is `fill`. Nothing here
 * allocates or fails.
 */
#ifndef PL_DATA_IMAGE_OPS_H
#define PL_DATA_IMAGE_OPS_H

#include "data/image.h"
#include "data/augment/image_resize.h"

typedef struct pl_image_op_args {
    pl_image_op op;
    double arg;
    pl_filter filter; /* of the five that move pixels */
    uint8_t fill[3];
} pl_image_op_args;

/* bytes of work that apply wants, aligned to 16 */
size_t pl_image_op_work(const pl_image *im);
/* in place */
void pl_image_op_apply(pl_image *im, const pl_image_op_args *args, uint8_t *work);
/* the map of pl_image_affine of one that moves pixels; 0: it does not */
int pl_image_op_map(double m[6], pl_image_op op, double arg, int64_t width, int64_t height);
/* timm's: "AutoContrast", ... */
const char *pl_image_op_name(pl_image_op op);
/* left to right, in place */
void pl_image_flip(pl_image *im);

/* (x, y) of the result comes from (m0 (x + 1/2) + m1 (y + 1/2) + m2, m3 (x + 1/2) + m4 (y + 1/2) + m5):
 * Pillow's transform(AFFINE). */
size_t pl_image_affine_work(int64_t width, int64_t height); /* bytes */
/* in place; in image_affine.c */
void pl_image_affine(pl_image *im, const double m[6], pl_filter filter, const uint8_t fill[3], uint8_t *work);
/* the matrix of Pillow's rotate */
void pl_image_rotation(double m[6], int64_t width, int64_t height, double degrees);

#endif
