/* ref_kron.c -- Kronecker factors of a second moment: their averages, their eigenvectors, and one sweep of
 * the QR iteration in the place of these. Matrices of LAPACK are column-major: symmetric ones look alike.
 */
#include "base/alloc.h"
#include "base/lapack.h"
#include "device/kron_row.h"
#include "math/kron_elem.h"
#include "math/norm_elem.h"
#include "ref_kron.h"
#include "ref_loops.h"

/* K <- b2 K + (1 - b2) x, A = b2 K + (1 - b2) x, x = (grad norm)^2 T */
void pl_ref_kron_moment(pl_queue *q, const pl_args_kron_moment *a)
{
    (void)q;
    FOR_EACH(a->K)
    {
        const double *live = pl_live_of(&a->live, b), beta2 = live[PL_LIVE_BETA2], t = pl_get(&a->T, b, i, j),
                     part = pl_kron_part(beta2, live[PL_LIVE_GRAD], pl_get(&a->N, b, 0, 0),
                                         pl_get(&a->N, b, 0, 1));
        if (!pl_kron_moves(live)) continue;
        const double k = pl_kron_moment(pl_get(&a->K, b, i, j), t, beta2, part);
        pl_put(&a->K, b, i, j, k);
        if (a->A.data) pl_put(&a->A, b, i, j, pl_kron_moment(k, t, beta2, part));
    }
}

static void put_nan(const pl_mat *m, int64_t b)
{
    for (int64_t i = 0; m->data && i < m->rows; i++)
        for (int64_t j = 0; j < m->cols; j++) pl_put(m, b, i, j, NAN);
}

/* The lower triangle of K as both; 0: not finite. */
static int load_symmetric(double *x, const pl_args_kron_eigen *a, int64_t b)
{
    const int64_t n = a->K.rows;
    int finite = 1;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++) {
            double k = pl_get(&a->K, b, i, j);
            x[i * n + j] = x[j * n + i] = k;
            finite &= k - k == 0;
        }
    return finite;
}

void pl_kron_put_nan(const pl_args_kron_eigen *a, int64_t b)
{
    put_nan(&a->Q, b), put_nan(&a->F, b);
}

/* F: f(lambda)^-p, descending */
void pl_kron_put_factors(const pl_args_kron_eigen *a, int64_t b, const double *values, const double *live)
{
    const int64_t n = a->K.rows;
    double trace = 0;
    for (int64_t k = 0; k < n; k++) trace += values[k];
    const double unit =
        pl_kron_unit(a->kind, (double)n, trace, live[PL_LIVE_BETA2], live[PL_LIVE_C2], live[PL_LIVE_STEP]);
    for (int64_t k = 0; a->F.data && k < n; k++)
        pl_put(
            &a->F, b, 0, k,
            pl_kron_factor(a->kind, unit * values[n - 1 - k], unit * values[0], live[PL_LIVE_EPS], a->power));
}

/* Q: the eigenvectors, descending */
static void put_basis(const pl_args_kron_eigen *a, int64_t b, const double *x, const double *values,
                      const double *live)
{
    const int64_t n = a->K.rows;
    for (int64_t k = 0; k < n; k++) /* LAPACK's are ascending */
        for (int64_t i = 0; i < n; i++) pl_put(&a->Q, b, i, k, x[(n - 1 - k) * n + i]);
    pl_kron_put_factors(a, b, values, live);
}

void pl_ref_kron_eigen(pl_queue *q, const pl_args_kron_eigen *a)
{
    const int64_t n = a->K.rows;
    double *x = pl_alloc((size_t)(n * n + n) * sizeof *x + 1), *values = x + n * n;
    if (!x)
        PL_QUEUE_FAIL(q, POLAR_E_NOMEM, "kron_eigen: work space for a %lldx%lld matrix", (long long)n,
                      (long long)n);
    for (int64_t b = 0; x && n && b < a->K.batch; b++) {
        const double *live = pl_live_of(&a->live, b);
        if (!pl_kron_eigen_due(live, a->every, a->after)) continue;
        if (!load_symmetric(x, a, b)) {
            pl_kron_put_nan(a, b);
            continue;
        }
        polar_status st = pl_lapack_eigen(values, x, n);
        if (st != POLAR_OK) pl_queue_keep(q, st);
        else put_basis(a, b, x, values, live);
    }
    pl_free(x);
}

/* ---- one sweep ---------------------------------------------------------------------------------- */

/* t = K Q, row by row */
static void multiply(double *t, const pl_args_kron_sweep *a, int64_t b)
{
    const int64_t n = a->Q.rows;
    for (int64_t i = 0; i < n; i++) {
        double *row = t + i * n;
        for (int64_t j = 0; j < n; j++) row[j] = 0;
        for (int64_t k = 0; k < n; k++) {
            const double x = pl_get(&a->K, b, i, k);
            for (int64_t j = 0; j < n; j++) row[j] += x * pl_get(&a->Q, b, k, j);
        }
    }
}

/* rayleigh: q.z of each column; place: columns by descending q.z, the first of equals first; 0: not finite */
static int order(pl_sweep_work w, const pl_args_kron_sweep *a, int64_t b)
{
    const int64_t n = a->Q.rows;
    int finite = 1;
    for (int64_t j = 0; j < n; j++) w.rayleigh[j] = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) w.rayleigh[j] += pl_get(&a->Q, b, i, j) * w.t[i * n + j];
    for (int64_t j = 0; j < n; j++) finite &= w.rayleigh[j] - w.rayleigh[j] == 0;
    for (int64_t j = 0; j < n; j++) {
        int64_t before = 0;
        for (int64_t k = 0; k < n; k++)
            before += w.rayleigh[k] > w.rayleigh[j] || (w.rayleigh[k] == w.rayleigh[j] && k < j);
        if (finite) w.place[before] = j;
    }
    return finite;
}

static void permute_lines(pl_sweep_work w, const pl_args_kron_sweep *a, int64_t b)
{
    const pl_mat *V = &a->V;
    for (int64_t i = 0; i < V->rows; i++)
        for (int64_t j = 0; j < V->cols; j++)
            w.v[i * V->cols + j] = a->trans ? pl_get(V, b, i, w.place[j]) : pl_get(V, b, w.place[i], j);
    for (int64_t i = 0; i < V->rows; i++)
        for (int64_t j = 0; j < V->cols; j++) pl_put(V, b, i, j, w.v[i * V->cols + j]);
}

/* F from q.z */
static void put_factors(const pl_args_kron_sweep *a, int64_t b, pl_sweep_work w, const double *live)
{
    const int64_t n = a->Q.rows;
    double trace = 0;
    for (int64_t k = 0; k < n; k++) trace += w.rayleigh[k];
    const double unit = pl_kron_unit(a->kind, (double)n, trace, live[PL_LIVE_BETA2], live[PL_LIVE_C2],
                                     live[PL_LIVE_STEP]),
                 least = unit * w.rayleigh[w.place[n - 1]];
    for (int64_t k = 0; k < n; k++)
        pl_put(&a->F, b, 0, k,
               pl_kron_factor(a->kind, unit * w.rayleigh[w.place[k]], least, live[PL_LIVE_EPS], a->power));
}

size_t pl_kron_sweep_room(const pl_args_kron_sweep *a)
{
    return (size_t)(2 * a->Q.rows * (a->Q.rows + 1) + a->V.rows * a->V.cols);
}

pl_sweep_work pl_kron_sweep_work(const pl_args_kron_sweep *a, double *room)
{
    const int64_t n = a->Q.rows;
    pl_sweep_work w = {.t = room, .z = room + n * n, .rayleigh = room + 2 * n * n};
    w.place = (int64_t *)(w.rayleigh + n);
    w.v = w.rayleigh + 2 * n;
    return w;
}

int pl_kron_sweep_begin(const pl_args_kron_sweep *a, int64_t b, pl_sweep_work w)
{
    const int64_t n = a->Q.rows;
    double amax = 0;
    if (!order(w, a, b)) {
        put_nan(&a->Q, b), put_nan(&a->F, b);
        for (int64_t i = 0; i < n * n; i++) w.z[i] = 0;
        return 0;
    }
    if (a->F.data) put_factors(a, b, w, pl_live_of(&a->live, b));
    for (int64_t i = 0; i < n * n; i++) amax = fabs(w.t[i]) > amax ? fabs(w.t[i]) : amax;
    const double s = pl_norm_scale(amax, PL_SCALE_EXP_F64); /* what follows sees no extreme numbers */
    for (int64_t k = 0; k < n; k++)
        for (int64_t i = 0; i < n; i++) w.z[k * n + i] = s * w.t[i * n + w.place[k]];
    return 1;
}

void pl_kron_sweep_end(const pl_args_kron_sweep *a, int64_t b, pl_sweep_work w)
{
    const int64_t n = a->Q.rows;
    permute_lines(w, a, b);
    for (int64_t k = 0; k < n; k++)
        for (int64_t i = 0; i < n; i++) pl_put(&a->Q, b, i, k, w.z[k * n + i]);
}

void pl_ref_kron_sweep(pl_queue *q, const pl_args_kron_sweep *a)
{
    const int64_t n = a->Q.rows;
    double *room = pl_alloc(pl_kron_sweep_room(a) * sizeof *room + 1);
    if (!room)
        PL_QUEUE_FAIL(q, POLAR_E_NOMEM, "kron_sweep: work space for a %lldx%lld matrix", (long long)n,
                      (long long)n);
    const pl_sweep_work w = pl_kron_sweep_work(a, room);
    for (int64_t b = 0; room && n && b < a->Q.batch; b++) {
        if (!pl_kron_sweep_due(pl_live_of(&a->live, b), a->every, a->after)) continue;
        multiply(w.t, a, b);
        if (!pl_kron_sweep_begin(a, b, w)) continue;
        polar_status st = pl_lapack_qr(w.z, w.rayleigh, n);
        if (st != POLAR_OK) pl_queue_keep(q, st);
        else pl_kron_sweep_end(a, b, w);
    }
    pl_free(room);
}
