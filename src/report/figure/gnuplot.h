/* gnuplot.h -- runs gnuplot on a script, without a shell. */
#ifndef PL_REPORT_GNUPLOT_H
#define PL_REPORT_GNUPLOT_H

#include "base/status.h"

/* in dir; POLAR_E_UNSUPPORTED: there is no gnuplot here; POLAR_E_FORMAT: it refused the script, with its
 * words */
polar_status pl_gnuplot_run(const char *dir, const char *script);

#endif
