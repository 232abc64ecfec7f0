/* image_synth.c -- textures from triangle waves: sums, products and divisions only, so that no library's sine
 * decides a bit. */
#include "data/set/image_synth.h"

#include <stdio.h>
#include <string.h>

#include "base/philox.h"
#include "data/set/image_loader.h"
#include "data/set/image_tree.h"
#include "data/codec/image_write.h"

enum { CLASS_STEP = 1 << 20 }; /* draws of classes and of pictures have different steps */

typedef struct draws {
    double u[12]; /* in (0, 1) */
} draws;

static draws draw(uint64_t seed, uint64_t step, uint64_t index)
{
    draws d;
    for (int i = 0; i < 3; i++) {
        pl_u4 r = pl_philox(seed, PL_STREAM_DATA, step, 3 * index + (uint64_t)i);
        d.u[4 * i] = pl_uniform_f32(r.x);
        d.u[4 * i + 1] = pl_uniform_f32(r.y);
        d.u[4 * i + 2] = pl_uniform_f32(r.z);
        d.u[4 * i + 3] = pl_uniform_f32(r.w);
    }
    return d;
}

static double fraction(double x)
{
    double f = x - (double)(int64_t)x;
    return f < 0 ? f + 1 : f;
}

/* Period 1, between 0 and 1, its corners rounded by 3 t^2 - 2 t^3. */
static double wave(double x)
{
    double t = fraction(x);
    t = t < 0.5 ? 2 * t : 2 - 2 * t;
    return t * t * (3 - 2 * t);
}

typedef struct texture {
    int kind;
    double across[2], along[2]; /* periods per picture side in x and y: the pattern's two coordinates */
    double phase[2], centre[2];
    double ink[2][3]; /* colours, 0 .. 255 */
    double light[2];  /* slope of the brightness */
} texture;

/* A direction without sine and cosine: t in (-1, 1) covers half the circle, and a stripe has no head or tail.
 */
static void direction(double out[2], double t)
{
    out[0] = (1 - t * t) / (1 + t * t);
    out[1] = 2 * t / (1 + t * t);
}

static texture texture_of(const pl_synth_opts *o, pl_image_split split, int64_t label, int64_t number)
{
    draws c = draw(o->seed, CLASS_STEP, (uint64_t)label),
          p = draw(o->seed, CLASS_STEP + 1 + (uint64_t)split, (uint64_t)label << 32 | (uint64_t)number);
    texture t = {.kind = (int)(label % 4)};
    double d[2], tilt = 2 * c.u[0] - 1 + 0.16 * (p.u[0] - 0.5),
                 scale = (2 + 6 * c.u[1]) * (0.85 + 0.3 * p.u[1]), stretch = 0.5 + c.u[2];
    direction(d, tilt);
    t.across[0] = scale * d[0];
    t.across[1] = scale * d[1];
    t.along[0] = -scale * stretch * d[1];
    t.along[1] = scale * stretch * d[0];
    for (int i = 0; i < 2; i++) {
        t.phase[i] = p.u[2 + i];
        t.centre[i] = 0.2 + 0.6 * p.u[4 + i];
        t.light[i] = 120 * (p.u[6 + i] - 0.5);
    }
    for (int k = 0; k < 3; k++) { /* half the class's colours, half the picture's own */
        draws own = draw(o->seed, CLASS_STEP + 3 + (uint64_t)split, (uint64_t)label << 32 | (uint64_t)number);
        t.ink[0][k] = 255 * (0.5 * c.u[4 + k] + 0.5 * own.u[k]);
        t.ink[1][k] = 255 * (0.5 * c.u[7 + k] + 0.5 * own.u[3 + k]);
    }
    return t;
}

/* How much of the second ink there is at (x, y), both in (0, 1). */
static double pattern(const texture *t, double x, double y)
{
    double dx = x - t->centre[0], dy = y - t->centre[1];
    double a = t->across[0] * dx + t->across[1] * dy + t->phase[0],
           b = t->along[0] * dx + t->along[1] * dy + t->phase[1];
    switch (t->kind) {
    case 0: return wave(a);
    case 1: return wave(a) < 0.5 ? wave(b) : 1 - wave(b);
    case 2: {
        double s = t->across[0] * t->across[0] + t->across[1] * t->across[1];
        return wave(s * (dx * dx + dy * dy) / 4 + t->phase[0]);
    }
    default: return wave(a) * wave(b);
    }
}

static uint8_t level(double v)
{
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v + 0.5);
}

void pl_image_synth_draw(pl_image *im, const pl_synth_opts *o, pl_image_split split, int64_t label,
                         int64_t number)
{
    texture t = texture_of(o, split, label, number);
    uint64_t step = (uint64_t)CLASS_STEP + 5 + (uint64_t)split,
             base = (uint64_t)label << 44 | (uint64_t)number << 24;
    for (int64_t y = 0; y < im->height; y++)
        for (int64_t x = 0; x < im->width; x++) {
            double u = ((double)x + 0.5) / (double)im->width, v = ((double)y + 0.5) / (double)im->height,
                   m = pattern(&t, u, v);
            double light = t.light[0] * (u - 0.5) + t.light[1] * (v - 0.5);
            uint8_t *p = pl_image_at(im, x, y);
            pl_u4 r = pl_philox(o->seed, PL_STREAM_DATA, step, base + (uint64_t)(y * im->width + x));
            uint32_t word[3] = {r.x, r.y, r.z};
            for (int k = 0; k < 3; k++) {
                /* sd 147.8, nearly Gaussian */
                uint32_t four =
                    (word[k] & 255) + (word[k] >> 8 & 255) + (word[k] >> 16 & 255) + (word[k] >> 24);
                p[k] = level(t.ink[0][k] * (1 - m) + t.ink[1][k] * m + light +
                             o->noise * ((double)four - 510) / 147.8);
            }
        }
}

/* ---- files -------------------------------------------------------------------------------------- */

typedef struct synth_job {
    const pl_synth_opts *o;
    pl_image_tree tree;
} synth_job;

static const char *const split_names[] = {"train", "val"};

/* Digits of the numbers below n, `least` at least: names in the order of bytes are in the order of numbers.
 */
static int digits_below(int64_t n, int least)
{
    int digits = 1;
    for (int64_t v = n - 1; v >= 10 && digits < 8; v /= 10) digits++; /* at most 2^20 of anything */
    return digits > least ? digits : least;
}

void pl_image_synth_class(char out[PL_SYNTH_NAME], const pl_synth_opts *o, int64_t label)
{
    snprintf(out, PL_SYNTH_NAME, "texture_%0*lld", digits_below(o->classes, 3), (long long)label);
}

static void place_of(const pl_synth_opts *o, int64_t item, pl_image_split *split, int64_t *label,
                     int64_t *number)
{
    int64_t n_train = o->classes * o->per_class[PL_IMAGES_TRAIN];
    *split = item < n_train ? PL_IMAGES_TRAIN : PL_IMAGES_TEST;
    if (*split == PL_IMAGES_TEST) item -= n_train;
    *label = item / o->per_class[*split];
    *number = item % o->per_class[*split];
}

static polar_status make_file(void *user, int worker, int64_t item, void *out)
{
    synth_job *j = user;
    char path[PL_TREE_PATH + 128], class_name[PL_SYNTH_NAME];
    pl_image_split split;
    int64_t label, number;
    pl_image im;
    (void)worker;
    *(uint8_t *)out = 0;
    place_of(j->o, item, &split, &label, &number);
    pl_image_synth_class(class_name, j->o, label);
    snprintf(path, sizeof path, "%s/%s/%s/%0*lld.%s", j->tree.part, split_names[split], class_name,
             digits_below(j->o->per_class[split], 5), (long long)number,
             j->o->format == PL_IMAGE_PNG ? "png" : "jpg");
    PL_TRY(pl_image_create(&im, j->o->size, j->o->size));
    pl_image_synth_draw(&im, j->o, split, label, number);
    polar_status st = pl_image_write(path, &im, j->o->format, j->o->quality);
    pl_image_destroy(&im);
    return st;
}

static polar_status make_all(int *stopped, synth_job *j)
{
    const pl_synth_opts *o = j->o;
    char name[64], class_name[PL_SYNTH_NAME];
    for (int s = 0; s < PL_IMAGE_SPLITS; s++)
        for (int64_t c = 0; c < o->classes; c++) {
            pl_image_synth_class(class_name, o, c);
            snprintf(name, sizeof name, "%s/%s", split_names[s], class_name);
            PL_TRY(pl_image_tree_folder(&j->tree, name));
        }
    int64_t total = o->classes * (o->per_class[0] + o->per_class[1]);
    pl_loader_opts lo = {.workers = o->workers,
                         .ahead = 4,
                         .items = total,
                         .batch = 16,
                         .item_bytes = 1,
                         .fill = make_file,
                         .user = j};
    pl_loader *l;
    PL_TRY(pl_loader_create(&l, &lo));
    polar_status st = POLAR_OK;
    for (pl_batch b = {.count = 1}; st == POLAR_OK && b.count && !*stopped;) {
        st = pl_loader_next(&b, l);
        if (st == POLAR_OK && o->progress)
            o->progress(o->user, b.first + b.count < total ? b.first + b.count : total, total);
        *stopped = o->stop && atomic_load(o->stop);
    }
    pl_loader_destroy(l);
    return st;
}

polar_status pl_image_synth_write(int *stopped, const pl_synth_opts *o, const char *path)
{
    synth_job j = {.o = o};
    *stopped = 0;
    PL_NEED(
        o->classes >= 1 && o->classes <= 100000 && o->per_class[0] >= 1 && o->per_class[1] >= 1 &&
            o->per_class[0] < 1 << 20 && o->per_class[1] < 1 << 20 && o->size >= 1 && o->size <= 4096,
        POLAR_E_ARG,
        "textures want 1 to 100000 classes, 1 to 2^20 - 1 pictures per class and 1 to 4096 pixels a side");
    PL_TRY(pl_image_tree_begin(&j.tree, path));
    polar_status st = make_all(stopped, &j);
    if (st == POLAR_OK && *stopped) {
        pl_image_tree_end(&j.tree, POLAR_E_STATE); /* removes what there is */
        return POLAR_OK;
    }
    return pl_image_tree_end(&j.tree, st);
}
