/* augment.c -- crops, the chain, normalisation.
 *
 * RandomResizedCrop is torchvision's: ten tries of an area (share of the picture's, uniform) and an aspect ratio (log-uniform), sides rounded to nearest
 * even, the first that fits is placed uniformly; after ten the largest middle piece whose ratio is in range. Normalisation is (v / 255 - mean) / std, each
 * operation in floats as torch does it, so that a channel has 256 values: a table.
 */
#include "data/augment.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "math/exp_elem.h"

#define MAX_SIZE 4096

struct pl_augment {
    pl_augment_options o;
    pl_resizer        *resizer;
    pl_image           pixels;      /* (size, size) */
    uint8_t           *work;        /* of pl_image_op_apply; NULL without RandAugment */
    uint8_t            fill[3];     /* the mean colour */
    float              value[3][256];
};

polar_status pl_augment_recipe(pl_augment_options *out, const char *name, int64_t size)
{
    pl_augment_options o = {.size = size,
                            .filter = PL_FILTER_BILINEAR,
                            .scale = {0.08, 1},
                            .ratio = {3 / 4., 4 / 3.},
                            .flip = 0.5,
                            .erasing = {.area = {0.02, 1 / 3.}, .min_aspect = 0.3},
                            .test_side = size * 256 / 224,
                            .test_filter = PL_FILTER_BILINEAR,
                            .mean = {0.485, 0.456, 0.406},
                            .std = {0.229, 0.224, 0.225}};
    PL_NEED(!strcmp(name, "minimal") || !strcmp(name, "deit"), POLAR_E_ARG, "no recipe '%s' of augmentation (there are: minimal, deit)", name);
    if (!strcmp(name, "deit")) {
        o.filter = PL_FILTER_BICUBIC;
        PL_TRY(pl_rand_augment_parse(&o.rand, "rand-m9-mstd0.5-inc1"));
        o.erasing.prob = 0.25;
    }
    *out = o;
    return POLAR_OK;
}

static int probability(double p)
{
    return p >= 0 && p <= 1;
}

static polar_status options_check(const pl_augment_options *o)
{
    const pl_erasing *e = &o->erasing;
    PL_NEED(o->size >= 1 && o->size <= MAX_SIZE, POLAR_E_ARG, "pictures of %lld x %lld: 1 to %d are wanted", (long long)o->size, (long long)o->size,
            MAX_SIZE);
    PL_NEED(o->filter >= 0 && o->filter < PL_FILTERS && o->test_filter >= 0 && o->test_filter < PL_FILTERS, POLAR_E_ARG, "no such filter");
    PL_NEED(o->scale[0] > 0 && o->scale[0] <= o->scale[1] && o->scale[1] <= 1, POLAR_E_ARG, "crops from %g to %g of the area: 0 < from <= to <= 1",
            o->scale[0], o->scale[1]);
    PL_NEED(o->ratio[0] > 0 && o->ratio[0] <= o->ratio[1] && isfinite(o->ratio[1]), POLAR_E_ARG, "aspect ratios from %g to %g: 0 < from <= to",
            o->ratio[0], o->ratio[1]);
    PL_NEED(probability(o->flip) && probability(e->prob) && probability(o->rand.prob), POLAR_E_ARG,
            "the probabilities of flip %g, erasing %g, RandAugment %g are not all in [0, 1]", o->flip, e->prob, o->rand.prob);
    PL_NEED(o->rand.layers >= 0 && o->rand.layers <= PL_DRAW_LAYERS && o->rand.std >= 0 && isfinite(o->rand.std) && isfinite(o->rand.magnitude),
            POLAR_E_ARG, "RandAugment of %d layers, magnitude %g, deviation %g", o->rand.layers, o->rand.magnitude, o->rand.std);
    PL_NEED(e->prob == 0 || (e->area[0] >= 0 && e->area[0] <= e->area[1] && e->area[1] <= 1 && e->min_aspect > 0 && e->min_aspect <= 1), POLAR_E_ARG,
            "erasing %g to %g of the area, aspect ratio from %g", e->area[0], e->area[1], e->min_aspect);
    PL_NEED(o->test_side >= o->size && o->test_side <= 4 * MAX_SIZE, POLAR_E_ARG, "a short side of %lld at test does not hold a picture of %lld",
            (long long)o->test_side, (long long)o->size);
    for (int c = 0; c < 3; c++)
        PL_NEED(isfinite(o->mean[c]) && o->mean[c] >= 0 && o->std[c] > 0 && isfinite(o->std[c]), POLAR_E_ARG,
                "mean %g, standard deviation %g of channel %d", o->mean[c], o->std[c], c);
    return POLAR_OK;
}

polar_status pl_augment_create(pl_augment **out, const pl_augment_options *o)
{
    polar_status st;
    *out = NULL;
    PL_TRY(options_check(o));
    pl_augment *a = pl_calloc(1, sizeof *a);
    PL_NEED(a, POLAR_E_NOMEM, "an augmentation context");
    a->o = *o;
    for (int c = 0; c < 3; c++) {
        a->fill[c] = (uint8_t)fmin(255, rint(255 * o->mean[c]));
        for (int v = 0; v < 256; v++) a->value[c][v] = ((float)v / 255.0f - (float)o->mean[c]) / (float)o->std[c];
    }
    st = pl_resizer_create(&a->resizer);
    if (st == POLAR_OK) st = pl_image_create(&a->pixels, o->size, o->size);
    if (st == POLAR_OK && o->rand.layers) {
        a->work = pl_alloc(pl_image_op_work(&a->pixels));
        if (!a->work) st = PL_FAIL(POLAR_E_NOMEM, "scratch for pictures of %lld x %lld", (long long)o->size, (long long)o->size);
    }
    if (st == POLAR_OK) *out = a;
    else pl_augment_destroy(a);
    return st;
}

void pl_augment_destroy(pl_augment *a)
{
    if (!a) return;
    pl_resizer_destroy(a->resizer);
    pl_image_destroy(&a->pixels);
    pl_free(a->work);
    pl_free(a);
}

pl_image pl_augment_pixels(const pl_augment *a)
{
    return pl_image_view(a->pixels.data, a->pixels.width, a->pixels.height);
}

/* ---- crops --------------------------------------------------------------------------------------------- */

pl_box pl_augment_crop(const pl_augment_options *o, int64_t width, int64_t height, pl_draw_key key)
{
    double area = (double)width * (double)height, lo = log(o->ratio[0]), hi = log(o->ratio[1]), in = (double)width / (double)height;
    for (int t = 0; t < PL_DRAW_TRIES; t++) {
        pl_u4 r = pl_augment_draw(key, PL_DRAW_CROP + 2 * t);
        double target = area * pl_draw_between(r.x, r.y, o->scale[0], o->scale[1]), ratio = pl_exp_f64(pl_draw_between(r.z, r.w, lo, hi));
        int64_t w = (int64_t)rint(sqrt(target * ratio)), h = (int64_t)rint(sqrt(target / ratio));
        if (w < 1 || h < 1 || w > width || h > height) continue;
        r = pl_augment_draw(key, PL_DRAW_CROP + 2 * t + 1);
        return (pl_box){pl_uniform_below(r.y, (uint32_t)(width - w + 1)), pl_uniform_below(r.x, (uint32_t)(height - h + 1)), w, h};
    }
    int64_t w = width, h = height;
    if (in < o->ratio[0]) h = (int64_t)rint((double)w / o->ratio[0]);
    else if (in > o->ratio[1]) w = (int64_t)rint((double)h * o->ratio[1]);
    w = w < 1 ? 1 : w > width ? width : w, h = h < 1 ? 1 : h > height ? height : h;
    return (pl_box){(width - w) / 2, (height - h) / 2, w, h};
}

int64_t pl_augment_long_side(int64_t test_side, int64_t width, int64_t height)
{
    int64_t narrow = width < height ? width : height, wide = width < height ? height : width;
    return (int64_t)((double)(test_side * wide) / (double)narrow);
}

/* ---- the chain ------------------------------------------------------------------------------------------ */

static void to_floats(const pl_augment *a, float *out)
{
    int64_t n = a->o.size * a->o.size;
    const uint8_t *p = a->pixels.data;
    float *r = out, *g = out + n, *b = out + 2 * n;
    for (int64_t i = 0; i < n; i++, p += 3) r[i] = a->value[0][p[0]], g[i] = a->value[1][p[1]], b[i] = a->value[2][p[2]];
}

static polar_status train_window(pl_augment *a, float *out, const pl_image *im, pl_box w, pl_draw_key key)
{
    const pl_augment_options *o = &a->o;
    pl_image_op_args ops[PL_DRAW_LAYERS];
    pl_u4 r = pl_augment_draw(key, PL_DRAW_FLIP);
    PL_TRY(pl_resize(a->resizer, &(pl_resize_args){.out = a->pixels.data,
                                                   .src = pl_image_at(im, w.x, w.y),
                                                   .src_width = w.width,
                                                   .src_height = w.height,
                                                   .src_stride = (int64_t)pl_image_row_bytes(im),
                                                   .out_width = o->size,
                                                   .out_height = o->size,
                                                   .filter = o->filter,
                                                   .flip = pl_uniform_f64(r.x, r.y) < o->flip}));
    int n = pl_rand_augment_draw(ops, &o->rand, key);
    for (int i = 0; i < n; i++) {
        ops[i].filter = o->filter;
        memcpy(ops[i].fill, a->fill, sizeof a->fill);
        pl_image_op_apply(&a->pixels, &ops[i], a->work);
    }
    to_floats(a, out);
    if (o->erasing.prob > 0) pl_erasing_apply(out, o->size, o->size, pl_erasing_draw(&o->erasing, o->size, o->size, key));
    return POLAR_OK;
}

static polar_status key_check(pl_draw_key key)
{
    const int64_t top = (int64_t)1 << 48;
    PL_NEED(key.epoch >= 0 && key.epoch < top && key.image >= 0 && key.image < top, POLAR_E_ARG, "no draws for picture %lld in epoch %lld",
            (long long)key.image, (long long)key.epoch);
    return POLAR_OK;
}

static polar_status picture_check(const pl_image *im)
{
    PL_NEED(im->data && im->width >= 1 && im->height >= 1, POLAR_E_ARG, "an empty picture of %lld x %lld", (long long)im->width, (long long)im->height);
    return POLAR_OK;
}

polar_status pl_augment_train(pl_augment *a, float *out, const pl_image *im, pl_draw_key key)
{
    PL_TRY(key_check(key));
    PL_TRY(picture_check(im));
    return train_window(a, out, im, pl_augment_crop(&a->o, im->width, im->height, key), key);
}

polar_status pl_augment_train_crop(pl_augment *a, float *out, const pl_image *crop, pl_draw_key key)
{
    PL_TRY(key_check(key));
    PL_TRY(picture_check(crop));
    return train_window(a, out, crop, (pl_box){0, 0, crop->width, crop->height}, key);
}

polar_status pl_augment_eval(pl_augment *a, float *out, const pl_image *im)
{
    const pl_augment_options *o = &a->o;
    PL_TRY(picture_check(im));
    int64_t wide = pl_augment_long_side(o->test_side, im->width, im->height), width = im->width <= im->height ? o->test_side : wide,
            height = im->width <= im->height ? wide : o->test_side;
    PL_TRY(pl_resize(a->resizer, &(pl_resize_args){.out = a->pixels.data,
                                                   .src = im->data,
                                                   .src_width = im->width,
                                                   .src_height = im->height,
                                                   .src_stride = (int64_t)pl_image_row_bytes(im),
                                                   .out_width = width,
                                                   .out_height = height,
                                                   .part = {(int64_t)rint((double)(width - o->size) / 2), (int64_t)rint((double)(height - o->size) / 2),
                                                            o->size, o->size},
                                                   .filter = o->test_filter}));
    to_floats(a, out);
    return POLAR_OK;
}
