/* broken_fixture.h -- a file that may be broken, read in every way there is: refused with a sentence that
 * names it, or decoded to the pixels that libjpeg's plain calls give. */
#ifndef POLAR_BROKEN_FIXTURE_H
#define POLAR_BROKEN_FIXTURE_H

#include "image_fixture.h"

#include "base/alloc.h"

enum { BROKEN_WHOLE = 1, BROKEN_PART = 2, BROKEN_WRONG = -1 };

static inline int broken_told(polar_status st, const pl_image *im)
{
    if (st == POLAR_OK) return im->data != NULL;
    return st == POLAR_E_FORMAT && !im->data && strstr(polar_error_message(), ": some.file: ") != NULL;
}

/* Damage that libjpeg reads over is read over with its pixels. */
static inline int64_t broken_pixels_differ(const uint8_t *data, size_t size, const pl_image *im)
{
    made m = {(uint8_t *)data, size};
    int w, h, n;
    int64_t wrong;
    if (pl_image_sniff(data, size) != PL_IMAGE_JPEG) return 0;
    uint8_t *plain = made_jpeg_plain(&m, &w, &h, &n);
    wrong = w != im->width || h != im->height;
    for (int64_t i = 0; !wrong && i < (int64_t)w * h; i++)
        for (int k = 0; k < 3; k++) wrong += im->data[3 * i + k] != made_jpeg_rgb(plain + i * n, n, k);
    free(plain);
    return wrong;
}

/* Whole, and a part in the middle: which of them were decoded; BROKEN_WRONG where something was not told, a
 * part is not the part of the whole, or the whole not libjpeg's. */
static inline int broken_try(const uint8_t *data, size_t size)
{
    pl_image whole = {0}, part = {0};
    pl_image_info info;
    int64_t wrong = 0;
    polar_status st = pl_image_decode(&whole, data, size, "some.file"),
                 measured = pl_image_measure(&info, data, size, "some.file"), cut = POLAR_E_FORMAT;
    wrong +=
        !broken_told(st, &whole) || (measured != POLAR_OK && (measured != POLAR_E_FORMAT || st == POLAR_OK));
    if (st == POLAR_OK) wrong += broken_pixels_differ(data, size, &whole);
    if (measured == POLAR_OK && info.width <= PL_IMAGE_MAX_PIXELS / info.height) {
        pl_box b = {info.width / 3, info.height / 3, info.width - info.width / 2,
                    info.height - info.height / 2};
        if (b.x + b.width > info.width) b.x = 0;
        if (b.y + b.height > info.height) b.y = 0;
        cut = pl_image_decode_crop(&part, data, size, "some.file", b);
        wrong += !broken_told(cut, &part);
        for (int64_t y = 0; st == POLAR_OK && cut == POLAR_OK && y < b.height; y++)
            wrong += memcmp(pl_image_at(&part, 0, y), pl_image_at(&whole, b.x, b.y + y),
                            pl_image_row_bytes(&part)) != 0;
    }
    wrong += st == POLAR_OK && cut != POLAR_OK;
    pl_image_destroy(&whole);
    pl_image_destroy(&part);
    return wrong ? BROKEN_WRONG : (st == POLAR_OK ? BROKEN_WHOLE : 0) | (cut == POLAR_OK ? BROKEN_PART : 0);
}

typedef struct broken_count {
    int64_t tries, decoded, refused, wrong; /* decoded: whole or in part */
} broken_count;

/* One more: an exact copy, so that a sanitizer sees the end. */
static inline int broken_add(broken_count *c, const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size + !size);
    memcpy(copy, data, size);
    int r = broken_try(copy, size);
    free(copy);
    c->tries++;
    c->wrong += r == BROKEN_WRONG;
    c->decoded += r > 0;
    c->refused += r == 0;
    return r;
}

#endif
