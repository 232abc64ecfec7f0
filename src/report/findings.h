/* findings.h -- an audit in words, cell by cell: the arms from the best on (beside the trace-only predictor
 * where there is one), then the paired difference of every two neighbours. */
#ifndef PL_REPORT_FINDINGS_H
#define PL_REPORT_FINDINGS_H

#include "report/audit/audit.h"

/* "model.width=16: muon 0.0065 < ...", "all: polaradamw 73.47 > ...", then a line per difference, lines
 * parted by \n; free with pl_free. */
polar_status pl_findings_cell(char **out, const pl_audit *a, int64_t cell);

#endif
