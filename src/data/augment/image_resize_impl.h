/* image_resize_impl.h -- what image_resize.c and its version for AVX-512 share. Private to them.
 *
 * "Wide" are processors with AVX-512 VBMI and VNNI. Their dot products multiply bytes by signed bytes, four
 * at a time, so a weight is three signed digits of base 256, and
 *
 *     sum of w p = S0 + 256 S1 + 65536 S2,      S_d = sum of digit d times p
 *
 * in 32-bit integers: the same bits as the sum itself.
 */
#ifndef PL_DATA_IMAGE_RESIZE_IMPL_H
#define PL_DATA_IMAGE_RESIZE_IMPL_H

#include <stdint.h>

#include "math/picture_elem.h"

/* The weights of one direction: output i sums count[i] pixels from first[i] on, with weight[i * width + k].
 */
typedef struct pl_taps {
    int64_t *first, *count;
    int32_t *weight;
    int64_t n, width;
    int64_t begin, end; /* pixels that anyone needs */
} pl_taps;

int pl_resize_wide_here(void); /* whether this processor is wide */
/* scratch of the two below, to be aligned to 64; 0: weights too large for three digits */
int64_t pl_resize_wide_plan_bytes(const pl_taps *t);
void pl_resize_wide_rows(uint8_t *out, int64_t out_stride, const uint8_t *src, int64_t stride,
                         const pl_taps *t, int64_t rows,
                         /* src at pixel t->begin; rows of out have 16 bytes of room beyond their end */
                         void *plan);
void pl_resize_wide_columns(uint8_t *out, const uint8_t *rows, int64_t stride, int64_t bytes,
                            const pl_taps *t,
                            /* `rows` begins with row t->begin; its stride is a multiple of 64 */
                            void *plan);

#endif
