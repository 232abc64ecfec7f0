/* report_section.h -- a section of the report, everything it says about one spec: its runs, audits, curves,
 * and the figures drawn of them. */
#ifndef PL_REPORT_REPORT_SECTION_H
#define PL_REPORT_REPORT_SECTION_H

#include "lab/spec/spec.h"
#include "report/audit/audit.h"

#define PL_SECTION_FIGURES 24

typedef struct pl_curve {         /* runs of one arm in one cell along x (epochs or steps) */
    int64_t count, runs;          /* points; runs with any */
    double *x, *mean, *min, *max; /* over what has a finite value there */
    int64_t *n;
} pl_curve;

typedef struct pl_section_figure {
    char name[96], heading[96]; /* files name.svg, name.png, name.gp; a heading for people */
    char caption[640];          /* what it shows, n, how it was made */
} pl_section_figure;

typedef struct pl_section {
    const pl_store_spec *spec; /* borrowed */
    const pl_schema *schema;   /* of its testbed, borrowed; NULL: not of this build */
    pl_spec *read;             /* the spec's text: published values and comparisons; NULL: see unread */
    char unread[400];          /* why this build cannot read the text, or "" */
    pl_store_members members;
    pl_audit_run *runs;
    pl_audit *audit, *wall;  /* of the spec's metric, of the seconds */
    pl_store_epochs *epochs; /* (cells, seeds, arms): of finished runs, else empty */
    pl_curve *valid;         /* (cells, arms): the validation metric per epoch */
    pl_curve_kind kind;      /* what that metric is */
    /* another section whose curve of one arm is drawn into this one's figure; borrowed, or NULL */
    const struct pl_section *beside;
    const pl_spec_compare *beside_how;
    pl_section_figure figures[PL_SECTION_FIGURES];
    int figure_count;
    /* why there are none, or one is missing, where that is not for want of gnuplot; or "" */
    char no_figures[400];
} pl_section;

typedef struct pl_section_source {
    const pl_schema *schemas; /* of the build's testbeds, borrowed */
    int schema_count;
    const char *text; /* of the spec, for published values and comparisons; NULL: the store's */
} pl_section_source;

/* p cleared before; free also after a failure */
polar_status pl_section_load(pl_section *p, pl_store *s, const pl_store_spec *spec,
                             const pl_section_source *from);
const pl_published *pl_section_published(const pl_section *p); /* or NULL */
void pl_section_free(pl_section *p);                           /* cleared is fine */

/* there must be room */
pl_section_figure *pl_section_add_figure(pl_section *p, const char *name, const char *heading);

/* Mean deviation of the gauge shadows over runs, blocks and shadows against the step, of one arm, cell and
 * map; empty when there are no rows. */
polar_status pl_section_gauge(pl_curve *out, pl_store *s, const pl_section *p, int64_t cell, int64_t arm,
                              const char *map);
/* the maps the cell's rows name, in their order; spectra are none */
polar_status pl_section_gauge_maps(char maps[][24], int *count, int most, pl_store *s, const pl_section *p,
                                   int64_t cell);
void pl_curve_free(pl_curve *c);

/* by place; NULL: not planned */
const pl_audit_run *pl_section_run(const pl_section *p, int64_t cell, int64_t seed, int64_t arm);
/* by place; none of a run that is not finished */
const pl_store_epochs *pl_section_epochs(const pl_section *p, int64_t cell, int64_t seed, int64_t arm);
int64_t pl_section_arm(const pl_section *p, const char *arm); /* by name; -1: it has none */
int64_t pl_section_cell(const pl_section *p, const char *cell);
int64_t pl_section_seed(const pl_section *p, int64_t seed);

#endif
