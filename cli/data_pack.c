/* data_pack.c -- `polar data pack DIR OUT`: decoded once, resized once, mapped into memory ever after. */
#include "base/alloc.h"
#include "base/clock.h"
#include "data/set/class_subset.h"
#include "data/set/image_pack.h"
#include "data_work.h"
#include "run_progress.h"
#include "stop_signal.h"

typedef struct pack_args {
    const char *dir, *out, *seed;
    int64_t side, jobs, classes;
    int filter, skip_bad;
} pack_args;

static const char *const filters[] = {"bilinear", "bicubic", NULL}; /* the order of pl_filter */

static const cli_option options[] = {
    {"DIR", CLI_ARG(pack_args, dir), .help = "the folder that holds train/ and val/"},
    {"OUT", CLI_ARG(pack_args, out), .help = "the packed file"},
    {"size", CLI_INT(pack_args, side, 0, 8192), .value = "N", .def = "256",
     .help = "pictures with a longer short side are resized to it; 0: none"},
    {"filter", CLI_CHOICE(pack_args, filter, filters), .value = "F", .def = "bilinear",
     .help = "of the resizing, antialiased as Pillow's"},
    {"classes", CLI_INT(pack_args, classes, 0, 1000000), .value = "N", .def = "0",
     .help = "only so many classes, chosen as `polar data subset` does; 0: all"},
    {"seed", CLI_STRING(pack_args, seed), .value = "S", .def = "42", .help = "of that choice"},
    {"skip-bad", CLI_FLAG(pack_args, skip_bad),
     .help = "leave out broken pictures and count them; without it the first one is an error"},
    {"jobs", CLI_INT(pack_args, jobs, 0, 256), .letter = 'j', .value = "N", .def = "0",
     .help = "threads; 0: one per processor"},
    {0},
};

static polar_status choose(pl_image_folder *f, const pack_args *a, uint64_t seed)
{
    int64_t *chosen;
    if (!a->classes) return POLAR_OK;
    PL_TRY(pl_class_subset(&chosen, f->classes, a->classes, seed));
    polar_status st = pl_image_folder_select(f, chosen, a->classes);
    pl_free(chosen);
    return st;
}

static polar_status pack(cli_context *ctx, const pack_args *a, const pl_image_folder *f)
{
    stop_signal signals;
    char time[32];
    data_progress progress = data_progress_begin(ctx, "packing");
    pl_pack_opts o = {.side = a->side,
                      .filter = (pl_filter)a->filter,
                      .workers = data_jobs(a->jobs),
                      .skip_bad = a->skip_bad,
                      .progress = data_progress_show,
                      .bad = data_progress_bad,
                      .user = &progress,
                      .stop = stop_signal_begin(&signals)};
    pl_pack_result r;
    polar_status st = pl_image_pack_write(&r, a->out, f, &o);
    stop_signal_end(&signals);
    data_progress_end(&progress);
    PL_TRY(st);
    ctx->interrupted = r.stopped;
    if (r.stopped) {
        fprintf(ctx->log, "stopped: %s was not written\n", a->out);
        return POLAR_OK;
    }
    double seconds = pl_clock_seconds() - progress.began;
    int64_t n = r.count[0] + r.count[1];
    data_note_others(ctx, f);
    fprintf(ctx->out, "%s: %lld class%s, %lld training and %lld test pictures, %.1f MB, sha256 %.16s\n",
            a->out, (long long)f->classes, f->classes == 1 ? "" : "es", (long long)r.count[0],
            (long long)r.count[1], (double)r.bytes / 1e6, r.sha256);
    if (r.bad) fprintf(ctx->out, "left out as broken: %lld\n", (long long)r.bad);
    fprintf(ctx->log, "in %s, %.0f pictures/s\n", run_progress_time(time, seconds),
            (double)n / (seconds > 0 ? seconds : 1));
    return POLAR_OK;
}

static polar_status run(cli_context *ctx, int argc, char **argv)
{
    pack_args a = {0};
    pl_image_folder *f;
    uint64_t seed;
    PL_TRY(cli_options_parse(&a, options, "data pack", argc, argv));
    PL_TRY(data_parse_seed(&seed, a.seed));
    PL_TRY(pl_image_folder_open(&f, a.dir));
    polar_status st = choose(f, &a, seed);
    if (st == POLAR_OK) st = pack(ctx, &a, f);
    pl_image_folder_close(f);
    return st;
}

const cli_command cli_data_pack = {
    .name = "data pack",
    .summary = "write a memory-mapped packed set",
    .usage = "DIR OUT [options]",
    .options = options,
    .about = "Decodes every picture once, resizes it so that its short side is --size (smaller ones stay as "
             "they are) and writes\n"
             "RGB bytes, an index and checksums into one file, which is then read as fast as memory. OUT is "
             "whole or not there; its\n"
             "bytes do not depend on --jobs. `polar data stat OUT --decode` checks every picture in it.\n",
    .examples = "  polar data pack imagenet imagenet.pack --jobs 8\n"
                "  polar data pack imagenet in100_s42.pack --classes 100 --seed 42 --skip-bad\n",
    .run = run,
};
