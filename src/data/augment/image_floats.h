/* image_floats.h -- bytes of a picture to the floats of a model: (v / 255 - mean) / std, each operation in
 * floats as torch does it, in planes.
 *
 *     pl_floats_scale s;
 *     pl_floats_scale_make(&s, mean, std);
 *     pl_floats_of_bytes(x, &s, pixels, 224 * 224);      // x: (3, n), pixels: (n, 3)
 *
 * A channel has 256 values: a table. On processors with AVX-512 VBMI 16 pixels are computed at once, the
 * quotients as a product with the reciprocal and one correction each, v r, v r + r (v - 255 v r); whether
 * that gives the table's floats is looked at when a scale is made, for every byte and channel.
 */
#ifndef PL_DATA_IMAGE_FLOATS_H
#define PL_DATA_IMAGE_FLOATS_H

#include <stdint.h>

typedef struct pl_floats_scale {
    float value[3][256];
    float mean[3], std[3], inverse[3]; /* inverse: 1 / std */
    int wide;                          /* computed, not looked up */
} pl_floats_scale;

/* the table, and the faster way where it is exact */
void pl_floats_scale_make(pl_floats_scale *out, const double mean[3], const double std[3]);
/* n pixels, (n, 3) to (3, n) */
void pl_floats_of_bytes(float *out, const pl_floats_scale *s, const uint8_t *pixels, int64_t n);

#endif
