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
 * the passes. Between the passes a pixel is a word, red in its low byte, and the weights of an output are
 * `side` apart, so that neighbouring lanes read neighbouring words; nothing is divided by the side.
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
    int32_t *weights;     /* (2, taps + 2, side): first, count, weights */
    uint32_t *narrow;     /* (height, side) */
    uint32_t *a, *b;      /* (side, side) */
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
    return pl_augment_piece(2 * side * (taps + 2) * 4) + pl_augment_piece(height * side * 4) +
           2 * pl_augment_piece(side * side * 4);
}

PL_HD void pl_augment_point(pl_augment_place *p, uint8_t *room)
{
    p->weights = (int32_t *)room;
    p->narrow = (uint32_t *)(room + pl_augment_piece(2 * p->side * (p->taps + 2) * 4));
    p->a = p->narrow + pl_augment_piece(p->height * p->side * 4) / 4;
    p->b = p->a + pl_augment_piece(p->side * p->side * 4) / 4;
}

/* Where a lane is among rows of `side` items: item number `at`. */
typedef struct pl_augment_walk {
    int64_t at, lanes;
    int x, y, side, across, down; /* the next item is so much further */
} pl_augment_walk;

PL_HD pl_augment_walk pl_augment_walk_of(const pl_augment_place *p, int lane, int lanes)
{
    const int side = (int)p->side;
    const pl_augment_walk w = {lane, lanes, lane % side, lane / side, side, lanes % side, lanes / side};
    return w;
}

PL_HD void pl_augment_next(pl_augment_walk *w)
{
    w->at += w->lanes;
    w->x += w->across, w->y += w->down;
    if (w->x >= w->side) w->x -= w->side, w->y++;
}

/* Four bytes at a multiple of 4. */
PL_HD uint32_t pl_word_at(const uint8_t *p)
{
#ifdef __CUDA_ARCH__
    return *(const uint32_t *)p;
#else
    uint32_t word;
    memcpy(&word, p, sizeof word);
    return word;
#endif
}

PL_HD int pl_word_byte(uint32_t word, int c)
{
    return (int)(word >> 8 * c & 255u);
}

PL_HD uint32_t pl_word_of(int r, int g, int b)
{
    return (uint32_t)r | (uint32_t)g << 8 | (uint32_t)b << 16;
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

/* Weights of output `i` of a direction into w, `side` apart: first, count, weights. */
PL_HD void pl_augment_taps(int32_t *w, int64_t side, const pl_resize_way *d, int64_t i)
{
    int64_t from, to;
    double centre = pl_resize_way_reach(&from, &to, d, i), sum = 0;
    for (int64_t j = from; j < to; j++) sum += pl_resize_real(d, centre, j);
    w[0] = (int32_t)from, w[side] = (int32_t)(to - from);
    for (int64_t j = from; j < to; j++)
        w[(2 + j - from) * side] = pl_resize_weight(pl_resize_real(d, centre, j), sum);
}

/* A pixel from those that follow one another, three bytes each, from `in` on, by whole words: none is read
 * that has no byte of them. */
PL_HD uint32_t pl_augment_across(const uint8_t *in, int64_t side, const int32_t *w)
{
    int32_t sum[3] = {1 << (PL_RESIZE_BITS - 1), 1 << (PL_RESIZE_BITS - 1), 1 << (PL_RESIZE_BITS - 1)};
    const int count = w[side];
    in += 3 * (int64_t)w[0];
    int used = 8 * (int)((uintptr_t)in & 3); /* bits of the word that is being read */
    in -= used / 8;
    uint32_t low = pl_word_at(in);
    w += 2 * side;
    for (int k = 0; k < count; k++, w += side) {
        uint32_t v = used < 32 ? low >> used : 0;
        if (used > 8) {
            low = pl_word_at(in += 4);
            v |= used < 32 ? low << (32 - used) : low;
            used -= 8;
        } else used += 24;
        for (int c = 0; c < 3; c++) sum[c] += *w * pl_word_byte(v, c);
    }
    return pl_word_of(pl_resize_byte(sum[0]), pl_resize_byte(sum[1]), pl_resize_byte(sum[2]));
}

/* ... from those of one column, of which number `first` is at in. */
PL_HD uint32_t pl_augment_down(const uint32_t *in, int64_t first, int64_t side, const int32_t *w)
{
    int32_t sum[3] = {1 << (PL_RESIZE_BITS - 1), 1 << (PL_RESIZE_BITS - 1), 1 << (PL_RESIZE_BITS - 1)};
    const int count = w[side];
    in += (w[0] - first) * side;
    w += 2 * side;
    for (int k = 0; k < count; k++, in += side, w += side)
        for (int c = 0; c < 3; c++) sum[c] += *w * pl_word_byte(*in, c);
    return pl_word_of(pl_resize_byte(sum[0]), pl_resize_byte(sum[1]), pl_resize_byte(sum[2]));
}

/* The box, resized and flipped, into p->a. */
PL_HD void pl_augment_resize(const pl_augment_place *p, const pl_augment_box *b, int lane, int lanes)
{
    const int64_t side = p->side, stride = 3 * (int64_t)p->row[PL_AUG_WIDTH];
    const int flip = p->row[PL_AUG_FLIP] > 0;
    const pl_resize_way across = pl_resize_way_of(b->filter, b->width, 0, (float)b->width, b->out_width),
                        down = pl_resize_way_of(b->filter, b->height, 0, (float)b->height, b->out_height);
    const uint8_t *src = p->pixels + (int64_t)p->row[PL_AUG_AT] + b->y * stride + 3 * b->x;
    int32_t *columns = p->weights, *rows = p->weights + side * (p->taps + 2);
    int64_t first, last, unused;
    for (int64_t i = lane; i < side; i += lanes) {
        pl_augment_taps(columns + (flip ? side - 1 - i : i), side, &across, b->part_x + i);
        pl_augment_taps(rows + i, side, &down, b->part_y + i);
    }
    pl_resize_way_reach(&first, &unused, &down, b->part_y);
    pl_resize_way_reach(&unused, &last, &down, b->part_y + side - 1);
    PL_AUG_MEET();
    for (pl_augment_walk w = pl_augment_walk_of(p, lane, lanes); w.y < last - first; pl_augment_next(&w))
        p->narrow[w.at] = pl_augment_across(src + (first + w.y) * stride, side, columns + w.x);
    PL_AUG_MEET();
    for (pl_augment_walk w = pl_augment_walk_of(p, lane, lanes); w.y < side; pl_augment_next(&w))
        p->a[w.at] = pl_augment_down(p->narrow + w.x, first, side, rows + w.y);
    PL_AUG_MEET();
}

/* ---- RandAugment -------------------------------------------------------------------------------- */

/* What a channel's value v becomes, by its histogram. */
PL_HD uint8_t pl_augment_entry(const uint32_t *h, int v, int equalize)
{
    int lo = 255, hi = 0;
    int64_t total = 0, last = 0, colours = 0, under = 0;
    for (int u = 0; u < 256; u++) {
        const uint32_t n = h[u];
        if (u == v) under = total;
        total += n;
        if (!n) continue;
        lo = lo < u ? lo : u, hi = u;
        last = n, colours++;
    }
    const int64_t step = colours > 1 ? (total - last) / 255 : 0;
    return equalize ? pl_equal_of(v, under, step) : pl_stretch_of(v, lo, hi);
}

PL_HD int pl_augment_moves(pl_image_op op)
{
    return op == PL_IMAGE_ROTATE || op >= PL_IMAGE_SHEAR_X;
}

/* Counts what the operation wants to know of the whole picture, and copies it where pixels look around. */
PL_HD void pl_augment_look(const pl_augment_place *p, pl_image_op op, int lane, int lanes)
{
    const int64_t n = p->side * p->side;
    const int counts = op == PL_IMAGE_AUTO_CONTRAST || op == PL_IMAGE_EQUALIZE,
              greys = op == PL_IMAGE_CONTRAST, copies = op == PL_IMAGE_SHARPNESS || pl_augment_moves(op);
    uint32_t sum = 0;
    if (!counts && !greys && !copies) return;
    for (int i = lane; i < PL_AUG_COUNTERS; i += lanes) p->counters[i] = 0;
    PL_AUG_MEET();
    for (int64_t i = lane; i < n; i += lanes) {
        const uint32_t v = p->a[i];
        for (int c = 0; c < 3 && counts; c++) PL_AUG_COUNT(&p->counters[256 * c + pl_word_byte(v, c)], 1u);
        const uint8_t rgb[3] = {(uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16)};
        if (greys) sum += pl_grey_of(rgb);
        if (copies) p->b[i] = v;
    }
    if (greys) PL_AUG_COUNT(&p->counters[3 * 256], sum);
    PL_AUG_MEET();
    for (int i = lane; i < 3 * 256 && counts; i += lanes)
        p->table[i] = pl_augment_entry(p->counters + i / 256 * 256, i % 256, op == PL_IMAGE_EQUALIZE);
    PL_AUG_MEET();
}

/* Sharpness: the pixel against its neighbours; outermost ones stay. */
PL_HD uint32_t pl_augment_sharpen(const pl_augment_place *p, int x, int y, float arg)
{
    const int s = (int)p->side;
    const uint32_t *v = p->b + (int64_t)y * s + x;
    if (x == 0 || y == 0 || x == s - 1 || y == s - 1) return *v;
    uint32_t out = 0;
    for (int c = 0; c < 3; c++) {
        int sum = 4 * pl_word_byte(*v, c);
        for (int k = -1; k <= 1; k++)
            sum += pl_word_byte(v[k * s - 1], c) + pl_word_byte(v[k * s], c) + pl_word_byte(v[k * s + 1], c);
        out |= (uint32_t)pl_blend(pl_smooth_of((uint16_t)sum), pl_word_byte(*v, c), arg) << 8 * c;
    }
    return out;
}

/* A pixel by an operation that looks at no other. */
PL_HD uint32_t pl_augment_value(const pl_augment_place *p, pl_image_op op, uint32_t v, double arg, int mean)
{
    const uint8_t rgb[3] = {(uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16)};
    const int grey = op == PL_IMAGE_COLOR ? pl_grey_of(rgb) : op == PL_IMAGE_CONTRAST ? mean : 0;
    uint32_t out = 0;
    for (int c = 0; c < 3; c++) {
        int u;
        if (op == PL_IMAGE_AUTO_CONTRAST || op == PL_IMAGE_EQUALIZE) u = p->table[256 * c + rgb[c]];
        else if (op == PL_IMAGE_COLOR || op == PL_IMAGE_CONTRAST || op == PL_IMAGE_BRIGHTNESS)
            u = pl_blend(grey, rgb[c], (float)arg);
        else u = (uint8_t)pl_value_map(op, rgb[c], (int)arg);
        out |= (uint32_t)u << 8 * c;
    }
    return out;
}

/* One operation on the picture in p->a. */
PL_HD void pl_augment_op(const pl_augment_place *p, const double *o, int lane, int lanes)
{
    if (!pl_aug_between(o[0], 0, PL_IMAGE_OPS - 1)) return;
    const pl_image_op op = (pl_image_op)(int)o[0];
    const int cubic = p->row[PL_AUG_FILTER] > 0, side = (int)p->side;
    const uint32_t fill =
        pl_word_of((int)p->row[PL_AUG_FILL], (int)p->row[PL_AUG_FILL + 1], (int)p->row[PL_AUG_FILL + 2]);
    pl_augment_look(p, op, lane, lanes);
    const int mean =
        op == PL_IMAGE_CONTRAST ? (int)((double)p->counters[3 * 256] / (double)(p->side * p->side) + 0.5) : 0;
    for (pl_augment_walk w = pl_augment_walk_of(p, lane, lanes); w.y < side; pl_augment_next(&w)) {
        if (pl_augment_moves(op))
            p->a[w.at] = pl_affine_pixel(p->b, side, side, w.x, w.y, o + 2, cubic, fill);
        else if (op == PL_IMAGE_SHARPNESS) p->a[w.at] = pl_augment_sharpen(p, w.x, w.y, (float)o[1]);
        else p->a[w.at] = pl_augment_value(p, op, p->a[w.at], o[1], mean);
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
    const int64_t n = p->side * p->side;
    const double *e = p->row + PL_AUG_ERASE;
    for (pl_augment_walk w = pl_augment_walk_of(p, lane, lanes); w.y < w.side; pl_augment_next(&w)) {
        const int erased = w.x >= e[0] && w.x < e[0] + e[2] && w.y >= e[1] && w.y < e[1] + e[3];
        const uint32_t v = p->a[w.at];
        for (int c = 0; c < 3; c++)
            p->out[c * n + w.at] = erased ? pl_augment_erased(p->row, p->side, w.x, w.y, c)
                                          : p->scale[256 * c + pl_word_byte(v, c)];
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
