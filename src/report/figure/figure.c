/* figure.c -- see figure.h. */
#include "report/figure/figure.h"

#include <string.h>

#include "base/json_write.h"
#include "base/text_visible.h"
#include "polar/optim.h"
#include "report/figure/gnuplot.h"

polar_status pl_figure_begin(pl_figure *g, const char *dir, const char *name, int width, int height)
{
    *g = (pl_figure){.dir = dir};
    snprintf(g->script, sizeof g->script, "%s.gp", name);
    PL_TRY(pl_out_begin(&g->out, dir, g->script));
    fprintf(g->out.f,
            "# %s -- written by `polar report`; `gnuplot %s` draws %s.svg and %s.png again\n"
            "set encoding utf8\nset datafile missing \"NaN\"\n"
            "svg = 'set terminal svg size %d,%d dynamic noenhanced font \"Arial,13\" background \"white\"; "
            "set output \"%s.svg\"'\n"
            "png = 'set terminal pngcairo size %d,%d noenhanced font \"Sans,12\" fontscale 1.8 linewidth 2 "
            "pointscale 1.8 background \"white\"; set output \"%s.png\"'\n",
            g->script, g->script, name, name, width, height, name, 2 * width, 2 * height, name);
    return POLAR_OK;
}

void pl_figure_plot(pl_figure *g)
{
    g->plotting = 1;
    fputs("do for [kind in \"svg png\"] {\n"
          "eval(value(kind))\n"
          "set border 3 lw 1 lc rgb \"#404040\"\n"
          "set tics nomirror out scale 0.6 textcolor rgb \"#202020\"\n"
          "set grid ytics back lt 1 lw 0.6 lc rgb \"#d8d8d8\"\n"
          "set style fill transparent solid 0.16 noborder\n"
          "set errorbars 1.2\n"
          "set key above horizontal left Left reverse samplen 1.8 spacing 1.1 textcolor rgb \"#202020\"\n",
          g->out.f);
}

polar_status pl_figure_end(pl_figure *g, polar_status st)
{
    if (g->plotting) fputs("unset output\n}\n", g->out.f);
    PL_TRY(pl_out_end(&g->out, st));
    return pl_gnuplot_run(g->dir, g->script);
}

void pl_span_widen(pl_span *s, double x)
{
    if (!isfinite(x) || x <= 0) return;
    if (!(s->least <= x)) s->least = x;
    if (!(s->most >= x)) s->most = x;
}

/* Whatever stands in s, gnuplot reads letters, digits, blanks and octal escapes: inside double quotes it
 * would run what is between backticks, and its lexer also looks for quotes, backslashes, braces, macros (@)
 * and comments (#). A format's % is doubled where gnuplot takes the text for one. */
static void put_string(FILE *f, const char *s, int format)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,:;=_+-/()";
    char room[PL_VISIBLE_CHARS];
    int escaped = 0; /* a digit behind an escape would be read as part of it */
    fputc('"', f);
    while (*s) {
        s += *s == '\n' ? (strcpy(room, "\n"), 1) : pl_text_visible(room, s);
        for (const char *c = room; *c; c++) {
            escaped = !strchr(plain, *c) || (escaped && *c >= '0' && *c <= '9');
            if (escaped) fprintf(f, "\\%03o", (unsigned char)*c);
            else fputc(*c, f);
            if (*c == '%' && format) fputs("\\045", f);
        }
    }
    fputc('"', f);
}

void pl_figure_string(FILE *f, const char *s)
{
    put_string(f, s, 0);
}
void pl_figure_tic(FILE *f, const char *s)
{
    put_string(f, s, 1);
}

void pl_figure_number(FILE *f, double x)
{
    char text[PL_DOUBLE_CHARS];
    fprintf(f, " %s", isfinite(x) ? pl_double_print(text, x) : "NaN");
}

/* ---- arms ---- */

#define PALETTE 8

/* in the order of the rules */
static const char *const palette[PALETTE] = {"#D55E00", "#E69F00", "#0072B2", "#009E73",
                                             "#CC79A7", "#56B4E9", "#8C6D31", "#555555"};
/* in which other arms take those that are left */
static const int other_order[PALETTE] = {1, 2, 3, 4, 5, 0, 6, 7};

static int rule_place(const char *arm)
{
    for (int i = 0; i < PALETTE && polar_rule_name(i); i++)
        if (!strcmp(arm, polar_rule_name(i))) return i;
    return -1;
}

/* Rules have their own colour; the others take, in their order, those that are left. */
const char *pl_figure_colour(const pl_audit *a, int64_t arm)
{
    int used[PALETTE] = {0}, place = 0;
    for (int64_t i = 0; i < a->arm_count; i++)
        if (rule_place(a->arms[i]) >= 0) used[rule_place(a->arms[i])] = 1;
    for (int64_t i = 0; i <= arm; i++) {
        int next = 0;
        place = rule_place(a->arms[i]);
        if (place >= 0) continue;
        while (next < PALETTE && used[other_order[next]]) next++;
        if (next == PALETTE) { /* more arms than colours: begin again */
            memset(used, 0, sizeof used);
            next = 0;
        }
        place = other_order[next];
        used[place] = 1;
    }
    return palette[place];
}

int pl_figure_mark(int64_t arm, int hollow)
{
    static const int marks[] = {7, 5, 9, 13, 11, 15};
    return marks[arm % 6] - (hollow ? 1 : 0);
}

/* ---- cells ---- */

/* The length of the key of "key=value" if that is the whole cell, else 0. */
static size_t only_key(const char *cell)
{
    const char *equals = strchr(cell, '=');
    return equals && !strchr(cell, ' ') ? (size_t)(equals - cell) : 0;
}

const char *pl_figure_axis(char out[64], const pl_audit *a)
{
    *out = 0;
    size_t n = a->cell_count ? only_key(a->cells[0]) : 0;
    for (int64_t i = 0; i < a->cell_count; i++)
        if (only_key(a->cells[i]) != n || strncmp(a->cells[i], a->cells[0], n)) n = 0;
    if (n && n < 64) snprintf(out, 64, "%.*s", (int)n, a->cells[0]);
    return out;
}

void pl_figure_cell(char out[128], const pl_audit *a, int64_t cell)
{
    char axis[64];
    const char *name = a->cells[cell];
    if (*pl_figure_axis(axis, a)) name += strlen(axis) + 1;
    snprintf(out, 128, "%s", name);
    for (char *c = out; *c; c++)
        if (*c == ' ') *c = '\n';
}
