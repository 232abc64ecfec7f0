/* table.h -- a table that prints itself as text, CSV, JSON, TeX or HTML.
 *
 *     static const pl_table_column columns[] = {
 *         {"shape", "shape", NULL, PL_CELL_TEXT, 0},
 *         // key (CSV, JSON), title and group (text, TeX), style, digits
 *         {"polar", "polar", "measured", PL_CELL_SCI, 1},
 *         {"paper_polar", "polar", "paper", PL_CELL_SCI, 1},
 *     };
 *     pl_table *t;
 *     PL_TRY(pl_table_create(&t, "Covariance", columns, 3));
 *     pl_table_row(t);  pl_table_text(t, "8x8");  pl_table_number(t, 1.7e-7);  pl_table_none(t);
 *     st = pl_table_print(t, stdout, PL_TABLE_TEXT);
 *     pl_table_destroy(t);
 *
 * Text, TeX and HTML show the digits asked for; CSV and JSON every digit. A cell without a value prints "-"
 * in text, nothing in CSV, TeX and HTML, null in JSON; control bytes are escaped in text and TeX. Cells
 * fill a row from the left. A table keeps its first error (memory) and reports it when printed.
 */
#ifndef PL_REPORT_TABLE_H
#define PL_REPORT_TABLE_H

#include <stdint.h>
#include <stdio.h>

#include "base/json_write.h"
#include "base/status.h"

/* the order of --format's choices */
typedef enum pl_table_format {
    PL_TABLE_TEXT,
    PL_TABLE_CSV,
    PL_TABLE_JSON,
    PL_TABLE_TEX,
    PL_TABLE_HTML /* of a report's page; no choice of --format */
} pl_table_format;

typedef enum pl_cell_style {
    PL_CELL_TEXT, /* left-aligned, the other styles right-aligned */
    PL_CELL_INTEGER,
    PL_CELL_FIXED, /* 0.85 */
    PL_CELL_SCI    /* 5.4e-02 */
} pl_cell_style;

typedef struct pl_table_column {
    const char *key; /* unique; CSV's header and JSON's member */
    const char *title;
    const char *group; /* neighbours of one group share a heading; NULL for none */
    pl_cell_style style;
    int digits; /* after the point */
} pl_table_column;

typedef struct pl_table pl_table;

/* borrows title and columns */
polar_status pl_table_create(pl_table **out, const char *title, const pl_table_column *columns,
                             int n_columns);
void pl_table_destroy(pl_table *t); /* NULL is fine */
/* begins a row; cells not set later are without a value */
void pl_table_row(pl_table *t);
void pl_table_text(pl_table *t, const char *text); /* the next cell; copied */
void pl_table_number(pl_table *t, double x);       /* the next cell */
/* the next cell, without a value if x is NaN */
void pl_table_maybe(pl_table *t, double x);
void pl_table_integer(pl_table *t, int64_t x); /* the next cell */
void pl_table_none(pl_table *t);               /* the next cell, without a value */
/* POLAR_E_IO when the stream failed */
polar_status pl_table_print(const pl_table *t, FILE *f, pl_table_format format);
/* text with &, <, > and quotes as HTML wants them */
void pl_html_text(FILE *f, const char *s);
/* as one value: an array of objects */
polar_status pl_table_json(const pl_table *t, pl_json_writer *w);

#endif
