/* report_figures.c -- means against cells, paired differences, wall times; and which figures a part gets. */
#include "report/figure/report_figures.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "report/figure/curve_figures.h"
#include "report/audit/audit_print.h"
#include "report/figure/figure.h"

#define MOST_PANELS 15 /* pairs of arms: more would fill pages */
/* panels and labels along an axis: more cannot be read, and pictures would have no bound */
#define MOST_CELLS 64
#define MOST_ARMS  64

/* ---- axes ---- */

/* From zero where that leaves the values readable, by decades where it does not; accuracies, which are all
 * alike, by what they span. */
static void put_range(FILE *f, pl_span s, int percent)
{
    double margin = percent ? fmax(0.12 * (s.most - s.least), 0.5) : 0;
    if (percent && s.most > 0)
        fprintf(f, "set yrange [%.4g:%.4g]\nset format y \"%%g\"\n", fmax(s.least - margin, 0),
                fmin(s.most + margin, 100));
    else if (s.most > 20 * s.least)
        fprintf(f, "set logscale y\nset yrange [%.3g:%.3g]\nset format y \"%%g\"\n", s.least / 1.6,
                s.most * 1.6);
    else fprintf(f, "set yrange [0:%.3g]\nset format y \"%%g\"\n", s.most > 0 ? 1.12 * s.most : 1);
}

/* With one cell the arms stand along the axis, each under its name; with several, side by side within each.
 */
static int arms_along(const pl_audit *a)
{
    return a->cell_count == 1;
}

static void put_arm_tics(FILE *f, const pl_audit *a)
{
    fprintf(f, "set xrange [0.5:%g]\nset xtics%s (", (double)a->arm_count + 0.6,
            a->arm_count > 6 ? " rotate by -35" : "");
    for (int64_t r = 0; r < a->arm_count; r++) {
        if (r) fputs(", ", f);
        pl_figure_tic(f, a->arms[r]);
        fprintf(f, " %" PRId64, r + 1);
    }
    fputs(")\n", f);
}

/* The most lines that a cell's label has. */
static int label_lines(const pl_audit *a)
{
    char label[128];
    int most = 1;
    for (int64_t c = 0; c < a->cell_count; c++) {
        int lines = 1;
        pl_figure_cell(label, a, c);
        for (const char *p = label; *p; p++) lines += *p == '\n';
        most = lines > most ? lines : most;
    }
    return most;
}

static void put_cell_tics(FILE *f, const pl_audit *a, double margin)
{
    char axis[64], label[128];
    const int most = label_lines(a);
    fprintf(f, "set xrange [%g:%g]\nset xtics (", 1 - margin, (double)a->cell_count + margin);
    for (int64_t c = 0; c < a->cell_count; c++) {
        pl_figure_cell(label, a, c);
        if (c) fputs(", ", f);
        pl_figure_tic(f, label);
        fprintf(f, " %" PRId64, c + 1);
    }
    fputs(")\n", f);
    const int named = *pl_figure_axis(axis, a) != 0;
    /* gnuplot leaves room for one line */
    if (most > 1) fprintf(f, "set bmargin %d\n", most + (named ? 3 : 2));
    if (named) {
        fputs("set xlabel ", f);
        pl_figure_string(f, axis);
        fprintf(f, " offset 0,%d\n", 1 - most);
    }
}

/* Where an arm stands beside the middle of its cell. */
static double beside(const pl_audit *a, int64_t arm)
{
    if (arms_along(a)) return (double)arm;
    double step = a->arm_count > 1 ? fmin(0.1, 0.5 / (double)(a->arm_count - 1)) : 0;
    return step * ((double)arm - 0.5 * (double)(a->arm_count - 1));
}

static void count_runs(char out[48], const pl_audit *a)
{
    int64_t least = INT64_MAX, most = 0;
    for (int64_t i = 0; i < a->cell_count * a->arm_count; i++) {
        int64_t n = a->arm_rows[i].s.n;
        if (n < least) least = n;
        if (n > most) most = n;
    }
    if (least == most) snprintf(out, 48, "n = %" PRId64, most);
    else snprintf(out, 48, "n = %" PRId64 " to %" PRId64, a->arm_count ? least : 0, most);
}

/* ---- means against cells: the metric, and the seconds ---- */

static void means_data(FILE *f, const pl_audit *a, int by_range, pl_span *s)
{
    for (int64_t r = 0; r < a->arm_count; r++) {
        fprintf(f, "$arm%" PRId64 " << EOD\n", r);
        for (int64_t c = 0; c < a->cell_count; c++) {
            const pl_audit_arm *row = &a->arm_rows[c * a->arm_count + r];
            double numbers[] = {(double)(c + 1) + beside(a, r), row->s.mean,
                                by_range ? row->s.min : row->s.ci_lo, by_range ? row->s.max : row->s.ci_hi,
                                pl_published_value(a->published, row->cell, row->arm, a->metric)};
            for (int i = 0; i < 5; i++) pl_figure_number(f, numbers[i]);
            for (int i = 1; i < 5; i++) pl_span_widen(s, numbers[i]);
            fputc('\n', f);
        }
        fputs("EOD\n", f);
    }
}

/* The reference values, a bar across each cell; how many of them have a value. */
static int reference_data(FILE *f, const pl_audit *a, pl_span *s)
{
    int lines = 0;
    for (int kind = 0; kind < a->reference_count; kind++) {
        int any = 0;
        fprintf(f, "$reference%d << EOD\n", kind);
        for (int64_t c = 0; c < a->cell_count; c++) {
            double y = NAN;
            for (int64_t r = 0; r < a->arm_count && isnan(y); r++)
                y = a->arm_rows[c * a->arm_count + r].reference[kind];
            any |= !isnan(y);
            pl_span_widen(s, y);
            pl_figure_number(f, (double)c + 0.55);
            pl_figure_number(f, y);
            fprintf(f, " %g 0\n", arms_along(a) ? (double)a->arm_count - 0.1 : 0.9);
        }
        fputs("EOD\n", f);
        if (any && lines == kind) lines++;
    }
    return lines;
}

static int has_published(const pl_audit *a)
{
    for (int64_t i = 0; i < a->cell_count * a->arm_count; i++)
        if (!isnan(pl_published_value(a->published, a->arm_rows[i].cell, a->arm_rows[i].arm, a->metric)))
            return 1;
    return 0;
}

static void means_plot(FILE *f, const pl_audit *a, int references)
{
    char axis[64];
    int joined = *pl_figure_axis(axis, a) && !strchr(axis, ',') && a->cell_count > 1;
    fputs("plot \\\n", f);
    for (int k = 0; k < references; k++) {
        fprintf(f,
                "  $reference%d using 1:2:3:4 with vectors nohead dt %d lw 1.6 lc rgb \"" PL_REFERENCE_COLOUR
                "\" title ",
                k, 2 + k);
        pl_figure_string(f, a->references[k]->line);
        fputs(", \\\n", f);
    }
    for (int64_t r = 0; r < a->arm_count; r++) {
        const char *colour = pl_figure_colour(a, r);
        if (joined)
            fprintf(f, "  $arm%" PRId64 " using 1:2 with lines lw 1.4 lc rgb \"%s\" notitle, \\\n", r,
                    colour);
        fprintf(f, "  $arm%" PRId64 " using 1:2:3:4 with yerrorbars pt 0 lw 1.6 lc rgb \"%s\" notitle, \\\n",
                r, colour);
        fprintf(f, "  $arm%" PRId64 " using 1:2 with points pt %d ps 1 lc rgb \"%s\" title ", r,
                pl_figure_mark(r, 0), colour);
        pl_figure_string(f, arms_along(a) ? "" : a->arms[r]);
        fputs(", \\\n", f);
        if (has_published(a))
            fprintf(f,
                    "  $arm%" PRId64
                    " using ($1+%g):5 with points pt %d ps 1.2 lw 1.4 lc rgb \"%s\" notitle, \\\n",
                    r, arms_along(a) ? 0.14 : 0.07, pl_figure_mark(r, 1), colour);
    }
    if (has_published(a)) {
        fputs("  NaN with points pt 6 ps 1.2 lw 1.4 lc rgb \"#404040\" title ", f);
        pl_figure_string(f, pl_published_by(a->published));
        fputs(", \\\n", f);
    }
    fputs("  NaN notitle\n", f);
}

static polar_status draw_means(pl_section *p, const char *dir, const pl_audit *a, int wall)
{
    char title[128], n[48];
    pl_span s = PL_SPAN_NONE;
    pl_figure g;
    pl_metric metric = a->shown;
    snprintf(title, sizeof title, "%.80s with 95 %% intervals", a->metric);
    pl_section_figure *out =
        pl_section_add_figure(p, wall ? "wall" : "metric", wall ? "Wall time per run" : title);
    count_runs(n, a);
    snprintf(out->caption, sizeof out->caption, "%s over seeds (%s), bars: %s.%s%s%s%s%s",
             wall ? "Seconds per run, mean" : "Mean", n,
             wall ? "from the fastest to the slowest run" : "95 % interval by Student's t",
             metric.better > 0 ? " Higher is better."
             : metric.better   ? " Lower is better."
                               : "",
             has_published(a) ? " Hollow marks: published." : "",
             wall ? " Runs that shared a machine or stopped early are not comparable; " : "",
             wall && p->kind.timing ? p->kind.timing : "",
             wall                         ? "."
             : pl_audit_has_references(a) ? " Dashed and dotted: reference values, said below the table."
                                          : "");
    double width = 420 + 90 * (double)(a->cell_count * (a->arm_count > 4 ? 2 : 1));
    PL_TRY(pl_figure_begin(&g, dir, out->name, (int)fmin(fmax(width, 640), 1400), 430));
    means_data(g.out.f, a, wall, &s);
    int references = reference_data(g.out.f, a, &s);
    pl_figure_plot(&g);
    put_range(g.out.f, s, metric.percent);
    if (arms_along(a)) put_arm_tics(g.out.f, a);
    else put_cell_tics(g.out.f, a, 0.5);
    fputs("set ylabel ", g.out.f);
    pl_figure_string(g.out.f, metric.title);
    fputc('\n', g.out.f);
    means_plot(g.out.f, a, references);
    return pl_figure_end(&g, POLAR_OK);
}

/* ---- paired differences, a panel for every pair of arms ---- */

static int64_t pairs_per_cell(const pl_audit *a)
{
    return a->arm_count * (a->arm_count - 1) / 2;
}

static void difference_data(FILE *f, const pl_audit *a, int64_t k)
{
    fprintf(f, "$seed%" PRId64 " << EOD\n", k);
    for (int64_t c = 0; c < a->cell_count; c++) {
        const pl_audit_pair *q = &a->pairs[c * pairs_per_cell(a) + k];
        for (int64_t i = 0; i < q->s.n; i++) {
            pl_figure_number(f, (double)(c + 1) - 0.08 + 0.5 * (((double)i + 0.5) / (double)q->s.n - 0.5));
            pl_figure_number(f, q->values_a[i] - q->values_b[i]);
            fputc('\n', f);
        }
    }
    fprintf(f, "EOD\n$mean%" PRId64 " << EOD\n", k);
    for (int64_t c = 0; c < a->cell_count; c++) {
        const pl_audit_pair *q = &a->pairs[c * pairs_per_cell(a) + k];
        double numbers[] = {(double)(c + 1) + 0.28, q->s.mean_diff, q->s.ci_lo, q->s.ci_hi,
                            pl_published_pair_of(a->published, q->cell, q->a, q->b, a->metric).mean};
        for (int i = 0; i < 5; i++) pl_figure_number(f, numbers[i]);
        fputc('\n', f);
    }
    fputs("EOD\n", f);
}

static void difference_panel(FILE *f, const pl_audit *a, int64_t k)
{
    char title[256], label[160], cell[128];
    snprintf(title, sizeof title, "%.100s - %.100s", a->pairs[k].a, a->pairs[k].b);
    fputs("set title ", f);
    pl_figure_string(f, title);
    fputs("\nset xtics (", f);
    for (int64_t c = 0; c < a->cell_count; c++) {
        const pl_audit_pair *q = &a->pairs[c * pairs_per_cell(a) + k];
        pl_figure_cell(cell, a, c);
        snprintf(label, sizeof label, "%s\n%" PRId64 "/%" PRId64, cell, q->s.positive, q->s.n);
        if (c) fputs(", ", f);
        pl_figure_tic(f, label);
        fprintf(f, " %" PRId64, c + 1);
    }
    fprintf(f,
            ")\nplot 0 with lines lw 1.2 lc rgb \"#404040\" notitle, \\\n"
            "  $seed%" PRId64 " using 1:2 with points pt 7 ps 0.65 lc rgb \"#4056B4E9\" notitle, \\\n"
            "  $mean%" PRId64 " using 1:2:3:4 with yerrorbars pt 0 lw 2 lc rgb \"#0072B2\" notitle, \\\n"
            "  $mean%" PRId64 " using 1:2 with points pt 7 ps 0.9 lc rgb \"#0072B2\" notitle, \\\n"
            "  $mean%" PRId64
            " using ($1+0.12):5 with points pt 12 ps 1.2 lw 1.5 lc rgb \"#D55E00\" notitle\n",
            k, k, k, k);
}

static int has_published_pair(const pl_audit *a)
{
    for (int64_t i = 0; i < a->pair_count; i++)
        if (!isnan(
                pl_published_pair_of(a->published, a->pairs[i].cell, a->pairs[i].a, a->pairs[i].b, a->metric)
                    .mean))
            return 1;
    return 0;
}

static polar_status draw_differences(pl_section *p, const char *dir)
{
    const pl_audit *a = p->audit;
    int64_t panels = pairs_per_cell(a), columns = panels < 3 ? panels : 3,
            rows = (panels + columns - 1) / columns;
    char title[128], axis[64];
    pl_figure g;
    pl_section_figure *out = pl_section_add_figure(p, "differences", "Paired differences, seed by seed");
    snprintf(out->caption, sizeof out->caption,
             "Differences of %.40s between two arms on the same seed, one light dot per seed in the order of "
             "the plan; below the axis how many are positive. Dark: mean and 95 %% "
             "interval by the paired t.%s Pairs with an unfinished or diverged run are not here but in the "
             "list below.",
             a->metric, has_published_pair(a) ? " Vermilion diamond: the published difference." : "");
    PL_TRY(pl_figure_begin(&g, dir, out->name, columns == 1 ? 640 : 1000, (int)(40 + 340 * rows)));
    for (int64_t k = 0; k < panels; k++) difference_data(g.out.f, a, k);
    pl_figure_plot(&g);
    snprintf(title, sizeof title, "%.40s, paired by seed", a->metric);
    fputs("set multiplot layout ", g.out.f);
    fprintf(g.out.f, "%" PRId64 ",%" PRId64 " title ", rows, columns);
    pl_figure_string(g.out.f, title);
    fprintf(g.out.f, "\nset xrange [0.5:%g]\nset format y \"%%g\"\nset key off\n",
            (double)a->cell_count + 0.55);
    pl_figure_axis(axis, a);
    const int wide = strlen(axis) > 12; /* a third of the width holds so much and "; positive / all pairs" */
    snprintf(title, sizeof title, "%s%spositive / all pairs", axis, !*axis ? "" : wide ? ";\n" : "; ");
    fputs("set xlabel ", g.out.f);
    pl_figure_string(g.out.f, title);
    const double more = label_lines(a) - 1;
    fprintf(g.out.f, " offset 0,%g\nset bmargin %g\nset tmargin 3.4\n", -1.2 - more, 5.5 + more + wide);
    for (int64_t k = 0; k < panels; k++) difference_panel(g.out.f, a, k);
    fputs("unset multiplot\n", g.out.f);
    return pl_figure_end(&g, POLAR_OK);
}

/* ---- all of them ---- */

/* Keeps POLAR_E_UNSUPPORTED (no gnuplot) to the end: the scripts are written all the same. A figure that
 * gnuplot refuses (values no axis can hold) is left out with its reason. */
static polar_status go_on(pl_section *p, polar_status *kept, polar_status st)
{
    if (st == POLAR_E_FORMAT && p->figure_count) {
        snprintf(p->no_figures, sizeof p->no_figures, "A figure is missing: %s", pl_fail_sentence());
        p->figure_count--;
        return POLAR_OK;
    }
    if (st != POLAR_E_UNSUPPORTED) return st;
    *kept = st;
    return POLAR_OK;
}

polar_status pl_section_draw(pl_section *p, pl_store *s, const char *dir)
{
    const pl_audit *a = p->audit;
    polar_status kept = POLAR_OK;
    int64_t values = 0, timed = 0, curves = 0, pairs = 0;
    for (int64_t i = 0; i < a->cell_count * a->arm_count; i++) {
        values += a->arm_rows[i].s.n;
        timed += p->wall->arm_rows[i].s.n;
        curves += p->valid[i].count;
    }
    for (int64_t i = 0; i < a->pair_count; i++) pairs += a->pairs[i].s.n;
    if (a->cell_count > MOST_CELLS || a->arm_count > MOST_ARMS) {
        snprintf(p->no_figures, sizeof p->no_figures,
                 "No figures: more than %d cells or %d arms could not be told apart.", MOST_CELLS, MOST_ARMS);
        return POLAR_OK;
    }
    if (values && strcmp(a->metric, PL_METRIC_WALL)) PL_TRY(go_on(p, &kept, draw_means(p, dir, a, 0)));
    if (pairs && pairs_per_cell(a) <= MOST_PANELS) PL_TRY(go_on(p, &kept, draw_differences(p, dir)));
    if (curves) PL_TRY(go_on(p, &kept, pl_draw_trajectories(p, dir)));
    if (timed) PL_TRY(go_on(p, &kept, draw_means(p, dir, p->wall, 1)));
    for (int64_t c = 0; c < a->cell_count; c++) PL_TRY(go_on(p, &kept, pl_draw_gauge(p, s, dir, c)));
    return kept;
}
