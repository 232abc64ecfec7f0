/* curve_figures.c -- means with bands from the least to the largest, one colour per arm; errors and
 * deviations by decades, accuracies on a linear axis. */
#include "report/figure/curve_figures.h"

#include <inttypes.h>
#include <string.h>

#include "report/table/compare_tables.h"
#include "report/figure/figure.h"

/* A block $name<k>: x, mean, least, largest, where at least half of the runs are still there; the span is of
 * what lies at `from` and after it. */
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

/* A line's name in the key; of an accuracy with the arm's result, where the audit is of one: "muon
 * L10 84.41". */
static void put_title(FILE *f, const pl_audit *a, const char *name, const pl_audit_arm *row)
{
    char text[240];
    pl_metric m = a->shown;
    if (row && m.percent && !isnan(row->s.mean))
        snprintf(text, sizeof text, "%.160s  %.*s %.2f", name, (int)strcspn(m.title, ","), m.title,
                 row->s.mean);
    else snprintf(text, sizeof text, "%.200s", name);
    fputs(" title ", f);
    pl_figure_string(f, text);
    fputs(", \\\n", f);
}

/* Arms whose colour an earlier one has are dashed. */
static const char *dash_of(const pl_audit *a, int64_t arm)
{
    for (int64_t r = 0; r < arm; r++)
        if (pl_figure_colour(a, r) == pl_figure_colour(a, arm)) return " dt (3,3)";
    return "";
}

/* One panel: a band and a line for every arm; blocks $name<first + arm>. rows: the arms' results, to stand in
 * the key, or NULL. The caller may add lines, then calls panel_end. */
static void curve_panel(FILE *f, const pl_audit *a, const char *title, const char *name, int64_t first,
                        const pl_curve *curves, const pl_audit_arm *rows)
{
    fputs("set title ", f);
    pl_figure_string(f, title);
    fputs("\nplot \\\n", f);
    for (int64_t r = 0; r < a->arm_count; r++)
        if (curves[r].count)
            fprintf(f, "  $%s%" PRId64 " using 1:3:4 with filledcurves lc rgb \"%s\" notitle, \\\n", name,
                    first + r, pl_figure_colour(a, r));
    for (int64_t r = 0; r < a->arm_count; r++) {
        if (!curves[r].count) continue;
        fprintf(f, "  $%s%" PRId64 " using 1:2 with lines lw 2 lc rgb \"%s\"%s", name, first + r,
                pl_figure_colour(a, r), dash_of(a, r));
        put_title(f, a, a->arms[r], rows ? &rows[r] : NULL);
    }
}

static void panel_end(FILE *f)
{
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

static void panels_begin(FILE *f, int64_t rows, int64_t columns, const char *title, const char *x,
                         const char *y)
{
    fprintf(f, "set multiplot layout %" PRId64 ",%" PRId64 " title ", rows, columns);
    pl_figure_string(f, title);
    fprintf(f, "\nset format y \"%%g\"\nset xlabel \"%s\"\nset ylabel ", x);
    pl_figure_string(f, y);
    fputc('\n', f);
}

static void decades(FILE *f, double least, double most)
{
    fprintf(f,
            "set key inside right top vertical samplen 1.6 spacing 1.05\nset logscale y\nset yrange "
            "[%.3g:%.3g]\n",
            least, most);
    put_tics(f, least, most);
}

/* ---- the validation metric ---- */

typedef struct {
    int64_t columns, rows, runs;
    double last; /* epoch */
} panels;

static panels count_panels(const pl_section *p)
{
    int64_t cells = p->audit->cell_count, columns = cells < 2 ? 1 : 2;
    panels n = {.columns = columns, .rows = (cells + columns - 1) / columns};
    for (int64_t i = 0; i < cells * p->audit->arm_count; i++) {
        const pl_curve *c = &p->valid[i];
        if (c->runs > n.runs) n.runs = c->runs;
        if (c->count && c->x[c->count - 1] > n.last) n.last = c->x[c->count - 1];
    }
    return n;
}

/* Errors fall by decades, and runs may stop early. */
static polar_status draw_errors(pl_section *p, const char *dir, pl_section_figure *out, panels n)
{
    const pl_audit *a = p->audit;
    pl_span s = PL_SPAN_NONE;
    pl_figure g;
    snprintf(out->caption, sizeof out->caption,
             "%s after every epoch: mean over finished runs (up to n = %" PRId64
             " per arm), bands from the least to the largest. Runs stop early: a line ends "
             "where fewer than half of its runs are left, and until then is the mean of those that are. The "
             "first epochs may lie above the frame.%s",
             p->kind.what, n.runs,
             isnan(a->arm_rows[0].reference[0]) ? "" : " Dashed: the first reference value.");
    PL_TRY(pl_figure_begin(&g, dir, out->name, n.columns == 1 ? 680 : 1000, (int)(40 + 340 * n.rows)));
    for (int64_t i = 0; i < a->cell_count * a->arm_count; i++)
        curve_data(g.out.f, "valid", i, &p->valid[i], 0.2 * n.last, &s);
    for (int64_t c = 0; c < a->cell_count; c++) pl_span_widen(&s, a->arm_rows[c * a->arm_count].reference[0]);
    pl_figure_plot(&g);
    panels_begin(g.out.f, n.rows, n.columns, "validation error, mean and range over seeds", "epoch",
                 p->kind.axis);
    decades(g.out.f, s.least / 1.15, s.most * 3);
    for (int64_t c = 0; c < a->cell_count; c++) {
        double reference = a->arm_rows[c * a->arm_count].reference[0];
        curve_panel(g.out.f, a, a->cells[c], "valid", c * a->arm_count, p->valid + c * a->arm_count, NULL);
        if (!isnan(reference)) {
            fprintf(g.out.f, "  %.17g with lines dt 2 lw 1.5 lc rgb \"" PL_REFERENCE_COLOUR "\" title ",
                    reference);
            pl_figure_string(g.out.f, a->references[0]->line);
            fputs(", \\\n", g.out.f);
        }
        panel_end(g.out.f);
    }
    fputs("unset multiplot\n", g.out.f);
    return pl_figure_end(&g, POLAR_OK);
}

/* The curve of the part beside this one in the cell, or NULL. */
static const pl_curve *curve_beside(const pl_section *p, int64_t cell, const pl_audit_arm **row)
{
    const pl_section *q = p->beside;
    int64_t other = q ? pl_section_cell(q, p->audit->cells[cell]) : -1,
            arm = q ? pl_section_arm(q, p->beside_how->curve) : -1;
    if (other < 0 || arm < 0 || pl_section_arm(p, p->beside_how->curve) < 0) return NULL;
    if (row) *row = &q->audit->arm_rows[other * q->audit->arm_count + arm];
    const pl_curve *c = &q->valid[other * q->audit->arm_count + arm];
    return c->count ? c : NULL;
}

static void accuracy_panel(FILE *f, const pl_section *p, int64_t cell, int64_t since)
{
    const pl_audit *a = p->audit;
    const pl_audit_arm *row = NULL;
    char name[160];
    if (since) { /* down to the key */
        double key = fmin(0.06 * (double)(a->arm_count + 1), 0.5);
        fprintf(f,
                "set arrow from %" PRId64 ", graph %g to %" PRId64
                ", graph 1 nohead dt 3 lw 1.5 lc rgb \"#404040\"\n",
                since, key, since);
        fprintf(f, "set label \"%" PRId64 " \" at %" PRId64 ", graph 0.97 right textcolor rgb \"#404040\"\n",
                since, since);
    }
    curve_panel(f, a, a->cell_count > 1 ? a->cells[cell] : "", "valid", cell * a->arm_count,
                p->valid + cell * a->arm_count, a->arm_rows + cell * a->arm_count);
    if (curve_beside(p, cell, &row)) {
        fprintf(f, "  $beside%" PRId64 " using 1:2 with lines dt (9,4) lw 2 lc rgb \"%s\"", cell,
                pl_figure_colour(a, pl_section_arm(p, p->beside_how->curve)));
        snprintf(name, sizeof name, "%.50s, %.100s", p->beside_how->curve, p->beside->spec->name);
        put_title(f, p->beside->audit, name, row);
    }
    panel_end(f);
}

/* Accuracies rise on a linear axis, and no run stops early. */
static polar_status draw_accuracies(pl_section *p, const char *dir, pl_section_figure *out, panels n)
{
    const pl_audit *a = p->audit;
    pl_span s = PL_SPAN_NONE;
    pl_figure g;
    pl_overtake crossing = {0};
    const pl_curve *beside = curve_beside(p, 0, NULL);
    int many = a->arm_count > 6; /* too many for a key inside */
    if (beside) PL_TRY(pl_crossover_measure(&crossing, p, p->beside, 0, p->beside_how->curve, 0));
    /* schedules of different lengths do not cross in any sense */
    if ((double)crossing.epochs != n.last || a->cell_count > 1) crossing.since = 0;
    char dashed[160] = "", dotted[160] = "";
    if (beside)
        snprintf(dashed, sizeof dashed, " Dashed: %.50s under %.60s (n = %" PRId64 ").", p->beside_how->curve,
                 p->beside->spec->name, beside->runs);
    if (crossing.since)
        snprintf(dotted, sizeof dotted,
                 " Dotted: after %" PRId64
                 " epochs, since when it has been ahead of the solid one, paired by seed.",
                 crossing.since);
    snprintf(out->caption, sizeof out->caption,
             "%s after every epoch: mean over finished runs (up to n = %" PRId64
             " per arm), bands from the least to the largest over seeds; "
             "in the key each arm's result, mean over seeds.%s%s",
             p->kind.what, n.runs, dashed, dotted);
    PL_TRY(pl_figure_begin(&g, dir, out->name, n.columns == 1 && !many ? 760 : 1000,
                           (int)(40 + (n.columns == 1 ? 430 : 360) * n.rows)));
    for (int64_t i = 0; i < a->cell_count * a->arm_count; i++)
        curve_data(g.out.f, "valid", i, &p->valid[i], 0, &s);
    for (int64_t c = 0; c < a->cell_count; c++)
        if (curve_beside(p, c, NULL)) curve_data(g.out.f, "beside", c, curve_beside(p, c, NULL), 0, &s);
    pl_figure_plot(&g);
    panels_begin(g.out.f, n.rows, n.columns, "test accuracy, mean and range over seeds", "epochs done",
                 p->kind.axis);
    fprintf(g.out.f,
            "set key %s vertical Right noreverse samplen 2.6 spacing 1.15\nset xrange [0:%g]\nset yrange "
            "[0:%g]\n",
            many ? "outside right center" : "inside right bottom", n.last, fmin(100, ceil(s.most * 1.05)));
    for (int64_t c = 0; c < a->cell_count; c++) accuracy_panel(g.out.f, p, c, crossing.since);
    fputs("unset multiplot\n", g.out.f);
    return pl_figure_end(&g, POLAR_OK);
}

polar_status pl_draw_trajectories(pl_section *p, const char *dir)
{
    pl_section_figure *out = pl_section_add_figure(p, "trajectories", p->kind.heading);
    return p->kind.accuracy ? draw_accuracies(p, dir, out, count_panels(p))
                            : draw_errors(p, dir, out, count_panels(p));
}

/* ---- gauge violation ---- */

#define MOST_MAPS 6
#define MOST_ARMS 16

/* The plot itself; curves (maps, MOST_ARMS). */
static polar_status plot_gauge(pl_section *p, const char *dir, int64_t cell, const char maps[][24],
                               int n_maps, const pl_curve *curves)
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
    pl_section_figure *out = pl_section_add_figure(p, name, title);
    snprintf(out->caption, sizeof out->caption,
             "Every Schur block has shadow optimisers that are fed P g Q^T, with P and Q fixed, random and "
             "orthogonal: relative deviation of their update from P u Q^T, mean over runs "
             "(up to n = %" PRId64
             " per arm), blocks and shadows, bands from the least to the largest; one panel per polar map. A "
             "gauge-equivariant rule stays at the map's rounding.",
             runs);
    PL_TRY(pl_figure_begin(&g, dir, out->name, columns == 1 ? 680 : 1000, 40 + 340 * rows));
    for (int i = 0; i < n_maps * MOST_ARMS; i++) curve_data(g.out.f, "gauge", i, &curves[i], 0, &s);
    pl_figure_plot(&g);
    panels_begin(g.out.f, rows, columns, title, "step", "deviation from P u Q^T");
    decades(g.out.f, s.least / 1.3, s.most * 1.3);
    fputs("set logscale x\nset key inside right top at graph 0.98,0.88 maxrows 2\n", g.out.f);
    for (int i = 0; i < n_maps; i++) {
        curve_panel(g.out.f, a, maps[i], "gauge", i * MOST_ARMS, curves + i * MOST_ARMS, NULL);
        panel_end(g.out.f);
    }
    fputs("unset multiplot\n", g.out.f);
    return pl_figure_end(&g, POLAR_OK);
}

polar_status pl_draw_gauge(pl_section *p, pl_store *s, const char *dir, int64_t cell)
{
    int64_t arms = p->audit->arm_count;
    char maps[MOST_MAPS][24] = {{0}};
    int n_maps = 0;
    pl_curve curves[MOST_MAPS * MOST_ARMS] = {{0}};
    PL_TRY(pl_section_gauge_maps(maps, &n_maps, MOST_MAPS, s, p, cell));
    if (!n_maps || arms > MOST_ARMS || p->figure_count == PL_SECTION_FIGURES) return POLAR_OK;
    polar_status st = POLAR_OK;
    for (int m = 0; m < n_maps; m++)
        for (int64_t r = 0; r < arms && st == POLAR_OK; r++)
            st = pl_section_gauge(&curves[m * MOST_ARMS + r], s, p, cell, r, maps[m]);
    if (st == POLAR_OK) st = plot_gauge(p, dir, cell, (const char(*)[24])maps, n_maps, curves);
    for (int i = 0; i < MOST_MAPS * MOST_ARMS; i++) pl_curve_free(&curves[i]);
    return st;
}
