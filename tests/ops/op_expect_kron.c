/* op_expect_kron.c -- are the columns of Q eigenvectors, is a sweep one of the QR iteration? From the
 * definitions, without either decomposition.
 *
 * What rounding allows, as in op_expect_polar.c: eigenvectors, or a QR decomposition's Q, by a backward
 * stable method (LAPACK Users' Guide, 4.7; Higham, theorem 19.4, column by column) are exactly orthonormal to
 * delta = (10 n u + u_out) sqrt(n), and belong to a matrix within delta of the given one, relative to it (its
 * columns). To first order the defect of orthonormality and the residuals are at most 4 delta.
 */
#include <float.h>

#include "base/alloc.h"
#include "device/kron_row.h"
#include "math/kron_elem.h"
#include "op_calls.h"
#include "op_model_impl.h"

typedef long double real;

typedef struct {
    int64_t n;
    real *A, *Q, *R; /* (n, n): the given matrix, the vectors in columns, Q^T A Q or Q^T Z */
    real delta;
} work;

static void live_of(double out[PL_LIVE_COLS], const pl_op_run *r, int o, int64_t b)
{
    for (int64_t j = 0; j < PL_LIVE_COLS; j++)
        out[j] = pl_op_run_before(r, o, r->mat[o].batch == 1 ? 0 : b, 0, j);
}

static void worse(double *err, double *tol, real e, real t)
{
    if (!(e * *tol <= *err * t)) { /* a NaN is the worst */
        *err = (double)e;
        *tol = (double)t;
    }
}

/* Everything of matrix b of result o is as it was (want NULL), or as want has it. */
static void same(double *err, double *tol, const pl_op_run *r, int o, int64_t b)
{
    const pl_mat *m = &r->mat[o];
    int64_t changed = 0;
    for (int64_t i = 0; i < m->rows; i++)
        for (int64_t j = 0; j < m->cols; j++) {
            double x = pl_op_run_before(r, o, b, i, j), y = pl_op_run_after(r, o, b, i, j);
            changed += x != y && !(isnan(x) && isnan(y));
        }
    worse(err, tol, (real)changed, 0.5L);
}

static void all_nan(double *err, double *tol, const pl_op_run *r, int o, int64_t b)
{
    const pl_mat *m = &r->mat[o];
    int64_t numbers = 0;
    for (int64_t i = 0; i < m->rows; i++)
        for (int64_t j = 0; j < m->cols; j++) numbers += !isnan(pl_op_run_after(r, o, b, i, j));
    worse(err, tol, (real)numbers, 0.5L);
}

/* R = Q^T X (or X its own R), and how orthonormal Q is. */
static void orthonormal(double *err, double *tol, work *w)
{
    const int64_t n = w->n;
    real off = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            real s = i == j ? -1 : 0;
            for (int64_t k = 0; k < n; k++) s += w->Q[k * n + i] * w->Q[k * n + j];
            off += s * s;
        }
    worse(err, tol, sqrtl(off), 4 * w->delta);
}

/* Q^T A into R */
static void transformed(work *w)
{
    const int64_t n = w->n;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            real s = 0;
            for (int64_t k = 0; k < n; k++) s += w->Q[k * n + i] * w->A[k * n + j];
            w->R[i * n + j] = s;
        }
}

/* ---- kron_eigen ---- */

/* The matrix, scaled to a largest entry near 1; its unit, 0 where it is not finite. */
static real load_symmetric(work *w, const pl_op_run *r, int64_t b)
{
    const int64_t n = w->n;
    real top = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++) {
            real k = pl_op_run_before(r, 2, b, i, j);
            if (!(fabsl(k) <= 1.7e308L)) return 0;
            top = fmaxl(top, fabsl(k));
            w->A[i * n + j] = w->A[j * n + i] = k;
        }
    for (int64_t i = 0; top > 0 && i < n * n; i++) w->A[i] /= top;
    return top > 0 ? top : 1;
}

static double least_of(real x, const double unit[2])
{
    return fmin((double)x * unit[0], (double)x * unit[1]);
}

/* Factor k lies between those of eigenvalues a little larger and smaller. */
static void factors(double *err, double *tol, const work *w, const pl_op_run *r, int64_t b,
                    const double *live, real top, real slack)
{
    const int64_t n = w->n;
    real trace = 0, least = w->R[n * n - 1];
    for (int64_t k = 0; k < n; k++) trace += w->R[k * n + k];
    for (int64_t k = 0; k < n; k++) least = fminl(least, w->R[k * n + k]);
    const double kind = (double)r->c.how.kind, p = r->c.how.alpha, eps = live[PL_LIVE_EPS];
    /* the trace is a sum of n eigenvalues that may be off */
    double unit[2];
    for (int i = 0; i < 2; i++)
        unit[i] =
            pl_kron_unit((int64_t)kind, (double)n, (double)((trace + (i ? 1 : -1) * (real)n * slack) * top),
                         live[PL_LIVE_BETA2], live[PL_LIVE_C2], live[PL_LIVE_STEP]);
    for (int64_t k = 0; k < n; k++) {
        const real x = w->R[k * n + k];
        /* of an eigenvalue and of the least one, either may be off */
        const double low = least_of((x - 2 * slack) * top, unit),
                     high = -least_of(-(x + 2 * slack) * top, unit),
                     floor = -least_of(-(least + slack) * top, unit),
                     deep = least_of((least - slack) * top, unit);
        const double most = pl_kron_factor((int64_t)kind, low, fmin(floor, low), eps, p),
                     fewest = pl_kron_factor((int64_t)kind, high, deep, eps, p),
                     y = pl_op_run_after(r, 1, b, 0, k);
        if (!isfinite(unit[0] + unit[1]) || !isfinite(high) || !isfinite(deep) ||
            fabsl(trace) < 8 * (real)n * slack)
            continue;
        worse(err, tol, y > most * (1 + 1e-9) || y < fewest * (1 - 1e-9) || isnan(y), 0.5L);
    }
}

static void eigen_defect(double *err, double *tol, work *w, const pl_op_run *r, int64_t b)
{
    double live[PL_LIVE_COLS];
    const int64_t n = w->n;
    live_of(live, r, 3, b);
    if (!pl_kron_eigen_due(live, r->c.how.every, r->c.how.after)) {
        same(err, tol, r, 0, b);
        if (has(r, 1)) same(err, tol, r, 1, b);
        return;
    }
    const real top = load_symmetric(w, r, b);
    if (top == 0) {
        all_nan(err, tol, r, 0, b);
        if (has(r, 1)) all_nan(err, tol, r, 1, b);
        return;
    }
    real norm = 0, off = 0;
    for (int64_t i = 0; i < n * n; i++) norm += w->A[i] * w->A[i];
    const real slack = 4 * w->delta * sqrtl(norm);
    orthonormal(err, tol, w);
    transformed(w);
    real *row = w->A; /* Q^T A Q row by row */
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < n; j++) {
            row[j] = 0;
            for (int64_t k = 0; k < n; k++) row[j] += w->R[i * n + k] * w->Q[k * n + j];
        }
        for (int64_t j = 0; j < n; j++) {
            w->R[i * n + j] = row[j];
            off += i == j ? 0 : row[j] * row[j];
        }
    }
    worse(err, tol, sqrtl(off), slack);
    for (int64_t k = 1; k < n; k++)
        worse(err, tol, fmaxl(0, w->R[k * n + k] - w->R[(k - 1) * n + k - 1]), slack + LDBL_MIN);
    if (has(r, 1)) factors(err, tol, w, r, b, live, top, slack);
}

/* ---- kron_sweep ---- */

/* The columns of K Q by descending q.z into A, B: what their sums are made of; 0: two of them are too near to
 * tell, or a sum may over- or underflow. */
static int sorted(work *w, real *B, int64_t *place, const pl_op_run *r, int64_t b)
{
    const int64_t n = w->n;
    real *value = w->R, *room = w->R + n, *Z = B + n * n;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            Z[i * n + j] = B[i * n + j] = 0;
            for (int64_t k = 0; k < n; k++) {
                real x = (real)pl_op_run_before(r, 3, b, i, k) * pl_op_run_before(r, 0, b, k, j);
                Z[i * n + j] += x, B[i * n + j] += fabsl(x);
            }
        }
    for (int64_t j = 0; j < n; j++) {
        value[j] = room[j] = 0;
        for (int64_t i = 0; i < n; i++) {
            real x = pl_op_run_before(r, 0, b, i, j);
            value[j] += x * Z[i * n + j], room[j] += fabsl(x) * B[i * n + j];
        }
        if (!(room[j] < 1e300L) || (room[j] > 0 && room[j] < 1e-250L)) return 0;
    }
    for (int64_t j = 0; j < n; j++) {
        int64_t before = 0;
        for (int64_t k = 0; k < n; k++) {
            real gap = 4 * (real)n * 0x1p-53L * (room[j] + room[k]);
            if (k != j && fabsl(value[k] - value[j]) <= gap && (room[j] > 0 || room[k] > 0)) return 0;
            before += value[k] > value[j] || (value[k] == value[j] && k < j);
        }
        place[before] = j;
    }
    for (int64_t k = 0; k < n; k++)
        for (int64_t i = 0; i < n; i++) w->A[i * n + k] = Z[i * n + place[k]];
    return 1;
}

/* Factor k lies between those of a q.z a little larger and smaller: two sums of n terms, of |q| |K| |q|.
 * After `sorted`. */
static void sweep_factors(double *err, double *tol, const work *w, const pl_op_run *r, int64_t b,
                          const double *live, const int64_t *place)
{
    const int64_t n = w->n;
    const real *value = w->R, *room = w->R + n;
    const int64_t kind = r->c.how.kind;
    const double unit =
        pl_kron_unit(kind, (double)n, 1, live[PL_LIVE_BETA2], live[PL_LIVE_C2], live[PL_LIVE_STEP]);
    for (int64_t k = 0; k < n; k++) {
        const real slack = 4 * (real)n * 0x1p-53L * room[place[k]];
        const double low = unit * (double)(value[place[k]] - slack),
                     high = unit * (double)(value[place[k]] + slack), eps = live[PL_LIVE_EPS],
                     y = pl_op_run_after(r, 2, b, 0, k);
        worse(err, tol,
              !(y <= pl_kron_factor(kind, low, low, eps, r->c.how.alpha) * (1 + 1e-9) &&
                y >= pl_kron_factor(kind, high, high, eps, r->c.how.alpha) * (1 - 1e-9)),
              0.5L);
    }
}

static void sweep_defect(double *err, double *tol, work *w, real *B, const pl_op_run *r, int64_t b,
                         int64_t *place)
{
    double live[PL_LIVE_COLS];
    const int64_t n = w->n;
    const pl_mat *V = &r->mat[1];
    live_of(live, r, 4, b);
    if (!pl_kron_sweep_due(live, r->c.how.every, r->c.how.after)) {
        same(err, tol, r, 0, b), same(err, tol, r, 1, b);
        if (has(r, 2)) same(err, tol, r, 2, b);
        return;
    }
    if (n < 2 || !sorted(w, B, place, r, b)) return;
    if (has(r, 2)) sweep_factors(err, tol, w, r, b, live, place);
    orthonormal(err, tol, w);
    transformed(w);
    real top = 0; /* columns that much smaller than the largest entry lose digits to underflow */
    for (int64_t i = 0; i < n * n; i++) top = fmaxl(top, B[i]);
    for (int64_t j = 0; j < n; j++) { /* upper triangular */
        real length = 0, below = 0;
        for (int64_t i = 0; i < n; i++) length += B[i * n + place[j]] * B[i * n + place[j]];
        for (int64_t i = j + 1; i < n; i++) below += w->R[i * n + j] * w->R[i * n + j];
        worse(err, tol, sqrtl(below), 4 * w->delta * sqrtl(length) + (real)n * top * DBL_MIN);
    }
    int64_t wrong = 0;
    for (int64_t i = 0; i < V->rows; i++)
        for (int64_t j = 0; j < V->cols; j++) {
            double x = r->c.how.trans ? pl_op_run_before(r, 1, b, i, place[j])
                                      : pl_op_run_before(r, 1, b, place[i], j);
            double y = pl_op_run_after(r, 1, b, i, j);
            wrong += x != y && !(isnan(x) && isnan(y));
        }
    worse(err, tol, (real)wrong, 0.5L);
}

polar_status pl_kron_defect(double *err, double *tol, const pl_op_run *r, int64_t b)
{
    const pl_mat *Q = &r->mat[0];
    work w = {.n = Q->rows};
    size_t size = (size_t)(w.n * w.n);
    real *memory = pl_calloc(5 * size + 2 * (size_t)w.n, sizeof *memory);
    int64_t *place = pl_calloc((size_t)w.n + 1, sizeof *place);
    *err = 0;
    *tol = 1;
    if (memory && place) {
        w.A = memory, w.Q = w.A + size, w.R = w.Q + size;
        w.delta =
            (10 * (real)w.n * 0x1p-53L + (Q->dtype == POLAR_DTYPE_F64 ? 0 : pl_unit_roundoff(Q->dtype))) *
            sqrtl((real)w.n);
        for (int64_t i = 0; i < w.n; i++)
            for (int64_t j = 0; j < w.n; j++) w.Q[i * w.n + j] = pl_op_run_after(r, 0, b, i, j);
        if (r->c.op == PL_OP_kron_eigen) eigen_defect(err, tol, &w, r, b);
        else sweep_defect(err, tol, &w, memory + 3 * size + 2 * (size_t)w.n, r, b, place);
    }
    int taken = memory && place;
    pl_free(memory);
    pl_free(place);
    PL_NEED(taken, POLAR_E_NOMEM, "work space to check a basis");
    return POLAR_OK;
}

/* Not element by element: pl_kron_defect. */
MODEL(kron_eigen)
{
    (void)r, (void)o, (void)b, (void)i, (void)j, (void)ct;
    return anything;
}

MODEL(kron_sweep)
{
    (void)r, (void)o, (void)b, (void)i, (void)j, (void)ct;
    return anything;
}

/* Result o: 0 A, 1 K. */
MODEL(kron_moment)
{
    double live[PL_LIVE_COLS];
    live_of(live, r, 4, b);
    const pl_iv beta2 = pl_iv_point(live[PL_LIVE_BETA2]);
    pl_iv norm = product(pl_iv_point(live[PL_LIVE_GRAD]),
                         pl_iv_in(pl_iv_div(at(r, 3, b, 0, 1), at(r, 3, b, 0, 0)), ct), ct);
    pl_iv part = product(product(pl_iv_point(1 - live[PL_LIVE_BETA2]), norm, ct), norm, ct),
          x = product(part, at(r, 2, b, i, j), ct), k = fused(beta2, at(r, 1, b, i, j), x, ct);
    return o == 1 ? k : fused(beta2, k, x, ct);
}

/* ---- wrong ops that must be caught, wrong calls that must be refused ---- */

/* The factor of the gradient is another one. */
static void factor_once(pl_queue *q, const pl_args_kron_moment *a)
{
    pl_args_kron_moment b = *a;
    double live[3 * PL_LIVE_COLS];
    memcpy(live, a->live.data, sizeof live);
    for (int b3 = 0; b3 < 3; b3++) live[b3 * PL_LIVE_COLS + PL_LIVE_GRAD] *= 0.70710678118654752;
    b.live.data = live;
    pl_ref_ops.kron_moment(q, &b);
}

static const fault kron_moment_faults[] = {
    {"a gradient's factor that is too small", "kron_moment f64 3x7x13 per_matrix A,0.75", (op_fn)factor_once},
};

static const bad_call kron_moment_bad[] = {
    {0, COLS, 0, POLAR_E_SHAPE},   {1, ROWS, 0, POLAR_E_SHAPE},  {1, ONTO, 2, POLAR_E_ARG},
    {1, FORMAT, 0, POLAR_E_DTYPE}, {3, COLS, 0, POLAR_E_SHAPE},  {3, BATCH, 0, POLAR_E_SHAPE},
    {4, FORMAT, 0, POLAR_E_DTYPE}, {4, BATCH, 0, POLAR_E_SHAPE},
};

const op_calls pl_calls_kron_moment = {"kron_moment f64 3x7x13 per_matrix A,0.75", LIST(kron_moment_bad),
                                       LIST(kron_moment_faults)};

/* The first two vectors are turned by a little. */
static void vectors_turned(pl_queue *q, const pl_args_kron_eigen *a)
{
    pl_ref_ops.kron_eigen(q, a);
    for (int64_t i = 0; i < a->Q.rows; i++) {
        double x = get(&a->Q, 0, i, 0), y = get(&a->Q, 0, i, 1);
        put(&a->Q, 0, i, 0, x + 1e-4 * y);
        put(&a->Q, 0, i, 1, y - 1e-4 * x);
    }
}

static void factors_doubled(pl_queue *q, const pl_args_kron_eigen *a)
{
    pl_ref_ops.kron_eigen(q, a);
    scale_all(&a->F, 1.01);
}

/* In every step, asked or not. */
static void always(pl_queue *q, const pl_args_kron_eigen *a)
{
    pl_args_kron_eigen b = *a;
    b.every = 1, b.after = 0;
    pl_ref_ops.kron_eigen(q, &b);
}

static const fault kron_eigen_faults[] = {
    {"vectors that are turned by 1e-4", "kron_eigen f32->f32,f64 3x7x13 F 0.25,0.95 eps 1e-06",
     (op_fn)vectors_turned},
    {"factors 1 % too large", "kron_eigen f64 3x7x13 F 0.25,0.95 eps 1e-06", (op_fn)factors_doubled},
    {"a basis in every step", "kron_eigen f64 3x7x13 every after per_matrix,0.95 eps 1e-08", (op_fn)always},
};

static const bad_call kron_eigen_bad[] = {
    {0, COLS, 0, POLAR_E_SHAPE},  {1, COLS, 0, POLAR_E_SHAPE}, {1, FORMAT, 0, POLAR_E_DTYPE},
    {2, ROWS, 0, POLAR_E_SHAPE},  {3, COLS, 0, POLAR_E_SHAPE}, {3, FORMAT, 0, POLAR_E_DTYPE},
    {3, BATCH, 0, POLAR_E_SHAPE}, {0, ONTO, 2, POLAR_E_ARG},   {0, MODE, 0, POLAR_E_ARG},
};

const op_calls pl_calls_kron_eigen = {"kron_eigen f64 3x7x13 nesterov per_matrix F 0.3,0.75 eps 1e-06",
                                      LIST(kron_eigen_bad), LIST(kron_eigen_faults)};

/* The moments stay where they are. */
static void moments_stay(pl_queue *q, const pl_args_kron_sweep *a)
{
    pl_args_kron_sweep b = *a;
    double *copy = pl_alloc((size_t)(a->V.batch * a->V.rows * a->V.cols) * sizeof *copy);
    b.V = pl_mat_dense(copy, POLAR_DTYPE_F64, a->V.batch, a->V.rows, a->V.cols);
    PL_CALL(copy, q, .Y = b.V, .X = a->V);
    pl_ref_ops.kron_sweep(q, &b);
    pl_free(copy);
}

static void order_kept(pl_queue *q, const pl_args_kron_sweep *a)
{
    pl_ref_ops.kron_sweep(q, a);
    for (int64_t i = 0; i < a->Q.rows; i++) {
        double x = get(&a->Q, 0, i, 0);
        put(&a->Q, 0, i, 0, get(&a->Q, 0, i, 1));
        put(&a->Q, 0, i, 1, x);
    }
}

/* The factors come in the order of the columns before the sweep. */
static void factors_stay(pl_queue *q, const pl_args_kron_sweep *a)
{
    pl_ref_ops.kron_sweep(q, a);
    double x = get(&a->F, 0, 0, 0);
    put(&a->F, 0, 0, 0, get(&a->F, 0, 0, 1));
    put(&a->F, 0, 0, 1, x);
}

static void factors_uncorrected(pl_queue *q, const pl_args_kron_sweep *a)
{
    pl_ref_ops.kron_sweep(q, a);
    for (int64_t b = 0; b < a->F.batch; b++)
        for (int64_t k = 0; k < a->F.cols; k++) put(&a->F, b, 0, k, 1.01 * get(&a->F, b, 0, k));
}

static const fault kron_sweep_faults[] = {
    {"factors in another order", "kron_sweep f64 3x7x13 clamped after per_matrix F 0.5,0.75 eps 1e-08",
     (op_fn)factors_stay},
    {"factors 1 % too large", "kron_sweep f64 3x7x13 clamped after per_matrix F 0.5,0.75 eps 1e-08",
     (op_fn)factors_uncorrected},
    {"moments that stay where they are", "kron_sweep f32 3x7x13 after,0.95", (op_fn)moments_stay},
    {"another order of the vectors", "kron_sweep f32 3x7x13 after,0.95", (op_fn)order_kept},
};

static const bad_call kron_sweep_bad[] = {
    {0, COLS, 0, POLAR_E_SHAPE},   {1, ROWS, 0, POLAR_E_SHAPE}, {2, COLS, 0, POLAR_E_SHAPE},
    {2, FORMAT, 0, POLAR_E_DTYPE}, {3, ROWS, 0, POLAR_E_SHAPE}, {4, FORMAT, 0, POLAR_E_DTYPE},
    {4, BATCH, 0, POLAR_E_SHAPE},  {0, ONTO, 3, POLAR_E_ARG},   {1, ONTO, 3, POLAR_E_ARG},
};

const op_calls pl_calls_kron_sweep = {"kron_sweep f64 3x7x13 clamped after per_matrix F 0.5,0.75 eps 1e-08",
                                      LIST(kron_sweep_bad), LIST(kron_sweep_faults)};
