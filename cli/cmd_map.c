/* cmd_map.c -- `polar map IN OUT`: a polar map over the matrices of a safetensors file.
 *
 * Order of work: options, the target's folder, all of IN read and looked through for NaN and infinities; only
 * then the device, one tensor after the other (a result does not depend on its batch mates), and last the
 * file in one rename. Whatever fails, OUT is as it was.
 */
#include <errno.h>
#include <fnmatch.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/json_read.h"
#include "base/safetensors.h"
#include "base/whole_file.h"
#include "cli.h"
#include "cli_line.h"
#include "device/mat.h"
#include "map_table.h"
#include "polar/polar.h"

#define META_KEY "polar.map"

typedef struct {
    const char *in, *out, *precision, *table, *device, *dtype;
    int map, flatten, verbose, format;
    int64_t steps; /* -1: the map's */
    double power;  /* NaN: the map's */
    cli_list only;
} map_args;

static const cli_option options[] = {
    {"IN", CLI_ARG(map_args, in), .help = "a safetensors file"},
    {"OUT", CLI_ARG(map_args, out), .help = "where the result goes; may be IN itself"},
    {"map", CLI_CHOICE(map_args, map, cli_map_names), .value = "NAME", .def = "ns_bf16_fused",
     .help = "the polar map"},
    {"steps", CLI_INT(map_args, steps, 0, POLAR_MAX_STEPS), .value = "K",
     .help = "Newton-Schulz steps (default 5)"},
    {"table", CLI_STRING(map_args, table), .value = "NAME",
     .help = "Newton-Schulz coefficients, see `polar info` (default jordan)"},
    {"precision", CLI_STRING(map_args, precision), .value = "T",
     .help = "f64, f32, bf16 or f16 inside Newton-Schulz (default: what the map's name says)"},
    {"power", CLI_DOUBLE(map_args, power, -1, 1e6), .value = "P",
     .help =
         "of --map power: the exponent of singular values, -1 to 1 (default 0.5); of soft: t (default 1)"},
    {"device", CLI_STRING(map_args, device), .value = "D", .def = "cpu",
     .help = "where to compute, see `polar info`"},
    {"only", CLI_STRINGS(map_args, only), .value = "PATTERN",
     .help = "only tensors whose name matches, * and ? as in a shell"},
    {"flatten", CLI_FLAG(map_args, flatten),
     .help = "tensors of four and more dimensions too, as (first, product of the rest)"},
    {"dtype", CLI_STRING(map_args, dtype), .value = "T",
     .help = "f64, f32 or bf16 for the mapped tensors in OUT (default: as in IN)"},
    {"verbose", CLI_FLAG(map_args, verbose),
     .help = "a table of the mapped tensors: norms, singular values of the result"},
    {"format", CLI_CHOICE(map_args, format, cli_formats), .value = "F", .def = "text",
     .help = "of that table"},
    {0},
};

typedef struct {
    const map_args *a;
    polar_map_opts opts;
    pl_safetensors *file;
    pl_safetensors_entry *entries; /* of OUT */
    pl_safetensors_meta *meta;     /* of OUT */
    /* tensors, pairs, matrices counted singly, tensors mapped */
    int64_t n, n_meta, matrices, mapped;
    int64_t foreign; /* matrices in F16, F8_E4M3, ... */
    char *results;   /* host memory of all mapped tensors */
    char told[160];  /* the value under META_KEY */
    polar_device *dev;
    polar_queue *q;
    void *dev_in, *dev_out;
    pl_table *table;
} job;

/* ---- which tensors, and whether they can be mapped ---------------------------------------------- */

static int wanted(const map_args *a, const char *name)
{
    for (int i = 0; i < a->only.count; i++)
        if (!fnmatch(a->only.items[i], name, 0)) return 1;
    return a->only.count == 0;
}

/* The tensor as one matrix or a batch of them, over its bytes in the file; 0 if it passes untouched. */
static int as_matrices(polar_tensor *out, const pl_safetensors_entry *e, const map_args *a)
{
    void *data = (void *)e->data; /* only read */
    if (e->dtype < 0 || !wanted(a, e->name)) return 0;
    if (e->ndim == 2) *out = polar_tensor_2d(data, (polar_dtype)e->dtype, e->shape[0], e->shape[1]);
    else if (e->ndim == 3)
        *out = polar_tensor_3d(data, (polar_dtype)e->dtype, e->shape[0], e->shape[1], e->shape[2]);
    else if (e->ndim >= 4 && a->flatten) {
        int64_t rest = e->bytes ? 1 : 0;
        /* fits: the reader checked the product */
        for (int d = 1; d < e->ndim && rest; d++) rest *= e->shape[d];
        *out = polar_tensor_2d(data, (polar_dtype)e->dtype, e->shape[0], rest);
    } else return 0;
    return 1;
}

static int64_t elements(const pl_safetensors_entry *e)
{
    return e->bytes / (int64_t)polar_dtype_size((polar_dtype)e->dtype);
}

/* "[3, 17]": element i of the tensor. */
static void print_index(char *out, size_t bytes, const pl_safetensors_entry *e, int64_t i)
{
    int64_t at[POLAR_MAX_DIMS];
    size_t used = 0;
    for (int d = e->ndim - 1; d >= 0; d--) {
        at[d] = i % e->shape[d];
        i /= e->shape[d];
    }
    for (int d = 0; d < e->ndim && used < bytes; d++)
        used += (size_t)snprintf(out + used, bytes - used, "%s%lld", d ? ", " : "[", (long long)at[d]);
    if (used < bytes) snprintf(out + used, bytes - used, "]");
}

static polar_status check_finite(const pl_safetensors_entry *e, const void *data, polar_dtype dtype,
                                 const char *whose)
{
    for (int64_t i = 0, n = elements(e); i < n; i++) {
        double x = pl_load_f64(data, dtype, i);
        if (isfinite(x)) continue;
        char at[200];
        print_index(at, sizeof at, e, i);
        return PL_FAIL(POLAR_E_FORMAT, "tensor '%s' %s %s at %s: nothing was written",
                       pl_text_shown(e->name).text, whose, isnan(x) ? "NaN" : "an infinity", at);
    }
    return POLAR_OK;
}

/* The folder in which the file will appear. */
static polar_status check_folder(char *target, const char *path)
{
    struct stat info;
    char *slash = strrchr(target, '/');
    if (slash) slash[slash == target] = 0;
    const char *name = slash ? target : ".";
    PL_NEED(stat(name, &info) == 0 && S_ISDIR(info.st_mode), POLAR_E_ARG,
            "'%s', where '%s' would go, is not a folder", name, path);
    PL_NEED(access(name, W_OK | X_OK) == 0, POLAR_E_IO, "cannot write in folder '%s': %s", name,
            strerror(errno));
    return POLAR_OK;
}

/* What would only be found after the work. *names: how many the file there has. */
static polar_status check_target(const char *path, long *names)
{
    struct stat info;
    char *target = NULL;
    int there = stat(path, &info) == 0;
    *names = there ? (long)info.st_nlink : 0;
    PL_NEED(!there || S_ISREG(info.st_mode), POLAR_E_ARG, "'%s' is there and not a regular file", path);
    PL_TRY(pl_whole_file_target(&target, path));
    polar_status st = check_folder(target, path);
    pl_free(target);
    return st;
}

static polar_status choose_map(job *j)
{
    const map_args *a = j->a;
    polar_coef coefs[POLAR_MAX_STEPS];
    const char *name = cli_map_names[a->map];
    PL_TRY(polar_map_opts_parse(&j->opts, name));
    snprintf(j->told, sizeof j->told, "%s", name);
    PL_NEED(isnan(a->power) || j->opts.kind > POLAR_MAP_EXACT, POLAR_E_ARG,
            "map: --power is for --map power and --map soft; --map %s has none", name);
    if (j->opts.kind != POLAR_MAP_NEWTON_SCHULZ) {
        int none = a->steps < 0 && !a->table && !a->precision;
        PL_NEED(none, POLAR_E_ARG,
                "map: --steps, --table and --precision are for Newton-Schulz; --map %s has none", name);
        if (j->opts.kind <= POLAR_MAP_EXACT) return POLAR_OK;
        if (!isnan(a->power)) j->opts.power = a->power;
        snprintf(j->told, sizeof j->told, "%s power=%.17g", name, j->opts.power);
        return POLAR_OK;
    }
    if (a->steps >= 0) j->opts.steps = (int)a->steps;
    if (a->table) j->opts.table = a->table;
    if (a->precision) PL_TRY(polar_dtype_parse(&j->opts.precision, a->precision));
    PL_TRY(polar_coef_table(coefs, j->opts.steps, j->opts.table));
    snprintf(j->told, sizeof j->told, "%s precision=%s steps=%d table=%s", name,
             polar_dtype_name(j->opts.precision), j->opts.steps, j->opts.table);
    return POLAR_OK;
}

/* ---- the work ----------------------------------------------------------------------------------- */

/* Entries of OUT, memory for the results; finds everything that is wrong with IN. */
static polar_status prepare(job *j)
{
    polar_dtype dtype = POLAR_DTYPE_F32;
    polar_tensor t;
    int64_t total = 0, most_in = 0, most_out = 0;
    if (j->a->dtype) PL_TRY(polar_dtype_parse(&dtype, j->a->dtype));
    for (int64_t i = 0; i < j->n; i++) {
        pl_safetensors_entry *e = &j->entries[i];
        *e = *pl_safetensors_view(j->file, i);
        j->foreign += e->dtype < 0 && e->ndim == 2 && e->dtype_name[0] == 'F' && wanted(j->a, e->name);
        if (!as_matrices(&t, e, j->a)) continue;
        PL_TRY(check_finite(e, e->data, t.dtype, "has"));
        if (e->bytes > most_in) most_in = e->bytes;
        int64_t count = elements(e);
        if (j->a->dtype) e->dtype = dtype, e->dtype_name = NULL;
        e->bytes = count * (int64_t)polar_dtype_size((polar_dtype)e->dtype);
        if (e->bytes > most_out) most_out = e->bytes;
        total += (e->bytes + 63) / 64 * 64;
        j->mapped++;
        j->matrices += t.ndim == 3 ? t.shape[0] : 1;
    }
    PL_NEED(j->mapped || !j->a->only.count, POLAR_E_ARG, "map: no matrix in '%s' has a name like '%s'",
            j->a->in, pl_text_shown(j->a->only.items[0]).text);
    j->results = pl_alloc((size_t)total + 1);
    PL_NEED(j->results, POLAR_E_NOMEM, "%lld bytes for the results", (long long)total);
    PL_TRY(polar_device_open(&j->dev, j->a->device));
    PL_TRY(polar_queue_create(&j->q, j->dev, NULL));
    PL_TRY(polar_device_alloc(j->dev, &j->dev_in, (size_t)most_in));
    return polar_device_alloc(j->dev, &j->dev_out, (size_t)most_out);
}

/* Tensor i, already seen to be one to map, to its place in the results. */
static polar_status map_one(job *j, int64_t i, const polar_tensor *host, char *to)
{
    const pl_safetensors_entry *in = pl_safetensors_view(j->file, i);
    pl_safetensors_entry *out = &j->entries[i];
    polar_tensor x = *host, y = *host;
    x.data = j->dev_in;
    y.data = j->dev_out;
    y.dtype = (polar_dtype)out->dtype;
    out->data = to;
    if (out->bytes) {
        polar_queue_upload(j->q, x.data, in->data, (size_t)in->bytes);
        PL_TRY(polar_map_apply(j->q, &y, &x, 1, &j->opts));
        polar_queue_download(j->q, to, y.data, (size_t)out->bytes);
        PL_TRY(polar_queue_sync(j->q));
        PL_TRY(check_finite(in, to, y.dtype, "mapped has"));
    }
    y.data = to;
    return j->table ? map_table_add(j->table, in, &y) : POLAR_OK;
}

static polar_status map_all(job *j, const cli_context *ctx)
{
    char *to = j->results;
    int64_t done = 0;
    polar_status st = POLAR_OK;
    for (int64_t i = 0; i < j->n && st == POLAR_OK; i++) {
        polar_tensor host;
        if (!as_matrices(&host, pl_safetensors_view(j->file, i), j->a)) continue;
        cli_line_show(ctx, "mapping tensor %lld of %lld", (long long)++done, (long long)j->mapped);
        st = map_one(j, i, &host, to);
        to += (j->entries[i].bytes + 63) / 64 * 64;
    }
    cli_line_clear(ctx);
    return st;
}

/* ---- the file ----------------------------------------------------------------------------------- */

static volatile sig_atomic_t caught; /* a signal's number, kept while the file is being written */

static void catch_signal(int number)
{
    caught = number;
}

/* IN's metadata, and under META_KEY what was done. */
static void point_meta(job *j)
{
    for (int64_t i = 0; i < pl_safetensors_meta_count(j->file); i++) {
        const pl_safetensors_meta *m = pl_safetensors_meta_view(j->file, i);
        if (strcmp(m->key, META_KEY)) j->meta[j->n_meta++] = *m;
    }
    j->meta[j->n_meta++] = (pl_safetensors_meta){META_KEY, j->told};
}

/* Ctrl-C waits for the rename, so that no temporary file is left; then it does what it always does. */
static polar_status write_result(job *j)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction hold = {.sa_handler = catch_signal, .sa_flags = SA_RESTART}, before[3];
    for (int i = 0; i < 3; i++) {
        sigaction(numbers[i], NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN) sigaction(numbers[i], &hold, NULL);
    }
    polar_status st = pl_safetensors_write(j->a->out, j->entries, j->n, j->meta, j->n_meta);
    for (int i = 0; i < 3; i++) sigaction(numbers[i], &before[i], NULL);
    if (caught) raise(caught);
    return st;
}

static polar_status work(job *j, const cli_context *ctx)
{
    long names = 0;
    PL_TRY(choose_map(j));
    PL_TRY(check_target(j->a->out, &names));
    PL_TRY(pl_safetensors_open(&j->file, j->a->in));
    j->n = pl_safetensors_count(j->file);
    j->entries = pl_calloc((size_t)j->n + 1, sizeof *j->entries);
    j->meta = pl_calloc((size_t)pl_safetensors_meta_count(j->file) + 1, sizeof *j->meta);
    PL_NEED(j->entries && j->meta, POLAR_E_NOMEM, "a list of %lld tensors", (long long)j->n);
    if (j->a->verbose) PL_TRY(map_table_create(&j->table, j->told));
    PL_TRY(prepare(j));
    PL_TRY(map_all(j, ctx));
    point_meta(j);
    PL_TRY(write_result(j));
    if (j->table) PL_TRY(pl_table_print(j->table, ctx->out, (pl_table_format)j->a->format));
    int64_t passed = j->n - j->mapped;
    if (names > 1)
        fprintf(ctx->log, "note: '%s' had %ld names (hard links): the others keep the old file\n",
                pl_text_shown(j->a->out).text, names);
    if (j->foreign)
        fprintf(
            ctx->log,
            "note: passed untouched, as polar does not compute in F16 and the like: %lld of the matrices\n",
            (long long)j->foreign);
    fprintf(j->a->format == PL_TABLE_TEXT ? ctx->out : ctx->log,
            "mapped %lld matri%s, passed %lld tensor%s\n", (long long)j->matrices,
            j->matrices == 1 ? "x" : "ces", (long long)passed, passed == 1 ? "" : "s");
    return POLAR_OK;
}

static polar_status run(cli_context *ctx, int argc, char **argv)
{
    map_args a = {.steps = -1, .power = NAN};
    PL_TRY(cli_options_parse(&a, options, "map", argc, argv));
    job j = {.a = &a};
    polar_status st = work(&j, ctx);
    pl_table_destroy(j.table);
    if (j.dev) {
        polar_queue_destroy(j.q);
        polar_device_free(j.dev, j.dev_in);
        polar_device_free(j.dev, j.dev_out);
    }
    polar_device_close(j.dev);
    pl_free(j.results);
    pl_free(j.meta);
    pl_free(j.entries);
    pl_safetensors_close(j.file);
    return st;
}

const cli_command cli_cmd_map = {
    .name = "map",
    .summary = "apply a polar map to the matrices of a safetensors file",
    .usage = "IN OUT [options]",
    .options = options,
    .about = "Every matrix (two dimensions) and every batch of matrices (three, the batch first) in f64, f32 "
             "or bf16 is\n"
             "replaced by its polar map; all other tensors pass byte by byte. The last line says how many of "
             "each there\n"
             "were. A NaN or an infinity in a matrix is an error and nothing is written; OUT is never "
             "half-written. OUT\n"
             "keeps IN's metadata and says under the key " META_KEY
             " what was done. An OUT that is there keeps its mode; a\n"
             "symbolic link stays one. A file of ours that is damaged (polar.checksum) is refused; files of "
             "others are not checked.\n",
    .examples = "  polar map update.safetensors orthogonal.safetensors\n"
                "  polar map w.safetensors w.safetensors --map exact --only 'blocks.*.weight' --verbose\n",
    .run = run,
};
