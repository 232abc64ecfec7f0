/* seed_table.h -- the values of one or more specs seed by seed, arms side by side, the published ones beside
 * them. */
#ifndef PL_REPORT_SEED_TABLE_H
#define PL_REPORT_SEED_TABLE_H

#include <stdio.h>

#include "report/report_section.h"

#define PL_SEED_TABLE_ARMS     8 /* of a section; more are not shown */
#define PL_SEED_TABLE_SECTIONS 2

/* Rows: the cells and seeds of the first section, then the means; columns: the arms of each under its title,
 * a difference of two arms (the first published one that is there, else the last two), the published values.
 */
polar_status pl_seed_table(const pl_section *const *sections, const char *const *titles, int count, FILE *f,
                           pl_table_format format);

#endif
