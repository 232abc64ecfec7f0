/* erasing.c -- the rectangle, and zeros in it. */
#include "data/augment/erasing.h"

#include <math.h>
#include <string.h>

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

void pl_erasing_apply(float *x, int64_t width, int64_t height, pl_box w)
{
    for (int c = 0; c < 3; c++)
        for (int64_t y = w.y; y < w.y + w.height; y++)
            memset(x + (c * height + y) * width + w.x, 0, (size_t)w.width * sizeof *x);
}
