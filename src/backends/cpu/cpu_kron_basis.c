/* cpu_kron_basis.c -- bases of Kronecker factors: the oracle's, matrix by matrix, the batch shared out over
 * the threads, each matrix by the same single-threaded LAPACK calls whatever its batch mates.
 */
#include <pthread.h>

#include "backends/ref/ref_kron.h"
#include "base/alloc.h"
#include "cpu_kernels.h"
#include "device/kron_row.h"

typedef struct {
    pl_queue *q;
    const pl_args_kron_eigen *eigen; /* or */
    const pl_args_kron_sweep *sweep;
    pl_mat T; /* the sweep's products */
    int64_t batch, pieces;
    pthread_mutex_t lock; /* of the queue's error */
} bases_of;

/* Of matrices; a live row may serve all. */
static pl_mat some(pl_mat m, int64_t first, int64_t count)
{
    return m.data && m.batch > 1 ? pl_mat_at(m, first, count) : m;
}

static void one_piece(void *arg, int me, int64_t t)
{
    bases_of *o = arg;
    int64_t first = t * o->batch / o->pieces, count = (t + 1) * o->batch / o->pieces - first;
    pl_queue own = {.dev = o->q->dev}; /* an error stays with this thread until it can be handed on */
    (void)me;
    if (o->eigen) {
        pl_args_kron_eigen a = *o->eigen;
        a.Q = some(a.Q, first, count), a.F = some(a.F, first, count), a.K = some(a.K, first, count);
        a.live = some(a.live, first, count);
        pl_ref_kron_eigen(&own, &a);
    } else {
        pl_args_kron_sweep a = *o->sweep;
        a.Q = some(a.Q, first, count), a.V = some(a.V, first, count), a.K = some(a.K, first, count);
        a.F = some(a.F, first, count), a.live = some(a.live, first, count);
        const pl_mat T = some(o->T, first, count);
        pl_kron_sweep_with(&own, &a, &T);
    }
    if (own.error == POLAR_OK) return;
    pthread_mutex_lock(&o->lock);
    pl_queue_keep(o->q, pl_fail_again(own.error, own.message));
    pthread_mutex_unlock(&o->lock);
}

static void all_pieces(bases_of *o)
{
    int threads = o->q->dev->threads < o->batch ? o->q->dev->threads : (int)o->batch;
    o->pieces = o->batch > 4 * (int64_t)threads ? 4 * (int64_t)threads : o->batch;
    pl_pool_items(o->q->dev->pool, threads < 1 ? 1 : threads, o->pieces, 1, one_piece, o);
}

void pl_cpu_kron_eigen(pl_queue *q, const pl_args_kron_eigen *a)
{
    bases_of o = {.q = q, .eigen = a, .batch = a->Q.batch, .lock = PTHREAD_MUTEX_INITIALIZER};
    all_pieces(&o);
}

/* Matrices [first, first + count) are due: their products by the device's own gemm. */
static void sweep_run(pl_queue *q, const pl_args_kron_sweep *all, int64_t first, int64_t count)
{
    pl_args_kron_sweep a = *all;
    const int64_t n = a.Q.rows;
    a.Q = some(a.Q, first, count), a.V = some(a.V, first, count), a.K = some(a.K, first, count);
    a.F = some(a.F, first, count), a.live = some(a.live, first, count);
    double *room = pl_alloc((size_t)(count * n * n) * sizeof *room + 1);
    if (!room) {
        PL_QUEUE_FAIL(q, POLAR_E_NOMEM, "kron_sweep: work space for %lld matrices of %lldx%lld",
                      (long long)count, (long long)n, (long long)n);
        return;
    }
    bases_of o = {.q = q, .sweep = &a, .batch = count, .lock = PTHREAD_MUTEX_INITIALIZER};
    o.T = pl_mat_dense(room, POLAR_DTYPE_F64, count, n, n);
    q->dev->ops.gemm(q, &(pl_args_gemm){.C = o.T, .A = a.K, .B = a.Q, .alpha = 1});
    all_pieces(&o);
    pl_free(room);
}

static const double *live_row(const pl_mat *live, int64_t b)
{
    return (const double *)live->data + (live->batch == 1 ? 0 : b * live->bs);
}

void pl_cpu_kron_sweep(pl_queue *q, const pl_args_kron_sweep *a)
{
    for (int64_t b = 0, n; b < a->Q.batch; b += n) {
        n = 1;
        if (!pl_kron_sweep_due(live_row(&a->live, b), a->every, a->after)) continue;
        while (b + n < a->Q.batch && pl_kron_sweep_due(live_row(&a->live, b + n), a->every, a->after)) n++;
        sweep_run(q, a, b, n);
    }
}
