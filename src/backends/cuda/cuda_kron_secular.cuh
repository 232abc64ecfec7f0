/* cuda_kron_secular.cuh -- the eigenvalues of diag(d) + rho z z^T, one a thread (LAPACK's dlaed4).
 *
 *     1 / rho + sum_j z_j^2 / (d_j - lambda) = 0,   d ascending, rho > 0
 *
 * Root r lies between d_r and d_r+1, the last one behind the last pole. It is found as a distance from the
 * nearer pole, so that every d_j - lambda has its full precision. Steps are those of the rational function
 * with the two neighbouring poles that touches the sums over the poles on either side; where one leaves the
 * interval that is known to hold the root, that is cut instead.
 */
#ifndef PL_CUDA_KRON_SECULAR_CUH
#define PL_CUDA_KRON_SECULAR_CUH

#define MOST_STEPS 80 /* half a dozen are usual */

/* The sums at lambda = d[origin] + at; poles up to `split` are the left ones. */
struct secular_sums {
    double left, right, left_slope, right_slope, slack;
};

__device__ __forceinline__ secular_sums secular_at(const double *d, const double *z, int k, int split,
                                                   double origin, double at)
{
    secular_sums s = {0, 0, 0, 0, 0};
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

/* The step to the root of the rational function that has the values and slopes of both sums; d1, d2: from
 * here to their poles. */
__device__ __forceinline__ double secular_step(const secular_sums &s, double w, double d1, double d2,
                                               bool last)
{
    const double c = w - d1 * s.left_slope - d2 * s.right_slope,
                 a = (d1 + d2) * w - d1 * d2 * (s.left_slope + s.right_slope), b = d1 * d2 * w,
                 root = sqrt(fabs(a * a - 4 * b * c));
    if (c == 0) return b / a;
    if (last) return a >= 0 ? (a + root) / (2 * c) : 2 * b / (a - root);
    return a <= 0 ? (a - root) / (2 * c) : 2 * b / (a + root);
}

/* Between low and high, which have one sign or are 0: by magnitude where that is uncertain. */
__device__ __forceinline__ double secular_cut(double low, double high)
{
    if (low == 0) return high * 0.125;
    if (high == 0) return low * 0.125;
    const double ratio = low / high;
    if (ratio > 4 || ratio < 0.25) return low * sqrt(high / low);
    return low + 0.5 * (high - low);
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
        if (w < 0) low = at;
        else high = at;
        double by = secular_step(s, w, (d[split] - from) - at, (d[split + 1] - from) - at, last);
        if (!(w * by < 0)) by = -w / slopes; /* the function grows */
        double to = at + by;
        if (!(to > low && to < high)) to = secular_cut(low, high);
        if (to == at || !(to > low && to < high)) break; /* no number lies between */
        at = to;
    }
    return at;
}

#endif
