/* kron_reference.h -- rules with Kronecker factors in plain double precision: the part of rule_reference.h,
 * in whose middle it is included, that needs eigenvectors. */
#ifndef POLAR_KRON_REFERENCE_H
#define POLAR_KRON_REFERENCE_H

/* Eigenvalues of a symmetric matrix, descending, and its eigenvectors in the columns of Q: Jacobi rotations.
 */
static inline void ref_eigen(double *values, double *Q, const double *S, int n)
{
    static double A[REF_MOST], X[REF_MOST];
    memcpy(A, S, sizeof(double) * (size_t)(n * n));
    for (int i = 0; i < n * n; i++) X[i] = i / n == i % n;
    for (int sweep = 0; sweep < 40; sweep++)
        for (int p = 0; p < n; p++)
            for (int q = p + 1; q < n; q++) {
                const double apq = A[p * n + q];
                if (apq == 0) continue;
                const double theta = (A[q * n + q] - A[p * n + p]) / (2 * apq),
                             t = (theta >= 0 ? 1 : -1) / (fabs(theta) + sqrt(1 + theta * theta)),
                             c = 1 / sqrt(1 + t * t), s = t * c;
                for (int k = 0; k < n; k++) {
                    const double x = A[p * n + k], y = A[q * n + k];
                    A[p * n + k] = c * x - s * y, A[q * n + k] = s * x + c * y;
                }
                for (int k = 0; k < n; k++) {
                    double x = A[k * n + p], y = A[k * n + q];
                    A[k * n + p] = c * x - s * y, A[k * n + q] = s * x + c * y;
                    x = X[k * n + p], y = X[k * n + q];
                    X[k * n + p] = c * x - s * y, X[k * n + q] = s * x + c * y;
                }
                A[p * n + q] = A[q * n + p] = 0;
            }
    for (int k = 0; k < n; k++) {
        int place = 0;
        for (int j = 0; j < n; j++)
            place += A[j * n + j] > A[k * n + k] || (A[j * n + j] == A[k * n + k] && j < k);
        values[place] = A[k * n + k];
        for (int i = 0; i < n; i++) Q[i * n + place] = X[i * n + k];
    }
}

/* C = op(A) op(B), of (m, k) and (k, n) matrices; a and b: transposed */
static inline void ref_product(double *C, const double *A, int a, const double *B, int b, int m, int k, int n)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            double s = 0;
            for (int l = 0; l < k; l++)
                s += (a ? A[l * m + i] : A[i * k + l]) * (b ? B[j * k + l] : B[l * n + j]);
            C[i * n + j] = s;
        }
}

/* g g^T (side 0) or g^T g */
static inline int ref_square(double *T, const ref *r, const double *g, int side)
{
    if (side) ref_product(T, g, 1, g, 0, r->cols, r->rows, r->cols);
    else ref_product(T, g, 0, g, 1, r->rows, r->cols, r->rows);
    return side ? r->cols : r->rows;
}

/* P = f(S), f(x) the regularised eigenvalue to the power -p; how is it regularised: 's' shifted by eps, the
 * least one brought to 0 first; 'm' max(x + eps, eps) */
static inline void ref_power(double *P, const double *S, int n, char how, double eps, double p)
{
    static double values[REF_MOST], Q[REF_MOST];
    ref_eigen(values, Q, S, n);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            double s = 0;
            for (int k = 0; k < n; k++) {
                const double x =
                    how == 's' ? values[k] + fmax(0, -values[n - 1]) + eps : fmax(values[k] + eps, eps);
                s += Q[i * n + k] * pow(x, -p) * Q[j * n + k];
            }
            P[i * n + j] = s;
        }
}

/* x <- P_L x P_R */
static inline void ref_whiten(const ref *r, double *x)
{
    static double T[REF_MOST];
    ref_product(T, r->P[0], 0, x, 0, r->rows, r->rows, r->cols);
    ref_product(x, T, 0, r->P[1], 0, r->rows, r->cols, r->cols);
}

/* Shampoo: L / (1 - b2^t), + eps */
static inline void ref_shampoo(ref *r, const double *g, double b2, double eps, double p)
{
    static double T[REF_MOST];
    for (int side = 0; side < 2; side++) {
        const int n = ref_square(T, r, g, side);
        for (int i = 0; i < n * n; i++) r->K[side][i] = b2 * r->K[side][i] + (1 - b2) * T[i];
        for (int i = 0; i < n * n; i++) T[i] = r->K[side][i] / (1 - pow(b2, r->t));
        ref_power(r->P[side], T, n, 's', eps, p);
    }
    ref_whiten(r, r->u);
}

/* PMuon: sums, C = g g^T + b (b C + g g^T) + eps */
static inline void ref_pmuon(ref *r, const double *g, double b, double eps, double p)
{
    static double T[REF_MOST], C[REF_MOST];
    for (int side = 0; side < 2; side++) {
        const int n = ref_square(T, r, g, side);
        for (int i = 0; i < n * n; i++) r->K[side][i] = b * r->K[side][i] + T[i];
        for (int i = 0; i < n * n; i++) C[i] = T[i] + b * r->K[side][i];
        ref_power(r->P[side], C, n, 'm', eps, p);
    }
    ref_whiten(r, r->u);
}

/* Mousse: n L / trace L + eps, its eigenvalues + eps, every so many steps */
static inline void ref_mousse(ref *r, const double *g, double b2, double eps, double p, int every)
{
    static double T[REF_MOST];
    for (int side = 0; side < 2; side++) {
        const int n = ref_square(T, r, g, side);
        double trace = 0;
        for (int i = 0; i < n * n; i++) r->K[side][i] = b2 * r->K[side][i] + (1 - b2) * T[i];
        for (int i = 0; i < n; i++) trace += r->K[side][i * n + i];
        for (int i = 0; i < n * n; i++) T[i] = r->K[side][i] * n / trace + (i / n == i % n ? eps : 0);
        if (r->t % every == 1 || every == 1) ref_power(r->P[side], T, n, 's', eps, p);
    }
    ref_whiten(r, r->u);
}

static inline void ref_unwhiten(ref *r)
{
    const double before = ref_norm(r->D, r->n);
    ref_whiten(r, r->D);
    const double after = ref_norm(r->D, r->n);
    for (int i = 0; i < r->n && after > 0; i++) r->D[i] *= before / after;
}

/* ---- SOAP ---- */

/* x <- Q_L^T x Q_R, or back */
static inline void ref_turn(const ref *r, double *x, int back)
{
    static double T[REF_MOST];
    ref_product(T, r->Q[0], !back, x, 0, r->rows, r->rows, r->cols);
    ref_product(x, T, 0, r->Q[1], back, r->rows, r->cols, r->cols);
}

/* Columns orthonormalised one after the other, by descending q.(S q), which are the values; lines of v, rows
 * or columns, likewise. */
static inline void ref_sweep(ref *r, int side, int n, double *values)
{
    static double Z[REF_MOST], v[REF_MOST], by[REF_MOST];
    double *Q = r->Q[side];
    int place[REF_MOST];
    ref_product(Z, r->K[side], 0, Q, 0, n, n, n);
    for (int j = 0; j < n; j++) {
        by[j] = 0;
        for (int i = 0; i < n; i++) by[j] += Q[i * n + j] * Z[i * n + j];
    }
    for (int j = 0; j < n; j++) {
        int before = 0;
        for (int k = 0; k < n; k++) before += by[k] > by[j];
        place[before] = j;
        values[before] = by[j];
    }
    memcpy(v, r->v, sizeof v);
    for (int i = 0; i < r->n; i++)
        r->v[i] = side ? v[i / r->cols * r->cols + place[i % r->cols]]
                       : v[place[i / r->cols] * r->cols + i % r->cols];
    for (int k = 0; k < n; k++) {
        for (int i = 0; i < n; i++) Q[i * n + k] = Z[i * n + place[k]];
        for (int twice = 0; twice < 2; twice++)
            for (int l = 0; l < k; l++) {
                double dot = 0;
                for (int i = 0; i < n; i++) dot += Q[i * n + l] * Q[i * n + k];
                for (int i = 0; i < n; i++) Q[i * n + k] -= dot * Q[i * n + l];
            }
        double norm = 0;
        for (int i = 0; i < n; i++) norm += Q[i * n + k] * Q[i * n + k];
        for (int i = 0; i < n; i++) Q[i * n + k] /= sqrt(norm);
    }
}

/* g S^-1 g^T / cols (side 0) or g^T S^-1 g / rows, S the other side's factor as r->P has its inverse; before
 * there is one g g^T / cols, g^T g / rows */
static inline int ref_kl_square(double *T, const ref *r, const double *g, int side, int first)
{
    static double X[REF_MOST];
    const int n = side ? r->cols : r->rows, other = side ? r->rows : r->cols;
    if (r->t <= first) ref_square(T, r, g, side);
    else if (side) {
        ref_product(X, g, 1, r->P[0], 0, n, other, other);
        ref_product(T, X, 0, g, 0, n, other, n);
    } else {
        ref_product(X, g, 0, r->P[1], 0, n, other, other);
        ref_product(T, X, 0, g, 1, n, other, n);
    }
    for (int i = 0; i < n * n; i++) T[i] /= other;
    return n;
}

/* P = Q diag(1 / max(lambda, eps)) Q^T, lambda the q.(S q) of vectors Z that S / (1 - b2^t) has, in Q's order
 */
static inline void ref_kl_inverse(ref *r, int side, int n, const double *values, double b2, double eps)
{
    const double *Q = r->Q[side];
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            double s = 0;
            for (int k = 0; k < n; k++)
                s += Q[i * n + k] * Q[j * n + k] / fmax(values[k] / (1 - pow(b2, r->t)), eps);
            r->P[side][i * n + j] = s;
        }
}

/* L and R move on, and their bases with them; kl: those of least divergence, eps theirs. */
static inline void ref_soap_bases(ref *r, const double *g, double b2, int every, int first, int kl,
                                  double eps)
{
    static double T[2][REF_MOST], values[REF_MOST];
    for (int side = 0; side < 2; side++)
        if (kl) ref_kl_square(T[side], r, g, side, first);
        else ref_square(T[side], r, g, side);
    for (int side = 0; side < 2; side++) {
        const int n = side ? r->cols : r->rows;
        for (int i = 0; i < n * n; i++) r->K[side][i] = b2 * r->K[side][i] + (1 - b2) * T[side][i];
        if (r->t < first || (r->t - first) % every) continue;
        if (r->t == first) ref_eigen(values, r->Q[side], r->K[side], n);
        else ref_sweep(r, side, n, values);
        if (kl) ref_kl_inverse(r, side, n, values, b2, eps);
    }
}

/* The published form: the momentum lives in the basis and is turned when that changes. */
static inline void ref_soap(ref *r, const double *g, int first, int every, double b1, int kl)
{
    static double p[REF_MOST];
    const double b2 = 0.95, eps = 1e-8;
    const int t = r->t - first;
    if (t > 0) {
        memcpy(p, g, sizeof(double) * (size_t)r->n);
        ref_turn(r, p, 0);
        for (int i = 0; i < r->n; i++) {
            r->m[i] = b1 * r->m[i] + (1 - b1) * p[i];
            r->v[i] = b2 * r->v[i] + (1 - b2) * p[i] * p[i];
            r->D[i] = r->m[i] / (1 - pow(b1, t)) / (sqrt(r->v[i] / (1 - pow(b2, t))) + eps);
        }
        ref_turn(r, r->D, 1);
        ref_decoupled(r, 1);
        ref_turn(r, r->m, 1);
    }
    ref_soap_bases(r, g, b2, every, first, kl, eps);
    if (t > 0) ref_turn(r, r->m, 0);
}

static inline void ref_soap_muon(ref *r, const double *g, int first)
{
    const double b2 = 0.9, eps = 1e-8;
    ref_average(r, g, 0.95, 1);
    if (r->t > first) {
        ref_turn(r, r->u, 0);
        for (int i = 0; i < r->n; i++) {
            r->v[i] = b2 * r->v[i] + (1 - b2) * r->u[i] * r->u[i];
            r->u[i] /= sqrt(r->v[i] / (1 - pow(b2, r->t))) + eps;
        }
        ref_turn(r, r->u, 1);
    }
    ref_polar(r);
    ref_decoupled(r, ref_jordan(r));
    ref_soap_bases(r, g, b2, 10, first, 0, eps);
}

/* ---- the rules ---- */

static inline void ref_rule_soap(ref *r, const double *g)
{
    ref_soap(r, g, 1, 10, 0.95, 0);
}
static inline void ref_rule_soap_warm(ref *r, const double *g)
{
    ref_soap(r, g, 4, 10, 0.95, 0);
}
static inline void ref_rule_kl_soap(ref *r, const double *g)
{
    ref_soap(r, g, 1, 1, 0.9, 1);
}
static inline void ref_rule_kl_soap_warm(ref *r, const double *g)
{
    ref_soap(r, g, 4, 1, 0.9, 1);
}
static inline void ref_rule_soap_muon(ref *r, const double *g)
{
    ref_soap_muon(r, g, 1);
}
static inline void ref_rule_soap_muon_warm(ref *r, const double *g)
{
    ref_soap_muon(r, g, 4);
}

static inline void ref_rule_shampoo(ref *r, const double *g)
{
    ref_ema(r, g, 0.9);
    ref_shampoo(r, g, 0.95, 1e-12, 0.25);
    ref_unmapped(r);
    ref_decoupled(r, 1);
}

static inline void ref_rule_shampoo_polar(ref *r, const double *g)
{
    ref_ema(r, g, 0.9);
    ref_shampoo(r, g, 0.95, 1e-12, 0.25);
    ref_polar(r);
    ref_decoupled(r, ref_paper(r));
}

static inline void ref_rule_pmuon(ref *r, const double *g)
{
    ref_average(r, g, 0.95, 1);
    ref_pmuon(r, g, 0.95, 1e-6, 0.3);
    ref_polar(r);
    ref_decoupled(r, ref_jordan(r));
}

static inline void ref_rule_mousse(ref *r, const double *g)
{
    ref_heavy(r, g, 0.95, 0);
    ref_mousse(r, g, 0.95, 1e-5, 0.125, 10);
    ref_polar(r);
    ref_unwhiten(r);
    ref_decoupled(r, sqrt((double)r->rows / r->cols));
}

#endif
