/* bench_made.c -- see bench_made.h. */
#include "lab/bench/bench_made.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "device/queue.h"
#include "lab/bench/bench.h"
#include "lab/bench/bench_deit.h"
#include "lab/deit/deit_train.h"
#include "lab/run/provenance.h"

#define SHOWN 60 /* characters of a set's name */

static const struct {
    const char *what, *recipe;
    pl_deit_input_key input;
} ways[PL_MADE_ROWS] = {{"minimal, all in memory", "minimal", PL_INPUT_DEVICE},
                        {"deit, all in memory", "deit", PL_INPUT_DEVICE},
                        {"minimal, batch by batch", "minimal", PL_INPUT_STREAM},
                        {"deit, batch by batch", "deit", PL_INPUT_STREAM}};

/* `batches` batches of an epoch, one after the other into Y. */
static polar_status make_batches(pl_deit_data *d, polar_queue *q, pl_mat Y, int64_t batches, int64_t epoch)
{
    int parts = d->way == PL_DEIT_BY_DEVICE_PARTS;
    if (parts) PL_TRY(pl_deit_data_begin(d, PL_IMAGES_TRAIN, epoch, 0, batches * Y.batch, Y.batch, Y.cols));
    for (int64_t k = 0; k < batches; k++)
        PL_TRY(parts ? pl_deit_stream_make(Y, d, q)
                     : pl_deit_input_make(Y, d, q, PL_IMAGES_TRAIN, epoch, k * Y.batch));
    return polar_queue_sync(q);
}

static polar_status time_way(pl_bench_made_row *r, pl_deit_data *d, polar_queue *q, pl_mat Y, int samples)
{
    double sample[PL_MADE_MAX_SAMPLES];
    int64_t batches = d->count[PL_IMAGES_TRAIN] / Y.batch;
    if (batches > PL_MADE_BATCHES) batches = PL_MADE_BATCHES;
    PL_NEED(batches > 0, POLAR_E_ARG, "%lld training pictures are no batch of %lld",
            (long long)d->count[PL_IMAGES_TRAIN], (long long)Y.batch);
    for (int s = -1; s < samples; s++) {
        double begin = pl_clock_seconds();
        PL_TRY(make_batches(d, q, Y, batches, s + 1));
        if (s >= 0) sample[s] = (pl_clock_seconds() - begin) / (double)(batches * Y.batch);
    }
    pl_bench_quartiles(&r->q1, &r->seconds, &r->q3, sample, samples);
    r->samples = samples;
    return POLAR_OK;
}

static polar_status time_set(pl_bench_made_row *r, const pl_bench_made_opts *o, const char *set, int way,
                             polar_queue *q, pl_mat Y)
{
    pl_provenance_text text;
    int synth = !strncmp(set, "synth:", 6);
    int64_t threads = pl_provenance_of(&text, o->dev).threads;
    pl_deit_settings s = {.shape = {.members = 1, .batch = o->batch, .image = o->size},
                          .set = synth ? set : "pictures",
                          .path = synth ? "" : set,
                          .input = ways[way].input,
                          .batch = o->batch};
    pl_deit_data d = {0};
    size_t length = strlen(set), long_by = length <= SHOWN ? 0 : length - SHOWN;
    snprintf(r->what, sizeof r->what, "%s", ways[way].what);
    snprintf(r->set, sizeof r->set, "%s%s", long_by ? "..." : "", set + long_by);
    PL_TRY(pl_augment_recipe(&s.augment, ways[way].recipe, o->size));
    PL_TRY(pl_deit_data_create(&d, &s, 0, threads < 1 ? 1 : threads > 1024 ? 1024 : (int)threads));
    polar_status st = pl_deit_input_create(&d, &s, o->dev, q, 0, &(pl_deit_reading){0});
    if (st == POLAR_OK) st = time_way(r, &d, q, Y, o->samples);
    (void)polar_queue_sync(q);
    pl_deit_data_destroy(&d);
    return st;
}

static polar_status time_step(pl_bench_made_row *r, const pl_bench_made_opts *o, polar_queue *q)
{
    const pl_bench_peak_rates unknown = {0};
    pl_bench_training_rows rows = {0};
    pl_deit_shape shape = PL_DEIT_TINY;
    shape.image = o->size, shape.patch = o->patch, shape.batch = o->batch, shape.dtype = POLAR_DTYPE_BF16;
    PL_TRY(pl_bench_deit(&rows, q, &shape, "polaradamw", &unknown));
    snprintf(r->what, sizeof r->what, "a training step");
    snprintf(r->set, sizeof r->set, "DeiT-Tiny, polaradamw, bf16");
    double n = (double)o->batch;
    r->seconds = rows.step.seconds / n, r->q1 = rows.step.q1 / n, r->q3 = rows.step.q3 / n;
    r->samples = rows.step.samples;
    return POLAR_OK;
}

static polar_status time_all(pl_bench_made_row *rows, const pl_bench_made_opts *o, polar_queue *q, pl_mat Y)
{
    for (int i = 0; i < o->n_sets; i++)
        for (int k = 0; k < PL_MADE_ROWS; k++)
            PL_TRY(time_set(&rows[i * PL_MADE_ROWS + k], o, o->sets[i], k, q, Y));
    return time_step(&rows[o->n_sets * PL_MADE_ROWS], o, q);
}

polar_status pl_bench_made(pl_bench_made_row *rows, const pl_bench_made_opts *o)
{
    polar_queue *q;
    pl_mat Y;
    PL_NEED(o->n_sets >= 1 && o->samples >= 1 && o->samples <= PL_MADE_MAX_SAMPLES && o->batch >= 1 &&
                o->size >= 1 && o->patch >= 1 && o->size % o->patch == 0,
            POLAR_E_ARG, "nothing to time: %d sets, %d samples, pictures of %lld pixels in patches of %lld",
            o->n_sets, o->samples, (long long)o->size, (long long)o->patch);
    memset(rows, 0, (size_t)(o->n_sets * PL_MADE_ROWS + 1) * sizeof *rows);
    PL_TRY(polar_queue_create(&q, o->dev, NULL));
    polar_status st = pl_mat_alloc(&Y, o->dev, POLAR_DTYPE_F32, o->batch, 3 * o->size, o->size);
    if (st == POLAR_OK) {
        st = time_all(rows, o, q, Y);
        pl_mat_free(&Y, o->dev);
    }
    polar_queue_destroy(q);
    return st;
}
