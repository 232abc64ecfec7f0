/* work_share.h -- a region's items over its threads by work stealing: each thread has a stretch of its own,
 * which it does from the front, and then takes what others have left, from the back.
 *
 *     pl_share s;
 *     pl_share_begin(&s, items, each, threads);      the caller, before the region (thread_pool.h)
 *     PL_SHARE(t, &s, me) work(t);                   thread `me` of it
 *
 * Every item is done once, by whom is open, and by as many threads as come: one is enough. Neighbours stay on
 * one thread, in its caches, op after op, and no thread waits for a slower one for longer than an item takes.
 */
#ifndef PL_BASE_WORK_SHARE_H
#define PL_BASE_WORK_SHARE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define PL_SHARE_OWNERS 64 /* threads beyond have no stretch */

typedef struct {
    int owners;
    int64_t items, each; /* a stretch counts pieces of `each` items, fewer than 2^32 */
    struct {
        _Alignas(64) _Atomic uint64_t left; /* first piece, and the end in the upper half */
    } of[PL_SHARE_OWNERS];
} pl_share;

/* `each` neighbours, or a few more, are taken at a time. */
static inline void pl_share_begin(pl_share *s, int64_t items, int64_t each, int threads)
{
    s->owners = threads < PL_SHARE_OWNERS ? threads : PL_SHARE_OWNERS;
    s->items = items;
    s->each = each + (items >> 31);
    uint64_t pieces = (uint64_t)((items + s->each - 1) / s->each), owners = (uint64_t)s->owners;
    for (uint64_t i = 0; i < owners; i++)
        atomic_init(&s->of[i].left, pieces * i / owners | pieces * (i + 1) / owners << 32);
}

/* How many are left to an owner. */
static inline int64_t pl_share_left(uint64_t stretch)
{
    return (int64_t)(stretch >> 32) - (int64_t)(stretch & 0xffffffffu);
}

/* A piece for thread `me`, or -1 when all are taken. */
static inline int64_t pl_share_take(pl_share *s, int me)
{
    /* a piece carries no data: the region's begin and end order that */
    const memory_order relaxed = memory_order_relaxed;
    if (me < s->owners) {
        uint64_t mine = atomic_load_explicit(&s->of[me].left, relaxed);
        while (pl_share_left(mine) > 0)
            if (atomic_compare_exchange_weak_explicit(&s->of[me].left, &mine, mine + 1, relaxed, relaxed))
                return (int64_t)(mine & 0xffffffffu);
    }
    for (;;) {
        int from = -1;
        uint64_t most = 0;
        for (int i = 0; i < s->owners; i++) {
            uint64_t theirs = atomic_load_explicit(&s->of[i].left, relaxed);
            if (pl_share_left(theirs) > (from < 0 ? 0 : pl_share_left(most))) from = i, most = theirs;
        }
        if (from < 0) return -1;
        uint64_t less = most - ((uint64_t)1 << 32);
        if (atomic_compare_exchange_weak_explicit(&s->of[from].left, &most, less, relaxed, relaxed))
            return (int64_t)(less >> 32);
    }
}

/* Where a thread is in a piece; zero at first. */
typedef struct {
    int64_t item, end;
} pl_share_place;

/* The next item for thread `me`, or -1. */
static inline int64_t pl_share_next(pl_share *s, pl_share_place *p, int me)
{
    if (p->item == p->end) {
        int64_t piece = pl_share_take(s, me);
        if (piece < 0) return -1;
        p->item = piece * s->each;
        p->end = p->item + s->each < s->items ? p->item + s->each : s->items;
    }
    return p->item++;
}

#define PL_SHARE(t, s, me)                                                                     \
    for (pl_share_place t##_place = {0, 0}, *t##_once = &t##_place; t##_once; t##_once = NULL) \
        for (int64_t t; (t = pl_share_next(s, &t##_place, me)) >= 0;)

#endif
