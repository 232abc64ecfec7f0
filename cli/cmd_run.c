/* cmd_run.c -- `polar run SPEC [SPEC ...]`: does every run of the specs that the store does not have yet, the
 * first spec's first, and prints what came out by cell and arm. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json_read.h"
#include "cli.h"
#include "lab/spec/plan_rows.h"
#include "lab/run/runner.h"
#include "rank_device.h"
#include "run_data.h"
#include "run_progress.h"
#include "run_ranks.h"
#include "run_table.h"
#include "spec_list.h"
#include "stop_signal.h"

#define MOST_SHARDS 1000000

typedef struct run_args {
    const char *store, *budget, *shard;
    cli_list specs, set, devices;
    run_data pictures;
    int64_t jobs, gauge_shadow, ensemble;
    int64_t shard_index, shards; /* of --shard, from 0 */
    double save_every, rank_wait, copy_every;
    int retry, format;
} run_args;

static const cli_option options[] = {
    {"SPEC", CLI_ARGS(run_args, specs),
     .help = "spec files, as under specs/; of several the first comes first"},
    {"jobs", CLI_INT(run_args, jobs, 1, 1024), .value = "N", .def = "1",
     .help = "runs side by side, each on its share of the processors"},
    {"device", CLI_STRINGS(run_args, devices), .value = "NAME",
     .help = "where runs are made (cpu); on cuda runs of one shape are trained together. Several "
             "devices share the runs, cuda begins with the costliest and has one job"},
    RUN_DATA_OPTIONS(run_args, pictures),
    {"set", CLI_STRINGS(run_args, set), .value = "KEY=VALUE",
     .help = "seeds=0..7, arms=muon,adamw, model.width=16,32, or any key of the runs"},
    {"store", CLI_STRING(run_args, store), .value = "FILE", .def = "polar.db",
     .help = "where results are kept; made where there is none"},
    {"shard", CLI_STRING(run_args, shard), .value = "K/N",
     .help = "only every N-th run, from the K-th on, into a store of its own: see `polar store merge`"},
    {"budget", CLI_STRING(run_args, budget), .value = "TIME",
     .help = "save and leave after so long: 90s, 8m, 1h30m"},
    {"save-every", CLI_DOUBLE(run_args, save_every, 0, 86400), .value = "S", .def = "5",
     .help = "seconds between checkpoints of a run"},
    {"gauge-shadow", CLI_INT(run_args, gauge_shadow, 0, 64), .value = "K", .def = "0",
     .help = "follow every Schur block with K shadow optimisers (gauge.shadows)"},
    {"copy-every", CLI_DOUBLE(run_args, copy_every, 0, 1e6), .value = "S", .def = "300",
     .help = "under mpirun or srun: seconds between copies of a rank's finished runs beside the store"},
    {"rank-wait", CLI_DOUBLE(run_args, rank_wait, 0, 1e6), .value = "S", .def = "300",
     .help = "under mpirun or srun: seconds without a sign of life after which a rank is not waited for"},
    {"ensemble", CLI_INT(run_args, ensemble, 0, 4096), .value = "N", .def = "0",
     .help = "the most runs trained together (0: 64 on cuda, 1 elsewhere)"},
    {"retry", CLI_FLAG(run_args, retry), .help = "make diverged runs again"},
    {"format", CLI_CHOICE(run_args, format, cli_formats), .value = "F", .def = "text",
     .help = "of the table"},
    {0},
};

/* ---- options ------------------------------------------------------------------------------------ */

/* "90", "90s", "8m", "1h30m" -> seconds. */
static polar_status parse_time(double *out, const char *text)
{
    const char *p = text;
    double total = 0;
    int parts = 0;
    for (; *p; parts++) {
        char *end = NULL;
        if (*p < '0' || *p > '9') break;
        double n = strtod(p, &end);
        double unit = *end == 'h' ? 3600 : *end == 'm' ? 60 : *end == 's' || (!*end && !parts) ? 1 : 0;
        if (!unit || !(n < 1e8)) break;
        total += n * unit;
        p = *end ? end + 1 : end;
    }
    PL_NEED(parts && !*p && total > 0, POLAR_E_ARG,
            "run: --budget wants a time such as 90s, 8m or 1h30m, got '%s'", pl_text_shown(text).text);
    *out = total;
    return POLAR_OK;
}

/* "3/16" -> 2 and 16. */
static polar_status parse_shard(int64_t *shard, int64_t *shards, const char *text)
{
    int used = 0, plain = strspn(text, "0123456789/") == strlen(text) && strlen(text) < 16;
    int whole = plain && sscanf(text, "%" SCNd64 "/%" SCNd64 "%n", shard, shards, &used) == 2 && !text[used];
    PL_NEED(whole && *shard >= 1 && *shard <= *shards && *shards <= MOST_SHARDS, POLAR_E_ARG,
            "run: --shard wants K/N with K from 1 to N and N up to %d, such as 3/16, got '%s'", MOST_SHARDS,
            pl_text_shown(text).text);
    --*shard;
    return POLAR_OK;
}

/* ---- the command -------------------------------------------------------------------------------- */

typedef struct job { /* what there is to do, and as which rank */
    const run_args *a;
    const spec_list *specs;
    const pl_runner_plan *plans; /* of the specs */
    double budget;
    run_progress *progress;
    run_ranks *ranks; /* NULL: alone */
} job;

static polar_status report(cli_context *ctx, const job *j, const char *store)
{
    return run_table_print(ctx, (pl_table_format)j->a->format, store, j->specs->plans, j->specs->count);
}

static void watch(void *arg, const pl_runner_event *e)
{
    job *j = arg;
    if (j->ranks) run_ranks_beat(j->ranks, j->progress->ctx, e->view->done, j->a->copy_every);
    if (!j->ranks || !j->ranks->launch.rank) run_progress_watch(j->progress, e);
}

static polar_status run_jobs(pl_runner_outcome *outcome, job *j)
{
    const run_args *a = j->a;
    stop_signal signals;
    pl_runner_opts o = PL_RUNNER_OPTS_INIT;
    o.store = j->ranks ? j->ranks->local : a->store;
    if (a->devices.count) {
        o.device = a->devices.items[0];
        o.beside = a->devices.items + 1;
        o.beside_count = a->devices.count - 1;
    }
    o.jobs = (int)a->jobs;
    o.shard = j->ranks ? j->ranks->launch.rank : a->shard_index;
    o.shards = j->ranks ? j->ranks->launch.size : a->shards;
    o.retry = a->retry;
    o.budget = j->budget;
    o.save_every = a->save_every;
    o.ensemble = a->ensemble;
    o.watch = watch;
    o.watch_arg = j;
    o.stop = j->progress->stop = stop_signal_begin(&signals);
    polar_status st = pl_runner_run(outcome, j->plans, j->specs->count, &o);
    stop_signal_end(&signals);
    run_progress_end(j->progress);
    return st;
}

/* Rank 0, when its own shard is done: the others' too, and the table of all. */
static polar_status join_ranks(cli_context *ctx, const job *j)
{
    char folder[SCRATCH_CHARS], joined[SCRATCH_CHARS + 16];
    PL_TRY(scratch_open(folder));
    snprintf(joined, sizeof joined, "%s/joined.db", folder);
    polar_status st = run_ranks_join(j->ranks, ctx, folder, j->a->rank_wait);
    if (st == POLAR_OK) st = report(ctx, j, joined);
    scratch_close(folder);
    return st;
}

static polar_status run_rank(cli_context *ctx, job *j, const pl_launch *launch, int argc, char **argv)
{
    run_ranks ranks;
    rank_device gpu;
    run_args a = *j->a;
    pl_runner_outcome outcome = {0};
    for (int i = 0; i < a.devices.count; i++) {
        if (strcmp(a.devices.items[i], "cuda")) continue;
        PL_TRY(rank_device_choose(&gpu, launch, "cuda"));
        a.devices.items[i] = gpu.name;
    }
    j->a = &a;
    PL_TRY(run_ranks_begin(&ranks, ctx, launch, j->a->store));
    j->ranks = &ranks;
    polar_status st = run_jobs(&outcome, j);
    if (outcome.stopped) ctx->interrupted = 1;
    PL_TRY(run_ranks_end(&ranks, st, !outcome.left && !outcome.unplanned));
    if (launch->rank) return POLAR_OK;
    fprintf(ctx->log, "rank 0 of %" PRId64 " (%s): ", launch->size, launch->by);
    run_progress_outcome(ctx, &outcome, st, "run", argc, argv);
    return outcome.stopped ? POLAR_OK : join_ranks(ctx, j);
}

static polar_status run_plans(cli_context *ctx, job *j, int argc, char **argv)
{
    char several[32];
    run_progress progress = {.ctx = ctx, .name = j->specs->specs[0]->name};
    pl_launch launch = {.size = 1};
    pl_runner_outcome outcome;
    if (j->specs->count > 1) {
        snprintf(several, sizeof several, "%d specs", j->specs->count);
        progress.name = several;
        progress.several = 1;
    }
    j->progress = &progress;
    if (!j->a->shard) PL_TRY(pl_launch_read(&launch));
    if (launch.size > 1) return run_rank(ctx, j, &launch, argc, argv);
    polar_status st = run_jobs(&outcome, j);
    run_progress_outcome(ctx, &outcome, st, "run", argc, argv);
    if (outcome.stopped) ctx->interrupted = 1;
    return st == POLAR_OK && !outcome.unplanned ? report(ctx, j, j->a->store) : st;
}

static polar_status run_specs(cli_context *ctx, job *j, int argc, char **argv)
{
    size_t n = (size_t)j->specs->count;
    pl_store_spec *rows = pl_calloc(n, sizeof *rows);
    pl_runner_plan *plans = pl_calloc(n, sizeof *plans);
    polar_status st = rows && plans ? POLAR_OK : PL_FAIL(POLAR_E_NOMEM, "%zu specs", n);
    for (size_t k = 0; k < n && st == POLAR_OK; k++) {
        const pl_plan *plan = j->specs->plans[k];
        rows[k] = pl_spec_row(plan->spec);
        plans[k] = (pl_runner_plan){j->specs->testbeds[k], &rows[k], plan->runs, plan->count};
    }
    j->plans = plans;
    if (st == POLAR_OK) st = run_plans(ctx, j, argc, argv);
    pl_free(rows);
    pl_free(plans);
    return st;
}

static polar_status run(cli_context *ctx, int argc, char **argv)
{
    run_args a = {0};
    char gauge[48];
    double budget = 0;
    spec_list specs;
    PL_TRY(cli_options_parse(&a, options, "run", argc, argv));
    if (a.budget) PL_TRY(parse_time(&budget, a.budget));
    if (a.shard) PL_TRY(parse_shard(&a.shard_index, &a.shards, a.shard));
    PL_TRY(run_data_settings(&a.set, &a.pictures, 0, "run"));
    if (a.gauge_shadow) {
        PL_NEED(a.set.count < CLI_MAX_LIST, POLAR_E_ARG, "run: at most %d --set", CLI_MAX_LIST - 1);
        snprintf(gauge, sizeof gauge, "gauge.shadows=%lld", (long long)a.gauge_shadow);
        a.set.items[a.set.count++] = gauge;
    }
    polar_status st = spec_list_read(&specs, &a.specs, &a.set, "run");
    job j = {.a = &a, .specs = &specs, .budget = budget};
    if (st == POLAR_OK) st = run_specs(ctx, &j, argc, argv);
    spec_list_free(&specs);
    return st;
}

const cli_command cli_cmd_run = {
    "run",
    "do, or go on with, every run of a spec, or of several",
    "SPEC.. [options]",
    options,
    "Runs that the store has are not made again, so the same command resumes after anything: Ctrl-C (what is "
    "running is\n"
    "saved; exit code 130), kill -9, a full disk, a power cut. Results do not depend on interruptions, "
    "--jobs or threads.\n"
    "Several `polar run` on one store share the work: a run is claimed by a lock that its process cannot "
    "leave behind. When all that is left is\n"
    "another process's, this one waits, and takes over should the other die. With --budget it leaves in time "
    "with exit code 0, whatever is left.\n"
    "Several specs share devices, jobs and budget: while a job is free for which the first spec has no run "
    "left, it takes one of the next, and a run\n"
    "that two of them have is made once. --set is for all of them.\n"
    "Checkpoints lie in FILE.d beside the store and go when their run is done.\n"
    "With --shard 3/16 it does every sixteenth run of the plan, from the third on; `polar store merge` joins "
    "the "
    "stores. Under mpirun or srun\n"
    "every rank does that by itself, in a database on its own machine, and rank 0 joins them into --store "
    "and prints "
    "the table (--shard 1/1\n"
    "keeps it from that). docs/cluster.md has more.\n",
    "  polar run specs/demo/so3_small.yaml --jobs 2\n"
    "  polar run specs/paper/so3_capacity.yaml --set seeds=0..19 --set model.width=16,32 --budget 8h\n"
    "  polar run specs/paper/so3_lr_sweep.yaml specs/open/so3_rates.yaml --device cuda:0 --budget 2h\n"
    "  polar run specs/demo/so3_tiny.yaml --store /tmp/try.db --format csv\n"
    "  polar run specs/paper/so3_capacity.yaml --device cuda:0 --device cpu:threads=1 --jobs 14\n"
    "  polar run specs/paper/deit_minimal_100ep.yaml --data imagenet --device cuda:0\n"
    "  polar run specs/paper/so3_capacity.yaml --shard 3/16 --store shard-3.db\n"
    "  mpirun -n 16 polar run specs/paper/so3_capacity.yaml --store audit.db\n",
    run,
};
