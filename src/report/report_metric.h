/* report_metric.h -- what a metric is to a reader: which way is better, its unit; and what a testbed's curve
 * over the epochs shows. */
#ifndef PL_REPORT_REPORT_METRIC_H
#define PL_REPORT_REPORT_METRIC_H

typedef struct pl_metric {
    const char *title; /* for axes: "L10, %" */
    int better;        /* 1: higher, -1: lower, 0: neither (a count, an epoch) */
    int percent;       /* of pictures: axes need not begin at 0, differences are points */
} pl_metric;

typedef struct pl_curve_kind { /* pl_epoch_row.valid of a testbed */
    const char *heading;       /* of the figure */
    const char *what, *axis;   /* "Validation error", "validation MSE" */
    const char *timing;        /* which times compare the same work */
    int higher;                /* is better */
    /* percent on a linear axis, none of the epochs left out; else an error by decades */
    int accuracy;
    /* a seed has its own task (class subset), so that values belong beside each other seed by seed */
    int seeds_differ;
} pl_curve_kind;

/* the name itself for a title, and neither way, where it is not known */
pl_metric pl_metric_of(const char *name);
const char *pl_metric_better(const char *name);      /* "higher", "lower" or "" */
pl_curve_kind pl_curve_kind_of(const char *testbed); /* that of so3 where it is not known */

#endif
