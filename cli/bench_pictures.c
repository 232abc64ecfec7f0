/* bench_pictures.c -- `polar bench input`: the sets asked for, or textures of ImageNet's size and weight,
 * timed and shown. */
#include "bench_pictures.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "data/set/image_pack.h"
#include "data/set/image_synth.h"
#include "data/set/image_tree.h"
#include "data_work.h"
#include "lab/bench/bench_input.h"
#include "report/table/table.h"

#define SAMPLES   31
#define PICTURES  32
#define SIDE      433 /* 500 x 375 pixels, ImageNet's median */
#define NOISE     22  /* grey levels: 105 KB a file at quality 90, ImageNet's median */
#define PACK_SIDE 256

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

static polar_status bench(cli_context *ctx, const cli_list *sets, int64_t size, int format)
{
    pl_bench_input_row rows[CLI_MAX_LIST * PL_INPUT_CHAINS];
    pl_bench_input_opts o = {
        .sets = sets->items, .n_sets = sets->count, .size = size, .samples = SAMPLES, .pictures = PICTURES};
    fprintf(ctx->log, "input: %d set%s, %d samples of %d pictures\n", sets->count,
            sets->count == 1 ? "" : "s", SAMPLES, PICTURES);
    PL_TRY(pl_bench_input(rows, &o));
    return show(ctx, rows, sets->count * PL_INPUT_CHAINS, size, format);
}

static polar_status make_sets(const char *folder, const char *pack)
{
    pl_synth_opts o = PL_SYNTH_OPTS_INIT;
    pl_image_folder *f;
    pl_pack_result done;
    int stopped;
    o.classes = 4;
    o.per_class[PL_IMAGES_TRAIN] = o.per_class[PL_IMAGES_TEST] = 8;
    o.size = SIDE;
    o.noise = NOISE;
    PL_TRY(pl_image_synth_write(&stopped, &o, folder));
    PL_TRY(pl_image_folder_open(&f, folder));
    polar_status st = pl_image_pack_write(&done, pack, f, &(pl_pack_opts){.side = PACK_SIDE, .workers = 1});
    pl_image_folder_close(f);
    return st;
}

polar_status bench_pictures(cli_context *ctx, const cli_list *sets, int64_t size, int format)
{
    const char *tmp = getenv("TMPDIR");
    char place[1024], folder[1100], pack[1100];
    if (sets->count) return bench(ctx, sets, size, format);
    PL_NEED((size_t)snprintf(place, sizeof place, "%s/polar_bench_XXXXXX", tmp && *tmp ? tmp : "/tmp") <
                sizeof place,
            POLAR_E_ARG, "TMPDIR is too long a name");
    PL_NEED(mkdtemp(place), POLAR_E_IO, "a folder '%s' for pictures: %s (or name a set with --data)", place,
            strerror(errno));
    snprintf(folder, sizeof folder, "%s/textures", place);
    snprintf(pack, sizeof pack, "%s/textures.pack", place);
    polar_status st = make_sets(folder, pack);
    if (st == POLAR_OK) st = bench(ctx, &(cli_list){2, {folder, pack}}, size, format);
    pl_image_tree_remove(place);
    return st;
}
