/* cuda_polar.c -- the exact polar factor by cuSOLVER's Jacobi SVD in double, one matrix after the other.
 *
 * X over its Frobenius norm, laid long side contiguous, is the column-major T (long, short) = U S V^T; the
 * polar factor is U V^T, zero singular values left out, and U f(S) V^T likewise. Nothing comes back to the
 * host: a matrix that has no answer (NaN in it, no convergence) gives NaN.
 */
#include <cusolverDn.h>
#include <dlfcn.h>
#include <float.h>

#include "base/alloc.h"
#include "cuda_kernels.h"
#include "cuda_state.h"

/* clang-format off */
#define SOLVER_FUNCTIONS(X) \
    X(cusolverDnCreate) X(cusolverDnDestroy) X(cusolverDnSetStream) X(cusolverDnCreateGesvdjInfo) \
    X(cusolverDnDestroyGesvdjInfo) X(cusolverDnDgesvdj_bufferSize) X(cusolverDnDgesvdj)
/* clang-format on */

struct pl_cuda_solver {
    void *library;
    cusolverDnHandle_t handle;
    gesvdjInfo_t info;
#define X(f) __typeof__(f) *f;
    SOLVER_FUNCTIONS(X)
#undef X
};

void pl_cuda_solver_close(pl_cuda_solver *s)
{
    if (!s) return;
    if (s->info) s->cusolverDnDestroyGesvdjInfo(s->info);
    if (s->handle) s->cusolverDnDestroy(s->handle);
    if (s->library) dlclose(s->library);
    pl_free(s);
}

static polar_status solver_load(pl_cuda_solver *s, const pl_device *dev)
{
    s->library = pl_cuda_library("libcusolver", 11, CUSOLVER_VER_MAJOR); /* 11: CUDA 12 */
    PL_NEED(s->library, POLAR_E_DEVICE, "%s: libcusolver.so.%d of the CUDA toolkit is not found: %s",
            dev->name, CUSOLVER_VER_MAJOR, dlerror());
#define X(f)                                 \
    *(void **)&s->f = dlsym(s->library, #f); \
    PL_NEED(s->f, POLAR_E_DEVICE, "%s: cuSOLVER lacks " #f, dev->name);
    SOLVER_FUNCTIONS(X)
#undef X
    PL_NEED(s->cusolverDnCreate(&s->handle) == CUSOLVER_STATUS_SUCCESS &&
                s->cusolverDnCreateGesvdjInfo(&s->info) == CUSOLVER_STATUS_SUCCESS,
            POLAR_E_DEVICE, "%s: cuSOLVER does not start", dev->name);
    return POLAR_OK;
}

static polar_status solver_get(pl_cuda_solver **out, const pl_device *dev)
{
    pl_cuda_device *d = pl_cuda_dev(dev);
    *out = d->solver;
    if (d->solver) return POLAR_OK;
    pl_cuda_solver *s = pl_calloc(1, sizeof *s);
    PL_NEED(s, POLAR_E_NOMEM, "cuSOLVER's data");
    polar_status st = solver_load(s, dev);
    if (st != POLAR_OK) {
        pl_cuda_solver_close(s);
        return st;
    }
    *out = d->solver = s;
    return POLAR_OK;
}

typedef struct {
    int64_t m, n;          /* long and short side */
    double *T, *U, *V, *S; /* (m, n), (m, n), (n, n) column-major, (n) */
    double *norm, *work;
    int *info, lwork;
} svd_work;

static void polar_one(pl_queue *q, pl_cuda_solver *s, const svd_work *w, const pl_args_polar_exact *a,
                      int64_t b)
{
    const pl_mat Y = pl_mat_at(a->Y, b, 1), X = pl_mat_at(a->X, b, 1);
    cudaStream_t stream = pl_cuda_q(q)->stream;
    int wide = X.cols >= X.rows;
    /* row-major (short, long) */
    pl_mat N = pl_mat_dense(w->norm, POLAR_DTYPE_F64, 1, 1, 2),
           T = pl_mat_dense(w->T, POLAR_DTYPE_F64, 1, w->n, w->m);
    pl_mat flat = pl_mat_dense(w->U, POLAR_DTYPE_F64, 1, X.rows, X.cols);
    PL_CALL(frob, q, .N = N, .X = X, .weight = 1);
    PL_CALL(normalise, q, .Y = flat, .X = X, .N = N);
    PL_CALL(copy, q, .Y = T, .X = flat, .trans = !wide);
    if (q->error != POLAR_OK) return;
    cusolverStatus_t st =
        s->cusolverDnDgesvdj(s->handle, CUSOLVER_EIG_MODE_VECTOR, 1, (int)w->m, (int)w->n, w->T, (int)w->m,
                             w->S, w->U, (int)w->m, w->V, (int)w->n, w->work, w->lwork, w->info, s->info);
    if (st != CUSOLVER_STATUS_SUCCESS) {
        PL_QUEUE_FAIL(q, POLAR_E_DEVICE, "%s: polar_exact of a %lldx%lld matrix: cuSOLVER status %d",
                      q->dev->name, (long long)X.rows, (long long)X.cols, (int)st);
        return;
    }
    pl_cuda_launch_keep_rank(stream, w->U, w->S, w->norm, w->info, w->m, w->n, (double)w->m * DBL_EPSILON,
                             a->kind, a->power);
    /* row-major transposes */
    pl_mat Ut = pl_mat_dense(w->U, POLAR_DTYPE_F64, 1, w->n, w->m),
           Vt = pl_mat_dense(w->V, POLAR_DTYPE_F64, 1, w->n, w->n);
    PL_CALL(gemm, q, .C = T, .A = Vt, .ta = 1, .B = Ut, .alpha = 1); /* (U V^T)^T = V U^T, (short, long) */
    PL_CALL(copy, q, .Y = Y, .X = T, .trans = !wide);
}

static void polar_all(pl_queue *q, const pl_args_polar_exact *a)
{
    int wide = a->X.cols >= a->X.rows;
    svd_work w = {.m = wide ? a->X.cols : a->X.rows, .n = wide ? a->X.rows : a->X.cols};
    pl_cuda_solver *s;
    polar_status st = solver_get(&s, q->dev);
    if (st != POLAR_OK) {
        pl_queue_keep(q, st);
        return;
    }
    size_t mn = (size_t)(w.m * w.n) * sizeof(double);
    w.T = pl_scratch_take(q, mn);
    w.U = pl_scratch_take(q, mn);
    w.V = pl_scratch_take(q, (size_t)(w.n * w.n) * sizeof(double));
    w.S = pl_scratch_take(q, (size_t)w.n * sizeof(double));
    w.norm = pl_scratch_take(q, 2 * sizeof(double));
    w.info = pl_scratch_take(q, sizeof(int));
    s->cusolverDnSetStream(s->handle, pl_cuda_q(q)->stream);
    if (s->cusolverDnDgesvdj_bufferSize(s->handle, CUSOLVER_EIG_MODE_VECTOR, 1, (int)w.m, (int)w.n, w.T,
                                        (int)w.m, w.S, w.U, (int)w.m, w.V, (int)w.n, &w.lwork,
                                        s->info) != CUSOLVER_STATUS_SUCCESS)
        PL_QUEUE_FAIL(q, POLAR_E_DEVICE, "%s: cuSOLVER cannot plan an SVD of %lldx%lld", q->dev->name,
                      (long long)w.m, (long long)w.n);
    w.work = pl_scratch_take(q, (size_t)(w.lwork > 0 ? w.lwork : 1) * sizeof(double));
    for (int64_t b = 0; b < a->X.batch && q->error == POLAR_OK; b++) polar_one(q, s, &w, a, b);
}

void pl_cuda_polar_exact(pl_queue *q, const pl_args_polar_exact *a)
{
    pl_scratch_mark mark = pl_scratch_begin(q);
    if (a->X.rows > INT32_MAX || a->X.cols > INT32_MAX)
        PL_QUEUE_FAIL(q, POLAR_E_SHAPE, "polar_exact: cuSOLVER counts in 32 bits");
    else if (pl_queue_in_capture(q))
        PL_QUEUE_FAIL(q, POLAR_E_UNSUPPORTED,
                      "%s: polar_exact cannot be part of a graph (use Newton-Schulz there)", q->dev->name);
    else {
        pthread_mutex_lock(&pl_cuda_dev(q->dev)->solver_lock);
        polar_all(q, a);
        pthread_mutex_unlock(&pl_cuda_dev(q->dev)->solver_lock);
    }
    pl_scratch_end(q, mark);
    pl_cuda_check_op(q, PL_OP_polar_exact, a);
}
