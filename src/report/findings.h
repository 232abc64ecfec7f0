/* findings.h -- an audit in words, cell by cell: the arms in order beside the trace-only predictor, then the paired difference of every two neighbours. */
#ifndef PL_REPORT_FINDINGS_H
#define PL_REPORT_FINDINGS_H

#include "report/audit.h"

polar_status pl_findings_cell(char **out, const pl_audit *a, int64_t cell);    /* "model.width=16: muon 0.0065 < ...", then a line per difference, lines parted by \n; free with pl_free */

#endif
