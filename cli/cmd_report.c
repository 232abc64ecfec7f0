/* cmd_report.c -- `polar report`: tables, figures and one page from a store. */
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "cli_line.h"
#include "lab/run/provenance.h"
#include "lab/spec/spec.h"
#include "lab/run/testbed.h"
#include "report/report.h"
#include "sound_store.h"

typedef struct report_args {
    cli_list specs;
    const char *dir, *store;
} report_args;

static const cli_option options[] = {
    {"SPEC", CLI_ARGS(report_args, specs),
     .help = "spec files, or names of specs in the store (default: every spec of the store)"},
    {"output", CLI_STRING(report_args, dir), .letter = 'o', .value = "DIR", .def = "report",
     .help = "the folder to write, made if it is not there"},
    {"store", CLI_STRING(report_args, store), .value = "FILE", .def = "polar.db",
     .help = "where `polar run` put the results"},
    {0},
};

static void show_progress(void *arg, const char *what)
{
    cli_line_show(arg, "%s", what);
}

static void show_left_out(void *arg, const char *spec, const char *why)
{
    const cli_context *ctx = arg;
    cli_line_clear(ctx);
    fprintf(ctx->log, "note: the spec %s is left out: %s\n", spec, why);
}

/* The spec of a file, NULL where the word is not the name of one: it is then one of the store's. */
static polar_status read_file(pl_spec **out, const char *word, const pl_schema *schemas, int count)
{
    *out = NULL;
    return access(word, F_OK) == 0 ? pl_spec_read(out, word, schemas, count, NULL, 0) : POLAR_OK;
}

static polar_status write_report(cli_context *ctx, const report_args *a, pl_spec *const *files,
                                 const pl_schema *schemas, int schema_count)
{
    pl_store *s;
    pl_report_outcome out;
    const char *names[CLI_MAX_LIST], *texts[CLI_MAX_LIST];
    for (int i = 0; i < a->specs.count; i++) {
        names[i] = files[i] ? files[i]->name : a->specs.items[i];
        texts[i] = files[i] ? files[i]->text : NULL;
    }
    pl_report_opts o = {.dir = a->dir,
                        .specs = a->specs.count ? names : NULL,
                        .texts = texts,
                        .schemas = schemas,
                        .schema_count = schema_count,
                        .spec_count = a->specs.count,
                        .code = pl_code_version(),
                        .progress = show_progress,
                        .left_out = show_left_out,
                        .progress_arg = ctx};
    PL_TRY(sound_store_open(&s, ctx, a->store));
    polar_status st = pl_report_write(&out, s, &o);
    pl_store_close(s);
    cli_line_clear(ctx);
    PL_TRY(st);
    if (*out.note) fprintf(ctx->log, "note: %s\n", out.note);
    fprintf(ctx->out, "%lld spec%s, %lld tables, %lld figures: %s\n", (long long)out.specs,
            out.specs == 1 ? "" : "s", (long long)out.tables, (long long)out.figures, out.page);
    return POLAR_OK;
}

static polar_status run(cli_context *ctx, int argc, char **argv)
{
    report_args a = {0};
    pl_spec *files[CLI_MAX_LIST] = {NULL};
    pl_schema schemas[PL_TESTBED_MAX];
    int schema_count = pl_testbed_schemas(schemas);
    PL_TRY(cli_options_parse(&a, options, "report", argc, argv));
    polar_status st = POLAR_OK;
    for (int i = 0; i < a.specs.count && st == POLAR_OK; i++)
        st = read_file(&files[i], a.specs.items[i], schemas, schema_count);
    if (st == POLAR_OK) st = write_report(ctx, &a, files, schemas, schema_count);
    for (int i = 0; i < a.specs.count; i++) pl_spec_destroy(files[i]);
    return st;
}

const cli_command cli_cmd_report = {
    .name = "report",
    .summary = "tables (text, CSV, TeX), figures (SVG, PNG) and one page of a store's audits",
    .usage = "[SPEC..] [-o DIR] [options]",
    .options = options,
    .about = "Writes DIR/index.html, one self-contained page with the tables and figures of every spec, "
             "published values beside ours, what is\n"
             "missing and where each number comes from; and the tables and figures as files under DIR/tables "
             "and DIR/figures. Specs that\n"
             "say so (compare:, docs/specs.md) are also compared with each other, seed "
             "by seed. Reads the store only. Figures\n"
             "are drawn by gnuplot; without it the tables and the page are written all the same. A spec "
             "whose rows cannot be used is left out and\n"
             "listed with its reason, unless it was asked for by name.\n",
    .examples = "  polar report -o out\n"
                "  polar report specs/demo/so3_small.yaml --store small.db -o out\n"
                "  polar report deit_minimal_100ep deit_matched_aug_100ep deit_style_300ep -o deit\n",
    .run = run,
};
