/* cuda_kron_secular.cuh -- roots of the secular equation (secular_elem.h), one a thread. */
#ifndef PL_CUDA_KRON_SECULAR_CUH
#define PL_CUDA_KRON_SECULAR_CUH

#include "math/secular_elem.h"

#define MOST_STEPS 80 /* half a dozen are usual */

/* The sums at lambda = d[origin] + at; poles up to `split` are the left ones. */
struct secular_sums : pl_secular {
    double slack;
};

__device__ __forceinline__ secular_sums secular_at(const double *d, const double *z, int k, int split,
                                                   double origin, double at)
{
    secular_sums s;
    s.left = s.right = s.left_slope = s.right_slope = s.slack = 0;
#pragma unroll 2
    for (int j = 0; j <= split; j++) {
        const double y = z[j] / ((d[j] - origin) - at);
        s.left = fma(z[j], y, s.left), s.left_slope = fma(y, y, s.left_slope), s.slack -= s.left;
    }
#pragma unroll 2
    for (int j = k - 1; j > split; j--) {
        const double y = z[j] / ((d[j] - origin) - at);
        s.right = fma(z[j], y, s.right), s.right_slope = fma(y, y, s.right_slope), s.slack += s.right;
    }
    return s;
}

/* Root r of k, as its distance from d[*origin]. */
static __device__ double secular_root(const double *d, const double *z, int k, int r, double rho, int *origin)
{
    const bool last = r == k - 1;
    const int split = last ? k - 2 : r; /* the last root has the last pole for its right one */
    const double rest = 1 / rho;
    double low = 0, high = 0, at;
    secular_sums s;
    *origin = r;
    if (k == 1) return rho * z[0] * z[0];
    if (last) {
        for (int j = 0; j < k; j++) high = fma(z[j], z[j], high);
        high *= rho;
        at = 0.5 * high;
    } else {
        at = 0.5 * (d[r + 1] - d[r]);
        s = secular_at(d, z, k, split, d[r], at);
        if (rest + s.left + s.right >= 0) high = at;
        else *origin = r + 1, low = at = -at;
    }
    const double from = d[*origin];
#pragma unroll 1
    for (int step = 0; step < MOST_STEPS; step++) {
        s = secular_at(d, z, k, split, from, at);
        const double w = rest + s.left + s.right, slopes = s.left_slope + s.right_slope,
                     slack = 8 * (s.right - s.left) + s.slack + 2 * rest + fabs(at) * slopes;
        if (!(fabs(w) > 0x1p-53 * slack)) break;
        const double to =
            pl_secular_next(s, w, at, (d[split] - from) - at, (d[split + 1] - from) - at, last, &low, &high);
        if (to == at) break;
        at = to;
    }
    return at;
}

#endif
