/* line_elem.h -- factors of lines and of a hyperball's step: a few numbers a matrix, in double. */
#ifndef PL_MATH_LINE_ELEM_H
#define PL_MATH_LINE_ELEM_H

#include <math.h>

#include "math/hd.h"

/* (S + eps)^-1/2 */
PL_HD double pl_line_equilibrate(double square, double eps)
{
    return 1 / sqrt(square + eps);
}

/* The second moment of a line's mean of squares moves on; returns what the line is multiplied with. */
PL_HD double pl_line_moment(double *v, double mean, double beta2, double eps, int clamped)
{
    *v = fma(beta2, *v, (1 - beta2) * mean);
    return 1 / (clamped ? sqrt(*v < eps ? eps : *v) : sqrt(*v) + eps);
}

/* The factor that brings lines back to their norm: before and after are sums of squares. */
PL_HD double pl_line_kept(double before, double after)
{
    return after == 0 ? 0 : sqrt(before / after);
}

/* W <- keep W - move D: a step of lr ||W|| against D, brought back to ||W||. n as `inner` leaves it, of W and
 * D: ||W - lr ||W|| D / ||D|| ||^2 = ||W||^2 (1 - 2 lr cos + lr^2). */
PL_HD void pl_ball(double *keep, double *move, const double n[4], double lr)
{
    const double size = sqrt(n[2]), length = sqrt(n[3]);
    *keep = 1, *move = 0;
    if (n[2] == 0 || n[3] == 0) return;
    const double square = 1 - 2 * lr * (n[0] / size / length) + lr * lr;
    *keep = 1 / sqrt(square < 1e-20 ? 1e-20 : square);
    *move = *keep * lr * (size / length);
}

#endif
