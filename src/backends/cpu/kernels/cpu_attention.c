/* cpu_attention.c -- attention and attention_back: heads of images over the threads; the mathematics is in
 * ../cpu_attention.h, the loops in cpu_attention.inc.
 *
 * A head of an image is worked on by itself: its bits depend on neither threads nor batch. AVX2 and AVX-512
 * give the same bits (one chain of fma per entry, sums down the tokens in order); the baseline has no fma and
 * differs.
 */
#include "../cpu_attention.h"
#include "cpu_convert.h"
#include "cpu_scalars.h"
#include "cpu_tiles.h"
#include "cpu_vec.h"
#include "math/exp_elem.h"
#include "math/lane_sum_elem.h"
#include "math/log_elem.h"

#define MR PL_TILE_ROWS

#include "cpu_as_f32.inc"
#include "cpu_attention.inc"
#include "cpu_as_f64.inc"
#include "cpu_attention.inc"

typedef void (*head_fn)(const void *args, const pl_attention_plan *p, const pl_attention_work *w,
                        int64_t image, int64_t head);

typedef struct {
    head_fn fn;
    const void *args;
    const pl_attention_plan *p;
    char *base;  /* work memory of every thread, */
    size_t each; /* so much */
} heads_of;

static void one_head(void *arg, int me, int64_t t)
{
    const heads_of *o = arg;
    pl_attention_work w;
    pl_attention_work_point(&w, o->base + (size_t)me * o->each, o->p);
    o->fn(o->args, o->p, &w, t / o->p->heads, t % o->p->heads);
}

static void for_heads(pl_queue *q, head_fn fn, const void *args, const pl_attention_plan *p)
{
    pl_attention_work none;
    pl_scratch_mark mark = pl_scratch_begin(q);
    size_t each = pl_attention_work_point(&none, NULL, p);
    char *base = pl_scratch_take(q, each * (size_t)p->threads);
    if (base)
        pl_pool_items(q->dev->pool, p->threads, p->images * p->heads, 1, one_head,
                      &(heads_of){fn, args, p, base, each});
    pl_scratch_end(q, mark);
}

#ifdef PL_TILES
/* What the tile unit takes: bf16, statistics in float. */
static int for_the_tiles(const pl_mat *lse, const pl_mat *const *m, int n)
{
    int all = !lse->data || lse->dtype == POLAR_DTYPE_F32;
    for (int i = 0; i < n; i++) all = all && m[i]->dtype == POLAR_DTYPE_BF16;
    return all;
}
#endif

void PL_ISA_NAME(pl_cpu_attention)(pl_queue *q, const pl_args_attention *a)
{
#ifdef PL_TILES
    if (for_the_tiles(&a->lse, (const pl_mat *const[]){&a->O, &a->QKV}, 2)) {
        PL_ISA_NAME(pl_cpu_attention_tiles)(q, a);
        return;
    }
#endif
    int f64 = pl_any_f64(pl_op_operands(a), 3);
    pl_attention_plan p = pl_attention_plan_make(&a->QKV, a->heads, f64, 0, q->dev->threads);
    for_heads(q, f64 ? attention_head_f64 : attention_head_f32, a, &p);
}

void PL_ISA_NAME(pl_cpu_attention_back)(pl_queue *q, const pl_args_attention_back *a)
{
#ifdef PL_TILES
    if (for_the_tiles(&a->lse, (const pl_mat *const[]){&a->dQKV, &a->QKV, &a->O, &a->dO}, 4)) {
        PL_ISA_NAME(pl_cpu_attention_back_tiles)(q, a);
        return;
    }
#endif
    int f64 = pl_any_f64(pl_op_operands(a), 5);
    pl_attention_plan p = pl_attention_plan_make(&a->QKV, a->heads, f64, 1, q->dev->threads);
    for_heads(q, f64 ? attention_back_head_f64 : attention_back_head_f32, a, &p);
}
