/* svg_inline.h -- an SVG file as a part of an HTML page. */
#ifndef PL_REPORT_SVG_INLINE_H
#define PL_REPORT_SVG_INLINE_H

#include <stdio.h>

#include "base/status.h"

/* from <svg on, ids begun with prefix so that two figures do not share any; found 0: no such file */
polar_status pl_svg_inline(FILE *f, const char *path, const char *prefix, const char *label, int *found);

#endif
