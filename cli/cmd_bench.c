/* cmd_bench.c -- `polar bench`: how fast, and what share of this machine's peak, measured in the same run. */
#include <stdio.h>
#include <string.h>

#include "base/json_write.h"
#include "cli.h"
#include "lab/bench_maps.h"
#include "report/table.h"

typedef struct {
    const char *what, *device, *map;
    cli_list    sets;
    int64_t     steps;
    int         format;
} bench_args;

static const cli_option options[] = {
    {"WHAT", CLI_ARG(bench_args, what), .def = "maps", .help = "what to time: maps"},
    {"device", CLI_STRING(bench_args, device), .value = "D", .def = "cpu", .help = "where"},
    {"map", CLI_STRING(bench_args, map), .value = "NAME", .def = "ns_bf16_fused", .help = "the polar map, see `polar info`"},
    {"steps", CLI_INT(bench_args, steps, 0, POLAR_MAX_STEPS), .value = "K", .def = "5", .help = "Newton-Schulz steps"},
    {"set", CLI_STRINGS(bench_args, sets), .value = "NAME", .help = "deit, mlp, small, 1024, 2048, 4096, 4096x16384, 8192; may be given again"},
    {"format", CLI_CHOICE(bench_args, format, cli_formats), .value = "F", .def = "text", .help = "of the table"},
    {NULL},
};

static const pl_table_column columns[] = {
    {"what", "what", NULL, PL_CELL_TEXT, 0},        {"seconds", "seconds", NULL, PL_CELL_SCI, 3},
    {"q1", "q1", "quartiles", PL_CELL_SCI, 2},      {"q3", "q3", "quartiles", PL_CELL_SCI, 2},
    {"flops", "FLOPs", NULL, PL_CELL_SCI, 2},       {"bytes", "bytes", NULL, PL_CELL_SCI, 2},
    {"rate", "FLOP/s", NULL, PL_CELL_SCI, 2},       {"peak_share", "of peak", NULL, PL_CELL_FIXED, 3},
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

static polar_status time_sets(cli_context *ctx, pl_table *t, pl_queue *q, const bench_args *a, const polar_map_opts *o)
{
    pl_bench_peak_rates peak;
    pl_bench_row row = {.what = ""};
    fprintf(ctx->log, "%s: measuring the peak\n", polar_device_name(q->dev));
    PL_TRY(pl_bench_peak(&peak, q, o->kind == POLAR_MAP_EXACT ? POLAR_DTYPE_F64 : o->precision));
    snprintf(row.what, sizeof row.what, "peak: product %lld, %s", (long long)peak.side, polar_dtype_name(o->precision));
    row.flops = 2.0 * (double)peak.side * (double)peak.side * (double)peak.side;
    row.seconds = row.q1 = row.q3 = row.flops / peak.flops;
    row.peak_share = 1;
    put_row(t, &row);
    row = (pl_bench_row){.what = "peak: copy", .bytes = peak.bytes, .seconds = 1, .q1 = 1, .q3 = 1};
    put_row(t, &row);
    for (int i = 0; i < a->sets.count; i++) {
        const pl_bench_set *set = set_named(a->sets.items[i]);
        fprintf(ctx->log, "%s: %s\n", a->map, set->summary);
        PL_TRY(pl_bench_map(&row, q, set, o, &peak));
        put_row(t, &row);
    }
    return POLAR_OK;
}

static polar_status bench_maps(cli_context *ctx, const bench_args *a)
{
    polar_map_opts o;
    pl_device *dev = NULL;
    pl_queue *q = NULL;
    pl_table *t = NULL;
    char title[200];
    for (int i = 0; i < a->sets.count; i++)
        PL_NEED(set_named(a->sets.items[i]), POLAR_E_ARG, "no set '%s' (there are: deit, mlp, small, 1024, 2048, 4096, 4096x16384, 8192)", a->sets.items[i]);
    PL_TRY(polar_map_opts_parse(&o, a->map));
    o.steps = (int)a->steps;
    PL_TRY(polar_device_open(&dev, a->device));
    snprintf(title, sizeof title, "%s on %s, %d steps", a->map, polar_device_name(dev), o.steps);
    polar_status st = polar_queue_create(&q, dev, NULL);
    if (st == POLAR_OK) st = pl_table_create(&t, title, columns, (int)(sizeof columns / sizeof *columns));
    if (st == POLAR_OK) st = time_sets(ctx, t, q, a, &o);
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
    PL_NEED(!strcmp(a.what, "maps"), POLAR_E_ARG, "nothing to time under '%s' (there is: maps)", a.what);
    if (!a.sets.count) a.sets = (cli_list){3, {"deit", "mlp", "small"}};
    return bench_maps(ctx, &a);
}

const cli_command cli_cmd_bench = {
    "bench",
    "speed, with the machine's peak beside it",
    "[WHAT] [options]",
    options,
    "Times polar maps over sets of matrices, captured as a graph where the device has graphs: the median and the quartiles of 31 samples of at\n"
    "least 5 ms each. FLOPs are nominal, K (4 m^2 n + 2 m^3) a matrix with short side m; the peak is the fastest of a few large products in the same\n"
    "number format and the same run, and a large copy's bytes per second (read and written).\n",
    "  polar bench maps\n"
    "  polar bench maps --device cuda:0 --set deit --set 4096 --format json\n",
    run,
};
