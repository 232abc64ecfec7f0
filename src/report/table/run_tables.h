/* run_tables.h -- the runs of one spec as CSV, for those who want to count for themselves. */
#ifndef PL_REPORT_RUN_TABLES_H
#define PL_REPORT_RUN_TABLES_H

#include <stdio.h>

#include "report/report_section.h"

/* a line per run: cell, arm, seed, state, every result, seconds, where and of which pictures it was made, id;
 * tables_read.h reads it back, and the epochs */
polar_status pl_section_runs_csv(const pl_section *p, FILE *f);
/* a line per epoch of every finished run: training loss, validation metric, lr, seconds */
polar_status pl_section_epochs_csv(const pl_section *p, FILE *f);
/* a line per cell, arm, map and step: mean, least and largest deviation of the gauge shadows */
polar_status pl_section_gauge_csv(const pl_section *p, pl_store *s, FILE *f);
polar_status pl_section_has_gauge(const pl_section *p, pl_store *s, int *has); /* whether there is any */

#endif
