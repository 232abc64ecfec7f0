/* erasing.c -- the rectangle, and zeros or noise in it. */
#include "data/augment/erasing.h"

#include <math.h>

#include "math/exp_elem.h"

pl_box pl_erasing_draw(const pl_erasing *e, int64_t width, int64_t height, pl_draw_key key)
{
    pl_u4 r = pl_augment_draw(key, PL_DRAW_ERASE);
    if (pl_uniform_f64(r.x, r.y) > e->prob) return (pl_box){0};
    double log_aspect = log(e->min_aspect);
    for (int t = 0; t < PL_DRAW_TRIES; t++) {
        r = pl_augment_draw(key, PL_DRAW_ERASE_TRY + 2 * t);
        double area = pl_draw_between(r.x, r.y, e->area[0], e->area[1]) * (double)(width * height),
               aspect = pl_exp_f64(pl_draw_between(r.z, r.w, log_aspect, -log_aspect));
        int64_t h = (int64_t)rint(sqrt(area * aspect)), w = (int64_t)rint(sqrt(area / aspect));
        if (w >= width || h >= height) continue;
        r = pl_augment_draw(key, PL_DRAW_ERASE_TRY + 2 * t + 1);
        return (pl_box){pl_uniform_below(r.y, (uint32_t)(width - w + 1)),
                        pl_uniform_below(r.x, (uint32_t)(height - h + 1)), w, h};
    }
    return (pl_box){0};
}

/* Of the noise of a picture: philox(seed, PL_STREAM_ERASE, epoch << 16 | line, pair << 48 | image), two
 * normals a draw; line counts the rows of all channels, 65535 is the colour's. */
static pl_n2 noise(pl_draw_key key, int64_t line, int64_t pair)
{
    return pl_normal(key.seed, PL_STREAM_ERASE, (uint64_t)key.epoch << 16 | (uint64_t)line,
                     (uint64_t)pair << 48 | (uint64_t)key.image);
}

#define COLOUR_LINE 65535

void pl_erasing_apply(float *x, int64_t width, int64_t height, pl_box w, pl_erasing_fill fill,
                      pl_draw_key key)
{
    pl_n2 rg = {0, 0}, b = {0, 0};
    if (!w.width) return;
    if (fill == PL_ERASE_RAND) rg = noise(key, COLOUR_LINE, 0), b = noise(key, COLOUR_LINE, 1);
    const double colour[3] = {rg.a, rg.b, b.a};
    for (int64_t line = 0; line < 3 * height; line++) {
        int64_t y = line % height;
        float *row = x + line * width;
        if (y < w.y || y >= w.y + w.height) continue;
        for (int64_t i = w.x; i < w.x + w.width; i++) {
            pl_n2 z = fill == PL_ERASE_PIXEL ? noise(key, line, i / 2) : (pl_n2){0, 0};
            row[i] = (float)(fill == PL_ERASE_PIXEL ? i % 2 ? z.b : z.a : colour[line / height]);
        }
    }
}
