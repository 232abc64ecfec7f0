/* shard_owner.c -- who steps which matrix: longest processing time first, then moves and swaps that relieve
 * the busiest rank, all in one order on every rank. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "compose/map.h"
#include "optim/shard.h"

#define EXACT_STEPS 5 /* an SVD in double counts as so many steps */

static double part_cost(const polar_optim *opt, const pl_optim_param *p)
{
    const polar_map_opts *map = &pl_optim_rule(opt, p)->map;
    double rows = (double)(p->rows / p->row_blocks), cols = (double)p->cols;
    double n = rows < cols ? rows : cols, m = rows < cols ? cols : rows;
    double steps = pl_map_decomposes(map) ? EXACT_STEPS : map->steps;
    return n > 0 ? (double)p->row_blocks * steps * n * n * (4 * m + 2 * n) : 0; /* n^3 T (4 a + 2) */
}

double pl_shard_cost(const polar_optim *opt, const pl_optim_param *p)
{
    double cost = 0;
    for (int64_t k = p->first_part; k < p->first_part + p->part_count; k++)
        if (opt->parts[k].route == p->route) cost += part_cost(opt, &opt->parts[k]);
    return cost;
}

typedef struct job { /* a matrix, or all blocks that share a norm */
    double cost;
    int64_t param; /* the first of them */
    int rank;      /* its owner */
} job;

static int larger(const void *a, const void *b, void *arg)
{
    const polar_optim *opt = arg;
    const job *x = a, *y = b;
    if (x->cost != y->cost) return x->cost < y->cost ? 1 : -1;
    return strcmp(opt->params[x->param].name, opt->params[y->param].name);
}

static int64_t gather_jobs(job *jobs, const polar_optim *opt)
{
    int64_t n = 0;
    for (int64_t i = 0; i < opt->n; i++) {
        const pl_optim_param *p = &opt->params[i];
        int64_t k = n;
        if (!pl_optim_uncut(opt, p)) continue;
        for (int64_t j = 0; j < n && p->schur_group; j++)
            if (opt->params[jobs[j].param].schur_group == p->schur_group) k = j;
        if (k == n) jobs[n++] = (job){0, i, 0};
        jobs[k].cost += pl_shard_cost(opt, p);
    }
    return n;
}

static void by_longest(job *jobs, int64_t n, double *load, int ranks)
{
    for (int r = 0; r < ranks; r++) load[r] = 0;
    for (int64_t k = 0; k < n; k++) {
        int least = 0;
        for (int r = 1; r < ranks; r++)
            if (load[r] < load[least]) least = r; /* of equals the lowest rank */
        load[least] += jobs[k].cost;
        jobs[k].rank = least;
    }
}

/* The busiest rank, of equals the lowest, gives a job away, or takes a smaller one for it: what leaves the
 * busier of the two with least, of equals the first. 0: nothing helps it. */
static int relieve(job *jobs, int64_t n, double *load, int ranks)
{
    int busy = 0, to = -1;
    int64_t given = -1, taken = -1;
    for (int r = 1; r < ranks; r++)
        if (load[r] > load[busy]) busy = r;
    double best = load[busy];
    for (int64_t j = 0; j < n; j++) {
        if (jobs[j].rank != busy) continue;
        for (int64_t k = -ranks; k < n; k++) { /* to a rank; then for a job of another */
            int r = k < 0 ? (int)(k + ranks) : jobs[k].rank;
            double less = jobs[j].cost - (k < 0 ? 0 : jobs[k].cost), there = load[r] + less,
                   here = load[busy] - less, most = here > there ? here : there;
            if (r == busy || most >= best) continue;
            best = most, to = r, given = j, taken = k;
        }
    }
    if (given < 0) return 0;
    double less = jobs[given].cost - (taken < 0 ? 0 : jobs[taken].cost);
    load[busy] -= less;
    load[to] += less;
    jobs[given].rank = to;
    if (taken >= 0) jobs[taken].rank = busy;
    return 1;
}

polar_status pl_shard_owners(int *owner, double *load, const polar_optim *opt, int ranks)
{
    job *jobs = pl_calloc((size_t)opt->n, sizeof *jobs);
    PL_NEED(jobs, POLAR_E_NOMEM, "the owners of %lld parameters", (long long)opt->n);
    int64_t n = gather_jobs(jobs, opt);
    qsort_r(jobs, (size_t)n, sizeof *jobs, larger, (void *)opt);
    by_longest(jobs, n, load, ranks);
    for (int64_t turn = 0; turn < n && relieve(jobs, n, load, ranks); turn++) continue;
    for (int64_t i = 0; i < opt->n; i++) owner[i] = -1;
    for (int64_t k = 0; k < n; k++) {
        const pl_optim_param *lead = &opt->params[jobs[k].param];
        owner[jobs[k].param] = jobs[k].rank;
        for (int64_t i = 0; i < opt->n && lead->schur_group; i++)
            if (pl_optim_mapped(opt, &opt->params[i]) && opt->params[i].schur_group == lead->schur_group)
                owner[i] = jobs[k].rank;
    }
    pl_free(jobs);
    return POLAR_OK;
}

void pl_shard_describe(char *text, size_t bytes, const pl_shard *s)
{
    double all = 0, most = 0;
    for (int r = 0; r < s->size; r++) {
        all += s->load[r];
        if (s->load[r] > most) most = s->load[r];
    }
    snprintf(text, bytes,
             "rank %d of %d by %s; of %.3g FLOPs of maps a step the busiest rank has %.1f %%, an equal share "
             "is %.1f %%; what has no map is cut in %d ranges\n",
             s->rank, s->size, polar_comm_name(s->comm), all, all > 0 ? 100 * most / all : 0, 100.0 / s->size,
             s->size);
}
