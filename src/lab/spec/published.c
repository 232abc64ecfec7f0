/* published.c -- published values looked up, see published.h. */
#include "lab/spec/published.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"

static double find(const pl_published *p, const char *cell, const char *arm, const char *metric, int64_t seed,
                   int64_t epoch)
{
    for (int i = 0; p && i < p->row_count; i++) {
        const pl_published_row *r = &p->rows[i];
        if (r->seed == seed && r->epoch == epoch && !strcmp(r->metric, metric) && !strcmp(r->arm, arm) &&
            !strcmp(r->cell, cell))
            return r->value;
    }
    return NAN;
}

double pl_published_value(const pl_published *p, const char *cell, const char *arm, const char *metric)
{
    return find(p, cell, arm, metric, -1, 0);
}

double pl_published_seed(const pl_published *p, const char *cell, const char *arm, const char *metric,
                         int64_t seed)
{
    return find(p, cell, arm, metric, seed, 0);
}

double pl_published_epoch(const pl_published *p, const char *cell, const char *arm, int64_t epoch)
{
    return find(p, cell, arm, "", -1, epoch);
}

pl_published_difference pl_published_pair_of(const pl_published *p, const char *cell, const char *a,
                                             const char *b, const char *metric)
{
    for (int i = 0; p && i < p->pair_count; i++) {
        const pl_published_pair *r = &p->pairs[i];
        if (strcmp(r->metric, metric) || strcmp(r->cell, cell)) continue;
        if (!strcmp(r->a, a) && !strcmp(r->b, b)) return r->d;
        if (!strcmp(r->a, b) && !strcmp(r->b, a))
            return (pl_published_difference){-r->d.mean, -r->d.t, r->d.n};
    }
    return (pl_published_difference){NAN, NAN, 0};
}

int pl_published_has(const pl_published *p, const char *metric)
{
    for (int i = 0; p && i < p->row_count; i++)
        if (!p->rows[i].epoch && !strcmp(p->rows[i].metric, metric)) return 1;
    for (int i = 0; p && i < p->pair_count; i++)
        if (!strcmp(p->pairs[i].metric, metric)) return 1;
    return 0;
}

const char *pl_published_by(const pl_published *p)
{
    return p && p->by ? p->by : "published";
}

void pl_published_destroy(pl_published *p)
{
    if (!p) return;
    for (int i = 0; i < p->row_count; i++) {
        pl_free(p->rows[i].cell);
        pl_free(p->rows[i].arm);
        pl_free(p->rows[i].metric);
    }
    for (int i = 0; i < p->pair_count; i++) {
        pl_free(p->pairs[i].cell);
        pl_free(p->pairs[i].a);
        pl_free(p->pairs[i].b);
        pl_free(p->pairs[i].metric);
    }
    pl_free(p->rows);
    pl_free(p->pairs);
    pl_free(p->by);
    pl_free(p->note);
    pl_free(p);
}
