/* data_stat.c -- `polar data stat DIR|PACK`: how many pictures of which kinds and sizes, and whether they can
 * be read. */
#include <sys/stat.h>

#include "data/set/image_stat.h"
#include "data_work.h"
#include "report/table/table.h"
#include "stop_signal.h"

typedef struct stat_args {
    const char *what;
    int64_t jobs;
    int decode, skip_bad, format;
} stat_args;

static const cli_option options[] = {
    {"SET", CLI_ARG(stat_args, what), .help = "the folder that holds train/ and val/, or a packed set"},
    {"decode", CLI_FLAG(stat_args, decode),
     .help = "decode every picture (of a packed set: compare checksums), not only its header"},
    {"skip-bad", CLI_FLAG(stat_args, skip_bad),
     .help = "name and count broken pictures; without it the first one is an error"},
    {"jobs", CLI_INT(stat_args, jobs, 0, 256), .letter = 'j', .value = "N", .def = "0",
     .help = "threads; 0: one per processor"},
    {"format", CLI_CHOICE(stat_args, format, cli_formats), .value = "F", .def = "text",
     .help = "of the table"},
    {0},
};

static const pl_table_column columns[] = {
    {"split", "", NULL, PL_CELL_TEXT, 0},
    {"pictures", "pictures", NULL, PL_CELL_INTEGER, 0},
    {"bad", "broken", NULL, PL_CELL_INTEGER, 0},
    {"megabytes", "MB", NULL, PL_CELL_FIXED, 1},
    {"class_least", "least", "of a class", PL_CELL_INTEGER, 0},
    {"class_most", "most", "of a class", PL_CELL_INTEGER, 0},
    {"jpeg", "jpeg", "format", PL_CELL_INTEGER, 0},
    {"png", "png", "format", PL_CELL_INTEGER, 0},
    {"progressive", "progr.", "format", PL_CELL_INTEGER, 0},
    {"rgb", "rgb", "colour", PL_CELL_INTEGER, 0},
    {"grey", "grey", "colour", PL_CELL_INTEGER, 0},
    {"palette", "palette", "colour", PL_CELL_INTEGER, 0},
    {"cmyk", "cmyk", "colour", PL_CELL_INTEGER, 0},
    {"width_least", "least", "width", PL_CELL_INTEGER, 0},
    {"width_median", "median", "width", PL_CELL_INTEGER, 0},
    {"width_most", "most", "width", PL_CELL_INTEGER, 0},
    {"height_least", "least", "height", PL_CELL_INTEGER, 0},
    {"height_median", "median", "height", PL_CELL_INTEGER, 0},
    {"height_most", "most", "height", PL_CELL_INTEGER, 0},
    {"short_least", "least", "short side", PL_CELL_INTEGER, 0},
    {"short_median", "median", "short side", PL_CELL_INTEGER, 0},
    {"short_most", "most", "short side", PL_CELL_INTEGER, 0},
};

static void add_row(pl_table *t, const char *name, const pl_image_stat *s, int packed)
{
    pl_table_row(t);
    pl_table_text(t, name);
    pl_table_integer(t, s->count);
    pl_table_integer(t, s->bad);
    pl_table_number(t, (double)s->bytes / 1e6);
    pl_table_integer(t, s->class_least);
    pl_table_integer(t, s->class_most);
    const int64_t kinds[] = {
        s->formats[PL_IMAGE_JPEG], s->formats[PL_IMAGE_PNG],   s->progressive,
        s->colours[PL_COLOUR_RGB], s->colours[PL_COLOUR_GREY], s->colours[PL_COLOUR_PALETTE],
        s->colours[PL_COLOUR_CMYK]};
    for (int i = 0; i < 7; i++) packed ? pl_table_none(t) : pl_table_integer(t, kinds[i]);
    const int64_t *const sides[] = {s->width, s->height, s->lesser};
    for (int i = 0; i < 9; i++)
        s->count == s->bad ? pl_table_none(t) : pl_table_integer(t, sides[i / 3][i % 3]);
}

static polar_status print(cli_context *ctx, const stat_args *a, const pl_image_stat s[PL_IMAGE_SPLITS],
                          int64_t classes, const char *test, int packed)
{
    char title[128];
    pl_table *t;
    snprintf(title, sizeof title, "%lld class%s", (long long)classes, classes == 1 ? "" : "es");
    PL_TRY(pl_table_create(&t, title, columns, sizeof columns / sizeof *columns));
    add_row(t, "train", &s[PL_IMAGES_TRAIN], packed);
    add_row(t, test, &s[PL_IMAGES_TEST], packed);
    polar_status st = pl_table_print(t, ctx->out, (pl_table_format)a->format);
    pl_table_destroy(t);
    return st;
}

static polar_status look(cli_context *ctx, const stat_args *a, const pl_image_folder *f,
                         const pl_image_pack *p)
{
    stop_signal signals;
    pl_image_stat s[PL_IMAGE_SPLITS];
    int stopped = 0;
    data_progress progress = data_progress_begin(ctx, a->decode ? "checking" : "looking");
    progress.bad_as = "broken";
    progress.names = INT64_MAX; /* finding them is what this is for */
    pl_stat_opts o = {.decode = a->decode,
                      .workers = data_jobs(a->jobs),
                      .skip_bad = a->skip_bad,
                      .progress = data_progress_show,
                      .bad = data_progress_bad,
                      .user = &progress,
                      .stop = stop_signal_begin(&signals)};
    polar_status st = f ? pl_image_stat_folder(s, &stopped, f, &o) : pl_image_stat_pack(s, &stopped, p, &o);
    stop_signal_end(&signals);
    data_progress_end(&progress);
    PL_TRY(st);
    ctx->interrupted = stopped;
    if (stopped) {
        fprintf(ctx->log, "stopped: not every picture was looked at\n");
        return POLAR_OK;
    }
    if (f) data_note_others(ctx, f);
    return print(ctx, a, s, f ? f->classes : (int64_t)pl_image_pack_header(p)->classes,
                 f ? f->split_name[PL_IMAGES_TEST] : "test", !f);
}

static polar_status run(cli_context *ctx, int argc, char **argv)
{
    stat_args a = {0};
    struct stat s;
    pl_image_folder *f = NULL;
    pl_image_pack *p = NULL;
    PL_TRY(cli_options_parse(&a, options, "data stat", argc, argv));
    polar_status st = stat(a.what, &s) == 0 && !S_ISDIR(s.st_mode) ? pl_image_pack_open(&p, a.what)
                                                                   : pl_image_folder_open(&f, a.what);
    if (st == POLAR_OK) st = look(ctx, &a, f, p);
    pl_image_folder_close(f);
    pl_image_pack_close(p);
    return st;
}

const cli_command cli_data_stat = {
    .name = "data stat",
    .summary = "count pictures, formats, sizes; find the broken ones",
    .usage = "SET [options]",
    .options = options,
    .about = "Reads the header of every picture, or with --decode the whole of it, and prints one row for "
             "train/ and one for val/.\n",
    .examples = "  polar data stat imagenet\n"
                "  polar data stat imagenet --decode --skip-bad --format csv\n",
    .run = run,
};
