/* data_synth.c -- `polar data synth OUT`: a folder of procedural textures to try things on. */
#include "data/set/image_synth.h"
#include "data_work.h"
#include "stop_signal.h"

typedef struct synth_args {
    const char *out, *seed;
    int64_t classes, train, test, size, quality, jobs;
    double noise;
    int files;
} synth_args;

static const char *const file_formats[] = {"jpeg", "png", NULL}; /* the order of pl_image_format */

static const cli_option options[] = {
    {"OUT", CLI_ARG(synth_args, out), .help = "a new folder"},
    {"classes", CLI_INT(synth_args, classes, 1, 100000), .value = "N", .def = "10", .help = "textures"},
    {"train", CLI_INT(synth_args, train, 1, 1000000), .value = "N", .def = "100",
     .help = "training pictures per class"},
    {"val", CLI_INT(synth_args, test, 1, 1000000), .value = "N", .def = "20",
     .help = "test pictures per class"},
    {"size", CLI_INT(synth_args, size, 1, 4096), .value = "N", .def = "64", .help = "pixels a side"},
    {"seed", CLI_STRING(synth_args, seed), .value = "S", .def = "0", .help = "of everything"},
    {"noise", CLI_DOUBLE(synth_args, noise, 0, 255), .value = "X", .def = "12",
     .help = "standard deviation in grey levels"},
    {"files", CLI_CHOICE(synth_args, files, file_formats), .value = "F", .def = "jpeg",
     .help = "format of the files"},
    {"quality", CLI_INT(synth_args, quality, 1, 100), .value = "Q", .def = "90", .help = "of JPEG"},
    {"jobs", CLI_INT(synth_args, jobs, 0, 256), .letter = 'j', .value = "N", .def = "0",
     .help = "threads; 0: one per processor"},
    {0},
};

static void show(void *user, int64_t done, int64_t total)
{
    data_progress_show(user, done, total, 0);
}

static polar_status run(cli_context *ctx, int argc, char **argv)
{
    synth_args a = {0};
    pl_synth_opts o = PL_SYNTH_OPTS_INIT;
    stop_signal signals;
    int stopped;
    PL_TRY(cli_options_parse(&a, options, "data synth", argc, argv));
    PL_TRY(data_parse_seed(&o.seed, a.seed));
    data_progress progress = data_progress_begin(ctx, "drawing");
    o.classes = a.classes;
    o.per_class[PL_IMAGES_TRAIN] = a.train;
    o.per_class[PL_IMAGES_TEST] = a.test;
    o.size = a.size;
    o.noise = a.noise;
    o.format = (pl_image_format)a.files;
    o.quality = (int)a.quality;
    o.workers = data_jobs(a.jobs);
    o.progress = show;
    o.user = &progress;
    o.stop = stop_signal_begin(&signals);
    polar_status st = pl_image_synth_write(&stopped, &o, a.out);
    stop_signal_end(&signals);
    data_progress_end(&progress);
    PL_TRY(st);
    ctx->interrupted = stopped;
    if (stopped) fprintf(ctx->log, "stopped: %s was not made\n", a.out);
    else
        fprintf(ctx->out, "%s: %lld class%s, %lld training and %lld test pictures of %lld x %lld\n", a.out,
                (long long)a.classes, a.classes == 1 ? "" : "es", (long long)(a.classes * a.train),
                (long long)(a.classes * a.test), (long long)a.size, (long long)a.size);
    return POLAR_OK;
}

const cli_command cli_data_synth = {
    .name = "data synth",
    .summary = "make a set of procedural textures",
    .usage = "OUT [options]",
    .options = options,
    .about = "Classes differ in pattern, scale, direction and colours; pictures of a class in place, tilt, "
             "scale, light, colours and noise.\n"
             "The same options draw the same pictures on every machine. OUT is whole or not there.\n",
    .examples = "  polar data synth /tmp/textures --classes 10 --train 400 --val 100\n"
                "  polar data synth /tmp/big --classes 100 --size 256 --jobs 4\n",
    .run = run,
};
