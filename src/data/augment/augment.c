/* augment.c -- crops, the chain, normalisation.
 *
 * RandomResizedCrop is torchvision's: ten tries of an area (share of the picture's, uniform) and an aspect
 * ratio (log-uniform), sides rounded to nearest even, the first that fits is placed uniformly; after ten the
 * largest middle piece whose ratio is in range.
 */
#include "data/augment/augment.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "data/augment/image_floats.h"
#include "math/exp_elem.h"

#define MAX_SIZE 4096

struct pl_augment {
    pl_augment_options o;
    pl_resizer *resizer;
    pl_image pixels; /* (size, size) */
    uint8_t *work;   /* of pl_image_op_apply; NULL without RandAugment */
    uint8_t fill[3]; /* the mean colour */
    pl_floats_scale scale;
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
    PL_NEED(!strcmp(name, "minimal") || !strcmp(name, "deit"), POLAR_E_ARG,
            "no recipe '%s' of augmentation (there are: minimal, deit)", name);
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
    PL_NEED(o->size >= 1 && o->size <= MAX_SIZE, POLAR_E_ARG, "pictures of %lld x %lld: 1 to %d are wanted",
            (long long)o->size, (long long)o->size, MAX_SIZE);
    PL_NEED(o->filter >= 0 && o->filter < PL_FILTERS && o->test_filter >= 0 && o->test_filter < PL_FILTERS,
            POLAR_E_ARG, "no such filter");
    PL_NEED(o->scale[0] > 0 && o->scale[0] <= o->scale[1] && o->scale[1] <= 1, POLAR_E_ARG,
            "crops from %g to %g of the area: 0 < from <= to <= 1", o->scale[0], o->scale[1]);
    PL_NEED(o->ratio[0] > 0 && o->ratio[0] <= o->ratio[1] && isfinite(o->ratio[1]), POLAR_E_ARG,
            "aspect ratios from %g to %g: 0 < from <= to", o->ratio[0], o->ratio[1]);
    PL_NEED(probability(o->flip) && probability(e->prob) && probability(o->rand.prob), POLAR_E_ARG,
            "the probabilities of flip %g, erasing %g, RandAugment %g are not all in [0, 1]", o->flip,
            e->prob, o->rand.prob);
    PL_NEED(o->rand.layers >= 0 && o->rand.layers <= PL_DRAW_LAYERS && o->rand.std >= 0 &&
                isfinite(o->rand.std) && isfinite(o->rand.magnitude),
            POLAR_E_ARG, "RandAugment of %d layers, magnitude %g, deviation %g", o->rand.layers,
            o->rand.magnitude, o->rand.std);
    PL_NEED(e->prob == 0 || (e->area[0] >= 0 && e->area[0] <= e->area[1] && e->area[1] <= 1 &&
                             e->min_aspect > 0 && e->min_aspect <= 1),
            POLAR_E_ARG, "erasing %g to %g of the area, aspect ratio from %g", e->area[0], e->area[1],
            e->min_aspect);
    PL_NEED(o->test_side >= o->size && o->test_side <= 4 * MAX_SIZE, POLAR_E_ARG,
            "a short side of %lld at test does not hold a picture of %lld", (long long)o->test_side,
            (long long)o->size);
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
    for (int c = 0; c < 3; c++) a->fill[c] = (uint8_t)fmin(255, rint(255 * o->mean[c]));
    pl_floats_scale_make(&a->scale, o->mean, o->std);
    st = pl_resizer_create(&a->resizer);
    if (st == POLAR_OK) st = pl_image_create(&a->pixels, o->size, o->size);
    if (st == POLAR_OK && o->rand.layers) {
        a->work = pl_alloc(pl_image_op_work(&a->pixels));
        if (!a->work)
            st = PL_FAIL(POLAR_E_NOMEM, "scratch for pictures of %lld x %lld", (long long)o->size,
                         (long long)o->size);
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

/* ---- crops -------------------------------------------------------------------------------------- */

pl_box pl_augment_crop(const pl_augment_options *o, int64_t width, int64_t height, pl_draw_key key)
{
    double area = (double)width * (double)height, lo = log(o->ratio[0]), hi = log(o->ratio[1]),
           in = (double)width / (double)height;
    for (int t = 0; t < PL_DRAW_TRIES; t++) {
        pl_u4 r = pl_augment_draw(key, PL_DRAW_CROP + 2 * t);
        double target = area * pl_draw_between(r.x, r.y, o->scale[0], o->scale[1]),
               ratio = pl_exp_f64(pl_draw_between(r.z, r.w, lo, hi));
        int64_t w = (int64_t)rint(sqrt(target * ratio)), h = (int64_t)rint(sqrt(target / ratio));
        if (w < 1 || h < 1 || w > width || h > height) continue;
        r = pl_augment_draw(key, PL_DRAW_CROP + 2 * t + 1);
        return (pl_box){pl_uniform_below(r.y, (uint32_t)(width - w + 1)),
                        pl_uniform_below(r.x, (uint32_t)(height - h + 1)), w, h};
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

/* ---- the chain ---------------------------------------------------------------------------------- */

static void to_floats(const pl_augment *a, float *out)
{
    pl_floats_of_bytes(out, &a->scale, a->pixels.data, a->o.size * a->o.size);
}

static polar_status train_window(pl_augment *a, float *out, const pl_pixels *p, pl_draw_key key)
{
    const pl_augment_options *o = &a->o;
    pl_image_op_args ops[PL_DRAW_LAYERS];
    pl_u4 r = pl_augment_draw(key, PL_DRAW_FLIP);
    PL_TRY(pl_resize(a->resizer, &(pl_resize_args){.out = a->pixels.data,
                                                   .src = p->data,
                                                   .src_width = p->have.width,
                                                   .src_height = p->have.height,
                                                   .src_stride = p->stride,
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
    if (o->erasing.prob > 0)
        pl_erasing_apply(out, o->size, o->size, pl_erasing_draw(&o->erasing, o->size, o->size, key),
                         o->erasing.fill, key);
    return POLAR_OK;
}

static polar_status key_check(pl_draw_key key)
{
    const int64_t top = (int64_t)1 << 48;
    PL_NEED(key.epoch >= 0 && key.epoch < top && key.image >= 0 && key.image < top, POLAR_E_ARG,
            "no draws for picture %lld in epoch %lld", (long long)key.image, (long long)key.epoch);
    return POLAR_OK;
}

static polar_status size_check(int64_t width, int64_t height)
{
    PL_NEED(width >= 1 && height >= 1, POLAR_E_ARG, "an empty picture of %lld x %lld", (long long)width,
            (long long)height);
    return POLAR_OK;
}

static pl_pixels whole_pixels(const pl_image *im)
{
    return (pl_pixels){
        im->data, (int64_t)pl_image_row_bytes(im), {0, 0, im->width, im->height}, im->width, im->height};
}

polar_status pl_augment_train_box(pl_box *out, const pl_augment *a, int64_t width, int64_t height,
                                  pl_draw_key key)
{
    PL_TRY(key_check(key));
    PL_TRY(size_check(width, height));
    *out = pl_augment_crop(&a->o, width, height, key);
    return POLAR_OK;
}

polar_status pl_augment_train_pixels(pl_augment *a, float *out, const pl_pixels *p, pl_draw_key key)
{
    PL_TRY(key_check(key));
    PL_TRY(size_check(p->have.width, p->have.height));
    return train_window(a, out, p, key);
}

polar_status pl_augment_train(pl_augment *a, float *out, const pl_image *im, pl_draw_key key)
{
    pl_pixels p = whole_pixels(im);
    PL_TRY(pl_augment_train_box(&p.have, a, im->width, im->height, key));
    p.data = pl_image_at(im, p.have.x, p.have.y);
    return train_window(a, out, &p, key);
}

/* Resize(test_side) of a picture, of which the middle is wanted; src and its place are left to the caller. */
static pl_resize_args eval_args(const pl_augment_options *o, int64_t w, int64_t h)
{
    int64_t wide = pl_augment_long_side(o->test_side, w, h), width = w <= h ? o->test_side : wide,
            height = w <= h ? wide : o->test_side;
    return (pl_resize_args){.src_width = w,
                            .src_height = h,
                            .out_width = width,
                            .out_height = height,
                            .part = {(int64_t)rint((double)(width - o->size) / 2),
                                     (int64_t)rint((double)(height - o->size) / 2), o->size, o->size},
                            .filter = o->test_filter};
}

polar_status pl_augment_eval_box(pl_box *out, const pl_augment *a, int64_t width, int64_t height)
{
    PL_TRY(size_check(width, height));
    pl_resize_args r = eval_args(&a->o, width, height);
    return pl_resize_reach(out, &r);
}

polar_status pl_augment_eval_pixels(pl_augment *a, float *out, const pl_pixels *p)
{
    PL_TRY(size_check(p->width, p->height));
    pl_resize_args r = eval_args(&a->o, p->width, p->height);
    r.out = a->pixels.data, r.src = p->data, r.src_stride = p->stride, r.have = p->have;
    PL_TRY(pl_resize(a->resizer, &r));
    to_floats(a, out);
    return POLAR_OK;
}

polar_status pl_augment_eval(pl_augment *a, float *out, const pl_image *im)
{
    pl_pixels p = whole_pixels(im);
    return pl_augment_eval_pixels(a, out, &p);
}

/* ---- as numbers --------------------------------------------------------------------------------- */

int pl_augment_has_rows(const pl_augment_options *o)
{
    return o->rand.layers <= PL_AUG_MOST;
}

int pl_augment_row_serves(int64_t width, int64_t height)
{
    return width < PL_AUG_SIDE_MOST && height < PL_AUG_SIDE_MOST && height <= 100 * width;
}

static void put_box(double *at, pl_box box)
{
    at[0] = (double)box.x, at[1] = (double)box.y, at[2] = (double)box.width, at[3] = (double)box.height;
}

static void begin_row(double row[PL_AUG_COLS], const pl_augment *a, int64_t at, int64_t width, int64_t height)
{
    memset(row, 0, PL_AUG_COLS * sizeof *row);
    row[PL_AUG_AT] = (double)at, row[PL_AUG_WIDTH] = (double)width, row[PL_AUG_HEIGHT] = (double)height;
    for (int c = 0; c < 3; c++) row[PL_AUG_FILL + c] = a->fill[c];
}

static void put_erasing(double row[PL_AUG_COLS], const pl_erasing *e, int64_t side, pl_draw_key key)
{
    const pl_box w = pl_erasing_draw(e, side, side, key);
    put_box(row + PL_AUG_ERASE, w);
    row[PL_AUG_NOISE] = e->fill == PL_ERASE_PIXEL;
    row[PL_AUG_KEY] = (double)(uint32_t)key.seed, row[PL_AUG_KEY + 1] = (double)(key.seed >> 32);
    row[PL_AUG_KEY + 2] = (double)key.epoch, row[PL_AUG_KEY + 3] = (double)key.image;
    if (w.width && e->fill == PL_ERASE_RAND) pl_erasing_colour(row + PL_AUG_COLOUR, key);
}

polar_status pl_augment_train_row(double row[PL_AUG_COLS], const pl_augment *a, int64_t at, int64_t width,
                                  int64_t height, pl_draw_key key)
{
    const pl_augment_options *o = &a->o;
    pl_image_op_args ops[PL_DRAW_LAYERS];
    pl_box box;
    PL_TRY(pl_augment_train_box(&box, a, width, height, key));
    PL_NEED(pl_augment_has_rows(o), POLAR_E_UNSUPPORTED, "a recipe that a row does not hold");
    begin_row(row, a, at, width, height);
    put_box(row + PL_AUG_BOX, box);
    row[PL_AUG_OUT] = row[PL_AUG_OUT + 1] = (double)o->size;
    row[PL_AUG_FILTER] = o->filter;
    pl_u4 r = pl_augment_draw(key, PL_DRAW_FLIP);
    row[PL_AUG_FLIP] = pl_uniform_f64(r.x, r.y) < o->flip;
    if (o->erasing.prob > 0) put_erasing(row, &o->erasing, o->size, key);
    int n = pl_rand_augment_draw(ops, &o->rand, key);
    row[PL_AUG_OPS] = n;
    for (int i = 0; i < n; i++) {
        double *op = row + PL_AUG_OP + PL_AUG_OP_COLS * i;
        op[0] = ops[i].op, op[1] = ops[i].arg;
        pl_image_op_map(op + 2, ops[i].op, ops[i].arg, o->size, o->size);
    }
    return POLAR_OK;
}

polar_status pl_augment_eval_row(double row[PL_AUG_COLS], const pl_augment *a, int64_t at, int64_t width,
                                 int64_t height)
{
    PL_TRY(size_check(width, height));
    pl_resize_args r = eval_args(&a->o, width, height);
    begin_row(row, a, at, width, height);
    put_box(row + PL_AUG_BOX, (pl_box){0, 0, width, height});
    row[PL_AUG_OUT] = (double)r.out_width, row[PL_AUG_OUT + 1] = (double)r.out_height;
    row[PL_AUG_PART] = (double)r.part.x, row[PL_AUG_PART + 1] = (double)r.part.y;
    row[PL_AUG_FILTER] = r.filter;
    return POLAR_OK;
}

pl_box pl_augment_row_cut(double row[PL_AUG_COLS], int64_t at)
{
    const pl_box box = {(int64_t)row[PL_AUG_BOX], (int64_t)row[PL_AUG_BOX + 1], (int64_t)row[PL_AUG_BOX + 2],
                        (int64_t)row[PL_AUG_BOX + 3]};
    put_box(row + PL_AUG_BOX, (pl_box){0, 0, box.width, box.height});
    row[PL_AUG_AT] = (double)at;
    row[PL_AUG_WIDTH] = (double)box.width, row[PL_AUG_HEIGHT] = (double)box.height;
    return box;
}

const float *pl_augment_scale(const pl_augment *a)
{
    return &a->scale.value[0][0];
}
