/* cmd_report.c -- `polar report`: tables, figures and one page from a store. */
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cli.h"
#include "cli_line.h"
#include "lab/run/provenance.h"
#include "lab/spec/spec.h"
#include "lab/run/testbed.h"
#include "report/report.h"

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

/* The name under which the store knows a spec: that of the file, or the word itself. Owned by the caller. */
static polar_status spec_name(char **out, const char *word)
{
    pl_schema schemas[PL_TESTBED_MAX];
    pl_spec *spec;
    *out = NULL;
    if (access(word, F_OK) == 0) {
        PL_TRY(pl_spec_read(&spec, word, schemas, pl_testbed_schemas(schemas), NULL, 0));
        *out = pl_strdup(spec->name);
        pl_spec_destroy(spec);
    } else *out = pl_strdup(word);
    PL_NEED(*out, POLAR_E_NOMEM, "a name");
    return POLAR_OK;
}

static polar_status write_report(cli_context *ctx, const report_args *a, char **names)
{
    pl_store *s;
    pl_report_outcome out;
    pl_report_opts o = {.dir = a->dir,
                        .specs = a->specs.count ? (const char *const *)names : NULL,
                        .spec_count = a->specs.count,
                        .code = pl_code_version(),
                        .progress = show_progress,
                        .left_out = show_left_out,
                        .progress_arg = ctx};
    PL_TRY(pl_store_open(&s, a->store, PL_STORE_READ));
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
    char *names[CLI_MAX_LIST] = {NULL};
    PL_TRY(cli_options_parse(&a, options, "report", argc, argv));
    polar_status st = POLAR_OK;
    for (int i = 0; i < a.specs.count && st == POLAR_OK; i++) st = spec_name(&names[i], a.specs.items[i]);
    if (st == POLAR_OK) st = write_report(ctx, &a, names);
    for (int i = 0; i < a.specs.count; i++) pl_free(names[i]);
    return st;
}

const cli_command cli_cmd_report = {
    .name = "report",
    .summary = "tables (text, CSV, TeX), figures (SVG, PNG) and one page of a store's audits",
    .usage = "[SPEC..] [-o DIR] [options]",
    .options = options,
    .about = "Writes DIR/index.html, one self-contained page with the tables and figures of every spec, the "
             "paper's values beside ours, what is\n"
             "missing and where each number comes from; and the tables and figures as files under DIR/tables "
             "and DIR/figures. Specs that\n"
             "belong together (the paper's DeiT recipes and budgets) are also compared with each other, seed "
             "by seed. Reads the store only. Figures\n"
             "are drawn by gnuplot; without it the tables and the page are written all the same. A spec "
             "whose rows cannot be used is left out and\n"
             "listed with its reason, unless it was asked for by name.\n",
    .examples = "  polar report -o out\n"
                "  polar report specs/demo/so3_small.yaml --store small.db -o out\n"
                "  polar report deit_minimal_100ep deit_matched_aug_100ep deit_style_300ep -o deit\n",
    .run = run,
};
