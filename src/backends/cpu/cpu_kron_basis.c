/* cpu_kron_basis.c -- sweeps of Kronecker factors: products and reflections of all matrices that are due at
 * once (host_qr.c), what is left one thread a matrix. Eigenvectors: kernels/cpu_kron_eigen.c.
 */
#include "backends/ref/ref_kron.h"
#include "base/alloc.h"
#include "cpu_kernels.h"
#include "device/host_qr.h"
#include "device/kron_row.h"

/* Of matrices; a live row may serve all. */
static pl_mat some(pl_mat m, int64_t first, int64_t count)
{
    return m.data && m.batch > 1 ? pl_mat_at(m, first, count) : m;
}

static void each_matrix(pl_queue *q, int64_t count, pl_item_fn fn, void *arg)
{
    const int threads = q->dev->threads < count ? q->dev->threads : (int)count;
    pl_pool_items(q->dev->pool, threads < 1 ? 1 : threads, count, 1, fn, arg);
}

typedef struct {
    const pl_args_kron_sweep *a;
    double *T, *Z, *room; /* K Q and the rows to be orthonormalised, of all; work space of each */
    char *finite;
} sweep_of;

static pl_sweep_work work_of(const sweep_of *o, int64_t b)
{
    const int64_t n = o->a->Q.rows;
    pl_sweep_work w = pl_kron_sweep_work(o->a, o->room + b * (int64_t)pl_kron_sweep_room(o->a));
    w.t = o->T + b * n * n, w.z = o->Z + b * n * n;
    return w;
}

static void begin_one(void *arg, int me, int64_t b)
{
    const sweep_of *o = arg;
    (void)me;
    o->finite[b] = (char)pl_kron_sweep_begin(o->a, b, work_of(o, b));
}

static void end_one(void *arg, int me, int64_t b)
{
    const sweep_of *o = arg;
    (void)me;
    if (o->finite[b]) pl_kron_sweep_end(o->a, b, work_of(o, b));
}

/* Matrices [first, first + count) are due. */
static void sweep_run(pl_queue *q, const pl_args_kron_sweep *all, int64_t first, int64_t count)
{
    pl_args_kron_sweep a = *all;
    const int64_t n = a.Q.rows;
    a.Q = some(a.Q, first, count), a.V = some(a.V, first, count), a.K = some(a.K, first, count);
    a.F = some(a.F, first, count), a.live = some(a.live, first, count);
    const size_t matrices = (size_t)(count * n * n), each = (size_t)count * pl_kron_sweep_room(&a),
                 qr = pl_host_qr_room(count, n);
    double *T = pl_alloc((2 * matrices + each + qr) * sizeof *T + (size_t)count + 1);
    if (!T) {
        PL_QUEUE_FAIL(q, POLAR_E_NOMEM, "kron_sweep: work space for %lld matrices of %lldx%lld",
                      (long long)count, (long long)n, (long long)n);
        return;
    }
    sweep_of o = {.a = &a, .T = T, .Z = T + matrices, .room = T + 2 * matrices};
    o.finite = (char *)(o.room + each + qr);
    q->dev->ops.gemm(
        q,
        &(pl_args_gemm){.C = pl_mat_dense(T, POLAR_DTYPE_F64, count, n, n), .A = a.K, .B = a.Q, .alpha = 1});
    each_matrix(q, count, begin_one, &o);
    pl_host_qr(q, pl_mat_dense(o.Z, POLAR_DTYPE_F64, count, n, n), NULL, o.room + each);
    each_matrix(q, count, end_one, &o);
    pl_free(T);
}

void pl_cpu_kron_sweep(pl_queue *q, const pl_args_kron_sweep *a)
{
    for (int64_t b = 0, n; b < a->Q.batch; b += n) {
        n = 1;
        if (!pl_kron_sweep_due(pl_live_of(&a->live, b), a->every, a->after)) continue;
        while (b + n < a->Q.batch && pl_kron_sweep_due(pl_live_of(&a->live, b + n), a->every, a->after)) n++;
        sweep_run(q, a, b, n);
    }
}
