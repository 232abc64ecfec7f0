/* cpu_kron_tridiagonal.c -- a symmetric matrix to tridiagonal form by Householder reflections in panels, and
 * vectors back from there (LAPACK's dsytrd and dormtr).
 *
 *     A = H_0 H_1 .. T .. H_1 H_0,   H_k = I - tau_k v_k v_k^T,   v_k zero up to entry k, then 1
 *
 * A is its upper triangle. Within a panel A stays as it is: row k and the product with v_k are corrected by
 * what the panel's earlier reflections have done, A - V^T W - W^T V, which is applied behind the panel by the
 * device's gemm. The product reads each entry of the triangle once, for its row and its column. On the way
 * back H_from .. H_to-1 = I - V^T T V as in host_qr.c.
 *
 * Rows and columns go by eights: blocks of eight on the diagonal are whole, v_k is zero up to entry k, so
 * what has been done of a block adds nothing. Sums are in eight lanes.
 *
 * A row below 2^-450 of the matrix's largest entry is taken for zero: its squares would be subnormal.
 */
#include <math.h>
#include <string.h>

#include "cpu_eight.h"
#include "cpu_kron_eigen.h"

#define BACK  PL_EIGEN_BACK
#define STRIP 96 /* rows of the triangle that a product updates at once */

#ifdef __AVX512F__
#define SWEPT 8 /* rows of the triangle in registers */
#else
#define SWEPT 4
#endif

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- rows --------------------------------------------------------------------------------------- */

static double dot(const double *x, const double *y, int64_t n)
{
    pl_eight s = pl_eight_all(0);
    for (int64_t j = 0; j < n; j += 8) s = pl_eight_fma(pl_eight_load(x + j), pl_eight_load(y + j), s);
    return pl_eight_sum(s);
}

/* out[p] = row p . x, four rows at a time; n is a multiple of eight */
static void dots(double *out, const double *rows, int64_t ld, int64_t count, const double *x, int64_t n)
{
    int64_t p = 0;
    for (; p + 4 <= count; p += 4, rows += 4 * ld) {
        pl_eight s[4];
#pragma GCC unroll 4
        for (int r = 0; r < 4; r++) s[r] = pl_eight_all(0);
        for (int64_t j = 0; j < n; j += 8) {
            const pl_eight xj = pl_eight_load(x + j);
#pragma GCC unroll 4
            for (int r = 0; r < 4; r++) s[r] = pl_eight_fma(pl_eight_load(rows + r * ld + j), xj, s[r]);
        }
#pragma GCC unroll 4
        for (int r = 0; r < 4; r++) out[p + r] = pl_eight_sum(s[r]);
    }
    for (; p < count; p++, rows += ld) out[p] = dot(rows, x, n);
}

/* x -= sum_p by[p step] row p */
static void subtract(double *x, const double *rows, int64_t ld, int64_t count, const double *by, int64_t step,
                     int64_t n)
{
    int64_t p = 0;
    for (; p + 4 <= count; p += 4, rows += 4 * ld) {
        pl_eight c[4];
#pragma GCC unroll 4
        for (int r = 0; r < 4; r++) c[r] = pl_eight_all(-by[(p + r) * step]);
        for (int64_t j = 0; j < n; j += 8) {
            pl_eight xj = pl_eight_load(x + j);
#pragma GCC unroll 4
            for (int r = 0; r < 4; r++) xj = pl_eight_fma(c[r], pl_eight_load(rows + r * ld + j), xj);
            pl_eight_store(x + j, xj);
        }
    }
    for (; p < count; p++, rows += ld) {
        const pl_eight c = pl_eight_all(-by[p * step]);
        for (int64_t j = 0; j < n; j += 8)
            pl_eight_store(x + j, pl_eight_fma(c, pl_eight_load(rows + j), pl_eight_load(x + j)));
    }
}

/* ---- the triangle times a vector ---------------------------------------------------------------- */

/* What rows [i, i + SWEPT) of the triangle, of the block of eight rows at `block`, add to y = A v. */
static void sweep_rows(double *y, const double *A, int64_t ld, int64_t block, int64_t i, const double *v)
{
    const double *a = A + i * ld;
    pl_eight sum[SWEPT], vi[SWEPT];
    const pl_eight beside = pl_eight_load(v + block);
#pragma GCC unroll 8
    for (int r = 0; r < SWEPT; r++) {
        sum[r] = pl_eight_mul(pl_eight_load(a + r * ld + block), beside);
        vi[r] = pl_eight_all(v[i + r]);
    }
    for (int64_t j = block + 8; j < ld; j += 8) {
        const pl_eight vj = pl_eight_load(v + j);
        pl_eight yj = pl_eight_load(y + j);
#pragma GCC unroll 8
        for (int r = 0; r < SWEPT; r++) {
            const pl_eight x = pl_eight_load(a + r * ld + j);
            sum[r] = pl_eight_fma(x, vj, sum[r]);
            yj = pl_eight_fma(x, vi[r], yj);
        }
        pl_eight_store(y + j, yj);
    }
#pragma GCC unroll 8
    for (int r = 0; r < SWEPT; r++) y[i + r] += pl_eight_sum(sum[r]);
}

/* y = A v over rows and columns [from, ld), from a multiple of eight; blocks of rows upwards or downwards: of
 * a triangle that is larger than a cache, what the sweep before has left there comes first */
static void triangle_product(double *y, const double *A, int64_t ld, int64_t from, const double *v,
                             int upwards)
{
    memset(y + from, 0, (size_t)(ld - from) * sizeof *y);
    for (int64_t at = from; at < ld; at += 8) {
        const int64_t block = upwards ? from + ld - 8 - at : at;
        for (int64_t i = block; i < block + 8; i += SWEPT) sweep_rows(y, A, ld, block, i, v);
    }
}

/* ---- panels ------------------------------------------------------------------------------------- */

/* v of x, whose entries up to k are zero: H x has `to` in k + 1 and nothing behind it; returns tau */
static double reflection(double *v, double *to, const double *x, int64_t from, int64_t k, int64_t ld)
{
    const double square = dot(x + from, x + from, ld - from), first = x[k + 1];
    *to = 0;
    memset(v + from, 0, (size_t)(ld - from) * sizeof *v);
    v[k + 1] = 1;
    if (!(square > 0x1p-900)) return 0;
    *to = first > 0 ? -sqrt(square) : sqrt(square);
    const pl_eight by = pl_eight_all(1 / (first - *to));
    for (int64_t j = from; j < ld; j += 8) pl_eight_store(v + j, pl_eight_mul(pl_eight_load(x + j), by));
    v[k + 1] = 1;
    return (*to - first) / *to;
}

/* Columns [from, to) of the panel; v and w of its reflections into P, of which there are `count`: v in the
 * first rows, w in the next ones, v again behind them. */
static void panel(const pl_eigen *m, int64_t from, int64_t to, int64_t count)
{
    const int64_t ld = m->ld, n = m->n, begin = from / 8 * 8;
    double *V = m->panel, *W = V + count * ld, *again = W + count * ld, *x = m->vectors, *along = x + ld;
    for (int64_t k = from; k < to; k++) {
        const int64_t p = smaller(k - from, count), own = k / 8 * 8, next = (k + 1) / 8 * 8;
        memcpy(x + own, m->A + k * ld + own, (size_t)(ld - own) * sizeof *x);
        subtract(x + own, W + own, ld, p, V + k, ld, ld - own);
        subtract(x + own, V + own, ld, p, W + k, ld, ld - own);
        m->d[k] = x[k];
        if (k + 1 < n) m->e[k] = x[k + 1];
        if (k - from >= count) continue;
        double *v = V + p * ld, *w = W + p * ld;
        memset(x + own, 0, (size_t)(k + 1 - own) * sizeof *x);
        memset(v + begin, 0, (size_t)(ld - begin) * sizeof *v);
        const double tau = reflection(v, &m->e[k], x, next, k, ld);
        memset(w + begin, 0, (size_t)(ld - begin) * sizeof *w);
        m->tau[k] = tau;
        if (tau != 0) {
            triangle_product(w, m->A, ld, next, v, k % 2);
            dots(along, W + next, ld, p, v + next, ld - next);
            subtract(w + next, V + next, ld, p, along, 1, ld - next);
            dots(along, V + next, ld, p, v + next, ld - next);
            subtract(w + next, W + next, ld, p, along, 1, ld - next);
            memset(w + next, 0, (size_t)(k + 1 - next) * sizeof *w);
            const double half = 0.5 * tau * dot(w + next, v + next, ld - next);
            const pl_eight by = pl_eight_all(tau), back = pl_eight_all(-half * tau);
            for (int64_t j = next; j < ld; j += 8)
                pl_eight_store(
                    w + j, pl_eight_fma(back, pl_eight_load(v + j), pl_eight_mul(by, pl_eight_load(w + j))));
        }
        memcpy(again + p * ld + begin, v + begin, (size_t)(ld - begin) * sizeof *v);
        memset(m->V + k * ld, 0, (size_t)begin * sizeof *v);
        memcpy(m->V + k * ld + begin, v + begin, (size_t)(ld - begin) * sizeof *v);
    }
}

void PL_ISA_NAME(pl_eigen_tridiagonalise)(const pl_eigen *m)
{
    const int64_t ld = m->ld, n = m->n;
    for (int64_t from = 0, to; from < n; from = to) {
        to = n - from <= PL_EIGEN_LAST ? n : from + PL_EIGEN_PANEL;
        const int64_t most = n - 2 - from, count = most < 0 ? 0 : smaller(to - from, most); /* reflections */
        panel(m, from, to, count);
        if (to == n) break;
        for (int64_t i = to / 8 * 8; i < ld; i += STRIP)
            pl_eigen_multiply(m, (pl_eigen_product){.C = m->A + i * ld + i,
                                                    .c_rs = ld,
                                                    .rows = smaller(STRIP, ld - i),
                                                    .cols = ld - i,
                                                    .k = 2 * count,
                                                    .A = m->panel + i,
                                                    .a_rs = ld,
                                                    .ta = 1,
                                                    .B = m->panel + count * ld + i,
                                                    .b_rs = ld,
                                                    .alpha = -1,
                                                    .more = 1});
    }
}

/* ---- the way back ------------------------------------------------------------------------------- */

/* T^T of reflections [from, to), of which G has the products, in place */
static void combine(double *G, const double *tau, int64_t count)
{
    double row[BACK];
    for (int64_t i = 0; i < count; i++) {
        double *g = G + i * BACK;
        memset(row, 0, sizeof row);
        for (int64_t b = 0; b < i; b++) {
            const double by = -tau[i] * g[b], *t = G + b * BACK;
            for (int64_t a = 0; a <= b; a++) row[a] += by * t[a];
        }
        row[i] = tau[i];
        memcpy(g, row, (size_t)count * sizeof *g);
    }
}

void PL_ISA_NAME(pl_eigen_turn_back)(const pl_eigen *m)
{
    const int64_t ld = m->ld, n = m->n;
    double *T = m->square, *W = m->panel, *P = W + BACK * ld;
    for (int64_t i = 0; i < n; i++) memset(m->Z + i * ld + n, 0, (size_t)(ld - n) * sizeof *m->Z);
    for (int64_t to = n - 2, from; to > 0; to = from) {
        from = (to - 1) / BACK * BACK;
        const int64_t count = to - from, first = from, width = ld - first; /* v is zero up to its k */
        const double *V = m->V + from * ld + first;
        pl_eigen_multiply(m, (pl_eigen_product){.C = T,
                                                .c_rs = BACK,
                                                .rows = count,
                                                .cols = count,
                                                .k = width,
                                                .A = V,
                                                .a_rs = ld,
                                                .B = V,
                                                .b_rs = ld,
                                                .tb = 1,
                                                .alpha = 1});
        combine(T, m->tau + from, count);
        pl_eigen_multiply(m, (pl_eigen_product){.C = W,
                                                .c_rs = ld,
                                                .rows = count,
                                                .cols = width,
                                                .k = count,
                                                .A = T,
                                                .a_rs = BACK,
                                                .B = V,
                                                .b_rs = ld,
                                                .alpha = 1});
        pl_eigen_multiply(m, (pl_eigen_product){.C = P,
                                                .c_rs = BACK,
                                                .rows = n,
                                                .cols = count,
                                                .k = width,
                                                .A = m->Z + first,
                                                .a_rs = ld,
                                                .B = V,
                                                .b_rs = ld,
                                                .tb = 1,
                                                .alpha = 1});
        pl_eigen_multiply(m, (pl_eigen_product){.C = m->Z + first,
                                                .c_rs = ld,
                                                .rows = n,
                                                .cols = width,
                                                .k = count,
                                                .A = P,
                                                .a_rs = BACK,
                                                .B = W,
                                                .b_rs = ld,
                                                .alpha = -1,
                                                .more = 1});
    }
}
