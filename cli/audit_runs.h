/* audit_runs.h -- the runs an audit is about: those of a spec file, each with what the store knows of it; or
 * all that a store has under a spec's name. */
#ifndef POLAR_AUDIT_RUNS_H
#define POLAR_AUDIT_RUNS_H

#include "lab/run/testbed.h"
#include "lab/spec/plan.h"
#include "report/audit/audit.h"

typedef struct audit_runs {
    pl_spec *spec; /* read from the file, or from the store's text of it; NULL where that cannot be read */
    pl_plan *plan; /* NULL when SPEC is a name */
    pl_store_specs specs;
    pl_store_members members; /* the runs the store knows */
    pl_audit_run *runs;       /* in plan order */
    int64_t count;
    const char *name, *title, *metric, *sha, *path; /* borrowed from the above and from the caller */
    pl_schema schemas[PL_TESTBED_MAX];
    const pl_schema *schema; /* of the spec's testbed; NULL: not of this build */
} audit_runs;

/* a cleared before; free also after a failure */
polar_status audit_runs_load(audit_runs *a, pl_store *s, const char *spec, const char *const *set,
                             int set_count);
/* what pl_audit_create wants; metric NULL: the spec's */
pl_audit_of audit_runs_of(const audit_runs *a, const char *metric);
/* cleared is fine */
void audit_runs_free(audit_runs *a);
/* one run's provenance, results and pairs; POLAR_E_ARG: none or several begin so */
polar_status audit_print_run(FILE *out, const audit_runs *a, const pl_audit *audit, const char *prefix);

#endif
