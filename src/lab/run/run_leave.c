/* run_leave.c -- members that have ended leave their ensemble, between epochs.
 *
 * The ensemble is saved; those left go on from that file in an ensemble of their own (train_state.h) and are
 * saved under their own name; then the results of those that leave are stored, and the file of all goes last.
 * So at every moment each run is finished or in a whole file, and kill -9 costs an epoch at most. The bits of
 * those left are what they would have been (testbed.h, 1), and when it happens is a matter of time alone.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "lab/run/run_group.h"

/* They have cost what leaving costs: two files written, one read and an ensemble begun. Leaving then never
 * takes more than twice the time of the better choice, however long the others go on. */
int pl_group_leaving_pays(const pl_group *g)
{
    double cost = g->begin_took + 3 * g->save_took;
    int64_t active = pl_group_active(g);
    return active && active < g->n && !g->within && g->idle >= g->job->r->o->leave_after * cost;
}

/* The active members to the front of the group's arrays, in their order; the others behind them, left has
 * room for those. */
static void part(pl_group *g, pl_member *left)
{
    int64_t kept = 0, gone = 0;
    for (int64_t i = 0; i < g->n; i++) {
        if (!g->active[i]) {
            left[gone++] = g->m[i];
            continue;
        }
        g->m[kept] = g->m[i];
        g->configs[kept] = g->configs[i];
        g->seeds[kept++] = g->seeds[i];
    }
    memcpy(g->m + kept, left, (size_t)gone * sizeof *left);
    g->n = kept;
}

/* Those left in an ensemble of their own, from the file of all, and in a file of their own. */
static polar_status go_on(pl_group *g, const char *all)
{
    g->tb->end(g->t);
    g->t = NULL;
    PL_TRY(pl_group_begin(g));
    PL_TRY(g->tb->load(g->t, all));
    g->tb->where(g->t, g->made, g->active);
    return g->tb->save(g->t, g->path);
}

/* The members behind those left: their results to the store, and out of the job's group. */
static polar_status put_leavers(pl_group *g, const pl_outcome *outcomes, int64_t count)
{
    for (int64_t k = count; k-- > 0;) {
        pl_member *m = &g->m[g->n + k];
        PL_TRY(pl_group_put_outcome(g, m, &outcomes[k]));
        for (int64_t i = 0; i < g->job->members; i++)
            if (&g->job->r->runs[g->job->group[i]] == m->run) pl_job_drop(g->job, i);
    }
    return POLAR_OK;
}

static polar_status leave_with(pl_group *g, pl_outcome *outcomes, pl_member *left)
{
    int64_t count = 0, before = g->n;
    PL_TRY(pl_group_save(g));
    for (int64_t i = 0; i < g->n; i++)
        if (!g->active[i]) PL_TRY(pl_group_take_outcome(&outcomes[count++], g, i));
    char *all = g->path;
    g->path = NULL;
    part(g, left);
    polar_status st = pl_group_name(g);
    if (st == POLAR_OK) st = go_on(g, all);
    if (st == POLAR_OK) st = put_leavers(g, outcomes, count);
    if (st == POLAR_OK && unlink(all) != 0 && errno != ENOENT)
        st = PL_FAIL(POLAR_E_IO, "remove the checkpoint '%s': %s", all, strerror(errno));
    pl_free(all);
    if (st != POLAR_OK) g->n = before; /* all of them are to be freed */
    return st;
}

polar_status pl_group_leave(pl_group *g)
{
    size_t count = (size_t)(g->n - pl_group_active(g));
    pl_outcome *outcomes = pl_calloc(count, sizeof *outcomes);
    pl_member *left = pl_calloc(count, sizeof *left);
    polar_status st = outcomes && left ? leave_with(g, outcomes, left)
                                       : PL_FAIL(POLAR_E_NOMEM, "the results of %zu runs", count);
    for (size_t k = 0; st == POLAR_OK && k < count; k++) {
        pl_free(g->m[g->n + (int64_t)k].epochs);
        pl_free(g->m[g->n + (int64_t)k].gauges);
    }
    pl_free(outcomes);
    pl_free(left);
    return st;
}
