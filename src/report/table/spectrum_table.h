/* spectrum_table.h -- spectra of gradients and directions that gauge shadows kept (PL_SPECTRUM), as CSV. */
#ifndef PL_REPORT_SPECTRUM_TABLE_H
#define PL_REPORT_SPECTRUM_TABLE_H

#include <stdio.h>

#include "report/report_section.h"

polar_status pl_section_has_spectra(const pl_section *p, pl_store *s, int *has); /* whether there is any */
/* A line per cell, arm, spectrum, block and step. Over the runs: the mean number of singular values above
 * 2^-8 of the largest, the mean stable rank (the sum of squares over the largest one's), and the geometric
 * means of the second, third, middle (number floor(n / 2) + 1) and last value over the largest. */
polar_status pl_section_spectra_csv(const pl_section *p, pl_store *s, FILE *f);

#endif
