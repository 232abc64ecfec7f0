/* seed_table.h -- the values of one or more specs seed by seed, arms side by side, the paper's beside them;
 * as the paper's table 1. */
#ifndef PL_REPORT_SEED_TABLE_H
#define PL_REPORT_SEED_TABLE_H

#include <stdio.h>

#include "report/report_part.h"

#define PL_SEED_TABLE_ARMS  8 /* of a part; more are not shown */
#define PL_SEED_TABLE_PARTS 2

/* Rows: the cells and seeds of the first part, then the means; columns: the arms of each part under its
 * title, PolarAdamW - Muon where it has both, the paper's. */
polar_status pl_seed_table(const pl_part *const *parts, const char *const *titles, int count, FILE *f,
                           pl_table_format format);

#endif
