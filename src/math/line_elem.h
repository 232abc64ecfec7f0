/* line_elem.h -- factors of lines, of whole matrices and of steps that look at the weights: a few numbers a
 * matrix, in double. */
#ifndef PL_MATH_LINE_ELEM_H
#define PL_MATH_LINE_ELEM_H

#include <math.h>
#include <stdint.h>

#include "math/hd.h"
#include "polar/optim.h" /* polar_apply */

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

/* A line's sum as it is compared with others: NaN is as large as infinity. */
PL_HD double pl_line_size(double sum)
{
    return sum != sum ? (double)INFINITY : sum;
}

/* How many of every `step`-th line from line k on come before line l: larger ones, and of equals the first
 * ones. */
PL_HD int64_t pl_lines_before(const double *sizes, int64_t lines, int64_t l, int64_t k, int64_t step)
{
    int64_t before = 0;
    for (; k < l; k += step) before += sizes[k] >= sizes[l];
    for (; k < lines; k += step) before += sizes[k] > sizes[l];
    return before;
}

/* Line l is one of the `count` with the largest sizes, the first of equals first. */
PL_HD int pl_line_picked(const double *sizes, int64_t lines, int64_t l, int64_t count)
{
    return pl_lines_before(sizes, lines, l, 0, 1) < count;
}

/* The line that comes next of those with F > 0, from line l on; `lines` where there is none. */
PL_HD int64_t pl_line_next(const double *F, int64_t lines, int64_t l)
{
    while (l < lines && !(F[l] > 0)) l++;
    return l;
}

/* What lines that are not moved to become: x is the first entry of those that are. */
PL_HD double pl_line_empty(double x)
{
    return x - x == 0 ? 0 : (double)NAN;
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

/* W <- keep W - move D for a polar_apply that looks at W: a hyperball; the update floor, D times max(1,
 * strength ||W|| / (scale ||D||)); the radial brake, which leaves of a growth of ||W|| the part `strength`.
 * n as `inner` leaves it, of W and D. */
PL_HD void pl_apply_factors(double *keep, double *move, const double n[4], int64_t apply, double lr,
                            double wd, double scale, double strength)
{
    if (apply == POLAR_APPLY_HYPERBALL) {
        pl_ball(keep, move, n, lr);
        return;
    }
    const double k = 1 - lr * wd, m = lr * scale, floor = strength * sqrt(n[2]), length = scale * sqrt(n[3]);
    *keep = k, *move = m;
    if (apply == POLAR_APPLY_UPDATE_FLOOR && length > 0 && floor > length) *move = m * (floor / length);
    if (apply != POLAR_APPLY_RADIAL_BRAKE || n[2] == 0) return;
    const double square = k * k - 2 * k * m * (n[0] / n[2]) + m * m * (n[3] / n[2]);
    if (!(square > 1)) return;
    const double growth = sqrt(square), part = (1 + strength * (growth - 1)) / growth;
    *keep = k * part, *move = m * part;
}

#define PL_NORM_START 1e-6 /* what AdaGO's sum begins with */

/* A matrix's moment of ||g||^2 moves on; returns ||u|| / (sqrt(v) + eps). n as `inner` leaves it, of the
 * gradient, which `grad` multiplies, and u. */
PL_HD double pl_norm_moment(double *v, const double n[4], double grad, double beta2, double eps)
{
    *v = fma(beta2, *v, (1 - beta2) * (grad * grad * n[2]));
    return sqrt(n[3]) / (sqrt(*v) + eps);
}

/* A matrix's sum of h^2, h = min(||g||, clip), moves on; returns h over its root, and eps / lr at least. */
PL_HD double pl_norm_sum(double *v, const double n[4], double grad, double clip, double eps, double lr)
{
    const double norm = grad * sqrt(n[2]), h = norm > clip ? clip : norm;
    *v = fma(h, h, *v);
    const double f = h / sqrt(*v + PL_NORM_START);
    return lr > 0 && f < eps / lr ? eps / lr : f;
}

#endif
