/* figure.h -- one figure as a gnuplot script that draws it twice, SVG and PNG.
 *
 *     PL_TRY(pl_figure_begin(&g, dir, "small_metric", 760, 440));
 *     fprintf(g.out.f, "$arm0 << EOD\n...\nEOD\n");           // data first
 *     pl_figure_plot(&g);                                     // then what is done for each of the two
 *     fprintf(g.out.f, "plot $arm0 using 1:2 with lines\n");
 *     // POLAR_E_UNSUPPORTED: the script is there, gnuplot is not
 *     st = pl_figure_end(&g, st);
 *
 * The script stays beside the figures: `gnuplot small_metric.gp` draws them again. Colours are those of
 * Okabe and Ito, which colour-blind readers can tell apart, and every arm has a mark of its own besides.
 */
#ifndef PL_REPORT_FIGURE_H
#define PL_REPORT_FIGURE_H

#include <math.h>
#include <stdint.h>

#include "report/audit/audit.h"
#include "report/report_files.h"

typedef struct pl_figure {
    pl_out_file out;
    const char *dir; /* borrowed */
    char script[112];
    int plotting;
} pl_figure;

typedef struct pl_span {
    double least, most; /* of finite positive values; NaN without any */
} pl_span;

#define PL_SPAN_NONE \
    {                \
        NAN, NAN     \
    }
#define PL_REFERENCE_COLOUR "#777777" /* of the least-squares predictors */

/* name: [a-z0-9_]+; pixels of the SVG */
polar_status pl_figure_begin(pl_figure *g, const char *dir, const char *name, int width, int height);
/* after the data, before the plot commands */
void pl_figure_plot(pl_figure *g);
/* writes the script and draws, unless st says it went wrong */
polar_status pl_figure_end(pl_figure *g, polar_status st);

/* to hold x, if it is finite and positive */
void pl_span_widen(pl_span *s, double x);
/* a string of gnuplot's in which nothing is interpreted; "\n" in s begins a new line */
void pl_figure_string(FILE *f, const char *s);
/* the same for the label of a tic, which gnuplot takes for a format */
void pl_figure_tic(FILE *f, const char *s);
/* " x", all digits; NaN stays away from the plot */
void pl_figure_number(FILE *f, double x);
/* "#0072B2"; of known rules always the same */
const char *pl_figure_colour(const pl_audit *a, int64_t arm);
int pl_figure_mark(int64_t arm, int hollow); /* gnuplot's point type */
/* "model.width", or "model.width, optim.lr", when all cells are values of these, else "" */
const char *pl_figure_axis(char out[64], const pl_audit *a);
/* the cell's label on that axis, a line for each key */
void pl_figure_cell(char out[128], const pl_audit *a, int64_t cell);

#endif
