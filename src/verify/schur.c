/* schur.c -- averaging over rotations leaves B (x) I_3; polar maps act block by block (paper, Lemmas "Schur
 * reduction" and "Polar respects direct sums"). */
#include "verify/schur.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/lapack.h"
#include "polar/optim.h"
#include "verify/conjugate.h"

#define MAX_M 8

/* ---- Schur reduction ---- */

/* A += (I_m (x) R)^T M (I_m (x) R): every 3 x 3 block becomes R^T M_ij R. All (3m, 3m). */
static void add_conjugate(double *A, const double *M, int64_t m, const double R[9])
{
    int64_t ld = 3 * m;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < m; j++) {
            const double *X = M + 3 * i * ld + 3 * j;
            double *Y = A + 3 * i * ld + 3 * j;
            for (int a = 0; a < 3; a++)
                for (int b = 0; b < 3; b++) {
                    double s = 0;
                    for (int p = 0; p < 3; p++)
                        for (int r = 0; r < 3; r++) s += R[3 * p + a] * X[p * ld + r] * R[3 * r + b];
                    Y[a * ld + b] += s;
                }
        }
}

/* The 24 rotations of the cube: permutation matrices with signs, of determinant 1. */
static int octahedral(double group[24][9])
{
    /* three even, three odd */
    static const int perm[6][3] = {{0, 1, 2}, {1, 2, 0}, {2, 0, 1}, {0, 2, 1}, {2, 1, 0}, {1, 0, 2}};
    int n = 0;
    for (int p = 0; p < 6; p++)
        for (int s = 0; s < 8; s++) {
            double sign[3] = {s & 1 ? -1 : 1, s & 2 ? -1 : 1, s & 4 ? -1 : 1};
            if (sign[0] * sign[1] * sign[2] * (p < 3 ? 1 : -1) < 0) continue;
            memset(group[n], 0, sizeof group[n]);
            for (int i = 0; i < 3; i++) group[n][3 * i + perm[p][i]] = sign[i];
            n++;
        }
    return n;
}

static void average_octahedral(double *A, const double *M, int64_t m)
{
    double group[24][9];
    int n = octahedral(group);
    memset(A, 0, (size_t)(9 * m * m) * sizeof *A);
    for (int g = 0; g < n; g++) add_conjugate(A, M, m, group[g]);
    for (int64_t i = 0; i < 9 * m * m; i++) A[i] /= n;
}

/* B of the nearest B (x) I_3: a third of each block's trace. Returns ||M - B (x) I_3||_F. */
static double nearest_b(double *B, const double *M, int64_t m)
{
    int64_t ld = 3 * m;
    double squares = 0;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < m; j++) {
            const double *X = M + 3 * i * ld + 3 * j;
            double b = (X[0] + X[ld + 1] + X[2 * ld + 2]) / 3;
            B[i * m + j] = b;
            for (int r = 0; r < 3; r++)
                for (int c = 0; c < 3; c++)
                    squares += (X[r * ld + c] - (r == c ? b : 0)) * (X[r * ld + c] - (r == c ? b : 0));
        }
    return sqrt(squares);
}

static double frobenius(const double *x, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += x[i] * x[i];
    return sqrt(s);
}

/* Distances left after N Haar rotations, for the growing N in out->rotations. A: work (3m, 3m). */
static polar_status monte_carlo(pl_schur_reduction *out, const double *M, double *A, double *B, uint64_t seed)
{
    int64_t m = out->m, done = 0;
    double *sum = pl_calloc((size_t)(9 * m * m), sizeof *sum), R[9];
    PL_NEED(sum, POLAR_E_NOMEM, "an average of rotations");
    polar_status st = POLAR_OK;
    for (int k = 0; k < PL_SCHUR_COUNTS && st == POLAR_OK; k++) {
        for (; done < out->rotations[k] && st == POLAR_OK; done++) {
            st = pl_haar_rotation(
                R, &(pl_draw){
                       .seed = seed, .kind = PL_DRAW_ROTATION, .rows = 3 * m, .cols = 3 * m, .sample = done});
            if (st == POLAR_OK) add_conjugate(sum, M, m, R);
        }
        for (int64_t i = 0; i < 9 * m * m; i++) A[i] = sum[i] / (double)out->rotations[k];
        out->monte_carlo[k] = nearest_b(B, A, m) / frobenius(M, 9 * m * m);
    }
    pl_free(sum);
    return st;
}

/* The averaging as a (9 m^2, 9 m^2) matrix, one basis matrix after the other: an orthogonal projector, so its
 * singular values are 0 and 1. */
static polar_status projector_rank(pl_schur_reduction *out)
{
    int64_t size = 9 * out->m * out->m;
    double *E = pl_calloc((size_t)size, sizeof *E), *K = pl_alloc((size_t)(size * size) * sizeof *K),
           *s = pl_alloc((size_t)size * sizeof *s);
    polar_status st =
        E && K && s ? POLAR_OK : PL_FAIL(POLAR_E_NOMEM, "a projector of %lld parameters", (long long)size);
    for (int64_t k = 0; k < size && st == POLAR_OK; k++) {
        E[k] = 1;
        average_octahedral(K + k * size, E, out->m);
        E[k] = 0;
    }
    if (st == POLAR_OK) st = pl_lapack_svd(s, NULL, NULL, K, size, size);
    out->parameters_before = size;
    for (int64_t k = 0; k < size && st == POLAR_OK; k++) {
        out->parameters_after += s[k] > 0.5;
        out->projector_gap = fmax(out->projector_gap, fmin(fabs(s[k]), fabs(s[k] - 1)));
    }
    pl_free(E);
    pl_free(K);
    pl_free(s);
    return st;
}

polar_status pl_schur_reduction_measure(pl_schur_reduction *out, int64_t m, uint64_t seed)
{
    PL_NEED(m >= 1 && m <= MAX_M, POLAR_E_ARG,
            "the Schur reduction is measured for 1 to %d copies of R^3, not for %lld", MAX_M, (long long)m);
    double M[9 * MAX_M * MAX_M], A[9 * MAX_M * MAX_M], B[MAX_M * MAX_M], B_after[MAX_M * MAX_M];
    *out = (pl_schur_reduction){.m = m, .rotations = {4, 64, 1024, 16384}};
    pl_draw_normal(M, 9 * m * m,
                   &(pl_draw){.seed = seed, .kind = PL_DRAW_GRADIENT, .rows = 3 * m, .cols = 3 * m});
    double norm = frobenius(M, 9 * m * m);
    PL_TRY(monte_carlo(out, M, A, B, seed));
    out->before = nearest_b(B, M, m) / norm;
    average_octahedral(A, M, m);
    out->octahedral = nearest_b(B_after, A, m) / norm;
    double norm_b = frobenius(B, m * m);
    for (int64_t i = 0; i < m * m; i++) B_after[i] -= B[i];
    out->b_change = frobenius(B_after, m * m) / norm_b;
    return projector_rank(out);
}

/* ---- the block lemma ---- */

static const pl_block_shape default_blocks[] = {
    {8, 8, 1, 0}, {6, 10, 3, 0}, {9, 4, 3, 0}, {7, 5, 5, 2}, {1, 3, 5, 0}};

#define MAX_BLOCKS 16

typedef struct lemma {
    pl_queue *q;
    int64_t n, rows, cols;
    const pl_block_shape *shape;
    pl_mat in[MAX_BLOCKS], out[MAX_BLOCKS], full_in, full_out;
    int64_t dim[MAX_BLOCKS];
    double *block, *assembled, *full; /* one block; the direct sum of blocks; the map of the whole */
} lemma;

/* A Gaussian block, or a product of two integer factors of few columns: its rank is exact in double. */
static void draw_block(double *G, const pl_block_shape *s, int64_t index, uint64_t seed)
{
    double A[2048];
    pl_draw draw = {.seed = seed, .kind = PL_DRAW_OTHER, .rows = s->n, .cols = s->m, .sample = index};
    if (!s->rank) {
        pl_draw_normal(G, s->n * s->m, &draw);
        return;
    }
    pl_draw_normal(A, s->rank * (s->n + s->m), &draw);
    for (int64_t i = 0; i < s->rank * (s->n + s->m); i++) A[i] = rint(3 * A[i]);
    const double *B = A + s->n * s->rank;
    for (int64_t i = 0; i < s->n; i++)
        for (int64_t j = 0; j < s->m; j++) {
            G[i * s->m + j] = 0;
            for (int64_t r = 0; r < s->rank; r++) G[i * s->m + j] += A[i * s->rank + r] * B[r * s->m + j];
        }
}

/* Puts G (x) I_d at (row, col) of the assembled matrix. */
static void put_block(const lemma *w, const double *G, const pl_block_shape *s, int64_t row, int64_t col)
{
    for (int64_t i = 0; i < s->n; i++)
        for (int64_t j = 0; j < s->m; j++)
            for (int64_t a = 0; a < s->d; a++)
                w->assembled[(row + i * s->d + a) * w->cols + col + j * s->d + a] = G[i * s->m + j];
}

/* Brings the blocks `mats` back and writes their direct sum into w->assembled. */
static polar_status assemble(const lemma *w, const pl_mat *mats)
{
    memset(w->assembled, 0, (size_t)(w->rows * w->cols) * sizeof(double));
    int64_t row = 0, col = 0;
    for (int64_t i = 0; i < w->n; i++) {
        PL_TRY(pl_mat_download_f64(w->q, &mats[i], w->block));
        put_block(w, w->block, &w->shape[i], row, col);
        row += w->shape[i].n * w->shape[i].d;
        col += w->shape[i].m * w->shape[i].d;
    }
    return POLAR_OK;
}

/* ||map of the whole - direct sum of w->out|| over ||map of the whole||. */
static polar_status compare(double *out, const lemma *w)
{
    double squares = 0;
    PL_TRY(assemble(w, w->out));
    PL_TRY(pl_mat_download_f64(w->q, &w->full_out, w->full));
    for (int64_t i = 0; i < w->rows * w->cols; i++)
        squares += (w->full[i] - w->assembled[i]) * (w->full[i] - w->assembled[i]);
    *out = sqrt(squares) / frobenius(w->full, w->rows * w->cols);
    return POLAR_OK;
}

/* The blocks of draw number `draw`, and their direct sum. */
static polar_status load_blocks(lemma *w, uint64_t seed, int64_t draw)
{
    for (int64_t i = 0; i < w->n; i++) {
        draw_block(w->block, &w->shape[i], i + draw * MAX_BLOCKS, seed);
        PL_TRY(pl_mat_upload_f64(w->q, &w->in[i], w->block));
    }
    PL_TRY(assemble(w, w->in));
    return pl_mat_upload_f64(w->q, &w->full_in, w->assembled);
}

static polar_status lemma_create(lemma *w, uint64_t seed)
{
    pl_device *dev = w->q->dev;
    int64_t largest = 0;
    for (int64_t i = 0; i < w->n; i++) {
        const pl_block_shape *s = &w->shape[i];
        PL_NEED(s->n >= 1 && s->m >= 1 && s->d >= 1 && s->rank >= 0 && s->rank * (s->n + s->m) <= 2048,
                POLAR_E_ARG, "block %lld of the lemma's direct sum", (long long)i);
        w->dim[i] = s->d;
        w->rows += s->n * s->d;
        w->cols += s->m * s->d;
        if (s->n * s->m > largest) largest = s->n * s->m;
        PL_TRY(pl_mat_alloc(&w->in[i], dev, POLAR_DTYPE_F64, 1, s->n, s->m));
        PL_TRY(pl_mat_alloc(&w->out[i], dev, POLAR_DTYPE_F64, 1, s->n, s->m));
    }
    PL_TRY(pl_mat_alloc(&w->full_in, dev, POLAR_DTYPE_F64, 1, w->rows, w->cols));
    PL_TRY(pl_mat_alloc(&w->full_out, dev, POLAR_DTYPE_F64, 1, w->rows, w->cols));
    w->block = pl_alloc((size_t)largest * sizeof(double));
    w->assembled = pl_alloc((size_t)(w->rows * w->cols) * sizeof(double));
    w->full = pl_alloc((size_t)(w->rows * w->cols) * sizeof(double));
    PL_NEED(w->block && w->assembled && w->full, POLAR_E_NOMEM, "a direct sum of %lldx%lld",
            (long long)w->rows, (long long)w->cols);
    return load_blocks(w, seed, 0);
}

static void lemma_destroy(lemma *w)
{
    pl_device *dev = w->q->dev;
    for (int64_t i = 0; i < w->n; i++) {
        pl_mat_free(&w->in[i], dev);
        pl_mat_free(&w->out[i], dev);
    }
    pl_mat_free(&w->full_in, dev);
    pl_mat_free(&w->full_out, dev);
    pl_free(w->block);
    pl_free(w->assembled);
    pl_free(w->full);
}

/* The map of the whole and of the blocks; shared: the blocks know that they belong together. */
static polar_status lemma_measure(double *out, lemma *w, const char *name, int shared)
{
    polar_map_opts map;
    polar_tensor in[MAX_BLOCKS], blocks[MAX_BLOCKS], whole_in = pl_mat_tensor(&w->full_in),
                                                     whole = pl_mat_tensor(&w->full_out);
    for (int64_t i = 0; i < w->n; i++) {
        in[i] = pl_mat_tensor(&w->in[i]);
        blocks[i] = pl_mat_tensor(&w->out[i]);
    }
    PL_TRY(polar_map_opts_parse(&map, name));
    PL_TRY(polar_map_apply(w->q, &whole, &whole_in, 1, &map));
    if (shared) PL_TRY(polar_map_apply_blocks(w->q, blocks, in, w->dim, w->n, &map));
    else PL_TRY(polar_map_apply(w->q, blocks, in, w->n, &map));
    return compare(out, w);
}

#define ADAMW_STEPS 3

static polar_status set_zero(const lemma *w, const pl_mat *m)
{
    memset(w->assembled, 0, (size_t)(w->rows * w->cols) * sizeof(double));
    return pl_mat_upload_f64(w->q, m, w->assembled);
}

/* An optimiser over n weights, all of it AdamW's. */
static polar_status make_adamw(polar_optim **out, const lemma *w, const pl_mat *weights, const pl_mat *grads,
                               int64_t n)
{
    polar_param params[MAX_BLOCKS];
    char names[MAX_BLOCKS][16];
    polar_optim_opts o;
    PL_TRY(polar_optim_opts_parse(&o, "adamw"));
    for (int64_t i = 0; i < n; i++) {
        snprintf(names[i], sizeof names[i], "block%d", (int)i);
        params[i] = (polar_param){
            .name = names[i], .weight = pl_mat_tensor(&weights[i]), .grad = pl_mat_tensor(&grads[i])};
    }
    return polar_optim_create(out, w->q->dev, params, n, &o);
}

/* From zero weights: what three steps make of them. */
static polar_status lemma_adamw(double *out, lemma *w, uint64_t seed)
{
    polar_optim *whole = NULL, *blocks = NULL;
    polar_status st = set_zero(w, &w->full_out);
    for (int64_t i = 0; i < w->n && st == POLAR_OK; i++) st = set_zero(w, &w->out[i]);
    if (st == POLAR_OK) st = make_adamw(&whole, w, &w->full_out, &w->full_in, 1);
    if (st == POLAR_OK) st = make_adamw(&blocks, w, w->out, w->in, w->n);
    for (int64_t t = 0; t < ADAMW_STEPS && st == POLAR_OK; t++) {
        st = load_blocks(w, seed, 1 + t);
        if (st == POLAR_OK) st = polar_optim_step(whole, w->q);
        if (st == POLAR_OK) st = polar_optim_step(blocks, w->q);
        if (st == POLAR_OK) st = polar_queue_sync(w->q);
    }
    if (st == POLAR_OK) st = compare(out, w);
    polar_optim_destroy(whole);
    polar_optim_destroy(blocks);
    return st;
}

polar_status pl_block_lemma_measure(pl_block_lemma *out, polar_queue *q, const pl_block_shape *shapes,
                                    int64_t n, uint64_t seed)
{
    lemma w = {.q = q,
               .shape = shapes ? shapes : default_blocks,
               .n = shapes ? n : (int64_t)(sizeof default_blocks / sizeof *default_blocks)};
    PL_NEED(w.n >= 1 && w.n <= MAX_BLOCKS, POLAR_E_ARG,
            "the block lemma is measured for 1 to %d blocks, not for %lld", MAX_BLOCKS, (long long)w.n);
    *out = (pl_block_lemma){.blocks = w.n};
    polar_status st = lemma_create(&w, seed);
    if (st == POLAR_OK) st = lemma_measure(&out->polar, &w, "exact", 1);
    if (st == POLAR_OK) st = lemma_measure(&out->ns5_shared_norm, &w, "ns_fp64", 1);
    if (st == POLAR_OK) st = lemma_measure(&out->ns5_own_norms, &w, "ns_fp64", 0);
    if (st == POLAR_OK) st = lemma_adamw(&out->adamw, &w, seed);
    if (st != POLAR_OK) (void)polar_queue_sync(q); /* nothing may still use what is freed now */
    out->rows = w.rows;
    out->cols = w.cols;
    lemma_destroy(&w);
    return st;
}
