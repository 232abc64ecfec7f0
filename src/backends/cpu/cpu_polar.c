/* cpu_polar.c -- exact polar factors: the oracle's, matrix by matrix, the batch shared out over the threads.
 *
 * Each matrix goes through the same single-threaded LAPACK call whatever its batch mates, so the bits are the
 * oracle's.
 */
#include <pthread.h>

#include "backends/ref/ref_ops.h"
#include "cpu_kernels.h"

typedef struct {
    pl_queue *q;
    const pl_args_polar_exact *a;
    int64_t pieces;
    pthread_mutex_t lock; /* of the queue's error */
} exact_of;

static void one_piece(void *arg, int me, int64_t t)
{
    exact_of *o = arg;
    int64_t batch = o->a->X.batch, first = t * batch / o->pieces, count = (t + 1) * batch / o->pieces - first;
    pl_queue own = {.dev = o->q->dev}; /* an error stays with this thread until it can be handed on */
    (void)me;
    pl_ref_polar_exact(&own, &(pl_args_polar_exact){.Y = pl_mat_at(o->a->Y, first, count),
                                                    .X = pl_mat_at(o->a->X, first, count),
                                                    .kind = o->a->kind,
                                                    .power = o->a->power});
    if (own.error == POLAR_OK) return;
    pthread_mutex_lock(&o->lock);
    pl_queue_keep(o->q, pl_fail_again(own.error, own.message));
    pthread_mutex_unlock(&o->lock);
}

void pl_cpu_polar_exact(pl_queue *q, const pl_args_polar_exact *a)
{
    int64_t batch = a->X.batch;
    int threads = q->dev->threads < batch ? q->dev->threads : (int)batch;
    int64_t pieces = batch > 4 * (int64_t)threads ? 4 * (int64_t)threads : batch;
    if (threads <= 1) {
        pl_ref_polar_exact(q, a);
        return;
    }
    exact_of o = {q, a, pieces, PTHREAD_MUTEX_INITIALIZER};
    pl_pool_items(q->dev->pool, threads, pieces, 1, one_piece, &o);
}
