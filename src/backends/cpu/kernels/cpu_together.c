/* cpu_together.c -- ops that were put off (pl_queue_together_begin), in one parallel region: whole matrices first, the most work first, then elementwise pieces.
 *
 * Every matrix and every piece is one thread's from end to end, so who does what changes no bit. Without matrices each thread has one stretch of the pieces, the same
 * one every time, as its caches like it; with matrices whoever is free takes the next.
 */
#include <omp.h>

#include "../cpu_meet.h"
#include "cpu_tiles.h"

#define SMALL 64    /* pieces below which one thread does it all */
#define TAKE  32    /* pieces taken at a time */

typedef struct {
    const pl_cpu_item *item[PL_CPU_ITEMS];
    int64_t            first[PL_CPU_ITEMS + 1];    /* of all matrices, or pieces, those before this item's */
    int                count;
} share;

#ifdef PL_TILES
static double work_of(const pl_cpu_item *item)
{
    const pl_mat *x = pl_cpu_item_matrix(item);
    return (double)x->rows * (double)x->cols * (double)(x->rows < x->cols ? x->rows : x->cols);
}

/* In order of work, the most first; equals in the order of the calls. Returns a thread's work memory; 0: too large, done at once. */
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

static void matrices_do(const share *m, char *work)
{
#pragma omp for schedule(dynamic) nowait
    for (int64_t t = 0; t < m->first[m->count]; t++) {
        int k = 0;
        while (t >= m->first[k + 1]) k++;
        PL_ISA_NAME(pl_cpu_matrix)(m->item[k], t - m->first[k], work);
    }
}
#else
static size_t matrices_add(share *s, pl_queue *q, const pl_cpu_item *item)
{
    (void)s, (void)q, (void)item;
    return 0;    /* there is no such op here */
}

static void matrices_count(share *s)
{
    (void)s;
}

static void matrices_do(const share *m, char *work)
{
    (void)m, (void)work;
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

static void pieces_do(const share *p, int matrices)
{
    int64_t all = p->first[p->count];
    if (matrices) {
#pragma omp for schedule(dynamic) nowait
        for (int64_t t = 0; t < (all + TAKE - 1) / TAKE; t++) pieces_some(p, t * TAKE, all < (t + 1) * TAKE ? all : (t + 1) * TAKE);
    } else {
        int64_t n = omp_get_num_threads(), k = omp_get_thread_num(), from = all * k / n, to = all * (k + 1) / n;
        if (from < to) pieces_some(p, from, to);
    }
}

void PL_ISA_NAME(pl_cpu_do_items)(pl_queue *q, const pl_cpu_item *items, int count)
{
    share m = {.count = 0}, p = {.count = 0};
    size_t bytes = 0;
    _Atomic int met = 0;
    for (int i = 0; i < count; i++) {
        if (items[i].id == PL_OP_adamw_step) {
            p.item[p.count] = &items[i];
            p.first[p.count + 1] = p.first[p.count] + PL_ISA_NAME(pl_cpu_adamw_pieces)(&items[i].adamw);
            p.count++;
            continue;
        }
        size_t one = matrices_add(&m, q, &items[i]);
        if (one > bytes) bytes = one;
    }
    matrices_count(&m);
    int64_t matrices = m.first[m.count], tasks = matrices + (p.first[p.count] + SMALL - 1) / SMALL;
    int threads = tasks < q->dev->threads ? (int)tasks : q->dev->threads;
    if (!tasks || q->error != POLAR_OK) return;
    pl_scratch_mark mark = pl_scratch_begin(q);
    char *work = matrices ? pl_scratch_take(q, bytes * (size_t)threads) : NULL;
    if (work || !matrices) {
#pragma omp parallel num_threads(threads) if (threads > 1)
        {
            matrices_do(&m, work + bytes * (size_t)omp_get_thread_num());
            pieces_do(&p, matrices > 0);
            pl_meet(&met);
        }
    }
    pl_scratch_end(q, mark);
}

void PL_ISA_NAME(pl_cpu_adamw_step)(pl_queue *q, const pl_args_adamw_step *a)
{
    pl_cpu_do_item(q, &(pl_cpu_item){.run = PL_ISA_NAME(pl_cpu_do_items), .id = PL_OP_adamw_step, .adamw = *a});
}
