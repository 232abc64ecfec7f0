/* augment_elem.h -- a picture of a set as a model sees it, by any number of lanes: crop and resize, flip,
 * RandAugment's operations, normalisation, erasing. The bytes are those of data/augment.
 *
 * What happens to a picture is a row of numbers, drawn and laid out by the host:
 *
 *     PL_AUG_AT                  its first byte among all
 *     PL_AUG_WIDTH, _HEIGHT      in pixels, rows packed
 *     PL_AUG_BOX + 0 .. 3        x, y, width, height: all that resizing sees
 *     PL_AUG_OUT + 0, 1          width and height that the box is resized to
 *     PL_AUG_PART + 0, 1         where the result begins there; it has side x side pixels
 *     PL_AUG_FILTER, _FLIP       pl_filter; mirrored left to right
 *     PL_AUG_ERASE + 0 .. 3      x, y, width, height of what is erased after normalisation; no width: nothing
 *     PL_AUG_NOISE, _COLOUR + c  what it holds then: pl_noise of the draws below, or where that is 0 a colour
 *     PL_AUG_KEY + 0 .. 3        whose draws: the seed's low and high 32 bits, epoch, image
 *     PL_AUG_FILL + 0 .. 2       colour of what comes in from outside
 *     PL_AUG_OPS                 how many operations follow, at most PL_AUG_MOST
 *     PL_AUG_OP + 8 k            pl_image_op, argument, and the map of one that moves pixels (6)
 *
 * A row that makes no sense gives NaNs. A lane does the items lane, lane + lanes, ...; all lanes meet between
 * the passes.
 */
#ifndef PL_MATH_AUGMENT_ELEM_H
#define PL_MATH_AUGMENT_ELEM_H

#include "math/noise_elem.h"
#include "math/picture_elem.h"

enum {
    PL_AUG_AT,
    PL_AUG_WIDTH,
    PL_AUG_HEIGHT,
    PL_AUG_BOX,
    PL_AUG_OUT = PL_AUG_BOX + 4,
    PL_AUG_PART = PL_AUG_OUT + 2,
    PL_AUG_FILTER = PL_AUG_PART + 2,
    PL_AUG_FLIP,
    PL_AUG_ERASE,
    PL_AUG_NOISE = PL_AUG_ERASE + 4,
    PL_AUG_COLOUR,
    PL_AUG_KEY = PL_AUG_COLOUR + 3,
    PL_AUG_FILL = PL_AUG_KEY + 4,
    PL_AUG_OPS = PL_AUG_FILL + 3,
    PL_AUG_OP,
    PL_AUG_OP_COLS = 8,
    PL_AUG_MOST = 4,
    PL_AUG_COLS = PL_AUG_OP + PL_AUG_OP_COLS * PL_AUG_MOST
};

#define PL_AUG_SIDE_MOST ((int64_t)1 << 24)
#define PL_AUG_COUNTERS  (3 * 256 + 1) /* a histogram of each channel, and a sum of greys */

#ifdef __CUDA_ARCH__
#define PL_AUG_MEET()       __syncthreads()
#define PL_AUG_COUNT(at, n) atomicAdd((at), (n))
#else
#define PL_AUG_MEET()       ((void)0)
#define PL_AUG_COUNT(at, n) (*(at) += (n))
#endif

/* Where a picture is made. */
typedef struct pl_augment_place {
    const uint8_t *pixels; /* of all pictures */
    int64_t bytes;         /* of them */
    const double *row;     /* (PL_AUG_COLS) */
    const float *scale;    /* (3, 256): the value of a byte */
    int64_t side;
    int64_t height, taps; /* the most rows of a box and weights of an output that there is room for */
    int32_t *weights;     /* (2, side, taps + 2): first, count, weights */
    uint8_t *narrow;      /* (height, side, 3) */
    uint8_t *a, *b;       /* (side, side, 3) */
    uint32_t *counters;   /* (PL_AUG_COUNTERS) */
    uint8_t *table;       /* (3, 256) */
    float *out;           /* (3, side, side) */
} pl_augment_place;

/* Bytes that a picture takes for weights, narrow, a and b, each piece at a multiple of 16. */
PL_HD int64_t pl_augment_piece(int64_t bytes)
{
    return (bytes + 15) / 16 * 16;
}

PL_HD int64_t pl_augment_room(int64_t side, int64_t height, int64_t taps)
{
    return pl_augment_piece(2 * side * (taps + 2) * 4) + pl_augment_piece(height * side * 3) +
           2 * pl_augment_piece(side * side * 3);
}

PL_HD void pl_augment_point(pl_augment_place *p, uint8_t *room)
{
    p->weights = (int32_t *)room;
    p->narrow = room + pl_augment_piece(2 * p->side * (p->taps + 2) * 4);
    p->a = p->narrow + pl_augment_piece(p->height * p->side * 3);
    p->b = p->a + pl_augment_piece(p->side * p->side * 3);
}

/* ---- resizing ----------------------------------------------------------------------------------- */

typedef struct pl_augment_box {
    int64_t x, y, width, height, out_width, out_height, part_x, part_y;
    pl_filter filter;
} pl_augment_box;

PL_HD int pl_aug_between(double v, double least, double most)
{
    return v >= least && v <= most; /* not so of a NaN */
}

/* Whether the row makes sense, and its box. */
PL_HD int pl_augment_box_of(pl_augment_box *b, const pl_augment_place *p)
{
    const double *r = p->row, most = (double)PL_AUG_SIDE_MOST;
    if (!pl_aug_between(r[PL_AUG_WIDTH], 1, most) || !pl_aug_between(r[PL_AUG_HEIGHT], 1, most) ||
        !pl_aug_between(r[PL_AUG_AT], 0, (double)p->bytes - 3 * r[PL_AUG_WIDTH] * r[PL_AUG_HEIGHT]))
        return 0;
    for (int k = 0; k < 2; k++) {
        double all = r[PL_AUG_WIDTH + k], from = r[PL_AUG_BOX + k], size = r[PL_AUG_BOX + 2 + k],
               out = r[PL_AUG_OUT + k];
        if (!pl_aug_between(from, 0, all - 1) || !pl_aug_between(size, 1, all - from) ||
            !pl_aug_between(out, (double)p->side, most) ||
            !pl_aug_between(r[PL_AUG_PART + k], 0, out - (double)p->side) ||
            !pl_aug_between(4 * size / out + 6, 0, (double)p->taps)) /* 2 S max(s, 1) + 2 at most */
            return 0;
    }
    if (!pl_aug_between(r[PL_AUG_BOX + 3], 1, (double)p->height) || !pl_aug_between(r[PL_AUG_FILTER], 0, 1) ||
        !pl_aug_between(r[PL_AUG_OPS], 0, PL_AUG_MOST))
        return 0;
    b->x = (int64_t)r[PL_AUG_BOX], b->y = (int64_t)r[PL_AUG_BOX + 1];
    b->width = (int64_t)r[PL_AUG_BOX + 2], b->height = (int64_t)r[PL_AUG_BOX + 3];
    b->out_width = (int64_t)r[PL_AUG_OUT], b->out_height = (int64_t)r[PL_AUG_OUT + 1];
    b->part_x = (int64_t)r[PL_AUG_PART], b->part_y = (int64_t)r[PL_AUG_PART + 1];
    b->filter = r[PL_AUG_FILTER] > 0 ? PL_FILTER_BICUBIC : PL_FILTER_BILINEAR;
    return 1;
}

/* Weights of output `i` of a direction into w: first, count, weights. */
PL_HD void pl_augment_taps(int32_t *w, const pl_resize_way *d, int64_t i)
{
    int64_t from, to;
    double centre = pl_resize_way_reach(&from, &to, d, i), sum = 0;
    for (int64_t j = from; j < to; j++) sum += pl_resize_real(d, centre, j);
    w[0] = (int32_t)from, w[1] = (int32_t)(to - from);
    for (int64_t j = from; j < to; j++) w[2 + j - from] = pl_resize_weight(pl_resize_real(d, centre, j), sum);
}

/* A pixel from those `step` bytes apart, of which number `first` is at in. */
PL_HD void pl_augment_weigh(uint8_t *out, const uint8_t *in, int64_t first, int64_t step, const int32_t *w)
{
    int32_t sum[3] = {1 << (PL_RESIZE_BITS - 1), 1 << (PL_RESIZE_BITS - 1), 1 << (PL_RESIZE_BITS - 1)};
    in += (w[0] - first) * step;
    for (int32_t k = 0; k < w[1]; k++, in += step)
        for (int c = 0; c < 3; c++) sum[c] += w[2 + k] * in[c];
    for (int c = 0; c < 3; c++) out[c] = pl_resize_byte(sum[c]);
}

/* The box, resized and flipped, into p->a. */
PL_HD void pl_augment_resize(const pl_augment_place *p, const pl_augment_box *b, int lane, int lanes)
{
    const int64_t side = p->side, stride = 3 * (int64_t)p->row[PL_AUG_WIDTH], each = p->taps + 2;
    const int flip = p->row[PL_AUG_FLIP] > 0;
    const pl_resize_way across = pl_resize_way_of(b->filter, b->width, 0, (float)b->width, b->out_width),
                        down = pl_resize_way_of(b->filter, b->height, 0, (float)b->height, b->out_height);
    const uint8_t *src = p->pixels + (int64_t)p->row[PL_AUG_AT] + b->y * stride + 3 * b->x;
    int64_t first, last, unused;
    for (int64_t i = lane; i < side; i += lanes) {
        pl_augment_taps(p->weights + (flip ? side - 1 - i : i) * each, &across, b->part_x + i);
        pl_augment_taps(p->weights + (side + i) * each, &down, b->part_y + i);
    }
    pl_resize_way_reach(&first, &unused, &down, b->part_y);
    pl_resize_way_reach(&unused, &last, &down, b->part_y + side - 1);
    PL_AUG_MEET();
    for (int64_t i = lane; i < (last - first) * side; i += lanes)
        pl_augment_weigh(p->narrow + 3 * i, src + (first + i / side) * stride, 0, 3,
                         p->weights + i % side * each);
    PL_AUG_MEET();
    for (int64_t i = lane; i < side * side; i += lanes)
        pl_augment_weigh(p->a + 3 * i, p->narrow + 3 * (i % side), first, 3 * side,
                         p->weights + (side + i / side) * each);
    PL_AUG_MEET();
}

/* ---- RandAugment -------------------------------------------------------------------------------- */

/* The table of a channel from its histogram. */
PL_HD void pl_augment_table(uint8_t *t, const uint32_t *h, int equalize)
{
    int lo = 0, hi = 255;
    int64_t total = 0, last = 0, colours = 0, under = 0;
    while (lo < 255 && !h[lo]) lo++;
    while (hi > 0 && !h[hi]) hi--;
    for (int v = 0; v < 256; v++) {
        total += h[v];
        if (h[v]) last = h[v], colours++;
    }
    int64_t step = colours > 1 ? (total - last) / 255 : 0;
    for (int v = 0; v < 256; v++) {
        t[v] = equalize ? pl_equal_of(v, under, step) : pl_stretch_of(v, lo, hi);
        under += h[v];
    }
}

/* Counts what the operation wants to know of the whole picture, and copies it where pixels look around. */
PL_HD void pl_augment_look(const pl_augment_place *p, pl_image_op op, int lane, int lanes)
{
    const int64_t n = p->side * p->side;
    const int counts = op == PL_IMAGE_AUTO_CONTRAST || op == PL_IMAGE_EQUALIZE,
              greys = op == PL_IMAGE_CONTRAST;
    for (int i = lane; i < PL_AUG_COUNTERS; i += lanes) p->counters[i] = 0;
    PL_AUG_MEET();
    for (int64_t i = lane; i < n; i += lanes) {
        const uint8_t *v = p->a + 3 * i;
        for (int c = 0; c < 3 && counts; c++) PL_AUG_COUNT(&p->counters[256 * c + v[c]], 1u);
        if (greys) PL_AUG_COUNT(&p->counters[3 * 256], (uint32_t)pl_grey_of(v));
        for (int c = 0; c < 3; c++) p->b[3 * i + c] = v[c];
    }
    PL_AUG_MEET();
    for (int c = lane; c < 3 && counts; c += lanes)
        pl_augment_table(p->table + 256 * c, p->counters + 256 * c, op == PL_IMAGE_EQUALIZE);
    PL_AUG_MEET();
}

/* Sharpness: the pixel against its neighbours; outermost ones stay. */
PL_HD uint8_t pl_augment_sharpen(const pl_augment_place *p, int64_t x, int64_t y, int c, float arg)
{
    const int64_t s = 3 * p->side;
    const uint8_t *v = p->b + y * s + 3 * x + c;
    if (x == 0 || y == 0 || x == p->side - 1 || y == p->side - 1) return *v;
    int sum = v[-s - 3] + v[-s] + v[-s + 3] + v[-3] + 5 * v[0] + v[3] + v[s - 3] + v[s] + v[s + 3];
    return pl_blend(pl_smooth_of((uint16_t)sum), *v, arg);
}

PL_HD int pl_augment_moves(pl_image_op op)
{
    return op == PL_IMAGE_ROTATE || op >= PL_IMAGE_SHEAR_X;
}

/* One operation on the picture in p->a. */
PL_HD void pl_augment_op(const pl_augment_place *p, const double *o, int lane, int lanes)
{
    if (!pl_aug_between(o[0], 0, PL_IMAGE_OPS - 1)) return;
    const pl_image_op op = (pl_image_op)(int)o[0];
    const float arg = (float)o[1];
    const int whole = (int)o[1];
    const uint8_t fill[3] = {(uint8_t)p->row[PL_AUG_FILL], (uint8_t)p->row[PL_AUG_FILL + 1],
                             (uint8_t)p->row[PL_AUG_FILL + 2]};
    const int cubic = p->row[PL_AUG_FILTER] > 0;
    const int64_t n = p->side * p->side;
    pl_augment_look(p, op, lane, lanes);
    const int mean = (int)((double)p->counters[3 * 256] / (double)n + 0.5);
    for (int64_t i = lane; i < n; i += lanes) {
        uint8_t *v = p->a + 3 * i;
        if (pl_augment_moves(op)) {
            pl_affine_pixel(v, p->b, p->side, p->side, i % p->side, i / p->side, o + 2, cubic, fill);
            continue;
        }
        const int grey = op == PL_IMAGE_COLOR ? pl_grey_of(v) : op == PL_IMAGE_CONTRAST ? mean : 0;
        for (int c = 0; c < 3; c++) {
            if (op == PL_IMAGE_AUTO_CONTRAST || op == PL_IMAGE_EQUALIZE) v[c] = p->table[256 * c + v[c]];
            else if (op == PL_IMAGE_COLOR || op == PL_IMAGE_CONTRAST || op == PL_IMAGE_BRIGHTNESS)
                v[c] = pl_blend(grey, v[c], arg);
            else if (op == PL_IMAGE_SHARPNESS) v[c] = pl_augment_sharpen(p, i % p->side, i / p->side, c, arg);
            else v[c] = (uint8_t)pl_value_map(op, v[c], whole);
        }
    }
    PL_AUG_MEET();
}

/* ---- the whole ---------------------------------------------------------------------------------- */

/* What an erased pixel holds in channel c. */
PL_HD float pl_augment_erased(const double *row, int64_t side, int64_t x, int64_t y, int c)
{
    const double *key = row + PL_AUG_KEY;
    if (!(row[PL_AUG_NOISE] > 0)) return (float)row[PL_AUG_COLOUR + c];
    const uint64_t seed = (uint64_t)key[1] << 32 | (uint64_t)key[0];
    const pl_n2 z = pl_noise(seed, (uint64_t)key[2], (uint64_t)key[3], c * side + y, x / 2);
    return (float)(x % 2 ? z.b : z.a);
}

PL_HD void pl_augment_floats(const pl_augment_place *p, int lane, int lanes)
{
    const int64_t side = p->side, n = side * side;
    const double *e = p->row + PL_AUG_ERASE;
    for (int64_t i = lane; i < n; i += lanes) {
        const int64_t x = i % side, y = i / side;
        const int erased =
            (double)x >= e[0] && (double)x < e[0] + e[2] && (double)y >= e[1] && (double)y < e[1] + e[3];
        for (int c = 0; c < 3; c++)
            p->out[c * n + i] =
                erased ? pl_augment_erased(p->row, side, x, y, c) : p->scale[256 * c + p->a[3 * i + c]];
    }
}

PL_HD void pl_augment_make(const pl_augment_place *p, int lane, int lanes)
{
    pl_augment_box box;
    if (!pl_augment_box_of(&box, p)) {
        for (int64_t i = lane; i < 3 * p->side * p->side; i += lanes) p->out[i] = NAN;
        return;
    }
    pl_augment_resize(p, &box, lane, lanes);
    for (int k = 0; k < (int)p->row[PL_AUG_OPS]; k++)
        pl_augment_op(p, p->row + PL_AUG_OP + PL_AUG_OP_COLS * k, lane, lanes);
    pl_augment_floats(p, lane, lanes);
}

/* CutMix (a rectangle changes places) or, without one, Mixup, of a pair of pictures at x and y: entry i of n.
 */
PL_HD void pl_mix_entry(float *x, float *y, int64_t i, int64_t side, const int64_t cut[4], int mixup,
                        float lam, float rest)
{
    const float a = x[i], b = y[i];
    const int64_t column = i % side, row = i / side % side;
    if (mixup) x[i] = pl_mix_of(a, b, lam, rest), y[i] = pl_mix_of(b, a, lam, rest);
    else if (column >= cut[0] && column < cut[0] + cut[2] && row >= cut[1] && row < cut[1] + cut[3])
        x[i] = b, y[i] = a;
}

#endif
