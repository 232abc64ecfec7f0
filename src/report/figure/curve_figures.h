/* curve_figures.h -- figures over time: the validation metric of every epoch, the gauge violation of every
 * measured step. */
#ifndef PL_REPORT_CURVE_FIGURES_H
#define PL_REPORT_CURVE_FIGURES_H

#include "report/report_section.h"

/* a panel for every cell */
polar_status pl_draw_trajectories(pl_section *p, const char *dir);
/* a panel for every map; nothing where there are no rows */
polar_status pl_draw_gauge(pl_section *p, pl_store *s, const char *dir, int64_t cell);

#endif
