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

/* the order of timm's list: part of the draws, a number once given stays */
typedef enum pl_image_op {
    PL_IMAGE_AUTO_CONTRAST, /* each channel stretched to 0 .. 255 */
    PL_IMAGE_EQUALIZE,      /* each channel's histogram made flat */
    PL_IMAGE_INVERT,        /* 255 - v */
    PL_IMAGE_ROTATE,        /* by arg degrees against the clock, about the centre */
    PL_IMAGE_POSTERIZE,     /* keeps the upper arg bits, 0 to 8 */
    PL_IMAGE_SOLARIZE,      /* 255 - v from arg on */
    PL_IMAGE_SOLARIZE_ADD,  /* v + arg below 128, at most 255 */
    PL_IMAGE_COLOR,         /* grey (arg = 0) to picture (1) and beyond */
    PL_IMAGE_CONTRAST,      /* the mean grey to picture */
    PL_IMAGE_BRIGHTNESS,    /* black to picture */
    PL_IMAGE_SHARPNESS,     /* smoothed to picture */
    PL_IMAGE_SHEAR_X,       /* (x, y) comes from (x + arg y, y) */
    PL_IMAGE_SHEAR_Y,       /* (x, y) comes from (x, y + arg x) */
    PL_IMAGE_TRANSLATE_X,   /* (x, y) comes from (x + arg width, y) */
    PL_IMAGE_TRANSLATE_Y,   /* (x, y) comes from (x, y + arg height) */
    PL_IMAGE_OPS
} pl_image_op;

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
