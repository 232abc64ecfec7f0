/* cmd_bench.c -- `polar bench`: how fast, and what share of this machine's peak, measured in the same run. */
#include <stdio.h>
#include <string.h>

#include "base/json_write.h"
#include "bench_pictures.h"
#include "cli.h"
#include "lab/bench/bench_deit.h"
#include "lab/bench/bench_maps.h"
#include "lab/bench/bench_ops.h"
#include "lab/bench/bench_so3.h"
#include "lab/bench/bench_step.h"
#include "lab/so3/so3_keys.h"
#include "optim/rule_names.h"
#include "report/table/table.h"

typedef struct {
    const char *what, *device, *map, *op;
    cli_list sets, rules, data;
    int64_t steps, scale, width, points, batch, members, size, patch;
    int format, dtype, by_op, moving, no_peak, message, tf32;
} bench_args;

static const char *const dtypes[] = {"f64", "f32", "bf16", NULL}; /* the order of polar_dtype */

static const cli_option options[] = {
    {"WHAT", CLI_ARG(bench_args, what), .def = "maps",
     .help = "what to time: maps, step, so3, deit, ops or input"},
    {"device", CLI_STRING(bench_args, device), .value = "D", .def = "cpu", .help = "where"},
    {"map", CLI_STRING(bench_args, map), .value = "NAME", .def = "ns_bf16_fused",
     .help = "the polar map, see `polar info`"},
    {"steps", CLI_INT(bench_args, steps, 0, POLAR_MAX_STEPS), .value = "K", .def = "5",
     .help = "Newton-Schulz steps"},
    {"set", CLI_STRINGS(bench_args, sets), .value = "NAME",
     .help = "maps: deit, mlp, small, 1024, 1024x12, 1024x12_apart, 1024x4096, 2048, 2048x8192, 4096, "
             "4096x16384, 8192; step: matrices, deit, gpt124m, llama430m, so3, 100m"},
    {"rule", CLI_STRINGS(bench_args, rules), .value = "NAME",
     .help = "step, so3, deit: optimisers, see `polar info`"},
    {"moving", CLI_FLAG(bench_args, moving),
     .help = "step: also whole calls, with gradients that stay and that move every step"},
    {"tf32", CLI_FLAG(bench_args, tf32),
     .help = "step: rules with Kronecker factors also with factors of products in tf32"},
    {"no-peak", CLI_FLAG(bench_args, no_peak),
     .help = "leave out the machine's peak, seconds of measuring: to compare two runs"},
    {"op", CLI_STRING(bench_args, op), .value = "NAME", .help = "ops: only this one"},
    {"scale", CLI_INT(bench_args, scale, 1, 64), .value = "K", .def = "4",
     .help = "ops: sizes of the test's cases times K"},
    {"width", CLI_INT(bench_args, width, 0, 1024), .value = "H", .def = "0",
     .help = "so3: channels; 0: 16 and 64"},
    {"points", CLI_INT(bench_args, points, 0, 4096), .value = "N", .def = "0",
     .help = "so3: points of a cloud; 0: 32 and 64"},
    {"batch", CLI_INT(bench_args, batch, 1, 4096), .value = "B", .def = "32",
     .help = "so3, deit, input: clouds or images of a step"},
    {"members", CLI_INT(bench_args, members, 1, 4096), .value = "E", .def = "1",
     .help = "so3: networks trained side by side"},
    {"message", CLI_CHOICE(bench_args, message, pl_so3_messages), .value = "KIND", .def = "channel",
     .help = "so3: model.message"},
    {"dtype", CLI_CHOICE(bench_args, dtype, dtypes), .value = "T", .def = "bf16",
     .help = "deit: of the activations; bf16 is mixed precision"},
    {"by-op", CLI_FLAG(bench_args, by_op),
     .help = "maps: also without steps, and op by op; so3, deit: forward and backward, op by op"},
    {"data", CLI_STRINGS(bench_args, data), .value = "SET",
     .help = "input: a folder with train/ and val/, or a pack; without one textures are made and packed"},
    {"size", CLI_INT(bench_args, size, 1, 4096), .value = "N", .def = "224",
     .help = "deit, input: pixels a side of the model's pictures"},
    {"patch", CLI_INT(bench_args, patch, 1, 4096), .value = "N", .def = "16",
     .help = "deit, input: pixels a side of a patch"},
    {"members", CLI_INT(bench_args, members, 1, PL_BENCH_MEMBERS), .value = "N", .def = "1",
     .help = "deit: runs trained together, each with its batch"},
    {"format", CLI_CHOICE(bench_args, format, cli_formats), .value = "F", .def = "text",
     .help = "of the table"},
    {0},
};

static const pl_table_column columns[] = {
    {"what", "what", NULL, PL_CELL_TEXT, 0},          {"seconds", "seconds", NULL, PL_CELL_SCI, 3},
    {"q1", "q1", "quartiles", PL_CELL_SCI, 2},        {"q3", "q3", "quartiles", PL_CELL_SCI, 2},
    {"flops", "FLOPs", NULL, PL_CELL_SCI, 2},         {"bytes", "bytes", NULL, PL_CELL_SCI, 2},
    {"rate", "FLOP/s", NULL, PL_CELL_SCI, 2},         {"peak_share", "of peak", NULL, PL_CELL_FIXED, 3},
    {"samples", "samples", NULL, PL_CELL_INTEGER, 0},
};

static const pl_bench_set *set_named(const char *name)
{
    for (int i = 0; pl_bench_set_at(i); i++)
        if (!strcmp(name, pl_bench_set_at(i)->name)) return pl_bench_set_at(i);
    return NULL;
}

static void put_row(pl_table *t, const pl_bench_row *r)
{
    pl_table_row(t);
    pl_table_text(t, r->what);
    pl_table_number(t, r->seconds);
    pl_table_number(t, r->q1);
    pl_table_number(t, r->q3);
    pl_table_number(t, r->flops);
    pl_table_number(t, r->bytes);
    pl_table_number(t, r->seconds > 0 ? r->flops / r->seconds : 0);
    pl_table_number(t, r->peak_share);
    pl_table_integer(t, r->samples);
}

static polar_status put_peak(cli_context *ctx, pl_table *t, pl_queue *q, pl_bench_peak_rates *peak,
                             polar_dtype dtype, const bench_args *a)
{
    pl_bench_row row = {.what = ""};
    *peak = (pl_bench_peak_rates){0};
    if (a->no_peak) return POLAR_OK;
    fprintf(ctx->log, "%s: measuring the peak\n", polar_device_name(q->dev));
    PL_TRY(pl_bench_peak(peak, q, dtype));
    snprintf(row.what, sizeof row.what, "peak: product %lld, %s", (long long)peak->side,
             polar_dtype_name(dtype));
    row.flops = 2.0 * (double)peak->side * (double)peak->side * (double)peak->side;
    row.seconds = row.q1 = row.q3 = row.flops / peak->product;
    row.peak_share = peak->product / peak->flops;
    put_row(t, &row);
    if (peak->flops > peak->product) {
        row = (pl_bench_row){.flops = peak->flops, .seconds = 1, .q1 = 1, .q3 = 1, .peak_share = 1};
        snprintf(row.what, sizeof row.what, "peak: registers, %s", polar_dtype_name(dtype));
        put_row(t, &row);
    }
    row = (pl_bench_row){
        .what = "peak: copy", .bytes = peak->copy_bytes, .seconds = peak->copy_bytes / peak->bytes};
    row.q1 = row.q3 = row.seconds;
    put_row(t, &row);
    return POLAR_OK;
}

#define MOST_OPS 64

/* A map without its steps, which is the norm and what is copied, then its ops. */
static polar_status put_map_parts(pl_table *t, pl_queue *q, const pl_bench_set *set, const polar_map_opts *o,
                                  const pl_bench_peak_rates *peak)
{
    pl_bench_row row = {.what = ""}, ops[MOST_OPS];
    polar_map_opts without = *o;
    int n = 0;
    if (o->kind == POLAR_MAP_NEWTON_SCHULZ) {
        without.steps = 0;
        PL_TRY(pl_bench_map(&row, q, set, &without, peak));
        snprintf(row.what, sizeof row.what, "%s without steps", set->name);
        put_row(t, &row);
    }
    PL_TRY(pl_bench_map_ops(ops, MOST_OPS, &n, q, set, o, peak));
    for (int i = 0; i < n; i++) put_row(t, &ops[i]);
    return POLAR_OK;
}

static polar_status bench_maps(cli_context *ctx, pl_table *t, pl_queue *q, const bench_args *a,
                               const polar_map_opts *o)
{
    pl_bench_peak_rates peak;
    pl_bench_row row = {.what = ""};
    PL_TRY(put_peak(ctx, t, q, &peak, o->kind >= POLAR_MAP_EXACT ? POLAR_DTYPE_F64 : o->precision, a));
    for (int i = 0; i < a->sets.count; i++) {
        const pl_bench_set *set = set_named(a->sets.items[i]);
        fprintf(ctx->log, "%s: %s\n", a->map, set->summary);
        PL_TRY(pl_bench_map(&row, q, set, o, &peak));
        put_row(t, &row);
        if (a->by_op) PL_TRY(put_map_parts(t, q, set, o, &peak));
    }
    return POLAR_OK;
}

static const char *in_tf32(const polar_optim_opts *o)
{
    return o->kron_tf32 ? ", tf32" : "";
}

/* The same step as calls of the library, with gradients that stay and with gradients that move. */
static polar_status put_moving(pl_table *t, pl_queue *q, const char *rule, const char *list,
                               const polar_optim_opts *o)
{
    pl_bench_row row = {.samples = 1};
    double fixed, moving;
    PL_TRY(pl_bench_moving(&fixed, &moving, q, list, o));
    snprintf(row.what, sizeof row.what, "%s, %s%s, calls", rule, list, in_tf32(o));
    row.seconds = row.q1 = row.q3 = fixed;
    put_row(t, &row);
    snprintf(row.what, sizeof row.what, "%s, %s%s, calls, gradients move", rule, list, in_tf32(o));
    row.seconds = row.q1 = row.q3 = moving;
    put_row(t, &row);
    return POLAR_OK;
}

static polar_status put_step(cli_context *ctx, pl_table *t, pl_queue *q, const bench_args *a,
                             const char *rule, const char *list, const polar_optim_opts *o,
                             const pl_bench_peak_rates *peak)
{
    pl_bench_row row = {.what = ""};
    fprintf(ctx->log, "%s: %s%s\n", rule, list, in_tf32(o));
    PL_TRY(pl_bench_step(&row, q, list, o, peak));
    snprintf(row.what, sizeof row.what, "%s, %s%s", rule, list, in_tf32(o));
    put_row(t, &row);
    return a->moving ? put_moving(t, q, rule, list, o) : POLAR_OK;
}

/* Every rule on every list; beside AdamW the loop that moves the same bytes, on devices that are the host. */
static polar_status bench_step(cli_context *ctx, pl_table *t, pl_queue *q, const bench_args *a,
                               const polar_map_opts *map)
{
    pl_bench_peak_rates peak;
    pl_bench_row row = {.what = ""};
    PL_TRY(put_peak(ctx, t, q, &peak, map->precision, a));
    for (int i = 0; i < a->sets.count; i++) {
        const char *list = a->sets.items[i];
        if (!strncmp(polar_device_name(q->dev), "cpu", 3)) {
            PL_TRY(pl_bench_loop(&row, q, pl_bench_list_weights(list)));
            put_row(t, &row);
        }
        for (int k = 0; k < a->rules.count; k++) {
            polar_optim_opts o;
            PL_TRY(polar_optim_opts_parse(&o, a->rules.items[k]));
            if (o.rule.map.kind == POLAR_MAP_NEWTON_SCHULZ) o.rule.map = *map;
            o.matrix_names = "blocks.*";
            o.allow_no_matrix = 1;
            PL_TRY(put_step(ctx, t, q, a, a->rules.items[k], list, &o, &peak));
            o.kron_tf32 = a->tf32 && pl_precondition_kron(o.rule.precondition);
            if (o.kron_tf32) PL_TRY(put_step(ctx, t, q, a, a->rules.items[k], list, &o, &peak));
        }
    }
    return POLAR_OK;
}

/* The larger cases of the tests' list, made larger still. */
static polar_status bench_ops(cli_context *ctx, pl_table *t, pl_queue *q, const bench_args *a,
                              const polar_map_opts *map)
{
    pl_bench_peak_rates peak;
    pl_bench_row row = {.what = ""};
    int timed = 0;
    (void)map;
    PL_TRY(put_peak(ctx, t, q, &peak, POLAR_DTYPE_F32, a));
    pl_op_case c;
    for (int64_t i = 0; pl_op_case_at(&c, i); i++) {
        if (!c.large || (a->op && strcmp(a->op, pl_op_describe(c.op)->name))) continue;
        PL_TRY(pl_bench_op(&row, &c, a->scale, q->dev, &peak));
        put_row(t, &row);
        timed++;
    }
    PL_NEED(timed, POLAR_E_ARG, "no cases of an op '%s' (`polar info` lists the ops)", a->op ? a->op : "");
    return POLAR_OK;
}

static void put_training(pl_table *t, const pl_bench_training_rows *rows)
{
    put_row(t, &rows->forward);
    put_row(t, &rows->gradients);
    put_row(t, &rows->optimiser);
    put_row(t, &rows->step);
}

/* Training steps of SO(3) networks of one shape, part by part; or their ops. */
static polar_status bench_so3_shape(cli_context *ctx, pl_table *t, pl_queue *q, const bench_args *a,
                                    const pl_bench_so3_shape *shape, const pl_bench_peak_rates *peak)
{
    for (int k = 0; k < (a->by_op ? 1 : a->rules.count); k++) {
        pl_bench_training_rows rows = {0};
        pl_bench_row ops[MOST_OPS];
        int n = 0;
        fprintf(ctx->log, "so3: %lld channels, %lld points, %lld members, %s\n", (long long)shape->width,
                (long long)shape->points, (long long)shape->members,
                a->by_op ? "op by op" : a->rules.items[k]);
        if (a->by_op) PL_TRY(pl_bench_so3_ops(ops, MOST_OPS, &n, q, shape, peak));
        else PL_TRY(pl_bench_so3(&rows, q, shape, a->rules.items[k], peak));
        for (int i = 0; i < n; i++) put_row(t, &ops[i]);
        if (!a->by_op) put_training(t, &rows);
    }
    return POLAR_OK;
}

static polar_status bench_so3(cli_context *ctx, pl_table *t, pl_queue *q, const bench_args *a,
                              const polar_map_opts *map)
{
    pl_bench_peak_rates peak;
    static const int64_t widths[] = {16, 64}, points[] = {32, 64};
    (void)map;
    PL_TRY(put_peak(ctx, t, q, &peak, POLAR_DTYPE_F32, a));
    for (int w = 0; w < (a->width ? 1 : 2); w++)
        for (int n = 0; n < (a->points ? 1 : 2); n++) {
            pl_bench_so3_shape shape = {a->width ? a->width : widths[w], a->points ? a->points : points[n],
                                        a->batch, a->members, a->message};
            PL_TRY(bench_so3_shape(ctx, t, q, a, &shape, &peak));
        }
    return POLAR_OK;
}

/* Training steps of DeiT-Tiny on one batch; or its ops. */
static polar_status bench_deit(cli_context *ctx, pl_table *t, pl_queue *q, const bench_args *a,
                               const polar_map_opts *map)
{
    pl_bench_peak_rates peak;
    pl_deit_shape shape = PL_DEIT_TINY;
    PL_NEED(a->size % a->patch == 0, POLAR_E_ARG, "--size %lld is not made of whole patches (--patch %lld)",
            (long long)a->size, (long long)a->patch);
    shape.image = a->size, shape.patch = a->patch, shape.members = a->members;
    (void)map;
    shape.batch = a->batch;
    shape.dtype = (polar_dtype)a->dtype;
    PL_TRY(put_peak(ctx, t, q, &peak, shape.dtype, a));
    if (a->by_op) {
        pl_bench_row rows[MOST_OPS];
        int n = 0;
        fprintf(ctx->log, "deit: op by op\n");
        PL_TRY(pl_bench_deit_ops(rows, MOST_OPS, &n, q, &shape, &peak));
        for (int i = 0; i < n; i++) put_row(t, &rows[i]);
        return POLAR_OK;
    }
    for (int k = 0; k < a->rules.count; k++) {
        pl_bench_training_rows rows = {0};
        fprintf(ctx->log, "deit: %s\n", a->rules.items[k]);
        PL_TRY(pl_bench_deit(&rows, q, &shape, a->rules.items[k], &peak));
        put_training(t, &rows);
    }
    return POLAR_OK;
}

/* Told before a device is opened, so that a command line can be tried where there is no GPU. */
static polar_status check_names(const bench_args *a, int maps, int step)
{
    polar_optim_opts o;
    for (int i = 0; i < a->sets.count; i++) {
        const char *set = a->sets.items[i];
        PL_NEED(!maps || set_named(set), POLAR_E_ARG,
                "no set '%s' (there are: deit, mlp, small, 1024, 1024x12, 1024x12_apart, 1024x4096, 2048, "
                "2048x8192, 4096, 4096x16384, 8192)",
                set);
        PL_NEED(!step || pl_bench_list_weights(set), POLAR_E_ARG,
                "no list of parameters '%s' (there are: matrices, deit, gpt124m, llama430m, so3, 100m)", set);
    }
    for (int i = 0; i < a->rules.count; i++) PL_TRY(polar_optim_opts_parse(&o, a->rules.items[i]));
    return POLAR_OK;
}

typedef polar_status (*bench_fn)(cli_context *ctx, pl_table *t, pl_queue *q, const bench_args *a,
                                 const polar_map_opts *o);

static polar_status bench(cli_context *ctx, const bench_args *a, bench_fn fn)
{
    polar_map_opts o;
    pl_device *dev = NULL;
    pl_queue *q = NULL;
    pl_table *t = NULL;
    char title[200];
    PL_TRY(polar_map_opts_parse(&o, a->map));
    o.steps = (int)a->steps;
    PL_TRY(polar_device_open(&dev, a->device));
    snprintf(title, sizeof title, "%s on %s; maps: %s, %d steps", a->what, polar_device_name(dev), a->map,
             o.steps);
    polar_status st = polar_queue_create(&q, dev, NULL);
    if (st == POLAR_OK) st = pl_table_create(&t, title, columns, (int)(sizeof columns / sizeof *columns));
    if (st == POLAR_OK) st = fn(ctx, t, q, a, &o);
    if (st == POLAR_OK) st = pl_table_print(t, ctx->out, (pl_table_format)a->format);
    pl_table_destroy(t);
    polar_queue_destroy(q);
    polar_device_close(dev);
    return st;
}

static polar_status run(cli_context *ctx, int argc, char **argv)
{
    bench_args a = {0};
    PL_TRY(cli_options_parse(&a, options, "bench", argc, argv));
    if (!strcmp(a.what, "input"))
        return bench_pictures(ctx, &a.data,
                              &(bench_pictures_args){a.device, a.size, a.patch, a.batch, a.format});
    int step = !strcmp(a.what, "step"), ops = !strcmp(a.what, "ops"), so3 = !strcmp(a.what, "so3"),
        deit = !strcmp(a.what, "deit");
    PL_NEED(step || ops || so3 || deit || !strcmp(a.what, "maps"), POLAR_E_ARG,
            "nothing to time under '%s' (there are: maps, step, so3, deit, ops, input)", a.what);
    if (!a.sets.count)
        a.sets = step ? (cli_list){2, {"matrices", "deit"}} : (cli_list){3, {"deit", "mlp", "small"}};
    if (!a.rules.count)
        a.rules =
            so3 || deit ? (cli_list){1, {"polaradamw"}} : (cli_list){3, {"adamw", "muon", "polaradamw"}};
    PL_TRY(check_names(&a, !strcmp(a.what, "maps"), step));
    return bench(ctx, &a,
                 step   ? bench_step
                 : ops  ? bench_ops
                 : so3  ? bench_so3
                 : deit ? bench_deit
                        : bench_maps);
}

const cli_command cli_cmd_bench = {
    "bench",
    "speed, with the machine's peak beside it",
    "[WHAT] [options]",
    options,
    "Times polar maps over sets of matrices, whole optimiser steps over lists of parameters, training steps "
    "of the SO(3) network or of DeiT-Tiny, or the operations of a device, captured as a graph where the "
    "device has graphs: the median and the quartiles of 31 samples of at\n"
    "least 5 ms each (fewer, at least 5, where that would take more than a few seconds). FLOPs are nominal, "
    "K (4 m^2 n + 2 m^3) a matrix with short side m, and those of the definition\n"
    "in the SO(3) network, whose fused messages do with fewer; the peak is a loop of multiply-adds in "
    "registers or the\n"
    "fastest of a few large products, whichever is more, in the same number format and the same run, and a "
    "large copy's bytes per second (read and written).\n"
    "`input` times pictures on their way from files or packs to floats, RandomResizedCrop and the rest, on "
    "one core; with --device those that a device makes, from a set in its memory and batch by batch, beside "
    "DeiT-Tiny's step.\n",
    "  polar bench maps\n"
    "  polar bench step --rule polaradamw --set matrices\n"
    "  polar bench so3 --width 64 --points 32 --device cpu:threads=1\n"
    "  polar bench deit --device cpu:threads=2 --by-op\n"
    "  polar bench input --data imagenet --data imagenet.pack\n"
    "  polar bench input --data imagenet.pack --device cuda:0 --batch 128\n"
    "  polar bench maps --device cuda:0 --set deit --set 4096 --format json\n",
    run,
};
