/* run_tables.h -- the runs of one spec as CSV, for those who want to count for themselves. */
#ifndef PL_REPORT_RUN_TABLES_H
#define PL_REPORT_RUN_TABLES_H

#include <stdio.h>

#include "report/report_part.h"

/* a line per run: cell, arm, seed, state, every result, seconds, where it was made, id */
polar_status pl_part_runs_csv(const pl_part *p, FILE *f);
/* a line per epoch of every finished run: training loss, validation metric, lr, seconds */
polar_status pl_part_epochs_csv(const pl_part *p, FILE *f);
/* a line per cell, arm, map and step: mean, least and largest deviation of the gauge shadows */
polar_status pl_part_gauge_csv(const pl_part *p, pl_store *s, FILE *f);
polar_status pl_part_has_gauge(const pl_part *p, pl_store *s, int *has); /* whether there is any */

#endif
