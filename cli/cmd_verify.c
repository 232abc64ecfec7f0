/* cmd_verify.c -- `polar verify`: the paper's covariance table, whole update rules, its lemmas, theorem,
 * proposition and remark, measured.
 *
 *     ./polar verify                              the whole table, minutes
 *     ./polar verify --quick                      the same with few samples
 *     ./polar verify --shapes 8x8,100x30 --format json
 *     ./polar verify --only spectra               maps on matrices of few large singular values
 *     ./polar verify --only rules                 every rule's update after a rotated history of gradients
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "cli.h"
#include "cli_line.h"
#include "polar/polar.h"
#include "verify/paper_covariance.h"
#include "verify_results.h"

typedef struct verify_args {
    const char *shapes, *device;
    int64_t samples, steps, seed, map_steps;
    const char *table;
    int only, quick, check, format;
} verify_args;

enum { ONLY_ALL, ONLY_COVARIANCE, ONLY_RULES, ONLY_SPECTRA };

static const char *const parts[] = {"all", "covariance", "rules", "spectra", NULL};

static const cli_option options[] = {
    {"shapes", CLI_STRING(verify_args, shapes), .value = "NxM,..",
     .help = "these shapes only, the paper's or any other (default: the paper's 15; rules: "
             "8x8,8x44,64x64,192x192; spectra: 16x16,16x152,64x64)"},
    {"samples", CLI_INT(verify_args, samples, 1, 1000000), .value = "N",
     .help = "triples (G, P, Q) per shape (default: 50, and 1000 where the short side is at most 32; rules: "
             "20 and 200; spectra: as --quick)"},
    {"quick", CLI_FLAG(verify_args, quick),
     .help = "fewer samples: 10, 100 where the short side is at most 32, 4 for 768x768; rules: 4 and 40"},
    {"steps", CLI_INT(verify_args, steps, 1, PL_RULE_MAX_STEPS), .value = "T", .def = "6",
     .help = "gradients in the history of a rule"},
    {"table", CLI_STRING(verify_args, table), .value = "NAME",
     .help = "covariance, spectra: another table of Newton-Schulz coefficients (see `polar info`); no bars "
             "then"},
    {"map-steps", CLI_INT(verify_args, map_steps, 0, POLAR_MAX_STEPS), .value = "K", .def = "5",
     .help = "covariance, spectra: how many steps of that table"},
    {"only", CLI_CHOICE(verify_args, only, parts), .value = "PART", .def = "all",
     .help = "all of the paper's claims, or one of the first two tables alone; or covariance on matrices of "
             "few large singular values"},
    {"seed", CLI_INT(verify_args, seed, 0, 9007199254740992.0), .value = "S", .def = "0",
     .help = "of all random matrices"},
    {"device", CLI_STRING(verify_args, device), .value = "NAME", .def = "cpu",
     .help = "where to compute: ref, guard, cpu, cpu:threads=2, ..."},
    {"format", CLI_CHOICE(verify_args, format, cli_formats), .value = "F", .def = "text",
     .help = "csv and tex print the covariance table, or the one that --only names"},
    {"check", CLI_FLAG(verify_args, check),
     .help = "exit with 1 when a number misses its bar, and name it; the bars are for the default samples"},
    {0},
};

/* ---- progress ---- */

typedef struct progress {
    cli_context *ctx;
    double start, row_start, cost_done, cost_all; /* cost: arbitrary units proportional to time */
    int64_t n, m;
} progress;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Roughly what one triple costs: products and decompositions of the short side, rotations of both, and a
 * constant. */
static double sample_cost(int64_t n, int64_t m)
{
    double a = (double)n, b = (double)m, s = a < b ? a : b, l = a < b ? b : a;
    return 200 * s * s * l + 20 * (a * a * b + a * b * b) + 4 * (a * a * a + b * b * b) + 1e5;
}

static void show_progress(void *arg, int64_t done, int64_t samples)
{
    progress *p = arg;
    double cost = p->cost_done + (double)done * sample_cost(p->n, p->m), spent = now() - p->start;
    cli_line_show(p->ctx, "%lldx%lld: %lld of %lld samples, about %.0f s left", (long long)p->n,
                  (long long)p->m, (long long)done, (long long)samples, spent * (p->cost_all - cost) / cost);
}

/* ---- shapes ---- */

typedef struct shape {
    int64_t n, m;
} shape;

/* "8x8,192x768" into a list, owned by the caller. */
static polar_status parse_shapes(shape **out, int64_t *count, const char *text)
{
    int64_t n = 1, i = 0;
    for (const char *s = text; *s; s++) n += *s == ',';
    shape *list = pl_calloc((size_t)n, sizeof *list);
    PL_NEED(list, POLAR_E_NOMEM, "a list of %lld shapes", (long long)n);
    polar_status st = POLAR_OK;
    for (const char *s = text; i < n && st == POLAR_OK; i++) {
        char word[32], *x;
        size_t length = strcspn(s, ",");
        snprintf(word, sizeof word, "%.*s", (int)(length < sizeof word ? length : sizeof word - 1), s);
        x = strchr(word, 'x');
        if (!x) st = PL_FAIL(POLAR_E_ARG, "--shapes wants rows x columns like 8x44,192x768, got '%s'", word);
        else {
            *x = 0;
            st = cli_parse_int(&list[i].n, "--shapes: rows", word, 1, PL_COV_MAX_SIDE);
            if (st == POLAR_OK)
                st = cli_parse_int(&list[i].m, "--shapes: columns", x + 1, 1, PL_COV_MAX_SIDE);
        }
        s += length + (s[length] == ',');
    }
    if (st != POLAR_OK) {
        pl_free(list);
        return st;
    }
    *out = list;
    *count = n;
    return POLAR_OK;
}

static polar_status paper_shapes(shape **out, int64_t *count)
{
    shape *list = pl_calloc(PL_PAPER_COVARIANCE_ROWS, sizeof *list);
    PL_NEED(list, POLAR_E_NOMEM, "a list of shapes");
    for (int i = 0; i < PL_PAPER_COVARIANCE_ROWS; i++)
        list[i] = (shape){pl_paper_covariance_row(i)->n, pl_paper_covariance_row(i)->m};
    *out = list;
    *count = PL_PAPER_COVARIANCE_ROWS;
    return POLAR_OK;
}

/* ---- measuring ---- */

static int64_t samples_for(const verify_args *a, shape s)
{
    return a->samples ? a->samples : pl_covariance_samples(s.n, s.m, a->quick);
}

/* Rows whose shape, samples and singular values are set. */
static polar_status measure_rows(pl_covariance_row *rows, int64_t count, cli_context *ctx, polar_queue *q,
                                 const verify_args *a)
{
    progress p = {.ctx = ctx, .start = now()};
    for (int64_t i = 0; i < count; i++)
        p.cost_all += (double)rows[i].samples * sample_cost(rows[i].n, rows[i].m);
    for (int64_t i = 0; i < count; i++) {
        pl_covariance_opts o = {.seed = (uint64_t)a->seed,
                                .samples = rows[i].samples,
                                .values = rows[i].values,
                                .table = a->table,
                                .steps = (int)a->map_steps,
                                .progress = show_progress,
                                .progress_arg = &p};
        p.n = rows[i].n;
        p.m = rows[i].m;
        p.row_start = now();
        PL_TRY(pl_covariance_measure(&rows[i], q, p.n, p.m, &o));
        p.cost_done += (double)o.samples * sample_cost(p.n, p.m);
        double spent = now() - p.row_start;
        cli_line_clear(ctx);
        if (!ctx->log_is_terminal && spent > 5)
            fprintf(ctx->log, "%lldx%lld: %lld samples in %.1f s\n", (long long)p.n, (long long)p.m,
                    (long long)o.samples, spent);
    }
    return POLAR_OK;
}

static polar_status measure_table(verify_results *v, cli_context *ctx, polar_queue *q, const verify_args *a,
                                  const shape *shapes, int64_t count)
{
    v->rows = pl_calloc((size_t)count, sizeof *v->rows);
    PL_NEED(v->rows, POLAR_E_NOMEM, "%lld rows of results", (long long)count);
    v->n_rows = count;
    for (int64_t i = 0; i < count; i++)
        v->rows[i] =
            (pl_covariance_row){.n = shapes[i].n, .m = shapes[i].m, .samples = samples_for(a, shapes[i])};
    return measure_rows(v->rows, count, ctx, q, a);
}

/* Blocks of the SO(3) network at two widths, and a larger square. */
static const shape spectra_shapes[] = {{16, 16}, {16, 152}, {64, 64}};
static const double tails[] = {1e-1, 1e-2, 1e-3, 1e-6};
#define TAILS (sizeof tails / sizeof *tails)

/* 1, 2, 4, ... large singular values with each size of the others, and all of them large. */
static int64_t spectra_rows(pl_covariance_row *rows, shape s, int64_t samples)
{
    int64_t n = 0, k = s.n < s.m ? s.n : s.m;
    for (int64_t rank = 1; rank < k; rank *= 2)
        for (size_t t = 0; t < TAILS; t++, n++)
            if (rows) rows[n] = (pl_covariance_row){s.n, s.m, samples, .values = {rank, tails[t]}};
    if (rows) rows[n] = (pl_covariance_row){s.n, s.m, samples, .values = {k, 1}};
    return n + 1;
}

static polar_status measure_spectra(verify_results *v, cli_context *ctx, polar_queue *q, const verify_args *a,
                                    const shape *shapes, int64_t count)
{
    int64_t rows = 0, n = 0;
    for (int64_t i = 0; i < count; i++) rows += spectra_rows(NULL, shapes[i], 0);
    v->spectra = pl_calloc((size_t)rows, sizeof *v->spectra);
    PL_NEED(v->spectra, POLAR_E_NOMEM, "%lld rows of results", (long long)rows);
    v->n_spectra = rows;
    for (int64_t i = 0; i < count; i++)
        n += spectra_rows(v->spectra + n, shapes[i],
                          a->samples ? a->samples : pl_covariance_samples(shapes[i].n, shapes[i].m, 1));
    return measure_rows(v->spectra, rows, ctx, q, a);
}

static const shape rule_shapes[] = {{8, 8}, {8, 44}, {64, 64}, {192, 192}};

/* Every rule on every shape, whose draws are the same for all rules. */
static polar_status measure_rules(verify_results *v, cli_context *ctx, polar_queue *q, const verify_args *a,
                                  const shape *shapes, int64_t count)
{
    int64_t rules = 0;
    while (polar_rule_name((int)rules)) rules++;
    v->rules = pl_calloc((size_t)(count * rules), sizeof *v->rules);
    PL_NEED(v->rules, POLAR_E_NOMEM, "%lld rows of results", (long long)(count * rules));
    for (int64_t i = 0; i < count; i++) {
        shape s = shapes[i];
        pl_rule_opts o = {.seed = v->seed,
                          .samples = a->samples ? a->samples : pl_rule_samples(s.n, s.m, a->quick),
                          .steps = a->steps};
        double start = now();
        for (int r = 0; r < rules; r++) {
            cli_line_show(ctx, "rules, %lldx%lld: %s", (long long)s.n, (long long)s.m, polar_rule_name(r));
            PL_TRY(pl_rule_covariance_measure(&v->rules[v->n_rules], q, polar_rule_name(r), s.n, s.m, &o));
            v->n_rules++;
        }
        cli_line_clear(ctx);
        if (!ctx->log_is_terminal && now() - start > 5)
            fprintf(ctx->log, "rules, %lldx%lld: %lld samples in %.1f s\n", (long long)s.n, (long long)s.m,
                    (long long)o.samples, now() - start);
    }
    return POLAR_OK;
}

/* Square, wide and tall. */
static const shape class_shapes[] = {{16, 16}, {12, 20}, {20, 12}};
#define CLASS_SAMPLES 8

static polar_status measure_classes(verify_results *v, cli_context *ctx, polar_queue *q, const verify_args *a,
                                    const shape *shapes, int64_t count)
{
    int64_t rules = 0;
    while (polar_rule_name((int)rules)) rules++;
    v->classes = pl_calloc((size_t)(count * rules), sizeof *v->classes);
    PL_NEED(v->classes, POLAR_E_NOMEM, "%lld rows of symmetries", (long long)(count * rules));
    for (int r = 0; r < rules; r++)
        for (int64_t i = 0; i < count; i++) {
            pl_rule_opts o = {
                .seed = v->seed, .samples = a->samples ? a->samples : CLASS_SAMPLES, .steps = a->steps};
            cli_line_show(ctx, "symmetries, %lldx%lld: %s", (long long)shapes[i].n, (long long)shapes[i].m,
                          polar_rule_name(r));
            PL_TRY(pl_rule_symmetry_measure(&v->classes[v->n_classes], q, polar_rule_name(r), shapes[i].n,
                                            shapes[i].m, &o));
            v->n_classes++;
        }
    cli_line_clear(ctx);
    return POLAR_OK;
}

static polar_status measure_claims(verify_results *v, polar_queue *q)
{
    static const double eps[VERIFY_PROP_ROWS] = {1e-30, 1e-8, 1e-4, 1e-2, 1, 1e2, 1e4};
    for (int i = 0; i < VERIFY_SCHUR_ROWS; i++)
        PL_TRY(pl_schur_reduction_measure(&v->schur[i], i + 1, v->seed));
    PL_TRY(pl_block_lemma_measure(&v->block, q, NULL, 0, v->seed));
    PL_TRY(pl_theorem_measure(&v->theorem, q, v->seed));
    for (int i = 0; i < VERIFY_PROP_ROWS; i++) PL_TRY(pl_proposition_measure(&v->proposition[i], q, eps[i]));
    PL_TRY(pl_linear_maps_measure(&v->linear, q, v->seed));
    v->claims = 1;
    return POLAR_OK;
}

static polar_status measure(verify_results *v, cli_context *ctx, polar_queue *q, const verify_args *a,
                            const shape *shapes, int64_t count)
{
    /* then what is not printed is not measured */
    int one_table = !a->check && (a->format == PL_TABLE_CSV || a->format == PL_TABLE_TEX);
    int only = one_table && a->only == ONLY_ALL ? ONLY_COVARIANCE : a->only;
    if (only == ONLY_SPECTRA)
        return measure_spectra(v, ctx, q, a, a->shapes ? shapes : spectra_shapes,
                               a->shapes ? count : (int64_t)(sizeof spectra_shapes / sizeof *spectra_shapes));
    if (only != ONLY_RULES) PL_TRY(measure_table(v, ctx, q, a, shapes, count));
    if (only != ONLY_COVARIANCE)
        PL_TRY(measure_rules(v, ctx, q, a, a->shapes ? shapes : rule_shapes,
                             a->shapes ? count : (int64_t)(sizeof rule_shapes / sizeof *rule_shapes)));
    if (only != ONLY_COVARIANCE && !one_table)
        PL_TRY(measure_classes(v, ctx, q, a, a->shapes ? shapes : class_shapes,
                               a->shapes ? count : (int64_t)(sizeof class_shapes / sizeof *class_shapes)));
    return only == ONLY_ALL ? measure_claims(v, q) : POLAR_OK;
}

static polar_status run(cli_context *ctx, int argc, char **argv)
{
    verify_args a = {0};
    verify_results *v = NULL;
    shape *shapes = NULL;
    int64_t count = 0;
    polar_device *dev = NULL;
    polar_queue *q = NULL;
    PL_TRY(cli_options_parse(&a, options, "verify", argc, argv));
    PL_NEED(!a.table || !a.check, POLAR_E_ARG, "--check has bars for Jordan's table only: leave --table out");
    v = pl_calloc(1, sizeof *v);
    PL_NEED(v, POLAR_E_NOMEM, "the results");
    v->seed = (uint64_t)a.seed;
    polar_status st = a.shapes ? parse_shapes(&shapes, &count, a.shapes) : paper_shapes(&shapes, &count);
    if (st == POLAR_OK) st = polar_device_open(&dev, a.device);
    if (st == POLAR_OK) st = polar_queue_create(&q, dev, NULL);
    if (st == POLAR_OK) st = measure(v, ctx, q, &a, shapes, count);
    if (st == POLAR_OK) st = verify_print(ctx->out, v, (pl_table_format)a.format);
    if (st == POLAR_OK && a.check) ctx->check_failed = verify_check(ctx->log, v) > 0;
    polar_queue_destroy(q);
    polar_device_close(dev);
    pl_free(shapes);
    pl_free(v->rows);
    pl_free(v->spectra);
    pl_free(v->rules);
    pl_free(v->classes);
    pl_free(v);
    return st;
}

static const char about[] = "Measures how far each polar map is from phi(P G Q^T) = P phi(G) Q^T, the "
                            "paper's table with our figures beside it; how far whole\n"
                            "update rules are from it after several steps of a rotated history of gradients; "
                            "then the Schur reduction, the block lemma, the\n"
                            "theorem, the proposition's counterexample and linear maps. Draws depend on the "
                            "seed and the shape alone: the numbers are the same on\n"
                            "any number of threads and whatever other shapes are asked for.\n";

static const char examples[] =
    "  polar verify                                   the paper's 15 shapes, a few minutes\n"
    "  polar verify --quick                           the same shapes, fewer samples\n"
    "  polar verify --shapes 8x8,100x30 --samples 500\n"
    "  polar verify --only covariance --table cans5 --shapes 192x192,192x768\n"
    "  polar verify --only spectra --format csv       matrices of few large singular values, as gradients "
    "are\n"
    "  polar verify --only rules --format csv         every rule's update, weights and spectral norms\n"
    "  polar verify --format json --check > verify.json\n";

const cli_command cli_cmd_verify = {
    .name = "verify",
    .summary = "the paper's covariance table, whole rules, lemmas, theorem and proposition as measurements",
    .usage = "[options]",
    .options = options,
    .about = about,
    .examples = examples,
    .run = run,
};
