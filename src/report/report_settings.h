/* report_settings.h -- what the runs of a spec were set to: keys that are the same everywhere, and a table of
 * those that are not. */
#ifndef PL_REPORT_REPORT_SETTINGS_H
#define PL_REPORT_REPORT_SETTINGS_H

#include <stdio.h>

#include "report/report_section.h"

/* two tables; runs of one arm and cell that differ show all their values, by " | " */
polar_status pl_settings_html(FILE *f, const pl_section *p);

#endif
