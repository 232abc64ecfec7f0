/* rule_reference.h -- every rule in plain double precision, written from its formula (docs/rules.md), one
 * function a rule; W is (rows, cols), row-major. */
#ifndef POLAR_RULE_REFERENCE_H
#define POLAR_RULE_REFERENCE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define REF_MOST 4096 /* entries of a matrix */

typedef struct {
    int rows, cols, n, t; /* n = rows cols; t: steps, this one counted */
    double lr, wd;
    double m[REF_MOST], v[REF_MOST], p[REF_MOST]; /* momentum, second moment, moment after the map */
    double W[REF_MOST], u[REF_MOST], D[REF_MOST]; /* weights, what the map is given, what it returns */
    /* Kronecker factors, left and right: moments, eigenvectors in columns, powers of what they belong to */
    double K[2][REF_MOST], Q[2][REF_MOST], P[2][REF_MOST];
} ref;

/* ---- momenta: u from g ---- */

static inline void ref_heavy(ref *r, const double *g, double mu, int nesterov)
{
    for (int i = 0; i < r->n; i++) {
        r->m[i] = mu * r->m[i] + g[i];
        r->u[i] = nesterov ? g[i] + mu * r->m[i] : r->m[i];
    }
}

static inline void ref_average(ref *r, const double *g, double mu, int nesterov)
{
    for (int i = 0; i < r->n; i++) {
        r->m[i] = r->m[i] + (1 - mu) * (g[i] - r->m[i]);
        r->u[i] = nesterov ? g[i] + mu * (r->m[i] - g[i]) : r->m[i];
    }
}

static inline void ref_ema(ref *r, const double *g, double b1)
{
    for (int i = 0; i < r->n; i++) {
        r->m[i] = b1 * r->m[i] + (1 - b1) * g[i];
        r->u[i] = r->m[i] / (1 - pow(b1, r->t));
    }
}

/* ---- preconditioners ---- */

static inline void ref_adam(ref *r, const double *g, double b2, double eps)
{
    for (int i = 0; i < r->n; i++) {
        r->v[i] = b2 * r->v[i] + (1 - b2) * g[i] * g[i];
        r->u[i] /= sqrt(r->v[i] / (1 - pow(b2, r->t))) + eps;
    }
}

/* g over its own second moment, before the momentum. */
static inline void ref_laprop(ref *r, double *out, const double *g, double b2, double eps)
{
    for (int i = 0; i < r->n; i++) {
        r->v[i] = b2 * r->v[i] + (1 - b2) * g[i] * g[i];
        out[i] = g[i] / (sqrt(r->v[i] / (1 - pow(b2, r->t))) + eps);
    }
}

static inline void ref_equilibrate(ref *r, int rows, int cols, double eps)
{
    static double by_row[REF_MOST], by_col[REF_MOST];
    memset(by_row, 0, sizeof by_row), memset(by_col, 0, sizeof by_col);
    for (int i = 0; i < r->n; i++) {
        by_row[i / r->cols] += r->u[i] * r->u[i];
        by_col[i % r->cols] += r->u[i] * r->u[i];
    }
    for (int i = 0; i < r->n; i++) {
        if (rows) r->u[i] /= sqrt(by_row[i / r->cols] + eps);
        if (cols) r->u[i] /= sqrt(by_col[i % r->cols] + eps);
    }
}

static inline void ref_sign(ref *r)
{
    for (int i = 0; i < r->n; i++) r->u[i] = (r->u[i] > 0) - (r->u[i] < 0);
}

/* ---- the map: five steps of Jordan's quintic ---- */

static inline void ref_polar(ref *r)
{
    static double X[REF_MOST], A[REF_MOST], B[REF_MOST], Y[REF_MOST];
    const double a = 3.4445, b = -4.7750, c = 2.0315;
    const int tall = r->rows > r->cols, s = tall ? r->cols : r->rows, l = tall ? r->rows : r->cols;
    double norm = 0;
    for (int i = 0; i < r->n; i++) norm += r->u[i] * r->u[i];
    for (int i = 0; i < s; i++)
        for (int j = 0; j < l; j++)
            X[i * l + j] = norm == 0 ? 0 : (tall ? r->u[j * s + i] : r->u[i * l + j]) / sqrt(norm);
    for (int step = 0; step < 5; step++) {
        for (int i = 0; i < s; i++)
            for (int j = 0; j < s; j++) {
                A[i * s + j] = 0;
                for (int k = 0; k < l; k++) A[i * s + j] += X[i * l + k] * X[j * l + k];
            }
        for (int i = 0; i < s; i++)
            for (int j = 0; j < s; j++) {
                double sum = 0;
                for (int k = 0; k < s; k++) sum += A[i * s + k] * A[k * s + j];
                B[i * s + j] = b * A[i * s + j] + c * sum;
            }
        for (int i = 0; i < s; i++)
            for (int j = 0; j < l; j++) {
                double sum = 0;
                for (int k = 0; k < s; k++) sum += B[i * s + k] * X[k * l + j];
                Y[i * l + j] = a * X[i * l + j] + sum;
            }
        memcpy(X, Y, sizeof(double) * (size_t)r->n);
    }
    for (int i = 0; i < s; i++)
        for (int j = 0; j < l; j++) r->D[tall ? j * s + i : i * l + j] = X[i * l + j];
}

static inline double ref_norm(const double *x, int n)
{
    double s = 0;
    for (int i = 0; i < n; i++) s += x[i] * x[i];
    return sqrt(s);
}

/* X (l, s) = U S V^T by one-sided Jacobi rotations of its columns: X becomes U S, V (s, s). */
static inline void ref_svd(double *X, double *V, int l, int s)
{
    for (int i = 0; i < s * s; i++) V[i] = i % (s + 1) == 0;
    for (int sweep = 0; sweep < 40; sweep++)
        for (int p = 0; p < s; p++)
            for (int q = p + 1; q < s; q++) {
                double a = 0, b = 0, c = 0;
                for (int i = 0; i < l; i++) {
                    a += X[i * s + p] * X[i * s + p];
                    b += X[i * s + q] * X[i * s + q];
                    c += X[i * s + p] * X[i * s + q];
                }
                if (fabs(c) <= 1e-17 * sqrt(a * b)) continue;
                const double z = (b - a) / (2 * c), t = (z < 0 ? -1 : 1) / (fabs(z) + sqrt(1 + z * z)),
                             cs = 1 / sqrt(1 + t * t), sn = cs * t;
                for (int i = 0; i < l + s; i++) { /* columns p, q of X, then of V */
                    double *x = i < l ? X + i * s : V + (i - l) * s, xp = x[p], xq = x[q];
                    x[p] = cs * xp - sn * xq;
                    x[q] = sn * xp + cs * xq;
                }
            }
}

/* D = U f(S) V^T: f is sigma^power or, soft, that of docs/rules.md; zero singular values stay zero. */
static inline void ref_spectral(ref *r, int soft, double power)
{
    static double X[REF_MOST], V[REF_MOST];
    const int wide = r->rows < r->cols, s = wide ? r->rows : r->cols, l = wide ? r->cols : r->rows;
    double norm = 0, sigma[REF_MOST], most = 0;
    for (int i = 0; i < r->n; i++) norm += r->u[i] * r->u[i];
    for (int i = 0; i < l; i++)
        for (int j = 0; j < s; j++) X[i * s + j] = wide ? r->u[j * l + i] : r->u[i * s + j];
    ref_svd(X, V, l, s);
    for (int p = 0; p < s; p++) {
        sigma[p] = 0;
        for (int i = 0; i < l; i++) sigma[p] += X[i * s + p] * X[i * s + p];
        sigma[p] = sqrt(sigma[p]);
        most = fmax(most, sigma[p]);
    }
    memset(r->D, 0, sizeof r->D);
    for (int p = 0; p < s; p++) {
        const double x = sigma[p], t = power;
        if (x <= l * 2.3e-16 * most) continue;
        const double f = soft ? t * x / sqrt(t * t * x * x + norm / s) : pow(x, power);
        for (int i = 0; i < l; i++)
            for (int j = 0; j < s; j++)
                r->D[wide ? j * l + i : i * s + j] += X[i * s + p] / x * f * V[j * s + p];
    }
}

/* ---- after the map ---- */

/* Rows (or columns) over the root of their moment; D's norm stays. */
static inline void ref_line_moment(ref *r, int columns, double b2, double eps, int clamped)
{
    const int lines = columns ? r->cols : r->rows, n = columns ? r->rows : r->cols;
    const double before = ref_norm(r->D, r->n);
    for (int l = 0; l < lines; l++) {
        double mean = 0;
        for (int k = 0; k < n; k++) mean += pow(r->D[columns ? k * r->cols + l : l * r->cols + k], 2) / n;
        r->p[l] = b2 * r->p[l] + (1 - b2) * mean;
        for (int k = 0; k < n; k++)
            r->D[columns ? k * r->cols + l : l * r->cols + k] /=
                clamped ? sqrt(fmax(r->p[l], eps)) : sqrt(r->p[l]) + eps;
    }
    const double after = ref_norm(r->D, r->n);
    for (int i = 0; i < r->n && after > 0; i++) r->D[i] *= before / after;
}

static inline void ref_entry_moment(ref *r, double b2, double eps)
{
    for (int i = 0; i < r->n; i++) {
        r->p[i] = b2 * r->p[i] + (1 - b2) * r->D[i] * r->D[i];
        r->D[i] /= sqrt(r->p[i] / (1 - pow(b2, r->t))) + eps;
    }
}

/* D times ||u|| over the root of a moment of ||g||^2. */
static inline void ref_norm_moment(ref *r, const double *g, double b2, double eps)
{
    r->p[0] = b2 * r->p[0] + (1 - b2) * pow(ref_norm(g, r->n), 2);
    const double f = ref_norm(r->u, r->n) / (sqrt(r->p[0]) + eps);
    for (int i = 0; i < r->n; i++) r->D[i] *= f;
}

/* D times min(||g||, clip) over the root of the sum of its squares, which began with 1e-6; lr times that is
 * eps at least. */
static inline void ref_norm_sum(ref *r, const double *g, double clip, double eps)
{
    const double h = fmin(ref_norm(g, r->n), clip);
    r->p[0] += h * h + (r->t == 1 ? 1e-6 : 0);
    const double step = fmax(eps, r->lr * h / sqrt(r->p[0]));
    for (int i = 0; i < r->n; i++) r->D[i] *= step / r->lr;
}

/* ---- scales ---- */

static inline double ref_paper(const ref *r)
{
    return sqrt((double)(r->rows > r->cols ? r->rows : r->cols) / (r->rows > r->cols ? r->cols : r->rows));
}
static inline double ref_jordan(const ref *r)
{
    return sqrt(fmax(1, (double)r->rows / r->cols));
}
static inline double ref_rms(const ref *r)
{
    return 0.2 * sqrt(fmax(r->rows, r->cols));
}
static inline double ref_frobenius(const ref *r)
{
    return ref_norm(r->D, r->n) == 0 ? 0 : 0.2 * sqrt((double)r->rows * r->cols) / ref_norm(r->D, r->n);
}
static inline double ref_nuclear(const ref *r)
{
    double s = 0;
    for (int i = 0; i < r->n; i++) s += r->u[i] * r->D[i];
    return s;
}

/* ---- steps ---- */

static inline void ref_decoupled(ref *r, double s)
{
    for (int i = 0; i < r->n; i++) r->W[i] = (1 - r->lr * r->wd) * r->W[i] - r->lr * s * r->D[i];
}

static inline void ref_cautious(ref *r, double s)
{
    for (int i = 0; i < r->n; i++) {
        double decay = r->D[i] * r->W[i] > 0 ? r->wd : 0;
        r->W[i] = (1 - r->lr * decay) * r->W[i] - r->lr * s * r->D[i];
    }
}

static inline void ref_constrained(ref *r, double s)
{
    for (int i = 0; i < r->n; i++) r->W[i] = (1 - r->lr) * r->W[i] - r->lr * s * r->D[i];
}

static inline void ref_hyperball(ref *r)
{
    const double R = ref_norm(r->W, r->n), length = ref_norm(r->D, r->n);
    if (R == 0 || length == 0) return;
    for (int i = 0; i < r->n; i++) r->W[i] -= r->lr * R * r->D[i] / length;
    const double after = ref_norm(r->W, r->n);
    for (int i = 0; i < r->n; i++) r->W[i] *= R / after;
}

static inline void ref_update_floor(ref *r, double s, double t)
{
    const double length = s * ref_norm(r->D, r->n);
    ref_decoupled(r, length > 0 ? s * fmax(1, t * ref_norm(r->W, r->n) / length) : s);
}

/* Only a part of what the norm grew stays. */
static inline void ref_radial_brake(ref *r, double s, double part)
{
    const double before = ref_norm(r->W, r->n);
    ref_decoupled(r, s);
    const double after = ref_norm(r->W, r->n);
    for (int i = 0; i < r->n && after > before; i++) r->W[i] *= (before + part * (after - before)) / after;
}

/* ---- the rules ---- */

static inline void ref_unmapped(ref *r)
{
    memcpy(r->D, r->u, sizeof r->D);
}

static inline void ref_rule_sgdm(ref *r, const double *g)
{
    ref_heavy(r, g, 0.95, 0);
    ref_unmapped(r);
    ref_decoupled(r, 1);
}

static inline void ref_rule_adamw(ref *r, const double *g)
{
    ref_ema(r, g, 0.9);
    ref_adam(r, g, 0.999, 1e-8);
    ref_unmapped(r);
    ref_decoupled(r, 1);
}

static inline void ref_rule_muon(ref *r, const double *g)
{
    ref_heavy(r, g, 0.95, 1);
    ref_polar(r);
    ref_decoupled(r, ref_paper(r));
}

static inline void ref_rule_polaradamw(ref *r, const double *g)
{
    ref_ema(r, g, 0.9);
    ref_adam(r, g, 0.999, 1e-8);
    ref_polar(r);
    ref_decoupled(r, ref_paper(r));
}

static inline void ref_rule_muon_v(ref *r, const double *g)
{
    ref_heavy(r, g, 0.95, 1);
    ref_adam(r, g, 0.999, 1e-8);
    ref_polar(r);
    ref_decoupled(r, ref_paper(r));
}

static inline void ref_rule_polar_ema(ref *r, const double *g)
{
    ref_ema(r, g, 0.9);
    ref_polar(r);
    ref_decoupled(r, ref_paper(r));
}

static inline void ref_rule_normuon(ref *r, const double *g)
{
    ref_average(r, g, 0.95, 1);
    ref_polar(r);
    ref_line_moment(r, 0, 0.95, 1e-10, 0);
    ref_decoupled(r, ref_jordan(r));
}

static inline void ref_rule_normuon_long(ref *r, const double *g)
{
    ref_average(r, g, 0.95, 1);
    ref_polar(r);
    ref_line_moment(r, r->rows < r->cols, 0.95, 1e-10, 1);
    ref_decoupled(r, ref_jordan(r));
}

static inline void ref_rule_adamuon(ref *r, const double *g)
{
    ref_average(r, g, 0.95, 1);
    ref_polar(r);
    ref_entry_moment(r, 0.999, 1e-8);
    ref_decoupled(r, ref_frobenius(r));
}

static inline void ref_rule_adamuon_sign(ref *r, const double *g)
{
    ref_average(r, g, 0.95, 1);
    ref_sign(r);
    ref_polar(r);
    ref_entry_moment(r, 0.95, 1e-8);
    ref_decoupled(r, ref_frobenius(r));
}

static inline void ref_rule_muon2(ref *r, const double *g)
{
    ref_average(r, g, 0.95, 1);
    ref_adam(r, g, 0.95, 1e-10);
    ref_polar(r);
    ref_decoupled(r, ref_jordan(r));
}

/* M += g; the quarter of the short side's lines with the largest sums of magnitudes is mapped by itself, and
 * keeps 0.95 of its momentum. */
static inline void ref_rule_dion2(ref *r, const double *g)
{
    const int trans = r->rows > r->cols, lines = trans ? r->cols : r->rows, n = trans ? r->rows : r->cols,
              count = (lines + 3) / 4;
    double size[REF_MOST];
    static ref some;
    int line[REF_MOST], taken = 0;
    for (int i = 0; i < r->n; i++) r->m[i] += g[i];
    for (int l = 0; l < lines; l++) {
        size[l] = 0;
        for (int k = 0; k < n; k++) size[l] += fabs(r->m[trans ? k * r->cols + l : l * r->cols + k]);
    }
    for (int l = 0; l < lines; l++) {
        int before = 0;
        for (int k = 0; k < lines; k++) before += size[k] > size[l];
        if (before < count) line[taken++] = l;
    }
    some.rows = trans ? r->rows : taken, some.cols = trans ? taken : r->cols, some.n = taken * n;
#define AT(l, k) (trans ? (k)*r->cols + line[l] : line[l] * r->cols + (k))
    for (int l = 0; l < taken; l++)
        for (int k = 0; k < n; k++) some.u[trans ? k * taken + l : l * n + k] = r->m[AT(l, k)];
    ref_polar(&some);
    memset(r->D, 0, sizeof r->D);
    for (int l = 0; l < taken; l++)
        for (int k = 0; k < n; k++) {
            r->D[AT(l, k)] = some.D[trans ? k * taken + l : l * n + k];
            r->m[AT(l, k)] *= 0.95;
        }
#undef AT
    ref_decoupled(r, sqrt((double)r->rows / r->cols));
}

/* eps under the root, and no bias correction. */
static inline void ref_rule_muon2_paper(ref *r, const double *g)
{
    ref_average(r, g, 0.95, 0);
    for (int i = 0; i < r->n; i++) {
        r->v[i] = 0.95 * r->v[i] + 0.05 * g[i] * g[i];
        r->u[i] /= sqrt(r->v[i] + 1e-10);
    }
    ref_polar(r);
    ref_decoupled(r, sqrt((double)r->cols / r->rows));
}

static inline void ref_rule_muon_laprop(ref *r, const double *g)
{
    static double x[REF_MOST];
    ref_laprop(r, x, g, 0.99, 1e-8);
    ref_ema(r, x, 0.9);
    ref_polar(r);
    ref_decoupled(r, ref_jordan(r));
}

static inline void ref_muoneq(ref *r, const double *g, int rows, int cols)
{
    ref_heavy(r, g, 0.95, 1);
    ref_equilibrate(r, rows, cols, 1e-8);
    ref_polar(r);
    ref_decoupled(r, ref_rms(r));
}

static inline void ref_rule_muoneq_r(ref *r, const double *g)
{
    ref_muoneq(r, g, 1, 0);
}
static inline void ref_rule_muoneq_c(ref *r, const double *g)
{
    ref_muoneq(r, g, 0, 1);
}
static inline void ref_rule_muoneq_rc(ref *r, const double *g)
{
    ref_muoneq(r, g, 1, 1);
}

static inline void ref_rule_polargrad(ref *r, const double *g)
{
    ref_average(r, g, 0.95, 0);
    ref_polar(r);
    ref_decoupled(r, ref_nuclear(r));
}

static inline void ref_rule_scion(ref *r, const double *g)
{
    ref_average(r, g, 0.9, 0);
    ref_polar(r);
    ref_constrained(r, 50 * sqrt((double)r->rows / r->cols));
}

static inline void ref_rule_muonh(ref *r, const double *g)
{
    ref_average(r, g, 0.95, 1);
    ref_polar(r);
    ref_hyperball(r);
}

static inline void ref_rule_muon_cautious(ref *r, const double *g)
{
    ref_average(r, g, 0.95, 1);
    ref_polar(r);
    ref_cautious(r, ref_jordan(r));
}

static inline void ref_rule_muon_plus(ref *r, const double *g)
{
    ref_average(r, g, 0.95, 1);
    ref_polar(r);
    ref_line_moment(r, 1, 0, 1e-8, 0);
    ref_decoupled(r, ref_jordan(r));
}

/* Lines of the long side over their norms, mapped; then over the norms of the result's lines, mapped again.
 */
static inline void ref_rule_aurora(ref *r, const double *g)
{
    static double x[REF_MOST];
    const int tall = r->rows > r->cols;
    ref_average(r, g, 0.95, 1);
    if (r->rows != r->cols) ref_equilibrate(r, tall, !tall, 1e-14);
    ref_polar(r);
    if (r->rows != r->cols) {
        for (int i = 0; i < REF_MOST; i++) x[i] = 1e-14;
        for (int i = 0; i < r->n; i++) x[tall ? i / r->cols : i % r->cols] += r->D[i] * r->D[i];
        for (int i = 0; i < r->n; i++) r->u[i] /= sqrt(x[tall ? i / r->cols : i % r->cols]);
        ref_polar(r);
    }
    ref_decoupled(r, ref_jordan(r));
}

static inline void ref_rule_namo(ref *r, const double *g)
{
    ref_average(r, g, 0.95, 1);
    ref_polar(r);
    ref_norm_moment(r, g, 0.95, 1e-8);
    ref_decoupled(r, ref_jordan(r));
}

static inline void ref_rule_adago(ref *r, const double *g)
{
    ref_average(r, g, 0.95, 0);
    ref_polar(r);
    ref_norm_sum(r, g, 10, 5e-4);
    ref_decoupled(r, 1);
}

static inline void ref_rule_muon_floor(ref *r, const double *g)
{
    ref_average(r, g, 0.95, 1);
    ref_polar(r);
    ref_update_floor(r, ref_jordan(r), 0.35);
}

static inline void ref_rule_muon_brake(ref *r, const double *g)
{
    ref_average(r, g, 0.95, 1);
    ref_polar(r);
    ref_radial_brake(r, ref_jordan(r), 0.5);
}

static inline void ref_rule_muon_power(ref *r, const double *g)
{
    ref_heavy(r, g, 0.95, 1);
    ref_spectral(r, 0, 0.5);
    ref_decoupled(r, ref_frobenius(r));
}

static inline void ref_rule_muon_soft(ref *r, const double *g)
{
    ref_heavy(r, g, 0.95, 1);
    ref_spectral(r, 1, 1);
    ref_decoupled(r, ref_frobenius(r));
}

#include "kron_reference.h"

typedef void (*ref_rule)(ref *r, const double *g);

/* The reference of a rule; NULL: there is none, and there should be. */
static inline ref_rule ref_rule_find(const char *name)
{
#define REF(rule)              \
    {                          \
#rule, ref_rule_##rule \
    }
    static const struct {
        const char *name;
        ref_rule step;
    } all[] = {REF(sgdm),      REF(adamw),        REF(muon),          REF(polaradamw),    REF(muon_v),
               REF(polar_ema), REF(normuon),      REF(normuon_long),  REF(adamuon),       REF(adamuon_sign),
               REF(muon2),     REF(muon_laprop),  REF(muoneq_r),      REF(muoneq_c),      REF(muoneq_rc),
               REF(polargrad), REF(scion),        REF(muonh),         REF(muon_cautious), REF(muon_power),
               REF(muon_soft), REF(shampoo),      REF(shampoo_polar), REF(pmuon),         REF(mousse),
               REF(namo),      REF(adago),        REF(muon_floor),    REF(muon_brake),    REF(muon_plus),
               REF(aurora),    REF(soap),         REF(soap_warm),     REF(soap_muon),     REF(soap_muon_warm),
               REF(kl_soap),   REF(kl_soap_warm), REF(muon2_paper),   REF(dion2)};
#undef REF
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i].name, name)) return all[i].step;
    return NULL;
}

#endif
