/* bench_pictures.c -- `polar bench input`: the sets asked for, or textures of ImageNet's size and weight,
 * timed and shown: on one core, or made by a device. */
#include "bench_pictures.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "data/set/image_pack.h"
#include "data/set/image_synth.h"
#include "data/set/image_tree.h"
#include "data_work.h"
#include "lab/bench/bench_input.h"
#include "lab/bench/bench_made.h"
#include "report/table/table.h"

#define SAMPLES      31
#define PICTURES     32
#define MADE_SAMPLES 7
#define SIDE         433 /* 500 x 375 pixels, ImageNet's median */
#define NOISE        22  /* grey levels: 105 KB a file at quality 90, ImageNet's median */
#define PACK_SIDE    256

static const pl_table_column columns[] = {
    {"set", "set", NULL, PL_CELL_TEXT, 0},
    {"what", "what", NULL, PL_CELL_TEXT, 0},
    {"images_per_s", "images/s", NULL, PL_CELL_FIXED, 0},
    {"ms", "ms", NULL, PL_CELL_FIXED, 3},
    {"q1", "q1", "quartiles", PL_CELL_FIXED, 3},
    {"q3", "q3", "quartiles", PL_CELL_FIXED, 3},
    {"open", "open", "of it", PL_CELL_FIXED, 3},
    {"pixels", "pixels", "of it", PL_CELL_FIXED, 3},
    {"chain", "chain", "of it", PL_CELL_FIXED, 3},
    {"samples", "samples", NULL, PL_CELL_INTEGER, 0},
};

static void put(pl_table *t, const pl_bench_input_row *r)
{
    pl_table_row(t);
    pl_table_text(t, r->set);
    pl_table_text(t, r->what);
    pl_table_number(t, 1 / r->seconds);
    const double ms[] = {r->seconds, r->q1, r->q3, r->open, r->pixels, r->chain};
    for (size_t i = 0; i < sizeof ms / sizeof *ms; i++) pl_table_number(t, 1e3 * ms[i]);
    pl_table_integer(t, r->samples);
}

static polar_status show(cli_context *ctx, const pl_bench_input_row *rows, int n, int64_t size, int format)
{
    pl_table *t;
    char title[160];
    snprintf(title, sizeof title, "pictures to %lld x %lld floats: CPU time of one thread, ms a picture",
             (long long)size, (long long)size);
    PL_TRY(pl_table_create(&t, title, columns, (int)(sizeof columns / sizeof *columns)));
    for (int i = 0; i < n; i++) put(t, &rows[i]);
    polar_status st = pl_table_print(t, ctx->out, (pl_table_format)format);
    pl_table_destroy(t);
    return st;
}

/* ---- made by a device --------------------------------------------------------------------------- */

static const pl_table_column made_columns[] = {
    {"set", "set", NULL, PL_CELL_TEXT, 0},
    {"what", "what", NULL, PL_CELL_TEXT, 0},
    {"images_per_s", "images/s", NULL, PL_CELL_FIXED, 0},
    {"us", "us", NULL, PL_CELL_FIXED, 2},
    {"q1", "q1", "quartiles", PL_CELL_FIXED, 2},
    {"q3", "q3", "quartiles", PL_CELL_FIXED, 2},
    {"of_step", "of the step's rate", NULL, PL_CELL_FIXED, 2},
    {"samples", "samples", NULL, PL_CELL_INTEGER, 0},
};

static polar_status show_made(cli_context *ctx, const pl_bench_made_row *rows, int n,
                              const bench_pictures_args *a, const char *device)
{
    pl_table *t;
    char title[240];
    snprintf(title, sizeof title, "pictures to %lld x %lld floats by %s, batches of %lld: us a picture",
             (long long)a->size, (long long)a->size, device, (long long)a->batch);
    PL_TRY(pl_table_create(&t, title, made_columns, (int)(sizeof made_columns / sizeof *made_columns)));
    for (int i = 0; i < n; i++) {
        const pl_bench_made_row *r = &rows[i];
        pl_table_row(t);
        pl_table_text(t, r->set);
        pl_table_text(t, r->what);
        pl_table_number(t, 1 / r->seconds);
        pl_table_number(t, 1e6 * r->seconds);
        pl_table_number(t, 1e6 * r->q1);
        pl_table_number(t, 1e6 * r->q3);
        pl_table_number(t, rows[n - 1].seconds / r->seconds);
        pl_table_integer(t, r->samples);
    }
    polar_status st = pl_table_print(t, ctx->out, (pl_table_format)a->format);
    pl_table_destroy(t);
    return st;
}

static polar_status bench_made(cli_context *ctx, const cli_list *sets, const bench_pictures_args *a)
{
    pl_bench_made_row rows[CLI_MAX_LIST * PL_MADE_ROWS + 1];
    pl_bench_made_opts o = {.sets = sets->items,
                            .n_sets = sets->count,
                            .size = a->size,
                            .patch = a->patch,
                            .batch = a->batch,
                            .samples = MADE_SAMPLES};
    PL_TRY(polar_device_open(&o.dev, a->device));
    fprintf(ctx->log, "input: %d set%s on %s, %d samples\n", sets->count, sets->count == 1 ? "" : "s",
            polar_device_name(o.dev), MADE_SAMPLES);
    polar_status st = pl_bench_made(rows, &o);
    if (st == POLAR_OK)
        st = show_made(ctx, rows, sets->count * PL_MADE_ROWS + 1, a, polar_device_name(o.dev));
    polar_device_close(o.dev);
    return st;
}

/* ---- both --------------------------------------------------------------------------------------- */

static polar_status bench(cli_context *ctx, const cli_list *sets, const bench_pictures_args *a)
{
    if (strcmp(a->device, "cpu")) return bench_made(ctx, sets, a);
    pl_bench_input_row rows[CLI_MAX_LIST * PL_INPUT_CHAINS];
    pl_bench_input_opts o = {.sets = sets->items,
                             .n_sets = sets->count,
                             .size = a->size,
                             .samples = SAMPLES,
                             .pictures = PICTURES};
    fprintf(ctx->log, "input: %d set%s, %d samples of %d pictures\n", sets->count,
            sets->count == 1 ? "" : "s", SAMPLES, PICTURES);
    PL_TRY(pl_bench_input(rows, &o));
    return show(ctx, rows, sets->count * PL_INPUT_CHAINS, a->size, a->format);
}

/* A device wants two batches at least. */
static polar_status make_sets(const char *folder, const char *pack, int64_t batch)
{
    pl_synth_opts o = PL_SYNTH_OPTS_INIT;
    pl_image_folder *f;
    pl_pack_result done;
    int stopped;
    o.classes = 4;
    o.per_class[PL_IMAGES_TRAIN] = o.per_class[PL_IMAGES_TEST] = 8;
    if (batch) o.per_class[PL_IMAGES_TRAIN] = (2 * batch + o.classes - 1) / o.classes;
    o.size = SIDE;
    o.noise = NOISE;
    PL_TRY(pl_image_synth_write(&stopped, &o, folder));
    PL_TRY(pl_image_folder_open(&f, folder));
    polar_status st = pl_image_pack_write(&done, pack, f, &(pl_pack_opts){.side = PACK_SIDE, .workers = 1});
    pl_image_folder_close(f);
    return st;
}

polar_status bench_pictures(cli_context *ctx, const cli_list *sets, const bench_pictures_args *a)
{
    const char *tmp = getenv("TMPDIR");
    char place[1024], folder[1100], pack[1100];
    if (sets->count) return bench(ctx, sets, a);
    PL_NEED((size_t)snprintf(place, sizeof place, "%s/polar_bench_XXXXXX", tmp && *tmp ? tmp : "/tmp") <
                sizeof place,
            POLAR_E_ARG, "TMPDIR is too long a name");
    PL_NEED(mkdtemp(place), POLAR_E_IO, "a folder '%s' for pictures: %s (or name a set with --data)", place,
            strerror(errno));
    snprintf(folder, sizeof folder, "%s/textures", place);
    snprintf(pack, sizeof pack, "%s/textures.pack", place);
    polar_status st = make_sets(folder, pack, strcmp(a->device, "cpu") ? a->batch : 0);
    if (st == POLAR_OK) st = bench(ctx, &(cli_list){2, {folder, pack}}, a);
    pl_image_tree_remove(place);
    return st;
}
