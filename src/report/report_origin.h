/* report_origin.h -- where a spec's numbers come from: query, spec, code, machines, settings, every run with
 * its id. */
#ifndef PL_REPORT_REPORT_ORIGIN_H
#define PL_REPORT_REPORT_ORIGIN_H

#include <stdio.h>

#include "report/report_section.h"

polar_status pl_origin_html(FILE *f, const char *store, const pl_section *p); /* store: its file name */

#endif
