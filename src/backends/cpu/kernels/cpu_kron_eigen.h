/* cpu_kron_eigen.h -- a symmetric matrix on its way to its eigenvectors (cpu_kron_eigen.c). */
#ifndef PL_CPU_KRON_EIGEN_H
#define PL_CPU_KRON_EIGEN_H

#include <string.h>

#include "../cpu_kernels.h"

#define PL_EIGEN_PANEL 32 /* reflections whose effect on the matrix is one product */
#define PL_EIGEN_LAST  48 /* sides up to which the rest is one panel */
#define PL_EIGEN_BACK  64 /* reflections of a block on the way back */
#define PL_EIGEN_LEAF  32 /* sides that QL takes to the end */
/* work space of the phases, in vectors of ld + 8 */
#define PL_EIGEN_VECTORS 9
#define PL_EIGEN_PLACES  6

/* Rows are `ld` numbers apart, a multiple of eight; what lies behind entry n of a row is zero, or anything
 * where a function says so. */
typedef struct pl_eigen {
    pl_queue *q; /* whose device's threads multiply */
    int64_t n, ld;
    double *A;           /* (ld, ld): the matrix, then a merge's vectors */
    double *V, *Z, *Y;   /* (ld, ld): reflections in rows; eigenvectors in rows; of a merge */
    double *d, *e, *tau; /* ld each: the diagonal, beside it, reflections' factors; then d: eigenvalues */
    double *panel;       /* (3 PL_EIGEN_LAST, ld), more than (2 PL_EIGEN_BACK, ld) */
    double *square;      /* (PL_EIGEN_BACK, PL_EIGEN_BACK) */
    double *vectors;     /* PL_EIGEN_VECTORS (ld + 8): of the phases */
    int64_t *places;     /* PL_EIGEN_PLACES (ld + 8): of the phases */
} pl_eigen;

/* C (rows, cols) = alpha op(A) op(B), + C where `more` is set; k: the length of the sums. */
typedef struct pl_eigen_product {
    double *C, alpha;
    int64_t rows, cols, k, c_rs;
    const double *A, *B;
    int64_t a_rs, b_rs;
    int ta, tb, more;
} pl_eigen_product;

#ifdef PL_ISA /* the products of this instruction set */
static inline void pl_eigen_multiply(const pl_eigen *m, pl_eigen_product p)
{
    pl_mat A = pl_mat_dense((void *)p.A, POLAR_DTYPE_F64, 1, p.ta ? p.k : p.rows, p.ta ? p.rows : p.k),
           B = pl_mat_dense((void *)p.B, POLAR_DTYPE_F64, 1, p.tb ? p.cols : p.k, p.tb ? p.k : p.cols),
           C = pl_mat_dense(p.C, POLAR_DTYPE_F64, 1, p.rows, p.cols), none = {0};
    A.rs = p.a_rs, B.rs = p.b_rs, C.rs = p.c_rs;
    PL_ISA_NAME(pl_cpu_gemm)
    (m->q, &(pl_args_gemm){.C = C,
                           .A = A,
                           .B = B,
                           .D = p.more ? C : none,
                           .ta = p.ta,
                           .tb = p.tb,
                           .alpha = p.alpha,
                           .beta = p.more});
}
#endif

/* The order of d, ascending, the first of equals first; room for as many. */
static inline void pl_eigen_sort(int64_t *order, int64_t *room, const double *d, int64_t n)
{
    for (int64_t i = 0; i < n; i++) order[i] = i;
    for (int64_t run = 1; run < n; run *= 2) {
        for (int64_t from = 0; from < n; from += 2 * run) {
            const int64_t middle = from + run < n ? from + run : n, end = middle + run < n ? middle + run : n;
            int64_t a = from, b = middle;
            for (int64_t to = from; to < end; to++)
                room[to] = b == end || (a < middle && !(d[order[b]] < d[order[a]])) ? order[a++] : order[b++];
        }
        memcpy(order, room, (size_t)n * sizeof *order);
    }
}

/* cpu_kron_tridiagonal.c: d, e, tau and V of A, whose upper triangle is read, and its blocks of eight rows
 * and columns on the diagonal whole */
void PL_ISA_NAME(pl_eigen_tridiagonalise)(const pl_eigen *m);
/* ... the rows of Z, vectors of the tridiagonal matrix, become the matrix's */
void PL_ISA_NAME(pl_eigen_turn_back)(const pl_eigen *m);
/* cpu_kron_conquer.c: d: eigenvalues of the tridiagonal matrix (d, e), in no order; Z's rows: its vectors,
 * or, of sides up to PL_EIGEN_LEAF, the matrix's */
void PL_ISA_NAME(pl_eigen_conquer)(const pl_eigen *m);

#endif
