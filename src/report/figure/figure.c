/* figure.c -- see figure.h. */
#include "report/figure/figure.h"

#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/json_write.h"
#include "base/string_build.h"
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

/* The script's name with another ending, in its folder. */
static polar_status path_beside(char **out, const pl_figure *g, const char *ending)
{
    pl_string s = {0};
    pl_string_add(&s, "%s/%.*s%s", g->dir, (int)strcspn(g->script, "."), g->script, ending);
    return pl_string_take(out, &s, "a path");
}

/* Whether the last bytes of the file hold these; gnuplot does not say when a disk was full. */
static int ends_in(const char *path, const char *last)
{
    char tail[33] = "";
    FILE *f = fopen(path, "rb");
    if (!f) return 0;
    size_t n = fseek(f, -16, SEEK_END) == 0 ? fread(tail, 1, sizeof tail - 1, f) : 0;
    fclose(f);
    return memmem(tail, n, last, strlen(last)) != NULL;
}

/* A drawing that is not whole goes. */
static polar_status check_drawing(const pl_figure *g, const char *ending, const char *last)
{
    char *path = NULL;
    polar_status st = path_beside(&path, g, ending);
    if (st == POLAR_OK && !ends_in(path, last)) {
        unlink(path);
        st = PL_FAIL(POLAR_E_IO, "write '%s': gnuplot did not get all of it to the disk (is it full?)", path);
    }
    pl_free(path);
    return st;
}

polar_status pl_figure_end(pl_figure *g, polar_status st)
{
    if (g->plotting) fputs("unset output\n}\n", g->out.f);
    PL_TRY(pl_out_end(&g->out, st));
    PL_TRY(pl_gnuplot_run(g->dir, g->script));
    polar_status svg = check_drawing(g, ".svg", "</svg>"), png = check_drawing(g, ".png", "IEND");
    return svg == POLAR_OK ? png : svg;
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

/* The keys of "a=1 b=2" as "a, b"; 0: the cell is not made so, or they do not fit. */
static int keys_of(char out[64], const char *cell)
{
    size_t used = 0;
    for (const char *at = cell; *at; at += strcspn(at, " "), at += *at == ' ') {
        size_t key = strcspn(at, "= ");
        if (!key || at[key] != '=' || used + key + 3 > 64) return 0;
        used += (size_t)snprintf(out + used, 64 - used, "%s%.*s", used ? ", " : "", (int)key, at);
    }
    return used > 0;
}

const char *pl_figure_axis(char out[64], const pl_audit *a)
{
    char other[64];
    int same = a->cell_count && keys_of(out, a->cells[0]);
    for (int64_t i = 1; i < a->cell_count && same; i++)
        same = keys_of(other, a->cells[i]) && !strcmp(other, out);
    if (!same) *out = 0;
    return out;
}

void pl_figure_cell(char out[128], const pl_audit *a, int64_t cell)
{
    char axis[64];
    const int values = *pl_figure_axis(axis, a) != 0;
    size_t used = 0;
    *out = 0;
    for (const char *at = a->cells[cell]; *at && used < 127; at += *at == ' ') {
        if (values) at += strcspn(at, "=") + 1;
        used +=
            (size_t)snprintf(out + used, 128 - used, "%s%.*s", used ? "\n" : "", (int)strcspn(at, " "), at);
        at += strcspn(at, " ");
    }
}
