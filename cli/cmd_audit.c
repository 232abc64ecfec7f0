/* cmd_audit.c -- `polar audit SPEC`: paired statistics of a spec's runs, from the store alone. */
#include "audit_runs.h"
#include "cli.h"
#include "run_data.h"
#include "sound_store.h"

typedef struct audit_args {
    const char *spec, *metric, *store, *run;
    cli_list set;
    run_data pictures;
    double target, equivalence;
    int format;
} audit_args;

static const cli_option options[] = {
    {"SPEC", CLI_ARG(audit_args, spec),
     .help = "a spec file, as under specs/, or the name of a spec in the store"},
    {"metric", CLI_STRING(audit_args, metric), .value = "M",
     .help = "a result of the runs (test_mse, l10, top1, ...) or wall, seconds (default: the spec's)"},
    {"set", CLI_STRINGS(audit_args, set), .value = "KEY=VALUE",
     .help = "as given to `polar run`: seeds=0..7, arms=muon,adamw, model.width=16,32, ..."},
    {"data", CLI_STRING(audit_args, pictures.data), .value = "DIR",
     .help = "as given to `polar run`; only synth: tells runs apart"},
    {"store", CLI_STRING(audit_args, store), .value = "FILE", .def = "polar.db",
     .help = "where `polar run` put the results"},
    {"format", CLI_CHOICE(audit_args, format, cli_formats), .value = "F", .def = "text",
     .help = "csv and tex hold the table of pairs, text and json everything"},
    {"target", CLI_DOUBLE(audit_args, target, 0, 1e300), .value = "X",
     .help = "epochs until the validation curve reaches it (default: the spec's tests:, or not asked)"},
    {"equivalence", CLI_DOUBLE(audit_args, equivalence, 0, 1e300), .value = "M",
     .help = "test that differences are within M of none (default: the spec's tests:, or not asked)"},
    {"run", CLI_STRING(audit_args, run), .value = "ID",
     .help = "where one run comes from and what it gave; the first digits of its id will do"},
    {0},
};

static polar_status work(cli_context *ctx, const audit_args *a, pl_store *s, audit_runs *runs)
{
    pl_audit *audit;
    PL_TRY(audit_runs_load(runs, s, a->spec, a->set.items, a->set.count));
    pl_audit_of of = audit_runs_of(runs, a->metric);
    if (a->target > 0) of.target = a->target;
    if (a->equivalence > 0) of.equivalence = a->equivalence;
    if (of.target != 0) PL_TRY(pl_audit_reach(runs->runs, runs->count, s, runs->schema, of.target));
    PL_TRY(pl_audit_create(&audit, &of, runs->runs, runs->count));
    polar_status st = a->run ? audit_print_run(ctx->out, runs, audit, a->run)
                             : pl_audit_print(audit, ctx->out, (pl_table_format)a->format);
    pl_audit_destroy(audit);
    return st;
}

static polar_status run(cli_context *ctx, int argc, char **argv)
{
    audit_args a = {0};
    audit_runs runs = {0};
    pl_store *s;
    PL_TRY(cli_options_parse(&a, options, "audit", argc, argv));
    PL_TRY(run_data_settings(&a.set, &a.pictures, 0, "audit"));
    PL_TRY(sound_store_open(&s, ctx, a.store));
    polar_status st = work(ctx, &a, s, &runs);
    audit_runs_free(&runs);
    pl_store_close(s);
    return st;
}

const cli_command cli_cmd_audit = {
    .name = "audit",
    .summary = "paired statistics of a spec's runs: differences, intervals, t, p, signs",
    .usage = "SPEC [options]",
    .options = options,
    .about = "Compares every two arms of a spec on the same cell and seed: n, means, mean difference a - b, "
             "its 95 % interval, paired t\n"
             "and p, Wilcoxon's p and the signs; then Hedges' g with its interval, p corrected by Holm for "
             "all pairs, and "
             "where the spec states them\n"
             "(tests:, docs/specs.md) equivalence within a margin and epochs to a target, with runs that do "
             "not reach it "
             "as censored. Seeds where an arm has no finite value are listed with the "
             "reason, never dropped.\n"
             "Of an error lower is better, of an accuracy (l10, top1) higher: the output says which.\n"
             "Reads the store only; the output holds no clock and no run id (except --metric wall, --run), "
             "so it can be compared byte for byte.\n",
    .examples = "  polar audit specs/demo/so3_small.yaml\n"
                "  polar audit specs/paper/so3_capacity.yaml --set seeds=0..7 --format json\n"
                "  polar audit specs/paper/deit_minimal_100ep.yaml --metric top1\n"
                "  polar audit specs/demo/so3_small.yaml --metric wall\n"
                "  polar audit specs/demo/so3_small.yaml --target 0.02 --equivalence 0.001\n"
                "  polar audit specs/demo/so3_small.yaml --run 7f3a\n",
    .run = run,
};
