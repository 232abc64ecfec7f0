/* secular_elem.h -- the eigenvalues of diag(d) + rho z z^T, one by one: what is the same for cc and nvcc.
 *
 *     1 / rho + sum_j z_j^2 / (d_j - lambda) = 0,   d ascending, rho > 0       (LAPACK's dlaed4)
 *
 * Root r lies between d_r and d_r+1, the last one behind the last pole. It is sought as a distance from the
 * nearer pole, so that every d_j - lambda has its full precision. Steps are those of the rational function
 * with the two neighbouring poles that touches the sums over the poles on either side; where one leaves the
 * interval that is known to hold the root, that is cut instead.
 */
#ifndef PL_MATH_SECULAR_ELEM_H
#define PL_MATH_SECULAR_ELEM_H

#include <math.h>

#include "math/hd.h"

/* The sums over the poles on the left and on the right, and their derivatives. */
typedef struct pl_secular {
    double left, right, left_slope, right_slope;
} pl_secular;

/* The step to the root of the rational function that has the values and slopes of both sums; w: with 1 / rho;
 * d1, d2: from here to the neighbouring poles; last: the last root, both are on its left. */
PL_HD double pl_secular_step(pl_secular s, double w, double d1, double d2, int last)
{
    const double c = w - d1 * s.left_slope - d2 * s.right_slope,
                 a = (d1 + d2) * w - d1 * d2 * (s.left_slope + s.right_slope), b = d1 * d2 * w,
                 root = sqrt(fabs(a * a - 4 * b * c));
    if (c == 0) return b / a;
    if (last) return a >= 0 ? (a + root) / (2 * c) : 2 * b / (a - root);
    return a <= 0 ? (a - root) / (2 * c) : 2 * b / (a + root);
}

/* Between low and high, which have one sign or are 0: by magnitude where that is uncertain. */
PL_HD double pl_secular_cut(double low, double high)
{
    if (low == 0) return high * 0.125;
    if (high == 0) return low * 0.125;
    const double ratio = low / high;
    if (ratio > 4 || ratio < 0.25) return low * sqrt(high / low);
    return low + 0.5 * (high - low);
}

/* The place after `at`, where the function is w; [low, high], which holds the root, becomes smaller. `at`
 * itself: no number lies between. */
PL_HD double pl_secular_next(pl_secular s, double w, double at, double d1, double d2, int last, double *low,
                             double *high)
{
    if (w < 0) *low = at;
    else *high = at;
    double by = pl_secular_step(s, w, d1, d2, last);
    if (!(w * by < 0)) by = -w / (s.left_slope + s.right_slope); /* the function grows */
    double to = at + by;
    if (!(to > *low && to < *high)) to = pl_secular_cut(*low, *high);
    return to > *low && to < *high ? to : at;
}

#endif
