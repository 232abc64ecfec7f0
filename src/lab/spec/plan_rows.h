/* plan_rows.h -- a plan as the store takes it: pl_store_put_spec(s, &spec, rows.rows, rows.count).
 *
 *     const pl_store_spec row = pl_spec_row(spec);
 *     PL_TRY(pl_plan_rows_create(&rows, plan->runs, plan->count));
 *     ...
 *     pl_plan_rows_free(&rows);                  // before the plan
 */
#ifndef PL_LAB_PLAN_ROWS_H
#define PL_LAB_PLAN_ROWS_H

#include "lab/spec/plan.h"

typedef struct pl_plan_rows {
    pl_store_plan_row *rows; /* by place in the plan; ids, cells and arms are the plan's */
    int64_t count;
    struct pl_config_text *texts; /* a configuration and its JSON; the seeds of an arm share one */
    int64_t text_count;
} pl_plan_rows;

pl_store_spec pl_spec_row(const pl_spec *s); /* borrows its strings */
/* of runs of a plan, not all of them perhaps; empty after a failure */
polar_status pl_plan_rows_create(pl_plan_rows *out, const pl_plan_run *runs, int64_t count);
void pl_plan_rows_free(pl_plan_rows *r); /* empty is fine */

#endif
