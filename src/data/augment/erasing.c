/* erasing.c -- the rectangle, and zeros or noise in it. */
#include "data/augment/erasing.h"

#include <math.h>

#include "math/exp_elem.h"
#include "math/noise_elem.h"

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

void pl_erasing_colour(double out[3], pl_draw_key key)
{
    const pl_n2 rg = pl_noise(key.seed, (uint64_t)key.epoch, (uint64_t)key.image, PL_NOISE_COLOUR, 0),
                b = pl_noise(key.seed, (uint64_t)key.epoch, (uint64_t)key.image, PL_NOISE_COLOUR, 1);
    out[0] = rg.a, out[1] = rg.b, out[2] = b.a;
}

void pl_erasing_apply(float *x, int64_t width, int64_t height, pl_box w, pl_erasing_fill fill,
                      pl_draw_key key)
{
    double colour[3] = {0};
    if (!w.width) return;
    if (fill == PL_ERASE_RAND) pl_erasing_colour(colour, key);
    for (int64_t line = 0; line < 3 * height; line++) {
        int64_t y = line % height;
        float *row = x + line * width;
        if (y < w.y || y >= w.y + w.height) continue;
        for (int64_t i = w.x; i < w.x + w.width; i++) {
            pl_n2 z = {0};
            if (fill == PL_ERASE_PIXEL)
                z = pl_noise(key.seed, (uint64_t)key.epoch, (uint64_t)key.image, line, i / 2);
            row[i] = (float)(fill == PL_ERASE_PIXEL ? i % 2 ? z.b : z.a : colour[line / height]);
        }
    }
}
