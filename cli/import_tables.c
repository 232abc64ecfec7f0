/* import_tables.c -- `polar store import SPEC --runs FILE`: finished runs, as `polar report` wrote them, back
 * into a store. */
#include <inttypes.h>

#include "base/json_read.h"
#include "cli.h"
#include "lab/run/testbed.h"
#include "merge_stores.h"
#include "report/table/tables_read.h"
#include "run_data.h"

typedef struct import_args {
    const char *spec, *store;
    cli_list runs, epochs, set;
    run_data pictures;
    int skip;
} import_args;

static const cli_option options[] = {
    {"SPEC", CLI_ARG(import_args, spec), .help = "the spec file the runs belong to"},
    {"runs", CLI_STRINGS(import_args, runs), .value = "FILE",
     .help = "a table of runs, tables/..._runs.csv of a report"},
    {"epochs", CLI_STRINGS(import_args, epochs), .value = "FILE",
     .help = "their epochs, tables/..._epochs.csv, where there are any"},
    {"set", CLI_STRINGS(import_args, set), .value = "KEY=VALUE",
     .help = "as given to `polar run`: seeds=0..7, arms=muon,adamw, model.width=16,32, ..."},
    {"data", CLI_STRING(import_args, pictures.data), .value = "DIR",
     .help = "as given to `polar run`; only synth: tells runs apart"},
    {"skip-unknown", CLI_FLAG(import_args, skip),
     .help = "leave out rows that are no run of the spec, and count them"},
    {"store", CLI_STRING(import_args, store), .value = "FILE", .def = "polar.db",
     .help = "the store that gets them; made where there is none"},
    {0},
};

/* ---- into the store ----------------------------------------------------------------------------- */

static polar_status put(pl_merge_count *did, cli_context *ctx, const import_args *a, const pl_tables *t)
{
    cli_differences to = {.out = ctx->out};
    const pl_store_spec row = pl_spec_row(t->plan->spec);
    pl_store *s;
    *did = (pl_merge_count){0};
    PL_TRY(pl_store_open(&s, a->store, PL_STORE_WRITE));
    polar_status st = pl_store_verify(s);
    if (st == POLAR_OK)
        st = pl_store_import(did, s, &row, t->plan_rows->rows, t->plan_rows->count, t->runs, t->count,
                             cli_print_difference, &to);
    if (did->differ > MOST_DIFFERENCES)
        fprintf(ctx->out, "... and %" PRId64 " more\n", did->differ - MOST_DIFFERENCES);
    if (st == POLAR_OK) st = pl_store_sweep(s); /* checkpoints of runs that came finished */
    pl_store_close(s);
    return st;
}

/* ---- the tables --------------------------------------------------------------------------------- */

static void print_notes(cli_context *ctx, const pl_tables *t)
{
    if (*t->left_out)
        fprintf(ctx->log, "note: columns that are no results of %s are left out: %s\n",
                t->plan->spec->schema.name, t->left_out);
    if (t->unfinished)
        fprintf(ctx->log, "note: %" PRId64 " rows are of runs that were not finished, and left out\n",
                t->unfinished);
    if (t->unknown)
        fprintf(ctx->log, "note: %" PRId64 " rows are no runs of %s as planned, and left out\n", t->unknown,
                t->plan->spec->name);
}

/* Everything is read and checked before the store is opened. */
static polar_status import(cli_context *ctx, const import_args *a, pl_tables *t)
{
    pl_merge_count did;
    for (int i = 0; i < a->runs.count; i++) PL_TRY(pl_tables_read_runs(t, a->runs.items[i]));
    for (int i = 0; i < a->epochs.count; i++) PL_TRY(pl_tables_read_epochs(t, a->epochs.items[i]));
    PL_TRY(pl_tables_match(t, a->skip));
    polar_status st = put(&did, ctx, a, t);
    if (did.differ) { /* said which; a check that failed */
        fprintf(ctx->out, "%s: %" PRId64 " disagreement%s, nothing was put\n", a->store, did.differ,
                did.differ == 1 ? "" : "s");
        ctx->check_failed = 1;
        return POLAR_OK;
    }
    PL_TRY(st);
    print_notes(ctx, t);
    fprintf(ctx->out, "%s: %" PRId64 " of %" PRId64 " runs are done, %" PRId64 " of them new\n", a->store,
            did.finished, did.runs, did.put);
    return POLAR_OK;
}

static polar_status run(cli_context *ctx, int argc, char **argv)
{
    import_args a = {0};
    pl_schema schemas[PL_TESTBED_MAX];
    pl_spec *spec = NULL;
    pl_plan *plan = NULL;
    pl_plan_rows rows = {0};
    pl_tables *t = NULL;
    PL_TRY(cli_options_parse(&a, options, "store import", argc, argv));
    PL_NEED(a.runs.count, POLAR_E_ARG,
            "store import: --runs is missing: a table of a report, tables/NAME_runs.csv");
    PL_TRY(run_data_settings(&a.set, &a.pictures, 0, "store import"));
    polar_status st =
        pl_spec_read(&spec, a.spec, schemas, pl_testbed_schemas(schemas), a.set.items, a.set.count);
    if (st == POLAR_OK) st = pl_plan_create(&plan, spec);
    if (st == POLAR_OK) st = pl_plan_rows_create(&rows, plan->runs, plan->count);
    if (st == POLAR_OK) st = pl_tables_create(&t, plan, &rows);
    if (st == POLAR_OK) st = import(ctx, &a, t);
    pl_tables_destroy(t);
    pl_plan_rows_free(&rows);
    pl_plan_destroy(plan);
    pl_spec_destroy(spec);
    return st;
}

const cli_command cli_store_import = {
    .name = "store import",
    .summary = "put runs of a report's tables back into a store",
    .usage = "SPEC --runs FILE.. [--epochs FILE..] [options]",
    .options = options,
    .about =
        "Plans SPEC as `polar run` does and gives its runs the results that tables of a report have of them "
        "(NAME_runs.csv, NAME_epochs.csv),\n"
        "all of it or nothing; rows are matched by run id. So an audit goes on, and its page can be made "
        "again, when the store is gone.\n"
        "A run that the store has finished must agree in every result; those that do not are named and "
        "nothing is put (exit code 1).\n"
        "A row that is no run of the spec is refused: other --set, or a key or default has changed since. "
        "Without --epochs what a report shows\n"
        "over epochs is without these runs. Audits and reports say which runs were imported, and from which "
        "table.\n",
    .examples = "  polar store import specs/paper/so3_capacity.yaml --runs "
                "docs/results/so3_capacity/so3_capacity_runs.csv --store audit.db\n"
                "  polar store import specs/real/tiny_minimal_100ep.yaml --set seeds=42,7 --runs "
                "tiny_minimal_100ep_runs.csv --epochs tiny_minimal_100ep_epochs.csv\n",
    .run = run,
};
