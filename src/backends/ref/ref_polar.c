/* ref_polar.c -- the exact polar factor: X = U S V^T, Y = U V^T, zero singular values left out (the canonical
 * partial isometry); and U f(S) V^T likewise. */
#include <float.h>

#include "base/alloc.h"
#include "base/lapack.h"
#include "math/norm_elem.h"
#include "math/spectrum_elem.h"
#include "ref_ops.h"

#define MAX_SHORT_SIDE 23000 /* dgesdd wants 4 k^2 + 7 k numbers */

typedef struct {
    int64_t rows, cols, k; /* k the short side */
    double *x;             /* (rows, cols), destroyed */
    double *u;             /* (rows, k) */
    double *vt;            /* (k, cols) */
    double *s;             /* (k), of x times unit; all column-major */
    double unit;
} svd_work;

static int svd_take(svd_work *w, int64_t rows, int64_t cols)
{
    int64_t k = rows < cols ? rows : cols;
    *w = (svd_work){.rows = rows, .cols = cols, .k = k};
    w->x = pl_alloc((size_t)(rows * cols) * sizeof(double));
    w->u = pl_alloc((size_t)(rows * k) * sizeof(double));
    w->vt = pl_alloc((size_t)(k * cols) * sizeof(double));
    w->s = pl_alloc((size_t)k * sizeof(double));
    return w->x && w->u && w->vt && w->s;
}

static void svd_give(svd_work *w)
{
    pl_free(w->x);
    pl_free(w->u);
    pl_free(w->vt);
    pl_free(w->s);
}

/* u_p becomes f(sigma_p) u_p. */
static void scale_directions(svd_work *w, int64_t kind, double power)
{
    double sum = 0;
    for (int64_t p = 0; p < w->k; p++) sum += w->s[p] * w->s[p];
    const double rms = sqrt(sum / (double)w->k) / w->unit;
    for (int64_t p = 0; p < w->k && w->s[p] > 0; p++) {
        const double f = pl_spectrum(kind, power, w->s[p] / w->unit, rms);
        for (int64_t i = 0; i < w->rows; i++) w->u[p * w->rows + i] *= f;
    }
}

/* Y = sum over kept singular directions of u v^T; summed over ascending index. */
static void put_product(const pl_mat *Y, int64_t b, const svd_work *w)
{
    double *v = w->x, *row = w->vt; /* v: vt row-major, where x was */
    for (int64_t p = 0; p < w->k; p++)
        for (int64_t j = 0; j < w->cols; j++) v[p * w->cols + j] = w->vt[j * w->k + p];
    double cut = w->s[0] * (double)(w->rows > w->cols ? w->rows : w->cols) * DBL_EPSILON;
    for (int64_t i = 0; i < w->rows; i++) {
        for (int64_t j = 0; j < w->cols; j++) row[j] = 0;
        for (int64_t p = 0; p < w->k && w->s[p] > cut; p++)
            for (int64_t j = 0; j < w->cols; j++) row[j] += w->u[p * w->rows + i] * v[p * w->cols + j];
        for (int64_t j = 0; j < w->cols; j++) pl_put(Y, b, i, j, row[j]);
    }
}

/* Brings the largest entry near 1, so that LAPACK sees no extreme numbers; U and V do not change. */
static int load_scaled(svd_work *w, const pl_mat *X, int64_t b)
{
    double amax = 0;
    for (int64_t i = 0; i < w->rows; i++)
        for (int64_t j = 0; j < w->cols; j++) {
            double x = pl_get(X, b, i, j);
            if (x - x != 0) return 0; /* NaN or infinite */
            amax = x > amax ? x : -x > amax ? -x : amax;
            w->x[j * w->rows + i] = x;
        }
    double s = amax > 0 ? pl_norm_scale(amax, PL_SCALE_EXP_F64) : 1;
    for (int64_t i = 0; i < w->rows * w->cols; i++) w->x[i] *= s;
    w->unit = s;
    return 1;
}

static void polar_one(pl_queue *q, const pl_args_polar_exact *a, int64_t b, svd_work *w)
{
    if (!load_scaled(w, &a->X, b)) {
        for (int64_t i = 0; i < w->rows; i++)
            for (int64_t j = 0; j < w->cols; j++) pl_put(&a->Y, b, i, j, NAN);
        return;
    }
    polar_status st = pl_lapack_svd(w->s, w->u, w->vt, w->x, w->rows, w->cols);
    if (st != POLAR_OK) {
        pl_queue_keep(q, st);
        return;
    }
    if (a->kind > POLAR_MAP_EXACT) scale_directions(w, a->kind, a->power);
    put_product(&a->Y, b, w);
}

void pl_ref_polar_exact(pl_queue *q, const pl_args_polar_exact *a)
{
    svd_work w;
    int64_t k = a->X.rows < a->X.cols ? a->X.rows : a->X.cols;
    if (a->X.rows > INT32_MAX || a->X.cols > INT32_MAX || k > MAX_SHORT_SIDE)
        PL_QUEUE_FAIL(q, POLAR_E_SHAPE,
                      "polar_exact of %lldx%lld: LAPACK counts its work space in 32 bits, the short side may "
                      "be %d at most",
                      (long long)a->X.rows, (long long)a->X.cols, MAX_SHORT_SIDE);
    else if (!svd_take(&w, a->X.rows, a->X.cols)) {
        PL_QUEUE_FAIL(q, POLAR_E_NOMEM, "polar_exact: work space for a %lldx%lld matrix",
                      (long long)a->X.rows, (long long)a->X.cols);
        svd_give(&w);
    } else {
        for (int64_t b = 0; b < a->X.batch; b++) polar_one(q, a, b, &w);
        svd_give(&w);
    }
}
