/* kron_elem.h -- Kronecker factors: what an eigenvalue of a factor's moment becomes, in double.
 *
 *     L = EMA g g^T (n = rows), R = EMA g^T g (n = cols);  L = Q diag(lambda) Q^T;  factors f(lambda)
 */
#ifndef PL_MATH_KRON_ELEM_H
#define PL_MATH_KRON_ELEM_H

#include <math.h>
#include <stdint.h>

#include "math/hd.h"

/* how an eigenvalue is kept away from zero */
typedef enum pl_kron {
    PL_KRON_SHIFTED,  /* lambda / (1 - b2^t), the least one brought up to 0, + eps */
    PL_KRON_TRACE,    /* lambda n / trace + eps, the least one brought up to 0, + eps */
    PL_KRON_NESTEROV, /* of sums, not of averages: lambda / (1 - b2) + eps, eps at least */
    PL_KRON_CLAMPED,  /* lambda / (1 - b2^step), all gradients counted, eps at least */
    PL_KRON_COUNT
} pl_kron;

/* What an entry of g g^T counts in a moment, g a gradient over its norm n / s (frob's pair). */
PL_HD double pl_kron_part(double beta2, double grad, double s, double n)
{
    const double norm = grad * (n / s);
    return (1 - beta2) * norm * norm;
}

/* A moment moves on by part t. */
PL_HD double pl_kron_moment(double k, double t, double beta2, double part)
{
    return fma(beta2, k, part * t);
}

/* What every eigenvalue is multiplied with before it is regularised. c2 is 1 / (1 - b2^t), t may begin later
 * than step, which counts every gradient. */
PL_HD double pl_kron_unit(int64_t kind, double n, double trace, double beta2, double c2, double step)
{
    if (kind == PL_KRON_TRACE) return trace > 0 ? n / trace : 0;
    if (kind == PL_KRON_CLAMPED) return 1 / (1 - pow(beta2, step));
    return kind == PL_KRON_NESTEROV ? 1 / (1 - beta2) : c2;
}

/* lambda and least, in those units, to the power -p; least is the smallest eigenvalue. */
PL_HD double pl_kron_factor(int64_t kind, double lambda, double least, double eps, double p)
{
    const double shift = kind == PL_KRON_TRACE ? eps : 0, low = least + shift;
    double x = lambda + shift + (low < 0 ? -low : 0) + eps;
    if (kind == PL_KRON_NESTEROV) x = lambda + eps < eps ? eps : lambda + eps;
    if (kind == PL_KRON_CLAMPED) x = lambda < eps ? eps : lambda;
    return pow(x, -p);
}

#endif
