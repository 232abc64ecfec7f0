/* cpu_newton_schulz.c -- the op newton_schulz on the tile unit: one matrix to a thread, all steps in its
 * second cache (cpu_ns.c); matrices too large for the cache as three gemms a step, which have the same bits.
 */
#include <stdatomic.h>

#include "cpu_ns.h"

#ifdef PL_TILES

/* From the matrix at x. */
static void pack_matrix(pl_ns *w, const pl_bf16 *x, const pl_mat *X)
{
    for (int64_t i = 0; i < X->rows; i += PL_BLOCK) {
        pl_bf16 *rows = pl_ns_rows(w, i / PL_BLOCK);
        for (int64_t j = 0; j < X->cols; j += PL_BLOCK, rows += PL_BLOCK_SIZE)
            pl_block_left(rows, x + i * X->rs + j, X->rs, X->rows - i, X->cols - j);
        pl_ns_put(w, i / PL_BLOCK);
    }
}

/* Back to it: what lies inside. */
static void unpack_matrix(const pl_ns *w, pl_bf16 *x, const pl_mat *X)
{
    for (int64_t i = 0; i < X->rows; i += PL_BLOCK) {
        const pl_bf16 *rows = pl_ns_get(w, i / PL_BLOCK);
        for (int64_t r = 0; r < PL_BLOCK && i + r < X->rows; r++)
            for (int64_t j = 0; j < X->cols; j += PL_BLOCK) {
                int64_t cols = X->cols - j;
                __mmask32 inside = cols >= PL_BLOCK ? 0xFFFFFFFFu : 0xFFFFFFFFu >> (PL_BLOCK - cols);
                _mm512_mask_storeu_epi16(x + (i + r) * X->rs + j, inside,
                                         _mm512_load_si512(rows + j * PL_BLOCK + PL_BLOCK * r));
            }
    }
}

static void in_cache(pl_ns *w, const pl_args_newton_schulz *a, int64_t b)
{
    pl_bf16 *x = (pl_bf16 *)a->X.data + b * a->X.bs;
    pack_matrix(w, x, &a->X);
    PL_ISA_NAME(pl_ns_steps)(w, a->coef, a->steps, a->chain);
    unpack_matrix(w, x, &a->X);
}

typedef struct {
    const pl_args_newton_schulz *a;
    char *work;           /* of every thread, */
    size_t bytes;         /* so much */
    _Atomic int64_t next; /* matrix */
} shared;

static void share(void *arg, int me)
{
    shared *o = arg;
    const pl_args_newton_schulz *a = o->a;
    pl_ns w;
    PL_ISA_NAME(pl_ns_point)(&w, o->work + (size_t)me * o->bytes, a->X.rows, a->X.cols, a->chain);
    pl_ns_begin(&w);
    for (int64_t b; (b = atomic_fetch_add(&o->next, 1)) < a->X.batch;) in_cache(&w, a, b);
    pl_ns_end(&w);
}

static void product(pl_queue *q, pl_mat C, double alpha, pl_mat A, pl_mat B, double beta, pl_mat D)
{
    if (q->error == POLAR_OK) PL_ISA_NAME(pl_cpu_gemm)
    (q, &(pl_args_gemm){.C = C, .A = A, .B = B, .alpha = alpha, .D = D, .beta = beta});
}

/* P as cpu_ns.c's `polynomial` leaves it, of A, which changes; S, B, T (f32) are room. Returns the factor of
 * I. */
static double join(pl_queue *q, pl_mat *P, pl_mat A, pl_mat S, pl_mat B, pl_mat T, const double *k,
                   int64_t joined)
{
    pl_mat last = *P;
    double factor = k[0];
    for (int64_t s = 0; s < joined; s++) {
        product(q, S, 1, last, A, k[0], A);
        product(q, A, 1, S, last, k[0], S);
        k += 3, last = B;
        product(q, B, k[2], A, A, k[1], A);
        if (q->error == POLAR_OK) PL_ISA_NAME(pl_cpu_axpby)
        (q, &(pl_args_axpby){.Y = T, .X = B, .alpha = factor, .Z = *P, .beta = k[0]});
        product(q, S, 1, B, *P, 1, T);
        pl_mat_swap(P, &S);
        factor *= k[0];
    }
    return factor;
}

/* rooms of m x m that by_gemm wants: A, P; in a chain S, B, and T in f32 */
#define SQUARES(chain) ((chain) ? 6 : 2)

/* Three gemms a step, each over all threads, matrix after matrix; work holds the next X and the squares. Of a
 * tall matrix T = X^T: A = T^T T, T = a T + T P. */
static void by_gemm(pl_queue *q, const pl_args_newton_schulz *a, pl_bf16 *work)
{
    int tall = a->X.rows > a->X.cols;
    int64_t m = tall ? a->X.cols : a->X.rows;
    pl_mat T = pl_mat_dense(work, POLAR_DTYPE_F32, 1, m, m); /* first, as floats want it */
    pl_bf16 *next = a->chain ? work + 2 * m * m : work, *room = next + a->X.rows * a->X.cols;
    pl_mat A = pl_mat_dense(room, POLAR_DTYPE_BF16, 1, m, m),
           P = pl_mat_dense(room + m * m, POLAR_DTYPE_BF16, 1, m, m);
    pl_mat S = pl_mat_dense(room + 2 * m * m, POLAR_DTYPE_BF16, 1, m, m),
           B = pl_mat_dense(room + 3 * m * m, POLAR_DTYPE_BF16, 1, m, m);
    for (int64_t b = 0; b < a->X.batch; b++) {
        pl_mat home = pl_mat_at(a->X, b, 1), X = home,
               Y = pl_mat_dense(next, POLAR_DTYPE_BF16, 1, X.rows, X.cols);
        for (int64_t s = 0, joined; s < a->steps && q->error == POLAR_OK; s += 1 + joined) {
            const double *k = a->coef + 3 * s;
            pl_mat poly = P;
            joined = pl_chain_joined(a->chain, s);
            PL_ISA_NAME(pl_cpu_gemm)
            (q, &(pl_args_gemm){.C = A, .A = X, .B = X, .ta = tall, .tb = !tall, .alpha = 1});
            product(q, poly, k[2], A, A, k[1], A);
            double factor = join(q, &poly, A, S, B, T, k, joined);
            product(q, Y, 1, tall ? X : poly, tall ? poly : X, factor, X);
            pl_mat_swap(&X, &Y);
        }
        if (X.data != home.data) PL_ISA_NAME(pl_cpu_copy)(q, &(pl_args_copy){.Y = home, .X = X});
    }
}

static int team(const pl_args_newton_schulz *a, int threads)
{
    return a->X.batch < threads ? (int)a->X.batch : threads;
}

size_t PL_ISA_NAME(pl_cpu_newton_schulz_bytes)(const pl_args_newton_schulz *a, int threads)
{
    pl_ns size;
    size_t bytes = PL_ISA_NAME(pl_ns_point)(&size, NULL, a->X.rows, a->X.cols, a->chain);
    return bytes <= PL_NS_CACHE
               ? bytes * (size_t)team(a, threads)
               : (size_t)(size.m * size.n + SQUARES(a->chain) * size.m * size.m) * sizeof(pl_bf16);
}

void PL_ISA_NAME(pl_cpu_newton_schulz)(pl_queue *q, const pl_args_newton_schulz *a)
{
    pl_ns size;
    int threads = team(a, q->dev->threads);
    size_t bytes = PL_ISA_NAME(pl_ns_point)(&size, NULL, a->X.rows, a->X.cols, a->chain);
    pl_scratch_mark mark = pl_scratch_begin(q);
    char *work = pl_scratch_take(q, PL_ISA_NAME(pl_cpu_newton_schulz_bytes)(a, q->dev->threads));
    if (!work) return; /* the queue knows why */
    if (bytes > PL_NS_CACHE) by_gemm(q, a, (pl_bf16 *)work);
    else pl_pool_run(q->dev->pool, threads, share, &(shared){.a = a, .work = work, .bytes = bytes});
    if (a->Y.data) PL_ISA_NAME(pl_cpu_copy)(q, &(pl_args_copy){.Y = a->Y, .X = a->X});
    pl_scratch_end(q, mark);
}

#endif
