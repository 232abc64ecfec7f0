/* report.h -- `polar report`: tables, figures and one page from a store, and nothing else.
 *
 *     pl_report_opts o = {.dir = "report", .code = pl_code_version(),       // specs: all of the store's
 *                         .schemas = schemas, .schema_count = pl_testbed_schemas(schemas)};
 *     PL_TRY(pl_report_write(&out, store, &o));
 *     printf("%s\n", out.page);                                             // report/index.html
 *     // no gnuplot here: tables and page are there, figures are not
 *     if (*out.note) ...
 *
 * In the folder: index.html (self-contained: inline SVG, no script, nothing to load),
 * tables/<spec>_{results,pairs,wall,wall_pairs}.{txt,csv,tex} and <spec>.json (the audit),
 * <spec>_{seeds,overtaking,seconds}.* (where they apply, section_tables.h), <spec>_runs.csv (a line per run),
 * <spec>_epochs.csv (a line per epoch, where the curve is an accuracy), <spec>_gauge.csv (where there are
 * gauge shadows), <spec>_spectra.csv (where they kept spectra); <comparison>_{seeds,lift,crossover}.* where
 * the report holds both specs (compare_tables.h); figures/<spec>_*.{svg,png,gp}. The same store gives the
 * same bytes.
 *
 * What a metric and a curve are is the testbed's to say (pl_schema), what others published and which specs
 * are compared is the spec's: no testbed, spec or rule is named in here.
 */
#ifndef PL_REPORT_REPORT_H
#define PL_REPORT_REPORT_H

#include "lab/spec/config.h"
#include "store/store.h"

typedef struct pl_report_opts {
    const char *dir;          /* made if it is not there */
    const char *const *specs; /* names; NULL: all */
    /* of these specs, for published values and comparisons; NULL, or one that is: the store's text of it */
    const char *const *texts;
    int64_t spec_count;
    const pl_schema *schemas; /* of the build's testbeds */
    int schema_count;
    const char *code;                              /* version of the program that writes it */
    void (*progress)(void *arg, const char *what); /* a word about what is being done; may be NULL */
    /* a spec that could not be reported, unless it was asked for by name; may be NULL */
    void (*left_out)(void *arg, const char *spec, const char *why);
    void *progress_arg;
} pl_report_opts;

typedef struct pl_report_outcome {
    char page[1024];                /* path of the page, cut short if it is longer */
    char note[512];                 /* why there are no figures, or "" */
    int64_t specs, tables, figures; /* written */
} pl_report_outcome;

/* POLAR_E_ARG: a spec the store does not know, or an empty store */
polar_status pl_report_write(pl_report_outcome *out, pl_store *s, const pl_report_opts *opts);

#endif
