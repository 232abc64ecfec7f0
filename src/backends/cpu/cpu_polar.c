/* cpu_polar.c -- exact polar factors: the oracle's, matrix by matrix, the batch shared out over the threads.
 *
 * Each matrix goes through the same single-threaded LAPACK call whatever its batch mates, so the bits are the oracle's.
 */
#include "backends/ref/ref_ops.h"
#include "cpu_kernels.h"

void pl_cpu_polar_exact(pl_queue *q, const pl_args_polar_exact *a)
{
    int64_t batch = a->X.batch;
    int threads = q->dev->threads < batch ? q->dev->threads : (int)batch;
    int64_t pieces = batch > 4 * (int64_t)threads ? 4 * (int64_t)threads : batch;
    if (threads <= 1) {
        pl_ref_polar_exact(q, a);
        return;
    }
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t t = 0; t < pieces; t++) {
        int64_t first = t * batch / pieces, count = (t + 1) * batch / pieces - first;
        pl_queue own = {.dev = q->dev};    /* an error stays with this thread until it can be handed on */
        pl_ref_polar_exact(&own, &(pl_args_polar_exact){.Y = pl_mat_at(a->Y, first, count), .X = pl_mat_at(a->X, first, count)});
        if (own.error != POLAR_OK) {
#pragma omp critical(pl_cpu_polar_error)
            pl_queue_keep(q, pl_fail_again(own.error, own.message));
        }
    }
}
