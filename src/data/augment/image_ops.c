/* image_ops.c -- tables, blends and smoothing; the operations by number.
 *
 * A table operation maps each channel by 256 bytes: exact. A blend is grey + arg (v - grey) in single
 * precision, cut to a byte; Brightness and Contrast have one grey for all pixels and are tables too.
 * Smoothing is the mean over 3 x 3 with the middle counted five times, s / 13 rounded to nearest: Pillow sums
 * it in floats, whose error (below 1e-4) never reaches the next half, for s / 13 is at least 1/26 away from
 * one; the outermost pixels stay. Grey is (19595 r + 38470 g + 7471 b + 32768) / 65536.
 */
#include "data/augment/image_ops.h"

#include <math.h>
#include <string.h>

#include "data/set/clones.h"

typedef uint8_t table[3][256];

static void table_apply(pl_image *im, table t)
{
    uint8_t *p = im->data;
    for (int64_t n = im->width * im->height; n > 0; n--, p += 3)
        p[0] = t[0][p[0]], p[1] = t[1][p[1]], p[2] = t[2][p[2]];
}

typedef int64_t histogram[3][256];

/* Four counts side by side, so that runs of one colour do not wait for one another. */
static void histogram_of(histogram h, const pl_image *im)
{
    uint32_t part[4][3][256];
    const uint8_t *p = im->data;
    int64_t n = im->width * im->height, most = (int64_t)1 << 30;
    memset(h, 0, sizeof(histogram));
    while (n > 0) {
        int64_t now = n < most ? n : most;
        memset(part, 0, sizeof part);
        for (int64_t i = 0; i < now; i++, p += 3)
            part[i & 3][0][p[0]]++, part[i & 3][1][p[1]]++, part[i & 3][2][p[2]]++;
        for (int c = 0; c < 3; c++)
            for (int v = 0; v < 256; v++)
                h[c][v] += (int64_t)part[0][c][v] + part[1][c][v] + part[2][c][v] + part[3][c][v];
        n -= now;
    }
}

/* ---- what Pillow's ImageOps do ------------------------------------------------------------------ */

static void stretch_table(uint8_t t[256], const int64_t h[256])
{
    int lo = 0, hi = 255;
    while (lo < 255 && !h[lo]) lo++;
    while (hi > 0 && !h[hi]) hi--;
    for (int v = 0; v < 256; v++) t[v] = pl_stretch_of(v, lo, hi);
}

static void equal_table(uint8_t t[256], const int64_t h[256])
{
    int64_t total = 0, last = 0, colours = 0;
    for (int v = 0; v < 256; v++) {
        total += h[v];
        if (h[v]) last = h[v], colours++;
    }
    int64_t step = colours > 1 ? (total - last) / 255 : 0, under = 0;
    for (int v = 0; v < 256; v++) {
        t[v] = pl_equal_of(v, under, step);
        under += h[v];
    }
}

static void from_histogram(pl_image *im, void (*make)(uint8_t t[256], const int64_t h[256]))
{
    histogram h;
    table t;
    histogram_of(h, im);
    for (int c = 0; c < 3; c++) make(t[c], h[c]);
    table_apply(im, t);
}

static void from_values(pl_image *im, pl_image_op op, int arg)
{
    table t;
    for (int v = 0; v < 256; v++) t[0][v] = t[1][v] = t[2][v] = (uint8_t)pl_value_map(op, v, arg);
    table_apply(im, t);
}

/* ---- what Pillow's ImageEnhance does ------------------------------------------------------------ */

static void toward_constant(pl_image *im, int grey, float arg)
{
    table t;
    for (int v = 0; v < 256; v++) t[0][v] = t[1][v] = t[2][v] = pl_blend(grey, v, arg);
    table_apply(im, t);
}

PL_CLONES static int64_t grey_sum(const uint8_t *p, int64_t n)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < n; i++) sum += pl_grey_of(p + 3 * i);
    return sum;
}

static int mean_grey(const pl_image *im)
{
    int64_t n = im->width * im->height;
    return (int)((double)grey_sum(im->data, n) / (double)n + 0.5);
}

PL_CLONES static void toward_grey(uint8_t *p, int64_t n, float arg)
{
    for (int64_t i = 0; i < n; i++, p += 3) {
        int g = pl_grey_of(p);
        p[0] = pl_blend(g, p[0], arg), p[1] = pl_blend(g, p[1], arg), p[2] = pl_blend(g, p[2], arg);
    }
}

/* The bytes [3, 3 width - 3) of a row against its neighbours above and below. */
PL_CLONES static void sharpen_row(uint8_t *restrict out, const uint8_t *restrict up,
                                  const uint8_t *restrict row, const uint8_t *restrict down, int64_t bytes,
                                  float arg)
{
    for (int64_t i = 3; i < bytes - 3; i++) {
        uint16_t s = (uint16_t)(up[i - 3] + up[i] + up[i + 3] + row[i - 3] + 5 * row[i] + row[i + 3] +
                                down[i - 3] + down[i] + down[i + 3]);
        out[i] = pl_blend(pl_smooth_of(s), row[i], arg);
    }
}

/* The rows but the first and last; outermost pixels blend with themselves, which changes nothing. */
static void toward_smooth(pl_image *im, float arg, uint8_t *work)
{
    int64_t bytes = (int64_t)pl_image_row_bytes(im);
    memcpy(work, im->data, pl_image_bytes(im));
    for (int64_t y = 1; y < im->height - 1; y++) {
        const uint8_t *row = work + y * bytes;
        sharpen_row(im->data + y * bytes, row - bytes, row, row + bytes, bytes, arg);
    }
}

/* ---- by number ---------------------------------------------------------------------------------- */

size_t pl_image_op_work(const pl_image *im)
{
    return pl_image_affine_work(im->width, im->height); /* more than the others need */
}

int pl_image_op_map(double m[6], pl_image_op op, double arg, int64_t width, int64_t height)
{
    const double same[6] = {1, 0, 0, 0, 1, 0};
    memcpy(m, same, sizeof same);
    switch (op) {
    case PL_IMAGE_ROTATE: pl_image_rotation(m, width, height, arg); return 1;
    case PL_IMAGE_SHEAR_X: m[1] = arg; return 1;
    case PL_IMAGE_SHEAR_Y: m[3] = arg; return 1;
    case PL_IMAGE_TRANSLATE_X: m[2] = arg * (double)width; return 1;
    case PL_IMAGE_TRANSLATE_Y: m[5] = arg * (double)height; return 1;
    default: return 0;
    }
}

void pl_image_op_apply(pl_image *im, const pl_image_op_args *a, uint8_t *work)
{
    double m[6];
    switch (a->op) {
    case PL_IMAGE_AUTO_CONTRAST: from_histogram(im, stretch_table); return;
    case PL_IMAGE_EQUALIZE: from_histogram(im, equal_table); return;
    case PL_IMAGE_INVERT:
    case PL_IMAGE_POSTERIZE:
    case PL_IMAGE_SOLARIZE:
    case PL_IMAGE_SOLARIZE_ADD: from_values(im, a->op, (int)a->arg); return;
    case PL_IMAGE_COLOR: toward_grey(im->data, im->width * im->height, (float)a->arg); return;
    case PL_IMAGE_CONTRAST: toward_constant(im, mean_grey(im), (float)a->arg); return;
    case PL_IMAGE_BRIGHTNESS: toward_constant(im, 0, (float)a->arg); return;
    case PL_IMAGE_SHARPNESS: toward_smooth(im, (float)a->arg, work); return;
    default:
        if (pl_image_op_map(m, a->op, a->arg, im->width, im->height))
            pl_image_affine(im, m, a->filter, a->fill, work);
    }
}

const char *pl_image_op_name(pl_image_op op)
{
    static const char *const names[PL_IMAGE_OPS] = {"AutoContrast",
                                                    "Equalize",
                                                    "Invert",
                                                    "Rotate",
                                                    "PosterizeIncreasing",
                                                    "SolarizeIncreasing",
                                                    "SolarizeAdd",
                                                    "ColorIncreasing",
                                                    "ContrastIncreasing",
                                                    "BrightnessIncreasing",
                                                    "SharpnessIncreasing",
                                                    "ShearX",
                                                    "ShearY",
                                                    "TranslateXRel",
                                                    "TranslateYRel"};
    return op >= 0 && op < PL_IMAGE_OPS ? names[op] : "?";
}

void pl_image_flip(pl_image *im)
{
    for (int64_t y = 0; y < im->height; y++)
        for (uint8_t *a = pl_image_at(im, 0, y), *b = pl_image_at(im, im->width - 1, y); a < b;
             a += 3, b -= 3)
            for (int c = 0; c < 3; c++) {
                uint8_t v = a[c];
                a[c] = b[c], b[c] = v;
            }
}
