/* cpu_pairs.c -- pair_dist, pair_sum, pair_grad, pair_square, pair_fold: points of clouds over the threads;
 * the loops are in cpu_pairs.inc.
 *
 * Sums have the order of their rows in ops.def, every term by fma: the same bits from every instruction set.
 * cpu_message.c has the faster way through a whole message.
 */
#include "cpu_convert.h"
#include "cpu_vec.h"
#include "math/vectors_elem.h"

#define CHUNK 64        /* channels, or points, at a time */
#define SMALL (1 << 13) /* terms below which one thread does it all */

static int64_t pair(int64_t points, int64_t i, int64_t j)
{
    int64_t a = i < j ? i : j, b = i < j ? j : i;
    return a * points - a * (a - 1) / 2 + (b - a);
}

#include "cpu_as_f32.inc"
#include "cpu_pairs.inc"
#include "cpu_as_f64.inc"
#include "cpu_pairs.inc"

typedef void (*point_fn)(const void *args, int64_t c, int64_t i);

typedef struct {
    point_fn fn;
    const void *args;
    int64_t points; /* of a cloud */
} points_of;

static void one_point(void *arg, int me, int64_t t)
{
    const points_of *o = arg;
    (void)me;
    o->fn(o->args, t / o->points, t % o->points);
}

/* Calls fn for every point of every cloud; `terms` is the work of one. */
static void for_points(pl_queue *q, point_fn fn, const void *args, int64_t clouds, int64_t points,
                       int64_t terms)
{
    int threads = (double)clouds * (double)points * (double)terms > SMALL ? q->dev->threads : 1;
    pl_pool_items(q->dev->pool, threads, clouds * points, 0, one_point, &(points_of){fn, args, points});
}

void PL_ISA_NAME(pl_cpu_pair_dist)(pl_queue *q, const pl_args_pair_dist *a)
{
    for_points(q, pl_any_f64(pl_op_operands(a), 2) ? pair_dist_point_f64 : pair_dist_point_f32, a, a->X.batch,
               a->X.rows, a->X.rows);
}

void PL_ISA_NAME(pl_cpu_pair_sum)(pl_queue *q, const pl_args_pair_sum *a)
{
    for_points(q, pl_any_f64(pl_op_operands(a), 4) ? pair_sum_point_f64 : pair_sum_point_f32, a, a->X.batch,
               a->points, a->X.rows * a->X.cols);
}

void PL_ISA_NAME(pl_cpu_pair_grad)(pl_queue *q, const pl_args_pair_grad *a)
{
    for_points(q, pl_any_f64(pl_op_operands(a), 3) ? pair_grad_point_f64 : pair_grad_point_f32, a, a->X.batch,
               a->points, a->X.rows * a->X.cols);
}

void PL_ISA_NAME(pl_cpu_pair_square)(pl_queue *q, const pl_args_pair_square *a)
{
    for_points(q, pl_any_f64(pl_op_operands(a), 2) ? pair_square_point_f64 : pair_square_point_f32, a,
               a->Y.batch, a->Y.rows, a->Y.rows);
}

void PL_ISA_NAME(pl_cpu_pair_fold)(pl_queue *q, const pl_args_pair_fold *a)
{
    for_points(q, pl_any_f64(pl_op_operands(a), 2) ? pair_fold_point_f64 : pair_fold_point_f32, a, a->Y.batch,
               a->Y.rows, a->Y.rows);
}
