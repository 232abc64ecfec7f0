/* report_html.h -- the page of a report. */
#ifndef PL_REPORT_REPORT_HTML_H
#define PL_REPORT_REPORT_HTML_H

#include <stdio.h>

#include "report/table/compare_tables.h"

typedef struct pl_left_out { /* a spec that could not be reported */
    const char *name;        /* borrowed; "?" where it cannot be shown */
    char *why;               /* a sentence; owned by the report */
} pl_left_out;

typedef struct pl_page {
    const char *code;    /* of the program that writes it */
    const char *store;   /* the store's file name */
    const char *figures; /* folder of the SVG files to put in */
    const char *note;    /* why there are no figures, or "" */
    const pl_section *sections;
    int64_t section_count;
    const pl_comparison *comparisons;
    int64_t comparison_count;
    const pl_left_out *left;
    int64_t left_count;
} pl_page;

/* printf whose words are made safe for HTML */
void pl_html_say(FILE *f, const char *fmt, ...) PL_PRINTF(2, 3);
polar_status pl_page_write(FILE *f, const pl_page *p); /* the whole page */

#endif
