/* picture_fixture.h -- a picture by a formula, and the hash by which results of Pillow, timm and torchvision
 * are written down:
 *
 *     y, x, c = np.meshgrid(np.arange(h), np.arange(w), np.arange(3), indexing='ij')
 *     picture = ((7*x + 13*y + 50*c + 8*((x*y) % 31) + (x ^ y)) & 255).astype(np.uint8)
 *     hash = 14695981039346656037
 *     for b in result.tobytes(): hash = ((hash ^ b) * 1099511628211) & (2**64 - 1)
 */
#ifndef PICTURE_FIXTURE_H
#define PICTURE_FIXTURE_H

#include "base/alloc.h"
#include "data/augment/image_ops.h"
#include "test.h"

#define FNV_START 14695981039346656037u

static inline uint64_t fnv(uint64_t hash, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) hash = (hash ^ ((const uint8_t *)bytes)[i]) * 1099511628211u;
    return hash;
}

static inline pl_image picture(int64_t width, int64_t height)
{
    pl_image im;
    TEST_TRY(pl_image_create(&im, width, height));
    for (int64_t y = 0; y < height; y++)
        for (int64_t x = 0; x < width; x++)
            for (int64_t c = 0; c < 3; c++)
                pl_image_at(&im, x, y)[c] = (uint8_t)(7 * x + 13 * y + 50 * c + 8 * ((x * y) % 31) + (x ^ y));
    return im;
}

static inline int64_t bytes_differ(const uint8_t *a, const uint8_t *b, int64_t n)
{
    int64_t wrong = 0;
    for (int64_t i = 0; i < n; i++) wrong += a[i] != b[i];
    return wrong;
}

/* One operation of RandAugment, in place, with ImageNet's mean colour around the picture. */
static inline void apply(pl_image *im, pl_image_op op, double arg, int filter)
{
    uint8_t *work = pl_alloc(pl_image_op_work(im));
    /* round(255 mean) */
    pl_image_op_args a = {.op = op, .arg = arg, .filter = (pl_filter)filter, .fill = {124, 116, 104}};
    if (!work) exit(1);
    pl_image_op_apply(im, &a, work);
    pl_free(work);
}

#endif
