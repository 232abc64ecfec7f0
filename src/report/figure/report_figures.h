/* report_figures.h -- the figures of one spec. */
#ifndef PL_REPORT_REPORT_FIGURES_H
#define PL_REPORT_REPORT_FIGURES_H

#include "report/report_section.h"

/* Writes and draws what the part has data for, and lists it in part->figures. POLAR_E_UNSUPPORTED: no
 * gnuplot; the scripts are there and listed all the same. */
polar_status pl_section_draw(pl_section *p, pl_store *s, const char *dir);

#endif
