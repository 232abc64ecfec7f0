/* op_expect_polar.c -- is Y the polar factor of X? From the definition, without a singular value
 * decomposition.
 *
 * Turned so that x and y are (k, n), k <= n. y is the canonical partial isometry of x exactly if
 *     y y^T y = y,    H = x y^T is symmetric,    H >= 0,    x = H y,    rank y = rank x.
 *
 * What rounding allows. A backward stable SVD (LAPACK Users' Guide, 4.9) is that of x + E with ||E|| <= p u
 * ||x||, p = 10 n, with factors orthonormal to p u, and drops singular values up to n eps ||x|| each; storing
 * y costs u_out ||y||. With || || Frobenius, ||y|| <= sqrt(k): delta = (p u + u_out) sqrt(k)            how
 * far y is from an exact partial isometry eta   = (p + 2 n sqrt(k)) u ||x||        how far x is from the
 * matrix it belongs to so to first order the isometry defect is at most 4 delta, and ||H - H^T||, ||x - H
 * y||, -min eig H at most 2 (delta ||x|| + eta). These hold whatever the condition of x, unlike a comparison
 * of entries. ||y||^2 is the rank to 2 sqrt(k) delta; the rank of x is read off the eigenvalues of x x^T
 * where no singular value lies between 1e-8 and 1e-6 of the largest (long double resolves 1e-9), else not
 * compared.
 */
#include "base/alloc.h"
#include "op_calls.h"
#include "op_model_impl.h"

typedef long double real;

typedef struct {
    int64_t k, n;
    real *x, *y;     /* (k, n) */
    real *H, *P, *G; /* (k, k): x y^T, y y^T, x x^T */
    real *eig;       /* (k) */
} work;

static real dot(const real *a, const real *b, int64_t n)
{
    real s = 0;
    for (int64_t j = 0; j < n; j++) s += a[j] * b[j];
    return s;
}

/* Eigenvalues of a symmetric matrix by cyclic Jacobi rotations; destroys A. */
static void eigenvalues(real *out, real *A, int64_t k)
{
    real norm = sqrtl(dot(A, A, k * k));
    for (int sweep = 0; sweep < 30; sweep++) {
        real off = 0;
        for (int64_t p = 0; p < k; p++)
            for (int64_t q = p + 1; q < k; q++) {
                off += A[p * k + q] * A[p * k + q];
                if (fabsl(A[p * k + q]) <= 1e-22L * norm) continue;
                real theta = (A[q * k + q] - A[p * k + p]) / (2 * A[p * k + q]);
                real t = (theta >= 0 ? 1 : -1) / (fabsl(theta) + sqrtl(1 + theta * theta)),
                     c = 1 / sqrtl(1 + t * t), s = t * c;
                for (int64_t i = 0; i < k; i++) {
                    real a = A[p * k + i], b = A[q * k + i];
                    A[p * k + i] = c * a - s * b;
                    A[q * k + i] = s * a + c * b;
                }
                for (int64_t i = 0; i < k; i++) {
                    real a = A[i * k + p], b = A[i * k + q];
                    A[i * k + p] = c * a - s * b;
                    A[i * k + q] = s * a + c * b;
                }
            }
        if (off <= 1e-38L * norm * norm) break;
    }
    for (int64_t i = 0; i < k; i++) out[i] = A[i * k + i];
}

/* Loads matrix b, x scaled to a largest entry near 1. Returns 0 where x is not finite. */
static int load(work *w, const pl_op_run *r, int64_t b)
{
    int wide = r->mat[0].rows <= r->mat[0].cols, e;
    double amax = 0;
    for (int64_t i = 0; i < w->k; i++)
        for (int64_t j = 0; j < w->n; j++) {
            double x = wide ? pl_op_run_before(r, 1, b, i, j) : pl_op_run_before(r, 1, b, j, i);
            if (!isfinite(x)) return 0;
            amax = fmax(amax, fabs(x));
            w->x[i * w->n + j] = x;
            w->y[i * w->n + j] = wide ? pl_op_run_after(r, 0, b, i, j) : pl_op_run_after(r, 0, b, j, i);
        }
    frexp(amax, &e);
    for (int64_t i = 0; amax > 0 && i < w->k * w->n; i++) w->x[i] = ldexpl(w->x[i], -e);
    return 1;
}

static void worse(double *err, double *tol, real e, real t)
{
    if (!(e * *tol <= *err * t)) { /* a NaN is the worst */
        *err = (double)e;
        *tol = (double)t;
    }
}

static void measure(double *err, double *tol, work *w, real u_out)
{
    int64_t k = w->k, n = w->n;
    real root = sqrtl((real)k), u = 0x1p-53L, xx = sqrtl(dot(w->x, w->x, k * n));
    real delta = (10 * (real)n * u + u_out) * root, eta = (10 + 2 * root) * (real)n * u * xx,
         slack = 2 * (delta * xx + eta);
    real isometry = 0, symmetry = 0, residual = 0, least = 0, top = 0, rank = 0;
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = 0; j < k; j++) {
            w->H[i * k + j] = dot(w->x + i * n, w->y + j * n, n);
            w->P[i * k + j] = dot(w->y + i * n, w->y + j * n, n);
            w->G[i * k + j] = dot(w->x + i * n, w->x + j * n, n);
        }
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = 0; j < n; j++) {
            real py = 0, hy = 0;
            for (int64_t p = 0; p < k; p++) {
                py += w->P[i * k + p] * w->y[p * n + j];
                hy += w->H[i * k + p] * w->y[p * n + j];
            }
            isometry += (py - w->y[i * n + j]) * (py - w->y[i * n + j]);
            residual += (hy - w->x[i * n + j]) * (hy - w->x[i * n + j]);
        }
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = 0; j <= i; j++) {
            real d = w->H[i * k + j] - w->H[j * k + i];
            symmetry += 2 * d * d;
            w->H[i * k + j] = w->H[j * k + i] = (w->H[i * k + j] + w->H[j * k + i]) / 2;
        }
    worse(err, tol, sqrtl(isometry), 4 * delta);
    worse(err, tol, sqrtl(symmetry), slack);
    worse(err, tol, sqrtl(residual), slack);
    eigenvalues(w->eig, w->H, k);
    for (int64_t i = 0; i < k; i++) least = fminl(least, w->eig[i]);
    worse(err, tol, -least, slack);
    eigenvalues(w->eig, w->G, k);
    for (int64_t i = 0; i < k; i++) top = fmaxl(top, w->eig[i]);
    for (int64_t i = 0; i < k; i++) {
        if (w->eig[i] > 1e-16L * top && w->eig[i] < 1e-12L * top) return;
        rank += top > 0 && w->eig[i] >= 1e-12L * top;
    }
    worse(err, tol, fabsl(dot(w->y, w->y, k * n) - rank), 2 * root * delta);
}

polar_status pl_polar_defect(double *err, double *tol, const pl_op_run *r, int64_t b)
{
    const pl_mat *Y = &r->mat[0];
    work w = {.k = Y->rows < Y->cols ? Y->rows : Y->cols, .n = Y->rows < Y->cols ? Y->cols : Y->rows};
    size_t big = (size_t)(w.k * w.n), small = (size_t)(w.k * w.k);
    real *memory = pl_calloc(2 * big + 3 * small + (size_t)w.k, sizeof *memory);
    *err = 0;
    *tol = 1;
    PL_NEED(memory, POLAR_E_NOMEM, "work space to check a polar factor");
    w.x = memory;
    w.y = w.x + big;
    w.H = w.y + big;
    w.P = w.H + small;
    w.G = w.P + small;
    w.eig = w.G + small;
    if (load(&w, r, b))
        measure(err, tol, &w, r->mat[0].dtype == POLAR_DTYPE_F64 ? 0 : pl_unit_roundoff(r->mat[0].dtype));
    else {
        /* of a matrix that is not finite nothing is known, and every entry must say so */
        int64_t numbers = 0;
        for (int64_t i = 0; i < Y->rows; i++)
            for (int64_t j = 0; j < Y->cols; j++) numbers += !isnan(pl_op_run_after(r, 0, b, i, j));
        worse(err, tol, (real)numbers, 0.5L);
    }
    pl_free(memory);
    return POLAR_OK;
}

/* Not element by element: pl_polar_defect. */
MODEL(polar_exact)
{
    (void)r;
    return anything;
}

/* ---- wrong ops that must be caught, wrong calls that must be refused ---- */

static void polar_negative(pl_queue *q, const pl_args_polar_exact *a)
{
    pl_ref_ops.polar_exact(q, a);
    for (int64_t i = 0; i < a->Y.rows; i++)
        for (int64_t j = 0; j < a->Y.cols; j++)
            pl_store_f64(entry(&a->Y, 0, i, j), a->Y.dtype, 0,
                         -pl_load_f64(entry(&a->Y, 0, i, j), a->Y.dtype, 0));
}

/* 1e-13 off the sphere of orthogonal matrices. */
static void polar_scaled(pl_queue *q, const pl_args_polar_exact *a)
{
    pl_ref_ops.polar_exact(q, a);
    for (int64_t i = 0; i < a->Y.rows; i++)
        for (int64_t j = 0; j < a->Y.cols; j++)
            pl_store_f64(entry(&a->Y, 0, i, j), a->Y.dtype, 0,
                         (1 + 1e-13) * pl_load_f64(entry(&a->Y, 0, i, j), a->Y.dtype, 0));
}

static const fault polar_exact_faults[] = {
    {"minus the polar factor", "polar_exact f64 3x7x13", (op_fn)polar_negative},
    {"a polar factor 1e-13 too long", "polar_exact f64 3x7x13", (op_fn)polar_scaled},
};

static const bad_call polar_exact_bad[] = {
    {1, COLS, 0, POLAR_E_SHAPE},
    {0, ONTO, 1, POLAR_E_ARG},
    {1, UNKNOWN_FORMAT, 0, POLAR_E_DTYPE},
};

const op_calls pl_calls_polar_exact = {"polar_exact f32 3x7x13", LIST(polar_exact_bad),
                                       LIST(polar_exact_faults)};
