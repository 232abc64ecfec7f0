/* ns_chain.c -- which steps of the Gram form are joined: a simulation of the iteration on singular values.
 *
 * A step takes s to s z(l), l = s^2, z(l) = a + b l + c l^2, and l to l z^2. A chain of steps makes A = X X^T
 * once, rounded, and goes on with it, rounding it at every step. An eigenvalue moved by d at some step moves
 * what the chain gives, to first order, by G d with
 *
 *     G = 0, D = 1;    at each step from there on: G <- G z + s z' D,    D <- D (z^2 + 2 l z z')
 *
 * (s, l, z of that step), so a chain's error is the largest sum of G d over its steps, among all singular
 * values from 1e-3 of the largest to the largest: small ones are there in every chain, X's roundings see to
 * that. Roundings of A are taken for u times its largest eigenvalue, u = 2^-9 for bf16 and 2^-12 for f16. In
 * the first chain X has been divided by its Frobenius norm; what is large in A is then spread over all m^2
 * entries, and independent roundings of these are a matrix of norm 2 u / sqrt(m), m >= GRAM_LEAST.
 *
 * Of all ways to cut the steps into chains whose error is at most LIMIT the one with the fewest chains is
 * taken (a join saves the same wherever it is), of these the one with the least error. With Jordan's table:
 * three steps, then two.
 */
#include <math.h>

#include "compose/newton_schulz.h"

#define POINTS     24   /* singular values that a chain is tried with, ... */
#define RATIO      0.75 /* ... each that much of the one before: 24 reach 1e-3 */
#define LIMIT      0.15 /* how far a chain may move a singular value, whose place is about 1 */
#define GRAM_LEAST 64   /* rows of X from which on the form pays */

/* z(l) and z'(l) of a step. */
typedef struct {
    double z, slope;
} value;

static value value_at(const polar_coef *k, double l)
{
    return (value){k->a + l * (k->b + l * k->c), k->b + 2 * k->c * l};
}

/* The largest singular values where each step begins, if there is none above 1 where the first does. */
static void largest(double *top, const polar_coef *k, int steps)
{
    double s[POINTS];
    for (int p = 0; p < POINTS; p++) s[p] = p ? s[p - 1] * RATIO : 1;
    for (int t = 0; t < steps; t++) {
        top[t] = 0;
        for (int p = 0; p < POINTS; p++) {
            top[t] = fmax(top[t], s[p]);
            s[p] *= value_at(&k[t], s[p] * s[p]).z;
        }
    }
}

/* error[j]: of the chain of the first j steps of k; rounding[t]: A's at step t. */
static void chain_errors(double *error, const polar_coef *k, int steps, const double *top,
                         const double *rounding)
{
    double start = top[0];
    for (int j = 0; j <= steps; j++) error[j] = 0;
    for (int p = 0; p < POINTS; p++, start *= RATIO) {
        double G[PL_FUSED_STEPS] = {0}, D[PL_FUSED_STEPS], s = start; /* G, D of a rounding at step t */
        for (int r = 0; r < steps; r++) {
            value v = value_at(&k[r], s * s);
            double growth = v.z * v.z + 2 * s * s * v.z * v.slope, sum = 0;
            D[r] = 1;
            for (int t = 0; t <= r; t++) {
                G[t] = G[t] * v.z + s * v.slope * D[t];
                D[t] *= growth;
                sum += rounding[t] * fabs(G[t]);
            }
            s *= v.z;
            error[r + 1] = fmax(error[r + 1], sum);
        }
    }
}

/* The best cut of a block: bit t is set where the steps t and t + 1 are joined. */
static int64_t best_cut(double error[PL_FUSED_STEPS][PL_FUSED_STEPS + 1], int steps)
{
    int chains[PL_FUSED_STEPS + 1] = {0}, begin[PL_FUSED_STEPS + 1] = {0};
    double sum[PL_FUSED_STEPS + 1] = {0};
    int64_t joined = 0;
    for (int j = 1; j <= steps; j++)
        for (int i = j - 1; i >= 0; i--) {
            if (i < j - 1 && !(error[i][j] <= LIMIT)) continue;
            int better = i == j - 1 || chains[i] + 1 < chains[j] ||
                         (chains[i] + 1 == chains[j] && sum[i] + error[i][j] < sum[j]);
            if (!better) continue;
            chains[j] = chains[i] + 1;
            sum[j] = sum[i] + error[i][j];
            begin[j] = i;
        }
    for (int j = steps; j > 0; j = begin[j])
        for (int t = begin[j]; t + 1 < j; t++) joined |= (int64_t)1 << t;
    return joined;
}

int64_t pl_ns_joined(const polar_coef *coefs, int steps, polar_dtype precision)
{
    double error[PL_FUSED_STEPS][PL_FUSED_STEPS + 1] = {{0}}, top[POLAR_MAX_STEPS],
                                                  u = precision == POLAR_DTYPE_BF16 ? 0x1p-9 : 0x1p-12;
    int64_t joined = 0;
    largest(top, coefs, steps);
    for (int first = 0; first < steps; first += PL_FUSED_STEPS) {
        int block = steps - first < PL_FUSED_STEPS ? steps - first : PL_FUSED_STEPS;
        for (int i = 0; i < block; i++) {
            double rounding[PL_FUSED_STEPS], spread = first + i ? 1 : 2 / sqrt(GRAM_LEAST);
            for (int t = i; t < block; t++) rounding[t - i] = spread * u * top[first + t] * top[first + t];
            chain_errors(error[i] + i, coefs + first + i, block - i, top + first + i, rounding);
        }
        joined |= best_cut(error, block) << first;
    }
    return joined;
}

int pl_ns_long(const pl_mat *X)
{
    int64_t m = X->rows < X->cols ? X->rows : X->cols, n = X->rows < X->cols ? X->cols : X->rows;
    return m >= GRAM_LEAST && 2 * n >= 3 * m;
}

int64_t pl_ns_chain(int64_t joined, int64_t first, int64_t steps, const pl_mat *X)
{
    return pl_ns_long(X) && steps ? joined >> first & (((int64_t)1 << (steps - 1)) - 1) : 0;
}
