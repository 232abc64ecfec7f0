/* lapack.h -- the little of LAPACK that is used: singular values, the polar factor's oracle, QR,
 * eigenvectors. Never for products.
 *
 * Nothing links with LAPACK. The first call loads it: the library POLAR_LAPACK of the build, if it named one,
 * else libopenblas.so.0, else liblapack.so.3. So a program that asks for no exact factor needs none and
 * starts none of its threads. It works on the calling thread alone, whatever it is, because its results
 * change with the number of threads. All matrices are dense and column-major here, with 32-bit sizes.
 */
#ifndef PL_BASE_LAPACK_H
#define PL_BASE_LAPACK_H

#include <stdint.h>

#include "base/status.h"

/* a (rows, cols) = u diag(s) vt, k = min(rows, cols), a destroyed; u (rows, k) and vt (k, cols), or NULL:
 * values only. */
polar_status pl_lapack_svd(double *s, double *u, double *vt, double *a, int64_t rows, int64_t cols);

/* a (n, n) = q r: a becomes q, and diagonal (n) that of r. */
polar_status pl_lapack_qr(double *a, double *diagonal, int64_t n);

/* a (n, n), symmetric (one triangle is read): its eigenvalues (n), ascending; a becomes the eigenvectors. */
polar_status pl_lapack_eigen(double *values, double *a, int64_t n);

polar_status pl_lapack_version(int version[3]); /* loads it too */
/* "dsyev_"; NULL: there is no LAPACK, or it has no such function */
void *pl_lapack_symbol(const char *name);

#endif
