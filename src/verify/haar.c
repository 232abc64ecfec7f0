/* haar.c -- Gaussian and Haar-orthogonal draws. Where a draw lies in Philox's space:
 *
 *     stream   PL_STREAM_GAUGE for P, Q and rotations, PL_STREAM_VERIFY for the rest
 *     step     kind << 32 | rows << 16 | cols          rows, cols: the shape of the measure's G
 *     index    sample << 32 | pair                     each draw gives two normals
 */
#include "verify/haar.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/lapack.h"
#include "base/philox.h"
#include "device/host_qr.h"

/* Sides from which on the library's own blocks of reflections are worth a device. LAPACK without a tuned BLAS
 * takes 20 s at side 2144, the blocks one; below, it keeps the digits of what was measured with it. */
#define OWN_SIDE 1024

void pl_draw_normal(double *out, int64_t count, const pl_draw *draw)
{
    assert(draw->rows < 65536 && draw->cols < 65536);
    int gauge = draw->kind == PL_DRAW_LEFT || draw->kind == PL_DRAW_RIGHT || draw->kind == PL_DRAW_ROTATION;
    uint64_t step = (uint64_t)draw->kind << 32 | (uint64_t)draw->rows << 16 | (uint64_t)draw->cols;
    for (int64_t i = 0; i < count; i += 2) {
        pl_n2 z = pl_normal(draw->seed, gauge ? PL_STREAM_GAUGE : PL_STREAM_VERIFY, step,
                            (uint64_t)draw->sample << 32 | (uint64_t)(i / 2));
        out[i] = z.a;
        if (i + 1 < count) out[i + 1] = z.b;
    }
}

/* As pl_lapack_qr of a row-major matrix, on the calling thread too. */
static polar_status own_qr(double *q, double *diagonal, int64_t n)
{
    polar_device *dev = NULL;
    polar_queue *queue = NULL;
    double *room = pl_alloc(pl_host_qr_room(1, n) * sizeof *room);
    polar_status st = room ? POLAR_OK
                           : PL_FAIL(POLAR_E_NOMEM, "work space for an orthogonal %lldx%lld matrix",
                                     (long long)n, (long long)n);
    if (st == POLAR_OK) st = polar_device_open(&dev, "cpu:threads=1");
    if (st == POLAR_OK) st = polar_queue_create(&queue, dev, NULL);
    if (st == POLAR_OK) {
        pl_host_qr(queue, pl_mat_dense(q, POLAR_DTYPE_F64, 1, n, n), diagonal, room);
        st = polar_queue_sync(queue);
    }
    polar_queue_destroy(queue);
    polar_device_close(dev);
    pl_free(room);
    return st;
}

/* Column-major for LAPACK, row-major for us: what comes back is Q^T, as Haar as Q. */
polar_status pl_haar_from_gaussian(double *q, int64_t n)
{
    double *diagonal = pl_alloc((size_t)(n > 0 ? n : 0) * sizeof *diagonal);
    PL_NEED(diagonal, POLAR_E_NOMEM, "work space for an orthogonal %lldx%lld matrix", (long long)n,
            (long long)n);
    polar_status st = n < OWN_SIDE ? pl_lapack_qr(q, diagonal, n) : own_qr(q, diagonal, n);
    for (int64_t j = 0; j < n && st == POLAR_OK; j++)
        for (int64_t i = 0; i < n; i++) q[j * n + i] *= diagonal[j] < 0 ? -1 : 1;
    pl_free(diagonal);
    return st;
}

polar_status pl_haar_draw(double *q, int64_t n, const pl_draw *draw)
{
    pl_draw_normal(q, n * n, draw);
    return pl_haar_from_gaussian(q, n);
}

polar_status pl_haar_rotation(double r[9], const pl_draw *draw)
{
    PL_TRY(pl_haar_draw(r, 3, draw));
    double det = r[0] * (r[4] * r[8] - r[5] * r[7]) - r[1] * (r[3] * r[8] - r[5] * r[6]) +
                 r[2] * (r[3] * r[7] - r[4] * r[6]);
    /* -I commutes with everything: O(3) folds onto SO(3) */
    for (int i = 0; det < 0 && i < 9; i++) r[i] = -r[i];
    return POLAR_OK;
}

polar_status pl_spectrum_put(double *x, int64_t rows, int64_t cols, const pl_spectrum *values)
{
    int64_t k = rows < cols ? rows : cols;
    double *s = pl_alloc((size_t)k * sizeof *s), *u = pl_alloc((size_t)(cols * k) * sizeof *u),
           *vt = pl_alloc((size_t)(k * rows) * sizeof *vt);
    polar_status st = s && u && vt ? POLAR_OK
                                   : PL_FAIL(POLAR_E_NOMEM, "the singular vectors of a %lldx%lld matrix",
                                             (long long)rows, (long long)cols);
    if (st == POLAR_OK) st = pl_lapack_svd(s, u, vt, x, cols, rows); /* of X^T */
    for (int64_t i = 0; i < rows && st == POLAR_OK; i++)
        for (int64_t j = 0; j < cols; j++) {
            double sum = 0;
            for (int64_t l = 0; l < k; l++)
                sum += (l < values->rank ? 1 : values->tail) * u[j + l * cols] * vt[l + i * k];
            x[i * cols + j] = sum;
        }
    pl_free(s);
    pl_free(u);
    pl_free(vt);
    return st;
}

polar_status pl_singular_range(double *largest, double *smallest, const double *x, int64_t rows, int64_t cols)
{
    int64_t k = rows < cols ? rows : cols;
    double *a = pl_alloc((size_t)(rows * cols) * sizeof *a), *s = pl_alloc((size_t)k * sizeof *s);
    polar_status st = a && s ? POLAR_OK
                             : PL_FAIL(POLAR_E_NOMEM, "the singular values of a %lldx%lld matrix",
                                       (long long)rows, (long long)cols);
    if (st == POLAR_OK) {
        memcpy(a, x, (size_t)(rows * cols) * sizeof *a);
        st = pl_lapack_svd(s, NULL, NULL, a, cols, rows); /* of X^T */
    }
    if (st == POLAR_OK) *largest = s[0];
    if (st == POLAR_OK && smallest) *smallest = s[k - 1];
    pl_free(a);
    pl_free(s);
    return st;
}
