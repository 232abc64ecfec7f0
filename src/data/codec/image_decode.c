/* image_decode.c -- which decoder a file needs, and what no file may claim. */
#include "data/codec/image_decode.h"

#include <string.h>

#include "data/codec/image_codec.h"
#include "data/codec/image_file.h"

#define HEAD_BYTES 65536 /* most headers, thumbnails and profiles included, are shorter */

static const struct {
    const char *name, *magic;
    size_t at, size;
} others[] = {
    {"GIF", "GIF8", 0, 4},
    {"BMP", "BM", 0, 2},
    {"TIFF", "II*\0", 0, 4},
    {"TIFF", "MM\0*", 0, 4},
    {"WebP", "WEBP", 8, 4},
    {"AVIF or HEIF", "ftyp", 4, 4},
    {"JPEG 2000", "\0\0\0\x0cjP", 0, 6},
    {"JPEG XL", "\xff\x0a", 0, 2},
    {"a web page", "<!DOCTYPE", 0, 9},
    {"a web page", "<html", 0, 5},
    {"ZIP", "PK\3\4", 0, 4},
    {"gzip", "\x1f\x8b", 0, 2},
};

pl_image_format pl_image_sniff(const uint8_t *bytes, size_t size)
{
    if (size >= 3 && !memcmp(bytes, "\xff\xd8\xff", 3)) return PL_IMAGE_JPEG;
    if (size >= 8 && !memcmp(bytes, "\x89PNG\r\n\x1a\n", 8)) return PL_IMAGE_PNG;
    return PL_IMAGE_OTHER;
}

static polar_status refuse(const pl_codec_source *s)
{
    PL_NEED(s->size, POLAR_E_FORMAT, "%s: the file is empty", s->name);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (s->size >= others[i].at + others[i].size &&
            !memcmp(s->bytes + others[i].at, others[i].magic, others[i].size))
            return PL_FAIL(POLAR_E_FORMAT, "%s: neither JPEG nor PNG, it looks like %s (convert it first)",
                           s->name, others[i].name);
    return PL_FAIL(POLAR_E_FORMAT, "%s: neither JPEG nor PNG by its first bytes", s->name);
}

polar_status pl_codec_check(const pl_codec_source *src, const pl_image_info *info, const pl_box *box,
                            uint64_t least_bytes)
{
    int64_t w = info->width, h = info->height;
    PL_NEED(w > 0 && h > 0, POLAR_E_FORMAT, "%s: the header claims %lld x %lld pixels", src->name,
            (long long)w, (long long)h);
    PL_NEED(w <= PL_IMAGE_MAX_PIXELS / h, POLAR_E_FORMAT,
            "%s: the header claims %lld x %lld pixels; more than %d are refused", src->name, (long long)w,
            (long long)h, PL_IMAGE_MAX_PIXELS);
    PL_NEED(least_bytes <= src->size, POLAR_E_FORMAT,
            "%s: ends early: %lld x %lld pixels cannot be in %zu bytes", src->name, (long long)w,
            (long long)h, src->size);
    int inside =
        !box || (box->width > 0 && box->height > 0 && box->x >= 0 && box->y >= 0 && box->width <= w &&
                 box->x <= w - box->width && box->height <= h && box->y <= h - box->height);
    PL_NEED(inside, POLAR_E_ARG, "%s: a crop of %lld x %lld at %lld, %lld is not inside %lld x %lld",
            src->name, (long long)box->width, (long long)box->height, (long long)box->x, (long long)box->y,
            (long long)w, (long long)h);
    return POLAR_OK;
}

polar_status pl_image_measure(pl_image_info *out, const uint8_t *bytes, size_t size, const char *name)
{
    pl_codec_source src = {bytes, size, name};
    *out = (pl_image_info){0};
    switch (pl_image_sniff(bytes, size)) {
    case PL_IMAGE_JPEG: return pl_jpeg_measure(out, &src, 0);
    case PL_IMAGE_PNG: return pl_png_measure(out, &src);
    default: return refuse(&src);
    }
}

static polar_status decode(pl_image *out, const pl_codec_source *src, const pl_box *box)
{
    *out = (pl_image){0};
    switch (pl_image_sniff(src->bytes, src->size)) {
    case PL_IMAGE_JPEG: return pl_jpeg_decode(out, src, box);
    case PL_IMAGE_PNG: return pl_png_decode(out, src, box);
    default: return refuse(src);
    }
}

polar_status pl_image_decode(pl_image *out, const uint8_t *bytes, size_t size, const char *name)
{
    pl_codec_source src = {bytes, size, name};
    return decode(out, &src, NULL);
}

polar_status pl_image_decode_crop(pl_image *out, const uint8_t *bytes, size_t size, const char *name,
                                  pl_box box)
{
    pl_codec_source src = {bytes, size, name};
    return decode(out, &src, &box);
}

polar_status pl_image_measure_file(pl_image_info *out, const char *path)
{
    pl_file_bytes b = {0};
    polar_status st = pl_file_bytes_read(&b, path, HEAD_BYTES);
    if (st == POLAR_OK) st = pl_image_measure(out, b.data, b.size, path);
    /* a long header, or a true complaint */
    if (st == POLAR_E_FORMAT && !b.whole && pl_image_sniff(b.data, b.size) != PL_IMAGE_OTHER) {
        st = pl_file_bytes_read(&b, path, 0);
        if (st == POLAR_OK) st = pl_image_measure(out, b.data, b.size, path);
    }
    pl_file_bytes_drop(&b);
    return st;
}

polar_status pl_image_decode_file(pl_image *out, const char *path)
{
    pl_file_bytes b = {0};
    *out = (pl_image){0};
    polar_status st = pl_file_bytes_read(&b, path, 0);
    if (st == POLAR_OK) st = pl_image_decode(out, b.data, b.size, path);
    pl_file_bytes_drop(&b);
    return st;
}
