/* section_tables.h -- the tables of one spec beyond its audits: its seeds side by side, who overtakes whom,
 * seconds per epoch, and the audit's tests. Each says for itself whether a section has it. */
#ifndef PL_REPORT_SECTION_TABLES_H
#define PL_REPORT_SECTION_TABLES_H

#include <stdio.h>

#include "report/report_section.h"

typedef struct pl_section_table {
    const char *name, *heading, *note; /* of the file, for people, below the table */
    int (*wanted)(const pl_section *p);
    polar_status (*print)(const pl_section *p, FILE *f, pl_table_format format);
} pl_section_table;

extern const pl_section_table pl_section_tables[]; /* the last one has no name */

#endif
