/* demo_covariance.c -- see demo_covariance.h. */
#include "demo_covariance.h"

#include <math.h>

#include "base/clock.h"
#include "cli_line.h"
#include "polar/polar.h"
#include "report/table/table.h"
#include "verify/covariance.h"
#include "verify/paper_covariance.h"

/* "to rounding": 2^-53 sqrt(768) times thirty rounded products in a row */
#define EXACT_BOUND 1e-13
/* the last, 768x768, alone takes as long as all the others */
#define ROWS (PL_PAPER_COVARIANCE_ROWS - 1)

static const char heading[] =
    "1. Does a matrix optimiser's direction turn with the coordinates?\n"
    "\n"
    "Draw a gradient G and two random rotations P and Q. A map phi is covariant if phi(P G Q^T) = P phi(G) "
    "Q^T: whoever\n"
    "names the coordinates differently gets the same update. The table shows the relative difference of the "
    "two sides:\n"
    "  polar         the exact polar factor U V^T, in double precision\n"
    "  NS fp64       five Newton-Schulz steps in double precision\n"
    "  bf16 ref.     the same in bfloat16 with the roundings of the public Muon code\n"
    "  bf16 fused    the same, each product rounded once (this library's default)\n"
    "  rho_0         entrywise normalisation g / |g|, the heart of Adam\n"
    "The paper's values stand beside ours; samples are few here, and 768x768 is left out (`polar verify` "
    "takes them all).\n"
    "\n";

static const pl_table_column columns[] = {
    {"label", "matrix", NULL, PL_CELL_TEXT, 0},
    {"shape", "shape", NULL, PL_CELL_TEXT, 0},
    {"samples", "samples", NULL, PL_CELL_INTEGER, 0},
    {"polar", "polar", "measured", PL_CELL_SCI, 1},
    {"ns_fp64", "NS fp64", "measured", PL_CELL_SCI, 1},
    {"ns_bf16_reference", "bf16 ref.", "measured", PL_CELL_SCI, 1},
    {"ns_bf16_fused", "bf16 fused", "measured", PL_CELL_SCI, 1},
    {"rho0_mean", "rho_0", "measured", PL_CELL_FIXED, 2},
    {"paper_ns_bf16", "bf16", "paper", PL_CELL_SCI, 1},
    {"paper_rho0_mean", "rho_0", "paper", PL_CELL_FIXED, 2},
};

/* ---- progress ----------------------------------------------------------------------------------- */

typedef struct {
    const cli_context *ctx;
    int row;
    double began;
    double total, before; /* work of all rows and of those done, in samples x (n + m) n m */
    double now;           /* of the row under way, per sample */
} progress;

static double work_per_sample(const pl_paper_covariance *p)
{
    double n = (double)p->n, m = (double)p->m;
    return (n + m) * n * m + 1000; /* products, and something for small ones */
}

static int64_t samples_of(const pl_paper_covariance *p)
{
    int64_t least = p->n < p->m ? p->n : p->m, most = p->n < p->m ? p->m : p->n;
    return least <= 32 ? 50 : most <= 192 ? 4 : 1;
}

static void show_progress(void *arg, int64_t done, int64_t samples)
{
    const progress *p = arg;
    double part = (p->before + (double)done * p->now) / p->total, spent = pl_clock_seconds() - p->began;
    (void)samples;
    char left[48] = "";
    if (spent > 2 && part > 0.02)
        snprintf(left, sizeof left, ", about %.0f s left", spent * (1 - part) / part);
    cli_line_show(p->ctx, "shape %d of %d, %3.0f %%%s", p->row + 1, ROWS, 100 * part, left);
}

/* ---- the measurement ---------------------------------------------------------------------------- */

static polar_status measure(pl_covariance_row rows[ROWS], polar_queue *q, uint64_t seed,
                            const cli_context *ctx)
{
    progress p = {.ctx = ctx, .began = pl_clock_seconds()};
    for (int i = 0; i < ROWS; i++) {
        const pl_paper_covariance *paper = pl_paper_covariance_row(i);
        p.total += (double)samples_of(paper) * work_per_sample(paper);
    }
    polar_status st = POLAR_OK;
    for (p.row = 0; p.row < ROWS && st == POLAR_OK; p.row++) {
        const pl_paper_covariance *paper = pl_paper_covariance_row(p.row);
        int64_t samples = samples_of(paper);
        pl_covariance_opts o = {
            .seed = seed, .samples = samples, .progress = show_progress, .progress_arg = &p};
        p.now = work_per_sample(paper);
        if (!ctx->log_is_terminal)
            fprintf(ctx->log, "shape %d of %d: %lldx%lld\n", p.row + 1, ROWS, (long long)paper->n,
                    (long long)paper->m);
        st = pl_covariance_measure(&rows[p.row], q, paper->n, paper->m, &o);
        p.before += (double)samples * p.now;
    }
    cli_line_clear(ctx);
    return st;
}

static polar_status print_table(FILE *out, const pl_covariance_row *rows)
{
    pl_table *t;
    PL_TRY(pl_table_create(&t, NULL, columns, (int)(sizeof columns / sizeof *columns)));
    for (int i = 0; i < ROWS; i++) {
        const pl_paper_covariance *paper = pl_paper_covariance_row(i);
        char shape[64];
        snprintf(shape, sizeof shape, "%lldx%lld", (long long)paper->n, (long long)paper->m);
        pl_table_row(t);
        pl_table_text(t, paper->label);
        pl_table_text(t, shape);
        pl_table_integer(t, rows[i].samples);
        pl_table_number(t, rows[i].mean[PL_COV_POLAR]);
        pl_table_number(t, rows[i].mean[PL_COV_NS_FP64]);
        pl_table_number(t, rows[i].mean[PL_COV_NS_BF16_REFERENCE]);
        pl_table_number(t, rows[i].mean[PL_COV_NS_BF16_FUSED]);
        pl_table_number(t, rows[i].mean[PL_COV_RHO0]);
        pl_table_number(t, paper->ns_bf16);
        pl_table_number(t, paper->rho0_mean);
    }
    polar_status st = pl_table_print(t, out, PL_TABLE_TEXT);
    pl_table_destroy(t);
    return st;
}

/* ---- what was found ----------------------------------------------------------------------------- */

typedef struct {
    double least, most, mean; /* over the rows; NaN spreads to all three */
} range;

static range range_of(const pl_covariance_row *rows, pl_covariance_column column)
{
    range r = {INFINITY, 0, 0};
    for (int i = 0; i < ROWS; i++) {
        double x = rows[i].mean[column];
        if (isnan(x)) return (range){x, x, x};
        r.least = fmin(r.least, x);
        r.most = fmax(r.most, x);
        r.mean += x / ROWS;
    }
    return r;
}

static void print_findings(cli_context *ctx, const pl_covariance_row *rows)
{
    range polar = range_of(rows, PL_COV_POLAR), ns = range_of(rows, PL_COV_NS_FP64),
          rho = range_of(rows, PL_COV_RHO0);
    range ref = range_of(rows, PL_COV_NS_BF16_REFERENCE), fused = range_of(rows, PL_COV_NS_BF16_FUSED);
    double worst = fmax(polar.most, ns.most);
    int holds = polar.most <= EXACT_BOUND && ns.most <= EXACT_BOUND; /* false for NaN */
    fprintf(ctx->out, "\nFound:\n");
    fprintf(ctx->out, "  exact polar and NS fp64   at most %.1e: the covariance theorem %s\n", worst,
            holds ? "holds, to rounding"
                  : "does NOT hold here; that is an error of this build, please report it");
    fprintf(ctx->out, "  bf16, public roundings    %.1f to %.1f %%: what remains of it in bfloat16\n",
            100 * ref.least, 100 * ref.most);
    fprintf(ctx->out, "  bf16, fused               %.1f to %.1f %%: %.2f times the former on average\n",
            100 * fused.least, 100 * fused.most, fused.mean / ref.mean);
    fprintf(ctx->out, "  entrywise, as in AdamW    %.2f to %.2f: %s\n", rho.least, rho.most,
            rho.least > ref.most ? "depends on the coordinates at every shape"
                                 : "not above bf16 at every shape, look at the table");
    if (!holds) ctx->check_failed = 1;
}

polar_status demo_covariance(cli_context *ctx, const char *device, uint64_t seed)
{
    pl_covariance_row rows[ROWS];
    polar_device *dev;
    polar_queue *q = NULL;
    PL_TRY(polar_device_open(&dev, device));
    polar_status st = polar_queue_create(&q, dev, NULL);
    fputs(heading, ctx->out);
    fflush(ctx->out);
    if (st == POLAR_OK) st = measure(rows, q, seed, ctx);
    if (st == POLAR_OK) st = print_table(ctx->out, rows);
    if (st == POLAR_OK) print_findings(ctx, rows);
    polar_queue_destroy(q);
    polar_device_close(dev);
    return st;
}
