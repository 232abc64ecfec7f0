/* report_part.h -- everything a report says about one spec: its runs, audits, curves, and the figures drawn
 * of them. */
#ifndef PL_REPORT_REPORT_PART_H
#define PL_REPORT_REPORT_PART_H

#include "report/audit/audit.h"
#include "report/report_metric.h"

#define PL_PART_FIGURES 24

typedef struct pl_curve {         /* runs of one arm in one cell along x (epochs or steps) */
    int64_t count, runs;          /* points; runs with any */
    double *x, *mean, *min, *max; /* over what has a finite value there */
    int64_t *n;
} pl_curve;

typedef struct pl_part_figure {
    char name[96], heading[96]; /* files name.svg, name.png, name.gp; a heading for people */
    char caption[640];          /* what it shows, n, how it was made */
} pl_part_figure;

typedef struct pl_part {
    const pl_store_spec *spec; /* borrowed */
    pl_store_members members;
    pl_audit_run *runs;
    pl_audit *audit, *wall;  /* of the spec's metric, of the seconds */
    pl_store_epochs *epochs; /* (cells, seeds, arms): of finished runs, else empty */
    pl_curve *valid;         /* (cells, arms): the validation metric per epoch */
    pl_curve_kind kind;      /* what that metric is */
    /* another part of the report whose curve is drawn into this one's; borrowed, or NULL */
    const struct pl_part *beside;
    pl_part_figure figures[PL_PART_FIGURES];
    int figure_count;
    /* why there are none, or one is missing, where that is not for want of gnuplot; or "" */
    char no_figures[400];
} pl_part;

/* p cleared before; free also after a failure */
polar_status pl_part_load(pl_part *p, pl_store *s, const pl_store_spec *spec);
void pl_part_free(pl_part *p); /* cleared is fine */

/* there must be room */
pl_part_figure *pl_part_add_figure(pl_part *p, const char *name, const char *heading);

/* Mean deviation of the gauge shadows over runs, blocks and shadows against the step, of one arm, cell and
 * map; empty when there are no rows. */
polar_status pl_part_gauge(pl_curve *out, pl_store *s, const pl_part *p, int64_t cell, int64_t arm,
                           const char *map);
/* the maps the cell's rows name, in their order */
polar_status pl_part_gauge_maps(char maps[][24], int *count, int most, pl_store *s, const pl_part *p,
                                int64_t cell);
void pl_curve_free(pl_curve *c);

/* by place; NULL: not planned */
const pl_audit_run *pl_part_run(const pl_part *p, int64_t cell, int64_t seed, int64_t arm);
/* by place; none of a run that is not finished */
const pl_store_epochs *pl_part_epochs(const pl_part *p, int64_t cell, int64_t seed, int64_t arm);
int64_t pl_part_arm(const pl_part *p, const char *arm); /* by name; -1: it has none */
int64_t pl_part_cell(const pl_part *p, const char *cell);
int64_t pl_part_seed(const pl_part *p, int64_t seed);

#endif
