/* plan.h -- the runs of a spec: cells x seeds x arms, each with its configuration and its id.
 *
 *     PL_TRY(pl_plan_create(&plan, spec));
 *     for (int64_t i = 0; i < plan->count; i++)
 *         if (plan->runs[i].first == i) do_run(plan->runs[i].id, plan->runs[i].config, plan->runs[i].seed);
 *     pl_plan_destroy(plan);                    // before the spec
 *
 * Order: cell, then seed, then arm, so that the two sides of a pair are done soon after each other. A cell is
 * named by the grid, "model.width=16" or "model.width=16 optim.lr=0.001", without a grid "all". Two arms of
 * one cell with the same id are an error: they are the same run under two names. The same run in two cells (a
 * key of the grid without effect on one arm) is done once: the later entries point to the first.
 */
#ifndef PL_LAB_PLAN_H
#define PL_LAB_PLAN_H

#include "lab/spec/spec.h"

typedef struct pl_plan_run {
    char id[PL_RUN_ID_CHARS];
    const char *cell, *arm; /* borrowed from the plan and the spec */
    int64_t seed;
    const pl_config *config; /* borrowed from the plan; shared by the seeds */
    int64_t first;           /* the first entry with this id, most often this one */
    int cell_index, arm_index;
} pl_plan_run;

typedef struct pl_plan {
    const pl_spec *spec; /* borrowed */
    pl_plan_run *runs;
    int64_t count, distinct; /* entries, and how many of them are their own first */
    char **cells;            /* names */
    int cell_count;
    pl_config **configs; /* cell_count x arm_count, arms fastest */
} pl_plan;

/* borrows the spec; POLAR_E_ARG for two equal arms */
polar_status pl_plan_create(pl_plan **out, const pl_spec *spec);
void pl_plan_destroy(pl_plan *p); /* NULL is fine */
/* sets `first` of runs that may be of several plans; *distinct: how many are their own first, or NULL */
polar_status pl_plan_find_first(pl_plan_run *runs, int64_t count, int64_t *distinct);
/* "model.width=16", of the cell with this place in the plan; free with pl_free */
polar_status pl_plan_cell_name(char **out, const pl_spec *s, int cell);

#endif
