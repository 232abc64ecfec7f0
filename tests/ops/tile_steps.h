/* tile_steps.h -- for test_amx.c: steps of Newton-Schulz by the op, and the same by gemms; parameters of
 * whole steps. */
#ifndef POLAR_TEST_TILE_STEPS_H
#define POLAR_TEST_TILE_STEPS_H

#include "polar/map.h"
#include "tile_products.h"

static const polar_coef jordan = {3.4445, -4.7750, 2.0315};

/* X over its norm, roughly: entries of [-1, 1] over sqrt(m n / 3). */
static inline matrix iterate_create(int64_t batch, int64_t m, int64_t n, int64_t pad, uint64_t seed)
{
    matrix x = matrix_create(BF16, batch, m, n, pad, NORMAL, seed);
    for (int64_t b = 0; b < batch; b++)
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++) {
                char *at = (char *)element(&x.m, b, i, j);
                pl_store_f64(at, BF16, 0, pl_load_f64(at, BF16, 0) / sqrt((double)(m * n) / 3));
            }
    return x;
}

static inline matrix copy_of(const matrix *x)
{
    matrix y = *x;
    y.block = malloc(x->bytes);
    if (!y.block) exit(1);
    memcpy(y.block, x->block, x->bytes);
    y.m.data = y.block + ((char *)x->m.data - x->block);
    return y;
}

/* X becomes the result, or Y where there is one. */
static inline void by_op_into(machine *at, pl_mat y, const matrix *x, int64_t steps, int64_t chain)
{
    pl_args_newton_schulz a = {.X = x->m, .Y = y, .steps = steps, .chain = chain};
    for (int64_t s = 0; s < steps && s < PL_FUSED_STEPS; s++)
        a.coef[3 * s] = jordan.a - 0.01 * (double)s, a.coef[3 * s + 1] = jordan.b,
                   a.coef[3 * s + 2] = jordan.c;
    pl_call_newton_schulz(at->q, &a);
    TEST_TRY(polar_queue_sync(at->q));
}

static inline void by_op(machine *at, const matrix *x, int64_t steps, int64_t chain)
{
    by_op_into(at, (pl_mat){0}, x, steps, chain);
}

/* Entries of a result of its own, in this format, that are not those of X's, and guards that it broke. */
static inline int64_t wrong_into(machine *at, polar_dtype dtype, const matrix *x, const matrix *result,
                                 int64_t steps)
{
    int64_t batch = x->m.batch, rows = x->m.rows, cols = x->m.cols, wrong;
    matrix X = copy_of(x), Y = matrix_create(dtype, batch, rows, cols, 3, NORMAL, 2),
           wanted = matrix_create(dtype, batch, rows, cols, 0, NORMAL, 3);
    PL_CALL(copy, at->q, .Y = wanted.m, .X = result->m);
    by_op_into(at, Y.m, &X, steps, 0);
    wrong = differences(&Y.m, &wanted.m, 0) + guards_broken(&Y) + guards_broken(&X);
    matrix_destroy(&X), matrix_destroy(&Y), matrix_destroy(&wanted);
    return wrong;
}

static inline void by_gemms(machine *at, const matrix *x, int64_t steps)
{
    int64_t B = x->m.batch, m = x->m.rows, n = x->m.cols;
    matrix A = matrix_create(BF16, B, m, m, 1, NORMAL, 7), P = matrix_create(BF16, B, m, m, 0, NORMAL, 8),
           Y = matrix_create(BF16, B, m, n, 2, NORMAL, 9);
    for (int64_t s = 0; s < steps; s++) {
        PL_CALL(gemm, at->q, .C = A.m, .A = x->m, .B = x->m, .tb = 1, .alpha = 1);
        PL_CALL(gemm, at->q, .C = P.m, .A = A.m, .B = A.m, .alpha = jordan.c, .D = A.m, .beta = jordan.b);
        PL_CALL(gemm, at->q, .C = Y.m, .A = P.m, .B = x->m, .alpha = 1, .D = x->m,
                .beta = jordan.a - 0.01 * (double)s);
        PL_CALL(copy, at->q, .Y = x->m, .X = Y.m);
    }
    TEST_TRY(polar_queue_sync(at->q));
    matrix_destroy(&A), matrix_destroy(&P), matrix_destroy(&Y);
}

/* Blocks of `block` rows and columns above the diagonal become those below it, transposed. */
static inline void mirror(const pl_mat *x, int64_t block)
{
    for (int64_t b = 0; b < x->batch; b++)
        for (int64_t i = 0; i < x->rows; i++)
            for (int64_t j = (i / block + 1) * block; j < x->cols; j++)
                memcpy((char *)element(x, b, i, j), element(x, b, j, i), sizeof(uint16_t));
}

static inline void product(machine *at, const matrix *C, double alpha, const matrix *A, const matrix *B,
                           double beta, const pl_mat *D, int64_t block)
{
    PL_CALL(gemm, at->q, .C = C->m, .A = A->m, .B = B->m, .alpha = alpha, .D = *D, .beta = beta);
    TEST_TRY(polar_queue_sync(at->q));
    if (block) mirror(&C->m, block);
}

/* Steps joined by their polynomials: Q = q I + P from the left, one Z = a I + B after the other; A = Z A Z.
 */
static inline void by_chain(machine *at, const matrix *x, int64_t steps, int64_t block)
{
    int64_t N = x->m.batch, m = x->m.rows, n = x->m.cols;
    matrix A = matrix_create(BF16, N, m, m, 1, NORMAL, 7), P = matrix_create(BF16, N, m, m, 0, NORMAL, 8),
           B = copy_of(&P), W = copy_of(&P), Y = matrix_create(BF16, N, m, n, 2, NORMAL, 9);
    matrix T = matrix_create(F32, N, m, m, 0, NORMAL, 8);
    double q = jordan.a;
    PL_CALL(gemm, at->q, .C = A.m, .A = x->m, .B = x->m, .tb = 1, .alpha = 1);
    product(at, &P, jordan.c, &A, &A, jordan.b, &A.m, 0);
    PL_CALL(copy, at->q, .Y = B.m, .X = P.m);
    for (int64_t s = 1; s < steps; s++) {
        double before = jordan.a - 0.01 * (double)(s - 1), a = jordan.a - 0.01 * (double)s;
        product(at, &W, 1, &B, &A, before, &A.m, block);
        product(at, &A, 1, &W, &B, before, &W.m, block);
        product(at, &B, jordan.c, &A, &A, jordan.b, &A.m, block);
        PL_CALL(axpby, at->q, .Y = T.m, .X = B.m, .alpha = q, .Z = P.m, .beta = a);
        product(at, &W, 1, &B, &P, 1, &T.m, block);
        PL_CALL(copy, at->q, .Y = P.m, .X = W.m);
        q *= a;
    }
    product(at, &Y, 1, &P, x, q, &x->m, 0);
    PL_CALL(copy, at->q, .Y = x->m, .X = Y.m);
    TEST_TRY(polar_queue_sync(at->q));
    matrix_destroy(&A), matrix_destroy(&P), matrix_destroy(&B), matrix_destroy(&W), matrix_destroy(&Y),
        matrix_destroy(&T);
}

/* One parameter's tensors, W, M, V, G, and its live values: a row per matrix, the second matrix frozen, the
 * third left out, the fourth's gradient with a factor. */
typedef struct {
    matrix W, M, V, G;
    double live[PL_LIVE_COLS * 8];
    int per_matrix;
} parameter;

static inline parameter parameter_create(const shape *s, polar_dtype g, int64_t pad, int per_matrix,
                                         uint64_t seed)
{
    parameter p = {.W = matrix_create(F32, s->batch, s->M, s->N, pad, NORMAL, seed),
                   .M = matrix_create(F32, s->batch, s->M, s->N, pad, NORMAL, seed + 1),
                   .V = matrix_create(F32, s->batch, s->M, s->N, 0, NORMAL, seed + 2),
                   .G = matrix_create(g, s->batch, s->M, s->N, pad, NORMAL, seed + 3),
                   .per_matrix = per_matrix};
    for (int64_t i = 0; i < s->batch * p.V.m.bs; i++)
        ((float *)p.V.m.data)[i] = fabsf(((float *)p.V.m.data)[i]);
    for (int b = 0; b < 8; b++) {
        double *row = p.live + PL_LIVE_COLS * b;
        pl_live_row(row, 1.9 + b, 3.1 + b, b == 1 ? 0 : 0.02, 0.1, 0.9, 0.999, 1e-8);
        row[PL_LIVE_SKIP] = b == 2;
        if (b == 3) row[PL_LIVE_GRAD] = 0.3;
    }
    return p;
}

static inline parameter parameter_copy(const parameter *p)
{
    parameter c = *p;
    c.W = copy_of(&p->W), c.M = copy_of(&p->M), c.V = copy_of(&p->V), c.G = copy_of(&p->G);
    return c;
}

static inline void parameter_destroy(parameter *p)
{
    matrix_destroy(&p->W), matrix_destroy(&p->M), matrix_destroy(&p->V), matrix_destroy(&p->G);
}

static inline pl_mat live_rows(const parameter *p)
{
    return pl_mat_dense((void *)p->live, POLAR_DTYPE_F64, p->per_matrix ? p->W.m.batch : 1, 1, PL_LIVE_COLS);
}

#endif
