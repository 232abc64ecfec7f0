/* cmd_train.c -- `polar train TESTBED`: one run with its epochs shown; through the same store, checkpoints
 * and runner as `polar run`. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cli.h"
#include "lab/run/runner.h"
#include "report/table/table.h"
#include "run_data.h"
#include "run_progress.h"
#include "sound_store.h"
#include "stop_signal.h"
#include "train_ranks.h"

typedef struct train_args {
    const char *testbed, *rule, *store, *device, *save;
    cli_list set;
    run_data pictures;
    int64_t seed;
    double save_every;
    int format, comm;
} train_args;

static const cli_option options[] = {
    {"TESTBED", CLI_ARG(train_args, testbed),
     .help = "its name; of one that is not there you are told which are"},
    {"rule", CLI_STRING(train_args, rule), .value = "R", .help = "the optimiser, see `polar info`"},
    {"seed", CLI_INT(train_args, seed, 0, 9007199254740992.0), .value = "S", .def = "0",
     .help = "of the data, the first weights and the order"},
    RUN_DATA_OPTIONS(train_args, pictures),
    {"set", CLI_STRINGS(train_args, set), .value = "KEY=VALUE",
     .help = "any key of a run: `polar plan --keys deit` lists them"},
    {"device", CLI_STRING(train_args, device), .value = "NAME", .def = "cpu", .help = "where it is trained"},
    {"comm", CLI_CHOICE(train_args, comm, train_comms), .value = "C", .def = "auto",
     .help = "what carries the bytes between ranks: auto, mpi, nccl"},
    {"save", CLI_STRING(train_args, save), .value = "FILE",
     .help = "its weights as safetensors: so3 the best epoch's, deit the last one's"},
    {"store", CLI_STRING(train_args, store), .value = "FILE", .def = "polar.db",
     .help = "where the run is kept; made where there is none"},
    {"save-every", CLI_DOUBLE(train_args, save_every, 0, 86400), .value = "S", .def = "5",
     .help = "seconds between checkpoints"},
    {"format", CLI_CHOICE(train_args, format, cli_formats), .value = "F", .def = "text",
     .help = "of the results"},
    {0},
};

static polar_status print_results(cli_context *ctx, const train_args *a, const char *title,
                                  const pl_plan_run *run)
{
    /* counts and errors stand in one column: as %g shows them */
    int people = a->format == PL_TABLE_TEXT || a->format == PL_TABLE_TEX;
    const pl_table_column columns[] = {{"name", "result", NULL, PL_CELL_TEXT, 0},
                                       {"value", "value", NULL, people ? PL_CELL_TEXT : PL_CELL_SCI, 8}};
    pl_store *s = NULL;
    pl_store_members m = {0};
    pl_table *t = NULL;
    const char *id = run->id;
    PL_TRY(sound_store_open(&s, ctx, a->store));
    polar_status st = pl_store_select_runs(&m, s, &id, 1);
    if (st == POLAR_OK && m.rows[0].data) fprintf(ctx->log, "trained on %s\n", m.rows[0].data);
    if (st == POLAR_OK) st = pl_table_create(&t, title, columns, 2);
    for (int64_t i = 0; st == POLAR_OK && i < m.rows[0].result_count; i++) {
        pl_table_row(t);
        pl_table_text(t, m.rows[0].results[i].name);
        char value[32];
        snprintf(value, sizeof value, "%.8g", m.rows[0].results[i].value);
        if (people) pl_table_text(t, value);
        else pl_table_number(t, m.rows[0].results[i].value);
    }
    if (st == POLAR_OK) st = pl_table_print(t, ctx->out, (pl_table_format)a->format);
    pl_table_destroy(t);
    pl_store_members_free(&m);
    pl_store_close(s);
    return st;
}

/* What differs from the defaults, "key=value key=value", or "all": the canonical text without its first line,
 * the rule and the seed. */
static polar_status cell_name(char **out, const pl_config *c, int64_t seed)
{
    char *text = NULL;
    PL_TRY(pl_config_canonical(&text, c, seed));
    *out = pl_calloc(strlen(text) + 4, 1);
    char *save = NULL;
    strtok_r(text, "\n", &save);
    for (char *l; *out && (l = strtok_r(NULL, "\n", &save));) {
        if (!strncmp(l, PL_ARM_KEY "=", strlen(PL_ARM_KEY) + 1) || !strncmp(l, "seed=", 5)) continue;
        if (**out) strcat(*out, " ");
        strcat(*out, l);
    }
    pl_free(text);
    PL_NEED(*out, POLAR_E_NOMEM, "a name");
    if (!**out) strcpy(*out, "all");
    return POLAR_OK;
}

/* Told before the training, not after it. */
static polar_status check_save(const char *path)
{
    struct stat s;
    const char *slash = strrchr(path, '/');
    char *folder = pl_strdup(slash ? path : ".");
    PL_NEED(folder, POLAR_E_NOMEM, "a path");
    if (slash) folder[slash - path + 1] = 0;
    int reason = access(folder, W_OK) == 0 ? 0 : errno;
    pl_free(folder);
    PL_NEED(!reason, reason == ENOENT || reason == ENOTDIR ? POLAR_E_ARG : POLAR_E_IO,
            "train: --save %s: its folder cannot be written: %s", path, strerror(reason));
    PL_NEED(stat(path, &s) != 0 || S_ISREG(s.st_mode), POLAR_E_ARG,
            "train: --save %s: it is there and not a regular file", path);
    return POLAR_OK;
}

static polar_status configure(pl_config **out, const pl_testbed *tb, const train_args *a,
                              const train_ranks *ranks)
{
    PL_TRY(pl_config_create(out, tb->schema));
    if (ranks->comm) PL_TRY(pl_config_set(*out, "train.leaves", ranks->leaves));
    if (a->rule) PL_TRY(pl_config_set(*out, PL_ARM_KEY, a->rule));
    for (int i = 0; i < a->set.count; i++) PL_TRY(pl_config_assign(*out, a->set.items[i]));
    return tb->schema->check ? tb->schema->check(*out) : POLAR_OK;
}

static polar_status train(cli_context *ctx, const train_args *a, const train_ranks *ranks,
                          const pl_testbed *tb, const pl_plan_run *run, int argc, char **argv)
{
    pl_testbed led;
    char name[64], title[160];
    snprintf(name, sizeof name, "train_%s", tb->schema->name);
    snprintf(title, sizeof title, "%s %.40s seed %lld", tb->schema->name, run->arm, (long long)run->seed);
    const pl_store_spec spec = {name, "", "Single runs", tb->schema->name, tb->schema->metric, "", NULL};
    run_progress progress = {.ctx = ctx, .name = title, .epochs = 1};
    pl_runner_outcome outcome;
    stop_signal signals;
    pl_runner_opts o = PL_RUNNER_OPTS_INIT;
    o.store = a->store;
    o.device = ranks->device;
    o.comm = ranks->comm;
    if (o.comm) pl_lead(&led, tb);
    o.save_every = a->save_every;
    o.weights = a->save;
    o.watch = run_progress_watch;
    o.watch_arg = &progress;
    o.stop = progress.stop = stop_signal_begin(&signals);
    if (o.comm) pl_comm_set_stop(o.comm, o.stop);
    const pl_runner_plan plan = {o.comm ? &led : tb, &spec, run, 1};
    polar_status st = pl_runner_run(&outcome, &plan, 1, &o);
    if (o.comm && st == POLAR_OK) st = pl_lead_end(o.comm);
    train_ranks_overlap(ranks, ctx->log);
    stop_signal_end(&signals);
    run_progress_end(&progress);
    if (st != POLAR_OK || outcome.left) run_progress_outcome(ctx, &outcome, st, "train", argc, argv);
    else if (!outcome.done_here)
        fprintf(ctx->log, "the store '%s' has this run already: nothing to do\n", a->store);
    if (outcome.stopped) ctx->interrupted = 1;
    return st == POLAR_OK && !outcome.left ? print_results(ctx, a, title, run) : st;
}

static polar_status run(cli_context *ctx, int argc, char **argv)
{
    train_args a = {0};
    const pl_testbed *tb = NULL;
    pl_config *config = NULL;
    train_ranks ranks;
    char *cell = NULL;
    PL_TRY(cli_options_parse(&a, options, "train", argc, argv));
    PL_TRY(pl_testbed_find(&tb, a.testbed));
    PL_TRY(run_data_settings(&a.set, &a.pictures, 1, "train"));
    if (a.save) PL_TRY(check_save(a.save));
    pl_plan_run r = {.seed = a.seed};
    polar_status st = train_ranks_begin(&ranks, a.device, a.comm);
    if (*ranks.note && !ranks.rank) fprintf(ctx->log, "%s\n", ranks.note);
    if (st == POLAR_OK) st = configure(&config, tb, &a, &ranks);
    if (st == POLAR_OK) st = pl_config_run_id(r.id, config, a.seed);
    if (st == POLAR_OK) st = cell_name(&cell, config, a.seed);
    if (st == POLAR_OK) {
        r.cell = cell;
        r.arm = pl_config_text(config, PL_ARM_KEY);
        r.config = config;
        if (ranks.rank) st = train_ranks_follow(&ranks, tb, config, (uint64_t)a.seed);
        else st = train(ctx, &a, &ranks, tb, &r, argc, argv);
    }
    pl_free(cell);
    pl_config_destroy(config);
    return train_ranks_end(&ranks, st);
}

const cli_command cli_cmd_train = {
    "train",
    "one run, epoch by epoch",
    "TESTBED [options]",
    options,
    "The run is the same as in a spec of the same keys, and found in the store if it was made there. Ctrl-C "
    "saves and leaves (exit code 130); the\n"
    "same command goes on. With --save a run that was done is made again, for its weights. With --data DIR "
    "the set is called by the folder's last name\n"
    "(data.set), which is a part of the run; where the folder lies is not. Under mpirun or srun the ranks "
    "share the run: each takes some of the parts\n"
    "(train.leaves, 8 unless told) of every batch; the numbers are those of one process with the same "
    "train.leaves.\n",
    "  polar train so3 --rule muon --seed 3\n"
    "  polar train so3 --rule polaradamw --set model.width=32 --set optim.lr=3e-3 --save best.safetensors\n"
    "  polar train deit --rule muon --data imagenet --seed 42\n"
    "  mpirun -n 4 polar train deit --data imagenet\n"
    "  polar train deit --data synth:classes=10,train=400,test=100,size=32 --set model.image=32 --set "
    "model.patch=4 --set model.width=96 --set model.depth=4 --set train.epochs=20\n",
    run,
};
