/* table.c -- cells in memory, and the ways to print them. */
#include "report/table/table.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/text_visible.h"

typedef enum cell_kind { CELL_NONE, CELL_TEXT, CELL_NUMBER, CELL_INTEGER } cell_kind;

typedef struct cell {
    cell_kind kind;
    char *text; /* owned */
    double number;
    int64_t integer;
} cell;

struct pl_table {
    const char *title;
    const pl_table_column *columns;
    int n_columns;
    int64_t n_rows, room; /* room: rows that fit */
    cell *cells;          /* (n_rows, n_columns) */
    int next;             /* column of the next cell */
    polar_status error;
};

polar_status pl_table_create(pl_table **out, const char *title, const pl_table_column *columns, int n_columns)
{
    pl_table *t = pl_calloc(1, sizeof *t);
    *out = NULL;
    PL_NEED(t, POLAR_E_NOMEM, "a table");
    *t = (pl_table){.title = title, .columns = columns, .n_columns = n_columns};
    *out = t;
    return POLAR_OK;
}

void pl_table_destroy(pl_table *t)
{
    if (!t) return;
    for (int64_t i = 0; i < t->n_rows * t->n_columns; i++) pl_free(t->cells[i].text);
    pl_free(t->cells);
    pl_free(t);
}

void pl_table_row(pl_table *t)
{
    if (t->error != POLAR_OK) return;
    size_t row_bytes = (size_t)t->n_columns * sizeof(cell);
    if (t->n_rows == t->room) {
        int64_t room = t->room ? 2 * t->room : 16;
        cell *cells = pl_realloc(t->cells, (size_t)t->room * row_bytes, (size_t)room * row_bytes);
        if (!cells) {
            t->error = PL_FAIL(POLAR_E_NOMEM, "a table of %lld rows", (long long)room);
            return;
        }
        t->cells = cells;
        t->room = room;
    }
    memset(t->cells + t->n_rows * t->n_columns, 0, row_bytes);
    t->n_rows++;
    t->next = 0;
}

/* The next cell of the last row, or NULL after an error. */
static cell *take_cell(pl_table *t)
{
    if (t->error != POLAR_OK) return NULL;
    assert(t->n_rows && t->next < t->n_columns);
    return &t->cells[(t->n_rows - 1) * t->n_columns + t->next++];
}

void pl_table_text(pl_table *t, const char *text)
{
    cell *c = take_cell(t);
    if (!c) return;
    c->text = pl_strdup(text);
    if (c->text) c->kind = CELL_TEXT;
    else t->error = PL_FAIL(POLAR_E_NOMEM, "a cell of a table");
}

void pl_table_number(pl_table *t, double x)
{
    cell *c = take_cell(t);
    if (c) *c = (cell){.kind = CELL_NUMBER, .number = x};
}

void pl_table_maybe(pl_table *t, double x)
{
    if (x == x) pl_table_number(t, x);
    else pl_table_none(t);
}

void pl_table_integer(pl_table *t, int64_t x)
{
    cell *c = take_cell(t);
    if (c) *c = (cell){.kind = CELL_INTEGER, .integer = x};
}

void pl_table_none(pl_table *t)
{
    take_cell(t);
}

static const cell *at(const pl_table *t, int64_t i, int j)
{
    return &t->cells[i * t->n_columns + j];
}

/* The cell as people read it; `room` holds a number's text. */
static const char *shown(char room[64], const cell *c, const pl_table_column *col, const char *none)
{
    if (c->kind == CELL_NONE) return none;
    if (c->kind == CELL_TEXT) return c->text;
    if (c->kind == CELL_INTEGER) snprintf(room, 64, "%lld", (long long)c->integer);
    else if (col->style == PL_CELL_SCI && c->number != 0) snprintf(room, 64, "%.*e", col->digits, c->number);
    else if (col->style == PL_CELL_SCI || col->style == PL_CELL_INTEGER) snprintf(room, 64, "%g", c->number);
    else snprintf(room, 64, "%.*f", col->digits, c->number);
    return room;
}

static int width(const char *s)
{
    char room[PL_VISIBLE_CHARS];
    int n = 0;
    while (*s) {
        s += pl_text_visible(room, s);
        n += *room & 0x80 ? 1 : (int)strlen(room); /* a character of several bytes takes one column */
    }
    return n;
}

static void put_text(FILE *f, const char *s)
{
    char room[PL_VISIBLE_CHARS];
    while (*s) {
        s += pl_text_visible(room, s);
        fputs(room, f);
    }
}

static void put_padded(FILE *f, const char *s, int room, int left)
{
    int pad = room - width(s);
    if (!left) fprintf(f, "%*s", pad, "");
    put_text(f, s);
    if (left) fprintf(f, "%*s", pad, "");
}

static int same_group(const pl_table *t, int a, int b)
{
    const char *x = t->columns[a].group, *y = t->columns[b].group;
    return x && y && !strcmp(x, y);
}

/* Last column of the run of one group that begins at j. */
static int group_end(const pl_table *t, int j)
{
    while (j + 1 < t->n_columns && same_group(t, j, j + 1)) j++;
    return j;
}

static int has_groups(const pl_table *t)
{
    for (int j = 0; j < t->n_columns; j++)
        if (t->columns[j].group) return 1;
    return 0;
}

#define GAP 2

static void text_groups(const pl_table *t, FILE *f, int *w)
{
    for (int j = 0; j < t->n_columns;) {
        int last = group_end(t, j), room = -GAP;
        const char *group = t->columns[j].group ? t->columns[j].group : "";
        for (int i = j; i <= last; i++) room += w[i] + GAP;
        if (width(group) > room) { /* a wide heading widens its last column */
            w[last] += width(group) - room;
            room = width(group);
        }
        int spare = room - width(group), lead = *group ? spare / 2 : spare; /* -- paper -- */
        fprintf(f, "%*s", j ? GAP : 0, "");
        for (int i = 0; i < lead; i++) fputc(*group && i < lead - 1 ? '-' : ' ', f);
        put_text(f, group);
        for (int i = 0; i < spare - lead; i++) fputc(i ? '-' : ' ', f);
        j = last + 1;
    }
    fputc('\n', f);
}

static void print_text(const pl_table *t, FILE *f, int *w)
{
    char room[64];
    for (int j = 0; j < t->n_columns; j++) {
        w[j] = width(t->columns[j].title);
        for (int64_t i = 0; i < t->n_rows; i++) {
            int n = width(shown(room, at(t, i, j), &t->columns[j], "-"));
            if (n > w[j]) w[j] = n;
        }
    }
    if (t->title) {
        put_text(f, t->title);
        fputc('\n', f);
    }
    if (has_groups(t)) text_groups(t, f, w);
    for (int64_t i = -1; i < t->n_rows; i++) {
        for (int j = 0; j < t->n_columns; j++) {
            int left = t->columns[j].style == PL_CELL_TEXT;
            const char *s = i < 0 ? t->columns[j].title : shown(room, at(t, i, j), &t->columns[j], "-");
            fprintf(f, "%*s", j ? GAP : 0, "");
            if (left && j == t->n_columns - 1) put_text(f, s); /* no blanks at the end of a line */
            else put_padded(f, s, w[j], left);
        }
        fputc('\n', f);
    }
}

/* pl_text_visible for formats that can hold line ends and tabs as they are. */
static int keep_blank(char room[PL_VISIBLE_CHARS], const char *s)
{
    if (*s != '\n' && *s != '\t') return pl_text_visible(room, s);
    snprintf(room, PL_VISIBLE_CHARS, "%c", *s);
    return 1;
}

/* A spreadsheet takes a text that begins so for a formula and would run it when the file is opened. Numbers
 * are none. */
static int is_formula(const char *s)
{
    char *end;
    if (!*s || !strchr("=+-@", *s) || !s[1]) return 0;
    (void)strtod(s, &end);
    return *end != 0;
}

static void csv_text(FILE *f, const char *s)
{
    char room[PL_VISIBLE_CHARS];
    int quoted = is_formula(s) || strpbrk(s, ",\"\r\n") != NULL;
    if (quoted) fputc('"', f);
    if (is_formula(s)) fputc('\'', f);
    while (*s) {
        s += keep_blank(room, s);
        fputs(*room == '"' ? "\"\"" : room, f);
    }
    if (quoted) fputc('"', f);
}

static void print_csv(const pl_table *t, FILE *f)
{
    char number[PL_DOUBLE_CHARS];
    for (int j = 0; j < t->n_columns; j++) {
        if (j) fputc(',', f);
        csv_text(f, t->columns[j].key);
    }
    fputc('\n', f);
    for (int64_t i = 0; i < t->n_rows; i++) {
        for (int j = 0; j < t->n_columns; j++) {
            const cell *c = at(t, i, j);
            if (j) fputc(',', f);
            if (c->kind == CELL_TEXT) csv_text(f, c->text);
            if (c->kind == CELL_NUMBER) fputs(pl_double_print(number, c->number), f);
            if (c->kind == CELL_INTEGER) fprintf(f, "%lld", (long long)c->integer);
        }
        fputc('\n', f);
    }
}

static void tex_text(FILE *f, const char *s)
{
    char room[PL_VISIBLE_CHARS];
    while (*s) {
        s += pl_text_visible(room, s);
        for (const char *c = room; *c; c++) {
            if (strchr("&%$#_{}", *c)) fprintf(f, "\\%c", *c);
            else if (*c == '\\') fputs("\\textbackslash{}", f);
            else if (*c == '~') fputs("\\textasciitilde{}", f);
            else if (*c == '^') fputs("\\textasciicircum{}", f);
            else fputc(*c, f);
        }
    }
}

static void print_tex(const pl_table *t, FILE *f)
{
    char room[64];
    if (t->title) {
        fputs("% ", f);
        put_text(f, t->title);
        fputc('\n', f);
    }
    fputs("\\begin{tabular}{", f);
    for (int j = 0; j < t->n_columns; j++) fputc(t->columns[j].style == PL_CELL_TEXT ? 'l' : 'r', f);
    fputs("}\n\\toprule\n", f);
    for (int j = 0; has_groups(t) && j < t->n_columns;) {
        int last = group_end(t, j);
        if (j) fputs(" & ", f);
        if (t->columns[j].group) {
            fprintf(f, "\\multicolumn{%d}{c}{", last - j + 1);
            tex_text(f, t->columns[j].group);
            fputc('}', f);
        }
        j = last + 1;
        if (j == t->n_columns) fputs(" \\\\\n", f);
    }
    for (int64_t i = -1; i < t->n_rows; i++) {
        for (int j = 0; j < t->n_columns; j++) {
            if (j) fputs(" & ", f);
            tex_text(f, i < 0 ? t->columns[j].title : shown(room, at(t, i, j), &t->columns[j], ""));
        }
        fputs(i < 0 ? " \\\\\n\\midrule\n" : " \\\\\n", f);
    }
    fputs("\\bottomrule\n\\end{tabular}\n", f);
}

void pl_html_text(FILE *f, const char *s)
{
    char room[PL_VISIBLE_CHARS];
    while (*s) {
        s += keep_blank(room, s);
        const char *entity = *room == '&'    ? "&amp;"
                             : *room == '<'  ? "&lt;"
                             : *room == '>'  ? "&gt;"
                             : *room == '"'  ? "&quot;"
                             : *room == '\'' ? "&#39;"
                                             : NULL;
        fputs(entity ? entity : room, f);
    }
}

static void html_cell(FILE *f, const char *tag, const pl_table_column *col, const char *text)
{
    fprintf(f, "<%s%s>", tag, col->style == PL_CELL_TEXT ? " class=\"text\"" : "");
    pl_html_text(f, text);
    fprintf(f, "</%s>", tag);
}

static void print_html(const pl_table *t, FILE *f)
{
    char room[64];
    fputs("<table>\n", f);
    if (t->title) {
        fputs("<caption>", f);
        pl_html_text(f, t->title);
        fputs("</caption>\n", f);
    }
    fputs("<thead>\n", f);
    for (int j = 0; has_groups(t) && j < t->n_columns;) {
        int last = group_end(t, j);
        fprintf(f, "%s<th class=\"group\" colspan=\"%d\">", j ? "" : "<tr>", last - j + 1);
        pl_html_text(f, t->columns[j].group ? t->columns[j].group : "");
        fputs("</th>", f);
        j = last + 1;
        if (j == t->n_columns) fputs("</tr>\n", f);
    }
    fputs("<tr>", f);
    for (int j = 0; j < t->n_columns; j++) html_cell(f, "th", &t->columns[j], t->columns[j].title);
    fputs("</tr>\n</thead>\n<tbody>\n", f);
    for (int64_t i = 0; i < t->n_rows; i++) {
        fputs("<tr>", f);
        for (int j = 0; j < t->n_columns; j++)
            html_cell(f, "td", &t->columns[j], shown(room, at(t, i, j), &t->columns[j], ""));
        fputs("</tr>\n", f);
    }
    fputs("</tbody>\n</table>\n", f);
}

polar_status pl_table_json(const pl_table *t, pl_json_writer *w)
{
    PL_NEED(t->error == POLAR_OK, t->error, "the table is incomplete for want of memory");
    pl_json_array(w);
    for (int64_t i = 0; i < t->n_rows; i++) {
        pl_json_object(w);
        for (int j = 0; j < t->n_columns; j++) {
            const cell *c = at(t, i, j);
            pl_json_key(w, t->columns[j].key);
            if (c->kind == CELL_TEXT) pl_json_string(w, c->text);
            else if (c->kind == CELL_NUMBER) pl_json_number(w, c->number);
            else if (c->kind == CELL_INTEGER) pl_json_integer(w, c->integer);
            else pl_json_null(w);
        }
        pl_json_object_end(w);
    }
    pl_json_array_end(w);
    return POLAR_OK;
}

polar_status pl_table_print(const pl_table *t, FILE *f, pl_table_format format)
{
    PL_NEED(t->error == POLAR_OK, t->error, "the table is incomplete for want of memory");
    if (format == PL_TABLE_JSON) {
        pl_json_writer w = pl_json_writer_begin(f, 1);
        PL_TRY(pl_table_json(t, &w));
        return pl_json_writer_end(&w);
    }
    if (format == PL_TABLE_CSV) print_csv(t, f);
    else if (format == PL_TABLE_TEX) print_tex(t, f);
    else if (format == PL_TABLE_HTML) print_html(t, f);
    else {
        int *w = pl_alloc((size_t)t->n_columns * sizeof *w);
        PL_NEED(w, POLAR_E_NOMEM, "the widths of %d columns", t->n_columns);
        print_text(t, f, w);
        pl_free(w);
    }
    PL_NEED(!ferror(f), POLAR_E_IO, "the table could not be written in full");
    return POLAR_OK;
}
