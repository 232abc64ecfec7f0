/* curve_figures.c -- means with bands from the least to the largest, one colour per arm, logarithmic. */
#include "report/curve_figures.h"

#include <inttypes.h>
#include <string.h>

#include "report/figure.h"

/* A block $name<k>: x, mean, least, largest, where at least half of the runs are still there; the span is of what lies at `from` and after it. */
static void curve_data(FILE *f, const char *name, int64_t k, const pl_curve *c, double from, pl_span *s)
{
    int64_t most = 0;
    for (int64_t i = 0; i < c->count; i++)
        if (c->n[i] > most) most = c->n[i];
    fprintf(f, "$%s%" PRId64 " << EOD\n", name, k);
    for (int64_t i = 0; i < c->count; i++) {
        const double numbers[] = {c->x[i], c->mean[i], c->min[i], c->max[i]};
        if (2 * c->n[i] < most) continue;
        for (int j = 0; j < 4; j++) pl_figure_number(f, numbers[j]);
        for (int j = 1; j < 4 && c->x[i] >= from; j++) pl_span_widen(s, numbers[j]);
        fputc('\n', f);
    }
    fputs("EOD\n", f);
}

/* One panel: a band and a line for every arm; blocks $name<first + arm>. */
static void curve_panel(FILE *f, const pl_audit *a, const char *title, const char *name, int64_t first, const pl_curve *curves, double plateau)
{
    fputs("set title ", f);
    pl_figure_string(f, title);
    fputs("\nplot \\\n", f);
    if (!isnan(plateau)) fprintf(f, "  %.17g with lines dt 2 lw 1.5 lc rgb \"" PL_PLATEAU_COLOUR "\" title \"trace only\", \\\n", plateau);
    for (int64_t r = 0; r < a->arm_count; r++)
        if (curves[r].count) fprintf(f, "  $%s%" PRId64 " using 1:3:4 with filledcurves lc rgb \"%s\" notitle, \\\n", name, first + r, pl_figure_colour(a, r));
    for (int64_t r = 0; r < a->arm_count; r++) {
        if (!curves[r].count) continue;
        fprintf(f, "  $%s%" PRId64 " using 1:2 with lines lw 2 lc rgb \"%s\" title ", name, first + r, pl_figure_colour(a, r));
        pl_figure_string(f, a->arms[r]);
        fputs(", \\\n", f);
    }
    fputs("  NaN notitle\n", f);
}

/* 1, 2, 5, 10, ... where powers of ten alone would be too few. */
static void put_tics(FILE *f, double least, double most)
{
    if (!(least > 0) || most > 80 * least) return;
    const char *comma = "set ytics (";
    for (double ten = pow(10, floor(log10(least))); ten <= most; ten *= 10)
        for (int i = 0; i < 3; i++) {
            double y = ten * (i == 0 ? 1 : i == 1 ? 2 : 5);
            if (y < least || y > most) continue;
            fprintf(f, "%s\"%g\" %g", comma, y, y);
            comma = ", ";
        }
    fputs(*comma == 's' ? "" : ")\n", f);
}

static void panels_begin(FILE *f, int64_t rows, int64_t columns, const char *title, double least, double most, const char *x, const char *y)
{
    fprintf(f, "set multiplot layout %" PRId64 ",%" PRId64 " title ", rows, columns);
    pl_figure_string(f, title);
    fprintf(f, "\nset key inside right top vertical samplen 1.6 spacing 1.05\nset logscale y\nset format y \"%%g\"\nset yrange [%.3g:%.3g]\nset xlabel \"%s\"\nset ylabel ",
            least, most, x);
    pl_figure_string(f, y);
    fputc('\n', f);
    put_tics(f, least, most);
}

polar_status pl_draw_trajectories(pl_part *p, const char *dir)
{
    const pl_audit *a = p->audit;
    int64_t columns = a->cell_count < 2 ? 1 : 2, rows = (a->cell_count + columns - 1) / columns, runs = 0;
    double last = 0;
    pl_span s = PL_SPAN_NONE;
    pl_figure g;
    pl_part_figure *out = pl_part_add_figure(p, "trajectories", "Validation error during training");
    for (int64_t i = 0; i < a->cell_count * a->arm_count; i++) {
        const pl_curve *c = &p->valid[i];
        if (c->runs > runs) runs = c->runs;
        if (c->count && c->x[c->count - 1] > last) last = c->x[c->count - 1];
    }
    snprintf(out->caption, sizeof out->caption,
             "Validation error after every epoch: mean over finished runs (up to n = %" PRId64 " per arm), bands from the least to the largest. Runs stop early: a line ends "
             "where fewer than half of its runs are left, and until then is the mean of those that are. The first epochs may lie above the frame.%s", runs,
             isnan(a->arm_rows[0].trace) ? "" : " Dashed: test error of the trace-only predictor.");
    PL_TRY(pl_figure_begin(&g, dir, out->name, columns == 1 ? 680 : 1000, (int)(40 + 340 * rows)));
    for (int64_t i = 0; i < a->cell_count * a->arm_count; i++) curve_data(g.out.f, "valid", i, &p->valid[i], 0.2 * last, &s);
    for (int64_t c = 0; c < a->cell_count; c++) pl_span_widen(&s, a->arm_rows[c * a->arm_count].trace);
    pl_figure_plot(&g);
    panels_begin(g.out.f, rows, columns, "validation error, mean and range over seeds", s.least / 1.15, s.most * 3, "epoch", "validation MSE");
    for (int64_t c = 0; c < a->cell_count; c++)
        curve_panel(g.out.f, a, a->cells[c], "valid", c * a->arm_count, p->valid + c * a->arm_count, a->arm_rows[c * a->arm_count].trace);
    fputs("unset multiplot\n", g.out.f);
    return pl_figure_end(&g, POLAR_OK);
}

/* ---- gauge violation ---- */

#define MOST_MAPS 6
#define MOST_ARMS 16

/* The plot itself; curves (maps, MOST_ARMS). */
static polar_status plot_gauge(pl_part *p, const char *dir, int64_t cell, const char maps[][24], int n_maps, const pl_curve *curves)
{
    const pl_audit *a = p->audit;
    int columns = n_maps < 2 ? 1 : 2, rows = (n_maps + columns - 1) / columns;
    int64_t runs = 0;
    char name[32], title[200];
    pl_span s = PL_SPAN_NONE;
    pl_figure g;
    for (int i = 0; i < n_maps * MOST_ARMS; i++)
        if (curves[i].runs > runs) runs = curves[i].runs;
    snprintf(name, sizeof name, "gauge_%" PRId64, cell);
    snprintf(title, sizeof title, "Gauge violation during training, %.60s", a->cells[cell]);
    pl_part_figure *out = pl_part_add_figure(p, name, title);
    snprintf(out->caption, sizeof out->caption,
             "Every Schur block has shadow optimisers that are fed P g Q^T, with P and Q fixed, random and orthogonal: relative deviation of their update from P u Q^T, mean over runs "
             "(up to n = %" PRId64 " per arm), blocks and shadows, bands from the least to the largest; one panel per polar map. A gauge-equivariant rule stays at the map's rounding.", runs);
    PL_TRY(pl_figure_begin(&g, dir, out->name, columns == 1 ? 680 : 1000, 40 + 340 * rows));
    for (int i = 0; i < n_maps * MOST_ARMS; i++) curve_data(g.out.f, "gauge", i, &curves[i], 0, &s);
    pl_figure_plot(&g);
    panels_begin(g.out.f, rows, columns, title, s.least / 1.3, s.most * 1.3, "step", "deviation from P u Q^T");
    fputs("set logscale x\nset key inside right top at graph 0.98,0.88 maxrows 2\n", g.out.f);
    for (int i = 0; i < n_maps; i++) curve_panel(g.out.f, a, maps[i], "gauge", i * MOST_ARMS, curves + i * MOST_ARMS, NAN);
    fputs("unset multiplot\n", g.out.f);
    return pl_figure_end(&g, POLAR_OK);
}

polar_status pl_draw_gauge(pl_part *p, pl_store *s, const char *dir, int64_t cell)
{
    int64_t arms = p->audit->arm_count;
    char maps[MOST_MAPS][24] = {{0}};
    int n_maps = 0;
    pl_curve curves[MOST_MAPS * MOST_ARMS] = {{0}};
    PL_TRY(pl_part_gauge_maps(maps, &n_maps, MOST_MAPS, s, p, cell));
    if (!n_maps || arms > MOST_ARMS || p->figure_count == PL_PART_FIGURES) return POLAR_OK;
    polar_status st = POLAR_OK;
    for (int m = 0; m < n_maps; m++)
        for (int64_t r = 0; r < arms && st == POLAR_OK; r++) st = pl_part_gauge(&curves[m * MOST_ARMS + r], s, p, cell, r, maps[m]);
    if (st == POLAR_OK) st = plot_gauge(p, dir, cell, (const char (*)[24])maps, n_maps, curves);
    for (int i = 0; i < MOST_MAPS * MOST_ARMS; i++) pl_curve_free(&curves[i]);
    return st;
}
