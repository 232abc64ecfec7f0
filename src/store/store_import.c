/* store_import.c -- finished runs that come from tables of a report: a plan and their results, at once. */
#include <inttypes.h>
#include <stdio.h>

#include "store/store_impl.h"

typedef struct told { /* a disagreement is told with its place in a table */
    pl_damage_fn tell;
    void *arg;
    const char *where;
} told;

static int tell_where(void *arg, const char *run, const char *what)
{
    const told *t = arg;
    char text[512];
    snprintf(text, sizeof text, "%.100s: %.400s", t->where, what);
    return t->tell(t->arg, run, text);
}

static polar_status import_runs(pl_joining *j, told *t, const pl_store_import_run *runs, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        t->where = runs[i].where;
        /* the rows are only read: a select would own them */
        const pl_run_rows rows = {
            .epochs = {.rows = (pl_epoch_row *)runs[i].epochs, .count = runs[i].epoch_count}};
        PL_TRY(pl_join_run(j, &runs[i].run, &rows));
    }
    PL_NEED(!j->did.differ, POLAR_E_FORMAT,
            "%" PRId64 " disagreement%s of the tables with the store or each other: nothing was put",
            j->did.differ, j->did.differ == 1 ? "" : "s");
    return pl_join_count(j);
}

polar_status pl_store_import(pl_merge_count *did, pl_store *s, const pl_store_spec *spec,
                             const pl_store_plan_row *plan, int64_t planned, const pl_store_import_run *runs,
                             int64_t count, pl_damage_fn tell, void *arg)
{
    told t = {.tell = tell, .arg = arg};
    pl_joining j = {.out = s, .tell = tell_where, .arg = &t};
    *did = (pl_merge_count){0};
    PL_TRY(pl_sql_begin(s));
    polar_status st = pl_join_begin(&j); /* before the plan: whether the store was empty */
    if (st == POLAR_OK) st = pl_put_spec(s, spec, plan, planned);
    if (st == POLAR_OK) st = import_runs(&j, &t, runs, count);
    pl_join_finalise(&j); /* before the end: a statement that is open would keep it from committing */
    st = pl_sql_end(s, st);
    *did = j.did;
    return st;
}
