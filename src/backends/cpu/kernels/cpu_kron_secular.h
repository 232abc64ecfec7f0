/* cpu_kron_secular.h -- roots of the secular equation (secular_elem.h), a root at a time, poles in eight
 * lanes. Poles and weights are padded to a multiple of eight, with weights of zero. */
#ifndef PL_CPU_KRON_SECULAR_H
#define PL_CPU_KRON_SECULAR_H

#include "cpu_eight.h"
#include "math/secular_elem.h"

#define PL_SECULAR_STEPS 80 /* half a dozen are usual */

/* The poles of one merge; those up to `split` are the left ones of the root that is sought. */
typedef struct {
    const double *d, *z;
    int64_t k, split;
    double left[8], right[8]; /* z of the eight that has poles of both sides */
} pl_poles;

/* What poles and weights from entry j on add to a sum and its slope: an eight of them, or four. */
PL_INLINE void pl_poles_add(pl_eight *sum, pl_eight *slope, const double *z, const double *d, pl_eight from,
                            pl_eight by)
{
    const pl_eight x = pl_eight_load(z),
                   y = pl_eight_div(x, pl_eight_sub(pl_eight_sub(pl_eight_load(d), from), by));
    *sum = pl_eight_fma(x, y, *sum);
    *slope = pl_eight_fma(y, y, *slope);
}

PL_INLINE void pl_poles_add_four(pl_eight *sum, pl_eight *slope, const double *z, const double *d,
                                 pl_eight from, pl_eight by)
{
    pl_eight x[4], to[4], y[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        x[i] = pl_eight_load(z + 8 * i),
        to[i] = pl_eight_sub(pl_eight_sub(pl_eight_load(d + 8 * i), from), by);
    pl_eight_div_four(y, x, to);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        *sum = pl_eight_fma(x[i], y[i], *sum);
        *slope = pl_eight_fma(y[i], y[i], *slope);
    }
}

/* Poles [j, end). */
PL_INLINE void pl_poles_sum(pl_eight *sum, pl_eight *slope, const pl_poles *p, int64_t j, int64_t end,
                            pl_eight from, pl_eight by)
{
    for (; j + 32 <= end; j += 32) pl_poles_add_four(sum, slope, p->z + j, p->d + j, from, by);
    for (; j < end; j += 8) pl_poles_add(sum, slope, p->z + j, p->d + j, from, by);
}

/* The sums at lambda = origin + at. */
static pl_secular pl_secular_at(const pl_poles *p, double origin, double at)
{
    const int64_t mixed = (p->split + 1) / 8 * 8;
    const pl_eight from = pl_eight_all(origin), by = pl_eight_all(at);
    pl_eight left = pl_eight_all(0), left_slope = left, right = left, right_slope = left;
    pl_poles_sum(&left, &left_slope, p, 0, mixed, from, by);
    pl_poles_add(&left, &left_slope, p->left, p->d + mixed, from, by);
    pl_poles_add(&right, &right_slope, p->right, p->d + mixed, from, by);
    pl_poles_sum(&right, &right_slope, p, mixed + 8, p->k, from, by);
    return (pl_secular){pl_eight_sum(left), pl_eight_sum(right), pl_eight_sum(left_slope),
                        pl_eight_sum(right_slope)};
}

/* Root r, as its distance from d[*origin]; rest: 1 / rho; all: rho sum z^2. d and z have eight more entries
 * than k rounded up.
 *
 * Where it ends: a term has a relative error of a few u, a lane adds k / 8 of them, at random; so w is off by
 * (8 + k / 32) u times the sum of the terms' magnitudes. Gu and Eisenstat allow k times as much. */
static double pl_secular_root(pl_poles *p, int64_t r, double rest, double all, int64_t *origin)
{
    const int64_t k = p->k;
    const int last = r == k - 1;
    double low = 0, high = 0, at;
    *origin = r;
    if (k == 1) return all;
    p->split = last ? k - 2 : r; /* the last root has the last pole for its right one */
    const int64_t mixed = (p->split + 1) / 8 * 8;
    for (int64_t j = mixed; j < mixed + 8; j++) {
        p->left[j - mixed] = j <= p->split ? p->z[j] : 0;
        p->right[j - mixed] = j <= p->split || j >= k ? 0 : p->z[j];
    }
    if (last) high = all, at = 0.5 * all;
    else at = 0.5 * (p->d[r + 1] - p->d[r]);
    pl_secular s = pl_secular_at(p, p->d[r], at);
    if (!last) {
        if (rest + s.left + s.right >= 0) high = at;
        else *origin = r + 1, low = at = -at; /* s holds there as well, but for rounding */
    }
    const double from = p->d[*origin], terms = 8 + (double)k / 32;
    for (int step = 0; step < PL_SECULAR_STEPS; step++) {
        const double w = rest + s.left + s.right, slack = terms * (s.right - s.left) + 2 * rest +
                                                          fabs(at) * (s.left_slope + s.right_slope);
        if (step && !(fabs(w) > 0x1p-53 * (last ? terms * fabs(s.right + s.left) + slack : slack))) break;
        const double to = pl_secular_next(s, w, at, (p->d[p->split] - from) - at,
                                          (p->d[p->split + 1] - from) - at, last, &low, &high);
        if (to == at) break;
        at = to;
        s = pl_secular_at(p, from, at);
    }
    return at;
}

#endif
