/* across_tables.h -- what is said across specs of one report: the paper's table 1, what the recipe and what
 * the budget add, when the recipe pays. */
#ifndef PL_REPORT_ACROSS_TABLES_H
#define PL_REPORT_ACROSS_TABLES_H

#include <stdio.h>

#include "report/lead.h"

/* the specs that are compared, borrowed; NULL: not in this report */
typedef struct pl_across {
    /* deit_minimal_100ep, deit_matched_aug_100ep (S1), deit_style_300ep (S2) */
    const pl_part *minimal, *matched, *style;
} pl_across;

typedef struct pl_across_table {
    const char *name, *heading, *note; /* of the file, for people, below the table */
    int (*wanted)(const pl_across *x);
    polar_status (*print)(const pl_across *x, FILE *f, pl_table_format format);
} pl_across_table;

extern const pl_across_table pl_across_tables[]; /* the last one has no name */

pl_across pl_across_find(const pl_part *parts, int64_t count); /* by the specs' names */
/* sets `beside`: S1's curve goes into the figures of the other two */
void pl_across_link(pl_part *parts, int64_t count);

/* Since when that arm of p->beside has been ahead of p's own; n is 0 where there is nothing to compare. */
polar_status pl_across_crossover(pl_lead *out, const pl_part *p, int64_t cell, const char *arm);

#endif
