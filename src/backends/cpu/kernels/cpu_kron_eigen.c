/* cpu_kron_eigen.c -- kron_eigen: eigenvectors of symmetric matrices in double.
 *
 *     K 2^-k = H T H^T                reflections in panels (cpu_kron_tridiagonal.c), k: the largest entry's
 *                                     exponent
 *     T = Z diag(d) Z^T               divide and conquer (cpu_kron_conquer.c)
 *     Q = H Z, columns by descending d
 *
 * Of a batch every thread has matrices of its own; where there are fewer than threads they come one after the
 * other, and the threads share the products. Orders of sums are by n alone, and those of products the gemm's:
 * bits depend on neither threads nor batch mates, and are the same for all instruction sets with a fused
 * multiply-add.
 */
#include <limits.h>
#include <pthread.h>

#include "backends/ref/ref_kron.h"
#include "base/alloc.h"
#include "cpu_convert.h"
#include "cpu_kron_eigen.h"
#include "device/kron_row.h"

typedef struct {
    pl_queue *q;
    const pl_args_kron_eigen *a;
    int64_t ld;
    size_t each;          /* numbers of work space of a thread */
    double *room;         /* of all threads */
    int alone;            /* matrices come one after the other, threads share the products */
    pthread_mutex_t lock; /* of the queue's error */
} eigen_of;

/* ---- in and out --------------------------------------------------------------------------------- */

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The lower triangle of K as the upper one of A, blocks of eight on the diagonal whole, scaled to a largest
 * entry from 1 to 2 by the power of two that is returned; INT_MIN: K is not finite. */
static int load_triangle(const pl_eigen *m, const pl_mat *K, int64_t b)
{
    const int64_t n = m->n, ld = m->ld;
    double top = 0, wrong = 0;
    for (int64_t i = 0; i < n; i++) {
        double *row = m->Z + i * ld;
        pl_row_load_f64(row, K->data, K->dtype, b * K->bs + i * K->rs, i + 1);
#pragma omp simd reduction(max : top) reduction(+ : wrong)
        for (int64_t j = 0; j <= i; j++) {
            const double x = fabs(row[j]);
            top = x > top ? x : top;
            wrong += x - x; /* NaN where x is not finite */
        }
    }
    if (!(wrong == 0)) return INT_MIN;
    const int power = top > 0 ? ilogb(top) : 0;
    const double half = ldexp(1, -power / 2), rest = ldexp(1, -power - -power / 2); /* 2^1074 is no number */
    memset(m->A, 0, (size_t)(ld * ld) * sizeof *m->A);
    for (int64_t i0 = 0; i0 < n; i0 += 8) {
        const int64_t end = smaller(i0 + 8, n);
        for (int64_t j = 0; j < i0; j++)
            for (int64_t i = i0; i < end; i++) m->A[j * ld + i] = m->Z[i * ld + j] * half * rest;
        for (int64_t i = i0; i < end; i++)
            for (int64_t j = i0; j <= i; j++)
                m->A[j * ld + i] = m->A[i * ld + j] = m->Z[i * ld + j] * half * rest;
    }
    return power;
}

/* Columns of Q: rows of Z by descending d. F. */
static void put_basis(const pl_eigen *m, const pl_args_kron_eigen *a, int64_t b, int power)
{
    const int64_t n = m->n, ld = m->ld;
    int64_t *order = m->places;
    double *values = m->vectors, *row = values + ld;
    pl_eigen_sort(order, order + ld, m->d, n);
    for (int64_t k = 0; k < n; k++) values[k] = ldexp(m->d[order[k]], power);
    pl_kron_put_factors(a, b, values, pl_live_of(&a->live, b));
    for (int64_t i0 = 0; i0 < n; i0 += 8) {
        const int64_t rows = smaller(8, n - i0);
        for (int64_t k = 0; k < n; k++) { /* all of a row's eight are there, whatever they are */
            const double *x = m->Z + order[n - 1 - k] * ld + i0;
            for (int64_t i = 0; i < 8; i++) row[i * ld + k] = x[i];
        }
        for (int64_t i = 0; i < rows; i++)
            pl_row_store_f64(a->Q.data, a->Q.dtype, b * a->Q.bs + (i0 + i) * a->Q.rs, row + i * ld, n);
    }
}

/* ---- a matrix ----------------------------------------------------------------------------------- */

/* The next numbers of work space; where there is none yet they are counted only. */
static double *take(double *room, size_t *at, int64_t count)
{
    double *here = room ? room + *at : NULL;
    *at += (size_t)count;
    return here;
}

/* Numbers of work space, and where they are; the first alone where `room` is NULL. */
static size_t eigen_room(pl_eigen *m, double *room)
{
    const int64_t ld = m->ld, square = ld * ld;
    const int64_t panel = smaller(ld, PL_EIGEN_LAST), back = m->n > PL_EIGEN_LEAF ? PL_EIGEN_BACK : 0;
    size_t at = 0;
    m->A = take(room, &at, square);
    m->V = take(room, &at, square);
    m->Z = take(room, &at, square);
    m->Y = take(room, &at, square);
    m->panel = take(room, &at, (3 * panel > 2 * back ? 3 * panel : 2 * back) * ld);
    m->square = take(room, &at, back * back);
    m->d = take(room, &at, ld);
    m->e = take(room, &at, ld);
    m->tau = take(room, &at, ld);
    m->vectors = take(room, &at, PL_EIGEN_VECTORS * (ld + 8));
    m->places = (int64_t *)take(room, &at, PL_EIGEN_PLACES * (ld + 8)); /* as wide as a double */
    return at;
}

/* Q and F of matrix b; q: whose threads multiply, no one's where the side is a leaf's. */
static void eigen_matrix(const eigen_of *o, pl_queue *q, double *room, int64_t b)
{
    const pl_args_kron_eigen *a = o->a;
    pl_eigen m = {.q = q, .n = a->K.rows, .ld = o->ld};
    eigen_room(&m, room);
    const int power = load_triangle(&m, &a->K, b);
    if (power == INT_MIN) {
        pl_kron_put_nan(a, b);
        return;
    }
    PL_ISA_NAME(pl_eigen_tridiagonalise)(&m);
    PL_ISA_NAME(pl_eigen_conquer)(&m);
    if (m.n > PL_EIGEN_LEAF) PL_ISA_NAME(pl_eigen_turn_back)(&m);
    if (m.n <= PL_EIGEN_LEAF || q->error == POLAR_OK) put_basis(&m, a, b, power);
}

/* One by one, products on this thread alone. */
static void eigen_alone(eigen_of *o, double *room, int64_t b)
{
    pl_device one = {.threads = 1};
    pl_queue own = {.dev = &one}; /* an error stays with this thread until it can be handed on */
    eigen_matrix(o, &own, room, b);
    if (own.error == POLAR_OK) return;
    pthread_mutex_lock(&o->lock);
    pl_queue_keep(o->q, pl_fail_again(own.error, own.message));
    pthread_mutex_unlock(&o->lock);
}

static void eigen_one(void *arg, int me, int64_t b)
{
    eigen_of *o = arg;
    double *room = o->room + (size_t)me * o->each;
    if (!pl_kron_eigen_due(pl_live_of(&o->a->live, b), o->a->every, o->a->after)) return;
    if (o->a->K.rows <= PL_EIGEN_LEAF) eigen_matrix(o, NULL, room, b);
    else if (o->alone) eigen_matrix(o, o->q, room, b);
    else eigen_alone(o, room, b);
}

void PL_ISA_NAME(pl_cpu_kron_eigen)(pl_queue *q, const pl_args_kron_eigen *a)
{
    const int64_t n = a->K.rows, batch = a->K.batch;
    int64_t due = 0;
    pl_eigen m = {.n = n, .ld = (n + 7) / 8 * 8};
    for (int64_t b = 0; b < batch; b++) due += pl_kron_eigen_due(pl_live_of(&a->live, b), a->every, a->after);
    if (!n || !due) return;
    if (m.ld >= 128 && m.ld % 64 == 0) m.ld += 8; /* rows that are 4 KB apart would share few lines */
    eigen_of o = {.q = q, .a = a, .ld = m.ld, .lock = PTHREAD_MUTEX_INITIALIZER};
    o.each = (eigen_room(&m, NULL) + 7) / 8 * 8;
    o.alone = due < q->dev->threads && n > PL_EIGEN_LEAF;
    const int threads = o.alone ? 1 : q->dev->threads < due ? q->dev->threads : (int)due;
    o.room = pl_alloc((size_t)threads * o.each * sizeof *o.room);
    if (!o.room) {
        PL_QUEUE_FAIL(q, POLAR_E_NOMEM, "kron_eigen: work space for %d matrices of %lldx%lld", threads,
                      (long long)n, (long long)n);
        return;
    }
    if (o.alone)
        for (int64_t b = 0; b < batch; b++) eigen_one(&o, 0, b);
    else pl_pool_items(q->dev->pool, threads, batch, n <= PL_EIGEN_LEAF ? 0 : 1, eigen_one, &o);
    pl_free(o.room);
}
