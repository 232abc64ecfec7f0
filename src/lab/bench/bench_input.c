/* bench_input.c -- see bench_input.h. */
#include "lab/bench/bench_input.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "data/set/image_input.h"
#include "lab/bench/bench.h"

#define SHOWN 60 /* characters of a set's name */

typedef struct {
    pl_image_set *set;
    pl_picture picture;
    pl_augment *chain[PL_INPUT_CHAINS];
    double sample[PL_INPUT_CHAINS][PL_INPUT_MAX_SAMPLES];
} input_set;

static const struct {
    const char *what, *recipe;
    pl_image_split split;
} chains[PL_INPUT_CHAINS] = {{"train, minimal", "minimal", PL_IMAGES_TRAIN},
                             {"train, deit", "deit", PL_IMAGES_TRAIN},
                             {"test", "minimal", PL_IMAGES_TEST}};

static polar_status set_open(input_set *s, const char *what, int64_t size)
{
    PL_TRY(pl_image_set_open(&s->set, what));
    for (int c = 0; c < PL_INPUT_CHAINS; c++) {
        pl_augment_options o;
        PL_NEED(pl_image_set_count(s->set, chains[c].split), POLAR_E_ARG, "'%s' has no pictures to %s with",
                what, c == PL_INPUT_TEST ? "test" : "train");
        PL_TRY(pl_augment_recipe(&o, chains[c].recipe, size));
        PL_TRY(pl_augment_create(&s->chain[c], &o));
    }
    return POLAR_OK;
}

static void set_close(input_set *s)
{
    for (int c = 0; c < PL_INPUT_CHAINS; c++) pl_augment_destroy(s->chain[c]);
    pl_picture_drop(&s->picture);
    pl_image_set_close(s->set);
}

/* The steps of pl_input_train and pl_input_eval, with a look at the clock between them: part[0 .. 2]. */
static polar_status one_picture(double part[3], float *x, input_set *s, int c, pl_draw_key key)
{
    pl_picture *p = &s->picture;
    pl_augment *a = s->chain[c];
    pl_box box;
    double t0 = pl_clock_thread_seconds();
    PL_TRY(pl_picture_open(p, s->set, chains[c].split, key.image));
    double t1 = pl_clock_thread_seconds();
    PL_TRY(c == PL_INPUT_TEST ? pl_augment_eval_box(&box, a, p->width, p->height)
                              : pl_augment_train_box(&box, a, p->width, p->height, key));
    PL_TRY(pl_picture_read(p, box));
    double t2 = pl_clock_thread_seconds();
    pl_pixels have = {p->pixels, p->stride, box, p->width, p->height};
    PL_TRY(c == PL_INPUT_TEST ? pl_augment_eval_pixels(a, x, &have)
                              : pl_augment_train_pixels(a, x, &have, key));
    double t3 = pl_clock_thread_seconds();
    part[0] += t1 - t0, part[1] += t2 - t1, part[2] += t3 - t2;
    return POLAR_OK;
}

static polar_status sample(double part[3], float *x, input_set *s, int c, int64_t epoch, int64_t pictures)
{
    int64_t n = pl_image_set_count(s->set, chains[c].split), stride = n > pictures ? n / pictures : 1;
    for (int64_t i = 0; i < pictures; i++)
        PL_TRY(one_picture(part, x, s, c, (pl_draw_key){0, epoch, i * stride % n}));
    for (int k = 0; k < 3; k++) part[k] /= (double)pictures;
    return POLAR_OK;
}

/* One sample of every row, the first (number -1) untimed. */
static polar_status samples_of_all(pl_bench_input_row *rows, input_set *sets, float *x,
                                   const pl_bench_input_opts *o, int number)
{
    for (int i = 0; i < o->n_sets; i++)
        for (int c = 0; c < PL_INPUT_CHAINS; c++) {
            pl_bench_input_row *r = &rows[i * PL_INPUT_CHAINS + c];
            double part[3] = {0};
            PL_TRY(sample(part, x, &sets[i], c, number + 1, o->pictures));
            if (number < 0) continue;
            sets[i].sample[c][number] = part[0] + part[1] + part[2];
            r->open += part[0] / o->samples, r->pixels += part[1] / o->samples,
                r->chain += part[2] / o->samples;
        }
    return POLAR_OK;
}

static polar_status time_all(pl_bench_input_row *rows, input_set *sets, float *x,
                             const pl_bench_input_opts *o)
{
    for (int i = 0; i < o->n_sets; i++) PL_TRY(set_open(&sets[i], o->sets[i], o->size));
    for (int k = -1; k < o->samples; k++) PL_TRY(samples_of_all(rows, sets, x, o, k));
    for (int i = 0; i < o->n_sets; i++)
        for (int c = 0; c < PL_INPUT_CHAINS; c++) {
            pl_bench_input_row *r = &rows[i * PL_INPUT_CHAINS + c];
            size_t length = strlen(o->sets[i]), long_by = length <= SHOWN ? 0 : length - SHOWN;
            snprintf(r->what, sizeof r->what, "%s", chains[c].what);
            snprintf(r->set, sizeof r->set, "%s%s", long_by ? "..." : "", o->sets[i] + long_by);
            r->samples = o->samples;
            pl_bench_quartiles(&r->q1, &r->seconds, &r->q3, sets[i].sample[c], o->samples);
        }
    return POLAR_OK;
}

polar_status pl_bench_input(pl_bench_input_row *rows, const pl_bench_input_opts *o)
{
    PL_NEED(o->n_sets >= 1 && o->samples >= 1 && o->samples <= PL_INPUT_MAX_SAMPLES && o->pictures >= 1 &&
                o->size >= 1,
            POLAR_E_ARG, "nothing to time: %d sets, %d samples of %lld pictures", o->n_sets, o->samples,
            (long long)o->pictures);
    memset(rows, 0, (size_t)(o->n_sets * PL_INPUT_CHAINS) * sizeof *rows);
    input_set *sets = pl_calloc((size_t)o->n_sets, sizeof *sets);
    float *x = pl_alloc(3 * (size_t)o->size * (size_t)o->size * sizeof *x);
    polar_status st = sets && x ? time_all(rows, sets, x, o)
                                : PL_FAIL(POLAR_E_NOMEM, "a benchmark of %d sets of pictures", o->n_sets);
    for (int i = 0; sets && i < o->n_sets; i++) set_close(&sets[i]);
    pl_free(sets);
    pl_free(x);
    return st;
}
