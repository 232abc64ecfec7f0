/* cmd_info.c -- `polar info`: what this build can do, on this machine. Nothing here is a list of its own
 * where the library has one. */
#include <string.h>

#include "base/lapack.h"
#include "cli.h"
#include "device/backend.h"
#include "polar/polar.h"
#include "report/table/table.h"

#define MAX_BACKENDS 8

typedef struct {
    int format;
} info_args;

static const cli_option options[] = {
    {"format", CLI_CHOICE(info_args, format, cli_formats), .value = "F", .def = "text",
     .help = "csv and tex print the operations only"},
    {0},
};

/* ---- what there is ------------------------------------------------------------------------------ */

/* Whether the device opens; its name in full, or the sentence why not. */
static int try_device(char *out, size_t bytes, const char *name)
{
    polar_device *dev;
    int ok = polar_device_open(&dev, name) == POLAR_OK;
    snprintf(out, bytes, "%s", ok ? polar_device_name(dev) : polar_error_message());
    polar_device_close(dev);
    return ok;
}

/* The i-th instruction set this build knows by name, NULL past the end; *usable: on this machine too. */
static const char *instruction_set(int i, int *usable)
{
    static const char *const names[] = {"scalar", "neon", "avx2", "avx512", "avx512bf16", "amx"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        char name[32];
        polar_device *dev;
        snprintf(name, sizeof name, "cpu:isa=%s", names[k]);
        polar_status st = polar_device_open(&dev, name);
        polar_device_close(dev);
        *usable = st == POLAR_OK;
        if ((st == POLAR_OK || st == POLAR_E_UNSUPPORTED) && i-- == 0) return names[k];
    }
    return NULL;
}

static void dtype_names(char *out, size_t bytes, pl_op_id id)
{
    *out = 0;
    for (int d = 0; d < POLAR_DTYPE_COUNT; d++) {
        if (d == POLAR_DTYPE_F16 && !pl_op_takes_f16(id)) continue;
        size_t used = strlen(out);
        snprintf(out + used, bytes - used, "%s%s", used ? " " : "", polar_dtype_name((polar_dtype)d));
    }
}

/* The different rows of a coefficient table: the last one repeats for ever. */
static int coef_rows(polar_coef rows[POLAR_MAX_STEPS], const char *name)
{
    int n = POLAR_MAX_STEPS;
    if (polar_coef_table(rows, n, name) != POLAR_OK) return 0;
    while (n > 1 && !memcmp(&rows[n - 1], &rows[n - 2], sizeof *rows)) n--;
    return n;
}

/* One row per op, one column per backend: who computes it there. */
static polar_status ops_table(pl_table **out, pl_table_column columns[MAX_BACKENDS + 2])
{
    char dtypes[64];
    int backends = polar_backend_count() < MAX_BACKENDS ? polar_backend_count() : MAX_BACKENDS;
    columns[0] = (pl_table_column){"op", "op", NULL, PL_CELL_TEXT, 0};
    for (int b = 0; b < backends; b++)
        columns[b + 1] =
            (pl_table_column){polar_backend_name(b), polar_backend_name(b), NULL, PL_CELL_TEXT, 0};
    columns[backends + 1] = (pl_table_column){"dtypes", "number formats", NULL, PL_CELL_TEXT, 0};
    PL_TRY(pl_table_create(out, "Operations: own code, or whose (\"-\": none)", columns, backends + 2));
    for (int id = 0; id < PL_OP_COUNT; id++) {
        pl_table_row(*out);
        pl_table_text(*out, pl_op_describe((pl_op_id)id)->name);
        for (int b = 0; b < backends; b++)
            pl_table_text(*out, pl_backend_op_origin(pl_backend_at(b), (pl_op_id)id));
        dtype_names(dtypes, sizeof dtypes, (pl_op_id)id);
        pl_table_text(*out, dtypes);
    }
    return POLAR_OK;
}

/* ---- as text ------------------------------------------------------------------------------------ */

static void print_devices(FILE *f)
{
    char told[1100];
    fprintf(f, "Devices\n");
    for (int b = 0; b < polar_backend_count(); b++) {
        int ok = try_device(told, sizeof told, polar_backend_name(b));
        fprintf(f, "  %-6s %s\n         %s%s\n", polar_backend_name(b), polar_backend_summary(b),
                ok ? "opens as " : "does not open: ", told);
    }
}

static void print_instruction_sets(FILE *f)
{
    int usable;
    const char *name;
    fprintf(f, "\nInstruction sets of cpu (--device cpu:isa=NAME, or POLAR_ISA=NAME)\n");
    for (int i = 0; (name = instruction_set(i, &usable)); i++)
        fprintf(f, "  %-11s %s\n", name, usable ? "usable" : "not on this machine or not in this build");
}

static void print_maps(FILE *f)
{
    polar_coef c[POLAR_MAX_STEPS];
    fprintf(f, "\nRules\n ");
    for (int i = 0; polar_rule_name(i); i++) fprintf(f, " %s", polar_rule_name(i));
    fprintf(f, "\n\nPolar maps\n ");
    for (int i = 0; cli_map_names[i]; i++) fprintf(f, " %s", cli_map_names[i]);
    fprintf(f, "\n\nCoefficient tables: X <- a X + (b A + c A A) X, A = X X^T; the last row repeats\n");
    for (int t = 0; polar_coef_table_name(t); t++)
        for (int s = 0, n = coef_rows(c, polar_coef_table_name(t)); s < n; s++)
            fprintf(f, "  %-14s %10.6f %11.6f %10.6f\n", s ? "" : polar_coef_table_name(t), c[s].a, c[s].b,
                    c[s].c);
}

/* "3.9.0", or "none". */
static void lapack_version(char out[48])
{
    int v[3];
    if (pl_lapack_version(v) == POLAR_OK) snprintf(out, 48, "%d.%d.%d", v[0], v[1], v[2]);
    else snprintf(out, 48, "none");
}

static polar_status print_text(FILE *f, const pl_table *ops)
{
    char lapack[48];
    lapack_version(lapack);
    fprintf(f, "polar %s\n\n", polar_version());
    print_devices(f);
    print_instruction_sets(f);
    fprintf(f, "\n");
    PL_TRY(pl_table_print(ops, f, PL_TABLE_TEXT));
    print_maps(f);
    fprintf(f, "\n%d processors; LAPACK %s\n", (int)pl_processor_count(), lapack);
    return POLAR_OK;
}

/* ---- as JSON ------------------------------------------------------------------------------------ */

static void json_devices(pl_json_writer *w)
{
    char told[1100];
    pl_json_key(w, "devices");
    pl_json_array(w);
    for (int b = 0; b < polar_backend_count(); b++) {
        int ok = try_device(told, sizeof told, polar_backend_name(b));
        pl_json_object(w);
        pl_json_key(w, "name"), pl_json_string(w, polar_backend_name(b));
        pl_json_key(w, "summary"), pl_json_string(w, polar_backend_summary(b));
        pl_json_key(w, "opens"), pl_json_bool(w, ok);
        pl_json_key(w, ok ? "full_name" : "error"), pl_json_string(w, told);
        pl_json_object_end(w);
    }
    pl_json_array_end(w);
}

static void json_instruction_sets(pl_json_writer *w)
{
    int usable;
    const char *name;
    pl_json_key(w, "instruction_sets");
    pl_json_array(w);
    for (int i = 0; (name = instruction_set(i, &usable)); i++) {
        pl_json_object(w);
        pl_json_key(w, "name"), pl_json_string(w, name);
        pl_json_key(w, "usable"), pl_json_bool(w, usable);
        pl_json_object_end(w);
    }
    pl_json_array_end(w);
}

static void json_maps(pl_json_writer *w)
{
    polar_coef c[POLAR_MAX_STEPS];
    pl_json_key(w, "rules");
    pl_json_array(w);
    for (int i = 0; polar_rule_name(i); i++) pl_json_string(w, polar_rule_name(i));
    pl_json_array_end(w);
    pl_json_key(w, "maps");
    pl_json_array(w);
    for (int i = 0; cli_map_names[i]; i++) pl_json_string(w, cli_map_names[i]);
    pl_json_array_end(w);
    pl_json_key(w, "coefficient_tables");
    pl_json_object(w);
    for (int t = 0; polar_coef_table_name(t); t++) {
        pl_json_key(w, polar_coef_table_name(t));
        pl_json_array(w);
        for (int s = 0, n = coef_rows(c, polar_coef_table_name(t)); s < n; s++) {
            pl_json_array(w);
            pl_json_number(w, c[s].a), pl_json_number(w, c[s].b), pl_json_number(w, c[s].c);
            pl_json_array_end(w);
        }
        pl_json_array_end(w);
    }
    pl_json_object_end(w);
}

static polar_status print_json(FILE *f, const pl_table *ops)
{
    char lapack[48];
    lapack_version(lapack);
    pl_json_writer w = pl_json_writer_begin(f, 2);
    pl_json_object(&w);
    pl_json_key(&w, "version"), pl_json_string(&w, polar_version());
    json_devices(&w);
    json_instruction_sets(&w);
    pl_json_key(&w, "ops");
    PL_TRY(pl_table_json(ops, &w));
    json_maps(&w);
    pl_json_key(&w, "threads"), pl_json_integer(&w, pl_processor_count());
    pl_json_key(&w, "lapack"), pl_json_string(&w, lapack);
    pl_json_object_end(&w);
    return pl_json_writer_end(&w);
}

static polar_status run(cli_context *ctx, int argc, char **argv)
{
    info_args a = {0};
    pl_table *ops = NULL;
    pl_table_column columns[MAX_BACKENDS + 2];
    PL_TRY(cli_options_parse(&a, options, "info", argc, argv));
    PL_TRY(ops_table(&ops, columns));
    polar_status st = a.format == PL_TABLE_TEXT   ? print_text(ctx->out, ops)
                      : a.format == PL_TABLE_JSON ? print_json(ctx->out, ops)
                                                  : pl_table_print(ops, ctx->out, (pl_table_format)a.format);
    pl_table_destroy(ops);
    return st;
}

const cli_command cli_cmd_info = {
    .name = "info",
    .summary = "what this build can do: devices, instruction sets, operations, maps",
    .usage = "[options]",
    .options = options,
    .about =
        "Opens every device of this build and says under which full name, or why it does not open; lists "
        "the\n"
        "instruction sets usable here, who computes each operation on each device, the polar maps and the\n"
        "coefficient tables of Newton-Schulz.\n",
    .examples = "  polar info\n"
                "  polar info --format json\n",
    .run = run,
};
