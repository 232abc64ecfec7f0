/* sym3.h -- eigenvalues of a symmetric 3 x 3 matrix, in double. */
#ifndef PL_MATH_SYM3_H
#define PL_MATH_SYM3_H

/* a = (a00, a01, a02, a11, a12, a22); out[0] >= out[1] >= out[2]. The error is a few eps ||A||, coinciding
 * eigenvalues included; NaN or inf in, NaN out. */
void pl_sym3_eigenvalues(double out[3], const double a[6]);

#endif
