/* interval.h -- enclosures: the set of values a right implementation may hold at one point of a formula.
 *
 * Ends are long double. Rounding to a format is monotone, so of [lo, hi] it makes [round(lo), round(hi)];
 * pl_iv_in takes the hull of the interval and its roundings to that format and wider ones, which holds for
 * a device that computes in the format and for the oracle that always computes in double. An end moves
 * outward only where long double itself rounds, so whole numbers and other short ones stay points: a
 * formula that is exact yields a point, and equality is demanded by itself. Overflow and underflow need no
 * special case: round() gives infinities and denormals.
 *
 *     // fmaf(alpha, x, beta * z)
 *     d = pl_iv_in(pl_iv_add(pl_iv_mul(alpha, x), pl_iv_in(pl_iv_mul(beta, z), F32)), F32);
 */
#ifndef PL_VERIFY_INTERVAL_H
#define PL_VERIFY_INTERVAL_H

#include "polar/tensor.h"

typedef struct pl_iv {
    long double lo, hi; /* both NaN: the value is NaN */
    int any;            /* nothing can be said, NaN included */
} pl_iv;

/* to nearest even in the format: one rounding, denormals and overflow as IEEE has them */
long double pl_round_to(long double x, polar_dtype dtype);
/* from y, a number of the format, half-way to its neighbour above or below */
long double pl_half_gap(long double y, polar_dtype dtype, int up);
long double pl_unit_roundoff(polar_dtype dtype); /* 2^-53, 2^-24, 2^-8 */
/* half of the smallest denormal: the error of an underflow */
long double pl_least_half(polar_dtype dtype);
long double pl_largest(polar_dtype dtype); /* the largest finite number */

pl_iv pl_iv_point(long double x);                 /* [x, x] */
pl_iv pl_iv_around(long double x, long double e); /* [x - e, x + e] */
/* x, rounded to the format, to a wider one or not */
pl_iv pl_iv_in(pl_iv x, polar_dtype dtype);
pl_iv pl_iv_round(pl_iv x, polar_dtype dtype); /* x, rounded to the format */
pl_iv pl_iv_mul(pl_iv a, pl_iv b);             /* a b */
pl_iv pl_iv_add(pl_iv a, pl_iv b);             /* a + b */
pl_iv pl_iv_div(pl_iv a, pl_iv b);             /* a / b */
pl_iv pl_iv_sqrt(pl_iv a);                     /* the square root */
int pl_iv_is_nan(pl_iv x);                     /* the value is NaN for certain */

#endif
