/* host_qr.c -- Householder's reflections in blocks of PANEL rows, all matrices in step: a block is made by
 * one thread a matrix, what it does to the other rows is two products of the whole batch by the device's
 * gemm.
 *
 *     H_k = I - tau_k v_k v_k^T;  H_first ... H_last = I - V^T T V, the v_k in the rows of V, T triangular
 *     rows below:  X <- X (I - V^T T V);  then the orthonormal rows Y, from the last block on:
 *     Y <- Y (I - V^T T^T V), Y being the unit matrix before
 *
 * Sums of a row are in lanes, the gemm's order is its own, so the bits depend on neither threads nor batch.
 */
#include "device/host_qr.h"

#include <math.h>
#include <string.h>

#define PANEL 32
#define LANES 8

typedef struct {
    pl_queue *q;
    int64_t count, n;
    double *X, *V, *T, *W, *P; /* T: (count, n, PANEL), a block's in its rows; W: (count, PANEL, n) */
    double *diagonal;          /* (count, n), or NULL */
    int64_t from, to;          /* rows of the block */
    int back;                  /* W = T^T V, else T V */
} qr;

static double dot(const double *x, const double *y, int64_t n)
{
    double lane[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) lane[l] += x[i + l] * y[i + l];
    for (; i < n; i++) sum += x[i] * y[i];
    for (int l = 0; l < LANES; l++) sum += lane[l];
    return sum;
}

static void add(double *y, double a, const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] += a * x[i];
}

/* The reflection of row x, of n entries, into v: x becomes (to, 0, ..). Returns tau. */
static double reflection(double *v, double *to, const double *x, int64_t n)
{
    const double square = dot(x, x, n), first = x[0];
    *to = first > 0 ? -sqrt(square) : sqrt(square);
    const double rest = square - first * *to;
    memcpy(v, x, (size_t)n * sizeof *v);
    v[0] = first - *to;
    return rest > 0 ? 1 / rest : 0;
}

/* The reflections of a block of matrix b, each applied to the rows of the block after it; T. */
static void panel(void *arg, int me, int64_t b)
{
    const qr *o = arg;
    const int64_t n = o->n, from = o->from;
    double *X = o->X + b * n * n, *V = o->V + b * n * n, *T = o->T + (b * n + from) * PANEL;
    (void)me;
    for (int64_t k = from; k < o->to; k++) {
        double *v = V + k * n, *t = T + (k - from), along[PANEL], to;
        const double tau = reflection(v + k, &to, X + k * n + k, n - k);
        if (o->diagonal) o->diagonal[b * n + k] = to;
        memset(v + from, 0, (size_t)(k - from) * sizeof *v);
        for (int64_t j = k + 1; j < o->to; j++)
            add(X + j * n + k, -tau * dot(v + k, X + j * n + k, n - k), v + k, n - k);
        for (int64_t j = from; j < k; j++) along[j - from] = dot(V + j * n + k, v + k, n - k);
        for (int64_t i = 0; i < o->to - from; i++) t[i * PANEL] = 0;
        for (int64_t i = 0; i < k - from; i++) { /* column k of T */
            double s = 0;
            for (int64_t j = i; j < k - from; j++) s += T[i * PANEL + j] * along[j];
            t[i * PANEL] = -tau * s;
        }
        t[(k - from) * PANEL] = tau;
    }
}

/* W of the block of matrix b */
static void combine(void *arg, int me, int64_t b)
{
    const qr *o = arg;
    const int64_t n = o->n, from = o->from, rows = o->to - from;
    const double *V = o->V + b * n * n, *T = o->T + (b * n + from) * PANEL;
    double *W = o->W + b * PANEL * n;
    (void)me;
    for (int64_t i = 0; i < rows; i++) {
        memset(W + i * n + from, 0, (size_t)(n - from) * sizeof *W);
        for (int64_t j = o->back ? 0 : i; j < (o->back ? i + 1 : rows); j++)
            add(W + i * n + from, o->back ? T[j * PANEL + i] : T[i * PANEL + j], V + (from + j) * n + from,
                n - from);
    }
}

static void each(qr *o, pl_item_fn fn)
{
    const int threads = o->q->dev->threads < o->count ? o->q->dev->threads : (int)o->count;
    pl_pool_items(o->q->dev->pool, threads < 1 ? 1 : threads, o->count, 1, fn, o);
}

/* Rows [row, ...) of every matrix at m, from column o->from on. */
static pl_mat block(const qr *o, double *m, int64_t row, int64_t rows, int64_t bs)
{
    pl_mat v = pl_mat_dense(m + row * o->n + o->from, POLAR_DTYPE_F64, o->count, rows, o->n - o->from);
    v.bs = bs, v.rs = o->n;
    return v;
}

/* Rows [first, n) of every matrix at m lose (m V^T) W. */
static void update(qr *o, double *m, int64_t first)
{
    const int64_t n = o->n, rows = o->to - o->from;
    if (first == n) return;
    const pl_mat M = block(o, m, first, n - first, n * n), V = block(o, o->V, o->from, rows, n * n),
                 W = block(o, o->W, 0, rows, PANEL * n);
    pl_mat P = pl_mat_dense(o->P, POLAR_DTYPE_F64, o->count, n - first, rows);
    o->q->dev->ops.gemm(o->q, &(pl_args_gemm){.C = P, .A = M, .B = V, .tb = 1, .alpha = 1});
    o->q->dev->ops.gemm(o->q, &(pl_args_gemm){.C = M, .A = P, .B = W, .D = M, .alpha = -1, .beta = 1});
}

static void unit(void *arg, int me, int64_t b)
{
    const qr *o = arg;
    double *X = o->X + b * o->n * o->n;
    (void)me;
    memset(X, 0, (size_t)(o->n * o->n) * sizeof *X);
    for (int64_t i = 0; i < o->n; i++) X[i * o->n + i] = 1;
}

size_t pl_host_qr_room(int64_t count, int64_t n)
{
    return (size_t)(count * n) * (size_t)(n + 3 * PANEL);
}

void pl_host_qr(pl_queue *q, pl_mat X, double *diagonal, double *room)
{
    qr o = {.q = q, .count = X.batch, .n = X.rows, .X = X.data, .V = room, .diagonal = diagonal};
    o.T = o.V + o.count * o.n * o.n, o.W = o.T + o.count * o.n * PANEL, o.P = o.W + o.count * o.n * PANEL;
    for (o.from = 0; o.from < o.n; o.from = o.to) {
        o.to = o.from + PANEL < o.n ? o.from + PANEL : o.n;
        each(&o, panel);
        if (o.to == o.n) break;
        each(&o, combine);
        update(&o, o.X, o.to);
    }
    each(&o, unit);
    o.back = 1;
    for (o.to = o.n; o.to > 0; o.to = o.from) {
        o.from = (o.to - 1) / PANEL * PANEL;
        each(&o, combine);
        update(&o, o.X, o.from);
    }
}
