/* picture_elem.h -- pixels of RandomResizedCrop, RandAugment, normalisation and mixing: the formulas that the
 * host's pipeline (data/augment) and a device's share, byte for byte Pillow's.
 *
 * Resizing. Output position i has its centre at c = x0 + (i + 1/2) s in the source, s = (x1 - x0) / size. A
 * filter of support S (1 or 2) is widened by max(s, 1): the weights of the pixels j with |j + 1/2 - c| < S
 * max(s, 1) are f((j + 1/2 - c) / max(s, 1)), divided by their sum, as whole multiples of 2^-22; sums of them
 * are rounded to a byte.
 *
 * A blend is grey + arg (v - grey) in single precision, cut to a byte. Smoothing is the mean over 3 x 3 with
 * the middle counted five times. Grey is (19595 r + 38470 g + 7471 b + 32768) / 65536.
 *
 * An affine map brings (x, y) from (u, v) = (m0 (x + 1/2) + m1 (y + 1/2) + m2, m3 (x + 1/2) + m4 (y + 1/2) +
 * m5), by the two or four pixels around it in each direction, along the rows first; see image_affine.c.
 */
#ifndef PL_MATH_PICTURE_ELEM_H
#define PL_MATH_PICTURE_ELEM_H

#include <math.h>
#include <stdint.h>

#include "math/hd.h"

typedef enum pl_filter {
    PL_FILTER_BILINEAR,
    PL_FILTER_BICUBIC, /* a = -1/2 */
    PL_FILTERS
} pl_filter;

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

/* ---- resizing ----------------------------------------------------------------------------------- */

#define PL_RESIZE_BITS 22 /* weights are whole multiples of 2^-22 */

/* One direction: output i of `size` has its centre at start + (i + 1/2) scale among `side` pixels. */
typedef struct pl_resize_way {
    pl_filter filter;
    int64_t side;
    double start, scale, step, support;
} pl_resize_way;

PL_HD pl_resize_way pl_resize_way_of(pl_filter filter, int64_t side, float x0, float x1, int64_t size)
{
    pl_resize_way d;
    double scale = (double)(x1 - x0) / (double)size, wide = scale < 1 ? 1 : scale;
    d.filter = filter, d.side = side, d.start = (double)x0, d.scale = scale, d.step = 1 / wide;
    d.support = (filter == PL_FILTER_BILINEAR ? 1 : 2) * wide;
    return d;
}

/* The pixels [*from, *to) that output i may weigh; its centre is returned. */
PL_HD double pl_resize_way_reach(int64_t *from, int64_t *to, const pl_resize_way *d, int64_t i)
{
    double centre = d->start + ((double)i + 0.5) * d->scale;
    *from = (int64_t)(centre - d->support + 0.5);
    *to = (int64_t)(centre + d->support + 0.5); /* toward zero, as Pillow */
    if (*from < 0) *from = 0;
    if (*to > d->side) *to = d->side;
    return centre;
}

PL_HD double pl_filter_at(pl_filter filter, double x)
{
    const double a = -0.5;
    x = fabs(x);
    if (filter == PL_FILTER_BILINEAR) return x < 1 ? 1 - x : 0;
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

/* Of pixel j, before it is divided by the sum. */
PL_HD double pl_resize_real(const pl_resize_way *d, double centre, int64_t j)
{
    return pl_filter_at(d->filter, ((double)j - centre + 0.5) * d->step);
}

PL_HD int32_t pl_resize_weight(double real, double sum)
{
    double v = (sum != 0 ? real / sum : real) * (1 << PL_RESIZE_BITS);
    return (int32_t)(v < 0 ? v - 0.5 : v + 0.5);
}

/* Of a sum that began with 2^(PL_RESIZE_BITS - 1). */
PL_HD uint8_t pl_resize_byte(int32_t sum)
{
    sum >>= PL_RESIZE_BITS;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

/* ---- values ------------------------------------------------------------------------------------- */

PL_HD int pl_byte_clip(int v)
{
    return v < 0 ? 0 : v > 255 ? 255 : v;
}

PL_HD uint8_t pl_grey_of(const uint8_t *p)
{
    return (uint8_t)((19595u * p[0] + 38470u * p[1] + 7471u * p[2] + 32768u) >> 16);
}

PL_HD uint8_t pl_blend(int a, int b, float arg)
{
    float v = (float)a + arg * (float)(b - a);
    v = v < 0 ? 0 : v > 255 ? 255 : v;
    return (uint8_t)(int)v;
}

/* Invert, Posterize, Solarize, SolarizeAdd. */
PL_HD int pl_value_map(pl_image_op op, int v, int arg)
{
    if (op == PL_IMAGE_INVERT) return 255 - v;
    if (op == PL_IMAGE_POSTERIZE) return v & ~((1 << (8 - arg)) - 1);
    if (op == PL_IMAGE_SOLARIZE) return v < arg ? v : 255 - v;
    return v < 128 ? pl_byte_clip(v + arg) : v;
}

/* The smoothed value: s is the sum over 3 x 3 with the middle counted five times. */
PL_HD int pl_smooth_of(uint16_t s)
{
    return (uint16_t)(2 * s + 13) / 26;
}

/* AutoContrast: the table of a channel whose darkest and lightest values are lo and hi. */
PL_HD uint8_t pl_stretch_of(int v, int lo, int hi)
{
    double scale = hi > lo ? 255.0 / (hi - lo) : 1, offset = hi > lo ? -lo * scale : 0;
    return (uint8_t)pl_byte_clip((int)(v * scale + offset));
}

/* Equalize: of value v, below which `under` pixels lie. */
PL_HD uint8_t pl_equal_of(int v, int64_t under, int64_t step)
{
    int64_t w = step ? (step / 2 + under) / step : v;
    return (uint8_t)(w > 255 ? 255 : w);
}

/* Mixup: x lam + y (1 - lam), in floats. */
PL_HD float pl_mix_of(float x, float y, float lam, float rest)
{
    return x * lam + y * rest;
}

/* ---- affine maps -------------------------------------------------------------------------------- */

PL_HD double pl_affine_linear(double a, double b, double d)
{
    return a + (b - a) * d;
}

PL_HD double pl_affine_cubic(double a, double b, double c, double e, double d)
{
    double p2 = c - a, p3 = 2 * (a - b) + c - e, p4 = b - a - c + e;
    return b + d * (p2 + d * (p3 + d * p4));
}

PL_HD int pl_within(int i, int n)
{
    return i < 0 ? 0 : i >= n ? n - 1 : i;
}

/* A byte of a word as a double, exactly; on a GPU by a subtraction, which it does four times as fast. */
PL_HD double pl_byte_f64(uint32_t word, int c)
{
#ifdef __CUDA_ARCH__
    return __hiloint2double(0x43300000, (int)(word >> 8 * c & 255u)) - 4503599627370496.0;
#else
    return (double)(word >> 8 * c & 255u);
#endif
}

/* A channel's value in a row of four pixels (cubic) or two, at d beyond its second (first). */
PL_HD double pl_affine_row(const uint32_t *t, int c, double d, int cubic)
{
    if (!cubic) return pl_affine_linear(pl_byte_f64(t[0], c), pl_byte_f64(t[1], c), d);
    return pl_affine_cubic(pl_byte_f64(t[0], c), pl_byte_f64(t[1], c), pl_byte_f64(t[2], c),
                           pl_byte_f64(t[3], c), d);
}

/* The pixel (x, y) of the result, from words of RGB; outside of the source it is fill. */
PL_HD uint32_t pl_affine_pixel(const uint32_t *src, int width, int height, int x, int y, const double m[6],
                               int cubic, uint32_t fill)
{
    double px = (double)x + 0.5, py = (double)y + 0.5, u = m[0] * px + m[1] * py + m[2],
           v = m[3] * px + m[4] * py + m[5];
    if (!(u >= 0 && u < (double)width && v >= 0 && v < (double)height)) return fill;
    double a = u - 0.5, b = v - 0.5;
    const int i = (int)floor(a), j = (int)floor(b), n = cubic ? 4 : 2, before = cubic ? 1 : 0;
    double dx = a - (double)i, dy = b - (double)j;
    uint32_t t[4][4] = {{0}}, out = 0;
    for (int r = 0; r < 4; r++)
        for (int k = 0; k < 4; k++)
            if (r < n && k < n)
                t[r][k] = src[(int64_t)pl_within(j - before + r, height) * width +
                              pl_within(i - before + k, width)];
    for (int c = 0; c < 3; c++) {
        double s = cubic ? pl_affine_cubic(pl_affine_row(t[0], c, dx, 1), pl_affine_row(t[1], c, dx, 1),
                                           pl_affine_row(t[2], c, dx, 1), pl_affine_row(t[3], c, dx, 1), dy)
                         : pl_affine_linear(pl_affine_row(t[0], c, dx, 0), pl_affine_row(t[1], c, dx, 0), dy);
        out |= (uint32_t)pl_byte_clip((int)s) << 8 * c; /* toward zero, then cut */
    }
    return out;
}

#endif
