/* test_cpu_share.c -- items of a parallel region in stretches (work_share.h): every item once, whoever is
 * late, however many threads there are. */
#include "base/work_share.h"

#include <sched.h>
#include <stdlib.h>

#include "base/thread_pool.h"
#include "test.h"

typedef struct {
    pl_share s;
    int64_t items;
    int late;
    _Atomic int *done;
    _Atomic int64_t own; /* that it did itself */
} region;

static void share(void *arg, int me)
{
    region *r = arg;
    PL_SHARE(t, &r->s, me)
    {
        if (t < 0 || t >= r->items) abort();
        atomic_fetch_add(&r->done[t], 1);
        if (me != r->late) continue;
        atomic_fetch_add(&r->own, 1);
        for (int k = 0; k < 50; k++) sched_yield();
    }
}

/* Thread `late` sleeps through its items; how many items were not done exactly once, and how many it did
 * itself. */
static int64_t run(int64_t items, int64_t each, int threads, int team, int late, int64_t *by_late)
{
    region r = {.items = items, .late = late, .done = calloc((size_t)items + 1, sizeof *r.done)};
    int64_t bad = 0;
    pl_pool *pool;
    if (!r.done || pl_pool_create(&pool, team, PL_POOL_SPIN, NULL) != POLAR_OK) exit(1);
    pl_share_begin(&r.s, items, each, threads);
    pl_pool_run(pool, team, share, &r);
    pl_pool_destroy(pool);
    for (int64_t t = 0; t < items; t++) bad += atomic_load(&r.done[t]) != 1;
    free(r.done);
    *by_late = atomic_load(&r.own);
    return bad;
}

int main(int argc, char **argv)
{
    static const int64_t counts[] = {0, 1, 2, 3, 7, 64, 1000, 20011};
    int64_t bad = 0, own, late_bad = 0, fewer = 0;
    test_begin(argc, argv);
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (int threads = 1; threads <= 9; threads += 2)
            for (int64_t each = 1; each <= 3; each++) bad += run(counts[c], each, threads, threads, -1, &own);
    test_exact("share: every item once, 1 to 9 threads", bad);
    test_exact("share: a team smaller than was counted on", run(1000, 1, 8, 3, -1, &own));
    test_exact("share: a team of one", run(1000, 7, 4, 1, -1, &own));
    test_exact("share: more threads than stretches",
               run(5000, 1, PL_SHARE_OWNERS + 5, PL_SHARE_OWNERS + 5, -1, &own));
    late_bad = run(20000, 1, 3, 3, 0, &own), fewer = own; /* thread 0, which is sure to come */
    test_exact("share: a late thread, every item once", late_bad);
    test_true("share: the others do what a late thread has left", fewer < 20000 / 3,
              "%lld of %d were its own", (long long)fewer, 20000 / 3);
    pl_share huge;
    pl_share_begin(&huge, ((int64_t)1 << 40) + 5, 1, 4);
    pl_share_place place = {0, 0};
    int64_t first = pl_share_next(&huge, &place, 0), second = pl_share_next(&huge, &place, 0),
            pieces = (huge.items + huge.each - 1) / huge.each;
    test_true("share: more items than a stretch can count",
              first == 0 && second == 1 && pieces < ((int64_t)1 << 32), "%lld pieces", (long long)pieces);
    return test_end();
}
