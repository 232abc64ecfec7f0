/* cpu_newton_schulz.c -- the op newton_schulz on the tile unit: one matrix to a thread, all steps in its second cache (cpu_ns.c); matrices too large for the
 * cache as three gemms a step, which have the same bits.
 */
#include <omp.h>

#include "cpu_ns.h"

#ifdef PL_TILES

/* From the matrix at x. */
static void pack_matrix(pl_ns *w, const pl_bf16 *x, const pl_mat *X)
{
    for (int64_t i = 0; i < X->rows; i += PL_BLOCK) {
        pl_bf16 *rows = pl_ns_rows(w, i / PL_BLOCK);
        for (int64_t j = 0; j < X->cols; j += PL_BLOCK, rows += PL_BLOCK_SIZE) pl_block_left(rows, x + i * X->rs + j, X->rs, X->rows - i, X->cols - j);
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
                _mm512_mask_storeu_epi16(x + (i + r) * X->rs + j, inside, _mm512_load_si512(rows + j * PL_BLOCK + PL_BLOCK * r));
            }
    }
}

static void in_cache(pl_ns *w, const pl_args_newton_schulz *a, int64_t b)
{
    pl_bf16 *x = (pl_bf16 *)a->X.data + b * a->X.bs;
    pack_matrix(w, x, &a->X);
    PL_ISA_NAME(pl_ns_steps)(w, a->coef, a->steps);
    unpack_matrix(w, x, &a->X);
}

static void share(const pl_args_newton_schulz *a, char *work, int threads)
{
    pl_ns w;
    PL_ISA_NAME(pl_ns_point)(&w, work, a->X.rows, a->X.cols);
    pl_ns_begin(&w);
    if (threads == 1)
        for (int64_t b = 0; b < a->X.batch; b++) in_cache(&w, a, b);
    else
#pragma omp for schedule(dynamic) nowait
        for (int64_t b = 0; b < a->X.batch; b++) in_cache(&w, a, b);
    pl_ns_end(&w);
}

/* Three gemms a step, each over all threads, matrix after matrix; work holds the next X, A and P. Of a tall matrix T = X^T: A = T^T T, T = a T + T P. */
static void by_gemm(pl_queue *q, const pl_args_newton_schulz *a, pl_bf16 *work)
{
    int tall = a->X.rows > a->X.cols;
    int64_t m = tall ? a->X.cols : a->X.rows, size = a->X.rows * a->X.cols;
    for (int64_t b = 0; b < a->X.batch; b++) {
        pl_mat home = pl_mat_at(a->X, b, 1), X = home, Y = pl_mat_dense(work, POLAR_DTYPE_BF16, 1, X.rows, X.cols);
        pl_mat A = pl_mat_dense(work + size, POLAR_DTYPE_BF16, 1, m, m), P = pl_mat_dense(work + size + m * m, POLAR_DTYPE_BF16, 1, m, m);
        for (int64_t s = 0; s < a->steps && q->error == POLAR_OK; s++) {
            const double *k = a->coef + 3 * s;
            PL_ISA_NAME(pl_cpu_gemm)(q, &(pl_args_gemm){.C = A, .A = X, .B = X, .ta = tall, .tb = !tall, .alpha = 1});
            PL_ISA_NAME(pl_cpu_gemm)(q, &(pl_args_gemm){.C = P, .A = A, .B = A, .alpha = k[2], .D = A, .beta = k[1]});
            PL_ISA_NAME(pl_cpu_gemm)(q, &(pl_args_gemm){.C = Y, .A = tall ? X : P, .B = tall ? P : X, .alpha = 1, .D = X, .beta = k[0]});
            pl_mat t = X;
            X = Y, Y = t;
        }
        if (a->steps % 2) PL_ISA_NAME(pl_cpu_copy)(q, &(pl_args_copy){.Y = home, .X = X});
    }
}

static int team(const pl_args_newton_schulz *a, int threads)
{
    return a->X.batch < threads ? (int)a->X.batch : threads;
}

size_t PL_ISA_NAME(pl_cpu_newton_schulz_bytes)(const pl_args_newton_schulz *a, int threads)
{
    pl_ns size;
    size_t bytes = PL_ISA_NAME(pl_ns_point)(&size, NULL, a->X.rows, a->X.cols);
    return bytes <= PL_NS_CACHE ? bytes * (size_t)team(a, threads) : (size_t)(size.m * size.n + 2 * size.m * size.m) * sizeof(pl_bf16);
}

void PL_ISA_NAME(pl_cpu_newton_schulz)(pl_queue *q, const pl_args_newton_schulz *a)
{
    pl_ns size;
    int threads = team(a, q->dev->threads);
    size_t bytes = PL_ISA_NAME(pl_ns_point)(&size, NULL, a->X.rows, a->X.cols);
    pl_scratch_mark mark = pl_scratch_begin(q);
    char *work = pl_scratch_take(q, PL_ISA_NAME(pl_cpu_newton_schulz_bytes)(a, q->dev->threads));
    if (!work) return;    /* the queue knows why */
    if (bytes > PL_NS_CACHE) by_gemm(q, a, (pl_bf16 *)work);
    else if (threads == 1) share(a, work, 1);
    else
#pragma omp parallel num_threads(threads)
        share(a, work + (size_t)omp_get_thread_num() * bytes, threads);
    pl_scratch_end(q, mark);
}

#endif
