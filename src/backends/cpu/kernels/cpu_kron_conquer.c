/* cpu_kron_conquer.c -- eigenvectors of a symmetric tridiagonal matrix: divide and conquer (Cuppen; Gu and
 * Eisenstat 1995; LAPACK's dstedc), as cuda_kron_conquer.cuh has it.
 *
 *     T = diag(T_1, T_2) + rho v v^T,  T_i = Q_i D_i Q_i^T   ->   D + rho z z^T,
 *     z = (Q_1's last row, Q_2's first)
 *
 * Leaves of at most LEAF rows go by QL with implicit shifts, then pairs of neighbours are merged. Entries z
 * that do not matter, and of equal d all but one, are deflated; the others' eigenvalues come from the secular
 * equation (cpu_kron_secular.h), and z is made anew from them (Loewner's formula), so that vectors are
 * orthogonal whatever the eigenvalues' errors. What is left of T_1 and T_2 is multiplied half by half: their
 * vectors are sorted into those of T_1, those that deflation has mixed, those of T_2.
 *
 * Vectors are rows of Z, zero outside of their node's columns or not written there yet.
 */
#include <math.h>
#include <string.h>

#include "cpu_kron_eigen.h"
#include "cpu_kron_secular.h"

#define LEAF        PL_EIGEN_LEAF
#define MOST_TURNED 60 /* steps of QL for an eigenvalue; three are many */

/* ---- leaves ------------------------------------------------------------------------------------- */

/* One step of QL on rows [l, last] with its shift; the vectors are rows of z, LEAF apart, `eights` long. */
static void ql_step(double *d, double *e, double *z, int l, int last, int eights)
{
    const double half = (d[l + 1] - d[l]) / (2 * e[l]), length = sqrt(half * half + 1);
    double g = d[last] - d[l] + e[l] / (half + (half < 0 ? -length : length)), s = 1, c = 1, p = 0;
    for (int i = last - 1; i >= l; i--) {
        const double f = s * e[i], b = c * e[i], square = f * f + g * g;
        if (square < 0x1p-1000) { /* the matrix falls apart here */
            d[i + 1] -= p;
            if (i + 1 < last) e[i + 1] = 0;
            e[last] = 0;
            return;
        }
        const double r = sqrt(square), by = 1 / r;
        if (i + 1 < last) e[i + 1] = r;
        s = f * by, c = g * by;
        g = d[i + 1] - p;
        const double t = (d[i] - g) * s + 2 * c * b;
        p = s * t;
        d[i + 1] = g + p;
        g = c * t - b;
        const pl_eight sine = pl_eight_all(s), cosine = pl_eight_all(c), minus = pl_eight_all(-s);
        double *x = z + i * LEAF, *y = x + LEAF;
        for (int j = 0; j < 8 * eights; j += 8) {
            const pl_eight xj = pl_eight_load(x + j), yj = pl_eight_load(y + j);
            pl_eight_store(y + j, pl_eight_fma(sine, xj, pl_eight_mul(cosine, yj)));
            pl_eight_store(x + j, pl_eight_fma(cosine, xj, pl_eight_mul(minus, yj)));
        }
    }
    d[l] -= p, e[l] = g, e[last] = 0;
}

/* Rows of z, a leaf's, become the vectors of the tridiagonal matrix (d, e) in the coordinates that they were.
 * e has `size` entries, the last one anything. */
static void ql(double *d, const double *e, double *z, int size)
{
    double beside[LEAF];
    const int eights = (size + 7) / 8;
    for (int i = 0; i < size; i++) beside[i] = i < size - 1 ? e[i] : 0;
    for (int l = 0; l < size - 1; l++)
        for (int turn = 0; turn < MOST_TURNED; turn++) {
            int last = l;
            for (; last < size - 1; last++) {
                const double off = fabs(beside[last]);
                if (off <= 0x1p-53 * (fabs(d[last]) + fabs(d[last + 1])) || off < 0x1p-300) break;
            }
            if (last == l) break;
            ql_step(d, beside, z, l, last, eights);
        }
}

static void unit_rows(double *z, int size)
{
    for (int i = 0; i < size; i++) {
        memset(z + i * LEAF, 0, (size_t)((size + 7) / 8 * 8) * sizeof *z);
        z[i * LEAF + i] = 1;
    }
}

/* z H, z being the unit matrix and H = .. H_1 H_0: rows up to k are unit vectors still where H_k comes. */
static void reflect_rows(const pl_eigen *m, double *z)
{
    const int n = (int)m->n, eights = (n + 7) / 8;
    for (int k = n - 3; k >= 0; k--) {
        const double *v = m->V + k * m->ld;
        for (int i = k + 1; i < n; i++) {
            double *x = z + i * LEAF;
            pl_eight sum = pl_eight_all(0);
            for (int j = k / 8 * 8; j < 8 * eights; j += 8)
                sum = pl_eight_fma(pl_eight_load(x + j), pl_eight_load(v + j), sum);
            const pl_eight by = pl_eight_all(-m->tau[k] * pl_eight_sum(sum));
            for (int j = k / 8 * 8; j < 8 * eights; j += 8)
                pl_eight_store(x + j, pl_eight_fma(by, pl_eight_load(v + j), pl_eight_load(x + j)));
        }
    }
}

/* Rows [begin, end) of Z become the vectors of these rows of the tridiagonal matrix; where they are all of
 * them, those of the matrix. */
static void leaf(const pl_eigen *m, int64_t begin, int64_t end)
{
    _Alignas(64) double z[LEAF * LEAF];
    const int size = (int)(end - begin);
    unit_rows(z, size);
    if (size == m->n) reflect_rows(m, z);
    ql(m->d + begin, m->e + begin, z, size);
    for (int i = 0; i < size; i++)
        memcpy(m->Z + (begin + i) * m->ld + begin, z + i * LEAF, (size_t)size * sizeof *z);
}

/* ---- a merge ------------------------------------------------------------------------------------ */

enum { UPPER, MIXED, LOWER, DEFLATED, KINDS }; /* rows of Z: zero in the second half, nowhere, in the first */

/* What a merge keeps, by entry of its node (kind, order, z), by pole (the rest). */
typedef struct {
    const pl_eigen *m;
    int64_t begin, middle, end, n, k; /* k: left after deflation */
    double rho;
    double *d, *z, *pole, *weight, *root, *fresh, *sorted_pole, *sorted_weight;
    int64_t *order, *kind, *left, *origin, *sorted, *room;
    int64_t count[KINDS];
} merge;

static merge merge_of(const pl_eigen *m, int64_t begin, int64_t middle, int64_t end)
{
    merge g = {.m = m, .begin = begin, .middle = middle, .end = end, .n = end - begin};
    double *v = m->vectors;
    int64_t *p = m->places;
    const int64_t ld = m->ld + 8; /* poles are padded */
    g.rho = 2 * fabs(m->e[middle - 1]);
    g.d = m->d + begin;
    g.z = v, g.pole = v + ld, g.weight = v + 2 * ld, g.root = v + 3 * ld, g.fresh = v + 4 * ld;
    g.sorted_pole = v + 5 * ld, g.sorted_weight = v + 6 * ld;
    g.order = p, g.kind = p + ld, g.left = p + 2 * ld, g.origin = p + 3 * ld, g.sorted = p + 4 * ld;
    g.room = p + 5 * ld;
    return g;
}

static double *row_of(const merge *g, int64_t i)
{
    return g->m->Z + (g->begin + i) * g->m->ld + g->begin;
}

/* z of every entry, and zeros where its vector ends. */
static void begin(const merge *g)
{
    const int64_t half = g->middle - g->begin;
    const double sign = g->m->e[g->middle - 1] < 0 ? -1 : 1;
    for (int64_t i = 0; i < g->n; i++) {
        double *row = row_of(g, i);
        const int upper = i < half;
        g->kind[i] = upper ? UPPER : LOWER;
        g->z[i] = 0.70710678118654752440 * (upper ? row[half - 1] : sign * row[half]);
        if (upper) memset(row + half, 0, (size_t)(g->n - half) * sizeof *row);
        else memset(row, 0, (size_t)half * sizeof *row);
    }
}

/* Vectors p and r turned against each other. */
static void turn(const merge *g, int64_t p, int64_t r, double c, double s)
{
    double *x = row_of(g, p), *y = row_of(g, r);
    for (int64_t j = 0; j < g->n; j++) {
        const double a = x[j], b = y[j];
        x[j] = c * a + s * b, y[j] = c * b - s * a;
    }
}

static void keep(merge *g, int64_t i)
{
    g->left[g->k] = i, g->pole[g->k] = g->d[i], g->weight[g->k] = g->z[i], g->k++;
}

/* Goes through a node's entries in order (LAPACK's dlaed2). */
static void deflate(merge *g)
{
    double top = 0;
    int64_t held = -1;
    for (int64_t i = 0; i < g->n; i++) top = fmax(top, fmax(fabs(g->d[i]), fabs(g->z[i])));
    const double tol = 8 * 0x1p-53 * top;
    for (int64_t at = 0; at < g->n; at++) {
        const int64_t i = g->order[at];
        if (!(g->rho * fabs(g->z[i]) > tol)) {
            g->kind[i] = DEFLATED;
            continue;
        }
        if (held >= 0) {
            const double length = sqrt(g->z[i] * g->z[i] + g->z[held] * g->z[held]), c = g->z[i] / length,
                         s = -g->z[held] / length, low = g->d[held], high = g->d[i];
            if (fabs((high - low) * c * s) <= tol) {
                g->z[i] = length, g->z[held] = 0;
                g->d[held] = low * c * c + high * s * s, g->d[i] = low * s * s + high * c * c;
                turn(g, held, i, c, s);
                if (g->kind[held] != g->kind[i]) g->kind[i] = MIXED;
                g->kind[held] = DEFLATED;
            } else keep(g, held);
        }
        held = i;
    }
    if (held >= 0) keep(g, held);
}

/* Poles by the kinds of their vectors. */
static void sort_kinds(merge *g)
{
    int64_t at[KINDS] = {0};
    for (int64_t p = 0; p < g->k; p++) g->count[g->kind[g->left[p]]]++;
    at[MIXED] = g->count[UPPER], at[LOWER] = at[MIXED] + g->count[MIXED];
    for (int64_t p = 0; p < g->k; p++) g->sorted[at[g->kind[g->left[p]]]++] = p;
}

/* Rows that are left, in the order of their kinds, halves apart, then the deflated ones, all into Y. */
static void pack(const merge *g)
{
    const int64_t half = g->middle - g->begin, rest = g->n - half, upper = g->count[UPPER] + g->count[MIXED];
    double *y = g->m->Y;
    for (int64_t p = 0; p < upper; p++, y += half)
        memcpy(y, row_of(g, g->left[g->sorted[p]]), (size_t)half * sizeof *y);
    for (int64_t p = g->count[UPPER]; p < g->k; p++, y += rest)
        memcpy(y, row_of(g, g->left[g->sorted[p]]) + half, (size_t)rest * sizeof *y);
    int64_t p = g->k;
    for (int64_t i = 0; i < g->n; i++)
        if (g->kind[i] == DEFLATED) {
            memcpy(y, row_of(g, i), (size_t)g->n * sizeof *y), y += g->n;
            g->fresh[p++] = g->d[i];
        }
}

/* w_i *= (d_i - lambda_r) / (d_i - d_r) for i in [from, to) and `rows` of U from r on, four at most: one
 * division for all of them. */
PL_INLINE void loewner_some(double *w, const merge *g, const double *U, int64_t r, const int rows,
                            int64_t from, int64_t to)
{
    const int64_t ld = g->m->ld;
    const double *pole = g->pole, *u = U + r * ld;
#pragma omp simd
    for (int64_t i = from; i < to; i++) {
        double over = u[i], under = pole[i] - pole[r];
        for (int q = 1; q < rows; q++) over *= u[q * ld + i], under *= pole[i] - pole[r + q];
        w[i] *= over / under;
    }
}

/* z anew from the roots' distances to the poles, the rows of U; w: room. */
static void loewner(const merge *g, const double *U, double *w)
{
    const int64_t ld = g->m->ld, k = g->k;
    for (int64_t i = 0; i < k; i++) w[i] = -U[i * ld + i];
    for (int64_t r = 0; r < k; r += 4) {
        const int64_t end = r + 4 < k ? r + 4 : k;
        if (end - r == 4) loewner_some(w, g, U, r, 4, 0, r), loewner_some(w, g, U, r, 4, end, k);
        for (int64_t q = r; q < end; q++) {
            if (end - r < 4) loewner_some(w, g, U, q, 1, 0, r);
            loewner_some(w, g, U, q, 1, r, q), loewner_some(w, g, U, q, 1, q + 1, end);
        }
    }
    for (int64_t i = 0; i < k; i++) g->weight[i] = copysign(sqrt(w[i]), g->weight[i]);
}

/* Row i of U: the vector in the coordinates of what is left, by kinds, of length 1. */
static void vector(double *row, const merge *g, int64_t i, int64_t whole)
{
    const pl_eight from = pl_eight_all(g->pole[g->origin[i]]), root = pl_eight_all(g->root[i]);
    const double *pole = g->sorted_pole, *weight = g->sorted_weight;
    pl_eight sum = pl_eight_all(0);
    int64_t j = 0;
    for (; j + 32 <= whole; j += 32) {
        pl_eight z[4], to[4], y[4];
#pragma GCC unroll 4
        for (int q = 0; q < 4; q++)
            z[q] = pl_eight_load(weight + j + 8 * q),
            to[q] = pl_eight_sub(pl_eight_sub(pl_eight_load(pole + j + 8 * q), from), root);
        pl_eight_div_four(y, z, to);
#pragma GCC unroll 4
        for (int q = 0; q < 4; q++)
            pl_eight_store(row + j + 8 * q, y[q]), sum = pl_eight_fma(y[q], y[q], sum);
    }
    for (; j < whole; j += 8) {
        const pl_eight to = pl_eight_sub(pl_eight_sub(pl_eight_load(pole + j), from), root),
                       y = pl_eight_div(pl_eight_load(weight + j), to);
        pl_eight_store(row + j, y);
        sum = pl_eight_fma(y, y, sum);
    }
    const pl_eight by = pl_eight_all(1 / sqrt(pl_eight_sum(sum)));
    for (j = 0; j < whole; j += 8) pl_eight_store(row + j, pl_eight_mul(pl_eight_load(row + j), by));
}

/* Roots, then U's rows. */
static void vectors(const merge *g, double *U)
{
    const int64_t ld = g->m->ld, k = g->k, whole = (k + 7) / 8 * 8;
    double all = 0;
    for (int64_t j = 0; j < k; j++) all += g->weight[j] * g->weight[j];
    all *= g->rho;
    for (int64_t j = k; j < whole + 8; j++) g->pole[j] = g->pole[k - 1] + 2 * all + 1, g->weight[j] = 0;
    pl_poles p = {.d = g->pole, .z = g->weight, .k = k};
    for (int64_t i = 0; i < k; i++) {
        g->root[i] = pl_secular_root(&p, i, 1 / g->rho, all, &g->origin[i]);
        const double from = g->pole[g->origin[i]], root = g->root[i];
        for (int64_t j = 0; j < k; j++) U[i * ld + j] = (g->pole[j] - from) - root;
        g->fresh[i] = from + root;
    }
    loewner(g, U, g->sorted_pole);
    for (int64_t j = 0; j < k; j++)
        g->sorted_pole[j] = g->pole[g->sorted[j]], g->sorted_weight[j] = g->weight[g->sorted[j]];
    for (int64_t j = k; j < whole; j++) g->sorted_pole[j] = g->pole[k], g->sorted_weight[j] = 0;
    for (int64_t i = 0; i < k; i++) vector(U + i * ld, g, i, whole);
}

/* Two neighbours become one node: vectors that are left first, then the deflated ones. */
static void merge_nodes(const pl_eigen *m, int64_t first, int64_t middle, int64_t end)
{
    merge g = merge_of(m, first, middle, end);
    const int64_t ld = m->ld, half = middle - first, rest = end - middle;
    begin(&g);
    pl_eigen_sort(g.order, g.room, g.d, g.n);
    deflate(&g);
    if (g.k == 0) return;
    sort_kinds(&g);
    pack(&g);
    double *U = m->A;
    const int64_t upper = g.count[UPPER] + g.count[MIXED], lower = g.k - g.count[UPPER];
    const double *top = m->Y, *bottom = top + upper * half, *deflated = bottom + lower * rest;
    vectors(&g, U);
    pl_eigen_multiply(m, (pl_eigen_product){.C = row_of(&g, 0),
                                            .c_rs = ld,
                                            .rows = g.k,
                                            .cols = half,
                                            .k = upper,
                                            .A = U,
                                            .a_rs = ld,
                                            .B = top,
                                            .b_rs = half,
                                            .alpha = 1});
    pl_eigen_multiply(m, (pl_eigen_product){.C = row_of(&g, 0) + half,
                                            .c_rs = ld,
                                            .rows = g.k,
                                            .cols = rest,
                                            .k = lower,
                                            .A = U + g.count[UPPER],
                                            .a_rs = ld,
                                            .B = bottom,
                                            .b_rs = rest,
                                            .alpha = 1});
    for (int64_t i = g.k; i < g.n; i++) memcpy(row_of(&g, i), deflated + (i - g.k) * g.n, (size_t)g.n * 8);
    memcpy(g.d, g.fresh, (size_t)g.n * sizeof *g.d);
}

/* ---- the tree ----------------------------------------------------------------------------------- */

void PL_ISA_NAME(pl_eigen_conquer)(const pl_eigen *m)
{
    const int64_t n = m->n;
    int64_t leaves = 1;
    while (n > LEAF * leaves) leaves *= 2;
    for (int64_t q = 1; q < leaves; q++) { /* torn where leaves meet, each of which has two rows or more */
        const int64_t at = q * n / leaves;
        const double off = fabs(m->e[at - 1]);
        m->d[at - 1] -= off;
        m->d[at] -= off;
    }
    for (int64_t q = 0; q < leaves; q++) leaf(m, q * n / leaves, (q + 1) * n / leaves);
    for (int64_t nodes = leaves / 2; nodes > 0; nodes /= 2)
        for (int64_t q = 0; q < nodes; q++)
            merge_nodes(m, q * n / nodes, (2 * q + 1) * n / (2 * nodes), (q + 1) * n / nodes);
}
