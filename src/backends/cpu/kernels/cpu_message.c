/* cpu_message.c -- pair_message and pair_message_back: a member after the other, its clouds over the threads;
 * the mathematics is in ../cpu_message.h.
 *
 * A cloud goes through strips of its pairs (whole rows i, at most `strip` pairs), a strip through blocks of
 * channels, one vector wide: the weight of a pair serves both its points at once, and no array of all pairs
 * is ever made. Sums over j ascend, as pair_sum's do. Gradients of the MLP are summed over a part of the
 * clouds in order, then over the parts in order; parts depend on the number of clouds alone. So the bits of a
 * cloud depend on itself and its member's weights, those of a gradient on the member's clouds, nothing on the
 * threads. AVX2 and AVX-512 give the same bits (one chain of fma per channel); the baseline has no fma and
 * differs.
 */
#include "cpu_message_mlp.h"
#include "cpu_message_pieces.h"
#include "cpu_convert.h"
#include "cpu_vec.h"

#define TERMS PL_MESSAGE_TERMS
#define CHUNK PL_MESSAGE_CHUNK
#ifdef __AVX512F__
#define AT_ONCE 2 /* points: as many as the registers hold */
#else
#define AT_ONCE 1
#endif

/* A strip: pairs (i, j >= i) with i in [first, last). */
typedef struct {
    int64_t first, last, pairs, at; /* at: its first pair */
} strip;

static strip strip_at(const pl_message_plan *p, int64_t first, int64_t at)
{
    strip s = {.first = first, .last = first, .at = at};
    while (s.last < p->points && s.pairs + p->points - s.last <= p->strip)
        s.pairs += p->points - s.last, s.last++;
    return s;
}

/* coefficient q of a piece = sum of basis times the values at its nodes, or the transpose of that; (TERMS,
 * hp) each. */
static void through_basis(const pieces *t, int trans, const double *x, double *y, int64_t hp)
{
    for (int q = 0; q < TERMS; q++)
        for (int64_t k = 0; k < hp; k++) {
            double s = 0;
            for (int m = 0; m < TERMS; m++)
                s = fma(trans ? t->basis.of[m][q] : t->basis.of[q][m], x[m * hp + k], s);
            y[q * hp + k] = s;
        }
}

/* Where a strip's pairs fall: their piece and t; and their order by piece. */
static void order_pieces(const pl_message_work *w, int64_t rows, int64_t n)
{
    memset(w->start, 0, (size_t)(rows + 1) * sizeof *w->start);
    for (int64_t p = 0; p < n; p++) w->start[w->piece[p]]++;
    for (int64_t r = 0, sum = 0; r <= rows; r++) {
        int32_t count = w->start[r];
        w->start[r] = (int32_t)sum;
        sum += count;
    }
    /* start[r] ends where piece r + 1 begins */
    for (int64_t p = 0; p < n; p++) w->order[w->start[w->piece[p]]++] = (int32_t)p;
}

/* A member in the making, over the threads. */
typedef struct {
    const pl_message_args *a;
    const pl_message_plan *p;
    const pieces *t;
    const pl_message_member *m;
    int64_t e;
    char *work; /* of every thread */
} member_of;

static pl_message_work work_of(const member_of *o, int me)
{
    pl_message_work w;
    size_t each = pl_message_work_point(&w, NULL, o->p);
    pl_message_work_point(&w, o->work + (size_t)me * each, o->p);
    return w;
}

#include "cpu_as_f32.inc"
#include "cpu_pair_loops.inc"
#include "cpu_message.inc"
#include "cpu_as_f64.inc"
#include "cpu_pair_loops.inc"
#include "cpu_message.inc"

static void run(pl_queue *q, const pl_message_args *a, int f64)
{
    pl_message_plan p = pl_message_plan_make(a, f64, q->dev->threads);
    pl_message_member m;
    pl_scratch_mark mark = pl_scratch_begin(q);
    char *base = pl_scratch_take(q, pl_message_bytes(&p));
    if (base) {
        char *work = base + pl_message_member_point(&m, base, &p);
        for (int64_t e = 0; e < p.members; e++) {
            if (f64) member_run_f64(q, a, &p, &m, e, work);
            else member_run_f32(q, a, &p, &m, e, work);
        }
    }
    pl_scratch_end(q, mark);
}

void PL_ISA_NAME(pl_cpu_pair_message)(pl_queue *q, const pl_args_pair_message *args)
{
    pl_message_args a = pl_message_args_forward(args);
    run(q, &a, pl_any_f64(pl_op_operands(args), 9));
}

void PL_ISA_NAME(pl_cpu_pair_message_back)(pl_queue *q, const pl_args_pair_message_back *args)
{
    pl_message_args a = pl_message_args_back(args);
    run(q, &a, pl_any_f64(pl_op_operands(args), 15));
}
