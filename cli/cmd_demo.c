/* cmd_demo.c -- `polar demo`: the covariance table, a small paired audit of three optimisers with live
 * progress, and its report.
 *
 * Everything lies in one folder: the spec (written from the text below), the store, tables, figures and the
 * page. The same folder again
 * (-o DIR) goes on where it stopped.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "audit_runs.h"
#include "base/alloc.h"
#include "base/thread_pool.h"
#include "cli.h"
#include "demo_covariance.h"
#include "lab/run/provenance.h"
#include "lab/run/runner.h"
#include "lab/spec/plan_rows.h"
#include "polar/polar.h"
#include "report/findings.h"
#include "report/report.h"
#include "report/report_files.h"
#include "run_progress.h"
#include "stop_signal.h"

#define SPEC_FILE "so3_demo.yaml"

static const char spec_text[] = "# Written by `polar demo`. Small clouds and few seeds, so that two cores "
                                "need about half a minute; at these sizes the optimisers already differ.\n"
                                "name: so3_demo\n"
                                "title: \"Demo: three optimisers on paired seeds\"\n"
                                "testbed: so3\n"
                                "metric: test_mse\n"
                                "seeds: 0..3\n"
                                "arms: [adamw, muon, polaradamw]\n"
                                "grid:\n"
                                "  model.width: [8, 16]\n"
                                "set:\n"
                                "  data.points: 32\n"
                                "  data.valid: 128\n"
                                "  data.test: 256\n";

static const char heading[] =
    "\n2. Which of them ends with the smaller error?\n"
    "\n"
    "An SO(3)-equivariant network predicts the largest eigenvalue of X^T X / N of random point clouds. Muon "
    "takes the polar map of its\n"
    "momentum, AdamW divides entry by entry, PolarAdamW takes the polar map of AdamW's direction. Measured "
    "is "
    "the test error after training:\n"
    "each seed is one draw of data and initial weights, on which all three are trained. (How far their "
    "updates turn with the coordinates\n"
    "while they train is another measurement: docs/results/so3_gauge.md.)\n\n";

typedef struct {
    const char *dir, *device;
    int64_t seed, jobs;
    cli_list set;
    int format;
} demo_args;

static const cli_option options[] = {
    {"output", CLI_STRING(demo_args, dir), .letter = 'o', .value = "DIR",
     .help = "where store and report go (default: a fresh folder for temporary files)"},
    {"device", CLI_STRING(demo_args, device), .value = "D", .def = "cpu",
     .help = "where to compute, see `polar info`"},
    {"jobs", CLI_INT(demo_args, jobs, 0, 1024), .value = "N", .def = "0",
     .help = "runs side by side; 0: one per processor, at most 8"},
    {"set", CLI_STRINGS(demo_args, set), .value = "KEY=VALUE",
     .help = "of the audit's spec: train.epochs=10, seeds=0..7, or any key of the runs"},
    {"seed", CLI_INT(demo_args, seed, 0, 9007199254740992.0), .value = "N", .def = "0",
     .help = "of the random matrices of the covariance table"},
    {"format", CLI_CHOICE(demo_args, format, cli_formats), .value = "F", .def = "text",
     .help = "other than text: only the audit, in that format"},
    {0},
};

typedef struct {
    cli_context *ctx;
    demo_args a;
    char *dir, *spec, *store; /* paths */
} demo;

/* ---- the folder ---- */

static polar_status make_folder(demo *d)
{
    char fresh[1024];
    const char *base = getenv("TMPDIR");
    pl_out_file o;
    if (d->a.dir) PL_TRY(pl_folder_make(d->a.dir));
    else {
        snprintf(fresh, sizeof fresh, "%.900s/polar_demo_XXXXXX", base && *base ? base : "/tmp");
        PL_NEED(mkdtemp(fresh), POLAR_E_IO, "make a folder '%s': %s (-o DIR chooses another)", fresh,
                strerror(errno));
    }
    d->dir = pl_strdup(d->a.dir ? d->a.dir : fresh);
    PL_NEED(d->dir, POLAR_E_NOMEM, "a path");
    PL_TRY(pl_path_join(&d->spec, d->dir, SPEC_FILE));
    PL_TRY(pl_path_join(&d->store, d->dir, "polar.db"));
    PL_TRY(pl_out_begin(&o, d->dir, SPEC_FILE));
    fputs(spec_text, o.f);
    return pl_out_end(&o, POLAR_OK);
}

/* ---- the runs ---- */

static polar_status train_all(demo *d, const pl_plan *plan)
{
    const pl_spec *spec = plan->spec;
    const pl_store_spec row = pl_spec_row(spec);
    run_progress progress = {.ctx = d->ctx, .name = spec->name};
    pl_runner_outcome outcome;
    const pl_testbed *tb;
    stop_signal signals;
    pl_runner_opts o = PL_RUNNER_OPTS_INIT;
    int64_t processors = pl_processor_count(), jobs = d->a.jobs ? d->a.jobs
                                                      : strncmp(d->a.device, "cuda", 4)
                                                          ? processors < 8 ? processors : 8
                                                          : 1;
    PL_TRY(pl_testbed_find(&tb, spec->schema.name));
    o.store = d->store;
    o.device = d->a.device;
    o.jobs = (int)jobs;
    o.watch = run_progress_watch;
    o.watch_arg = &progress;
    o.stop = progress.stop = stop_signal_begin(&signals);
    polar_status st = pl_runner_run(&outcome, &(pl_runner_plan){tb, &row, plan->runs, plan->count}, 1, &o);
    stop_signal_end(&signals);
    run_progress_end(&progress);
    char *again[2 + 2 * CLI_MAX_LIST] = {"-o", d->dir};
    int words = 2;
    for (int i = 0; i < d->a.set.count; i++)
        again[words++] = "--set", again[words++] = (char *)d->a.set.items[i];
    if (outcome.left) run_progress_outcome(d->ctx, &outcome, st, "demo", words, again);
    if (outcome.stopped) d->ctx->interrupted = 1;
    return st;
}

static polar_status train(demo *d)
{
    pl_schema schemas[PL_TESTBED_MAX];
    pl_spec *spec;
    pl_plan *plan = NULL;
    PL_TRY(
        pl_spec_read(&spec, d->spec, schemas, pl_testbed_schemas(schemas), d->a.set.items, d->a.set.count));
    polar_status st = pl_plan_create(&plan, spec);
    if (st == POLAR_OK) st = train_all(d, plan);
    pl_plan_destroy(plan);
    pl_spec_destroy(spec);
    return st;
}

/* ---- what was found ---- */

static polar_status print_findings(FILE *out, const pl_audit *a)
{
    fprintf(out, "\nFound (test error of %lld paired seeds; differences with 95 %% intervals):\n",
            (long long)a->seed_count);
    for (int64_t c = 0; c < a->cell_count; c++) {
        char *text;
        PL_TRY(pl_findings_cell(&text, a, c));
        for (char *line = text, *next; line; line = next) {
            next = strchr(line, '\n');
            if (next) *next++ = 0;
            fprintf(out, "%s%s\n", line == text ? "  " : "      ", line);
        }
        pl_free(text);
    }
    return POLAR_OK;
}

static polar_status tell(demo *d, pl_store *s, audit_runs *runs)
{
    FILE *out = d->ctx->out;
    pl_audit *a;
    pl_report_outcome written;
    pl_schema schemas[PL_TESTBED_MAX];
    const pl_report_opts o = {.dir = d->dir,
                              .code = pl_code_version(),
                              .schemas = schemas,
                              .schema_count = pl_testbed_schemas(schemas)};
    PL_TRY(audit_runs_load(runs, s, d->spec, d->a.set.items, d->a.set.count));
    pl_audit_of of = audit_runs_of(runs, NULL);
    PL_TRY(pl_audit_create(&a, &of, runs->runs, runs->count));
    polar_status st = pl_audit_print(a, out, (pl_table_format)d->a.format);
    if (st == POLAR_OK) st = pl_report_write(&written, s, &o);
    if (st == POLAR_OK && d->a.format == PL_TABLE_TEXT) st = print_findings(out, a);
    pl_audit_destroy(a);
    PL_TRY(st);
    if (*written.note) fprintf(d->ctx->log, "note: %s\n", written.note);
    if (d->a.format == PL_TABLE_TEXT)
        fprintf(out,
                "\nThe page with all tables and figures: %s\n(the spec, the store polar.db, tables/ and "
                "figures/ lie beside it)\n",
                written.page);
    return POLAR_OK;
}

static polar_status audit(demo *d)
{
    pl_store *s;
    audit_runs runs = {0};
    PL_TRY(pl_store_open(&s, d->store, PL_STORE_READ));
    polar_status st = tell(d, s, &runs);
    audit_runs_free(&runs);
    pl_store_close(s);
    return st;
}

static polar_status work(demo *d)
{
    int words = d->a.format == PL_TABLE_TEXT;
    polar_device *dev;
    /* a wrong name or folder is told before the work, not after */
    PL_TRY(polar_device_open(&dev, d->a.device));
    polar_device_close(dev);
    PL_TRY(make_folder(d));
    if (words) PL_TRY(demo_covariance(d->ctx, d->a.device, (uint64_t)d->a.seed));
    if (words) fputs(heading, d->ctx->out);
    fflush(d->ctx->out);
    PL_TRY(train(d));
    return d->ctx->interrupted ? POLAR_OK : audit(d);
}

static polar_status run(cli_context *ctx, int argc, char **argv)
{
    demo d = {.ctx = ctx};
    PL_TRY(cli_options_parse(&d.a, options, "demo", argc, argv));
    polar_status st = work(&d);
    pl_free(d.dir);
    pl_free(d.spec);
    pl_free(d.store);
    return st;
}

const cli_command cli_cmd_demo = {
    .name = "demo",
    .summary = "one minute: covariance of the optimisers' directions, a paired audit, a report",
    .usage = "[-o DIR] [options]",
    .options = options,
    .about = "Measures the paper's covariance table with few samples; trains AdamW, Muon and PolarAdamW on "
             "the same four seeds of a small SO(3)-equivariant\n"
             "regression at two widths; prints the paired audit and writes its report. The last lines say "
             "what was found and where the page lies.\n"
             "Exit code 1 if the covariance theorem fails in double precision. Ctrl-C stops cleanly; the "
             "same -o DIR goes on.\n",
    .examples = "  polar demo\n"
                "  polar demo -o demo --jobs 2\n"
                "  polar demo --format json\n",
    .run = run,
};
