/* cpu_overlap.c -- ops that were put off (pl_queue_overlap_begin), in one parallel region: whole matrices
 * first, the most work first, then elementwise pieces.
 *
 * Every matrix and every piece is one thread's from end to end, so who does what changes no bit. Without
 * matrices each thread begins with its stretch of the pieces, the same one every time, as its caches like it;
 * with matrices whoever is free takes the next.
 */
#include <stdatomic.h>

#include "base/work_share.h"
#include "cpu_tiles.h"

#define SMALL 64 /* pieces below which one thread does it all */
#define TAKE  32 /* pieces taken at a time */

typedef struct {
    const pl_cpu_item *item[PL_CPU_ITEMS];
    int64_t first[PL_CPU_ITEMS + 1]; /* of all matrices, or pieces, those before this item's */
    int count;
} share;

#ifdef PL_TILES
static double work_of(const pl_cpu_item *item)
{
    const pl_mat *x = pl_cpu_item_matrix(item);
    return (double)x->rows * (double)x->cols * (double)(x->rows < x->cols ? x->rows : x->cols);
}

/* In order of work, the most first; equals in the order of the calls. Returns a thread's work memory; 0: too
 * large, done at once. */
static size_t matrices_add(share *s, pl_queue *q, const pl_cpu_item *item)
{
    size_t bytes = PL_ISA_NAME(pl_cpu_matrix_bytes)(item);
    int at = s->count;
    if (!bytes) PL_ISA_NAME(pl_cpu_large_matrix)(q, item);
    else {
        for (; at > 0 && work_of(s->item[at - 1]) < work_of(item); at--) s->item[at] = s->item[at - 1];
        s->item[at] = item;
        s->count++;
    }
    return bytes;
}

static void matrices_count(share *s)
{
    for (int i = 0; i < s->count; i++) s->first[i + 1] = s->first[i] + pl_cpu_item_matrix(s->item[i])->batch;
}

static void matrices_do(const share *m, _Atomic int64_t *next, char *work)
{
    for (int64_t t; (t = atomic_fetch_add(next, 1)) < m->first[m->count];) {
        int k = 0;
        while (t >= m->first[k + 1]) k++;
        PL_ISA_NAME(pl_cpu_matrix)(m->item[k], t - m->first[k], work);
    }
}
#else
static size_t matrices_add(share *s, pl_queue *q, const pl_cpu_item *item)
{
    (void)s, (void)q, (void)item;
    return 0; /* there is no such op here */
}

static void matrices_count(share *s)
{
    (void)s;
}

static void matrices_do(const share *m, _Atomic int64_t *next, char *work)
{
    (void)m, (void)next, (void)work;
}
#endif

/* Pieces [from, to) of all items. */
static void pieces_some(const share *p, int64_t from, int64_t to)
{
    int k = 0;
    while (from >= p->first[k + 1]) k++;
    for (; from < to; k++) {
        int64_t end = to < p->first[k + 1] ? to : p->first[k + 1];
        PL_ISA_NAME(pl_cpu_adamw_some)(&p->item[k]->adamw, from - p->first[k], end - p->first[k]);
        from = end;
    }
}

/* Items in the making, over the threads. */
typedef struct {
    share m, p;                               /* matrices, pieces */
    _Atomic int64_t next_matrix, next_pieces; /* where there are matrices */
    pl_share stretches;                       /* of the pieces, where there are none */
    char *work;                               /* a thread's, of every one, */
    size_t bytes;                             /* so much */
} overlap;

static void pieces_take(const share *p, int64_t t)
{
    int64_t all = p->first[p->count];
    pieces_some(p, t * TAKE, all < (t + 1) * TAKE ? all : (t + 1) * TAKE);
}

static void overlap_share(void *arg, int me)
{
    overlap *o = arg;
    int64_t takes = (o->p.first[o->p.count] + TAKE - 1) / TAKE;
    if (o->work) {
        matrices_do(&o->m, &o->next_matrix, o->work + o->bytes * (size_t)me);
        for (int64_t t; (t = atomic_fetch_add(&o->next_pieces, 1)) < takes;) pieces_take(&o->p, t);
    } else PL_SHARE(t, &o->stretches, me) pieces_take(&o->p, t);
}

void PL_ISA_NAME(pl_cpu_do_items)(pl_queue *q, const pl_cpu_item *items, int count)
{
    overlap o;
    share *m = &o.m, *p = &o.p;
    m->count = p->count = 0;
    m->first[0] = p->first[0] = 0;
    o.bytes = 0;
    for (int i = 0; i < count; i++) {
        if (items[i].id == PL_OP_adamw_step) {
            p->item[p->count] = &items[i];
            p->first[p->count + 1] = p->first[p->count] + PL_ISA_NAME(pl_cpu_adamw_pieces)(&items[i].adamw);
            p->count++;
            continue;
        }
        size_t one = matrices_add(m, q, &items[i]);
        if (one > o.bytes) o.bytes = one;
    }
    matrices_count(m);
    int64_t matrices = m->first[m->count], pieces = p->first[p->count],
            tasks = matrices + (pieces + SMALL - 1) / SMALL;
    int threads = tasks < q->dev->threads ? (int)tasks : q->dev->threads;
    if (!tasks || q->error != POLAR_OK) return;
    pl_scratch_mark mark = pl_scratch_begin(q);
    o.work = matrices ? pl_scratch_take(q, o.bytes * (size_t)threads) : NULL;
    if (o.work || !matrices) {
        atomic_init(&o.next_matrix, 0);
        atomic_init(&o.next_pieces, 0);
        pl_share_begin(&o.stretches, (pieces + TAKE - 1) / TAKE, 1, threads);
        pl_pool_run(q->dev->pool, threads, overlap_share, &o);
    }
    pl_scratch_end(q, mark);
}

void PL_ISA_NAME(pl_cpu_adamw_step)(pl_queue *q, const pl_args_adamw_step *a)
{
    pl_cpu_do_item(q,
                   &(pl_cpu_item){.run = PL_ISA_NAME(pl_cpu_do_items), .id = PL_OP_adamw_step, .adamw = *a});
}
