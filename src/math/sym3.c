/* sym3.c -- Jacobi's method: plane rotations that make one off-diagonal pair zero after the other.
 *
 * The closed form (the angle of a cubic's roots) loses half of the digits where eigenvalues meet; rotations
 * do not, and three sweeps are usually enough. A rotation in the plane (p, q) with the angle that
 * annihilates a_pq:
 *
 *     theta = (a_qq - a_pp) / (2 a_pq),   t = sign(theta) / (|theta| + sqrt(theta^2 + 1)),   a_pp -= t
 *         a_pq,   a_qq += t a_pq
 *
 *     ctest -R test_point_cloud
 */
#include "math/sym3.h"

#include <math.h>

enum { SWEEPS = 30 }; /* convergence is quadratic: never reached */

/* Rotates rows and columns p, q of A; r is the third. */
static void rotate(double A[3][3], int p, int q, int r)
{
    double apq = A[p][q];
    if (apq == 0) return;
    double theta = (A[q][q] - A[p][p]) / (2 * apq),
           root = fabs(theta) > 1e150 ? fabs(theta) : sqrt(theta * theta + 1);
    double t = (theta < 0 ? -1 : 1) / (fabs(theta) + root), c = 1 / sqrt(t * t + 1), s = t * c;
    double arp = A[r][p], arq = A[r][q];
    A[p][p] -= t * apq;
    A[q][q] += t * apq;
    A[p][q] = A[q][p] = 0;
    A[r][p] = A[p][r] = c * arp - s * arq;
    A[r][q] = A[q][r] = s * arp + c * arq;
}

static void order(double *larger, double *smaller)
{
    double a = *larger, b = *smaller;
    *larger = a < b ? b : a;
    *smaller = a < b ? a : b;
}

void pl_sym3_eigenvalues(double out[3], const double a[6])
{
    double size = 0, b[6], A[3][3];
    int exponent = 0, finite = 1;
    for (int i = 0; i < 6; i++) {
        size = fmax(size, fabs(a[i]));
        finite &= isfinite(a[i]) != 0;
    }
    if (!finite) {
        out[0] = out[1] = out[2] = NAN;
        return;
    }
    frexp(size, &exponent);
    /* entries up to 1: squares neither overflow nor vanish */
    for (int i = 0; i < 6; i++) b[i] = ldexp(a[i], -exponent);
    A[0][0] = b[0], A[0][1] = A[1][0] = b[1], A[0][2] = A[2][0] = b[2];
    A[1][1] = b[3], A[1][2] = A[2][1] = b[4], A[2][2] = b[5];
    for (int sweep = 0; sweep < SWEEPS && (A[0][1] != 0 || A[0][2] != 0 || A[1][2] != 0); sweep++) {
        rotate(A, 0, 1, 2);
        rotate(A, 0, 2, 1);
        rotate(A, 1, 2, 0);
    }
    for (int i = 0; i < 3; i++) out[i] = ldexp(A[i][i], exponent);
    order(&out[0], &out[1]);
    order(&out[1], &out[2]);
    order(&out[0], &out[1]);
}
