/* cpu_kron.c -- moments of Kronecker factors, element by element in double. kron_eigen: cpu_kron_eigen.c;
 * kron_sweep: cpu_kron_basis.c. */
#include "../cpu_parallel.h"
#include "cpu_convert.h"
#include "cpu_scalars.h"
#include "cpu_vec.h"
#include "device/kron_row.h"
#include "math/kron_elem.h"

#define CHUNK 512 /* elements of a row at a time */
#define RUN   16  /* rows of a task */

/* n elements of T as doubles. */
static const double *doubles(double buf[CHUNK], const pl_mat *m, int64_t at, int64_t n)
{
    if (m->dtype == POLAR_DTYPE_F64) return (const double *)m->data + at;
    for (int64_t p = 0; p < n; p++) buf[p] = pl_load_f64(m->data, m->dtype, at + p);
    return buf;
}

static void kron_moment_rows(const void *args, int64_t b, int64_t from, int64_t to, int64_t j, int64_t n)
{
    const pl_args_kron_moment *a = args;
    const double *live = pl_live_of(&a->live, b), *N = (const double *)a->N.data + b * a->N.bs,
                 beta2 = live[PL_LIVE_BETA2], part = pl_kron_part(beta2, live[PL_LIVE_GRAD], N[0], N[1]);
    double tb[CHUNK];
    if (!pl_kron_moves(live)) return;
    for (int64_t i = from; i < to; i++) {
        const double *t = doubles(tb, &a->T, b * a->T.bs + i * a->T.rs + j, n);
        double *k = (double *)a->K.data + b * a->K.bs + i * a->K.rs + j,
               *x = a->A.data ? (double *)a->A.data + b * a->A.bs + i * a->A.rs + j : NULL;
#pragma omp simd
        for (int64_t p = 0; p < n; p++) k[p] = pl_kron_moment(k[p], t[p], beta2, part);
        if (!x) continue;
#pragma omp simd
        for (int64_t p = 0; p < n; p++) x[p] = pl_kron_moment(k[p], t[p], beta2, part);
    }
}

void PL_ISA_NAME(pl_cpu_kron_moment)(pl_queue *q, const pl_args_kron_moment *a)
{
    pl_parallel_pieces(q, kron_moment_rows, a, a->K.batch, a->K.rows, a->K.cols, RUN, CHUNK);
}
