/* ref_kron.h -- kron_eigen and kron_sweep in pieces, for those who multiply and decompose faster than the
 * oracle. A sweep:
 *
 *     w.t = K Q of matrix b;  pl_kron_sweep_begin;  the rows of w.z orthonormalised;  pl_kron_sweep_end
 */
#ifndef PL_REF_KRON_H
#define PL_REF_KRON_H

#include "ref_ops.h"

/* F of matrix b, where it is wanted, from K's eigenvalues, ascending */
void pl_kron_put_factors(const pl_args_kron_eigen *a, int64_t b, const double *values, const double *live);
void pl_kron_put_nan(const pl_args_kron_eigen *a, int64_t b); /* Q and F of a matrix that is not finite */

typedef struct pl_sweep_work { /* of one matrix */
    double *t, *z;             /* (n, n): K Q by rows; its columns, sorted and scaled, as rows */
    double *rayleigh;          /* q.z of each column */
    int64_t *place;            /* of which column the k-th largest is */
    double *v;                 /* as large as V */
} pl_sweep_work;

size_t pl_kron_sweep_room(const pl_args_kron_sweep *a); /* numbers of work space for one matrix */
pl_sweep_work pl_kron_sweep_work(const pl_args_kron_sweep *a, double *room);
/* z and F from t; 0: a q.z is not finite, Q and F are NaN, z is zero, and there is no end */
int pl_kron_sweep_begin(const pl_args_kron_sweep *a, int64_t b, pl_sweep_work w);
/* V and Q, z being orthonormal now */
void pl_kron_sweep_end(const pl_args_kron_sweep *a, int64_t b, pl_sweep_work w);

#endif
