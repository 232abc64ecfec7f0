/* cmd_plan.c -- `polar plan SPEC [SPEC ...]`: the runs of a spec, what is done already, and what the rest
 * costs; nothing is run or written.
 *
 * One line per cell and arm. Costs come from a dry run of the testbed on the chosen device; what is done from
 * the store, when there is one. Of several specs text and TeX have a table each, CSV and JSON one with the
 * column `spec` in front; in the sum of all a run counts once.
 */
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cli.h"
#include "lab/spec/plan.h"
#include "lab/run/run_rate.h"
#include "report/table/table.h"
#include "run_data.h"
#include "sound_store.h"
#include "spec_list.h"

#define DEFAULT_STORE "polar.db"

typedef struct plan_args {
    const char *keys, *store, *device;
    cli_list specs, set;
    run_data pictures;
    int format, runs, routes, time;
} plan_args;

static const cli_option options[] = {
    {"SPEC", CLI_ARGS(plan_args, specs), .help = "spec files, as under specs/"},
    RUN_DATA_OPTIONS(plan_args, pictures),
    {"set", CLI_STRINGS(plan_args, set), .value = "KEY=VALUE",
     .help = "seeds=0..7, arms=muon,adamw, model.width=16,32, or any key of the runs"},
    {"store", CLI_STRING(plan_args, store), .value = "FILE",
     .help = "where finished runs are looked up (default " DEFAULT_STORE ", if it is there)"},
    {"device", CLI_STRING(plan_args, device), .value = "NAME", .def = "cpu",
     .help = "whose operations are counted, and with --time timed"},
    {"time", CLI_FLAG(plan_args, time),
     .help = "also how long a run takes on this device: trains the smallest and the largest line for a few "
             "steps on made-up data (seconds to a minute)"},
    {"format", CLI_CHOICE(plan_args, format, cli_formats), .value = "F", .def = "text",
     .help = "of the table"},
    {"runs", CLI_FLAG(plan_args, runs), .help = "one line per run, with its id, instead"},
    {"routes", CLI_FLAG(plan_args, routes), .help = "also which parameters each arm sends to which route"},
    {"keys", CLI_STRING(plan_args, keys), .value = "TESTBED",
     .help = "list the keys a run of this testbed has, and nothing else"},
    {0},
};

typedef struct plan_total {
    double flops, bytes, seconds; /* of what is left; seconds by finished runs */
    double timed;                 /* seconds of what is left, by --time */
    int64_t left, untimed, finished;
    size_t memory;
    int may_stop;     /* some run, before its last epoch */
    const char *note; /* of the estimates; or NULL */
} plan_total;

typedef struct plan_job {
    const plan_args *a;
    cli_context *ctx;
    spec_list specs;
    pl_store *store; /* or NULL */
    polar_device *dev;
    pl_plan_run *runs; /* of all plans one after the other, `first` among all of them */
    int64_t run_count, distinct;
    plan_total all; /* specs */
    /* the spec at hand */
    const pl_spec *spec;
    const pl_plan *plan;
    const pl_testbed *tb;
    int64_t begin; /* of its runs, in `runs` */
    pl_table *table;
    pl_table_column columns[17]; /* the table's, which borrows them */
    char title[512];
    pl_run_state *states; /* of every run of `runs` */
    double *walls;
    pl_run_rate small, large; /* with --time */
} plan_job;

/* ---- tables ------------------------------------------------------------------------------------- */

static int several(const plan_job *j)
{
    return j->specs.count > 1;
}

/* Rows of all specs in one table, which say whose they are. */
static int named(const plan_job *j)
{
    return several(j) && (j->a->format == PL_TABLE_CSV || j->a->format == PL_TABLE_JSON);
}

/* The spec's table, or that of all. */
static polar_status begin_table(plan_job *j, const pl_table_column *columns, int n)
{
    int own = 0;
    if (j->table) return POLAR_OK;
    if (named(j)) j->columns[own++] = (pl_table_column){"spec", "spec", NULL, PL_CELL_TEXT, 0};
    memcpy(j->columns + own, columns, (size_t)n * sizeof *columns);
    if (several(j)) snprintf(j->title, sizeof j->title, "%s: %s", j->spec->name, j->spec->title);
    else snprintf(j->title, sizeof j->title, "%s", j->spec->title);
    return pl_table_create(&j->table, j->title, j->columns, n + own);
}

static void begin_row(const plan_job *j)
{
    pl_table_row(j->table);
    if (named(j)) pl_table_text(j->table, j->spec->name);
}

static polar_status print_table(plan_job *j)
{
    polar_status st = pl_table_print(j->table, j->ctx->out, (pl_table_format)j->a->format);
    pl_table_destroy(j->table);
    j->table = NULL;
    return st;
}

/* ---- keys --------------------------------------------------------------------------------------- */

static polar_status print_keys(cli_context *ctx, const plan_args *a)
{
    static const pl_table_column columns[] = {
        {"key", "key", NULL, PL_CELL_TEXT, 0},         {"type", "type", NULL, PL_CELL_TEXT, 0},
        {"default", "default", NULL, PL_CELL_TEXT, 0}, {"takes", "takes", NULL, PL_CELL_TEXT, 0},
        {"help", "what it is", NULL, PL_CELL_TEXT, 0},
    };
    const pl_testbed *tb;
    pl_table *t;
    char range[PL_WHY_CHARS];
    PL_TRY(pl_testbed_find(&tb, a->keys));
    PL_TRY(pl_table_create(&t, "Keys of a run", columns, 5));
    for (int i = 0; i < tb->schema->key_count; i++) {
        const pl_key *k = &tb->schema->keys[i];
        pl_key_range(range, k);
        pl_table_row(t);
        pl_table_text(t, k->name);
        pl_table_text(t, pl_key_type_name(k->type));
        pl_table_text(t, k->def);
        pl_table_text(t, range);
        pl_table_text(t, k->help);
    }
    polar_status st = pl_table_print(t, ctx->out, (pl_table_format)a->format);
    pl_table_destroy(t);
    return st;
}

/* ---- what is done ------------------------------------------------------------------------------- */

static polar_status join_plans(plan_job *j)
{
    const spec_list *l = &j->specs;
    int64_t n = 0;
    for (int k = 0; k < l->count; k++) n += l->plans[k]->count;
    j->runs = pl_calloc((size_t)n, sizeof *j->runs);
    PL_NEED(j->runs, POLAR_E_NOMEM, "a list of %lld runs", (long long)n);
    for (int k = 0; k < l->count; j->run_count += l->plans[k++]->count)
        memcpy(j->runs + j->run_count, l->plans[k]->runs, (size_t)l->plans[k]->count * sizeof *j->runs);
    return pl_plan_find_first(j->runs, n, &j->distinct);
}

static polar_status look_up_runs(plan_job *j)
{
    const char *path = j->a->store ? j->a->store : DEFAULT_STORE;
    j->states = pl_calloc((size_t)j->run_count, sizeof *j->states);
    j->walls = pl_calloc((size_t)j->run_count, sizeof *j->walls);
    PL_NEED(j->states && j->walls, POLAR_E_NOMEM, "the states of %lld runs", (long long)j->run_count);
    if (!j->a->store && access(path, F_OK) != 0) return POLAR_OK;
    PL_TRY(sound_store_open(&j->store, j->ctx, path));
    for (int64_t i = 0; i < j->run_count; i++) {
        polar_status st = pl_store_run_state(j->store, j->runs[i].id, &j->states[i], &j->walls[i]);
        /* a run it has never heard of */
        if (st == POLAR_E_ARG) j->states[i] = PL_RUN_PLANNED, j->walls[i] = 0;
        else PL_TRY(st);
    }
    return POLAR_OK;
}

/* ---- one line per run --------------------------------------------------------------------------- */

static polar_status list_runs(plan_job *j)
{
    static const pl_table_column columns[] = {
        {"id", "id", NULL, PL_CELL_TEXT, 0},       {"cell", "cell", NULL, PL_CELL_TEXT, 0},
        {"arm", "arm", NULL, PL_CELL_TEXT, 0},     {"seed", "seed", NULL, PL_CELL_INTEGER, 0},
        {"state", "state", NULL, PL_CELL_TEXT, 0},
    };
    PL_TRY(begin_table(j, columns, j->store ? 5 : 4));
    for (int64_t i = 0; i < j->plan->count; i++) {
        const pl_plan_run *r = &j->plan->runs[i];
        begin_row(j);
        pl_table_text(j->table, r->id);
        pl_table_text(j->table, r->cell);
        pl_table_text(j->table, r->arm);
        pl_table_integer(j->table, r->seed);
        if (j->store) pl_table_text(j->table, pl_run_state_name(j->states[j->begin + i]));
    }
    return named(j) ? POLAR_OK : print_table(j);
}

/* ---- one line per cell and arm ------------------------------------------------------------------ */

typedef struct line_sum {
    int64_t runs, finished, diverged;
    int64_t left;  /* not finished, and in no line above */
    int64_t fresh; /* of these, and in no spec before */
    int64_t timed; /* finished ones with a time: tables that were imported may have none */
    double wall;   /* of these */
} line_sum;

static line_sum sum_line(const plan_job *j, int cell, int arm)
{
    line_sum s = {0};
    for (int64_t i = 0; i < j->plan->count; i++) {
        const pl_plan_run *r = &j->plan->runs[i];
        int64_t k = j->begin + i;
        if (r->cell_index != cell || r->arm_index != arm) continue;
        s.runs++;
        s.diverged += j->states[k] == PL_RUN_DIVERGED;
        if (j->states[k] == PL_RUN_PLANNED) {
            s.left += r->first == i;
            s.fresh += j->runs[k].first == k;
            continue;
        }
        s.finished++;
        s.timed += j->walls[k] > 0;
        s.wall += j->walls[k];
    }
    return s;
}

/* In units people read: 90 s, 12 min, 3.1 h. */
static const char *print_time(char out[32], double seconds)
{
    if (seconds < 120) snprintf(out, 32, "%.0f s", seconds);
    else if (seconds < 7200) snprintf(out, 32, "%.0f min", seconds / 60);
    else snprintf(out, 32, "%.1f h", seconds / 3600);
    return out;
}

/* What `left` runs of a line add to it. */
static void add_total(plan_total *sum, const line_sum *s, int64_t left, const pl_estimate *e, double seconds)
{
    if (e->note) sum->note = e->note;
    sum->may_stop |= e->may_stop;
    sum->left += left;
    sum->finished += s->finished;
    sum->timed += (double)left * seconds;
    sum->flops += (double)left * e->flops;
    sum->bytes += (double)left * e->bytes;
    if (s->timed) sum->seconds += (double)left * s->wall / (double)s->timed;
    else sum->untimed += left;
    if (e->memory > sum->memory) sum->memory = e->memory;
}

static void add_line(plan_job *j, int cell, int arm, const pl_estimate *e, plan_total *sum)
{
    line_sum s = sum_line(j, cell, arm);
    pl_table *t = j->table;
    begin_row(j);
    pl_table_text(t, j->plan->cells[cell]);
    pl_table_text(t, j->spec->arms[arm].name);
    pl_table_integer(t, s.runs);
    pl_table_number(t, (e->pass.flops + e->step.flops) / 1e6);
    pl_table_number(t, e->step.flops / 1e6);
    pl_table_number(t, (e->pass.bytes + e->step.bytes) / 1e6);
    pl_table_integer(t, e->epochs * e->steps);
    pl_table_number(t, e->flops / 1e9);
    pl_table_number(t, e->bytes / 1e9);
    pl_table_integer(t, e->matrix_weights);
    pl_table_integer(t, e->aux_weights);
    double seconds = j->a->time ? e->flops / pl_run_rate_between(&j->small, &j->large, pl_step_flops(e)) : 0;
    if (j->a->time) pl_table_number(t, seconds / 60);
    if (j->store) {
        pl_table_integer(t, s.finished);
        pl_table_integer(t, s.diverged);
        if (s.timed) pl_table_number(t, s.wall / (double)s.timed);
        else pl_table_none(t);
    }
    add_total(sum, &s, s.left, e, seconds);
    add_total(&j->all, &s, s.fresh, e, seconds);
}

static void hint_time(const plan_job *j, const plan_total *sum)
{
    if (!j->a->time && sum->left)
        fprintf(j->ctx->out, "(--time measures how long that takes on this device.)\n");
}

static void print_total(const plan_job *j, const plan_total *sum)
{
    FILE *out = j->ctx->out;
    char time[32];
    const pl_plan *p = j->plan;
    long long cells = p->cell_count, seeds = j->spec->seed_count, arms = j->spec->arm_count;
    fprintf(out, "\n%lld cell%s x %lld seed%s x %lld arm%s = %lld runs", cells, cells == 1 ? "" : "s", seeds,
            seeds == 1 ? "" : "s", arms, arms == 1 ? "" : "s", (long long)p->count);
    if (p->distinct < p->count) fprintf(out, ", %lld of them distinct", (long long)p->distinct);
    if (j->store) fprintf(out, "; %lld finished in %s", (long long)sum->finished, pl_store_path(j->store));
    fprintf(out, ".\nLeft: %lld runs, %s%.3g TFLOP and %.3g TB moved%s; %.3g MB per run.\n",
            (long long)sum->left, sum->may_stop ? "at most " : "", sum->flops / 1e12, sum->bytes / 1e12,
            sum->may_stop ? " if none stops early" : "", (double)sum->memory / 1e6);
    if (!several(j)) hint_time(j, sum);
    if (sum->note) fprintf(out, "Note: %s.\n", sum->note);
    if (j->a->time && sum->left)
        fprintf(out,
                "About %s for one job alone on %s%s, by a few steps of the smallest and the largest line "
                "(%.3g and %.3g GFLOP/s).\n",
                print_time(time, sum->timed), j->a->device, sum->may_stop ? ", if none stops early" : "",
                j->small.rate / 1e9, j->large.rate / 1e9);
    if (j->store && sum->left && !sum->untimed)
        fprintf(out, "About %s for one job, by the times of finished runs.\n",
                print_time(time, sum->seconds));
}

/* Of the first cell's arms. */
static polar_status print_routes(const plan_job *j, const pl_estimate *all)
{
    for (int a = 0; a < j->spec->arm_count; a++) {
        int same = 0; /* the same table as an earlier arm's */
        while (same < a && strcmp(all[same].routes, all[a].routes)) same++;
        if (same < a)
            fprintf(j->ctx->out, "\nRoutes of %s: as those of %s.\n", j->spec->arms[a].name,
                    j->spec->arms[same].name);
        else
            fprintf(j->ctx->out, "\nRoutes of %s in cell %s:\n%s", j->spec->arms[a].name, j->plan->cells[0],
                    all[a].routes);
    }
    return POLAR_OK;
}

static const pl_config *config_of(const plan_job *j, int cell, int arm)
{
    return j->plan->configs[cell * j->spec->arm_count + arm];
}

/* The lines whose step has the fewest and the most FLOPs, trained for a moment. */
static polar_status time_lines(plan_job *j, const pl_estimate *all)
{
    int n = j->plan->cell_count * j->spec->arm_count, least = 0, most = 0;
    for (int i = 1; i < n; i++) {
        if (pl_step_flops(&all[i]) < pl_step_flops(&all[least])) least = i;
        if (pl_step_flops(&all[i]) > pl_step_flops(&all[most])) most = i;
    }
    fprintf(j->ctx->log, "plan: timing %s, %s\n", j->plan->cells[least / j->spec->arm_count],
            j->spec->arms[least % j->spec->arm_count].name);
    PL_TRY(pl_run_rate_measure(&j->small, j->tb, j->dev, j->plan->configs[least]));
    j->large = j->small;
    if (most == least) return POLAR_OK;
    fprintf(j->ctx->log, "plan: timing %s, %s\n", j->plan->cells[most / j->spec->arm_count],
            j->spec->arms[most % j->spec->arm_count].name);
    return pl_run_rate_measure(&j->large, j->tb, j->dev, j->plan->configs[most]);
}

static polar_status make_table(plan_job *j)
{
    static const pl_table_column counts[] = {
        {"cell", "cell", NULL, PL_CELL_TEXT, 0},
        {"arm", "arm", NULL, PL_CELL_TEXT, 0},
        {"runs", "runs", NULL, PL_CELL_INTEGER, 0},
        {"step_mflop", "MFLOP", "a step", PL_CELL_FIXED, 1},
        {"optim_mflop", "optim.", "a step", PL_CELL_FIXED, 2},
        {"step_mb", "MB", "a step", PL_CELL_FIXED, 1},
        {"steps", "steps", "a run", PL_CELL_INTEGER, 0},
        {"run_gflop", "GFLOP", "a run", PL_CELL_FIXED, 1},
        {"run_gb", "GB", "a run", PL_CELL_FIXED, 1},
        {"matrix_weights", "matrix", "weights", PL_CELL_INTEGER, 0},
        {"aux_weights", "aux", "weights", PL_CELL_INTEGER, 0},
    };
    static const pl_table_column finished[] = {
        {"finished", "runs", "finished", PL_CELL_INTEGER, 0},
        {"diverged", "diverged", "finished", PL_CELL_INTEGER, 0},
        {"wall", "mean s", "finished", PL_CELL_FIXED, 1},
    };
    pl_table_column columns[16];
    int n = (int)(sizeof counts / sizeof *counts);
    memcpy(columns, counts, sizeof counts);
    if (j->a->time) columns[n++] = (pl_table_column){"run_minutes", "a run", "minutes", PL_CELL_FIXED, 1};
    for (int i = 0; j->store && i < 3; i++) columns[n++] = finished[i];
    return begin_table(j, columns, n);
}

static polar_status fill_cells(plan_job *j, pl_estimate *all, int *made)
{
    plan_total sum = {0};
    int arms = j->spec->arm_count, n = j->plan->cell_count * arms;
    for (; *made < n; ++*made)
        PL_TRY(j->tb->estimate(&all[*made], j->dev, config_of(j, *made / arms, *made % arms)));
    if (j->a->time) PL_TRY(time_lines(j, all));
    PL_TRY(make_table(j));
    for (int i = 0; i < n; i++) add_line(j, i / arms, i % arms, &all[i], &sum);
    if (named(j)) return POLAR_OK;
    PL_TRY(print_table(j));
    if (j->a->format != PL_TABLE_TEXT) return POLAR_OK;
    print_total(j, &sum);
    return j->a->routes ? print_routes(j, all) : POLAR_OK;
}

static polar_status list_cells(plan_job *j)
{
    int made = 0;
    PL_NEED(j->tb->estimate, POLAR_E_UNSUPPORTED, "testbed %s cannot tell what a run costs: try --runs",
            j->spec->schema.name);
    if (!j->dev) PL_TRY(polar_device_open(&j->dev, j->a->device));
    pl_estimate *all = pl_calloc((size_t)j->plan->cell_count * (size_t)j->spec->arm_count, sizeof *all);
    PL_NEED(all, POLAR_E_NOMEM, "the estimates of %d cells", j->plan->cell_count);
    polar_status st = fill_cells(j, all, &made);
    for (int i = 0; i < made; i++) pl_free(all[i].routes);
    pl_free(all);
    return st;
}

/* ---- the command -------------------------------------------------------------------------------- */

/* Below the tables of several specs. */
static void print_all(const plan_job *j)
{
    FILE *out = j->ctx->out;
    char time[32];
    const plan_total *sum = &j->all;
    fprintf(out, "\nIn all: %d specs, %lld distinct runs. Left: %lld runs, %s%.3g TFLOP and %.3g TB moved.\n",
            j->specs.count, (long long)j->distinct, (long long)sum->left, sum->may_stop ? "at most " : "",
            sum->flops / 1e12, sum->bytes / 1e12);
    hint_time(j, sum);
    if (j->a->time && sum->left)
        fprintf(out, "About %s for one job alone on %s%s.\n", print_time(time, sum->timed), j->a->device,
                sum->may_stop ? ", if none stops early" : "");
}

static polar_status work(plan_job *j)
{
    const spec_list *l = &j->specs;
    PL_TRY(spec_list_read(&j->specs, &j->a->specs, &j->a->set, "plan"));
    PL_TRY(join_plans(j));
    PL_TRY(look_up_runs(j));
    for (int k = 0; k < l->count; j->begin += l->plans[k++]->count) {
        j->spec = l->specs[k];
        j->plan = l->plans[k];
        j->tb = l->testbeds[k];
        if (k && !named(j)) fputc('\n', j->ctx->out);
        PL_TRY(j->a->runs ? list_runs(j) : list_cells(j));
    }
    if (named(j)) return print_table(j);
    if (several(j) && !j->a->runs && j->a->format == PL_TABLE_TEXT) print_all(j);
    return POLAR_OK;
}

static polar_status run(cli_context *ctx, int argc, char **argv)
{
    plan_args a = {0};
    PL_TRY(cli_options_parse(&a, options, "plan", argc, argv));
    if (a.keys) {
        PL_NEED(!a.specs.count, POLAR_E_ARG, "plan: --keys lists the keys of a testbed; it wants no SPEC");
        return print_keys(ctx, &a);
    }
    PL_TRY(run_data_settings(&a.set, &a.pictures, 0, "plan"));
    plan_job j = {.a = &a, .ctx = ctx};
    polar_status st = work(&j);
    pl_table_destroy(j.table);
    polar_device_close(j.dev);
    pl_store_close(j.store);
    pl_free(j.states);
    pl_free(j.walls);
    pl_free(j.runs);
    spec_list_free(&j.specs);
    return st;
}

const cli_command cli_cmd_plan = {
    .name = "plan",
    .summary = "show the runs of a spec, or of several, what is done and what the rest costs",
    .usage = "SPEC.. [options] | --keys TESTBED",
    .options = options,
    .about =
        "Reads and checks a spec (docs/specs.md) and lists its runs by cell and arm: how many, what a "
        "step and a run\n"
        "cost by a dry run (operations as the device counts them; a run at its full number of epochs), "
        "how many weights take\n"
        "which route, and with a store how many runs are finished. Nothing is computed and nothing is "
        "written.\n"
        "Of several specs it ends with what is left of all, runs that two of them have counted once.\n"
        "--time trains the lines with the cheapest and the dearest step for a few steps on made-up data, "
        "on --device, and takes the\n"
        "FLOPs of the others at a rate between theirs: minutes a run and hours in all, for one job that "
        "has the device alone.\n",
    .examples = "  polar plan specs/paper/so3_capacity.yaml\n"
                "  polar plan specs/open/so3_schur_only.yaml --set seeds=0..7 --set model.width=16 --routes\n"
                "  polar plan specs/paper/so3_lr_sweep.yaml specs/open/so3_rates.yaml\n"
                "  polar plan specs/demo/so3_small.yaml --runs --format csv\n"
                "  polar plan specs/paper/deit_minimal_100ep.yaml --data imagenet\n"
                "  polar plan specs/paper/so3_capacity.yaml --time --device cpu:threads=2\n"
                "  polar plan --keys so3\n",
    .run = run,
};
