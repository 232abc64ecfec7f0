/* compare_tables.h -- what is said across two specs of one report, where one of them asks for it
 * (`compare:`): their seeds side by side, what the other one adds, since when it is ahead. */
#ifndef PL_REPORT_COMPARE_TABLES_H
#define PL_REPORT_COMPARE_TABLES_H

#include <stdio.h>

#include "report/overtake.h"

typedef struct pl_comparison {   /* borrowed */
    const pl_section *from, *to; /* the spec that asks, and the one it names */
    const pl_spec_compare *how;
} pl_comparison;

typedef struct pl_compare_table {
    const char *name, *heading, *note; /* of the file, behind the comparison's title, below the table */
    int kind;                          /* PL_COMPARE_* */
    polar_status (*print)(const pl_comparison *x, FILE *f, pl_table_format format);
} pl_compare_table;

extern const pl_compare_table pl_compare_tables[]; /* the last one has no name */

/* Those of the sections that can be made, in their order; *out is freed with pl_free. */
polar_status pl_comparisons_find(pl_comparison **out, int64_t *count, const pl_section *sections, int64_t n);
/* whether the comparison asks for this table */
int pl_comparison_wants(const pl_comparison *x, const pl_compare_table *t);
/* of its files: "recipe_lift" */
void pl_comparison_stem(char out[160], const pl_comparison *x, const pl_compare_table *t);
/* the title it was given, or "from and to" */
void pl_comparison_title(char out[256], const pl_comparison *x);
/* sets `beside` of sections that want another one's curve in their figure */
void pl_comparisons_link(pl_section *sections, int64_t n);

/* Since when that arm of the other section has been ahead of p's own; n is 0 where there is nothing to
 * compare. */
polar_status pl_crossover_measure(pl_overtake *out, const pl_section *p, const pl_section *other,
                                  int64_t cell, const char *arm, int64_t at_epoch);

#endif
